/* safetensors_format.h - shared by the reader and the writer of safetensors. */
#ifndef PS_WEIGHTS_SAFETENSORS_FORMAT_H
#define PS_WEIGHTS_SAFETENSORS_FORMAT_H

#include <stdbool.h>

#include "weights/safetensors.h"

/* The limit of the original implementation, which refuses larger headers, too. */
#define SAFETENSORS_HEADER_BYTES_MAX 100000000

/* Bytes of all elements; false when a dimension is negative or the product overflows. */
bool ps_safetensor_bytes(const ps_safetensor *t, int64_t *out);

#endif
