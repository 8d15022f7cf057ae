/* cuda_kernels.h - the CUDA kernels by name, which the host launches and the .cu files define.
 *
 * A kernel ps_gpu_X has one parameter, a struct of values and device addresses by value: that of the operator of the
 * same name (kernel.h), or one of those below. Its grid is one-dimensional, with the number of blocks of cuda_*.c, each
 * with a fixed number of threads. Host, tests and kernels share only the lists below:
 *
 *     PS_CUDA_KERNELS   one kernel                                      ps_gpu_embedding_sort
 *     PS_CUDA_TYPED     one an element type of its arrays               ps_gpu_add_f32, ps_gpu_add_bf16, ps_gpu_add_f16
 *     PS_CUDA_HALVES    one an element type of 16 bits                  ps_gpu_attention_dq_mma_64_bf16, ..._f16
 *     PS_CUDA_PAIRED    one a pair of types, of what is written first   ps_gpu_cast_f32_f32, ps_gpu_cast_f32_bf16, ...
 *
 * Every sum has a fixed order and no kernel adds floats by atomics: the same arguments give the same bits.
 *
 * Also compiles as C++17, for nvcc. */
#ifndef PS_KERNEL_CUDA_CUDA_KERNELS_H
#define PS_KERNEL_CUDA_CUDA_KERNELS_H

#include "kernel/kernel.h"

/* Threads of a warp. */
#define PS_CUDA_WARP 32

/* ---- arguments of kernels that are not operators ---- */

/* Set bytes to 0. */
typedef struct ps_cuda_zero_args {
    void *dst; /* aligned to 16 bytes */
    int64_t bytes;
} ps_cuda_zero_args;

/* own[i] = ((v[0][i] + v[1][i]) + v[2][i]) + ..., each addition in fp32, the result rounded once. v[rank] is own; those
 * of the other ranks are in `others`, at stride `stride`. */
typedef struct ps_cuda_rank_sum_args {
    void *own;          /* in-out [n] */
    const void *others; /* in [n_ranks - 1][n], rows at stride */
    int64_t n, stride;
    int32_t n_ranks, rank;
} ps_cuda_rank_sum_args;

/* y[r][c] += b[c] for rows of logits, which are floats, with a bias of 16 bits. */
typedef struct ps_cuda_bias_args {
    float *y;      /* in-out rows at stride */
    const void *b; /* in  [cols] */
    int64_t rows, cols, stride;
} ps_cuda_bias_args;

/* layernorm_fwd, or, without mean and b, rmsnorm_fwd: by teams of threads (cuda_rows.cuh), or one warp per row. */
typedef struct ps_cuda_norm_fwd_args {
    void *y;
    float *mean, *rstd;
    const void *x, *w, *b;
    int64_t rows, cols;
    float eps;
    int32_t lanes, vectors; /* of a team; vectors per thread: 1, 2 or 4. 0: one warp per row */
} ps_cuda_norm_fwd_args;

/* dx of layernorm_bwd, or, without mean, of rmsnorm_bwd. Teams also compute the sums dw [cols], then db [cols] with
 * mean, over the rows [p rows_a_block, (p + 1) rows_a_block) of each block p. */
typedef struct ps_cuda_norm_bwd_args {
    void *dx;
    float *partial; /* out [n_blocks, cols or 2 cols], by teams */
    const void *dy, *x, *w;
    const float *mean, *rstd;
    int64_t rows, cols, rows_a_block;
    int32_t lanes; /* of a team */
    bool accumulate_dx;
} ps_cuda_norm_bwd_args;

/* Sums down the columns of x [rows, cols] by blocks of rows: partial[p][c] = sum of f(r, c) over the rows r of
 * block p, [p rows_a_block, (p + 1) rows_a_block), in their order. */
typedef struct ps_cuda_columns_args {
    float *partial; /* out [n_partials, cols] */
    const void *x;  /* in  rows at stride: f = x, or x normal where there are */
    int64_t rows, cols, stride, rows_a_block;
    const void *normal; /* in [rows, cols], or NULL: x is multiplied by (normal - mean) rstd */
    const float *mean;  /* in  [rows], or NULL: 0 */
    const float *rstd;  /* in  [rows] */
    int32_t width;      /* columns per thread: 1, or those of 16 bytes, where all rows are aligned to 16 bytes */
} ps_cuda_columns_args;

/* y[c] (+)= sum of partial[p][c] over p; where there are two arrays, y2[c] (+)= that of partial[p][cols + c]. The order
 * depends on the number of partial sums only. */
typedef struct ps_cuda_partials_args {
    void *y, *y2;         /* out [cols] of dtype */
    const float *partial; /* in [n_partials, n_arrays cols] */
    int64_t n_partials, cols, n_arrays;
    ps_dtype dtype;
    bool accumulate;
} ps_cuda_partials_args;

/* rmsnorm_rope_bwd; dw as sums over the rows of each block. */
typedef struct ps_cuda_rmsnorm_rope_bwd_args {
    ps_rmsnorm_rope_bwd_args a;
    float *partial; /* out [n_blocks, D] */
} ps_cuda_rmsnorm_rope_bwd_args;

/* A pass of sorting rows by id: to[] = from[], stably sorted by the digit at bit `shift` of a row's id. */
typedef struct ps_cuda_embedding_sort_args {
    const int32_t *ids;
    const int32_t *from; /* in [rows]; NULL: 0, 1, 2, ... */
    int32_t *to;         /* out [rows] */
    int32_t *counts;     /* [digits, segments]: out of embedding_count; in of embedding_place, added up */
    int64_t rows;
    int shift;
} ps_cuda_embedding_sort_args;

typedef struct ps_cuda_embedding_scan_args {
    int32_t *counts; /* in-out [n] */
    int64_t n;
} ps_cuda_embedding_scan_args;

#define PS_CUDA_SORT_BITS 8
#define PS_CUDA_SORT_DIGITS (1 << PS_CUDA_SORT_BITS)
#define PS_CUDA_SORT_ROWS 1024 /* of a segment */

/* dw[id] += the rows of dy with this id */
typedef struct ps_cuda_embedding_sum_args {
    void *dw;       /* in-out [V, cols] of grad_dtype */
    const void *dy; /* in [rows, cols] */
    const int32_t *ids, *sorted;
    int64_t rows, cols;
    ps_dtype grad_dtype;
} ps_cuda_embedding_sum_args;

/* For each row, over the slices of the vocabulary so far: the largest logit, the sum of exp(logit - largest), and the
 * token of the largest. */
typedef struct ps_cuda_loss_rows {
    float *max, *sum; /* [rows] */
    int32_t *best;    /* [rows] */
} ps_cuda_loss_rows;

/* Add the slice [first, first + cols) of the vocabulary. The logit of the row's target is stored in at_target. */
typedef struct ps_cuda_loss_slice_args {
    ps_cuda_loss_rows seen; /* out where first is 0, else in-out */
    float *at_target;       /* out [rows], where the target is in the slice */
    const float *logits;    /* in  [rows, cols], rows at stride */
    const int32_t *targets;
    int64_t rows, cols, stride, first;
} ps_cuda_loss_slice_args;

/* With label smoothing: each row's sum of logits times their class weights, over the slices so far. */
typedef struct ps_cuda_loss_weighted_args {
    float *weighted;            /* [rows] out where first is 0, else in-out */
    const float *logits;        /* in  [rows, cols], rows at stride */
    const float *class_weights; /* in  of all classes; NULL: 1 each */
    int64_t rows, cols, stride, first;
} ps_cuda_loss_weighted_args;

typedef struct ps_cuda_loss_finish_args {
    float *row_loss;    /* in-out [rows]: from at_target of loss_slice */
    float *lse;         /* out [rows] */
    int32_t *predicted; /* out [rows], or NULL */
    ps_cuda_loss_rows seen;
    const float *weighted; /* in [rows], with label smoothing */
    const int32_t *targets;
    int64_t rows, V;
    ps_loss_terms terms;
} ps_cuda_loss_finish_args;

/* dlogits of lm_loss_bwd for one slice. */
typedef struct ps_cuda_loss_gradient_args {
    void *dlogits;       /* out [rows, cols], rows at dlogits_stride */
    const float *logits; /* in  [rows, cols], rows at stride */
    const float *lse;
    const int32_t *targets;
    int64_t rows, cols, stride, dlogits_stride, first, V;
    float scale;
    ps_loss_terms terms;
} ps_cuda_loss_gradient_args;

/* delta[b, h, t] = dy . y of that query */
typedef struct ps_cuda_attention_delta_args {
    float *delta;
    const void *dy, *y; /* in [B, T, H, D] */
    int64_t B, T, H, D;
} ps_cuda_attention_delta_args;

/* attention_bwd, either dq or dk and dv; a.workspace holds delta. */
typedef struct ps_cuda_attention_gradient_args {
    ps_attention_bwd_args a;
    const float *delta;
} ps_cuda_attention_gradient_args;

/* attention_cached on parts of keys_a_part positions each (the last may have fewer). For part p, token t and head h,
 * row (p T + t) H + h of the arrays has the result in units of exp(max), with its sum. */
typedef struct ps_cuda_attention_part_args {
    ps_attention_cached_args a;
    float *y, *max, *sum; /* out [n_parts, T, H, D], [n_parts, T, H] twice */
    int64_t n_parts, keys_a_part;
} ps_cuda_attention_part_args;

/* ---- the lists: XX(name, type of the arguments, threads per block) ---- */

#define PS_CUDA_KERNELS(XX)                                                                                            \
    XX(zero, ps_cuda_zero_args, 256)                                                                                   \
    XX(partials, ps_cuda_partials_args, 256)                                                                           \
    XX(embedding_count, ps_cuda_embedding_sort_args, 256)                                                              \
    XX(embedding_scan, ps_cuda_embedding_scan_args, 1024)                                                              \
    XX(embedding_place, ps_cuda_embedding_sort_args, 256)                                                              \
    XX(loss_slice, ps_cuda_loss_slice_args, 128)                                                                       \
    XX(loss_weighted, ps_cuda_loss_weighted_args, 128)                                                                 \
    XX(loss_finish, ps_cuda_loss_finish_args, 128)                                                                     \
    XX(loss_sums, ps_loss_sums_args, 256)                                                                              \
    XX(values_loss_fwd, ps_values_loss_fwd_args, 128)                                                                  \
    XX(span_loss_fwd, ps_span_loss_fwd_args, 128)                                                                      \
    XX(fill, ps_fill_args, 128)

#define PS_CUDA_TYPED(XX)                                                                                              \
    XX(layernorm_fwd, ps_cuda_norm_fwd_args, 256)                                                                      \
    XX(rmsnorm_fwd, ps_cuda_norm_fwd_args, 256)                                                                        \
    XX(norm_bwd, ps_cuda_norm_bwd_args, 128)                                                                           \
    XX(layernorm_bwd_1, ps_cuda_norm_bwd_args, 256)                                                                    \
    XX(layernorm_bwd_2, ps_cuda_norm_bwd_args, 256)                                                                    \
    XX(layernorm_bwd_4, ps_cuda_norm_bwd_args, 256)                                                                    \
    XX(rmsnorm_bwd_1, ps_cuda_norm_bwd_args, 256)                                                                      \
    XX(rmsnorm_bwd_2, ps_cuda_norm_bwd_args, 256)                                                                      \
    XX(rmsnorm_bwd_4, ps_cuda_norm_bwd_args, 256)                                                                      \
    XX(columns, ps_cuda_columns_args, 128)                                                                             \
    XX(bias, ps_cuda_bias_args, 256)                                                                                   \
    XX(gelu_fwd, ps_gelu_fwd_args, 256)                                                                                \
    XX(gelu_bwd, ps_gelu_bwd_args, 256)                                                                                \
    XX(swiglu_fwd, ps_swiglu_fwd_args, 256)                                                                            \
    XX(swiglu_bwd, ps_swiglu_bwd_args, 256)                                                                            \
    XX(tanh_fwd, ps_tanh_fwd_args, 256)                                                                                \
    XX(tanh_bwd, ps_tanh_bwd_args, 256)                                                                                \
    XX(relu_fwd, ps_relu_fwd_args, 256)                                                                                \
    XX(relu_bwd, ps_relu_bwd_args, 256)                                                                                \
    XX(add, ps_add_args, 256)                                                                                          \
    XX(dropout, ps_dropout_args, 256)                                                                                  \
    XX(dequantize, ps_dequantize_args, 256)                                                                            \
    XX(rope, ps_rope_args, 128)                                                                                        \
    XX(rmsnorm_rope_fwd, ps_rmsnorm_rope_fwd_args, 128)                                                                \
    XX(rmsnorm_rope_bwd, ps_cuda_rmsnorm_rope_bwd_args, 128)                                                           \
    XX(embedding_fwd, ps_embedding_fwd_args, 128)                                                                      \
    XX(embedding_sum, ps_cuda_embedding_sum_args, 128)                                                                 \
    XX(position_fwd, ps_position_fwd_args, 256)                                                                        \
    XX(position_bwd, ps_position_bwd_args, 128)                                                                        \
    XX(pool_fwd, ps_pool_fwd_args, 128)                                                                                \
    XX(pool_bwd, ps_pool_bwd_args, 128)                                                                                \
    XX(loss_gradient, ps_cuda_loss_gradient_args, 256)                                                                 \
    XX(values_loss_bwd, ps_values_loss_bwd_args, 128)                                                                  \
    XX(span_loss_bwd, ps_span_loss_bwd_args, 128)                                                                      \
    XX(grad_stats, ps_grad_stats_args, 256)                                                                            \
    XX(rank_sum, ps_cuda_rank_sum_args, 256)                                                                           \
    XX(adam_stochastic, ps_adam_args, 256)                                                                             \
    XX(attention_fwd_64, ps_attention_fwd_args, 128)                                                                   \
    XX(attention_fwd_128, ps_attention_fwd_args, 128)                                                                  \
    XX(attention_fwd_256, ps_attention_fwd_args, 128)                                                                  \
    XX(attention_delta, ps_cuda_attention_delta_args, 128)                                                             \
    XX(attention_dq_64, ps_cuda_attention_gradient_args, 128)                                                          \
    XX(attention_dq_128, ps_cuda_attention_gradient_args, 128)                                                         \
    XX(attention_dq_256, ps_cuda_attention_gradient_args, 128)                                                         \
    XX(attention_dkv_64, ps_cuda_attention_gradient_args, 128)                                                         \
    XX(attention_dkv_128, ps_cuda_attention_gradient_args, 128)                                                        \
    XX(attention_dkv_256, ps_cuda_attention_gradient_args, 128)                                                        \
    XX(attention_append, ps_attention_cached_args, 128)                                                                \
    XX(attention_part_64, ps_cuda_attention_part_args, 128)                                                            \
    XX(attention_part_128, ps_cuda_attention_part_args, 128)                                                           \
    XX(attention_part_256, ps_cuda_attention_part_args, 128)                                                           \
    XX(attention_join, ps_cuda_attention_part_args, 128)

#define PS_CUDA_HALVES(XX)                                                                                             \
    XX(attention_fwd_mma_64, ps_attention_fwd_args, 128)                                                               \
    XX(attention_fwd_mma_128, ps_attention_fwd_args, 128)                                                              \
    XX(attention_fwd_mma_drop_64, ps_attention_fwd_args, 128)                                                          \
    XX(attention_fwd_mma_drop_128, ps_attention_fwd_args, 128)                                                         \
    XX(attention_dq_mma_64, ps_cuda_attention_gradient_args, 128)                                                      \
    XX(attention_dq_mma_128, ps_cuda_attention_gradient_args, 128)                                                     \
    XX(attention_dq_mma_drop_64, ps_cuda_attention_gradient_args, 128)                                                 \
    XX(attention_dq_mma_drop_128, ps_cuda_attention_gradient_args, 128)                                                \
    XX(attention_dkv_mma_64, ps_cuda_attention_gradient_args, 128)                                                     \
    XX(attention_dkv_mma_128, ps_cuda_attention_gradient_args, 128)                                                    \
    XX(attention_dkv_mma_drop_64, ps_cuda_attention_gradient_args, 128)                                                \
    XX(attention_dkv_mma_drop_128, ps_cuda_attention_gradient_args, 128)

#define PS_CUDA_PAIRED(XX)                                                                                             \
    XX(cast, ps_cast_args, 256)                                                                                        \
    XX(adam, ps_adam_args, 256)                                                                                        \
    XX(adam_compact, ps_adam_args, 256)                                                                                \
    XX(sgd, ps_sgd_args, 256)                                                                                          \
    XX(sgd_compact, ps_sgd_args, 256)                                                                                  \
    XX(lion, ps_lion_args, 256)                                                                                        \
    XX(lion_compact, ps_lion_args, 256)

/* Number of a typed kernel: that of f32 plus the type; for 16-bit types only: that of bf16, then f16; for a pair: that
 * of f32 and f32 plus PS_DTYPE_COUNT times the first type plus the second. */
typedef enum ps_cuda_kernel {
#define XX(name, args, threads) PS_CUDA_##name,
    PS_CUDA_KERNELS(XX)
#undef XX
#define XX(name, args, threads) PS_CUDA_##name, PS_CUDA_##name##_bf16, PS_CUDA_##name##_f16,
        PS_CUDA_TYPED(XX)
#undef XX
#define XX(name, args, threads) PS_CUDA_##name, PS_CUDA_##name##_f16,
            PS_CUDA_HALVES(XX)
#undef XX
#define XX(name, args, threads)                                                                                        \
    PS_CUDA_##name, PS_CUDA_##name##_f32_bf16, PS_CUDA_##name##_f32_f16, PS_CUDA_##name##_bf16_f32,                    \
        PS_CUDA_##name##_bf16_bf16, PS_CUDA_##name##_bf16_f16, PS_CUDA_##name##_f16_f32, PS_CUDA_##name##_f16_bf16,    \
        PS_CUDA_##name##_f16_f16,
                PS_CUDA_PAIRED(XX)
#undef XX
                    PS_CUDA_KERNEL_COUNT
} ps_cuda_kernel;

/* Threads per block, by the name without types. */
enum {
#define XX(name, args, threads) PS_CUDA_THREADS_##name = threads,
    PS_CUDA_KERNELS(XX) PS_CUDA_TYPED(XX) PS_CUDA_HALVES(XX) PS_CUDA_PAIRED(XX)
#undef XX
};

#endif
