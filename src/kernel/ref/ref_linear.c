#include "kernel/ref/ref.h"

/* Index of the weight from input i to output o. */
static int64_t weight_index(ps_weight_layout layout, int64_t o, int64_t i, int64_t n_out, int64_t n_in)
{
    return layout == PS_WEIGHT_OUT_IN ? o * n_in + i : i * n_out + o;
}

void ps_ref_finish(const ps_linear_epilogue *e, ps_dtype t, void *y, int64_t i, double value, bool accumulate)
{
    const double z = ps_ref_rounded(t, value);
    switch (e->kind) {
    case PS_EPILOGUE_GELU:
        if (e->other != NULL) ps_ref_store(t, e->other, i, z, false);
        ps_ref_store(t, y, i, ps_ref_gelu(e->gelu, z), false);
        break;
    case PS_EPILOGUE_ADD: ps_ref_store(t, y, i, z + ps_ref_load(t, e->other, i), false); break;
    case PS_EPILOGUE_GELU_BWD:
        ps_ref_store(t, y, i, z * ps_ref_gelu_derivative(e->gelu, ps_ref_load(t, e->other, i)), false);
        break;
    case PS_EPILOGUE_NONE:
    case PS_EPILOGUE_COUNT: ps_ref_store(t, y, i, value, accumulate); break;
    }
}

static ps_status linear_fwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_linear_fwd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    for (int64_t r = 0; r < a->rows; r++) {
        for (int64_t o = 0; o < a->n_out; o++) {
            double sum = a->b != NULL ? ps_ref_load(a->dtype, a->b, o) : 0.0;
            for (int64_t i = 0; i < a->n_in; i++)
                sum += ps_ref_load(a->dtype, a->x, r * a->n_in + i) *
                       ps_ref_load(a->dtype, a->w, weight_index(a->layout, o, i, a->n_out, a->n_in));
            ps_ref_finish(&a->epilogue, a->y_dtype, a->y, r * a->n_out + o, sum, false);
        }
    }
    return PS_OK;
}

/* Matrix multiplication m x n with an epilogue, which has one more array of that size. */
static ps_cost with_epilogue(ps_cost gemm, ps_epilogue_kind kind, int64_t m, int64_t n, ps_dtype t)
{
    static const double work[PS_EPILOGUE_COUNT] = {
        [PS_EPILOGUE_GELU] = 20, [PS_EPILOGUE_ADD] = 1, [PS_EPILOGUE_GELU_BWD] = 30};
    if (kind == PS_EPILOGUE_NONE) return gemm;
    const ps_cost more = ps_cost_of_stream(m * n, 1, work[kind], t);
    return (ps_cost){.flops = gemm.flops + more.flops, .bytes = gemm.bytes + more.bytes};
}

static ps_cost linear_fwd_cost(const void *args)
{
    const ps_linear_fwd_args *const a = args;
    return with_epilogue(ps_cost_of_gemm(a->rows, a->n_out, a->n_in, a->dtype), a->epilogue.kind, a->rows, a->n_out,
                         a->dtype);
}

static void epilogue_uses(const ps_linear_epilogue *e, int64_t bytes, ps_uses *out)
{
    if (e->kind != PS_EPILOGUE_NONE) ps_ref_use(out, "epilogue.other", e->other, bytes, e->kind == PS_EPILOGUE_GELU);
}

static void linear_fwd_uses(const void *args, ps_uses *out)
{
    const ps_linear_fwd_args *const a = args;
    PS_REF_WRITES(y, ps_ref_bytes(a->y_dtype, a->rows * a->n_out));
    PS_REF_READS(x, ps_ref_bytes(a->dtype, a->rows * a->n_in));
    PS_REF_READS(w, ps_ref_bytes(a->dtype, a->n_in * a->n_out));
    PS_REF_READS(b, ps_ref_bytes(a->dtype, a->n_out));
    epilogue_uses(&a->epilogue, ps_ref_bytes(a->dtype, a->rows * a->n_out), out);
    PS_REF_WRITES(workspace, out->workspace_bytes);
}

const ps_operator ps_operator_linear_fwd = {
    .reference = {.run = linear_fwd}, .cost = linear_fwd_cost, .uses = linear_fwd_uses};

static ps_status linear_bwd_input(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_linear_bwd_input_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    for (int64_t r = 0; r < a->rows; r++) {
        for (int64_t i = 0; i < a->n_in; i++) {
            double sum = 0.0;
            for (int64_t o = 0; o < a->n_out; o++)
                sum += ps_ref_load(a->dtype, a->dy, r * a->n_out + o) *
                       ps_ref_load(a->dtype, a->w, weight_index(a->layout, o, i, a->n_out, a->n_in));
            ps_ref_finish(&a->epilogue, a->dtype, a->dx, r * a->n_in + i, sum, a->accumulate_dx);
        }
    }
    return PS_OK;
}

static ps_cost linear_bwd_input_cost(const void *args)
{
    const ps_linear_bwd_input_args *const a = args;
    return with_epilogue(ps_cost_of_gemm(a->rows, a->n_in, a->n_out, a->dtype), a->epilogue.kind, a->rows, a->n_in,
                         a->dtype);
}

static void linear_bwd_input_uses(const void *args, ps_uses *out)
{
    const ps_linear_bwd_input_args *const a = args;
    PS_REF_WRITES(dx, ps_ref_bytes(a->dtype, a->rows * a->n_in));
    PS_REF_READS(dy, ps_ref_bytes(a->dtype, a->rows * a->n_out));
    PS_REF_READS(w, ps_ref_bytes(a->dtype, a->n_in * a->n_out));
    epilogue_uses(&a->epilogue, ps_ref_bytes(a->dtype, a->rows * a->n_in), out);
    PS_REF_WRITES(workspace, out->workspace_bytes);
}

const ps_operator ps_operator_linear_bwd_input = {
    .reference = {.run = linear_bwd_input}, .cost = linear_bwd_input_cost, .uses = linear_bwd_input_uses};

/* Reads neither w nor b, so both gradients may overwrite them. */
static ps_status linear_bwd_weight(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_linear_bwd_weight_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    for (int64_t o = 0; !a->skips_dw && o < a->n_out; o++) {
        for (int64_t i = 0; i < a->n_in; i++) {
            double sum = 0.0;
            for (int64_t r = 0; r < a->rows; r++)
                sum += ps_ref_load(a->dtype, a->dy, r * a->n_out + o) * ps_ref_load(a->dtype, a->x, r * a->n_in + i);
            ps_ref_store(a->grad_dtype, a->dw, weight_index(a->layout, o, i, a->n_out, a->n_in), sum,
                         a->accumulate_grad);
        }
    }
    for (int64_t o = 0; a->db != NULL && o < a->n_out; o++) {
        double sum = 0.0;
        for (int64_t r = 0; r < a->rows; r++) sum += ps_ref_load(a->dtype, a->dy, r * a->n_out + o);
        ps_ref_store(a->grad_dtype, a->db, o, sum, a->accumulate_grad);
    }
    return PS_OK;
}

static ps_cost linear_bwd_weight_cost(const void *args)
{
    const ps_linear_bwd_weight_args *const a = args;
    if (a->skips_dw) return ps_cost_of_stream(a->rows * a->n_out, 1, 1, a->dtype);
    return ps_cost_of_gemm(a->n_out, a->n_in, a->rows, a->dtype);
}

static void linear_bwd_weight_uses(const void *args, ps_uses *out)
{
    const ps_linear_bwd_weight_args *const a = args;
    if (!a->skips_dw) PS_REF_WRITES(dw, ps_ref_bytes(a->grad_dtype, a->n_in * a->n_out));
    PS_REF_WRITES(db, ps_ref_bytes(a->grad_dtype, a->n_out));
    PS_REF_READS(dy, ps_ref_bytes(a->dtype, a->rows * a->n_out));
    if (!a->skips_dw) PS_REF_READS(x, ps_ref_bytes(a->dtype, a->rows * a->n_in));
    PS_REF_WRITES(workspace, out->workspace_bytes);
}

const ps_operator ps_operator_linear_bwd_weight = {
    .reference = {.run = linear_bwd_weight}, .cost = linear_bwd_weight_cost, .uses = linear_bwd_weight_uses};
