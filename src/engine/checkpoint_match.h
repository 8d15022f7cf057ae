/* checkpoint_match.h - may an engine go on from a checkpoint's state, and as what. */
#ifndef PS_ENGINE_CHECKPOINT_MATCH_H
#define PS_ENGINE_CHECKPOINT_MATCH_H

#include "checkpoint/checkpoint_state.h"
#include "engine/engine.h"

/* PS_EINVAL naming `folder` and what is not as it was saved, when training could not go on with the same bits, or it is
 * another model. */
PS_NODISCARD ps_status ps_checkpoint_match(const ps_engine *e, const ps_checkpoint_state *state, const char *folder);

/* Counters, learning rate, loss scale and train.loss_average become those saved, and the engine's notices say so where
 * the last is not as configured; an inference engine has none of them. */
PS_NODISCARD ps_status ps_checkpoint_restore(ps_engine *e, const ps_checkpoint_state *state);

#endif
