/* Linear layers: three products. */
#include "kernel/cpu/cpu_matmul.h"

static ps_matmul linear_fwd_product(const ps_linear_fwd_args *a)
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

size_t PS_CPU_NAME(linear_fwd_bytes)(const ps_linear_fwd_args *a)
{
    /* pointers are not to be looked at: whatever needs more */
    ps_matmul p = linear_fwd_product(a);
    p.bias = NULL;
    const size_t without = PS_CPU_NAME(matmul_bytes)(&p);
    p.bias = &p;
    const size_t with = PS_CPU_NAME(matmul_bytes)(&p);
    return with > without ? with : without;
}

ps_status PS_CPU_NAME(linear_fwd)(ps_stream *s, const ps_linear_fwd_args *a)
{
    (void)s;
    const ps_matmul p = linear_fwd_product(a);
    return PS_CPU_NAME(matmul)(&p, a->workspace);
}

static ps_matmul linear_bwd_input_product(const ps_linear_bwd_input_args *a)
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

size_t PS_CPU_NAME(linear_bwd_input_bytes)(const ps_linear_bwd_input_args *a)
{
    const ps_matmul p = linear_bwd_input_product(a);
    return PS_CPU_NAME(matmul_bytes)(&p);
}

ps_status PS_CPU_NAME(linear_bwd_input)(ps_stream *s, const ps_linear_bwd_input_args *a)
{
    (void)s;
    const ps_matmul p = linear_bwd_input_product(a);
    return PS_CPU_NAME(matmul)(&p, a->workspace);
}

static ps_matmul linear_bwd_weight_product(const ps_linear_bwd_weight_args *a)
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

size_t PS_CPU_NAME(linear_bwd_weight_bytes)(const ps_linear_bwd_weight_args *a)
{
    const ps_matmul p = linear_bwd_weight_product(a);
    return PS_CPU_NAME(matmul_bytes)(&p);
}

ps_status PS_CPU_NAME(linear_bwd_weight)(ps_stream *s, const ps_linear_bwd_weight_args *a)
{
    (void)s;
    const ps_matmul p = linear_bwd_weight_product(a);
    PS_TRY(PS_CPU_NAME(matmul)(&p, a->workspace));
    if (a->db) PS_CPU_NAME(column_sums)
    (a->db, a->grad_dtype, a->dy, a->dtype, a->rows, a->n_out, a->n_out, a->accumulate_grad);
    return PS_OK;
}
