#include "train/plan/model_data_min.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"

/* The chunks of a list are assigned to the ranks in turn, so the first rank owns most, and no less than an equal
 * part. */
int64_t ps_model_data_min_bytes(const ps_settings *s, const ps_program *program)
{
    int64_t bytes = 0;
    for (int32_t t = 0; t < program->n_params; t++) {
        const ps_param *p = &program->params[t];
        const bool is_trained = s->training && !p->is_frozen;
        bytes += ps_param_stored_elements(p, s->dtype) * (int64_t)ps_dtype_bytes(s->dtype);
        if (is_trained)
            bytes +=
                ps_optimizer_bytes_of(&s->optimizer, ps_optimizer_states_of(&s->optimizer, p->is_whole), p->elements);
    }
    return bytes / s->ranks.n;
}

const char *ps_budgets_format(const ps_budgets *budgets, char text[PS_BUDGETS_TEXT_MAX])
{
    char bytes[PS_BYTES_TEXT_MAX];
    int n = 0;
    for (int t = 0; t < PS_TIER_COUNT; t++) {
        const bool is_there = budgets->bytes[t] > 0;
        n += snprintf(text + n, (size_t)(PS_BUDGETS_TEXT_MAX - n), "%s%s%s%s%s", t > 0 ? ", " : "",
                      is_there ? "" : "no ", ps_tier_name((ps_tier)t), is_there ? " " : "",
                      is_there ? ps_bytes_format(budgets->bytes[t], bytes) : "");
    }
    return text;
}

ps_status ps_model_data_min_check(const ps_settings *s, const ps_program *program, const ps_budgets *budgets)
{
    char bytes_text[PS_BYTES_TEXT_MAX], room_text[PS_BYTES_TEXT_MAX], text[PS_BUDGETS_TEXT_MAX];
    const int64_t bytes = ps_model_data_min_bytes(s, program);
    int64_t room = 0;
    for (int t = 0; t < PS_TIER_COUNT; t++) room += budgets->bytes[t];
    if (bytes <= room) return PS_OK;
    ps_bytes_format(bytes, bytes_text);
    ps_bytes_format(room, room_text);
    const bool looks_equal = strcmp(bytes_text, room_text) == 0;
    if (looks_equal) ps_bytes_format(bytes - room, room_text);
    return PS_FAIL(PS_EBUDGET, "%s of model data%s, %s%s%s (%s)", bytes_text, s->ranks.n > 1 ? " a rank" : "",
                   looks_equal ? "" : "room for ", room_text, looks_equal ? " more than there is" : "",
                   ps_budgets_format(budgets, text));
}

int64_t ps_model_data_min_left_to(int64_t min_bytes, const ps_budgets *budgets, ps_tier tier)
{
    int64_t bytes = min_bytes;
    for (int t = 0; t < PS_TIER_COUNT; t++)
        if (t != (int)tier) bytes -= ps_min_i64(budgets->bytes[t], bytes);
    return bytes;
}
