/* initialize.h - engines as patrickstar.h gives them: made by the floor below, with the weights that their
 * configuration names. */
#ifndef PS_CHECKPOINT_INITIALIZE_H
#define PS_CHECKPOINT_INITIALIZE_H

#include <stdbool.h>

#include "config/config.h"

/* What an engine began with. */
typedef struct ps_begin_info {
    bool has_model;     /* model.from_pretrained was given */
    ps_load_info model; /* what was read from it */
    int64_t n_new_rows; /* of the token embeddings, by model.resize_token_embeddings */
} ps_begin_info;

/* model.from_pretrained of the configuration that describes the model, where heads may differ with model.new_head or
 * without any head, then train.init_from of `config`, all of it, then train.init_optimizer, for training. No weights given: an empty engine is drawn, and for
 * others nothing done. Of several ranks all call. info may be NULL. */
PS_NODISCARD ps_status ps_engine_begin_weights(ps_engine *e, const ps_config *model, const ps_config *config,
                                               ps_begin_info *info);

/* ps_engine_begin_weights will load some, so the engine may be created empty. */
bool ps_config_names_weights(const ps_config *model, const ps_config *config);

#endif
