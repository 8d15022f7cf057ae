/* adapter.h - low-rank adapters of linear layers (LoRA: Hu et al. 2021), and which layers the configuration gives one.
 *
 *     y = x W + b + scale (dropout(x) A) B        W, b frozen; A = NAME.lora_A.weight [r, n_in], B = NAME.lora_B.weight
 *                                                 [n_out, r], as torch.nn.Linear has them
 *
 * A layer with an adapter is these operators, which graph/ has anyway: nothing else knows of adapters. Names are those of
 * modules, "model.layers.0.mlp.up_proj", and patterns match them as peft's do: the whole name, or its end from a dot on
 * (ps_glob_matches_end). */
#ifndef PS_GRAPH_ADAPTER_H
#define PS_GRAPH_ADAPTER_H

#include <stdbool.h>

#include "base/base.h"
#include "patrickstar.h"

#define PS_ADAPTER_TARGETS_BYTES 16384
#define PS_ADAPTER_PATTERNS_BYTES 4096

/* The section lora of a configuration. */
typedef struct ps_adapter_choice {
    int64_t r; /* 0: there are no adapters */
    double alpha;
    float dropout;
    bool is_rank_stabilised, is_gaussian;
    char targets[PS_ADAPTER_TARGETS_BYTES];                                   /* patterns, or all-linear */
    char ranks[PS_ADAPTER_PATTERNS_BYTES], alphas[PS_ADAPTER_PATTERNS_BYTES]; /* "pattern=number,pattern=number" */
    char saved[PS_ADAPTER_PATTERNS_BYTES];       /* patterns of modules that are trained themselves */
    char saved_heads[PS_ADAPTER_PATTERNS_BYTES]; /* the same, of which the model need not have any */
} ps_adapter_choice;

/* The adapter of a linear layer; false: it has none. */
bool ps_adapter_choice_find(const ps_adapter_choice *c, const char *module, ps_adapter *out);

/* Is the parameter trained, as it is in a module that is saved? Parameters of adapters are always. */
bool ps_adapter_choice_trains(const ps_adapter_choice *c, const char *parameter);

#endif
