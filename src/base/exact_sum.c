#include "base/exact_sum.h"

#include <math.h>

#include "base/base.h"

#define DIGIT_BITS 32
#define LOWEST_EXPONENT (-352)
#define MANTISSA_BITS 53

/* Add half * 2^shift to a digit, what is above 32 bits to the next one. half < 2^32, shift < 32. */
static void add_shifted(ps_exact_sum *s, int64_t digit, uint64_t half, unsigned shift)
{
    const uint64_t shifted = half << shift;
    s->digit[digit] += (int64_t)(shifted & UINT32_MAX);
    s->digit[digit + 1] += (int64_t)(shifted >> DIGIT_BITS);
}

void ps_exact_sum_add(ps_exact_sum *s, double x)
{
    int exponent;
    if (x == 0) return;
    const double fraction = frexp(x, &exponent);
    const uint64_t mantissa = (uint64_t)ldexp(fraction, MANTISSA_BITS);
    int64_t at = exponent - MANTISSA_BITS - LOWEST_EXPONENT; /* of the mantissa's lowest bit, in bits of the sum */
    /* the lowest bits of a tiny number are zero: it is a multiple of the unit */
    const unsigned drop = at < 0 ? (unsigned)-at : 0;
    at = ps_max_i64(at, 0);
    const uint64_t m = mantissa >> drop;
    const unsigned shift = (unsigned)(at % DIGIT_BITS);
    const int64_t digit = at / DIGIT_BITS;
    PS_ASSERT(x > 0 && drop < MANTISSA_BITS && digit + 2 < PS_EXACT_SUM_DIGITS);
    add_shifted(s, digit, m & UINT32_MAX, shift);
    add_shifted(s, digit + 1, m >> DIGIT_BITS, shift);
}

void ps_exact_sum_carry(ps_exact_sum *s)
{
    for (int i = 0; i + 1 < PS_EXACT_SUM_DIGITS; i++) {
        s->digit[i + 1] += s->digit[i] >> DIGIT_BITS;
        s->digit[i] &= UINT32_MAX;
    }
}

void ps_exact_sum_join(ps_exact_sum *all, ps_exact_sum *one)
{
    ps_exact_sum_carry(one);
    for (int i = 0; i < PS_EXACT_SUM_DIGITS; i++) all->digit[i] += one->digit[i];
    ps_exact_sum_carry(all);
}

double ps_exact_sum_value(ps_exact_sum *s)
{
    double sum = 0;
    ps_exact_sum_carry(s);
    for (int i = PS_EXACT_SUM_DIGITS - 1; i >= 0; i--)
        sum += ldexp((double)s->digit[i], DIGIT_BITS * i + LOWEST_EXPONENT);
    return sum;
}
