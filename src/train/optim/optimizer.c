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
    *out = (ps_optimizer_setup){.optimizer = optimizers[o->optimizer_type],
                                .weight_decay = o->optimizer_params_weight_decay,
                                .betas = {o->optimizer_params_betas[0], o->optimizer_params_betas[1]},
                                .eps = o->optimizer_params_eps};
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

int64_t ps_optimizer_bytes(const ps_optimizer_setup *o)
{
    int64_t bytes = (int64_t)sizeof(float);
    for (int32_t i = 0; i < o->n_states; i++) bytes += o->optimizer->states[i].item_bytes;
    return bytes;
}

int64_t ps_optimizer_checkpoint_bytes(const ps_optimizer_setup *o, int64_t n_params, int64_t n_trained)
{
    return n_trained * ps_optimizer_bytes(o) + (n_params - n_trained) * (int64_t)sizeof(float);
}

int64_t ps_optimizer_traffic_bytes(const ps_optimizer_setup *o, int64_t param_bytes)
{
    return 2 * ps_optimizer_bytes(o) + 2 * param_bytes;
}
