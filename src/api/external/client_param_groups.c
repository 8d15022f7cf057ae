/* client_param_groups.c - groups of tensors: the optimizer's numbers, as configured or as set by the program. */
#include <math.h>

#include "api/external/client_calls.h"
#include "base/sized.h"
#include "train/settings/params.h"

ps_status ps_client_deal_groups(ps_client *c)
{
    int32_t n_tensors[PS_SETTINGS_GROUPS_MAX] = {0}, n_whole[PS_SETTINGS_GROUPS_MAX] = {0};
    for (int32_t i = 0; i < c->n_tensors; i++) {
        ps_client_tensor_state *t = &c->tensors[i];
        if (t->is_dropped) continue;
        const int32_t g = ps_settings_group_of(&c->settings, t->name);
        if (!t->has_joined) t->group = g;
        n_tensors[g]++;
        n_whole[g] += ps_settings_updates_whole(&c->settings, t->name, t->n_dims);
    }
    for (int32_t g = 1; g < c->settings.n_groups; g++)
        if (n_tensors[g] == 0)
            return PS_FAIL(PS_EINVAL, "optimizer.param_groups: group %d ('%.200s') has no tensor", g,
                           c->settings.group_patterns + c->settings.groups[g].patterns);
    for (int32_t g = 1; g < c->settings.n_groups; g++)
        PS_TRY(ps_settings_check_group(&c->settings, g, n_whole[g], n_tensors[g] - n_whole[g]));
    return PS_OK;
}

/* ---- public calls ---- */

static ps_status enter_group(ps_client *c, const char *call, int32_t group)
{
    PS_TRY(ps_client_enter(c, call, PS_CLIENT_ANY_STAGE));
    if (group >= 0 && group < c->groups.n) return PS_OK;
    return ps_client_leave(c, PS_FAIL(PS_EINVAL, "%s: group = %d, expected 0 to %d", call, group, c->groups.n - 1));
}

int32_t ps_client_get_group_count(const ps_client *client)
{
    ps_client *c;
    if (!ps_client_lock(client, &c)) return 0;
    const int32_t n = c->groups.n;
    (void)ps_client_leave(c, PS_OK);
    return n;
}

ps_status ps_client_get_group(const ps_client *client, int32_t group, ps_client_group *out)
{
    PS_TRY(PS_NEED("client out", client, out));
    ps_client *c = (ps_client *)(uintptr_t)client; /* for its lock */
    PS_TRY(enter_group(c, "ps_client_get_group", group));
    const ps_optimizer_setup *o = &c->groups.all[group].optimizer;
    const ps_client_group numbers = {.learning_rate = ps_param_groups_learning_rate(&c->groups, group, c->n_updates),
                                     .weight_decay = o->weight_decay,
                                     .beta1 = o->betas[0],
                                     .beta2 = o->betas[1],
                                     .eps = o->eps};
    (void)ps_client_leave(c, PS_OK);
    return PS_SIZED_GIVE(ps_client_group, &numbers, out);
}

static ps_status check_numbers(const ps_client_group *n)
{
    const struct {
        const char *name;
        double value, most; /* below */
    } checks[] = {
        {"lr", n->learning_rate, HUGE_VAL}, {"beta1", n->beta1, 1}, {"beta2", n->beta2, 1}, {"eps", n->eps, HUGE_VAL}};
    for (size_t i = 0; i < PS_ARRAY_LEN(checks); i++)
        if (isnan(checks[i].value) || checks[i].value >= checks[i].most)
            return PS_FAIL(PS_EINVAL, "ps_client_set_group: %s = %g, expected less than %g; below 0: as configured",
                           checks[i].name, checks[i].value, checks[i].most);
    if (isinf(n->weight_decay) || n->weight_decay < 0)
        return PS_FAIL(PS_EINVAL, "ps_client_set_group: weight_decay = %g, expected 0 or more; NaN: as configured",
                       n->weight_decay);
    return PS_OK;
}

ps_status ps_client_set_numbers(ps_client *c, int32_t group, const ps_client_group *n)
{
    ps_param_group *g = &c->groups.all[group];
    const ps_optimizer_setup *configured = &g->configured->optimizer;
    PS_TRY(check_numbers(n));
    g->lr = ps_param_group_number(n->learning_rate, NAN);
    g->optimizer.weight_decay = ps_param_group_number(n->weight_decay, configured->weight_decay);
    g->optimizer.betas[0] = ps_param_group_number(n->beta1, configured->betas[0]);
    g->optimizer.betas[1] = ps_param_group_number(n->beta2, configured->betas[1]);
    g->optimizer.eps = ps_param_group_number(n->eps, configured->eps);
    return PS_OK;
}

ps_status ps_client_set_group(ps_client *c, int32_t group, const ps_client_group *numbers)
{
    PS_TRY(PS_NEED("client numbers", c, numbers));
    ps_client_group own;
    PS_TRY(PS_SIZED_TAKE(ps_client_group, numbers, &own));
    PS_TRY(enter_group(c, "ps_client_set_group", group));
    return ps_client_leave(c, ps_client_set_numbers(c, group, &own));
}

static ps_status join_group(ps_client *c, int32_t tensor, int32_t group)
{
    if (group < 0 || group > c->groups.n)
        return PS_FAIL(PS_EINVAL, "ps_client_join_group: group = %d, expected 0 to %d", group, c->groups.n);
    if (c->stage == PS_CLIENT_IS_READY) PS_TRY(ps_client_check_not_updated_early(c, tensor, "it joins another group"));
    if (c->stage == PS_CLIENT_IS_READY) PS_TRY(ps_client_break_ranks(c, ps_client_flush_tensor(c, tensor)));
    if (group == c->groups.n) PS_TRY(ps_param_groups_add(&c->groups));
    c->tensors[tensor].group = group;
    c->tensors[tensor].has_joined = true;
    return PS_OK;
}

ps_status ps_client_join_group(ps_client *c, int32_t tensor, int32_t group)
{
    PS_TRY(PS_NEED("client", c));
    PS_TRY(ps_client_enter_with(c, "ps_client_join_group", PS_CLIENT_ANY_STAGE, tensor));
    return ps_client_leave(c, join_group(c, tensor, group));
}

static ps_status set_gradient_clipping(ps_client *c, double max_norm)
{
    if (isnan(max_norm))
        return PS_FAIL(PS_EINVAL, "ps_client_set_gradient_clipping: max_norm is NaN, expected 0 or more; below 0: as "
                                  "configured");
    if (max_norm > 0 && c->settings.always_updates_early)
        return PS_FAIL(
            PS_EINVAL,
            "ps_client_set_gradient_clipping: max_norm = %g needs the norm of all gradients before the first "
            "update; do not clip, or set memory.update_in_backward = auto",
            max_norm);
    c->clip_norm = max_norm < 0 ? c->settings.clip_norm : max_norm;
    return PS_OK;
}

ps_status ps_client_set_gradient_clipping(ps_client *c, double max_norm)
{
    PS_TRY(PS_NEED("client", c));
    PS_TRY(ps_client_enter(c, "ps_client_set_gradient_clipping", PS_CLIENT_ANY_STAGE));
    return ps_client_leave(c, set_gradient_clipping(c, max_norm));
}
