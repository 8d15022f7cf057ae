/* group.c - groups of tensors: the optimizer's numbers, as configured or as the program sets them. */
#include <math.h>

#include "base/glob.h"
#include "base/mem.h"
#include "base/sized.h"
#include "config/param_groups.h"
#include "external/client_impl.h"

static ps_status add_group(ps_client *c, const ps_options *o, const ps_lr_schedule *schedule)
{
    PS_TRY(ps_mem_reserve(&c->groups, (size_t)c->n_groups + 1, sizeof *c->groups));
    ps_client_group_state *g = &c->groups[c->n_groups];
    *g = (ps_client_group_state){.options = *o,
                                 .lr = NAN,
                                 .schedule = *schedule,
                                 .configured_decay = o->optimizer_params_weight_decay,
                                 .configured_betas = {o->optimizer_params_betas[0], o->optimizer_params_betas[1]},
                                 .configured_eps = o->optimizer_params_eps};
    PS_TRY(ps_optimizer_read(o, &g->optimizer));
    c->n_groups++;
    return PS_OK;
}

ps_status ps_client_read_groups(ps_client *c, const ps_config *config)
{
    ps_param_groups read;
    PS_TRY(ps_param_groups_read(config, &read));
    ps_status st = add_group(c, ps_config_options(config), &c->settings.lr);
    for (int32_t i = 0; i < read.n && st == PS_OK; i++)
        st = add_group(c, &read.group[i].options, &c->settings.groups[i + 1].lr);
    ps_param_groups_free(&read);
    return st;
}

/* The first group that names a tensor has it. */
static int32_t configured_group(const ps_client *c, const char *name)
{
    for (int32_t g = 1; g < c->settings.n_groups; g++)
        if (ps_glob_any_matches(c->settings.group_patterns + c->settings.groups[g].patterns, name, NULL)) return g;
    return 0;
}

ps_status ps_client_deal_groups(ps_client *c)
{
    int32_t n_tensors[PS_SETTINGS_GROUPS_MAX] = {0};
    for (int32_t i = 0; i < c->n_tensors; i++) {
        ps_client_tensor_state *t = &c->tensors[i];
        if (t->is_dropped) continue;
        const int32_t g = configured_group(c, t->name);
        if (!t->has_joined) t->group = g;
        n_tensors[g]++;
    }
    for (int32_t g = 1; g < c->settings.n_groups; g++)
        if (n_tensors[g] == 0)
            return PS_FAIL(PS_EINVAL, "optimizer.param_groups: group %d ('%.200s') has no tensor of its own", g,
                           c->settings.group_patterns + c->settings.groups[g].patterns);
    return PS_OK;
}

double ps_client_learning_rate(const ps_client *c, int32_t group)
{
    const ps_client_group_state *g = &c->groups[group];
    return isnan(g->lr) ? ps_lr_schedule_get(&g->schedule, c->n_updates) : g->lr;
}

/* ---- from outside ---- */

static ps_status enter_group(ps_client *c, const char *call, int32_t group)
{
    PS_TRY(ps_client_enter(c, call, PS_CLIENT_ANY_STAGE));
    if (group >= 0 && group < c->n_groups) return PS_OK;
    const ps_status st = PS_FAIL(PS_EINVAL, "%s: group %d of %d", call, group, c->n_groups);
    ps_client_leave(c);
    return st;
}

int32_t ps_client_get_group_count(const ps_client *client)
{
    ps_client *c;
    if (!ps_client_look(client, &c)) return 0;
    const int32_t n = c->n_groups;
    ps_client_leave(c);
    return n;
}

ps_status ps_client_get_group(const ps_client *client, int32_t group, ps_client_group *out)
{
    PS_TRY(PS_NEED("client out", client, out));
    ps_client *c = (ps_client *)(uintptr_t)client; /* its lock */
    PS_TRY(enter_group(c, "ps_client_get_group", group));
    const ps_options *o = &c->groups[group].options;
    const ps_client_group numbers = {.lr = ps_client_learning_rate(c, group),
                                     .weight_decay = o->optimizer_params_weight_decay,
                                     .beta1 = o->optimizer_params_betas[0],
                                     .beta2 = o->optimizer_params_betas[1],
                                     .eps = o->optimizer_params_eps};
    ps_client_leave(c);
    return PS_SIZED_GIVE(ps_client_group, &numbers, out);
}

static ps_status check_numbers(const ps_client_group *n)
{
    const struct {
        const char *name;
        double value, most; /* below */
    } checks[] = {{"lr", n->lr, HUGE_VAL}, {"beta1", n->beta1, 1}, {"beta2", n->beta2, 1}, {"eps", n->eps, HUGE_VAL}};
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
    ps_client_group_state changed = c->groups[group], *g = &changed;
    ps_options *o = &g->options;
    PS_TRY(check_numbers(n));
    g->lr = n->lr < 0 ? NAN : n->lr;
    o->optimizer_params_weight_decay = isnan(n->weight_decay) ? g->configured_decay : n->weight_decay;
    o->optimizer_params_betas[0] = n->beta1 < 0 ? g->configured_betas[0] : n->beta1;
    o->optimizer_params_betas[1] = n->beta2 < 0 ? g->configured_betas[1] : n->beta2;
    o->optimizer_params_eps = n->eps < 0 ? g->configured_eps : n->eps;
    PS_TRY(ps_optimizer_read(o, &g->optimizer));
    c->groups[group] = changed;
    return PS_OK;
}

ps_status ps_client_set_group(ps_client *c, int32_t group, const ps_client_group *numbers)
{
    PS_TRY(PS_NEED("client numbers", c, numbers));
    ps_client_group own;
    PS_TRY(PS_SIZED_TAKE(ps_client_group, numbers, &own));
    PS_TRY(enter_group(c, "ps_client_set_group", group));
    const ps_status st = ps_client_set_numbers(c, group, &own);
    ps_client_leave(c);
    return st;
}

static ps_status join_group(ps_client *c, int32_t tensor, int32_t group)
{
    if (group < 0 || group > c->n_groups)
        return PS_FAIL(PS_EINVAL, "ps_client_join_group: group %d of %d", group, c->n_groups);
    if (c->stage == PS_CLIENT_IS_READY) PS_TRY(ps_client_tell_ranks(c, ps_client_flush_tensor(c, tensor)));
    if (group == c->n_groups) {
        const ps_client_group_state first = c->groups[0];
        PS_TRY(add_group(c, &first.options, &first.schedule));
        c->groups[group] = first; /* what is configured for it is what is for the first */
    }
    c->tensors[tensor].group = group;
    c->tensors[tensor].has_joined = true;
    return PS_OK;
}

ps_status ps_client_join_group(ps_client *c, int32_t tensor, int32_t group)
{
    PS_TRY(PS_NEED("client", c));
    PS_TRY(ps_client_enter_with(c, "ps_client_join_group", PS_CLIENT_ANY_STAGE, tensor));
    const ps_status st = join_group(c, tensor, group);
    ps_client_leave(c);
    return st;
}

double ps_client_get_loss_scale(const ps_client *client)
{
    ps_client *c;
    if (!ps_client_look(client, &c)) return 1;
    const double scale = (double)c->scaler.scale;
    ps_client_leave(c);
    return scale;
}
