#include "config/option/optimizer_params.h"

#include <math.h>
#include <stdio.h>

/* A bit for each option from optimizer.type on. */
#define PARAM(name) | (uint64_t)1 << (PS_OPTION_optimizer_params_##name - PS_OPTION_optimizer_type)
#define XX(value, text, optimizer, params) [value] = 0 params,
static const uint64_t optimizer_params[] = {PS_CONFIG_OPTIMIZER_MAP(XX)};
#undef XX
#undef PARAM

static uint64_t unused_params(ps_config_optimizer type)
{
    uint64_t external = 0;
    for (size_t i = 0; i < PS_ARRAY_LEN(optimizer_params); i++)
        external |= optimizer_params[i] & ~optimizer_params[type];
    return external;
}

bool ps_optimizer_has_param(ps_config_optimizer type, ps_option_id id)
{
    return !(unused_params(type) >> ((int)id - (int)PS_OPTION_optimizer_type) & 1);
}

ps_param_use ps_muon_param_use(ps_option_id id)
{
    if (id == PS_OPTION_optimizer_params_betas || id == PS_OPTION_optimizer_params_eps) return PS_PARAM_OF_ELEMENTS;
    const bool is_of_whole = id == PS_OPTION_optimizer_params_momentum || id == PS_OPTION_optimizer_params_nesterov ||
                             id == PS_OPTION_optimizer_params_ns_eps || id == PS_OPTION_optimizer_params_ns_steps ||
                             id == PS_OPTION_optimizer_params_adjust_lr_fn;
    return is_of_whole ? PS_PARAM_OF_WHOLE : PS_PARAM_OF_ALL;
}

/* The largest |p(x)|, x from 0 to `most`: p(x) = a x + b x^3 + c x^5 is what a step makes of a singular value. */
static double largest_image(const double k[3], double most)
{
    enum { GRID = 1024 };
    double largest = 0;
    for (int i = 1; i <= GRID; i++) {
        const double x = most * i / GRID, xx = x * x, image = fabs(x * (k[0] + xx * (k[1] + xx * k[2])));
        if (!(image <= largest)) largest = image;
    }
    return largest;
}

/* Singular values begin at most at 1, as the norm does; rounding of factors to bf16 may make each step's larger. The
 * bound is far from what fp32 cannot hold, and farther from what orthogonalizes anything. */
bool ps_ns_coefficients_read(const ps_options *o, double out[3], char problem[PS_NS_PROBLEM_MAX])
{
    static const double rounding = 1.02, bound = 100;
    const char *text = o->optimizer_params_ns_coefficients;
    double most = rounding;
    int end = 0;
    if (sscanf(text, "%lf ,%lf ,%lf %n", &out[0], &out[1], &out[2], &end) != 3 || text[end] != '\0' ||
        !isfinite(out[0]) || !isfinite(out[1]) || !isfinite(out[2])) {
        snprintf(problem, PS_NS_PROBLEM_MAX, "is \"%.64s\", expected three numbers, as [3.4445, -4.7750, 2.0315]",
                 text);
        return false;
    }
    for (int64_t step = 1; step <= o->optimizer_params_ns_steps; step++) {
        most = rounding * largest_image(out, most);
        if (most <= bound) continue;
        snprintf(
            problem, PS_NS_PROBLEM_MAX,
            "is %.64s, with which step %lld of ns_steps %lld makes singular values as large as %.3g: x -> a x + b x^3 "
            "+ c x^5 has to keep [0, 1] bounded, as 3.4445,-4.7750,2.0315 does",
            text, (long long)step, (long long)o->optimizer_params_ns_steps, most);
        return false;
    }
    return true;
}
