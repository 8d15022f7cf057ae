/* add, dropout, cast, tanh, relu: memory in, memory out. */
#include "kernel/cpu/cpu_random.h"
#include "kernel/cpu/cpu_vec.h"

PS_CPU_INLINE void add_range(ps_dtype t, const ps_add_args *a, int64_t lo, int64_t hi)
{
    for (int64_t i = lo; i < hi; i += VF_LANES)
        vf_put(t, a->y, i, hi - i, vf_get(t, a->a, i, hi - i) + vf_get(t, a->b, i, hi - i));
}

static void add_block(const void *args, int64_t lo, int64_t hi)
{
    const ps_add_args *const a = args;
#define CALL(t) add_range(t, a, lo, hi)
    PS_CPU_BY_DTYPE(a->dtype, CALL);
#undef CALL
}

static ps_status add(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_add_args *const a = args;
    (void)queue, (void)workspace_bytes;
    ps_cpu_for_blocks(self, a->n, add_block, a);
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(add) = {.run = add};

/* As a stored x would be read. */
PS_CPU_INLINE vf rounded(ps_dtype t, vf x)
{
    float cell[VF_LANES];
    vf_put(t, cell, 0, VF_LANES, x);
    return vf_get(t, cell, 0, VF_LANES);
}

/* lo is a multiple of PS_RANDOM_WORDS, as PS_CPU_BLOCK is. */
PS_CPU_INLINE void dropout_range(ps_dtype t, const ps_dropout_args *a, int64_t lo, int64_t hi)
{
    const uint32_t threshold = ps_dropout_threshold(a->p);
    const float factor = a->scale / (1.0f - a->p);
    float keep[PS_RANDOM_WORDS];
    for (int64_t i0 = lo; i0 < hi; i0 += PS_RANDOM_WORDS) {
        ps_random_keep(keep, a->key, (uint64_t)i0 / 4, threshold, factor);
        const int64_t end = ps_min_i64(hi, i0 + PS_RANDOM_WORDS);
        for (int64_t i = i0; i < end; i += VF_LANES) {
            const vf k = vf_load(keep + (i - i0));
            vf y = vf_where(k != 0.0f, vf_get(t, a->x, i, end - i) * k, vf_set1(0.0f));
            if (a->accumulate) y += vf_get(t, a->y, i, end - i);
            if (a->has_residual) y = vf_get(t, a->residual, i, end - i) + rounded(t, y);
            vf_put(t, a->y, i, end - i, y);
        }
    }
}

static void dropout_block(const void *args, int64_t lo, int64_t hi)
{
    const ps_dropout_args *const a = args;
#define CALL(t) dropout_range(t, a, lo, hi)
    PS_CPU_BY_DTYPE(a->dtype, CALL);
#undef CALL
}

static ps_status dropout(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_dropout_args *const a = args;
    (void)queue, (void)workspace_bytes;
    ps_cpu_for_blocks(self, a->n, dropout_block, a);
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(dropout) = {.run = dropout};

PS_CPU_INLINE void cast_range(ps_dtype to, ps_dtype from, const ps_cast_args *a, int64_t lo, int64_t hi)
{
    if (to == from) {
        const size_t bytes = (size_t)(hi - lo) * ps_dtype_bytes(to);
        memmove(ps_cpu_at(to, a->dst, lo), ps_cpu_at_const(from, a->src, lo), bytes);
        return;
    }
    for (int64_t i = lo; i < hi; i += VF_LANES) vf_put(to, a->dst, i, hi - i, vf_get(from, a->src, i, hi - i));
}

PS_CPU_INLINE void cast_from(ps_dtype from, const ps_cast_args *a, int64_t lo, int64_t hi)
{
#define CALL(t) cast_range(t, from, a, lo, hi)
    PS_CPU_BY_DTYPE(a->dst_dtype, CALL);
#undef CALL
}

static void cast_block(const void *args, int64_t lo, int64_t hi)
{
    const ps_cast_args *const a = args;
#define CALL(t) cast_from(t, a, lo, hi)
    PS_CPU_BY_DTYPE(a->src_dtype, CALL);
#undef CALL
}

static ps_status cast(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_cast_args *const a = args;
    (void)queue, (void)workspace_bytes;
    ps_cpu_for_blocks(self, a->n, cast_block, a);
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(cast) = {.run = cast};

PS_CPU_INLINE void tanh_fwd_range(ps_dtype t, const ps_tanh_fwd_args *a, int64_t lo, int64_t hi)
{
    for (int64_t i = lo; i < hi; i += VF_LANES) vf_put(t, a->y, i, hi - i, vf_tanh(vf_get(t, a->x, i, hi - i)));
}

static void tanh_fwd_block(const void *args, int64_t lo, int64_t hi)
{
    const ps_tanh_fwd_args *const a = args;
#define CALL(t) tanh_fwd_range(t, a, lo, hi)
    PS_CPU_BY_DTYPE(a->dtype, CALL);
#undef CALL
}

static ps_status tanh_fwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_tanh_fwd_args *const a = args;
    (void)queue, (void)workspace_bytes;
    ps_cpu_for_blocks(self, a->n, tanh_fwd_block, a);
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(tanh_fwd) = {.run = tanh_fwd};

/* (1 - y)(1 + y) keeps its digits where y^2 rounds towards one. */
PS_CPU_INLINE void tanh_bwd_range(ps_dtype t, const ps_tanh_bwd_args *a, int64_t lo, int64_t hi)
{
    for (int64_t i = lo; i < hi; i += VF_LANES) {
        const vf y = vf_get(t, a->y, i, hi - i);
        vf dx = vf_get(t, a->dy, i, hi - i) * ((1.0f - y) * (1.0f + y));
        if (a->accumulate_dx) dx += vf_get(t, a->dx, i, hi - i);
        vf_put(t, a->dx, i, hi - i, dx);
    }
}

static void tanh_bwd_block(const void *args, int64_t lo, int64_t hi)
{
    const ps_tanh_bwd_args *const a = args;
#define CALL(t) tanh_bwd_range(t, a, lo, hi)
    PS_CPU_BY_DTYPE(a->dtype, CALL);
#undef CALL
}

static ps_status tanh_bwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_tanh_bwd_args *const a = args;
    (void)queue, (void)workspace_bytes;
    ps_cpu_for_blocks(self, a->n, tanh_bwd_block, a);
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(tanh_bwd) = {.run = tanh_bwd};

PS_CPU_INLINE void relu_fwd_range(ps_dtype t, const ps_relu_fwd_args *a, int64_t lo, int64_t hi)
{
    for (int64_t i = lo; i < hi; i += VF_LANES) {
        const vf x = vf_get(t, a->x, i, hi - i);
        vf_put(t, a->y, i, hi - i, vf_where(x <= 0.0f, vf_set1(0.0f), x));
    }
}

static void relu_fwd_block(const void *args, int64_t lo, int64_t hi)
{
    const ps_relu_fwd_args *const a = args;
#define CALL(t) relu_fwd_range(t, a, lo, hi)
    PS_CPU_BY_DTYPE(a->dtype, CALL);
#undef CALL
}

static ps_status relu_fwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_relu_fwd_args *const a = args;
    (void)queue, (void)workspace_bytes;
    ps_cpu_for_blocks(self, a->n, relu_fwd_block, a);
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(relu_fwd) = {.run = relu_fwd};

PS_CPU_INLINE void relu_bwd_range(ps_dtype t, const ps_relu_bwd_args *a, int64_t lo, int64_t hi)
{
    for (int64_t i = lo; i < hi; i += VF_LANES) {
        const vf y = vf_get(t, a->y, i, hi - i);
        vf dx = vf_where(y <= 0.0f, vf_set1(0.0f), vf_get(t, a->dy, i, hi - i));
        if (a->accumulate_dx) dx += vf_get(t, a->dx, i, hi - i);
        vf_put(t, a->dx, i, hi - i, dx);
    }
}

static void relu_bwd_block(const void *args, int64_t lo, int64_t hi)
{
    const ps_relu_bwd_args *const a = args;
#define CALL(t) relu_bwd_range(t, a, lo, hi)
    PS_CPU_BY_DTYPE(a->dtype, CALL);
#undef CALL
}

static ps_status relu_bwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_relu_bwd_args *const a = args;
    (void)queue, (void)workspace_bytes;
    ps_cpu_for_blocks(self, a->n, relu_bwd_block, a);
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(relu_bwd) = {.run = relu_bwd};
