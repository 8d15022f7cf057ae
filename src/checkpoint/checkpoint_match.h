/* checkpoint_match.h - may an engine go on from a checkpoint's state, and as what. */
#ifndef PS_CHECKPOINT_MATCH_H
#define PS_CHECKPOINT_MATCH_H

#include "checkpoint/checkpoint_state.h"
#include "engine/engine.h"

/* PS_EINVAL naming `folder` and what is not as it was saved, when training could not go on with the same bits, or it is
 * another model. */
PS_NODISCARD ps_status ps_checkpoint_match(const ps_engine *e, const ps_checkpoint_state *state, const char *folder);

/* Counters, learning rate and loss scale become those saved; an inference engine has none. */
PS_NODISCARD ps_status ps_checkpoint_restore(ps_engine *e, const ps_checkpoint_state *state);

#endif
