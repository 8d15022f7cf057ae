/* Gather of rows: token and position embeddings, pooling. */
#include "kernel/cpu/cpu_vec.h"

static void embedding_fwd_rows(const void *args, int64_t lo, int64_t hi)
{
    const ps_embedding_fwd_args *const a = args;
    const int64_t row_bytes = a->cols * (int64_t)ps_dtype_bytes(a->dtype);
    for (int64_t r = lo; r < hi; r++)
        memcpy((char *)a->y + r * row_bytes, (const char *)a->w + a->ids[r] * row_bytes, (size_t)row_bytes);
}

static ps_status embedding_fwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_embedding_fwd_args *const a = args;
    (void)queue, (void)workspace_bytes;
    ps_cpu_for_rows(self, a->rows, a->cols, embedding_fwd_rows, a);
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(embedding_fwd) = {.run = embedding_fwd};

/* Row numbers by id, equal ids in order of rows: merge sort, bottom up. Returns the one of both arrays that holds the
 * result. */
static int64_t *embedding_sort(const int32_t *ids, int64_t rows, int64_t *from, int64_t *to)
{
    for (int64_t r = 0; r < rows; r++) from[r] = r;
    for (int64_t width = 1; width < rows; width *= 2) {
        for (int64_t lo = 0; lo < rows; lo += 2 * width) {
            const int64_t mid = ps_min_i64(rows, lo + width), hi = ps_min_i64(rows, lo + 2 * width);
            int64_t i = lo, j = mid;
            for (int64_t k = lo; k < hi; k++)
                to[k] = i < mid && (j >= hi || ids[from[i]] <= ids[from[j]]) ? from[i++] : from[j++];
        }
        int64_t *const swap = from;
        from = to, to = swap;
    }
    return from;
}

/* dw[id] += sum of dy over order[0 .. n), a few columns at a time in registers. */
PS_CPU_INLINE void embedding_add(ps_dtype t, ps_dtype grad_t, const ps_embedding_bwd_args *a, const int64_t *order,
                                 int64_t n)
{
    void *const dw = ps_cpu_at(grad_t, a->dw, a->ids[order[0]] * a->cols);
    for (int64_t c = 0; c < a->cols; c += VF_LANES) {
        vf sum = {0};
        for (int64_t i = 0; i < n; i++) sum += vf_get(t, a->dy, order[i] * a->cols + c, a->cols - c);
        vf_put(grad_t, dw, c, a->cols - c, sum + vf_get(grad_t, dw, c, a->cols - c));
    }
}

static void embedding_add_group(const ps_embedding_bwd_args *a, const int64_t *order, int64_t n)
{
    if (a->dtype == PS_DTYPE_BF16 && a->grad_dtype == PS_DTYPE_BF16)
        embedding_add(PS_DTYPE_BF16, PS_DTYPE_BF16, a, order, n);
    else
        embedding_add(a->dtype, a->grad_dtype, a, order, n);
}

/* The groups [lo, hi): rows order[begin[g]] .. order[begin[g + 1] - 1] have the same id. */
typedef struct embedding_groups {
    const ps_embedding_bwd_args *a;
    const int64_t *order, *begin;
} embedding_groups;

static void embedding_add_groups(const void *args, int64_t lo, int64_t hi)
{
    const embedding_groups *const e = args;
    for (int64_t g = lo; g < hi; g++) embedding_add_group(e->a, e->order + e->begin[g], e->begin[g + 1] - e->begin[g]);
}

static void zero_range(const void *args, int64_t lo, int64_t hi)
{
    memset(*(char *const *)args + lo, 0, (size_t)(hi - lo));
}

static void zero_bytes(ps_backend *self, void *p, int64_t bytes)
{
    char *const first = p;
    ps_cpu_pool_run_range(ps_cpu_of(self)->pool, bytes, 64 * PS_KIB, PS_MIB, zero_range, &first);
}

static ps_status embedding_bwd_bytes(ps_backend *self, const void *args, size_t *out)
{
    const ps_embedding_bwd_args *const a = args;
    (void)self;
    *out = (size_t)(3 * ps_round_up((a->rows + 1) * 8, 64));
    return PS_OK;
}

static ps_status embedding_bwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_embedding_bwd_args *const a = args;
    (void)queue, (void)workspace_bytes;
    if (!a->accumulate_grad) zero_bytes(self, a->dw, a->V * a->cols * (int64_t)ps_dtype_bytes(a->grad_dtype));
    if (a->rows == 0) return PS_OK;
    char *at = a->workspace;
    int64_t *const first = ps_cpu_take(&at, (a->rows + 1) * 8), *const second = ps_cpu_take(&at, (a->rows + 1) * 8);
    int64_t *const begin = ps_cpu_take(&at, (a->rows + 1) * 8);
    const int64_t *const order = embedding_sort(a->ids, a->rows, first, second);
    int64_t n_groups = 0;
    for (int64_t i = 0; i < a->rows; i++)
        if (i == 0 || a->ids[order[i]] != a->ids[order[i - 1]]) begin[n_groups++] = i;
    begin[n_groups] = a->rows;
    const embedding_groups groups = {a, order, begin};
    ps_cpu_for_rows(self, n_groups, a->cols, embedding_add_groups, &groups);
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(embedding_bwd) = {.run = embedding_bwd, .workspace_bytes = embedding_bwd_bytes};

PS_CPU_INLINE void position_fwd_row(ps_dtype t, const ps_position_fwd_args *a, int64_t r)
{
    const int64_t x = r * a->cols, w = (a->first + r % a->T) * a->cols;
    for (int64_t c = 0; c < a->cols; c += VF_LANES) {
        const int64_t n = a->cols - c;
        vf_put(t, a->y, x + c, n, vf_get(t, a->x, x + c, n) + vf_get(t, a->w, w + c, n));
    }
}

static void position_fwd_rows(const void *args, int64_t lo, int64_t hi)
{
    const ps_position_fwd_args *const a = args;
#define CALL(t)                                                                                                        \
    for (int64_t r = lo; r < hi; r++) position_fwd_row(t, a, r)
    PS_CPU_BY_DTYPE(a->dtype, CALL);
#undef CALL
}

static ps_status position_fwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_position_fwd_args *const a = args;
    (void)queue, (void)workspace_bytes;
    PS_ASSERT(a->first + a->T <= a->n_positions);
    ps_cpu_for_rows(self, a->B * a->T, a->cols, position_fwd_rows, a);
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(position_fwd) = {.run = position_fwd};

PS_CPU_INLINE void position_bwd_row(ps_dtype t, ps_dtype grad_t, const ps_position_bwd_args *a, int64_t row)
{
    for (int64_t c = 0; c < a->cols; c += VF_LANES) {
        const int64_t n = a->cols - c;
        vf sum = {0};
        for (int64_t b = 0; b < a->B; b++) sum += vf_get(t, a->dy, (b * a->T + row) * a->cols + c, n);
        if (a->accumulate_grad) sum += vf_get(grad_t, a->dw, row * a->cols + c, n);
        vf_put(grad_t, a->dw, row * a->cols + c, n, sum);
    }
}

static void position_bwd_rows(const void *args, int64_t lo, int64_t hi)
{
    const ps_position_bwd_args *const a = args;
    for (int64_t row = lo; row < hi; row++) position_bwd_row(a->dtype, a->grad_dtype, a, row);
}

static ps_status position_bwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_position_bwd_args *const a = args;
    (void)queue, (void)workspace_bytes;
    PS_ASSERT(a->T <= a->n_positions);
    const int64_t n_used = a->B > 0 ? a->T : 0, row_bytes = a->cols * (int64_t)ps_dtype_bytes(a->grad_dtype);
    ps_cpu_for_rows(self, n_used, a->B * a->cols, position_bwd_rows, a);
    if (!a->accumulate_grad)
        zero_bytes(self, (char *)a->dw + n_used * row_bytes, (a->n_positions - n_used) * row_bytes);
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(position_bwd) = {.run = position_bwd};

/* Row of x that represents sequence b. */
static int64_t pool_row(ps_pool_kind kind, const int32_t *mask, int64_t b, int64_t T)
{
    if (kind == PS_POOL_FIRST) return b * T;
    int64_t t = T - 1;
    while (mask != NULL && t > 0 && mask[b * T + t] == 0) t--;
    return b * T + t;
}

static ps_status pool_fwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_pool_fwd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    const int64_t row_bytes = a->cols * (int64_t)ps_dtype_bytes(a->dtype);
    for (int64_t b = 0; b < a->B; b++)
        memcpy((char *)a->y + b * row_bytes, (const char *)a->x + pool_row(a->kind, a->mask, b, a->T) * row_bytes,
               (size_t)row_bytes);
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(pool_fwd) = {.run = pool_fwd};

PS_CPU_INLINE void pool_bwd_row(ps_dtype t, const ps_pool_bwd_args *a, int64_t b)
{
    const int64_t dx = pool_row(a->kind, a->mask, b, a->T) * a->cols, dy = b * a->cols;
    for (int64_t c = 0; c < a->cols; c += VF_LANES) {
        const int64_t n = a->cols - c;
        vf v = vf_get(t, a->dy, dy + c, n);
        if (a->accumulate_dx) v += vf_get(t, a->dx, dx + c, n);
        vf_put(t, a->dx, dx + c, n, v);
    }
}

static ps_status pool_bwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_pool_bwd_args *const a = args;
    (void)queue, (void)workspace_bytes;
    if (!a->accumulate_dx) zero_bytes(self, a->dx, a->B * a->T * a->cols * (int64_t)ps_dtype_bytes(a->dtype));
    for (int64_t b = 0; b < a->B; b++) pool_bwd_row(a->dtype, a, b);
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(pool_bwd) = {.run = pool_bwd};
