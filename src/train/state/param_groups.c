#include "train/state/param_groups.h"

#include <math.h>
#include <string.h>
#include <xxhash.h>

#include "base/mem.h"

ps_status ps_param_groups_init(ps_param_groups *g, const ps_settings *s)
{
    *g = (ps_param_groups){.n = s->n_groups};
    PS_TRY(ps_mem_reserve(&g->all, (size_t)g->n, sizeof *g->all));
    for (int32_t i = 0; i < g->n; i++)
        g->all[i] = (ps_param_group){.configured = &s->groups[i], .optimizer = s->groups[i].optimizer, .lr = NAN};
    return PS_OK;
}

void ps_param_groups_deinit(ps_param_groups *g)
{
    ps_mem_free(g->all);
    *g = (ps_param_groups){0};
}

ps_status ps_param_groups_add(ps_param_groups *g)
{
    PS_TRY(ps_mem_reserve(&g->all, (size_t)g->n + 1, sizeof *g->all));
    g->all[g->n++] = g->all[0];
    return PS_OK;
}

double ps_param_groups_learning_rate(const ps_param_groups *g, int32_t group, int64_t n_updates)
{
    const ps_param_group *x = &g->all[group];
    return isnan(x->lr) ? ps_lr_schedule_get(&x->configured->lr, n_updates) : x->lr;
}

void ps_param_groups_decide(ps_param_groups *g, int64_t n_updates, bool skips, float grad_scale)
{
    g->skips = skips;
    g->grad_scale = grad_scale;
    g->t = n_updates + 1;
    for (int32_t i = 0; i < g->n; i++) {
        g->all[i].decided = g->all[i].optimizer;
        g->all[i].decided_lr = (float)ps_param_groups_learning_rate(g, i, n_updates);
    }
}

/* The numbers for updates of a group, except the count. */
enum { N_NUMBERS = 6 };

static void list_numbers(const ps_optimizer_setup *o, double lr, double out[N_NUMBERS])
{
    const double all[N_NUMBERS] = {(float)lr, o->weight_decay, o->betas[0], o->betas[1], o->eps, o->n_states};
    memcpy(out, all, sizeof all);
}

uint64_t ps_param_groups_hash(const ps_param_groups *g, int64_t n_updates, uint64_t seed)
{
    double numbers[N_NUMBERS];
    XXH64_hash_t hash = XXH3_64bits_withSeed(&g->n, sizeof g->n, seed);
    for (int32_t i = 0; i < g->n; i++) {
        const ps_optimizer_setup *o = &g->all[i].optimizer;
        list_numbers(o, ps_param_groups_learning_rate(g, i, n_updates), numbers);
        hash = XXH3_64bits_withSeed(numbers, sizeof numbers, hash);
        hash = XXH3_64bits_withSeed(o->number, sizeof o->number, hash);
    }
    return hash;
}

int32_t ps_param_groups_find_changed(const ps_param_groups *g, int64_t n_updates)
{
    double now[N_NUMBERS], then[N_NUMBERS];
    for (int32_t i = 0; i < g->n; i++) {
        const ps_param_group *x = &g->all[i];
        list_numbers(&x->optimizer, ps_param_groups_learning_rate(g, i, n_updates), now);
        list_numbers(&x->decided, (double)x->decided_lr, then);
        if (memcmp(now, then, sizeof now) != 0) return i;
    }
    return -1;
}

ps_piece_update ps_param_groups_update(const ps_param_groups *g, int32_t group, bool decays)
{
    const ps_param_group *x = &g->all[group];
    return (ps_piece_update){.skips = g->skips,
                             .optimizer = &x->decided,
                             .step = {.t = g->t, .lr = x->decided_lr, .grad_scale = g->grad_scale},
                             .weight_decay = decays ? (float)x->decided.weight_decay : 0.0f};
}
