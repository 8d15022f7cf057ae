/* weights.h - the parameters of an engine in files; patrickstar.h has the calls for users. */
#ifndef PS_CHECKPOINT_WEIGHTS_H
#define PS_CHECKPOINT_WEIGHTS_H

#include "base/status.h"
#include "tensor/dtype.h"

/* ps_engine_save_weights with values rounded to dtype. */
PS_NODISCARD ps_status ps_weights_save(ps_engine *e, const char *path, ps_dtype dtype);

#endif
