#include "base/dtype.h"

#include "patrickstar_own.h"

const char *ps_dtype_name(ps_dtype t)
{
    static const char *const names[PS_DTYPE_COUNT] = {
        [PS_DTYPE_F32] = "f32", [PS_DTYPE_BF16] = "bf16", [PS_DTYPE_F16] = "f16"};
    return t < PS_DTYPE_COUNT ? names[t] : "?";
}

const char *ps_dtype_precision(ps_dtype t)
{
    static const char *const names[PS_DTYPE_COUNT] = {
        [PS_DTYPE_F32] = "fp32", [PS_DTYPE_BF16] = "bf16", [PS_DTYPE_F16] = "fp16"};
    return t < PS_DTYPE_COUNT ? names[t] : "?";
}

/* IEEE binary16: sign 1, exponent 5 (bias 15), fraction 10. */
float ps_f16_to_f32(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, fraction = h & 0x3ffu;
    uint32_t u;
    if (exponent == 31) {
        u = sign | 0x7f800000u | fraction << 13;
    } else if (exponent != 0) {
        u = sign | (exponent + 112) << 23 | fraction << 13;
    } else { /* zero or subnormal: fraction * 2^-24 is exact in float */
        const float magnitude = (float)fraction * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

uint16_t ps_f16_from_f32(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    const uint16_t sign = (uint16_t)(u >> 16 & 0x8000u);
    u &= 0x7fffffffu;
    if (u > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (u >> 13 & 0x3ffu));
    if (u >= 0x477ff000u) return sign | 0x7c00u; /* >= 65520 rounds to infinity */
    if (u < 0x38800000u) {                       /* below 2^-14: subnormal, unit 2^-24 */
        float magnitude;
        memcpy(&magnitude, &u, sizeof magnitude);
        /* adding 0.5 puts the unit of the last place of the sum at 2^-24, so the FPU rounds to nearest even */
        const float shifted = magnitude + 0.5f;
        memcpy(&u, &shifted, sizeof u);
        return (uint16_t)(sign | (u - 0x3f000000u));
    }
    u += 0xfffu + (u >> 13 & 1u);
    return (uint16_t)(sign | ((u - 0x38000000u) >> 13));
}

void ps_to_floats(ps_dtype dtype, const void *array, int64_t first, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++) out[i] = ps_dtype_load(dtype, array, first + i);
}

void ps_from_floats(ps_dtype dtype, void *array, int64_t first, int64_t n, const float *in)
{
    for (int64_t i = 0; i < n; i++) ps_dtype_store(dtype, array, first + i, in[i]);
}
