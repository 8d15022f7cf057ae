/* weight_files.h - the parameters of an engine in files; patrickstar.h has the calls for users. */
#ifndef PS_ENGINE_WEIGHT_FILES_H
#define PS_ENGINE_WEIGHT_FILES_H

#include "base/status.h"
#include "tensor/dtype.h"

/* ps_engine_save_weights with values rounded to dtype. */
PS_NODISCARD ps_status ps_weights_save(ps_engine *e, const char *path, ps_dtype dtype);

/* ps_engine_load_pretrained with options and info as this library has them; info may be NULL. */
PS_NODISCARD ps_status ps_weights_load(ps_engine *e, const char *path, const ps_load_options *options,
                                       ps_load_info *info);

#endif
