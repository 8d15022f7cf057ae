/* cuda_rope.cu - rotary position embedding, by itself or of heads that are normalised in the same pass: each element is
 * read and written once.
 *
 * A block has neighbouring pairs (t, b), those of one position t together: their angles are computed once, in double, as
 * positions may be large, and lie in shared memory for all heads. */
#include "kernel/cuda/cuda_rows.cuh"

namespace
{

constexpr int rope_pairs = PS_CUDA_THREADS_rope; /* elements of half a head, at a time */

struct rope_shared {
    float cosine[rope_pairs], sine[rope_pairs];
};

/* How to turn: of all three kernels. */
struct rotation {
    const float *inv_freq;
    int64_t B, T, H, D, first;
    float scale;
    bool inverse;
};

/* Of the elements i and i + D / 2 of a head. */
__device__ inline void angle_of(const rotation &a, int64_t t, int64_t i, float *cosine, float *sine)
{
    const double angle = (double)(a.first + t) * (double)a.inv_freq[i], scale = (double)a.scale;
    *cosine = (float)(scale * cos(angle));
    *sine = (float)(scale * (a.inverse ? -sin(angle) : sin(angle)));
}

/* Those of position t from element `first` on, n of them, for all threads of the block. */
__device__ inline void angles(const rotation &a, int64_t t, int64_t first, int n, rope_shared &s)
{
    __syncthreads(); /* the angles before have been used */
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

/* False after the last. Every thread of a block gets the same. Elements of a run are few enough to be counted in 32
 * bits, which divide faster, if those of a token are. */
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

template <int W>
__device__ inline void turn(const float (&x0)[W], const float (&x1)[W], const rope_shared &s, unsigned i,
                            float (&y0)[W], float (&y1)[W])
{
#pragma unroll
    for (int j = 0; j < W; j++) {
        y0[j] = x0[j] * s.cosine[i + j] - x1[j] * s.sine[i + j];
        y1[j] = x1[j] * s.cosine[i + j] + x0[j] * s.sine[i + j];
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

} // namespace

PS_KERNEL_TYPED(rope, ps_rope_args)
