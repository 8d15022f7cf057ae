/* checkpoint_match.h - checks whether an engine may continue from a checkpoint's state, and restores that. */
#ifndef PS_ENGINE_CHECKPOINT_MATCH_H
#define PS_ENGINE_CHECKPOINT_MATCH_H

#include "api/checkpoint/checkpoint_state.h"
#include "api/engine/engine.h"

/* PS_EINVAL naming `folder` and the difference, when training could not continue with the same bits, or the model is
 * another. */
PS_NODISCARD ps_status ps_checkpoint_match(const ps_engine *e, const ps_checkpoint_state *state, const char *folder);

/* Restores counters, learning rate, loss scale and train.loss_average; the engine's notices mention it if the last
 * differs from the configuration. An inference engine has none of them. */
PS_NODISCARD ps_status ps_checkpoint_restore(ps_engine *e, const ps_checkpoint_state *state);

#endif
