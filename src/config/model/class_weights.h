/* class_weights.h - train.class_weights, a number for each class: "1,2.5,0.5", or a JSON array. */
#ifndef PS_MODEL_CLASS_WEIGHTS_H
#define PS_MODEL_CLASS_WEIGHTS_H

#include <stdint.h>

#include "base/status.h"

/* Parse n numbers, to be freed by ps_mem_free; *out = NULL for "". PS_EINVAL: another count, values that are not
 * numbers of at least 0, or only zeros. */
PS_NODISCARD ps_status ps_class_weights_parse(const char *text, int64_t n, float **out);

#endif
