#include "weights/weight_convert.h"

#include <string.h>

bool ps_weight_is_float(ps_safetensors_dtype t)
{
    ps_dtype ours;
    return t == PS_SAFETENSORS_F64 || ps_weight_dtype(t, &ours);
}

bool ps_weight_dtype(ps_safetensors_dtype t, ps_dtype *out)
{
    for (int i = 0; i < PS_DTYPE_COUNT; i++) {
        *out = (ps_dtype)i;
        if (ps_weight_safetensors_dtype(*out) == t) return true;
    }
    return false;
}

ps_safetensors_dtype ps_weight_safetensors_dtype(ps_dtype t)
{
    static const ps_safetensors_dtype of[PS_DTYPE_COUNT] = {[PS_DTYPE_F32] = PS_SAFETENSORS_F32,
                                                            [PS_DTYPE_BF16] = PS_SAFETENSORS_BF16,
                                                            [PS_DTYPE_F16] = PS_SAFETENSORS_F16};
    return of[t];
}

bool ps_weight_dtype_parse(const char *text, ps_dtype *out)
{
    for (int i = 0; i < PS_DTYPE_COUNT; i++) {
        *out = (ps_dtype)i;
        if (strcmp(ps_dtype_name(*out), text) == 0) return true;
    }
    return false;
}

/* A value is infinite or NaN when all bits of its exponent are set. */
#define COUNT_NONFINITE(type, exponent_bits)                                                                           \
    do {                                                                                                               \
        const type *bits_ = values;                                                                                    \
        for (int64_t i_ = 0; i_ < n; i_++) count += (bits_[i_] & (exponent_bits)) == (exponent_bits);                  \
    } while (0)

int64_t ps_weight_count_nonfinite(ps_safetensors_dtype t, const void *values, int64_t n)
{
    int64_t count = 0;
    if (t == PS_SAFETENSORS_F64) COUNT_NONFINITE(uint64_t, 0x7ff0000000000000u);
    if (t == PS_SAFETENSORS_F32) COUNT_NONFINITE(uint32_t, 0x7f800000u);
    if (t == PS_SAFETENSORS_BF16) COUNT_NONFINITE(uint16_t, 0x7f80u);
    if (t == PS_SAFETENSORS_F16) COUNT_NONFINITE(uint16_t, 0x7c00u);
    return count;
}

void ps_weight_f64_to_f32(const double *src, float *dst, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double v; /* by memcpy: the two may be the same memory */
        memcpy(&v, src + i, sizeof v);
        const float rounded = (float)v;
        memcpy(dst + i, &rounded, sizeof rounded);
    }
}
