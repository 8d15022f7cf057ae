/* ref.h - the backend-independent part of each operator: its cost, the memory that it uses, its reference kernel, and
 * that kernel's scratch.
 *
 * A reference kernel is one plain loop nest per formula of kernel.h, with sums in double, in one thread. Other kernels
 * are tested against it, so it is obviously correct rather than fast. ref_*.c defines a ps_operator_X for each X of
 * PS_OPS; the library does not link while one is missing. */
#ifndef PS_KERNEL_REF_REF_H
#define PS_KERNEL_REF_REF_H

#include "base/compact.h"
#include "kernel/backend.h"

/* Element i as double. */
static inline double ps_ref_load(ps_dtype t, const void *array, int64_t i)
{
    return (double)ps_dtype_load(t, array, i);
}

/* array[i] = value, or array[i] += value, with one rounding of the result. */
static inline void ps_ref_store(ps_dtype t, void *array, int64_t i, double value, bool accumulate)
{
    ps_dtype_store(t, array, i, (float)(accumulate ? ps_ref_load(t, array, i) + value : value));
}

/* The value that is read back after a store. */
static inline double ps_ref_rounded(ps_dtype t, double value)
{
    float cell;
    ps_ref_store(t, &cell, 0, value, false);
    return ps_ref_load(t, &cell, 0);
}

double ps_ref_gelu(ps_gelu_kind kind, double x);
double ps_ref_gelu_derivative(ps_gelu_kind kind, double x);

/* Store element i of a matrix multiplication as y[i], after the epilogue e, if any; `accumulate` only without an
 * epilogue. */
void ps_ref_finish(const ps_linear_epilogue *e, ps_dtype t, void *y, int64_t i, double value, bool accumulate);

/* ---- the memory that a call uses ---- */

static inline int64_t ps_ref_bytes(ps_dtype t, int64_t n)
{
    return n * (int64_t)ps_dtype_bytes(t);
}

/* Bytes from the first element to the last of rows at stride `stride`. */
static inline int64_t ps_ref_rows_bytes(ps_dtype t, int64_t rows, int64_t stride, int64_t cols)
{
    return rows > 0 ? ps_ref_bytes(t, (rows - 1) * stride + cols) : 0;
}

/* Of a step of an optimizer with one state in a format: update(args, first, n, state) for all n elements, group by
 * group, which gets the state of its n as floats and leaves that of the next step. */
typedef void (*ps_ref_update)(const void *args, int64_t first, int64_t n, float *state);
static inline void ps_ref_update_groups(ps_ref_update update, const void *args, ps_format f, void *state, int64_t n)
{
    char *group = (char *)state;
    for (int64_t i = 0; i < n; i += PS_FORMAT_GROUP, group += ps_format_bytes(f, PS_FORMAT_GROUP)) {
        const int64_t n_group = ps_min_i64(PS_FORMAT_GROUP, n - i);
        float values[PS_FORMAT_GROUP];
        ps_format_decode(f, group, 0, values, n_group);
        update(args, i, n_group, values);
        ps_format_encode(f, group, values, n_group);
    }
}

/* NULL and 0 bytes add nothing. */
static inline void ps_ref_use(ps_uses *u, const char *name, const void *p, int64_t bytes, bool is_write)
{
    if (p == NULL || bytes == 0) return;
    PS_ASSERT(u->n < PS_USES_MAX);
    u->use[u->n++] = (ps_use){.address = p, .bytes = bytes, .is_write = is_write, .name = name};
}

/* The array `member` of the arguments `a`, for `out`. */
#define PS_REF_READS(member, bytes) ps_ref_use(out, #member, a->member, (bytes), false)
#define PS_REF_WRITES(member, bytes) ps_ref_use(out, #member, a->member, (bytes), true)

typedef struct ps_operator {
    ps_kernel reference; /* ignores self and queue */
    /* Arithmetic and memory traffic of a call. Pointers are not read. */
    ps_cost (*cost)(const void *args);
    /* Add the memory of the call to *out; out->workspace_bytes is the size of its scratch. */
    void (*uses)(const void *args, ps_uses *out);
} ps_operator;

#define XX(op) extern const ps_operator ps_operator_##op;
PS_OPS(XX)
#undef XX

extern const ps_operator *const ps_operators[]; /* [PS_OP_COUNT] */

#endif
