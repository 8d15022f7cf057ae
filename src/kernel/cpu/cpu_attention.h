/* cpu_attention.h - shared by forward and backward attention; for the files in isa/.
 *
 * Scores are computed transposed, s[key][query]: queries are lanes, so that maxima, sums and factors of a query need no
 * operations across lanes. Tiles are square and begin at multiples of their size. Fully masked tiles are skipped, so
 * the work decreases with the window and with padding.
 *
 *            keys                  causal, window of 3 tiles: # every query sees every key, / some pairs do not
 *          . . . . . .
 *   q      /                       Only tiles with / look at single pairs. Looking changes no bit of a tile where all
 *   u      # /                     is seen, so a mask of ones, or a window of T, is the same as none.
 *   e      # # /
 *   r      / # # /
 *   i        / # # /
 *   es         / # # /
 *
 * Masked keys and values are read as zeros, so that a NaN in padding has no effect.
 *
 * Tiles and the order of every sum depend on the shape only, so bits depend neither on the number of threads nor on the
 * vector width, and for bf16 not on the kind of multiplication (except TILE_DP). */
#ifndef PS_KERNEL_CPU_ATTENTION_H
#define PS_KERNEL_CPU_ATTENTION_H

#include "kernel/cpu/cpu_random.h"
#include "kernel/cpu/cpu_tile_pack.h"

typedef struct attention_shape {
    const void *q, *k, *v;
    const int32_t *mask;
    int64_t B, T, H, KV, D;
    int64_t q_stride, kv_stride;
    int64_t window; /* T when there is none, which is equivalent */
    int64_t tile;   /* queries, and keys, of a tile; small for short sequences, which then need little scratch */
    int64_t rows;   /* T padded to tiles */
    int64_t width;  /* D padded to 32 */
    float scale, dropout_p;
    ps_rng_key key;
    bool causal;
    tile_kind kind;
    ps_dtype dtype;
} attention_shape;

/* Queries, and keys, of a tile for sequences of T: a multiple of 32. */
static inline int64_t attention_tile(int64_t T)
{
    return ps_min_i64(TILE, ps_round_up(ps_max_i64(T, 1), 32));
}

/* The same of both argument structs, whose common members have the same names. */
#define ATTENTION_SHAPE_OF(self, a)                                                                                    \
    {                                                                                                                  \
        .q = (a)->q, .k = (a)->k, .v = (a)->v, .mask = (a)->mask, .B = (a)->B, .T = (a)->T, .H = (a)->H,               \
        .KV = (a)->KV, .D = (a)->D, .q_stride = (a)->q_stride, .kv_stride = (a)->kv_stride,                            \
        .window = (a)->window > 0 ? ps_min_i64((a)->window, (a)->T) : (a)->T, .tile = attention_tile((a)->T),          \
        .rows = ps_round_up((a)->T, attention_tile((a)->T)), .width = ps_round_up((a)->D, 32), .scale = (a)->scale,    \
        .dropout_p = (a)->dropout_p, .key = (a)->dropout_key, .causal = (a)->causal,                                   \
        .kind = tile_kind_of(ps_cpu_of(self), (a)->dtype), .dtype = (a)->dtype                                         \
    }

/* ---- offsets, in elements ---------------------------------------------------------------------------------------- */

/* Query head `head` at time t, in q and dq. */
static inline int64_t attention_q_offset(const attention_shape *h, int64_t b, int64_t head, int64_t t)
{
    return (b * h->T + t) * h->q_stride + head * h->D;
}

/* Key and value head `group` at time t, in k, v, dk and dv. */
static inline int64_t attention_kv_offset(const attention_shape *h, int64_t b, int64_t group, int64_t t)
{
    return (b * h->T + t) * h->kv_stride + group * h->D;
}

/* Query head `head` at time t, in y and dy, whose row stride is H D. */
static inline int64_t attention_y_offset(const attention_shape *h, int64_t b, int64_t head, int64_t t)
{
    return ((b * h->T + t) * h->H + head) * h->D;
}

/* Query head `head` at time t, in lse. */
static inline int64_t attention_lse_offset(const attention_shape *h, int64_t b, int64_t head, int64_t t)
{
    return (b * h->H + head) * h->T + t;
}

/* ---- the attention mask ------------------------------------------------------------------------------------------ */

/* First key of the first tile to which queries from query0 on attend. */
static inline int64_t attention_first_key(const attention_shape *h, int64_t query0)
{
    return ps_max_i64(0, query0 - h->window + 1) / h->tile * h->tile;
}

/* End of the keys to which queries before query_end attend. */
static inline int64_t attention_end_key(const attention_shape *h, int64_t query_end)
{
    const int64_t end = ps_min_i64(h->T, query_end);
    return h->causal ? end : ps_min_i64(h->T, end - 1 + h->window);
}

/* The mask of sequence b, or NULL. */
static inline const int32_t *attention_mask(const attention_shape *h, int64_t b)
{
    return h->mask == NULL ? NULL : h->mask + b * h->T;
}

typedef enum attention_mask_kind { ATTENTION_NONE, ATTENTION_SOME, ATTENTION_ALL } attention_mask_kind;

/* Whether none, some or all pairs of a tile of queries and a tile of keys are unmasked. */
static inline attention_mask_kind attention_mask_kind_of(const attention_shape *h, const int32_t *mask, int64_t query0,
                                                         int64_t key0)
{
    const int64_t key_end = key0 + h->tile, last_query = query0 + h->tile - 1;
    int64_t n_hidden = ps_max_i64(0, key_end - h->T);
    for (int64_t k = key0; mask != NULL && k < ps_min_i64(h->T, key_end); k++) n_hidden += mask[k] == 0;
    if (n_hidden == h->tile) return ATTENTION_NONE;
    const bool ahead = key_end - 1 >= query0 + (h->causal ? 1 : h->window), before = key0 <= last_query - h->window;
    return n_hidden > 0 || ahead || before ? ATTENTION_SOME : ATTENTION_ALL;
}

/* Lanes of the queries query, query + 1, ... that attend to the key. */
PS_CPU_INLINE vi attention_visible(const attention_shape *h, const int32_t *mask, int64_t query, int64_t key)
{
    if (key >= h->T || (mask != NULL && mask[key] == 0)) return (vi){0};
    const vi distance = vi_lanes() + (int32_t)(query - key);
    const int32_t window = (int32_t)h->window;
    return (distance < window) & (h->causal ? distance >= 0 : distance > -window);
}

/* ---- probabilities ----------------------------------------------------------------------------------------------- */

#define ATTENTION_LOG2_E 1.44269504088896341f
#define ATTENTION_LN_2 0.693147180559945309f

/* 2^x, relative error below 1.5e-7, for -125 <= x <= 127, and constant outside; NaN stays NaN. x = n + f, |f| <= 1/2;
 * 2^f = 1 + f q(f), q fitted for the least relative error. */
PS_CPU_INLINE vf attention_exp2(vf x)
{
    const vf magic =
        vf_set1(0x1.8p23f + 127.0f); /* adding it rounds to an integer, whose low bits are 2^n's exponent */
    x = vf_min(vf_set1(127.0f), vf_max(vf_set1(-125.0f), x));
    const vf shifted = x + magic, f = x - (shifted - magic);
    vf q = vf_set1(0x1.5bba14p-10f);
    q = vf_fma(q, f, vf_set1(0x1.3cea88p-7f));
    q = vf_fma(q, f, vf_set1(0x1.c6b752p-5f));
    q = vf_fma(q, f, vf_set1(0x1.ebf9bcp-3f));
    q = vf_fma(q, f, vf_set1(0x1.62e42ap-1f));
    return vf_fma(q, f, vf_set1(1.0f)) * (vf)((vu)shifted << 23);
}

/* ---- operands ---------------------------------------------------------------------------------------------------- */

/* Right operand [width][tile] of a tile of rows: the transpose, for multiplication over D. */
static inline void attention_pack_transposed(const attention_shape *h, void *dst, const void *rows)
{
    const int64_t words = h->width * tile_cell_bytes(h->kind) / 4;
    tile_transpose(dst, h->tile, rows, words, h->tile, words);
}

/* Left operand [width][tile] of a tile of rows: the transpose, for multiplication over keys. `pairs` is room for a tile
 * of rows. */
static inline void attention_pack_columns(const attention_shape *h, void *dst, const void *rows, void *pairs)
{
    const int64_t words = h->tile * tile_cell_bytes(h->kind) / 4;
    if (!tile_is_paired(h->kind)) {
        tile_transpose(dst, h->tile, rows, h->width, h->tile, h->width);
        return;
    }
    tile_interleave(h->kind, pairs, rows, h->tile, h->width);
    tile_transpose(dst, words, pairs, h->width, words, h->width);
}

/* keep[key][query] = dropout factors of a tile; 0 for queries that do not exist. */
static inline void attention_keep(const attention_shape *h, float *keep, int64_t b, int64_t head, int64_t query0,
                                  int64_t key0)
{
    const uint32_t threshold = ps_dropout_threshold(h->dropout_p);
    const float factor = 1.0f / (1.0f - h->dropout_p);
    float factors[2 * PS_RANDOM_WORDS];
    for (int64_t q = 0; q < h->tile; q++) {
        const bool exists = query0 + q < h->T;
        const uint64_t row = (uint64_t)attention_lse_offset(h, b, head, query0 + q);
        const uint64_t first = row * (uint64_t)h->T + (uint64_t)key0;
        if (exists) ps_random_keep(factors, h->key, first / 4, threshold, factor);
        if (exists && first % 4)
            ps_random_keep(factors + PS_RANDOM_WORDS, h->key, first / 4 + PS_RANDOM_BLOCKS, threshold, factor);
        for (int64_t k = 0; k < h->tile; k++) keep[k * h->tile + q] = exists ? factors[first % 4 + (uint64_t)k] : 0.0f;
    }
}

#endif
