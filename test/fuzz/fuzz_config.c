/* fuzz_config.c - arbitrary bytes as a configuration file and as words of the command line.
 *
 * Checked besides the sanitizers: a configuration that is accepted can be dumped, the dump is accepted, and a second
 * dump equals it; json_locate finds every value of the text that jansson accepts, where jansson says it is; nothing
 * leaks. */
#include "base/mem.h"
#include "config/config.h"
#include "config/json_locate.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

#define MUST(cond)                                                                                                     \
    do {                                                                                                               \
        if (!(cond)) {                                                                                                 \
            fprintf(stderr, "%s:%d: not true: %s (%s)\n", __FILE__, __LINE__, #cond, ps_last_error());                 \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

static void check_dump(const ps_config *config)
{
    char *first = NULL, *second = NULL;
    ps_config *again = NULL;
    MUST(ps_config_dump_json(config, &first) == PS_OK);
    MUST(ps_config_parse(first, "dump", &again) == PS_OK);
    MUST(ps_config_dump_json(again, &second) == PS_OK);
    MUST(strcmp(first, second) == 0);
    ps_free(first);
    ps_free(second);
    ps_config_destroy(again);
}

/* Whether a value of this type may begin with c. */
static bool begins(const json_t *json, char c)
{
    switch (json_typeof(json)) {
    case JSON_OBJECT: return c == '{';
    case JSON_ARRAY: return c == '[';
    case JSON_STRING: return c == '"';
    case JSON_TRUE: return c == 't';
    case JSON_FALSE: return c == 'f';
    case JSON_NULL: return c == 'n';
    case JSON_INTEGER:
    case JSON_REAL: return c == '-' || (c >= '0' && c <= '9');
    }
    return false;
}

static void check_places(json_t *json, const ps_json_path *path, const char *text, size_t n_bytes, int depth)
{
    ps_json_position place;
    MUST(ps_json_locate(text, n_bytes, path, &place));
    MUST(begins(json, text[place.value_offset]));
    if (json_is_string(json) || json_is_integer(json)) { /* read again what stands there */
        json_t *there = json_loadb(text + place.value_offset, n_bytes - place.value_offset,
                                   JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK, NULL);
        MUST(json_equal(there, json));
        json_decref(there);
    }
    if (depth == 0) return;
    const char *key;
    json_t *member;
    size_t index;
    json_object_foreach(json, key, member)
    {
        const ps_json_path inner = {.parent = path, .key = key};
        check_places(member, &inner, text, n_bytes, depth - 1);
    }
    json_array_foreach(json, index, member)
    {
        const ps_json_path inner = {.parent = path, .index = index};
        check_places(member, &inner, text, n_bytes, depth - 1);
    }
}

static void check_file(const char *text, size_t n_bytes)
{
    json_t *root = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, NULL);
    if (root != NULL && n_bytes < 4096) check_places(root, NULL, text, n_bytes, 6);
    ps_config *config = NULL;
    const ps_status st = ps_config_parse(text, "fuzz", &config);
    MUST((st == PS_OK) == (config != NULL));
    MUST(st == PS_OK || root != NULL || st == PS_EFORMAT);
    if (st == PS_OK) check_dump(config);
    ps_config_destroy(config);
    json_decref(root);
}

/* "key=value" a line, on a configuration with defaults. */
static void check_words(char *text)
{
    ps_config *config = NULL;
    MUST(ps_config_create(&config) == PS_OK);
    for (char *line = text, *end; line != NULL; line = end) {
        end = strchr(line, '\n');
        if (end != NULL) *end++ = '\0';
        char *value = strchr(line, '=');
        if (value == NULL) continue;
        *value++ = '\0';
        if (ps_config_set(config, line, value) != PS_OK) MUST(ps_last_error()[0] != '\0');
    }
    if (ps_config_validate(config) == PS_OK) check_dump(config);
    ps_config_destroy(config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    const int64_t live = ps_mem_live_bytes();
    char *text = malloc(n_bytes + 1);
    if (text == NULL) return 0;
    if (n_bytes > 0) memcpy(text, data, n_bytes);
    text[n_bytes] = '\0';
    check_file(text, strlen(text));
    check_words(text);
    free(text);
    MUST(ps_mem_live_bytes() == live);
    return 0;
}
