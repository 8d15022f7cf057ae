/* Token and position embeddings. */
#include "kernel/ref/ref.h"

static ps_status embedding_fwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_embedding_fwd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t c = 0; c < a->cols; c++)
            ps_ref_store(a->dtype, a->y, r * a->cols + c, ps_ref_load(a->dtype, a->w, a->ids[r] * a->cols + c), false);
    return PS_OK;
}

static ps_cost embedding_fwd_cost(const void *args)
{
    const ps_embedding_fwd_args *const a = args;
    return ps_cost_of_stream(a->rows * a->cols, 2, 0, a->dtype);
}

static void embedding_fwd_uses(const void *args, ps_uses *out)
{
    const ps_embedding_fwd_args *const a = args;
    PS_REF_WRITES(y, ps_ref_bytes(a->dtype, a->rows * a->cols));
    PS_REF_READS(w, ps_ref_bytes(a->dtype, a->V * a->cols));
    PS_REF_READS(ids, ps_ref_bytes(PS_DTYPE_F32, a->rows));
}

const ps_operator ps_operator_embedding_fwd = {
    .reference = {.run = embedding_fwd}, .cost = embedding_fwd_cost, .uses = embedding_fwd_uses};

static bool is_first_of_id(const int32_t *ids, int64_t r)
{
    for (int64_t earlier = 0; earlier < r; earlier++)
        if (ids[earlier] == ids[r]) return false;
    return true;
}

/* The sum over the rows of one id. */
static ps_status embedding_bwd_bytes(ps_backend *self, const void *args, size_t *out)
{
    const ps_embedding_bwd_args *const a = args;
    (void)self;
    *out = (size_t)a->cols * sizeof(float);
    return PS_OK;
}

/* Sums in float and in the order of rows, as in the contract, so that any backend can match the bits. */
static ps_status embedding_bwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_embedding_bwd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    float *sum = a->workspace;
    for (int64_t i = 0; !a->accumulate_grad && i < a->V * a->cols; i++) ps_dtype_store(a->grad_dtype, a->dw, i, 0.0f);
    for (int64_t r = 0; r < a->rows; r++) {
        if (!is_first_of_id(a->ids, r)) continue;
        for (int64_t c = 0; c < a->cols; c++) sum[c] = 0.0f;
        for (int64_t same = r; same < a->rows; same++)
            for (int64_t c = 0; a->ids[same] == a->ids[r] && c < a->cols; c++)
                sum[c] += ps_dtype_load(a->dtype, a->dy, same * a->cols + c);
        for (int64_t c = 0; c < a->cols; c++)
            ps_ref_store(a->grad_dtype, a->dw, a->ids[r] * a->cols + c, (double)sum[c], true);
    }
    return PS_OK;
}

static ps_cost embedding_bwd_cost(const void *args)
{
    const ps_embedding_bwd_args *const a = args;
    return ps_cost_of_stream(a->rows * a->cols + (a->accumulate_grad ? 0 : a->V * a->cols), 3, 1, a->dtype);
}

static void embedding_bwd_uses(const void *args, ps_uses *out)
{
    const ps_embedding_bwd_args *const a = args;
    PS_REF_WRITES(dw, ps_ref_bytes(a->grad_dtype, a->V * a->cols));
    PS_REF_READS(dy, ps_ref_bytes(a->dtype, a->rows * a->cols));
    PS_REF_READS(ids, ps_ref_bytes(PS_DTYPE_F32, a->rows));
    PS_REF_WRITES(workspace, out->workspace_bytes);
}

const ps_operator ps_operator_embedding_bwd = {
    .reference = {.run = embedding_bwd, .workspace_bytes = embedding_bwd_bytes},
    .cost = embedding_bwd_cost,
    .uses = embedding_bwd_uses};

static ps_status position_fwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_position_fwd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    const int64_t n = a->T * a->cols, w = a->first * a->cols;
    PS_ASSERT(a->first + a->T <= a->n_positions);
    for (int64_t b = 0; b < a->B; b++)
        for (int64_t i = 0; i < n; i++)
            ps_ref_store(a->dtype, a->y, b * n + i,
                         ps_ref_load(a->dtype, a->x, b * n + i) + ps_ref_load(a->dtype, a->w, w + i), false);
    return PS_OK;
}

static ps_cost position_fwd_cost(const void *args)
{
    const ps_position_fwd_args *const a = args;
    return ps_cost_of_stream(a->B * a->T * a->cols, 2, 1, a->dtype);
}

static void position_fwd_uses(const void *args, ps_uses *out)
{
    const ps_position_fwd_args *const a = args;
    PS_REF_WRITES(y, ps_ref_bytes(a->dtype, a->B * a->T * a->cols));
    PS_REF_READS(x, ps_ref_bytes(a->dtype, a->B * a->T * a->cols));
    PS_REF_READS(w, ps_ref_bytes(a->dtype, a->n_positions * a->cols));
}

const ps_operator ps_operator_position_fwd = {
    .reference = {.run = position_fwd}, .cost = position_fwd_cost, .uses = position_fwd_uses};

static ps_status position_bwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_position_bwd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    const int64_t n = a->T * a->cols;
    PS_ASSERT(a->T <= a->n_positions);
    for (int64_t i = 0; i < a->n_positions * a->cols; i++) {
        double sum = 0.0;
        for (int64_t b = 0; i < n && b < a->B; b++) sum += ps_ref_load(a->dtype, a->dy, b * n + i);
        ps_ref_store(a->grad_dtype, a->dw, i, sum, a->accumulate_grad);
    }
    return PS_OK;
}

static ps_cost position_bwd_cost(const void *args)
{
    const ps_position_bwd_args *const a = args;
    return ps_cost_of_stream(a->B * a->T * a->cols, 2, 1, a->dtype);
}

static void position_bwd_uses(const void *args, ps_uses *out)
{
    const ps_position_bwd_args *const a = args;
    PS_REF_WRITES(dw, ps_ref_bytes(a->grad_dtype, a->n_positions * a->cols));
    PS_REF_READS(dy, ps_ref_bytes(a->dtype, a->B * a->T * a->cols));
}

const ps_operator ps_operator_position_bwd = {
    .reference = {.run = position_bwd}, .cost = position_bwd_cost, .uses = position_bwd_uses};
