/* cuda_attention_mma.cu - 16-bit attention by tensor cores (Dao, "FlashAttention-2", 2023), for head sizes that are
 * multiples of 8 up to 128, in rows aligned to 16 bytes. Sums and softmax are in float; scores are not rounded, weights
 * are rounded to 16 bits before multiplication.
 *
 * A block has some rows, 16 M per warp, and loops over the others in tiles of N, double-buffered: while it computes
 * with one tile, the next is copied.
 *
 *     copies     |== tile 0 ==|== tile 1 ==|......|== tile 2 ==|
 *     products                |== tile 0 ==|......|== tile 1 ==|......
 *
 *                rows       others        multiplications per pair of tiles
 *     forward    queries    keys          q k^T, P v
 *     dq         queries    keys          q k^T, dy v^T, dS k
 *     dk, dv     keys       queries       k q^T, v dy^T, P^T dy, dS^T q
 *
 * Backward computes scores twice, so that each gradient is a sum of one block in one order, without scratch: 7 products
 * instead of the 5 of a backward that adds by atomics. A tile without masked pairs, and with heads as wide as the tile,
 * is computed without checks; elsewhere missing elements are skipped in steps of 16, or zero. Both paths have the same
 * bits, as every rounding is explicit. */
#include "kernel/cuda/cuda_attention.h"
#include "kernel/cuda/cuda_attention_mask.cuh"
#include "kernel/cuda/cuda_mma.cuh"

namespace
{

constexpr int warps = PS_CUDA_ATTENTION_WARPS, threads = warps * PS_CUDA_WARP;
constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;

/* Rows of the others, [from, to), to which a row attends. */
struct interval {
    int from, to;
};

/* For sequences below 2^30, as row numbers are ints. */
__device__ inline interval keys_of_query(const attention_mask &view, int i)
{
    const int T = (int)view.T, window = (int)view.window;
    return {max(i - window + 1, 0), min(view.causal ? i + 1 : i + window, T)};
}

__device__ inline interval queries_of_key(const attention_mask &view, int j)
{
    const int T = (int)view.T, window = (int)view.window;
    return {max(view.causal ? j : j - window + 1, 0), min(j + window, T)};
}

/* Of a pair, by their distance. */
__device__ inline bool is_near(const attention_mask &view, int query, int key)
{
    const int ahead = key - query, window = (int)view.window;
    return -ahead < window && ahead <= (view.causal ? 0 : window - 1);
}

/* Of all rows of a block. */
template <class F> __device__ inline interval seen_by(const place &at, const F &seen_of)
{
    return {seen_of((int)at.first).from, seen_of((int)at.end - 1).to};
}

/* ---- shared memory, and copies to it ---- */

/* Arrays of a block: n of its rows, two of the others with two numbers for each of these, all twice. */
template <typename T, int WIDTH, int ROWS, int N> struct shared_tiles {
    T *rows, *others;
    unsigned *numbers;

    __device__ shared_tiles(T *memory, int n)
        : rows(memory), others(memory + n * ROWS * WIDTH), numbers(reinterpret_cast<unsigned *>(others + 4 * N * WIDTH))
    {
    }
    __device__ T *row(int i) const
    {
        return rows + i * ROWS * WIDTH;
    }
    __device__ T *other(int turn, int i) const
    {
        return others + (2 * turn + i) * N * WIDTH;
    }
    __device__ unsigned *number(int turn, int i) const
    {
        return numbers + (2 * turn + i) * N;
    }
};

/* Begin to copy n rows of D elements from `from`. Missing and masked rows become zeros, so that NaN in padding has no
 * effect. */
template <int WIDTH, int ROWS, typename T>
__device__ inline void fill_tile(T *tile, const T *from, int64_t stride, int n, int D, const int32_t *mask)
{
    constexpr int units = WIDTH / 8;
    for (int i = (int)threadIdx.x; i < ROWS * units; i += threads) {
        const int r = i / units, u = i % units;
        const bool is_there = r < n && 8 * u < D && (mask == nullptr || mask[r] != 0);
        copy_begin<16>(unit_of<WIDTH>(tile, r, u), is_there ? from + r * stride + 8 * u : from, is_there);
    }
}

/* Numbers of 4 bytes, likewise. */
template <int N, typename W> __device__ inline void fill_numbers(unsigned *numbers, const W *from, int n)
{
    static_assert(sizeof(W) == 4, "numbers have 4 bytes");
    for (int i = (int)threadIdx.x; i < N; i += threads) copy_begin<4>(numbers + i, i < n ? from + i : from, i < n);
}

/* Calls fill(tile, turn) and, when the tile is visible to all threads, use(tile, turn), for n tiles with alternating
 * buffers. Copies may precede the first fill. */
template <class Fill, class Use> __device__ inline void for_tiles(int n, const Fill &fill, const Use &use)
{
    if (n > 0) fill(0, 0);
    copies_commit();
    for (int tile = 0; tile < n; tile++) {
        if (tile + 1 < n) fill(tile + 1, (tile + 1) % 2);
        copies_commit();
        copies_wait<1>();
        __syncthreads();
        use(tile, tile % 2);
        __syncthreads(); /* the tile after the next is copied over this one */
    }
}

/* ---- matrix multiplication of a warp ---- */

/* Sums of M matrices of 16 rows, N columns. */
template <int M, int N> struct sums {
    float v[M][N / 8][4];

    __device__ void zero()
    {
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int n = 0; n < N / 8; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) v[m][n][e] = 0.0f;
    }
};

/* Calls f(m, n, e) for each element v[m][n][e] of sums that a lane has. */
template <int M, int N, class F> __device__ inline void for_places(const F &f)
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) f(m, n, e);
}

/* The row of such an element among the 2M of this lane; its column. */
__device__ inline int row_of_place(int m, int e)
{
    return 2 * m + e / 2;
}

__device__ inline int column_of_place(int n, int e)
{
    return 8 * n + lane_of_thread() % 4 * 2 + e % 2;
}

/* The first row of a warp in its block's. */
template <int M> __device__ inline int first_row()
{
    return 16 * M * warp_of_thread();
}

/* Row r of a lane, 0 .. 2M - 1, in its warp's. */
__device__ inline int row_of_lane(int r)
{
    return r / 2 * 16 + r % 2 * 8 + lane_of_thread() / 4;
}

/* s = rows others^T: M matrices from row on. Where it is not WHOLE, of n others and D columns. */
template <bool WHOLE, int WIDTH, int M, int N, typename T>
__device__ inline void multiply_rows(sums<M, N> &s, const T *rows, int row, const T *others, int n, int D)
{
    s.zero();
#pragma unroll
    for (int k = 0; k < WIDTH / 16; k++) {
        if (!WHOLE && 16 * k >= D) break;
        unsigned a[M][4];
#pragma unroll
        for (int m = 0; m < M; m++) load_a<WIDTH>(a[m], rows, row + 16 * m, k);
#pragma unroll
        for (int i = 0; i < N / 16; i++) {
            if (!WHOLE && 16 * i >= n) break;
            unsigned b[4];
            load_b_of_rows<WIDTH>(b, others, 16 * i, k);
#pragma unroll
            for (int m = 0; m < M; m++) {
                mma_words<T>(s.v[m][2 * i], a[m], b[0], b[1]);
                mma_words<T>(s.v[m][2 * i + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* y += p others, with p rounded. */
template <bool WHOLE, int WIDTH, int M, int N, typename T>
__device__ inline void add_gemms(sums<M, WIDTH> &y, const sums<M, N> &p, const T *others, int n, int D)
{
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
        if (!WHOLE && 16 * k >= n) break;
        unsigned a[M][4];
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int w = 0; w < 4; w++)
                a[m][w] = pack_two<T>(p.v[m][2 * k + w / 2][w % 2 * 2], p.v[m][2 * k + w / 2][w % 2 * 2 + 1]);
#pragma unroll
        for (int i = 0; i < WIDTH / 16; i++) {
            if (!WHOLE && 16 * i >= D) break;
            unsigned b[4];
            load_b_of_columns<WIDTH>(b, others, 16 * k, i);
#pragma unroll
            for (int m = 0; m < M; m++) {
                mma_words<T>(y.v[m][2 * i], a[m], b[0], b[1]);
                mma_words<T>(y.v[m][2 * i + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* Store n rows of y, at stride `row`, times factor(row of this lane). */
template <int WIDTH, int M, typename T, class F>
__device__ inline void store_rows(T *y, int64_t stride, int n, int D, const sums<M, WIDTH> &s, const F &factor)
{
    const int column = lane_of_thread() % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2 * M; r++) {
        if (row_of_lane(r) >= n) continue;
        T *const row = y + row_of_lane(r) * stride;
        const float times = factor(r);
#pragma unroll
        for (int i = 0; i < WIDTH / 8; i++)
            if (8 * i < D)
                *reinterpret_cast<unsigned *>(row + 8 * i + column) = pack_two<T>(
                    __fmul_rn(s.v[r / 2][i][r % 2 * 2], times), __fmul_rn(s.v[r / 2][i][r % 2 * 2 + 1], times));
    }
}

/* The sum of the 4 lanes that share rows, in all of them. */
__device__ inline float sum_of_row(float x)
{
    x = __fadd_rn(x, __shfl_xor_sync(PS_ALL_LANES, x, 1));
    return __fadd_rn(x, __shfl_xor_sync(PS_ALL_LANES, x, 2));
}

__device__ inline float max_of_row(float x)
{
    x = fmaxf(x, __shfl_xor_sync(PS_ALL_LANES, x, 1));
    return fmaxf(x, __shfl_xor_sync(PS_ALL_LANES, x, 2));
}

/* ---- where a warp is ---- */

/* The rows of a warp, and their mask for a tile [other, other + N) of the others. */
template <int M, int N> struct warp_rows {
    interval ends[2]; /* intervals of the first and the last row */

    template <class F>
    __device__ warp_rows(int first, const F &seen_of) : ends{seen_of(first), seen_of(first + 16 * M - 1)}
    {
    }
    /* Interval bounds increase with the row: no row attends to the tile, or all attend to all of it. */
    __device__ bool sees_none(int other) const
    {
        return other >= ends[1].to || other + N <= ends[0].from;
    }
    __device__ bool sees_all(int other) const
    {
        return other >= ends[1].from && other + N <= ends[0].to;
    }
};

/* Tiles of N that cover an interval. */
template <int N> __device__ inline int n_tiles(const interval &i)
{
    return i.to > i.from ? (i.to - i.from + N - 1) / N : 0;
}

/* Of a block: its rows, in M matrices a warp, and the others of a tile. */
template <int ROWS, int OTHERS> struct block_shape {
    static constexpr int rows = ROWS, M = ROWS / 16 / warps, N = OTHERS;
};
template <int W, bool DROPS>
using fwd_shape = block_shape<PS_CUDA_MMA_FWD_ROWS(W, DROPS), PS_CUDA_MMA_FWD_OTHERS(W, DROPS)>;
template <int W, bool DROPS>
using dq_shape = block_shape<PS_CUDA_MMA_DQ_ROWS(W, DROPS), PS_CUDA_MMA_DQ_OTHERS(W, DROPS)>;
template <int W, bool DROPS>
using dkv_shape = block_shape<PS_CUDA_MMA_DKV_ROWS(W, DROPS), PS_CUDA_MMA_DKV_OTHERS(W, DROPS)>;

/* Begin to copy the tile of keys and values from `key` on, before `end`, and their mask. */
template <typename T, int WIDTH, int ROWS, int N, class A>
__device__ inline void fill_keys(const A &a, const attention_mask &view, const place &at,
                                 const shared_tiles<T, WIDTH, ROWS, N> &shared, int key, int end, int turn)
{
    const int64_t row = (at.b * a.T + key) * a.kv_stride + at.h / (a.H / a.KV) * a.D;
    const int32_t *const mask = view.mask != nullptr ? view.mask + key : nullptr;
    fill_tile<WIDTH, N>(shared.other(turn, 0), (const T *)a.k + row, a.kv_stride, end - key, (int)a.D, mask);
    fill_tile<WIDTH, N>(shared.other(turn, 1), (const T *)a.v + row, a.kv_stride, end - key, (int)a.D, mask);
    if (mask != nullptr) fill_numbers<N>(shared.number(turn, 0), mask, end - key);
}

/* ---- forward ---- */

/* Online softmax of a warp's rows over the keys so far: y and sum, of this lane's columns, in units of 2^(max c). */
template <int WIDTH, bool DROPS> struct softmax_rows {
    static constexpr int M = fwd_shape<WIDTH, DROPS>::M, N = fwd_shape<WIDTH, DROPS>::N;
    sums<M, WIDTH> y;
    float max[2 * M], sum[2 * M];

    __device__ void start()
    {
        y.zero();
#pragma unroll
        for (int r = 0; r < 2 * M; r++) max[r] = -PS_INFINITY, sum[r] = 0.0f;
    }
    /* max c; 0 for a row without unmasked keys so far, as 2^(-infinity - 0) is 0. */
    __device__ float base(int r, float c) const
    {
        return max[r] == -PS_INFINITY ? 0.0f : __fmul_rn(max[r], c);
    }
    /* Scores become weights. */
    __device__ void take_up(sums<M, N> &s, float c)
    {
#pragma unroll
        for (int r = 0; r < 2 * M; r++) {
            const int m = r / 2, e = r % 2 * 2;
            const float unit_before = base(r, c);
            const bool is_first = max[r] == -PS_INFINITY;
#pragma unroll
            for (int n = 0; n < N / 8; n++) max[r] = fmaxf(max[r], fmaxf(s.v[m][n][e], s.v[m][n][e + 1]));
            max[r] = max_of_row(max[r]);
            /* From rounded units, so that a tile that does not raise the maximum leaves y and sum unchanged to the
             * bit. */
            const float unit = base(r, c), factor = is_first ? 0.0f : exp2_fast(__fsub_rn(unit_before, unit));
            sum[r] = __fmul_rn(sum[r], factor);
#pragma unroll
            for (int n = 0; n < WIDTH / 8; n++) {
                y.v[m][n][e] = __fmul_rn(y.v[m][n][e], factor);
                y.v[m][n][e + 1] = __fmul_rn(y.v[m][n][e + 1], factor);
            }
#pragma unroll
            for (int n = 0; n < N / 8; n++) {
                s.v[m][n][e] = exp2_fast(fmaf(s.v[m][n][e], c, -unit));
                s.v[m][n][e + 1] = exp2_fast(fmaf(s.v[m][n][e + 1], c, -unit));
                sum[r] = __fadd_rn(__fadd_rn(sum[r], s.v[m][n][e]), s.v[m][n][e + 1]);
            }
        }
    }
};

/* One tile: n keys from `key` on, the tile's array of this turn. */
template <bool WHOLE, typename T, int WIDTH, bool DROPS, class SHARED>
__device__ inline void fwd_step(const ps_attention_fwd_args &a, const attention_mask &view, const SHARED &shared,
                                int first, int key, int n, int turn, softmax_rows<WIDTH, DROPS> &state)
{
    constexpr int M = fwd_shape<WIDTH, DROPS>::M, N = fwd_shape<WIDTH, DROPS>::N;
    const int D = (int)a.D;
    sums<M, N> s;
    multiply_rows<WHOLE, WIDTH>(s, shared.row(0), first_row<M>(), shared.other(turn, 0), n, D);
    if (!WHOLE) {
        const unsigned *const mask = shared.number(turn, 0);
        for_places<M, N>([&](int m, int i, int e) {
            const int query = first + row_of_lane(row_of_place(m, e)), j = column_of_place(i, e);
            if (j >= n || !is_near(view, query, key + j) || (view.mask != nullptr && mask[j] == 0))
                s.v[m][i][e] = -PS_INFINITY;
        });
    }
    state.take_up(s, a.scale * log2_e);
    if (DROPS)
        for_places<M, N>([&](int m, int i, int e) {
            const int query = first + row_of_lane(row_of_place(m, e));
            s.v[m][i][e] = __fmul_rn(s.v[m][i][e], view.dropped(query, key + column_of_place(i, e)));
        });
    add_gemms<WHOLE, WIDTH>(state.y, s, shared.other(turn, 1), n, D);
}

template <typename T, int WIDTH, bool DROPS> __device__ void attention_fwd_mma(const ps_attention_fwd_args &a)
{
    constexpr int M = fwd_shape<WIDTH, DROPS>::M, N = fwd_shape<WIDTH, DROPS>::N, ROWS = fwd_shape<WIDTH, DROPS>::rows;
    PS_SHARED_SIZED(T, memory);
    const shared_tiles<T, WIDTH, ROWS, N> shared(memory, 1);
    const place at = place_of<ROWS>(a.T, a.H, a.causal);
    const attention_mask view = attention_mask_of(a, at.b, at.h);
    const auto seen_of = [&](int i) { return keys_of_query(view, i); };
    const int first = (int)at.first + first_row<M>(), D = (int)a.D, end = (int)at.end;
    const interval keys = seen_by(at, seen_of);
    const warp_rows<M, N> mine(first, seen_of);
    softmax_rows<WIDTH, DROPS> state;
    state.start();
    fill_tile<WIDTH, ROWS>(shared.row(0), (const T *)a.q + (at.b * a.T + at.first) * a.q_stride + at.h * a.D,
                           a.q_stride, end - (int)at.first, D, nullptr);
    for_tiles(
        n_tiles<N>(keys), [&](int i, int turn) { fill_keys(a, view, at, shared, keys.from + i * N, keys.to, turn); },
        [&](int i, int turn) {
            const int key = keys.from + i * N, n = keys.to - key;
            if (first >= end || mine.sees_none(key)) return;
            if (mine.sees_all(key) && view.mask == nullptr && D == WIDTH)
                fwd_step<true, T>(a, view, shared, first, key, n, turn, state);
            else
                fwd_step<false, T>(a, view, shared, first, key, n, turn, state);
        });
    float sum[2 * M];
#pragma unroll
    for (int r = 0; r < 2 * M; r++) {
        const int i = first + row_of_lane(r);
        sum[r] = sum_of_row(state.sum[r]);
        if (i < end && lane_of_thread() % 4 == 0)
            a.lse[(at.b * a.H + at.h) * a.T + i] =
                sum[r] > 0.0f ? fmaf(state.base(r, a.scale * log2_e), ln_2, logf(sum[r])) : 0.0f;
    }
    store_rows((T *)a.y + ((at.b * a.T + first) * a.H + at.h) * a.D, a.H * a.D, end - first, D, state.y,
               [&](int r) { return sum[r] > 0.0f ? __fdiv_rn(1.0f, sum[r]) : 0.0f; });
}

/* ---- backward ---- */

/* For query i and key j with their score and dp = dy . v: P after dropout, and their part of dS without the scale. */
template <bool DROPS>
__device__ inline void become_gradient(const attention_mask &view, int i, int j, float lse, float delta, float &score,
                                       float &dp)
{
    const float p = exp2_fast(fmaf(score, view.scale * log2_e, __fmul_rn(lse, -log2_e)));
    const float dropped = DROPS ? view.dropped(i, j) : 1.0f;
    score = __fmul_rn(p, dropped);
    dp = __fmul_rn(p, fmaf(dropped, dp, -delta));
}

template <bool WHOLE, bool DROPS, typename T, int WIDTH, int M, int N, class SHARED>
__device__ inline void dq_step(const attention_mask &view, const SHARED &shared, int D, int first, int key, int n,
                               int turn, const float (&lse)[2 * M], const float (&delta)[2 * M], sums<M, WIDTH> &dq)
{
    const unsigned *const mask = shared.number(turn, 0);
    sums<M, N> s, ds;
    multiply_rows<WHOLE, WIDTH>(s, shared.row(0), first_row<M>(), shared.other(turn, 0), n, D);
    multiply_rows<WHOLE, WIDTH>(ds, shared.row(1), first_row<M>(), shared.other(turn, 1), n, D);
    for_places<M, N>([&](int m, int k, int e) {
        const int r = row_of_place(m, e), query = first + row_of_lane(r), j = column_of_place(k, e);
        if (WHOLE || (j < n && is_near(view, query, key + j) && (view.mask == nullptr || mask[j] != 0)))
            become_gradient<DROPS>(view, query, key + j, lse[r], delta[r], s.v[m][k][e], ds.v[m][k][e]);
        else
            ds.v[m][k][e] = 0.0f;
    });
    add_gemms<WHOLE, WIDTH>(dq, ds, shared.other(turn, 0), n, D);
}

template <typename T, int WIDTH, bool DROPS> __device__ void attention_dq_mma(const ps_cuda_attention_gradient_args &g)
{
    constexpr int M = dq_shape<WIDTH, DROPS>::M, N = dq_shape<WIDTH, DROPS>::N, ROWS = dq_shape<WIDTH, DROPS>::rows;
    const ps_attention_bwd_args &a = g.a;
    PS_SHARED_SIZED(T, memory);
    const shared_tiles<T, WIDTH, ROWS, N> shared(memory, 2);
    const place at = place_of<ROWS>(a.T, a.H, a.causal);
    const attention_mask view = attention_mask_of(a, at.b, at.h);
    const auto seen_of = [&](int i) { return keys_of_query(view, i); };
    const int first = (int)at.first + first_row<M>(), D = (int)a.D, end = (int)at.end;
    const interval keys = seen_by(at, seen_of);
    const warp_rows<M, N> mine(first, seen_of);
    sums<M, WIDTH> dq;
    float lse[2 * M], delta[2 * M];
    dq.zero();
#pragma unroll
    for (int r = 0; r < 2 * M; r++) {
        const int i = first + row_of_lane(r);
        const int64_t number = (at.b * a.H + at.h) * a.T + i;
        lse[r] = i < end ? a.lse[number] : 0.0f;
        delta[r] = i < end ? g.delta[number] : 0.0f;
    }
    fill_tile<WIDTH, ROWS>(shared.row(0), (const T *)a.q + (at.b * a.T + at.first) * a.q_stride + at.h * a.D,
                           a.q_stride, end - (int)at.first, D, nullptr);
    fill_tile<WIDTH, ROWS>(shared.row(1), (const T *)a.dy + ((at.b * a.T + at.first) * a.H + at.h) * a.D, a.H * a.D,
                           end - (int)at.first, D, nullptr);
    for_tiles(
        n_tiles<N>(keys), [&](int i, int turn) { fill_keys(a, view, at, shared, keys.from + i * N, keys.to, turn); },
        [&](int i, int turn) {
            const int key = keys.from + i * N, n = keys.to - key;
            if (first >= end || mine.sees_none(key)) return;
            if (mine.sees_all(key) && view.mask == nullptr && D == WIDTH)
                dq_step<true, DROPS, T, WIDTH, M, N>(view, shared, D, first, key, n, turn, lse, delta, dq);
            else
                dq_step<false, DROPS, T, WIDTH, M, N>(view, shared, D, first, key, n, turn, lse, delta, dq);
        });
    store_rows((T *)a.dq + (at.b * a.T + first) * a.q_stride + at.h * a.D, a.q_stride, end - first, D, dq,
               [&](int) { return a.scale; });
}

template <bool WHOLE, bool DROPS, typename T, int WIDTH, int M, int N, class SHARED>
__device__ inline void dkv_step(const attention_mask &view, const SHARED &shared, int D, int first, int query, int n,
                                int turn, unsigned hidden, sums<M, WIDTH> &dk, sums<M, WIDTH> &dv)
{
    const unsigned *const lse = shared.number(turn, 0), *const delta = shared.number(turn, 1);
    sums<M, N> p, ds;
    multiply_rows<WHOLE, WIDTH>(p, shared.row(0), first_row<M>(), shared.other(turn, 0), n, D);
    multiply_rows<WHOLE, WIDTH>(ds, shared.row(1), first_row<M>(), shared.other(turn, 1), n, D);
    for_places<M, N>([&](int m, int k, int e) {
        const int r = row_of_place(m, e), key = first + row_of_lane(r), i = column_of_place(k, e);
        if (WHOLE || (i < n && is_near(view, query + i, key) && (hidden >> r & 1) == 0))
            become_gradient<DROPS>(view, query + i, key, __int_as_float((int)lse[i]), __int_as_float((int)delta[i]),
                                   p.v[m][k][e], ds.v[m][k][e]);
        else
            p.v[m][k][e] = ds.v[m][k][e] = 0.0f;
    });
    add_gemms<WHOLE, WIDTH>(dv, p, shared.other(turn, 1), n, D);
    add_gemms<WHOLE, WIDTH>(dk, ds, shared.other(turn, 0), n, D);
}

/* Rows are keys here, of head at.h of keys; the queries of all heads that share it are the others. */
template <typename T, int WIDTH, bool DROPS> __device__ void attention_dkv_mma(const ps_cuda_attention_gradient_args &g)
{
    constexpr int M = dkv_shape<WIDTH, DROPS>::M, N = dkv_shape<WIDTH, DROPS>::N, ROWS = dkv_shape<WIDTH, DROPS>::rows;
    const ps_attention_bwd_args &a = g.a;
    PS_SHARED_SIZED(T, memory);
    const shared_tiles<T, WIDTH, ROWS, N> shared(memory, 2);
    const place at = place_of<ROWS>(a.T, a.KV, false);
    const int64_t group = a.H / a.KV;
    attention_mask view = attention_mask_of(a, at.b, at.h * group);
    const auto seen_of = [&](int j) { return queries_of_key(view, j); };
    const int first = (int)at.first + first_row<M>(), D = (int)a.D, end = (int)at.end;
    const interval queries = seen_by(at, seen_of);
    const warp_rows<M, N> mine(first, seen_of);
    const int32_t *const mask = view.mask != nullptr ? view.mask + at.first : nullptr;
    const int64_t row = (at.b * a.T + at.first) * a.kv_stride + at.h * a.D;
    const int tiles = n_tiles<N>(queries); /* of a head */
    sums<M, WIDTH> dk, dv;
    unsigned hidden = 0; /* bit r: row r of this lane */
    dk.zero();
    dv.zero();
    for (int r = 0; r < 2 * M && view.mask != nullptr; r++)
        if (first + row_of_lane(r) < end && view.mask[first + row_of_lane(r)] == 0) hidden |= 1u << r;
    fill_tile<WIDTH, ROWS>(shared.row(0), (const T *)a.k + row, a.kv_stride, end - (int)at.first, D, mask);
    fill_tile<WIDTH, ROWS>(shared.row(1), (const T *)a.v + row, a.kv_stride, end - (int)at.first, D, mask);
    for_tiles((int)group * tiles,
              [&](int i, int turn) {
                  const int query = queries.from + i % tiles * N, n = queries.to - query;
                  const int64_t h = at.h * group + i / tiles, at_row = at.b * a.T + query,
                                number = (at.b * a.H + h) * a.T;
                  fill_tile<WIDTH, N>(shared.other(turn, 0), (const T *)a.q + at_row * a.q_stride + h * a.D, a.q_stride,
                                      n, D, nullptr);
                  fill_tile<WIDTH, N>(shared.other(turn, 1), (const T *)a.dy + (at_row * a.H + h) * a.D, a.H * a.D, n,
                                      D, nullptr);
                  fill_numbers<N>(shared.number(turn, 0), a.lse + number + query, n);
                  fill_numbers<N>(shared.number(turn, 1), g.delta + number + query, n);
              },
              [&](int i, int turn) {
                  const int query = queries.from + i % tiles * N, n = queries.to - query;
                  if (first >= end || mine.sees_none(query)) return;
                  view.first_word = first_word_of(a, at.b, at.h * group + i / tiles);
                  if (mine.sees_all(query) && view.mask == nullptr && D == WIDTH)
                      dkv_step<true, DROPS, T, WIDTH, M, N>(view, shared, D, first, query, n, turn, hidden, dk, dv);
                  else
                      dkv_step<false, DROPS, T, WIDTH, M, N>(view, shared, D, first, query, n, turn, hidden, dk, dv);
              });
    const int64_t out = (at.b * a.T + first) * a.kv_stride + at.h * a.D;
    store_rows((T *)a.dk + out, a.kv_stride, end - first, D, dk, [&](int) { return a.scale; });
    store_rows((T *)a.dv + out, a.kv_stride, end - first, D, dv, [&](int) { return 1.0f; });
}

} // namespace

#define KERNELS(name, args)                                                                                            \
    PS_KERNEL_AS(name##_64, _bf16, args, name<ps_bf16, 64, false>)                                                     \
    PS_KERNEL_AS(name##_64, _f16, args, name<ps_f16, 64, false>)                                                       \
    PS_KERNEL_AS(name##_128, _bf16, args, name<ps_bf16, 128, false>)                                                   \
    PS_KERNEL_AS(name##_128, _f16, args, name<ps_f16, 128, false>)                                                     \
    PS_KERNEL_AS(name##_drop_64, _bf16, args, name<ps_bf16, 64, true>)                                                 \
    PS_KERNEL_AS(name##_drop_64, _f16, args, name<ps_f16, 64, true>)                                                   \
    PS_KERNEL_AS(name##_drop_128, _bf16, args, name<ps_bf16, 128, true>)                                               \
    PS_KERNEL_AS(name##_drop_128, _f16, args, name<ps_f16, 128, true>)
KERNELS(attention_fwd_mma, ps_attention_fwd_args)
KERNELS(attention_dq_mma, ps_cuda_attention_gradient_args)
KERNELS(attention_dkv_mma, ps_cuda_attention_gradient_args)
