#include "state/groups.h"

#include <math.h>

#include "base/mem.h"

ps_status ps_groups_init(ps_groups *g, const ps_settings *s)
{
    *g = (ps_groups){.n = s->n_groups};
    PS_TRY(ps_mem_reserve(&g->all, (size_t)g->n, sizeof *g->all));
    for (int32_t i = 0; i < g->n; i++)
        g->all[i] = (ps_group){.configured = &s->groups[i], .optimizer = s->groups[i].optimizer, .lr = NAN};
    return PS_OK;
}

void ps_groups_deinit(ps_groups *g)
{
    ps_mem_free(g->all);
    *g = (ps_groups){0};
}

ps_status ps_groups_add(ps_groups *g)
{
    PS_TRY(ps_mem_reserve(&g->all, (size_t)g->n + 1, sizeof *g->all));
    g->all[g->n++] = g->all[0];
    return PS_OK;
}

double ps_groups_learning_rate(const ps_groups *g, int32_t group, int64_t n_updates)
{
    const ps_group *x = &g->all[group];
    return isnan(x->lr) ? ps_lr_schedule_get(&x->configured->lr, n_updates) : x->lr;
}

void ps_groups_decide(ps_groups *g, int64_t n_updates, bool skips, float grad_scale)
{
    g->skips = skips;
    g->grad_scale = grad_scale;
    g->t = n_updates + 1;
    for (int32_t i = 0; i < g->n; i++) {
        g->all[i].decided = g->all[i].optimizer;
        g->all[i].decided_lr = (float)ps_groups_learning_rate(g, i, n_updates);
    }
}

static bool has_same_numbers(const ps_optimizer_setup *a, const ps_optimizer_setup *b)
{
    return a->weight_decay == b->weight_decay && a->betas[0] == b->betas[0] && a->betas[1] == b->betas[1] &&
           a->eps == b->eps;
}

int32_t ps_groups_find_changed(const ps_groups *g, int64_t n_updates)
{
    for (int32_t i = 0; i < g->n; i++) {
        const ps_group *x = &g->all[i];
        if (!has_same_numbers(&x->optimizer, &x->decided)) return i;
        if ((float)ps_groups_learning_rate(g, i, n_updates) != x->decided_lr) return i;
    }
    return -1;
}

ps_piece_update ps_groups_update(const ps_groups *g, int32_t group, bool decays)
{
    const ps_group *x = &g->all[group];
    return (ps_piece_update){.skips = g->skips,
                             .optimizer = &x->decided,
                             .step = {.t = g->t, .lr = x->decided_lr, .grad_scale = g->grad_scale},
                             .weight_decay = decays ? (float)x->decided.weight_decay : 0.0f};
}
