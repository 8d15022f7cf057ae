#include "kernel/cost.h"

#include "kernel/kernel.h"

const ps_compute_rates ps_compute_rates_default = {.flops_per_s = 400e9, .bytes_per_s = 15e9, .latency_ns = 3000};

static ps_cost matrix_product(int64_t m, int64_t n, int64_t k, ps_dtype t)
{
    const double M = (double)m, N = (double)n, K = (double)k;
    return (ps_cost){.flops = 2 * M * N * K, .bytes = (M * N + M * K + N * K) * (double)ps_dtype_bytes(t)};
}

/* Element-wise: `streams` arrays of n elements go by, `work` operations each. */
static ps_cost streaming(int64_t n, double streams, double work, ps_dtype t)
{
    return (ps_cost){.flops = (double)n * work, .bytes = (double)n * streams * (double)ps_dtype_bytes(t)};
}

/* Pairs of query and key that see each other in one head of one sequence; masks are not known here. */
static double attention_pairs(int64_t T, int64_t window, bool causal)
{
    const double t = (double)T, w = window > 0 && window < T ? (double)window : t;
    const double causal_pairs = w * t - 0.5 * w * w; /* a triangle, then a band */
    return causal ? causal_pairs : 2 * causal_pairs;
}

static ps_cost attention(int64_t B, double pairs, int64_t T, int64_t C, double n_products, ps_dtype t)
{
    return (ps_cost){.flops = 2 * n_products * (double)B * pairs * (double)C,
                     .bytes = (double)(B * T * C) * 2 * n_products * (double)ps_dtype_bytes(t)};
}

/* A product of m x n and what follows it, which has one more array of that size. */
static ps_cost with_epilogue(ps_cost product, ps_epilogue_kind kind, int64_t m, int64_t n, ps_dtype t)
{
    static const double work[PS_EPILOGUE_COUNT] = {
        [PS_EPILOGUE_GELU] = 20, [PS_EPILOGUE_ADD] = 1, [PS_EPILOGUE_GELU_BWD] = 30};
    if (kind == PS_EPILOGUE_NONE) return product;
    const ps_cost more = streaming(m * n, 1, work[kind], t);
    return (ps_cost){.flops = product.flops + more.flops, .bytes = product.bytes + more.bytes};
}

ps_cost ps_cost_linear_fwd(const void *args)
{
    const ps_linear_fwd_args *const a = args;
    return with_epilogue(matrix_product(a->rows, a->n_out, a->n_in, a->dtype), a->epilogue.kind, a->rows, a->n_out,
                         a->dtype);
}

ps_cost ps_cost_linear_bwd_input(const void *args)
{
    const ps_linear_bwd_input_args *const a = args;
    return with_epilogue(matrix_product(a->rows, a->n_in, a->n_out, a->dtype), a->epilogue.kind, a->rows, a->n_in,
                         a->dtype);
}

ps_cost ps_cost_linear_bwd_weight(const void *args)
{
    const ps_linear_bwd_weight_args *const a = args;
    return matrix_product(a->n_out, a->n_in, a->rows, a->dtype);
}

ps_cost ps_cost_layernorm_fwd(const void *args)
{
    const ps_layernorm_fwd_args *const a = args;
    return streaming(a->rows * a->cols, 2, 8, a->dtype);
}

ps_cost ps_cost_layernorm_bwd(const void *args)
{
    const ps_layernorm_bwd_args *const a = args;
    return streaming(a->rows * a->cols, 3, 14, a->dtype);
}

ps_cost ps_cost_rmsnorm_fwd(const void *args)
{
    const ps_rmsnorm_fwd_args *const a = args;
    return streaming(a->rows * a->cols, 2, 4, a->dtype);
}

ps_cost ps_cost_rmsnorm_bwd(const void *args)
{
    const ps_rmsnorm_bwd_args *const a = args;
    return streaming(a->rows * a->cols, 3, 10, a->dtype);
}

ps_cost ps_cost_gelu_fwd(const void *args)
{
    const ps_gelu_fwd_args *const a = args;
    return streaming(a->n, 2, 20, a->dtype);
}

ps_cost ps_cost_gelu_bwd(const void *args)
{
    const ps_gelu_bwd_args *const a = args;
    return streaming(a->n, 3, 30, a->dtype);
}

ps_cost ps_cost_swiglu_fwd(const void *args)
{
    const ps_swiglu_fwd_args *const a = args;
    return streaming(a->n, 3, 15, a->dtype);
}

ps_cost ps_cost_swiglu_bwd(const void *args)
{
    const ps_swiglu_bwd_args *const a = args;
    return streaming(a->n, 5, 20, a->dtype);
}

ps_cost ps_cost_tanh_fwd(const void *args)
{
    const ps_tanh_fwd_args *const a = args;
    return streaming(a->n, 2, 15, a->dtype);
}

ps_cost ps_cost_tanh_bwd(const void *args)
{
    const ps_tanh_bwd_args *const a = args;
    return streaming(a->n, 3, 3, a->dtype);
}

ps_cost ps_cost_rope(const void *args)
{
    const ps_rope_args *const a = args;
    return streaming(a->B * a->T * a->H * a->D, 2, 3, a->dtype);
}

ps_cost ps_cost_attention_fwd(const void *args)
{
    const ps_attention_fwd_args *const a = args;
    return attention(a->B, attention_pairs(a->T, a->window, a->causal), a->T, a->H * a->D, 2, a->dtype);
}

ps_cost ps_cost_attention_bwd(const void *args)
{
    const ps_attention_bwd_args *const a = args;
    return attention(a->B, attention_pairs(a->T, a->window, a->causal), a->T, a->H * a->D, 5, a->dtype);
}

/* Half of the positions are kept, say. */
ps_cost ps_cost_attention_cached(const void *args)
{
    const ps_attention_cached_args *const a = args;
    const double half = (double)a->n_positions / 2;
    const double seen = a->window > 0 && (double)a->window < half ? (double)a->window : half;
    return (ps_cost){.flops = 4 * (double)(a->T * a->H * a->D) * seen,
                     .bytes = 2 * (double)(a->KV * a->D) * seen * (double)ps_dtype_bytes(a->dtype)};
}

ps_cost ps_cost_embedding_fwd(const void *args)
{
    const ps_embedding_fwd_args *const a = args;
    return streaming(a->rows * a->cols, 2, 0, a->dtype);
}

ps_cost ps_cost_embedding_bwd(const void *args)
{
    const ps_embedding_bwd_args *const a = args;
    return streaming(a->rows * a->cols + (a->accumulate_grad ? 0 : a->V * a->cols), 3, 1, a->dtype);
}

ps_cost ps_cost_position_fwd(const void *args)
{
    const ps_position_fwd_args *const a = args;
    return streaming(a->B * a->T * a->cols, 2, 1, a->dtype);
}

ps_cost ps_cost_position_bwd(const void *args)
{
    const ps_position_bwd_args *const a = args;
    return streaming(a->B * a->T * a->cols, 2, 1, a->dtype);
}

ps_cost ps_cost_pool_fwd(const void *args)
{
    const ps_pool_fwd_args *const a = args;
    return streaming(a->B * a->cols, 2, 0, a->dtype);
}

ps_cost ps_cost_pool_bwd(const void *args)
{
    const ps_pool_bwd_args *const a = args;
    return streaming(a->B * a->T * a->cols, 1, 0, a->dtype);
}

ps_cost ps_cost_add(const void *args)
{
    const ps_add_args *const a = args;
    return streaming(a->n, 3, 1, a->dtype);
}

ps_cost ps_cost_dropout(const void *args)
{
    const ps_dropout_args *const a = args;
    return streaming(a->n, 2, 25, a->dtype);
}

/* Logits that are kept are written once, and read once. */
static double kept_logits_bytes(bool keeps_logits, int64_t rows, int64_t V)
{
    return keeps_logits ? (double)ps_lm_logits_count(rows, V) * sizeof(float) : 0;
}

ps_cost ps_cost_lm_loss_fwd(const void *args)
{
    const ps_lm_loss_fwd_args *const a = args;
    ps_cost c = matrix_product(a->rows, a->V, a->C, a->dtype);
    c.bytes += kept_logits_bytes(a->keeps_logits, a->rows, a->V);
    return c;
}

/* logits again where they are not kept, dx, dw */
ps_cost ps_cost_lm_loss_bwd(const void *args)
{
    const ps_lm_loss_bwd_args *const a = args;
    const double n_products = a->keeps_logits ? 2 : 3;
    ps_cost c = matrix_product(a->rows, a->V, a->C, a->dtype);
    c.flops *= n_products, c.bytes *= n_products;
    c.bytes += kept_logits_bytes(a->keeps_logits, a->rows, a->V);
    return c;
}

ps_cost ps_cost_adam(const void *args)
{
    const ps_adam_args *const a = args;
    return (ps_cost){.flops = (double)a->n * 14,
                     .bytes = (double)a->n *
                              (24 + (double)(ps_dtype_bytes(a->param_dtype) + ps_dtype_bytes(a->grad_dtype)))};
}

ps_cost ps_cost_cast(const void *args)
{
    const ps_cast_args *const a = args;
    return (ps_cost){.bytes = (double)a->n * (double)(ps_dtype_bytes(a->dst_dtype) + ps_dtype_bytes(a->src_dtype))};
}

ps_cost ps_cost_grad_stats(const void *args)
{
    const ps_grad_stats_args *const a = args;
    return streaming(a->n, 1, 2, a->dtype);
}

ps_cost ps_cost_fill(const void *args)
{
    const ps_fill_args *const a = args;
    return (ps_cost){.flops = (double)a->n * 40, .bytes = (double)a->n * 4};
}

double ps_cost_seconds(const ps_cost *cost, const ps_compute_rates *rates)
{
    const double arithmetic = cost->flops / rates->flops_per_s, traffic = cost->bytes / rates->bytes_per_s;
    return (arithmetic > traffic ? arithmetic : traffic) + (double)rates->latency_ns * 1e-9;
}
