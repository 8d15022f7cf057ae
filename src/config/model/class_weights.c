#include "config/model/class_weights.h"

#include <float.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* NULL: out of memory, or not JSON. */
static json_t *parse(const char *text)
{
    const size_t bytes = strlen(text) + 3;
    char *array = NULL;
    if (text[0] == '[') return json_loads(text, 0, NULL);
    if (ps_mem_alloc(bytes, 1, &array) != PS_OK) return NULL;
    snprintf(array, bytes, "[%s]", text);
    json_t *root = json_loads(array, 0, NULL);
    ps_mem_free(array);
    return root;
}

static ps_status take(const json_t *root, const char *text, int64_t n, float *out)
{
    double sum = 0;
    if (!json_is_array(root) || (int64_t)json_array_size(root) != n)
        return PS_FAIL(PS_EINVAL, "train.class_weights = \"%.200s\": expected %lld numbers, one for each class", text,
                       (long long)n);
    for (int64_t i = 0; i < n; i++) {
        const json_t *number = json_array_get(root, (size_t)i);
        const double value = json_number_value(number);
        if (!json_is_number(number) || value < 0 || value > (double)FLT_MAX)
            return PS_FAIL(PS_EINVAL, "train.class_weights = \"%.200s\": entry %lld is no number from 0 on", text,
                           (long long)i);
        out[i] = (float)value;
        sum += (double)out[i];
    }
    return sum > 0 ? PS_OK : PS_FAIL(PS_EINVAL, "train.class_weights = \"%.200s\": all are 0", text);
}

ps_status ps_class_weights_parse(const char *text, int64_t n, float **out)
{
    *out = NULL;
    if (text[0] == '\0') return PS_OK;
    json_t *root = parse(text);
    ps_status st = ps_mem_alloc((size_t)n, sizeof **out, out);
    if (st == PS_OK) st = take(root, text, n, *out);
    json_decref(root);
    if (st == PS_OK) return PS_OK;
    ps_mem_free(*out);
    *out = NULL;
    return st;
}
