/* mistral.c - Mistral (Jiang et al. 2023): Llama with a sliding window. */
#include "config/model/llama.h"

static ps_status build(ps_builder *b, const ps_options *o)
{
    return ps_llama_build(b, o, (ps_llama_variant){0});
}

const ps_family ps_family_mistral = {
    .class_name = "Mistral",
    .class_ends = PS_ROTARY_CLASS_ENDS,
    .base = "model",
    .is_gated = true,
    .window = PS_WINDOW_NUMBER,
    .traits = {.more = &ps_rotary_traits,
               .defaults = (const ps_family_default[]){PS_DEFAULT_INT(vocab_size, 32000),
                                                       PS_DEFAULT_INT(intermediate_size, 14336),
                                                       PS_DEFAULT_INT(max_position_embeddings, 131072),
                                                       PS_DEFAULT_INT(num_key_value_heads, 8),
                                                       PS_DEFAULT_INT(sliding_window, 4096),
                                                       {0}},
               .uses = (const ps_option_id[]){PS_OPTION_model_sliding_window, PS_OPTION_model_max_window_layers, 0},
               .fixed = (const ps_family_fixed[]){{"attention_bias", "false"}, {"mlp_bias", "false"}, {0}}},
    .build = build,
};
