/* ref.h - what each operator is on every backend: its cost, its reference kernel, and that kernel's scratch.
 *
 * A reference is one plain loop nest per formula of kernel.h, with sums in double, in one thread. It is what every
 * other kernel is measured against, so it prefers being obviously right to being fast. ref_*.c defines a ps_operator_X
 * for each X of PS_OPS; the library does not link while one is missing. */
#ifndef PS_KERNEL_REF_REF_H
#define PS_KERNEL_REF_REF_H

#include "base/base.h"
#include "kernel/backend.h"

/* Element i as double. */
static inline double ps_ref_load(ps_dtype t, const void *array, int64_t i)
{
    return (double)ps_dtype_load(t, array, i);
}

/* array[i] = value, or array[i] += value: in both cases one rounding, of the final result. */
static inline void ps_ref_store(ps_dtype t, void *array, int64_t i, double value, bool accumulate)
{
    ps_dtype_store(t, array, i, (float)(accumulate ? ps_ref_load(t, array, i) + value : value));
}

/* What reading back a stored value gives. */
static inline double ps_ref_rounded(ps_dtype t, double value)
{
    float cell;
    ps_ref_store(t, &cell, 0, value, false);
    return ps_ref_load(t, &cell, 0);
}

double ps_ref_gelu(ps_gelu_kind kind, double x);
double ps_ref_gelu_derivative(ps_gelu_kind kind, double x);

/* Store element i of a product as y[i], after the epilogue e if it has one; `accumulate` only without. */
void ps_ref_finish(const ps_linear_epilogue *e, ps_dtype t, void *y, int64_t i, double value, bool accumulate);

typedef struct ps_operator {
    ps_kernel reference; /* ignores self and queue */
    /* Arithmetic and memory traffic of a call. Pointers are not looked at. */
    ps_cost (*cost)(const void *args);
} ps_operator;

#define XX(op) extern const ps_operator ps_operator_##op;
PS_OPS(XX)
#undef XX

extern const ps_operator *const ps_operators[]; /* [PS_OP_COUNT] */

#endif
