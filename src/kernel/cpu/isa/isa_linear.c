/* Linear layers: three matrix multiplications. */
#include "kernel/cpu/cpu_matmul.h"

/* The epilogue, applied to the whole result z of a matrix multiplication, which may be y. */
static ps_status linear_epilogue(ps_backend *self, const ps_linear_epilogue *e, void *y, const void *z, int64_t n,
                                 ps_dtype t)
{
    switch (e->kind) {
    case PS_EPILOGUE_GELU:
        return PS_CPU_NAME(gelu_fwd).run(self, NULL,
                                         &(ps_gelu_fwd_args){.y = y, .x = z, .n = n, .kind = e->gelu, .dtype = t}, 0);
    case PS_EPILOGUE_ADD:
        return PS_CPU_NAME(add).run(self, NULL, &(ps_add_args){.y = y, .a = z, .b = e->other, .n = n, .dtype = t}, 0);
    case PS_EPILOGUE_GELU_BWD:
        return PS_CPU_NAME(gelu_bwd).run(
            self, NULL, &(ps_gelu_bwd_args){.dx = y, .dy = z, .x = e->other, .n = n, .kind = e->gelu, .dtype = t}, 0);
    case PS_EPILOGUE_NONE:
    case PS_EPILOGUE_COUNT: break;
    }
    return PS_OK;
}

static ps_matmul linear_fwd_gemm(const ps_linear_fwd_args *a)
{
    const bool out_in = a->layout == PS_WEIGHT_OUT_IN;
    return (ps_matmul){.c = a->y,
                       .a = a->x,
                       .b = a->w,
                       .bias = a->b,
                       .m = a->rows,
                       .n = a->n_out,
                       .k = a->n_in,
                       .lda = a->n_in,
                       .ldb = out_in ? a->n_in : a->n_out,
                       .ldc = a->n_out,
                       .b_transposed = out_in,
                       .ab_dtype = a->dtype,
                       .c_dtype = a->y_dtype};
}

static ps_status linear_fwd_bytes(ps_backend *self, const void *args, size_t *out)
{
    const ps_linear_fwd_args *const a = args;
    const ps_matmul p = linear_fwd_gemm(a);
    return PS_CPU_NAME(matmul_bytes)(ps_cpu_of(self), &p, out);
}

static ps_status linear_fwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_linear_fwd_args *const a = args;
    (void)queue;
    ps_matmul p = linear_fwd_gemm(a);
    if (a->epilogue.kind == PS_EPILOGUE_GELU && a->epilogue.other != NULL) p.c = a->epilogue.other;
    PS_TRY(PS_CPU_NAME(matmul)(ps_cpu_of(self), &p, a->workspace, workspace_bytes));
    return linear_epilogue(self, &a->epilogue, a->y, p.c, a->rows * a->n_out, a->dtype);
}

const ps_kernel PS_CPU_NAME(linear_fwd) = {.run = linear_fwd, .workspace_bytes = linear_fwd_bytes};

static ps_matmul linear_bwd_input_gemm(const ps_linear_bwd_input_args *a)
{
    const bool out_in = a->layout == PS_WEIGHT_OUT_IN;
    return (ps_matmul){.c = a->dx,
                       .a = a->dy,
                       .b = a->w,
                       .m = a->rows,
                       .n = a->n_in,
                       .k = a->n_out,
                       .lda = a->n_out,
                       .ldb = out_in ? a->n_in : a->n_out,
                       .ldc = a->n_in,
                       .b_transposed = !out_in,
                       .accumulate = a->accumulate_dx,
                       .ab_dtype = a->dtype,
                       .c_dtype = a->dtype};
}

static ps_status linear_bwd_input_bytes(ps_backend *self, const void *args, size_t *out)
{
    const ps_linear_bwd_input_args *const a = args;
    const ps_matmul p = linear_bwd_input_gemm(a);
    return PS_CPU_NAME(matmul_bytes)(ps_cpu_of(self), &p, out);
}

static ps_status linear_bwd_input(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_linear_bwd_input_args *const a = args;
    (void)queue;
    const ps_matmul p = linear_bwd_input_gemm(a);
    PS_TRY(PS_CPU_NAME(matmul)(ps_cpu_of(self), &p, a->workspace, workspace_bytes));
    return linear_epilogue(self, &a->epilogue, a->dx, p.c, a->rows * a->n_in, a->dtype);
}

const ps_kernel PS_CPU_NAME(linear_bwd_input) = {.run = linear_bwd_input, .workspace_bytes = linear_bwd_input_bytes};

static ps_matmul linear_bwd_weight_gemm(const ps_linear_bwd_weight_args *a)
{
    const bool out_in = a->layout == PS_WEIGHT_OUT_IN;
    return (ps_matmul){.c = a->dw,
                       .a = out_in ? a->dy : a->x,
                       .b = out_in ? a->x : a->dy,
                       .m = out_in ? a->n_out : a->n_in,
                       .n = out_in ? a->n_in : a->n_out,
                       .k = a->rows,
                       .lda = out_in ? a->n_out : a->n_in,
                       .ldb = out_in ? a->n_in : a->n_out,
                       .ldc = out_in ? a->n_in : a->n_out,
                       .a_transposed = true,
                       .accumulate = a->accumulate_grad,
                       .ab_dtype = a->dtype,
                       .c_dtype = a->grad_dtype};
}

static ps_status linear_bwd_weight_bytes(ps_backend *self, const void *args, size_t *out)
{
    const ps_linear_bwd_weight_args *const a = args;
    const ps_matmul p = linear_bwd_weight_gemm(a);
    *out = 0;
    return a->skips_dw ? PS_OK : PS_CPU_NAME(matmul_bytes)(ps_cpu_of(self), &p, out);
}

static ps_status linear_bwd_weight(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_linear_bwd_weight_args *const a = args;
    (void)queue;
    const ps_matmul p = linear_bwd_weight_gemm(a);
    if (!a->skips_dw) PS_TRY(PS_CPU_NAME(matmul)(ps_cpu_of(self), &p, a->workspace, workspace_bytes));
    if (a->db) PS_CPU_NAME(column_sums)
    (ps_cpu_of(self), a->db, a->grad_dtype, a->dy, a->dtype, a->rows, a->n_out, a->n_out, a->accumulate_grad);
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(linear_bwd_weight) = {.run = linear_bwd_weight, .workspace_bytes = linear_bwd_weight_bytes};
