/* cuda_rope.cu - rotary position embedding, alone or fused with the norm of heads: each element is read and written
 * once.
 *
 * A block has consecutive pairs (t, b), grouped by position t, whose angles are computed once, in double, as positions
 * may be large, and kept in shared memory for all heads. */
#include "kernel/cuda/cuda_rows.cuh"

namespace
{

constexpr int rope_pairs = PS_CUDA_THREADS_rope; /* elements of half a head, at a time */

struct rope_shared {
    float cosine[rope_pairs], sine[rope_pairs];
};

/* Arguments of the rotation, shared by all three kernels. */
struct rotation {
    const float *inv_freq;
    int64_t B, T, H, D, first;
    float scale;
    bool inverse;
};

/* Rotate the elements i and i + D / 2 of a head. */
__device__ inline void angle_of(const rotation &a, int64_t t, int64_t i, float *cosine, float *sine)
{
    const double angle = (double)(a.first + t) * (double)a.inv_freq[i], scale = (double)a.scale;
    *cosine = (float)(scale * cos(angle));
    *sine = (float)(scale * (a.inverse ? -sin(angle) : sin(angle)));
}

/* Compute the n angles of position t from element `first` on, for all threads of the block. */
__device__ inline void angles(const rotation &a, int64_t t, int64_t first, int n, rope_shared &s)
{
    __syncthreads(); /* the previous angles have been used */
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) angle_of(a, t, first + i, &s.cosine[i], &s.sine[i]);
    __syncthreads();
}

/* The pairs (t, b) of this block that have the same t, one such run after the other. */
struct run_of_position {
    int64_t t, b, n_b, end;
};

__device__ inline run_of_position first_run(const rotation &a)
{
    const int64_t n = a.B * a.T, each = (n + gridDim.x - 1) / gridDim.x, first = blockIdx.x * each;
    const int64_t end = first + each < n ? first + each : n;
    return run_of_position{first / a.B, first % a.B, 0, end};
}

/* False after the last. Every thread of a block gets the same. If the elements of a token fit 32 bits, so do those of a
 * run, and 32-bit division is faster. */
__device__ inline bool next_run(const rotation &a, run_of_position &r)
{
    const int64_t now = r.t * a.B + r.b + r.n_b;
    if (now >= r.end) return false;
    r.t = now / a.B, r.b = now % a.B;
    r.n_b = a.B - r.b < r.end - now ? a.B - r.b : r.end - now;
    const int64_t most = ((int64_t)1 << 31) / (a.H * a.D + 1) + 1;
    r.n_b = r.n_b < most ? r.n_b : most;
    return true;
}

/* Without FMA, so that the result does not depend on the surrounding code. */
template <int W>
__device__ inline void turn(const float (&x0)[W], const float (&x1)[W], const rope_shared &s, unsigned i,
                            float (&y0)[W], float (&y1)[W])
{
#pragma unroll
    for (int j = 0; j < W; j++) {
        y0[j] = __fsub_rn(__fmul_rn(x0[j], s.cosine[i + j]), __fmul_rn(x1[j], s.sine[i + j]));
        y1[j] = __fadd_rn(__fmul_rn(x1[j], s.cosine[i + j]), __fmul_rn(x0[j], s.sine[i + j]));
    }
}

/* The angles [first, first + n) of all heads of a run. */
template <typename T, int W>
__device__ inline void turn_run(const ps_rope_args &a, const run_of_position &r, int64_t first, int n,
                                const rope_shared &s)
{
    const int64_t half = a.D / 2;
    const unsigned n_vectors = (unsigned)(n / W), H = (unsigned)a.H, end = (unsigned)r.n_b * H * n_vectors;
    for (unsigned j = threadIdx.x; j < end; j += blockDim.x) {
        const unsigned i = j % n_vectors * W, row = j / n_vectors;
        const int64_t at = (((r.b + row / H) * a.T + r.t) * a.H + row % H) * a.D + first + i;
        float x0[W], x1[W], y0[W], y1[W];
        load<W>(x0, (const T *)a.x + at);
        load<W>(x1, (const T *)a.x + at + half);
        turn<W>(x0, x1, s, i, y0, y1);
        store<W>((T *)a.y + at, y0, a.accumulate);
        store<W>((T *)a.y + at + half, y1, a.accumulate);
    }
}

template <typename T> __device__ void rope(const ps_rope_args &a)
{
    constexpr int W = ps_vector_of<T>::width;
    PS_SHARED(rope_shared, s);
    const rotation how = {a.inv_freq, a.B, a.T, a.H, a.D, a.first, a.scale, a.inverse};
    const int64_t half = a.D / 2;
    for (run_of_position r = first_run(how); next_run(how, r);)
        for (int64_t first = 0; first < half; first += rope_pairs) {
            const int n = (int)(half - first < rope_pairs ? half - first : rope_pairs);
            angles(how, r.t, first, n, s);
            if (half % W == 0)
                turn_run<T, W>(a, r, first, n, s);
            else
                turn_run<T, 1>(a, r, first, n, s);
        }
}

/* ---- with the norm of each head: a team of D / 2 / W threads per head, each with a vector of either half ---- */

/* A row (b, t, h) that the team has in this turn, from its lane's vector of the first half on. */
struct head_of_team {
    bool is_row;
    int64_t row, at;
};

__device__ inline head_of_team head_of(const rotation &a, const run_of_position &r, unsigned j, int lane_column)
{
    const unsigned H = (unsigned)a.H;
    const int64_t row = ((r.b + j / H) * a.T + r.t) * a.H + j % H;
    return head_of_team{j < (unsigned)r.n_b * H, row, row * a.D + lane_column};
}

/* Both vectors, or zeros. */
template <typename T, int W>
__device__ inline void read_halves(float (&x0)[W], float (&x1)[W], const void *x, const head_of_team &head,
                                   int64_t half)
{
#pragma unroll
    for (int j = 0; j < W; j++) x0[j] = x1[j] = 0.0f;
    if (!head.is_row) return;
    load<W>(x0, (const T *)x + head.at);
    load<W>(x1, (const T *)x + head.at + half);
}

template <typename T, int W> __device__ inline void round_to(float (&x)[W])
{
#pragma unroll
    for (int j = 0; j < W; j++) x[j] = to_float(from_float<T>(x[j]));
}

/* Sums of a row are those of rmsnorm_fwd: there a team of twice as many threads adds what two of them have first. */
template <typename T> __device__ void rmsnorm_rope_fwd(const ps_rmsnorm_rope_fwd_args &a)
{
    constexpr int W = ps_vector_of<T>::width;
    PS_SHARED(rope_shared, s);
    const rotation how = {a.inv_freq, a.B, a.T, a.H, a.D, a.first, a.scale, false};
    const int64_t half = a.D / 2;
    const int lanes = (int)half / W, column = (int)threadIdx.x % lanes * W;
    const unsigned team = threadIdx.x / (unsigned)lanes, n_teams = blockDim.x / (unsigned)lanes;
    float w0[W], w1[W];
    load<W>(w0, (const T *)a.w + column);
    load<W>(w1, (const T *)a.w + half + column);
    for (run_of_position r = first_run(how); next_run(how, r);) {
        angles(how, r.t, 0, (int)half, s);
        for (unsigned j0 = 0; j0 < (unsigned)r.n_b * (unsigned)a.H; j0 += n_teams) {
            const head_of_team head = head_of(how, r, j0 + team, column);
            float x0[W], x1[W], y0[W], y1[W], sum[1] = {}, other = 0.0f;
            read_halves<T, W>(x0, x1, a.x, head, half);
#pragma unroll
            for (int j = 0; j < W; j++) sum[0] += x0[j] * x0[j], other += x1[j] * x1[j];
            sum[0] += other;
            sum_within_warp(sum, lanes);
            const float rstd = 1.0f / sqrtf(sum[0] / (float)a.D + a.eps);
            /* as rmsnorm_fwd, which adds a bias of 0 */
#pragma unroll
            for (int j = 0; j < W; j++) {
                x0[j] = x0[j] * rstd * w0[j] + 0.0f;
                x1[j] = x1[j] * rstd * w1[j] + 0.0f;
            }
            round_to<T, W>(x0);
            round_to<T, W>(x1);
            turn<W>(x0, x1, s, (unsigned)column, y0, y1);
            if (!head.is_row) continue;
            store<W>((T *)a.y + head.at, y0);
            store<W>((T *)a.y + head.at + half, y1);
            if (column == 0) a.rstd[head.row] = rstd;
        }
    }
}

constexpr int rope_head_max = 2 * rope_pairs;

struct head_sums {
    float dw[rope_head_max];
};

template <typename T> __device__ void rmsnorm_rope_bwd(const ps_cuda_rmsnorm_rope_bwd_args &args)
{
    constexpr int W = ps_vector_of<T>::width;
    PS_SHARED(rope_shared, s);
    PS_SHARED(head_sums, all);
    const ps_rmsnorm_rope_bwd_args &a = args.a;
    const rotation how = {a.inv_freq, a.B, a.T, a.H, a.D, a.first, a.scale, true};
    const int64_t half = a.D / 2;
    const int lanes = (int)half / W, column = (int)threadIdx.x % lanes * W;
    const unsigned team = threadIdx.x / (unsigned)lanes, n_teams = blockDim.x / (unsigned)lanes;
    float w0[W], w1[W], dw0[W] = {}, dw1[W] = {};
    load<W>(w0, (const T *)a.w + column);
    load<W>(w1, (const T *)a.w + half + column);
    for (run_of_position r = first_run(how); next_run(how, r);) {
        angles(how, r.t, 0, (int)half, s);
        for (unsigned j0 = 0; j0 < (unsigned)r.n_b * (unsigned)a.H; j0 += n_teams) {
            const head_of_team head = head_of(how, r, j0 + team, column);
            float x0[W], x1[W], dy0[W], dy1[W], g0[W], g1[W], sum[1] = {}, other = 0.0f;
            read_halves<T, W>(x0, x1, a.x, head, half);
            read_halves<T, W>(dy0, dy1, a.dy, head, half);
            const float rstd = head.is_row ? a.rstd[head.row] : 0.0f;
            turn<W>(dy0, dy1, s, (unsigned)column, g0, g1);
            round_to<T, W>(g0);
            round_to<T, W>(g1);
            /* from here on as norm_bwd_by_team, with the rounded gradient for dy */
#pragma unroll
            for (int j = 0; j < W; j++) {
                const float n0 = x0[j] * rstd, n1 = x1[j] * rstd;
                sum[0] += g0[j] * w0[j] * n0, other += g1[j] * w1[j] * n1;
                dw0[j] += g0[j] * n0, dw1[j] += g1[j] * n1;
            }
            sum[0] += other;
            sum_within_warp(sum, lanes);
            const float avg_gn = sum[0] / (float)a.D;
#pragma unroll
            for (int j = 0; j < W; j++) {
                g0[j] = rstd * (g0[j] * w0[j] - x0[j] * rstd * avg_gn);
                g1[j] = rstd * (g1[j] * w1[j] - x1[j] * rstd * avg_gn);
            }
            if (!head.is_row) continue;
            store<W>((T *)a.dx + head.at, g0);
            store<W>((T *)a.dx + head.at + half, g1);
        }
    }
    for (unsigned t = 0; t < n_teams; t++) {
        if (team == t)
#pragma unroll
            for (int j = 0; j < W; j++) {
                all.dw[column + j] = (t > 0 ? all.dw[column + j] : 0.0f) + dw0[j];
                all.dw[half + column + j] = (t > 0 ? all.dw[half + column + j] : 0.0f) + dw1[j];
            }
        __syncthreads();
    }
    for (int64_t c = threadIdx.x; c < a.D; c += blockDim.x) args.partial[blockIdx.x * a.D + c] = all.dw[c];
}

} // namespace

PS_KERNEL_TYPED(rope, ps_rope_args)
PS_KERNEL_TYPED(rmsnorm_rope_fwd, ps_rmsnorm_rope_fwd_args)
PS_KERNEL_TYPED(rmsnorm_rope_bwd, ps_cuda_rmsnorm_rope_bwd_args)
