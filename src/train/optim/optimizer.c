#include "train/optim/optimizer.h"

#include <stdio.h>
#include <string.h>

ps_status ps_optimizer_read(const ps_options *o, ps_optimizer_setup *out)
{
    static const ps_optimizer *const optimizers[] = {
#define XX(value, text, optimizer, ...) [value] = &ps_optimizer_##optimizer,
        PS_CONFIG_OPTIMIZER_MAP(XX)
#undef XX
    };
    const ps_config_state_format format = o->optimizer_params_state_format;
    *out = (ps_optimizer_setup){.optimizer = optimizers[o->optimizer_type],
                                .weight_decay = o->optimizer_params_weight_decay,
                                .betas = {o->optimizer_params_betas[0], o->optimizer_params_betas[1]},
                                .eps = o->optimizer_params_eps,
                                .is_compact = format == PS_CONFIG_STATE_FORMAT_COMPACT ||
                                              format == PS_CONFIG_STATE_FORMAT_COMPACT_SPLIT,
                                .is_split = format == PS_CONFIG_STATE_FORMAT_COMPACT_SPLIT,
                                .is_stochastic = format == PS_CONFIG_STATE_FORMAT_BF16_STOCHASTIC};
    return out->optimizer->read(o, out);
}

ps_status ps_optimizer_update(ps_backend *b, ps_queue *queue, const ps_optimizer_setup *o, const ps_optimizer_step *s,
                              const ps_optimizer_piece *p)
{
    return o->optimizer->update(b, queue, o, s, p);
}

const char *ps_optimizer_state_name(const ps_optimizer_setup *o, int32_t i)
{
    return i >= 0 && i < o->n_states ? o->optimizer->states[i].suffix + 1 : NULL; /* without its dot */
}

int32_t ps_optimizer_find_state(const ps_optimizer_setup *o, const char *name)
{
    for (int32_t i = 0; i < o->n_states; i++)
        if (strcmp(ps_optimizer_state_name(o, i), name) == 0) return i;
    return -1;
}

const char *ps_optimizer_kept_text(const ps_optimizer_setup *o, char text[PS_OPTIMIZER_KEPT_TEXT_MAX])
{
    size_t n = 0;
    snprintf(text, PS_OPTIMIZER_KEPT_TEXT_MAX, "nothing");
    for (int32_t i = 0; i < o->n_states; i++, n = strlen(text))
        snprintf(text + n, PS_OPTIMIZER_KEPT_TEXT_MAX - n, "%s%s", i > 0 ? ", " : "", ps_optimizer_state_name(o, i));
    return text;
}

ps_format ps_optimizer_state_format(const ps_optimizer_setup *o, int32_t i)
{
    return o->is_stochastic ? PS_FORMAT_BF16 : o->is_compact ? o->optimizer->states[i].compact : PS_FORMAT_F32;
}

ps_status ps_optimizer_update_whole(ps_backend *b, ps_queue *queue, const ps_optimizer_setup *o,
                                    const ps_optimizer_step *s, const ps_optimizer_matrix *m)
{
    return o->optimizer->update_whole(b, queue, o, s, m);
}

ps_status ps_optimizer_scratch_bytes(ps_backend *b, const ps_optimizer_setup *o, int64_t rows, int64_t cols,
                                     int64_t *bytes)
{
    return o->optimizer->scratch_bytes(b, o, rows, cols, bytes);
}

double ps_optimizer_whole_flops(const ps_optimizer_setup *o, int64_t rows, int64_t cols)
{
    return o->optimizer->flops(o, rows, cols);
}

uint32_t ps_optimizer_states_of(const ps_optimizer_setup *o, bool is_whole)
{
    const uint32_t all = (1u << o->n_states) - 1, whole = o->optimizer->whole_states;
    return is_whole ? all & whole : all & ~whole;
}

ps_config_state_format ps_optimizer_format(const ps_optimizer_setup *o)
{
    if (o->is_stochastic) return PS_CONFIG_STATE_FORMAT_BF16_STOCHASTIC;
    if (!o->is_compact || o->n_states == 0) return PS_CONFIG_STATE_FORMAT_FP32;
    return o->is_split ? PS_CONFIG_STATE_FORMAT_COMPACT_SPLIT : PS_CONFIG_STATE_FORMAT_COMPACT;
}

ps_item ps_optimizer_master_item(const ps_optimizer_setup *o)
{
    if (o->is_stochastic) return (ps_item){0, 1};
    return o->is_split ? (ps_item){(int32_t)sizeof(uint16_t), 1} : ps_format_item(PS_FORMAT_F32);
}

static int64_t state_bytes(const ps_optimizer_setup *o, uint32_t states, int64_t n)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < o->n_states; i++)
        if (states >> i & 1) bytes += ps_format_bytes(ps_optimizer_state_format(o, i), n);
    return bytes;
}

int64_t ps_optimizer_bytes_of(const ps_optimizer_setup *o, uint32_t states, int64_t n)
{
    return ps_item_bytes(ps_optimizer_master_item(o), n) + state_bytes(o, states, n);
}

int64_t ps_optimizer_bytes(const ps_optimizer_setup *o, int64_t n)
{
    return ps_optimizer_bytes_of(o, ps_optimizer_states_of(o, ps_optimizer_has_whole(o)), n);
}

int64_t ps_optimizer_checkpoint_bytes(const ps_optimizer_setup *o, int64_t n, bool is_trained, bool is_whole)
{
    return n * (int64_t)sizeof(float) + (is_trained ? state_bytes(o, ps_optimizer_states_of(o, is_whole), n) : 0);
}

int64_t ps_optimizer_traffic_bytes(const ps_optimizer_setup *o, uint32_t states, int64_t n, int64_t param_bytes)
{
    return 2 * ps_optimizer_bytes_of(o, states, n) + (ps_optimizer_has_whole_masters(o) ? 2 : 3) * param_bytes;
}
