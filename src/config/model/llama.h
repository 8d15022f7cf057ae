/* llama.h - Llama's blocks, which similar families use with small changes. */
#ifndef PS_MODEL_LLAMA_H
#define PS_MODEL_LLAMA_H

#include "config/model/rotary.h"

typedef struct ps_llama_variant {
    bool has_qkv_bias;     /* on queries, keys and values; model.attention_bias is ignored */
    bool normalises_heads; /* RMS norm of each head of queries and keys: "self_attn.q_norm", "self_attn.k_norm" */
} ps_llama_variant;

PS_NODISCARD ps_status ps_llama_build(ps_builder *b, const ps_options *o, ps_llama_variant variant);

#endif
