/* weights.h - the parameters of an engine in files; patrickstar.h has the calls for users. */
#ifndef PS_CHECKPOINT_WEIGHTS_H
#define PS_CHECKPOINT_WEIGHTS_H

#include <stdbool.h>

#include "base/status.h"
#include "tensor/dtype.h"

/* ps_engine_save_weights with values rounded to dtype. */
PS_NODISCARD ps_status ps_weights_save(ps_engine *e, const char *path, ps_dtype dtype);

typedef struct ps_weights_options {
    bool allow_new_head; /* as ps_engine_load_pretrained */
    bool allow_new_rows; /* with a row for each token: the file may have fewer, the last ones stay as they are */
} ps_weights_options;

/* ps_engine_load_pretrained; info and n_new_rows (of the tensor that gets most) may be NULL. */
PS_NODISCARD ps_status ps_weights_load(ps_engine *e, const char *path, const ps_weights_options *options,
                                       ps_load_info *info, int64_t *n_new_rows);

#endif
