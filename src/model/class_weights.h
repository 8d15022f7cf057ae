/* class_weights.h - train.class_weights, a number for each class: "1,2.5,0.5", or a JSON array. */
#ifndef PS_MODEL_CLASS_WEIGHTS_H
#define PS_MODEL_CLASS_WEIGHTS_H

#include <stdint.h>

#include "base/status.h"

/* The numbers, n of them, for ps_mem_free; *out = NULL for "". PS_EINVAL: another count, something else than numbers
 * from 0 on, or only zeros. */
PS_NODISCARD ps_status ps_class_weights_parse(const char *text, int64_t n, float **out);

#endif
