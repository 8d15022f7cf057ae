/* Linear layers: matrix multiplication with an epilogue. The addition of a residual and, for 16-bit types, the
 * derivative of gelu's tanh form are fused where the issuer supports it, on unrounded sums, which saves a write and a
 * read of them. Other epilogues are separate kernels: gelu itself, as its result must not depend on whether z is kept,
 * for which a library would use another algorithm; and the derivative in f32, where only z is rounded. */
#include "kernel/cuda/cuda_operator.h"

static int64_t linear_bytes(const void *args, int64_t gemm_bytes)
{
    (void)args;
    return gemm_bytes;
}

/* w as an operand [n_in, n_out], or its transpose. */
static ps_cuda_matrix weight(const void *w, ps_weight_layout layout, int64_t n_in, int64_t n_out, bool is_transposed,
                             ps_dtype t)
{
    const bool is_out_in = layout == PS_WEIGHT_OUT_IN;
    return (ps_cuda_matrix){
        .data = w, .stride = is_out_in ? n_in : n_out, .is_transposed = is_out_in != is_transposed, .dtype = t};
}

/* Apply the epilogue to z, n elements of type t in y. Each element is read before it is written by the same thread, so
 * kernels may work in place. */
static ps_status follow(const ps_cuda_issuer *to, const ps_linear_epilogue *e, void *y, int64_t n, ps_dtype t)
{
    const ps_gelu_fwd_args gelu = {.y = y, .x = e->other != NULL ? e->other : y, .n = n, .kind = e->gelu, .dtype = t};
    const ps_gelu_bwd_args gradient = {.dx = y, .dy = y, .x = e->other, .n = n, .kind = e->gelu, .dtype = t};
    const ps_add_args add = {.y = y, .a = y, .b = e->other, .n = n, .dtype = t};
    switch (e->kind) {
    case PS_EPILOGUE_GELU: return ps_cuda_gelu_fwd.run(to, &gelu);
    case PS_EPILOGUE_GELU_BWD: return ps_cuda_gelu_bwd.run(to, &gradient);
    case PS_EPILOGUE_ADD: return ps_cuda_add.run(to, &add);
    case PS_EPILOGUE_NONE:
    case PS_EPILOGUE_COUNT: break;
    }
    return PS_OK;
}

/* p, then e. */
static ps_status multiply(const ps_cuda_issuer *to, const ps_cuda_gemm *p, const ps_linear_epilogue *e, void *y)
{
    ps_cuda_gemm whole = *p;
    bool is_done = false;
    if (e->kind == PS_EPILOGUE_ADD) whole.addend = e->other;
    if (e->kind == PS_EPILOGUE_GELU_BWD && e->gelu == PS_GELU_TANH && p->y_dtype != PS_DTYPE_F32)
        whole.gelu_x = e->other;
    if (whole.addend != NULL || whole.gelu_x != NULL) PS_TRY(ps_cuda_multiply_whole(to, &whole, &is_done));
    if (is_done) return PS_OK;
    PS_TRY(ps_cuda_multiply(to, p));
    return follow(to, e, y, p->m * p->n, p->y_dtype);
}

static ps_status linear_fwd(const ps_cuda_issuer *to, const void *args)
{
    const ps_linear_fwd_args *const a = args;
    const bool keeps_z = a->epilogue.kind == PS_EPILOGUE_GELU && a->epilogue.other != NULL;
    const ps_cuda_gemm p = {.y = keeps_z ? a->epilogue.other : a->y,
                            .y_stride = a->n_out,
                            .y_dtype = a->y_dtype,
                            .a = {.data = a->x, .stride = a->n_in, .dtype = a->dtype},
                            .b = weight(a->w, a->layout, a->n_in, a->n_out, false, a->dtype),
                            .bias = a->b,
                            .m = a->rows,
                            .n = a->n_out,
                            .k = a->n_in,
                            .workspace = a->workspace};
    return multiply(to, &p, &a->epilogue, a->y);
}

const ps_cuda_operator ps_cuda_linear_fwd = {.run = linear_fwd, .workspace_bytes = linear_bytes};

static ps_status linear_bwd_input(const ps_cuda_issuer *to, const void *args)
{
    const ps_linear_bwd_input_args *const a = args;
    const ps_cuda_gemm p = {.y = a->dx,
                            .y_stride = a->n_in,
                            .y_dtype = a->dtype,
                            .a = {.data = a->dy, .stride = a->n_out, .dtype = a->dtype},
                            .b = weight(a->w, a->layout, a->n_in, a->n_out, true, a->dtype),
                            .m = a->rows,
                            .n = a->n_in,
                            .k = a->n_out,
                            .accumulate = a->accumulate_dx,
                            .workspace = a->workspace};
    return multiply(to, &p, &a->epilogue, a->dx);
}

const ps_cuda_operator ps_cuda_linear_bwd_input = {.run = linear_bwd_input, .workspace_bytes = linear_bytes};

static int64_t linear_bwd_weight_bytes(const void *args, int64_t gemm_bytes)
{
    const ps_linear_bwd_weight_args *const a = args;
    return (a->skips_dw ? 0 : gemm_bytes) + ps_cuda_columns_bytes(a->rows, a->n_out);
}

static ps_status linear_bwd_weight(const ps_cuda_issuer *to, const void *args)
{
    const ps_linear_bwd_weight_args *const a = args;
    const bool is_out_in = a->layout == PS_WEIGHT_OUT_IN;
    const ps_cuda_matrix dy = {.data = a->dy, .stride = a->n_out, .dtype = a->dtype};
    const ps_cuda_matrix x = {.data = a->x, .stride = a->n_in, .dtype = a->dtype};
    char *workspace = a->workspace;
    ps_cuda_gemm p = {.y = a->dw,
                      .y_stride = is_out_in ? a->n_in : a->n_out,
                      .y_dtype = a->grad_dtype,
                      .a = is_out_in ? dy : x,
                      .b = is_out_in ? x : dy,
                      .m = is_out_in ? a->n_out : a->n_in,
                      .n = is_out_in ? a->n_in : a->n_out,
                      .k = a->rows,
                      .accumulate = a->accumulate_grad,
                      .workspace = a->skips_dw ? NULL : ps_cuda_take(&workspace, to->gemm_bytes)};
    p.a.is_transposed = true;
    if (!a->skips_dw) PS_TRY(ps_cuda_multiply(to, &p));
    if (a->db == NULL) return PS_OK;
    const ps_cuda_columns_args c = {.x = a->dy, .rows = a->rows, .cols = a->n_out, .stride = a->n_out};
    float *const partial = ps_cuda_take(&workspace, ps_cuda_columns_bytes(a->rows, a->n_out));
    PS_TRY(ps_cuda_column_partials(to, a->dtype, c, partial));
    return ps_cuda_column_sums(to, partial, a->rows, a->n_out, a->db, a->grad_dtype, a->accumulate_grad);
}

const ps_cuda_operator ps_cuda_linear_bwd_weight = {.run = linear_bwd_weight,
                                                    .workspace_bytes = linear_bwd_weight_bytes};
