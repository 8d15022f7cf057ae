#include "train/graph/adapter.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/lora.h"
#include "base/sized.h"
#include "train/graph/builder.h"

enum { PATTERN_MAX = 512 };

/* ---- which layers ---- */

/* Is the module, or one that it is in, saved? */
static bool is_saved(const ps_adapter_choice *c, const char *module)
{
    char outer[PATTERN_MAX];
    for (int n = (int)strlen(module); n > 0; n--) {
        if (module[n] != '\0' && module[n] != '.') continue;
        snprintf(outer, sizeof outer, "%.*s", n, module);
        if (ps_lora_saves(c->saved, outer) || ps_glob_any_matches_end(c->saved_heads, outer)) return true;
    }
    return false;
}

bool ps_adapter_choice_find(const ps_adapter_choice *c, const char *module, ps_adapter *out)
{
    int64_t r = c->r;
    const bool is_all = strcmp(c->targets, PS_LORA_ALL_LINEAR) == 0;
    if (c->r == 0 || (!is_all && !ps_glob_any_matches_end(c->targets, module)) || is_saved(c, module)) return false;
    const double scale = ps_lora_scale(module, c->ranks, c->alphas, c->alpha, c->is_rank_stabilised, &r);
    *out = (ps_adapter){
        .struct_size = sizeof *out, .r = r, .scale = scale, .dropout = c->dropout, .gaussian = c->is_gaussian};
    return true;
}

bool ps_adapter_choice_trains(const ps_adapter_choice *c, const char *parameter)
{
    char module[PATTERN_MAX];
    const char *const dot = strrchr(parameter, '.');
    if (ps_lora_is_parameter(parameter)) return true;
    snprintf(module, sizeof module, "%.*s", dot != NULL ? (int)(dot - parameter) : 0, parameter);
    return is_saved(c, module);
}

/* ---- their operators ---- */

void ps_set_adapter(ps_builder *b, const ps_adapter *adapter)
{
    ps_adapter own = {0};
    if (adapter != NULL && PS_SIZED_TAKE(ps_adapter, adapter, &own) != PS_OK)
        ps_builder_refuse(b, "ps_set_adapter: %s", ps_last_error());
    else if (adapter != NULL && b->adapters != NULL)
        ps_builder_refuse(b, "ps_set_adapter: the configuration has adapters, too (lora.r); leave one of them out");
    else if (adapter != NULL && own.r < 1)
        ps_builder_refuse(b, "ps_set_adapter: rank %lld, expected at least 1", (long long)own.r);
    else if (!isfinite(own.scale) || !(own.dropout >= 0 && own.dropout < 1))
        ps_builder_refuse(b, "ps_set_adapter: scale %g, expected a finite number; dropout %g, expected 0 to below 1",
                          own.scale, (double)own.dropout);
    b->adapter = own;
}

static bool find_adapter(const ps_builder *b, const char *name, ps_adapter *out)
{
    char module[PATTERN_MAX];
    *out = b->adapter;
    if (b->adapters == NULL) return b->adapter.r > 0;
    snprintf(module, sizeof module, "%s%s", b->prefix, name);
    return ps_adapter_choice_find(b->adapters, module, out);
}

/* As peft begins A: normal with deviation 1 / r, or as torch.nn.Linear, uniform within 1 / sqrt(n_in). */
static ps_param first_values(const ps_adapter *a, int64_t n_in)
{
    if (a->gaussian != 0) return (ps_param){.init_std = 1.0 / (double)a->r};
    return (ps_param){.init_std = 1.0 / sqrt((double)n_in), .init_is_uniform = true};
}

ps_value ps_builder_adapt(ps_builder *b, ps_value x, const char *name, int64_t n_out, int32_t w, int32_t bias)
{
    char a_name[PATTERN_MAX], scale_name[PATTERN_MAX], b_name[PATTERN_MAX];
    ps_adapter a;
    if (w < 0 || !find_adapter(b, name, &a)) return 0;
    const int n = (int)sizeof a_name - 16;
    if (strlen(name) > (size_t)n)
        return ps_builder_refuse(b, "%s%s: a name with an adapter has at most %d characters", b->prefix, name, n);
    snprintf(a_name, sizeof a_name, "%s.lora_A", name);
    snprintf(scale_name, sizeof scale_name, "%s.lora_scale", name);
    snprintf(b_name, sizeof b_name, "%s.lora_B", name);
    b->program->params[w].is_frozen = true;
    if (bias >= 0) b->program->params[bias].is_frozen = true;
    const ps_param begin = first_values(&a, ps_builder_cols(b, x));
    x = ps_builder_plain_linear(b, ps_dropout(b, x, a.dropout), a_name, a.r, &begin);
    x = ps_builder_scale(b, x, scale_name, (float)a.scale); /* of r columns, where it costs least */
    return ps_builder_plain_linear(b, x, b_name, n_out, NULL);
}
