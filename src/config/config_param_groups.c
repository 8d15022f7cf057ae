#include "config/config_param_groups.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/printable.h"
#include "config/config_state.h"
#include "config/option/optimizer_params.h"

#define KEY "optimizer.param_groups"

typedef struct reader {
    const ps_config *config;
    int number; /* of the group, from 1; group 0 has all other parameters */
    ps_config_param_group *group;
} reader;

#define FAIL(r, format, ...)                                                                                           \
    ps_config_fail_for((r)->config, PS_OPTION_optimizer_param_groups, KEY ": group %d: " format, (r)->number,          \
                       __VA_ARGS__)

static ps_status read_patterns(const reader *r, json_t *json)
{
    json_t *joined = ps_option_join_names(&(ps_option){.is_names = true}, json);
    const char *text = json_string_value(joined);
    ps_status st;
    if (text != NULL && text[0] != '\0')
        st = ps_mem_strdup(text, &r->group->patterns);
    else
        st = FAIL(r, "%s",
                  "params must be a pattern of parameters' names, or an array of such without commas (? matches one)");
    json_decref(joined);
    return st;
}

/* A key that is also in optimizer.params. */
static ps_status read_param(const reader *r, const char *member, const json_t *json)
{
    char key[PS_OPTION_KEY_MAX], printable[PS_OPTION_KEY_MAX], problem[PS_OPTION_TEXT_MAX + 160];
    const ps_config_optimizer type = r->config->options.optimizer_type;
    const ps_option_alias *alias = NULL;
    ps_option_value value;
    snprintf(key, sizeof key, "optimizer.params.%s", member);
    const ps_option_id id = ps_option_find(key, &alias);
    ps_printable_copy(member, printable, sizeof printable);
    if (id == PS_OPTION_COUNT || alias != NULL || id == PS_OPTION_optimizer_params_use_hybrid_adam)
        return FAIL(r,
                    "it has '%s'; a group has params, lr, weight_decay and what else optimizer.type %s has in "
                    "optimizer.params",
                    printable, ps_config_optimizer_names[type]);
    if (id == PS_OPTION_optimizer_params_state_format || id == PS_OPTION_optimizer_params_ns_gemms ||
        id == PS_OPTION_optimizer_params_adamw_names || id == PS_OPTION_optimizer_params_ns_coefficients)
        return FAIL(r, "%s is the same in all groups: set optimizer.params.%s instead", printable, printable);
    if (!ps_optimizer_has_param(type, id))
        return FAIL(r, "%s has no effect with optimizer.type %s; remove it", printable,
                    ps_config_optimizer_names[type]);
    if (!ps_option_read(&ps_option_table[id], json, &value, problem, sizeof problem)) return FAIL(r, "%s", problem);
    const ps_config_scheduler scheduler = r->config->options.scheduler_type;
    const bool sets_learning_rates =
        scheduler == PS_CONFIG_SCHEDULER_WARMUP_LR || scheduler == PS_CONFIG_SCHEDULER_WARMUP_DECAY_LR;
    if (id == PS_OPTION_optimizer_params_lr && sets_learning_rates)
        return FAIL(
            r,
            "lr has no effect with scheduler.type %s, which has its own rate for all groups; remove it, or take "
            "another schedule",
            ps_config_scheduler_names[scheduler]);
    const ps_param_use use = type == PS_CONFIG_OPTIMIZER_MUON ? ps_muon_param_use(id) : PS_PARAM_OF_ALL;
    if (use == PS_PARAM_OF_WHOLE) r->group->of_whole = ps_option_table[id].key;
    if (use == PS_PARAM_OF_ELEMENTS) r->group->of_elements = ps_option_table[id].key;
    r->group->gives_weight_decay |= id == PS_OPTION_optimizer_params_weight_decay;
    ps_option_store(&ps_option_table[id], value, &r->group->options);
    return PS_OK;
}

static ps_status read_group(const reader *r, json_t *object)
{
    const char *member;
    json_t *json;
    r->group->options = r->config->options;
    json_object_foreach(object, member, json)
    {
        if (strcmp(member, "params") == 0)
            PS_TRY(read_patterns(r, json));
        else
            PS_TRY(read_param(r, member, json));
    }
    double coefficients[3];
    char problem[PS_NS_PROBLEM_MAX];
    const ps_options *o = &r->group->options;
    if (o->optimizer_type == PS_CONFIG_OPTIMIZER_MUON && !ps_ns_coefficients_read(o, coefficients, problem))
        return FAIL(r, "optimizer.params.ns_coefficients %s", problem);
    if (r->group->patterns != NULL) return PS_OK;
    return FAIL(r, "%s", "it has no params, the patterns of its parameters' names");
}

static ps_status read_all(const ps_config *config, json_t *groups, ps_config_param_groups *out)
{
    const size_t n = json_array_size(groups);
    if (n > PS_PARAM_GROUPS_MAX)
        return ps_config_fail_for(config, PS_OPTION_optimizer_param_groups, KEY ": %zu groups, at most %d are taken", n,
                                  PS_PARAM_GROUPS_MAX);
    if (n == 0) return PS_OK;
    PS_TRY(ps_mem_alloc(n, sizeof *out->group, &out->group));
    for (size_t i = 0; i < n; i++) {
        out->n++;
        PS_TRY(read_group(&(reader){.config = config, .number = (int)i + 1, .group = &out->group[i]},
                          json_array_get(groups, i)));
    }
    return PS_OK;
}

ps_status ps_config_param_groups_read(const ps_config *config, ps_config_param_groups *out)
{
    const char *text = config->options.optimizer_param_groups;
    *out = (ps_config_param_groups){0};
    if (text[0] == '\0') return PS_OK;
    json_t *groups = json_loads(text, 0, NULL); /* which was validated before */
    const ps_status st = groups == NULL ? PS_FAIL(PS_ENOMEM_HOST, "no memory for " KEY) : read_all(config, groups, out);
    json_decref(groups);
    if (st != PS_OK) ps_config_param_groups_free(out);
    return st;
}

void ps_config_param_groups_free(ps_config_param_groups *g)
{
    for (int32_t i = 0; i < g->n; i++) ps_mem_free(g->group[i].patterns);
    ps_mem_free(g->group);
    *g = (ps_config_param_groups){0};
}
