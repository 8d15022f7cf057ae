#include "train/settings/params.h"

#include <stdio.h>

#include "base/lora.h"
#include "base/mem.h"
#include "config/option/option.h"
#include "train/graph/quantize.h"

enum { PATTERN_MAX = 256 };

static int32_t first_match(const ps_program *p, const char *pattern)
{
    for (int32_t t = 0; t < p->n_params; t++)
        if (ps_glob_matches(pattern, p->params[t].name)) return t;
    return -1;
}

/* The pattern matches nothing. It may lack the model's name at its beginning, or the parameter's at its end. */
static bool suggest_wider(const ps_program *p, const char *pattern, char *text, size_t n)
{
    static const char *const stars[][2] = {{"*", ""}, {"", "*"}, {"*", "*"}};
    for (size_t i = 0; i < PS_ARRAY_LEN(stars); i++) {
        char wider[PATTERN_MAX + 2];
        snprintf(wider, sizeof wider, "%s%s%s", stars[i][0], pattern, stars[i][1]);
        const int32_t t = first_match(p, wider);
        if (t < 0) continue;
        snprintf(text, n, "'%s' would match %s", wider, p->params[t].name);
        return true;
    }
    return false;
}

static bool suggest_spelling(const ps_program *p, const char *pattern, char *text, size_t n)
{
    char suggestion[PS_OPTION_KEY_MAX];
    const char **names;
    if (ps_mem_alloc((size_t)p->n_params, sizeof *names, &names) != PS_OK) return false;
    for (int32_t t = 0; t < p->n_params; t++) names[t] = p->params[t].name;
    const bool is_near = ps_name_suggest(pattern, names, p->n_params, suggestion);
    ps_mem_free(names);
    if (is_near) snprintf(text, n, "did you mean '%s'?", suggestion);
    return is_near;
}

static ps_status fail_unmatched(const ps_program *p, const char *key, const char *pattern)
{
    char text[2 * PATTERN_MAX + 64];
    if (!suggest_wider(p, pattern, text, sizeof text) && !suggest_spelling(p, pattern, text, sizeof text))
        snprintf(text, sizeof text, "the first is %.200s, the last %.200s", p->params[0].name,
                 p->params[p->n_params - 1].name);
    return PS_FAIL(PS_EINVAL, "%s: '%s' matches none of the model's %d parameters; %s", key, pattern, p->n_params,
                   text);
}

static ps_status check_patterns(const ps_program *p, const char *key, const char *patterns)
{
    char pattern[PATTERN_MAX];
    for (int i = 0; ps_glob_get(patterns, i, pattern, sizeof pattern); i++)
        if (first_match(p, pattern) < 0) return fail_unmatched(p, key, pattern);
    return PS_OK;
}

/* The ends of linear layers' names, each once: "q_proj, k_proj". Returns text. */
static const char *list_linear(const ps_program *p, char *text, size_t bytes)
{
    text[0] = '\0';
    for (int32_t t = 0; t < p->n_params; t++) {
        const ps_param *param = &p->params[t];
        char module[PATTERN_MAX];
        const char *const end = strrchr(param->name, '.');
        if (param->n_dims != 2 || end == NULL || strcmp(end, ".weight") != 0 || strstr(param->name, ".lora_") != NULL)
            continue;
        snprintf(module, sizeof module, "%.*s", (int)(end - param->name), param->name);
        const char *const last = strrchr(module, '.') != NULL ? strrchr(module, '.') + 1 : module;
        const size_t n = strlen(text);
        if (strstr(text, last) == NULL && n + strlen(last) + 3 < bytes)
            snprintf(text + n, bytes - n, "%s%s", n > 0 ? ", " : "", last);
    }
    return text;
}

/* Does the pattern name a layer with an adapter, or with saved, the module of a parameter or one around it? */
static bool names_module(const ps_program *p, const char *pattern, bool saved)
{
    for (int32_t t = 0; t < p->n_params; t++) {
        char module[PATTERN_MAX];
        const char *const name = p->params[t].name;
        int n = saved ? (int)strlen(name) : ps_lora_module_length(name, PS_LORA_A);
        for (; n > 0; n = saved ? n - 1 : 0) {
            if (saved && name[n] != '.') continue;
            snprintf(module, sizeof module, "%.*s", n, name);
            if (saved ? ps_lora_saves(pattern, module) : ps_glob_matches_end(pattern, module)) return true;
        }
    }
    return false;
}

/* absent: names that need not be there. */
static ps_status check_modules(const ps_program *p, const char *key, const char *patterns, bool are_numbers, bool saved,
                               const char *absent)
{
    char pattern[PATTERN_MAX], known[512];
    int64_t number;
    for (int i = 0; are_numbers ? ps_glob_get_number(patterns, i, pattern, sizeof pattern, &number)
                                : ps_glob_get(patterns, i, pattern, sizeof pattern);
         i++) {
        if (names_module(p, pattern, saved) || ps_glob_any_matches(absent, pattern, NULL)) continue;
        if (!saved && !are_numbers && names_module(p, pattern, true))
            return PS_FAIL(PS_EINVAL,
                           "%s: '%s' is an embedding, an output layer, a norm, or in lora.modules_to_save: only other "
                           "linear layers have adapters; lora.modules_to_save trains modules themselves",
                           key, pattern);
        return PS_FAIL(PS_EINVAL, "%s: '%s' names no %s of the model, whose matrices are %s", key, pattern,
                       saved         ? "module"
                       : are_numbers ? "layer with an adapter"
                                     : "linear layer",
                       list_linear(p, known, sizeof known));
    }
    return PS_OK;
}

/* A name that matches nothing is a mistake. */
static ps_status check_adapters(const ps_settings *s, const ps_program *p)
{
    const ps_adapter_choice *a = &s->adapters;
    char known[512];
    if (a->r == 0) return PS_OK;
    const bool is_all = strcmp(a->targets, PS_LORA_ALL_LINEAR) == 0;
    if (!is_all) PS_TRY(check_modules(p, "lora.target_modules", a->targets, false, false, ""));
    if (!names_module(p, "*", false))
        return PS_FAIL(PS_EINVAL, "lora: no layer of the model has an adapter; its matrices are %s",
                       list_linear(p, known, sizeof known));
    PS_TRY(check_modules(p, "lora.rank_pattern", a->ranks, true, false, ""));
    PS_TRY(check_modules(p, "lora.alpha_pattern", a->alphas, true, false, ""));
    return check_modules(p, "lora.modules_to_save", a->saved, false, true, a->saved_heads);
}

/* Without training what would be frozen is quantized, too, so that all see the same values; all, if nothing would. */
static ps_status quantize(const ps_settings *s, ps_program *p)
{
    bool *may_be, any = false;
    if (s->frozen_format == PS_QUANT_NONE || p->n_params == 0) return PS_OK;
    PS_TRY(ps_mem_alloc((size_t)p->n_params, sizeof *may_be, &may_be));
    for (int32_t t = 0; t < p->n_params; t++) any = (may_be[t] = p->params[t].is_frozen) || any;
    for (int32_t t = 0; t < p->n_params && !any; t++) may_be[t] = !s->training;
    const int32_t n = ps_program_quantize(p, s->frozen_format, may_be);
    ps_mem_free(may_be);
    if (n > 0) return PS_OK;
    return PS_FAIL(
        PS_EINVAL,
        "model.frozen_format: no weight of a linear layer is frozen, so nothing is quantized: set lora.r for "
        "adapters or train.freeze, or leave it at none");
}

static ps_status freeze(const ps_settings *s, ps_program *p)
{
    int32_t n_trained = 0;
    if (s->training) PS_TRY(check_patterns(p, "train.freeze", s->frozen));
    for (int32_t t = 0; t < p->n_params; t++) {
        ps_param *param = &p->params[t];
        param->is_frozen = param->is_frozen || ps_glob_any_matches(s->frozen, param->name, NULL);
    }
    PS_TRY(quantize(s, p));
    for (int32_t t = 0; t < p->n_params; t++) {
        p->params[t].is_frozen = p->params[t].is_frozen && s->training;
        n_trained += !p->params[t].is_frozen;
    }
    if (n_trained > 0 || p->n_params == 0) return PS_OK;
    return PS_FAIL(
        PS_EINVAL,
        "all %d parameters of the model are frozen (train.freeze = %.200s, ps_set_trainable): nothing is left "
        "to train; pstar eval looks at a model without training it",
        p->n_params, s->frozen[0] != '\0' ? s->frozen : "\"\"");
}

static const char *patterns_of(const ps_settings *s, int32_t group)
{
    return s->group_patterns + s->groups[group].patterns;
}

int32_t ps_settings_group_of(const ps_settings *s, const char *name)
{
    for (int32_t g = 1; g < s->n_groups; g++)
        if (ps_glob_any_matches(patterns_of(s, g), name, NULL)) return g;
    return 0;
}

bool ps_settings_updates_whole(const ps_settings *s, const char *name, int n_dims)
{
    return ps_optimizer_has_whole(&s->optimizer) && n_dims == 2 &&
           !ps_glob_any_matches(s->updated_by_elements, name, NULL);
}

ps_status ps_settings_count_scratch(const ps_settings *s, const char *name, const int64_t *shape,
                                    ps_update_scratch *most)
{
    ps_backend *const backends[] = {s->backend, ps_backend_host(s->backend)};
    for (size_t b = 0; b < PS_ARRAY_LEN(backends); b++) {
        int64_t bytes;
        PS_TRY(ps_optimizer_scratch_bytes(backends[b], &s->optimizer, shape[0], shape[1], &bytes));
        if (most->matrix == NULL || bytes > most->bytes) *most = (ps_update_scratch){bytes, name};
    }
    return PS_OK;
}

ps_status ps_settings_check_group(const ps_settings *s, int32_t group, int32_t n_whole, int32_t n_others)
{
    const ps_settings_group *g = &s->groups[group];
    const char *key = n_whole == 0 && g->of_whole != NULL       ? g->of_whole
                      : n_others == 0 && g->of_elements != NULL ? g->of_elements
                                                                : NULL;
    if (key == NULL) return PS_OK;
    return PS_FAIL(PS_EINVAL,
                   "optimizer.param_groups: group %d ('%.200s') has %s, which is for %s, but of the group's %d "
                   "parameters none is: remove it",
                   group, patterns_of(s, group), strrchr(key, '.') + 1,
                   key == g->of_whole ? "matrices that Muon updates as a whole" : "what Muon leaves to AdamW",
                   n_whole + n_others);
}

static ps_status group_params(const ps_settings *s, ps_program *p)
{
    int32_t n_params[PS_SETTINGS_GROUPS_MAX] = {0}, n_whole[PS_SETTINGS_GROUPS_MAX] = {0};
    if (s->training && s->names_updated_by_elements)
        PS_TRY(check_patterns(p, "optimizer.params.adamw_names", s->updated_by_elements));
    for (int32_t g = 1; g < s->n_groups && s->training; g++)
        PS_TRY(check_patterns(p, "optimizer.param_groups", patterns_of(s, g)));
    for (int32_t t = 0; t < p->n_params && s->training; t++) {
        ps_param *param = &p->params[t];
        param->group = ps_settings_group_of(s, param->name);
        const bool is_whole = ps_settings_updates_whole(s, param->name, param->n_dims);
        param->is_whole = is_whole && !param->is_frozen;
        n_params[param->group]++;
        n_whole[param->group] += is_whole;
    }
    for (int32_t g = 1; g < s->n_groups && s->training; g++)
        if (n_params[g] == 0)
            return PS_FAIL(
                PS_EINVAL,
                "optimizer.param_groups: group %d ('%.200s') has no parameter: groups before it have all that it "
                "names, and the first counts",
                g, patterns_of(s, g));
    for (int32_t g = 1; g < s->n_groups && s->training; g++)
        PS_TRY(ps_settings_check_group(s, g, n_whole[g], n_params[g] - n_whole[g]));
    return PS_OK;
}

ps_status ps_settings_build_program(const ps_settings *s, ps_model_func model, void *user, int64_t B, int64_t T,
                                    ps_program **out)
{
    PS_TRY(ps_program_build(model, user, s->adapters.r > 0 ? &s->adapters : NULL, B, T, out));
    ps_status st = check_adapters(s, *out);
    if (st == PS_OK) st = freeze(s, *out);
    if (st == PS_OK) st = group_params(s, *out);
    if (st == PS_OK) return PS_OK;
    ps_program_destroy(*out);
    *out = NULL;
    return st;
}
