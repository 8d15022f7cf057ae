#include "plan/model_data_min.h"

#include "base/bytes.h"

/* The chunks of a list are dealt out to the ranks in turn, so none owns more than the first, and that one no less than
 * an equal part. */
int64_t ps_model_data_min_bytes(const ps_settings *s, const ps_program *program)
{
    int64_t bytes = 0;
    for (int32_t t = 0; t < program->n_params; t++) {
        const ps_param *p = &program->params[t];
        const bool is_trained = s->training && !p->is_frozen;
        bytes +=
            p->elements * ((int64_t)ps_dtype_bytes(s->dtype) + (is_trained ? ps_optimizer_bytes(&s->optimizer) : 0));
    }
    return bytes / s->ranks.n;
}

ps_status ps_model_data_min_check(const ps_settings *s, const ps_program *program, const ps_budgets *budgets)
{
    char bytes_text[PS_BYTES_TEXT_MAX], room_text[PS_BYTES_TEXT_MAX];
    const int64_t bytes = ps_model_data_min_bytes(s, program);
    int64_t room = 0;
    for (int t = 0; t < PS_TIER_COUNT; t++) room += budgets->bytes[t];
    if (bytes <= room) return PS_OK;
    return PS_FAIL(PS_EBUDGET,
                   "parameters and optimizer states need at least %s (%lld bytes)%s; memory.device, memory.host and "
                   "memory.disk together hold %s (%lld bytes)",
                   ps_bytes_format(bytes, bytes_text), (long long)bytes, s->ranks.n > 1 ? " per rank" : "",
                   ps_bytes_format(room, room_text), (long long)room);
}

int64_t ps_model_data_min_left_to(int64_t min_bytes, const ps_budgets *budgets, ps_tier tier)
{
    int64_t bytes = min_bytes;
    for (int t = 0; t < PS_TIER_COUNT; t++)
        if (t != (int)tier) bytes -= ps_min_i64(budgets->bytes[t], bytes);
    return bytes;
}
