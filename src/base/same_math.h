/* same_math.h - logarithm, exponential, power, cosine and sine with the same bits on every machine.
 *
 * The C library's functions are nearly always rounded correctly, but this is not guaranteed, and glibc selects versions
 * with and without FMA by the processor. All values that reach the bits of a training step (learning rates, bias
 * corrections, rotary frequencies, logarithms of row sums) use these functions instead. They use only + - * / on
 * doubles, comparisons and integer arithmetic, which IEEE 754 defines to the bit, and the build never contracts a * b +
 * c (-ffp-contract=off). Errors are below one unit of the last place of a double for logarithm and exponential, below
 * 2^-52 for cosine and sine, and for powers 2^-52 times the logarithm of the result, so a result rounded to float is
 * correct except near ties.
 *
 * NaN gives NaN. There are no branches, so that loops over these functions vectorise. */
#ifndef PS_BASE_SAME_MATH_H
#define PS_BASE_SAME_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t ps_same_bits(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline double ps_same_double(uint64_t u)
{
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* Adding it to a double below 2^51 rounds the double to an integer, which is then in the low bits. */
#define PS_SAME_ROUND 0x1.8p52

/* ln x for normal x > 0; -infinity for smaller x, infinity for infinity. x = 2^k m, sqrt(1/2) <= m < sqrt 2;
 * ln m = 2 artanh(s), s = (m - 1) / (m + 1), by the polynomial of fdlibm's log (Sun, 1993). */
static inline double ps_same_log(double x)
{
    const double ln2_high = 0x1.62e42feep-1, ln2_low = 0x1.a39ef35793c76p-33;
    /* 0x3fe6a09e667f3bcd is sqrt(1/2): gives the exponent of x / sqrt(1/2) */
    const uint64_t from_root = ps_same_bits(x) - 0x3fe6a09e667f3bcd;
    const double k = ps_same_double((from_root >> 52) - (from_root >> 63 << 12) + 0x4338000000000000) - PS_SAME_ROUND;
    const double f = ps_same_double((from_root & 0xfffffffffffff) + 0x3fe6a09e667f3bcd) - 1.0;
    const double s = f / (2.0 + f), z = s * s, half = 0.5 * f * f;
    double p = 1.479819860511658591e-01;
    p = p * z + 1.531383769920937332e-01;
    p = p * z + 1.818357216161805012e-01;
    p = p * z + 2.222219843214978396e-01;
    p = p * z + 2.857142874366239149e-01;
    p = p * z + 3.999999999940941908e-01;
    p = p * z + 6.666666666666735130e-01;
    const double y = k * ln2_high - ((half - (s * (half + p * z) + k * ln2_low)) - f);
    return x >= 0x1p-1022 ? (x < INFINITY ? y : x) : x == x ? -INFINITY : x;
}

/* e^x; 0 below -708, infinity above 709. x = k ln 2 + r, |r| <= ln 2 / 2; Taylor's series of r. */
static inline double ps_same_exp(double x)
{
    const double ln2_high = 0x1.62e42feep-1, ln2_low = 0x1.a39ef35793c76p-33;
    const double inside = x > -708.0 ? (x < 709.0 ? x : 709.0) : -708.0;
    const double shifted = inside * 0x1.71547652b82fep+0 + PS_SAME_ROUND, k = shifted - PS_SAME_ROUND;
    const double r = (inside - k * ln2_high) - k * ln2_low;
    double p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    const double y = (p * (r * r) + r) + 1.0;
    const double power = ps_same_double((ps_same_bits(shifted) + 1023) << 52);
    return x >= -708.0 ? (x <= 709.0 ? y * power : INFINITY) : x == x ? 0.0 : x;
}

/* x^y for normal x > 0. */
static inline double ps_same_pow(double x, double y)
{
    return ps_same_exp(y * ps_same_log(x));
}

/* cos x and sin x, within 2^-52 for |x| <= 2^26; beyond that still the same bits on every machine, but less exact.
 * x = k pi/2 + r, |r| <= pi/4, with pi/2 as a sum of three numbers, of which k times the first two is exact; then the
 * polynomials of fdlibm's kernel functions. */
static inline void ps_same_cos_sin(double x, double *cosine, double *sine)
{
    const double shifted = x * 0x1.45f306dc9c883p-1 + PS_SAME_ROUND, k = shifted - PS_SAME_ROUND;
    const double r = ((x - k * 0x1.921fb54p+0) - k * 0x1.10b461p-30) - k * 0x1.a62633145c06ep-58;
    const double z = r * r, half = 0.5 * z, w = 1.0 - half;
    double p = 1.58969099521155010221e-10, q = -1.13596475577881948265e-11;
    p = p * z - 2.50507602534068634195e-08;
    p = p * z + 2.75573137070700676789e-06;
    p = p * z - 1.98412698298579493134e-04;
    p = p * z + 8.33333333332248946124e-03;
    p = p * z - 1.66666666666666324348e-01;
    q = q * z + 2.08757232129817482790e-09;
    q = q * z - 2.75573143513906633035e-07;
    q = q * z + 2.48015872894767294178e-05;
    q = q * z - 1.38888888888741095749e-03;
    q = q * z + 4.16666666666666019037e-02;
    const uint64_t quadrant = ps_same_bits(shifted), odd = 0 - (quadrant & 1);
    const uint64_t s = ps_same_bits(r + r * (z * p)), c = ps_same_bits(w + (((1.0 - w) - half) + z * (z * q)));
    *cosine = ps_same_double(((c & ~odd) | (s & odd)) ^ ((quadrant + 1) >> 1 << 63));
    *sine = ps_same_double(((s & ~odd) | (c & odd)) ^ (quadrant >> 1 << 63));
}

static inline double ps_same_cos(double x)
{
    double c, s;
    ps_same_cos_sin(x, &c, &s);
    return c;
}

#endif
