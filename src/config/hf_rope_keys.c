/* hf_rope_keys.c - the keys of a config.json for rotary positions. */
#include "base/base.h"
#include "config/hf_config_impl.h"

#define SCALING(type) (1u << PS_CONFIG_ROPE_##type)

const ps_hf_rope_key ps_hf_rope_keys[] = {
#define KEY(key, scalings)                                                                                             \
    {                                                                                                                  \
#key, PS_OPTION_model_rope_scaling_##key, scalings                                                             \
    }
    {"rope_theta", PS_OPTION_model_rope_theta, SCALING(DEFAULT) | SCALING(LINEAR) | SCALING(LLAMA3) | SCALING(YARN)},
    KEY(factor, SCALING(LINEAR) | SCALING(LLAMA3) | SCALING(YARN)),
    KEY(low_freq_factor, SCALING(LLAMA3)),
    KEY(high_freq_factor, SCALING(LLAMA3)),
    KEY(original_max_position_embeddings, SCALING(LLAMA3) | SCALING(YARN)),
    KEY(beta_fast, SCALING(YARN)),
    KEY(beta_slow, SCALING(YARN)),
    KEY(attention_factor, SCALING(YARN)),
    KEY(mscale, SCALING(YARN)),
    KEY(mscale_all_dim, SCALING(YARN)),
    KEY(truncate, SCALING(YARN)),
#undef KEY
};
const size_t ps_hf_n_rope_keys = PS_ARRAY_LEN(ps_hf_rope_keys);
