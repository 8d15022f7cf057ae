/* lora.h - what all who know of low-rank adapters share: names, as peft has them, and the scale. */
#ifndef PS_BASE_LORA_H
#define PS_BASE_LORA_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/glob.h"

#define PS_LORA_ALL_LINEAR "all-linear" /* as lora.target_modules */
#define PS_LORA_A ".lora_A.weight"      /* ends of parameters' names, after that of the layer's module */
#define PS_LORA_B ".lora_B.weight"
#define PS_LORA_PREFIX "base_model.model." /* of names in peft's files */

/* The length of the layer's name in that of its A, or B; 0: another parameter. */
static inline int ps_lora_module_length(const char *parameter, const char *end)
{
    const size_t n = strlen(parameter), n_end = strlen(end);
    return n > n_end && strcmp(parameter + n - n_end, end) == 0 ? (int)(n - n_end) : 0;
}

static inline bool ps_lora_is_parameter(const char *name)
{
    return ps_lora_module_length(name, PS_LORA_A) > 0 || ps_lora_module_length(name, PS_LORA_B) > 0;
}

/* Does modules_to_save name the module? As in peft each name is the end of those that it means, wherever that begins:
 * "norm" also means "input_layernorm". */
static inline bool ps_lora_saves(const char *names, const char *module)
{
    char pattern[512] = "*";
    for (int i = 0; ps_glob_get(names, i, pattern + 1, (int)sizeof pattern - 1); i++)
        if (ps_glob_matches(pattern, module)) return true;
    return false;
}

/* Rank and scale of a layer's adapter: r and alpha as they are unless ranks or alphas ("pattern=number,...") name it. */
static inline double ps_lora_scale(const char *module, const char *ranks, const char *alphas, double alpha,
                                   bool is_rank_stabilised, int64_t *r)
{
    int64_t whole;
    (void)ps_glob_find_number(ranks, module, r);
    if (ps_glob_find_number(alphas, module, &whole)) alpha = (double)whole;
    return alpha / (is_rank_stabilised ? sqrt((double)*r) : (double)*r);
}

#endif
