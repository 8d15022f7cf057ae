/* weight_convert.h - types of weights in files, and conversion between them. */
#ifndef PS_WEIGHTS_WEIGHT_CONVERT_H
#define PS_WEIGHTS_WEIGHT_CONVERT_H

#include <stdbool.h>

#include "base/dtype.h"
#include "weights/safetensors.h"

bool ps_weight_is_float(ps_safetensors_dtype t);              /* F64, F32, BF16, F16 */
bool ps_weight_dtype(ps_safetensors_dtype t, ps_dtype *out);  /* the corresponding ps_dtype; false when there is none */
ps_safetensors_dtype ps_weight_safetensors_dtype(ps_dtype t); /* the reverse */
bool ps_weight_dtype_parse(const char *text, ps_dtype *out);  /* "f32", "bf16", "f16"; false: anything else */
int64_t ps_weight_count_nonfinite(ps_safetensors_dtype t, const void *values, int64_t n); /* 0 when t is not a float
                                                                                             type */
void ps_weight_f64_to_f32(const double *src, float *dst, int64_t n); /* rounded to nearest; dst may be src */

#endif
