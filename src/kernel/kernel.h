/* kernel.h - the operators that a backend (backend.h) computes.
 *
 * An operator X has a struct of arguments, ps_X_args, whose comment is the contract, and a line in PS_OPS below.
 *
 * Letters: B batch, T sequence, C channels, H heads, KV heads of keys and values, D head size, V vocabulary or classes;
 * rows = B T, or B for one row per sequence. In formulas, (+)= is += with accumulate, else =.
 * Arrays are dense and row-major; all pointers are aligned to 64 bytes, and outputs do not overlap inputs, unless said
 * otherwise.
 *
 * Rules for every kernel
 *  - A kernel is a pure function of its arguments: equal inputs give equal bits, for any addresses and any number of
 *  threads. It allocates nothing; scratch is `workspace` (64-byte aligned, of ps_kernel_measure's size for these
 *  arguments, content undefined on entry).
 *  - `dtype` is the type of activations, parameters and their gradients; sums run in float or better.
 *  - Activation gradients: with accumulate_dx the kernel adds to dx (one rounding of the sum), else it overwrites dx.
 *  - Parameter gradients have their own `grad_dtype` and `accumulate_grad`. A gradient may overwrite its own parameter
 *  in place (dw == w, db == b) when dtype == grad_dtype and !accumulate_grad (PatrickStar's chunk reuse). The kernel
 *  reads w before it writes there.
 *  - Shapes with rows == 0 are legal and do nothing (parameter gradients not accumulated become zero).
 *  - Arguments are values and addresses of the backend's memory, at most PS_CALL_ARGS_BYTES_MAX bytes, so that copying
 *  them to a queue suffices. No status depends on the content of arrays: the caller checks ids and targets.
 *
 * Also compiles as C++17, for nvcc. */
#ifndef PS_KERNEL_KERNEL_H
#define PS_KERNEL_KERNEL_H

#include <stdbool.h>

#include "base/dtype.h"
#include "base/exact_sum.h"
#include "base/quantized.h"
#include "base/rng.h"
#include "base/status.h"
#include "device/queue.h"
#include "patrickstar_own.h"

/* Storage of a linear layer's weight. */
typedef enum ps_weight_layout {
    PS_WEIGHT_OUT_IN, /* [n_out, n_in], y = x W^T: torch.nn.Linear */
    PS_WEIGHT_IN_OUT, /* [n_in, n_out], y = x W  : Conv1D of Hugging Face's GPT-2 */
} ps_weight_layout;

typedef enum ps_gelu_kind {
    PS_GELU_TANH, /* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): "gelu_new" of GPT-2 */
    PS_GELU_ERF,  /* 0.5 x (1 + erf(x / sqrt 2)): BERT */
} ps_gelu_kind;

/* The epilogue of a matrix multiplication in the same call. z is the element that the multiplication alone would store,
 * rounded to its type, so the result has the bits of the named operator on a stored z. A backend lists its epilogues
 * (backend.h), and may apply them to each finished element or, as the cpu does, to the whole result. For an epilogue
 * that it lists as unrounded, z may be the unrounded sum, so bits differ; shape and formats alone determine which. */
typedef enum ps_epilogue_kind {
    PS_EPILOGUE_NONE,     /* z */
    PS_EPILOGUE_GELU,     /* gelu_fwd: gelu(z) */
    PS_EPILOGUE_ADD,      /* add: z + other */
    PS_EPILOGUE_GELU_BWD, /* gelu_bwd: z gelu'(other) */
    PS_EPILOGUE_COUNT,
} ps_epilogue_kind;

/* Fused pairs of operators, which do not store the intermediate result in memory. The bits are those of both operators
 * in sequence, with the intermediate result rounded to dtype, except that sums over rows may have another order. A
 * backend lists the pairs for which it has a kernel (backend.h). */
typedef enum ps_pair_kind {
    PS_PAIR_NONE,
    PS_PAIR_RMSNORM_ROPE, /* rmsnorm of each head, rope: rmsnorm_rope_fwd, and rmsnorm_rope_bwd */
    PS_PAIR_DROPOUT_ADD,  /* dropout, add: dropout with a residual; backward is not fused */
    PS_PAIR_COUNT,
} ps_pair_kind;

typedef struct ps_linear_epilogue {
    ps_epilogue_kind kind;
    ps_gelu_kind gelu;
    /* Of the result's shape and type, in separate memory. GELU: out, receives z; NULL when z is not needed. ADD,
     * GELU_BWD: in. */
    void *other;
} ps_linear_epilogue;

/* y = x W^(T) + b */
typedef struct ps_linear_fwd_args {
    void *y;       /* out [rows, n_out] of y_dtype */
    const void *x; /* in  [rows, n_in] */
    const void *w; /* in  see layout */
    const void *b; /* in  [n_out] or NULL */
    int64_t rows, n_in, n_out;
    ps_weight_layout layout;
    ps_dtype dtype, y_dtype;     /* y_dtype: dtype, or f32 (logits) */
    ps_linear_epilogue epilogue; /* not GELU_BWD; if any, y_dtype == dtype */
    void *workspace;
} ps_linear_fwd_args;

/* dx (+)= dy W^(T) */
typedef struct ps_linear_bwd_input_args {
    void *dx;       /* out [rows, n_in] */
    const void *dy; /* in  [rows, n_out] */
    const void *w;  /* in  see layout */
    int64_t rows, n_in, n_out;
    ps_weight_layout layout;
    ps_dtype dtype;
    bool accumulate_dx;
    ps_linear_epilogue epilogue; /* none, or GELU_BWD without accumulate_dx */
    void *workspace;
} ps_linear_bwd_input_args;

/* dW (+)= dy^T x (transposed for IN_OUT); db (+)= column sums of dy */
typedef struct ps_linear_bwd_weight_args {
    void *dw;       /* out as w, of grad_dtype */
    void *db;       /* out [n_out] of grad_dtype, or NULL */
    const void *dy; /* in  [rows, n_out] */
    const void *x;  /* in  [rows, n_in] */
    int64_t rows, n_in, n_out;
    ps_weight_layout layout;
    ps_dtype dtype, grad_dtype;
    bool accumulate_grad;
    bool skips_dw; /* compute db only: dw and x are not accessed */
    void *workspace;
} ps_linear_bwd_weight_args;

/* y = (x - mean) rstd w + b over the last dimension, rstd = 1 / sqrt(var + eps), var biased.
 * mean and rstd are kept for the backward pass. Ba, Kiros, Hinton 2016. */
typedef struct ps_layernorm_fwd_args {
    void *y;            /* out [rows, cols] */
    float *mean, *rstd; /* out [rows] */
    const void *x;      /* in  [rows, cols] */
    const void *w, *b;  /* in  [cols] */
    int64_t rows, cols;
    float eps;
    ps_dtype dtype;
} ps_layernorm_fwd_args;

/* With n = (x - mean) rstd and g = dy w:  dx (+)= rstd (g - avg(g) - n avg(g n));  dw (+)= sum dy n;  db (+)= sum dy */
typedef struct ps_layernorm_bwd_args {
    void *dx;                 /* out [rows, cols]; may be dy itself when !accumulate_dx */
    void *dw, *db;            /* out [cols] of grad_dtype */
    const void *dy;           /* in  [rows, cols] */
    const void *x;            /* in  [rows, cols] */
    const void *w;            /* in  [cols] */
    const float *mean, *rstd; /* in [rows] */
    int64_t rows, cols;
    ps_dtype dtype, grad_dtype;
    bool accumulate_dx, accumulate_grad;
    void *workspace;
} ps_layernorm_bwd_args;

/* y = x rstd w over the last dimension, rstd = 1 / sqrt(avg(x^2) + eps). Zhang, Sennrich 2019. */
typedef struct ps_rmsnorm_fwd_args {
    void *y;       /* out [rows, cols] */
    float *rstd;   /* out [rows], kept for the backward pass */
    const void *x; /* in  [rows, cols] */
    const void *w; /* in  [cols] */
    int64_t rows, cols;
    float eps;
    ps_dtype dtype;
} ps_rmsnorm_fwd_args;

/* With n = x rstd and g = dy w:  dx (+)= rstd (g - n avg(g n));  dw (+)= sum dy n */
typedef struct ps_rmsnorm_bwd_args {
    void *dx;          /* out [rows, cols]; may be dy itself when !accumulate_dx */
    void *dw;          /* out [cols] of grad_dtype */
    const void *dy;    /* in  [rows, cols] */
    const void *x;     /* in  [rows, cols] */
    const void *w;     /* in  [cols] */
    const float *rstd; /* in [rows] */
    int64_t rows, cols;
    ps_dtype dtype, grad_dtype;
    bool accumulate_dx, accumulate_grad;
    void *workspace;
} ps_rmsnorm_bwd_args;

/* y = gelu(x) of this kind. Hendrycks, Gimpel 2016. */
typedef struct ps_gelu_fwd_args {
    void *y;       /* out [n] */
    const void *x; /* in  [n] */
    int64_t n;
    ps_gelu_kind kind;
    ps_dtype dtype;
} ps_gelu_fwd_args;

/* dx (+)= dy gelu'(x) */
typedef struct ps_gelu_bwd_args {
    void *dx;       /* out [n]; may be dy itself when !accumulate_dx */
    const void *dy; /* in  [n] */
    const void *x;  /* in  [n] */
    int64_t n;
    ps_gelu_kind kind;
    ps_dtype dtype;
    bool accumulate_dx;
} ps_gelu_bwd_args;

/* y = gate / (1 + exp(-gate)) up: SwiGLU of Shazeer 2020 after its two projections. */
typedef struct ps_swiglu_fwd_args {
    void *y;               /* out [n] */
    const void *gate, *up; /* in  [n] */
    int64_t n;
    ps_dtype dtype;
} ps_swiglu_fwd_args;

/* With s = 1 / (1 + exp(-gate)):  dgate (+)= dy up s (1 + gate (1 - s));  dup (+)= dy gate s */
typedef struct ps_swiglu_bwd_args {
    void *dgate, *dup;          /* out [n]; dgate may be dy itself when !accumulate_dgate */
    const void *dy, *gate, *up; /* in  [n] */
    int64_t n;
    ps_dtype dtype;
    bool accumulate_dgate, accumulate_dup;
} ps_swiglu_bwd_args;

/* y = tanh x */
typedef struct ps_tanh_fwd_args {
    void *y;       /* out [n]; may be x */
    const void *x; /* in  [n] */
    int64_t n;
    ps_dtype dtype;
} ps_tanh_fwd_args;

/* dx (+)= dy (1 - y^2) */
typedef struct ps_tanh_bwd_args {
    void *dx;           /* out [n]; may be dy itself when !accumulate_dx */
    const void *dy, *y; /* in  [n] */
    int64_t n;
    ps_dtype dtype;
    bool accumulate_dx;
} ps_tanh_bwd_args;

/* y = x > 0 ? x : 0; a NaN stays one */
typedef struct ps_relu_fwd_args {
    void *y;       /* out [n]; may be x */
    const void *x; /* in  [n] */
    int64_t n;
    ps_dtype dtype;
} ps_relu_fwd_args;

/* dx (+)= y > 0 ? dy : 0; dy where y is NaN */
typedef struct ps_relu_bwd_args {
    void *dx;           /* out [n]; may be dy itself when !accumulate_dx */
    const void *dy, *y; /* in  [n] */
    int64_t n;
    ps_dtype dtype;
    bool accumulate_dx;
} ps_relu_bwd_args;

/* Multi-head attention. Query head h uses key and value head h / (H / KV): KV == H is multi-head, KV < H grouped-query
 * attention (Ainslie et al. 2023). P = softmax(q k^T scale) over the keys that a query attends to, with dropout of
 * probability dropout_p; y = P v. Query i attends to key j unless
 *     causal: j > i;  window > 0: j <= i - window or j >= i + window (sliding window of Mistral, counting the query
 *     itself);  mask != NULL: mask[b, j] == 0 (padding).
 * A query that attends to no key has y = 0 and lse = 0, and no gradient. A mask of ones gives the bits of no mask,
 * except on a GPU where a library computes attention without a mask (device/cuda/cudnn_attention.h).
 * lse[b, h, t] = log sum exp of the scaled scores is kept for backward. No [T, T] matrix is stored
 * (Dao et al., "FlashAttention", 2022; backward with D = rowsum(dy y)).
 * q, k, v may be packed in one array: rows (one b, t) are q_stride and kv_stride elements apart, and element pointers
 * are aligned to the element only.
 * Dropout keeps element (b, h, i, j) iff ps_rng_u32(dropout_key, ((b H + h) T + i) T + j) >= dropout_p 2^32 (see
 * ps_dropout_threshold) and scales it by 1 / (1 - p). */
typedef struct ps_attention_fwd_args {
    void *y;                     /* out [B, T, H, D] */
    float *lse;                  /* out [B, H, T] */
    const void *q;               /* in  [B, T, H, D], rows at q_stride */
    const void *k, *v;           /* in  [B, T, KV, D], rows at kv_stride */
    const int32_t *mask;         /* in [B, T], 0: the key is masked; or NULL */
    int64_t B, T, H, KV, D;      /* KV divides H */
    int64_t q_stride, kv_stride; /* elements */
    int64_t window;              /* 0: none */
    float scale;                 /* 1 / sqrt(D) usually */
    bool causal;
    float dropout_p; /* 0: none */
    ps_rng_key dropout_key;
    ps_dtype dtype;
    void *workspace;
} ps_attention_fwd_args;

/* dq, dk, dv have the layout of q, k, v and are overwritten; memory between their rows is not accessed. */
typedef struct ps_attention_bwd_args {
    void *dq, *dk, *dv;
    const void *dy; /* in  [B, T, H, D] */
    const void *y;  /* in  [B, T, H, D] */
    const void *q, *k, *v;
    const float *lse; /* in  [B, H, T] */
    const int32_t *mask;
    int64_t B, T, H, KV, D;
    int64_t q_stride, kv_stride;
    int64_t window;
    float scale;
    bool causal;
    float dropout_p;
    ps_rng_key dropout_key;
    ps_dtype dtype;
    void *workspace;
} ps_attention_bwd_args;

/* Causal attention of the next T tokens of one sequence, at positions first .. first + T - 1; the caches have the keys
 * and values of earlier positions. First the new ones are stored: k_cache[kv, first + t] = k[t, kv], v_cache likewise.
 * Then as attention_fwd for query t, which attends to the keys at positions j <= first + t, with window > 0 only those
 * with j > first + t - window. T == 0 does nothing. */
typedef struct ps_attention_cached_args {
    void *y;                     /* out [T, H, D] */
    void *k_cache, *v_cache;     /* in-out [KV, n_positions, D]; not read from first + T on */
    const void *q;               /* in  [T, H, D], rows at q_stride */
    const void *k, *v;           /* in  [T, KV, D], rows at kv_stride */
    int64_t T, H, KV, D;         /* KV divides H */
    int64_t q_stride, kv_stride; /* elements */
    int64_t n_positions, first;  /* first + T <= n_positions */
    int64_t window;              /* 0: none */
    float scale;
    ps_dtype dtype;
    void *workspace; /* depends on T and n_positions, not on first */
} ps_attention_cached_args;

/* Rotary position embedding (Su et al. 2021), pairing element i of a head with element i + D/2 as Hugging Face does:
 * with the angle (first + t) inv_freq[i],  y[i] = scale (x[i] cos - x[i + D/2] sin),  y[i + D/2] = scale (x[i + D/2]
 * cos + x[i] sin). inverse rotates by the negative angle: backward, with x <- dy. y may be x; accumulate adds to y. */
typedef struct ps_rope_args {
    void *y;               /* out [B, T, H, D] */
    const void *x;         /* in  [B, T, H, D] */
    const float *inv_freq; /* in  [D / 2] */
    int64_t B, T, H, D;    /* D even */
    int64_t first;         /* position of the first token of each sequence */
    float scale;           /* of the result: 1 except for YaRN */
    bool inverse, accumulate;
    ps_dtype dtype;
    void *workspace;
} ps_rope_args;

/* rmsnorm_fwd of each head, then rope: queries and keys of Qwen3. */
typedef struct ps_rmsnorm_rope_fwd_args {
    void *y;               /* out [B, T, H, D] */
    float *rstd;           /* out [B, T, H], kept for the backward pass */
    const void *x;         /* in  [B, T, H, D] */
    const void *w;         /* in  [D] */
    const float *inv_freq; /* in  [D / 2] */
    int64_t B, T, H, D;    /* D even */
    int64_t first;         /* position of the first token of each sequence */
    float eps, scale;      /* as of rmsnorm_fwd and rope */
    ps_dtype dtype;
    void *workspace;
} ps_rmsnorm_rope_fwd_args;

/* Inverse rope of dy, then rmsnorm_bwd. */
typedef struct ps_rmsnorm_rope_bwd_args {
    void *dx;              /* out [B, T, H, D]; may be dy itself */
    void *dw;              /* out [D] of grad_dtype */
    const void *dy;        /* in  [B, T, H, D] */
    const void *x;         /* in  [B, T, H, D] */
    const void *w;         /* in  [D] */
    const float *rstd;     /* in  [B, T, H] */
    const float *inv_freq; /* in  [D / 2] */
    int64_t B, T, H, D;    /* D even */
    int64_t first;
    float scale;
    ps_dtype dtype, grad_dtype;
    bool accumulate_grad;
    void *workspace;
} ps_rmsnorm_rope_bwd_args;

/* y[r] = w[ids[r]] */
typedef struct ps_embedding_fwd_args {
    void *y;            /* out [rows, cols] */
    const void *w;      /* in  [V, cols] */
    const int32_t *ids; /* in  [rows], of [0, V) */
    int64_t rows, cols, V;
    ps_dtype dtype;
} ps_embedding_fwd_args;

/* dw[ids[r]] += dy[r]; without accumulate_grad dw is zeroed first. The rows of one id are summed in float, in order
 * of r, and added with one rounding. Never reads w. */
typedef struct ps_embedding_bwd_args {
    void *dw;           /* out [V, cols] of grad_dtype */
    const void *dy;     /* in  [rows, cols] */
    const int32_t *ids; /* in  [rows], of [0, V) */
    int64_t rows, cols, V;
    ps_dtype dtype, grad_dtype;
    bool accumulate_grad;
    void *workspace;
} ps_embedding_bwd_args;

/* y[b, t] = x[b, t] + w[first + t] */
typedef struct ps_position_fwd_args {
    void *y;       /* out [B, T, cols]; may be x */
    const void *x; /* in  [B, T, cols] */
    const void *w; /* in  [n_positions, cols], n_positions >= first + T */
    int64_t B, T, cols, n_positions, first;
    ps_dtype dtype;
} ps_position_fwd_args;

/* dw[t] (+)= sum_b dy[b, t]; rows from T on get zero when not accumulated. dx is dy: nothing to do. Never reads w. */
typedef struct ps_position_bwd_args {
    void *dw;       /* out [n_positions, cols] of grad_dtype, n_positions >= T */
    const void *dy; /* in  [B, T, cols] */
    int64_t B, T, cols, n_positions;
    ps_dtype dtype, grad_dtype;
    bool accumulate_grad;
} ps_position_bwd_args;

/* The position that represents the sequence. */
typedef enum ps_pool_kind {
    PS_POOL_FIRST, /* position 0: [CLS] of BERT */
    PS_POOL_LAST,  /* the last one with mask != 0, position 0 when there is none: GPT-2 as a classifier */
} ps_pool_kind;

/* y[b] = x[b, t(b)] */
typedef struct ps_pool_fwd_args {
    void *y;             /* out [B, cols] */
    const void *x;       /* in  [B, T, cols] */
    const int32_t *mask; /* in  [B, T], or NULL: all ones */
    int64_t B, T, cols;
    ps_pool_kind kind;
    ps_dtype dtype;
} ps_pool_fwd_args;

/* dx[b, t] (+)= t == t(b) ? dy[b] : 0 */
typedef struct ps_pool_bwd_args {
    void *dx;       /* out [B, T, cols] */
    const void *dy; /* in  [B, cols] */
    const int32_t *mask;
    int64_t B, T, cols;
    ps_pool_kind kind;
    ps_dtype dtype;
    bool accumulate_dx;
} ps_pool_bwd_args;

/* y = a + b; y may be a or b. For residual connections, and sums of gradients. */
typedef struct ps_add_args {
    void *y;           /* out [n]; may be a or b */
    const void *a, *b; /* in [n] */
    int64_t n;
    ps_dtype dtype;
} ps_add_args;

/* y[i] = kept(i) ? scale x[i] / (1 - p) : 0, kept(i) iff ps_rng_u32(key, i) >= p 2^32. Forward with x, backward with
 * dx <- dy. y may be x; accumulate adds to y; has_residual: y = residual + that, rounded to dtype before it is added. */
typedef struct ps_dropout_args {
    void *y;              /* out [n] */
    const void *x;        /* in  [n] */
    const void *residual; /* in  [n] when has_residual; y may be residual */
    int64_t n;
    float p; /* 0 <= p < 1 */
    float scale;
    ps_rng_key key;
    ps_dtype dtype;
    bool accumulate, has_residual; /* at most one */
} ps_dropout_args;

/* The largest random word that is dropped, plus one. */
static inline uint32_t ps_dropout_threshold(float p)
{
    return (uint32_t)((double)p * 4294967296.0);
}

/* Number of floats of logits that are kept from lm_loss_fwd to lm_loss_bwd; the backend defines their order. */
static inline int64_t ps_lm_logits_count(int64_t rows, int64_t V)
{
    return rows * ((V + 15) / 16 * 16);
}

/* Optional terms of a cross-entropy; all 0: none. */
typedef struct ps_loss_terms {
    const float *class_weights; /* in [V], or NULL: all are 1 */
    float mean_weight;          /* of class_weights, 1 without; used with smoothing only */
    float smoothing;            /* label smoothing: probability mass spread over all classes; in [0, 1) */
    float z_loss;               /* coefficient of lse^2 */
} ps_loss_terms;

/* Language-model head or classifier fused with cross-entropy: logits = x w^T + b, per row lse = log sum exp(logits),
 * row_loss = lse - logits[target], 0 for ignored rows; predicted = the largest logit's index, the lowest of equal ones.
 * With terms, u being the class weights, u_t that of the target, e the smoothing and q the z_loss, it is
 *     row_loss = (1 - e) u_t (lse - logits[target]) + e (mean(u) lse - mean(u logits)) + q u_t lse^2:
 * torch.nn.CrossEntropyLoss(weight=u, label_smoothing=e), and the z-loss of PaLM (Chowdhery et al. 2022, section 5).
 * Logits are computed in slices of the vocabulary, whose width depends on the shape only. They are kept for backward,
 * or recomputed there with the same bits. Logits are floats, never rounded to 16 bits. */
typedef struct ps_lm_loss_fwd_args {
    float *row_loss;        /* out [rows] */
    float *lse;             /* out [rows] */
    int32_t *predicted;     /* out [rows], or NULL */
    float *logits;          /* out [ps_lm_logits_count] when keeps_logits */
    const void *x;          /* in  [rows, C] */
    const void *w;          /* in  [V, C] */
    const void *b;          /* in  [V], or NULL */
    const int32_t *targets; /* in  [rows], of [0, V) or PS_IGNORE_INDEX */
    int64_t rows, C, V;
    ps_loss_terms terms;
    ps_dtype dtype;
    bool keeps_logits;
    void *workspace;
} ps_lm_loss_fwd_args;

/* dlogits = (softmax(logits) - onehot(target)) scale, zero for ignored rows; dx = dlogits w; dw (+)= dlogits^T x; db
 * (+)= column sums of dlogits. With terms, dlogits = (a softmax(logits) - (1 - e) u_t onehot(target) - e u / V) scale,
 * a = (1 - e) u_t + e mean(u) + 2 q u_t lse. Processes the vocabulary slice by slice, so dw may overwrite w, and db may
 * overwrite b: slice s of w is read for the last time before slice s of dw is written. dlogits are rounded to dtype for
 * matrix multiplication and sums. */
typedef struct ps_lm_loss_bwd_args {
    void *dx;               /* out [rows, C], overwritten */
    void *dw;               /* out [V, C] of grad_dtype */
    void *db;               /* out [V] of grad_dtype, or NULL */
    const void *x;          /* in  [rows, C] */
    const void *w;          /* in  [V, C] */
    const void *b;          /* in  [V], or NULL */
    const float *lse;       /* in  [rows] from forward */
    const float *logits;    /* in [ps_lm_logits_count] from forward, when keeps_logits; else recomputed */
    const int32_t *targets; /* in  [rows], as in forward */
    int64_t rows, C, V;
    /* loss scale / (n_targets * gradient_accumulation_steps); with train.loss_average = micro_batches the weights u_t
     * of the rows that are not ignored replace n_targets */
    float scale;
    ps_loss_terms terms;
    ps_dtype dtype, grad_dtype;
    bool accumulate_grad, keeps_logits;
    bool skips_dx, skips_dw; /* not needed: the array is not accessed; the others have the same bits */
    void *workspace;
} ps_lm_loss_bwd_args;

/* Losses of single numbers z against values t; a value of NaN is ignored. */
typedef enum ps_values_loss_kind {
    PS_VALUES_SQUARED,  /* (z - t)^2: torch.nn.MSELoss */
    PS_VALUES_LOGISTIC, /* max(z, 0) - z t + log(1 + exp(-|z|)): torch.nn.BCEWithLogitsLoss */
} ps_values_loss_kind;

typedef struct ps_values_loss_fwd_args {
    float *loss;         /* out [n]; 0 for ignored values */
    int32_t *predicted;  /* out [n]: LOGISTIC z > 0; SQUARED -1 */
    const float *z;      /* in  [n] */
    const float *values; /* in  [n] */
    int64_t n;
    ps_values_loss_kind kind;
} ps_values_loss_fwd_args;

/* dz = 2 (z - t) scale, or (1 / (1 + exp(-z)) - t) scale; 0 for ignored values */
typedef struct ps_values_loss_bwd_args {
    void *dz;            /* out [n] */
    const float *z;      /* in  [n] */
    const float *values; /* in  [n] */
    int64_t n;
    float scale; /* as in ps_lm_loss_bwd_args; each value that is not ignored has weight 1 */
    ps_values_loss_kind kind;
    ps_dtype dtype;
} ps_values_loss_bwd_args;

/* Loss of the start (k = 0) and the end (k = 1) of a text span: cross-entropy over the positions of the sequence. With
 * lse[b, k] = log sum_t exp(z[b, t, k]): loss[b, k] = weight[k] (lse[b, k] - z[b, targets[b, k], k]), 0 where the
 * target is ignored; predicted = the position of the largest z, the lowest of equal ones. */
typedef struct ps_span_loss_fwd_args {
    float *loss;            /* out [B, 2] */
    int32_t *predicted;     /* out [B, 2] */
    const float *z;         /* in  [B, T, 2] */
    const int32_t *targets; /* in  [B, 2], of [0, T) or PS_IGNORE_INDEX */
    int64_t B, T;
    float weight[2];
} ps_span_loss_fwd_args;

/* dz = (softmax_t(z) - onehot(target)) scale[k], zero where the target is ignored */
typedef struct ps_span_loss_bwd_args {
    void *dz;               /* out [B, T, 2] */
    const float *z;         /* in  [B, T, 2] */
    const int32_t *targets; /* in  [B, 2], as in forward */
    int64_t B, T;
    float scale[2];
    ps_dtype dtype;
} ps_span_loss_bwd_args;

/* Sums of the losses of a micro-batch. */
typedef struct ps_loss_sums {
    double loss;   /* in the order of rows */
    double weight; /* of the targets' class weights, in the order of rows; n_targets without class weights */
    int64_t n_targets, n_correct;
} ps_loss_sums;

/* 0 when the sum of weights is 0. */
static inline double ps_loss_sums_mean(const ps_loss_sums *s)
{
    return s->weight > 0 ? s->loss / s->weight : 0;
}

/* *sums over the rows whose target is not PS_IGNORE_INDEX; with values, whose value is not NaN, and whose prediction is
 * correct if it equals (value > 0.5). */
typedef struct ps_loss_sums_args {
    ps_loss_sums *sums;                 /* out [1]; aligned as its type */
    const float *row_loss;              /* in  [rows] of lm_loss_fwd, values_loss_fwd or span_loss_fwd, as the others */
    const int32_t *targets, *predicted; /* in  [rows] */
    const float *values;                /* in  [rows] instead of targets, or NULL */
    const float *class_weights;         /* in  [n_classes] by target, or NULL: 1 each; not with values */
    int64_t rows, n_classes;
} ps_loss_sums_args;

/* Adam (Kingma, Ba 2015) and AdamW (Loshchilov, Hutter 2019), in one pass: reads grad, master, m, v once, and writes
 * master, m, v, and the new parameter over the gradient: 28 bytes of traffic per parameter with 16-bit parameters.
 *   g = grad grad_scale;  Adam: g += weight_decay master;  AdamW: master -= lr weight_decay master
 *   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
 *   master -= lr (m / bias1) / (sqrt(v / bias2) + eps);  param = master rounded to param_dtype
 * (as torch.optim.Adam and AdamW). Elementwise: the same bits for every division of the array.
 * Compact: m and v are groups of base/compact.h, decoded before and encoded after, while master follows the m and v of
 * this step before they are rounded; 16.5 bytes of traffic. The array may be divided where groups begin.
 * Split: compact, and master is param and low joined (base/split.h), of bf16; 14.5 bytes of traffic.
 * Stochastic: param, m and v are bf16, and master is param. All are computed in float as above, then rounded by word
 * first + i of key (base/stochastic.h); 14 bytes of traffic. The array may be divided where first is a multiple of 4. */
typedef struct ps_adam_args {
    void *param;      /* out [n] of param_dtype; may be grad itself when the types are equal; split, stochastic: in-out,
                       * not grad */
    const void *grad; /* in  [n] of grad_dtype */
    float *master;    /* in-out [n]; split, stochastic: NULL */
    uint16_t *low;    /* in-out [n]: split; else NULL */
    void *m, *v;      /* in-out [n]: floats; compact: groups, from the beginning of one on; stochastic: bf16 */
    int64_t n;
    int64_t first;  /* stochastic */
    ps_rng_key key; /* stochastic */
    float lr, beta1, beta2, eps, weight_decay;
    float one_minus_beta1, one_minus_beta2; /* from beta1 and beta2 before rounding */
    float bias1, bias2;                     /* 1 - beta1^t, 1 - beta2^t */
    float grad_scale;                       /* clip factor / (loss scale * ranks * weight ratio): api/engine/step.c */
    bool decoupled_decay;                   /* AdamW */
    bool is_compact;                        /* m is PS_FORMAT_SIGNED, v PS_FORMAT_ROOT */
    bool is_stochastic;                     /* not compact */
    ps_dtype param_dtype, grad_dtype;
} ps_adam_args;

/* Gradient descent with momentum as torch.optim.SGD, one pass:
 *   g = grad grad_scale + weight_decay master
 *   buffer = momentum buffer + (1 - dampening) g
 *   d = buffer, or g + momentum buffer with nesterov; without a buffer d = g
 *   master -= lr d;  param = master rounded to param_dtype
 * Elementwise: the same bits for every division of the array. Compact: buffer is groups of PS_FORMAT_SIGNED
 * (base/compact.h), while d follows the buffer of this step before it is rounded; divided where groups begin. */
typedef struct ps_sgd_args {
    void *param;      /* out [n] of param_dtype; may be grad itself when the types are equal */
    const void *grad; /* in  [n] of grad_dtype */
    float *master;    /* in-out [n] */
    void *buffer;     /* in-out [n] floats; compact: groups, from the beginning of one on; NULL: no momentum */
    int64_t n;
    float lr, momentum, one_minus_dampening, weight_decay;
    float grad_scale; /* clip factor / (loss scale * ranks * weight ratio): api/engine/step.c */
    bool nesterov, is_compact;
    ps_dtype param_dtype, grad_dtype;
} ps_sgd_args;

/* Lion (Chen et al. 2023, arXiv 2302.06675), one pass:
 *   g = grad grad_scale;  u = beta1 m + (1 - beta1) g
 *   master -= lr weight_decay master;  master -= lr sign(u), which is 0 of 0 and of NaN
 *   m = beta2 m + (1 - beta2) g;  param = master rounded to param_dtype
 * Elementwise: the same bits for every division of the array. Compact: m is groups, as buffer of SGD. */
typedef struct ps_lion_args {
    void *param;      /* out [n] of param_dtype; may be grad itself when the types are equal */
    const void *grad; /* in  [n] of grad_dtype */
    float *master;    /* in-out [n] */
    void *m;          /* in-out [n] floats; compact: groups, from the beginning of one on */
    int64_t n;
    float lr, beta1, beta2, weight_decay;
    float one_minus_beta1, one_minus_beta2; /* from beta1 and beta2 before rounding */
    float grad_scale;                       /* clip factor / (loss scale * ranks * weight ratio): api/engine/step.c */
    bool is_compact;
    ps_dtype param_dtype, grad_dtype;
} ps_lion_args;

/* dst[i] = src[i], rounded to nearest even; any pair of types. */
typedef struct ps_cast_args {
    void *dst;
    const void *src;
    int64_t n;
    ps_dtype dst_dtype, src_dtype;
} ps_cast_args;

/* Statistics of gradients. All bytes 0: of no gradients. */
typedef struct ps_grad_sums {
    ps_exact_sum sum_squares; /* of the finite elements */
    int64_t n_nonfinite;      /* infinities and NaNs */
    int32_t first_nonfinite;  /* first tensor with one of them; undefined when there are none */
} ps_grad_sums;

static inline void ps_grad_sums_count(ps_grad_sums *s, int64_t n_nonfinite, int32_t tensor)
{
    if (s->n_nonfinite == 0) s->first_nonfinite = tensor;
    s->n_nonfinite += n_nonfinite;
}

/* *all += *one; carries the squares of *one. */
static inline void ps_grad_sums_join(ps_grad_sums *all, ps_grad_sums *one)
{
    ps_exact_sum_join(&all->sum_squares, &one->sum_squares);
    if (one->n_nonfinite > 0) ps_grad_sums_count(all, one->n_nonfinite, one->first_nonfinite);
}

/* Add the statistics of x to *sums. Squares are summed in double over each block of PS_GRAD_STATS_BLOCK elements, and
 * these sums are added exactly, so bits do not depend on the division of tensors into chunks, whose sizes are multiples
 * of a block. At most 2^30 blocks in all. Called on a gradient right after it is computed. */
#define PS_GRAD_STATS_BLOCK 2048
typedef struct ps_grad_stats_args {
    ps_grad_sums *sums; /* in-out [1]; aligned as its type */
    const void *x;      /* in  [n] */
    int64_t n;
    int32_t tensor; /* of x */
    ps_dtype dtype;
} ps_grad_stats_args;

/* y[i] = the value of quantized element i, rounded to dtype. */
typedef struct ps_dequantize_args {
    void *y;       /* out [n] */
    const void *x; /* in  records (base/quantized.h) */
    int64_t n;
    ps_quant quant; /* not NONE */
    ps_dtype dtype;
} ps_dequantize_args;

/* dst[i] = mean + std z(first_index + i), z standard normal by Box-Muller on the words 2k, 2k+1 of the sequence `key`,
 * k = index / 2 (cosine for even, sine for odd index). std == 0 fills with mean. is_uniform: z = 2 u - 1 instead, u the
 * number in [0, 1) of the word with this index. */
typedef struct ps_fill_args {
    float *dst; /* out [n]; any alignment */
    int64_t n, first_index;
    float mean, std;
    ps_rng_key key;
    bool is_uniform;
} ps_fill_args;

/* The parts of a user's operator that a call needs. */
typedef struct ps_own_functions {
    const char *name;
    ps_own_func cpu, cuda; /* of the direction; NULL: none */
    int64_t (*scratch_bytes)(const ps_own_call *call, int is_backward);
    double (*flops)(const ps_own_call *call, int is_backward);
} ps_own_functions;

/* A user's operator (ps_own_operator), forward or backward, as in patrickstar_own.h, except that a parameter's gradient
 * is of grad_dtype and may overwrite the parameter in place: dw (+)= the function's result in scratch, rounded once. */
typedef struct ps_own_args {
    ps_own_functions op;
    ps_own_call
        call; /* without struct_size, device, stream, options, dw, scratch, scratch_bytes, which the backend sets */
    int64_t options[PS_OWN_OPTIONS_BYTES_MAX / 8];
    void *dw[PS_OWN_PARAMETERS_MAX]; /* out [w_elements] of grad_dtype; NULL in forward */
    int64_t saved_columns[PS_OWN_SAVED_MAX];
    ps_dtype grad_dtype;
    bool accumulate_grad;
    bool skips_dw[PS_OWN_PARAMETERS_MAX]; /* not needed: the function gets NULL, dw is not accessed */
    void *workspace;
} ps_own_args;

typedef ps_own_args ps_own_fwd_args, ps_own_bwd_args;

/* All operators, by the name X of ps_X_args; ids, tables and unions are generated from this list. */
#define PS_OPS(XX)                                                                                                     \
    XX(linear_fwd)                                                                                                     \
    XX(linear_bwd_input)                                                                                               \
    XX(linear_bwd_weight)                                                                                              \
    XX(layernorm_fwd)                                                                                                  \
    XX(layernorm_bwd)                                                                                                  \
    XX(rmsnorm_fwd)                                                                                                    \
    XX(rmsnorm_bwd)                                                                                                    \
    XX(gelu_fwd)                                                                                                       \
    XX(gelu_bwd)                                                                                                       \
    XX(swiglu_fwd)                                                                                                     \
    XX(swiglu_bwd)                                                                                                     \
    XX(tanh_fwd)                                                                                                       \
    XX(tanh_bwd)                                                                                                       \
    XX(relu_fwd)                                                                                                       \
    XX(relu_bwd)                                                                                                       \
    XX(rope)                                                                                                           \
    XX(rmsnorm_rope_fwd)                                                                                               \
    XX(rmsnorm_rope_bwd)                                                                                               \
    XX(attention_fwd)                                                                                                  \
    XX(attention_bwd)                                                                                                  \
    XX(attention_cached)                                                                                               \
    XX(embedding_fwd)                                                                                                  \
    XX(embedding_bwd)                                                                                                  \
    XX(position_fwd)                                                                                                   \
    XX(position_bwd)                                                                                                   \
    XX(pool_fwd)                                                                                                       \
    XX(pool_bwd)                                                                                                       \
    XX(add)                                                                                                            \
    XX(dropout)                                                                                                        \
    XX(lm_loss_fwd)                                                                                                    \
    XX(lm_loss_bwd)                                                                                                    \
    XX(own_fwd)                                                                                                        \
    XX(own_bwd)                                                                                                        \
    XX(values_loss_fwd)                                                                                                \
    XX(values_loss_bwd)                                                                                                \
    XX(span_loss_fwd)                                                                                                  \
    XX(span_loss_bwd)                                                                                                  \
    XX(loss_sums)                                                                                                      \
    XX(adam)                                                                                                           \
    XX(sgd)                                                                                                            \
    XX(lion)                                                                                                           \
    XX(cast)                                                                                                           \
    XX(dequantize)                                                                                                     \
    XX(grad_stats)                                                                                                     \
    XX(fill)

typedef enum ps_op {
#define XX(op) PS_OP_##op,
    PS_OPS(XX) PS_OP_COUNT
#undef XX
} ps_op;

const char *ps_op_name(ps_op op);  /* "linear_fwd" */
size_t ps_op_args_bytes(ps_op op); /* sizeof(ps_linear_fwd_args) */

#endif
