/* weight_files.h - the parameters of an engine in files; the public calls are in patrickstar.h. */
#ifndef PS_ENGINE_WEIGHT_FILES_H
#define PS_ENGINE_WEIGHT_FILES_H

#include "base/dtype.h"
#include "base/status.h"

/* ps_engine_save_weights with values rounded to dtype. */
PS_NODISCARD ps_status ps_weights_save(ps_engine *e, const char *path, ps_dtype dtype);

/* ps_engine_load_pretrained with options and info in this library's version; info may be NULL. */
PS_NODISCARD ps_status ps_weights_load(ps_engine *e, const char *path, const ps_load_options *options,
                                       ps_load_info *info);

#endif
