/* exact_sum.h - a sum of doubles without rounding, independent of the order and grouping of the terms.
 *
 * A fixed-point number of many 32-bit digits, wide enough for sums of squares of fp32 values (Kulisch's long
 * accumulator, "Computer Arithmetic and Validity", 2008, cut to that range). So a norm has the same bits for every
 * placement of tensors and every number of ranks. */
#ifndef PS_BASE_EXACT_SUM_H
#define PS_BASE_EXACT_SUM_H

#include <stdint.h>

#define PS_EXACT_SUM_DIGITS 24

typedef struct ps_exact_sum {
    int64_t digit[PS_EXACT_SUM_DIGITS]; /* [i] counts units of 2^(32 i - 352); may exceed 32 bits until carried */
} ps_exact_sum;

/* x: 0, or a finite multiple of 2^-352 in (0, 2^384); at most 2^30 additions between two calls that carry. */
void ps_exact_sum_add(ps_exact_sum *s, double x);

/* Carry: every digit but the last is in [0, 2^32), so as a double it is exact, and so are sums of the digits of up to
 * 2^20 sums. */
void ps_exact_sum_carry(ps_exact_sum *s);

/* *all += *one; both carry. */
void ps_exact_sum_join(ps_exact_sum *all, ps_exact_sum *one);

/* The sum as a double; carries. Equal sums have equal bits, whatever their terms were. */
double ps_exact_sum_value(ps_exact_sum *s);

#endif
