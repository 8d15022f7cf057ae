/* qwen2.c - Qwen2 (Yang et al. 2024): Llama with biases on queries, keys and values. */
#include "config/model/llama.h"

static ps_status build(ps_builder *b, const ps_options *o)
{
    return ps_llama_build(b, o, (ps_llama_variant){.has_qkv_bias = true});
}

const ps_family ps_family_qwen2 = {
    .class_name = "Qwen2",
    .class_ends = PS_ROTARY_CLASS_ENDS,
    .base = "model",
    .base_of_questions = "transformer",
    .is_gated = true,
    .window = PS_WINDOW_SWITCHED,
    .traits = {.more = &ps_rotary_traits,
               .defaults = (const ps_family_default[]){PS_DEFAULT_INT(vocab_size, 151936),
                                                       PS_DEFAULT_INT(intermediate_size, 22016),
                                                       PS_DEFAULT_INT(max_position_embeddings, 32768),
                                                       {0}},
               .uses = (const ps_option_id[]){PS_OPTION_model_sliding_window, PS_OPTION_model_max_window_layers, 0},
               .fixed = (const ps_family_fixed[]){{"attention_bias", "false"}, {"mlp_bias", "false"}, {0}}},
    .build = build,
};
