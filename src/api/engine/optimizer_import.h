/* optimizer_import.h - reads the state of a PyTorch optimizer into an engine; patrickstar.h has the call,
 * ps_engine_load_optimizer. */
#ifndef PS_ENGINE_OPTIMIZER_IMPORT_H
#define PS_ENGINE_OPTIMIZER_IMPORT_H

#include "base/status.h"

/* How an optimizer numbers its parameters where its file has no names. In each case parameters are in the order of
 * model.parameters(). */
typedef enum ps_param_numbering {
    PS_NUMBERED_THROUGH,    /* all in one group, or in two consecutive ones */
    PS_NUMBERED_DECAYING,   /* a group of those that decay, then one of those that do not */
    PS_NUMBERED_UNDECAYING, /* the other way round */
    PS_NUMBERING_COUNT,
} ps_param_numbering;

/* tensors[i]: the parameter of the engine that is number i. */
PS_NODISCARD ps_status ps_optimizer_numbering(const ps_engine *e, ps_param_numbering numbering, int32_t *tensors);

#endif
