/* model.h - the models a configuration can name. Each is a function on a builder, as a user would write it. */
#ifndef PS_MODEL_MODEL_H
#define PS_MODEL_MODEL_H

#include "base/status.h"
#include "config/config.h"

/* Describe GPT-2 with the sizes of the "model" options. PS_EINVAL when n_head does not divide n_embd. */
PS_NODISCARD ps_status ps_model_gpt2(ps_builder *b, const ps_options *o);

#endif
