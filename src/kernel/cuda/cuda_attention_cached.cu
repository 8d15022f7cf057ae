/* cuda_attention_cached.cu - attention with a KV cache: keys are divided among blocks, whose results are combined
 * afterwards (Dao et al., "Flash-Decoding", 2023). The tokens of all heads that share a key are rows of one block. */
#include "kernel/cuda/cuda_tile.cuh"

namespace
{

/* One block per token and key head. */
template <typename T> __device__ void attention_append(const ps_attention_cached_args &a)
{
    const int64_t kv = blockIdx.x % a.KV, t = blockIdx.x / a.KV;
    const int64_t from = t * a.kv_stride + kv * a.D, to = (kv * a.n_positions + a.first + t) * a.D;
    for (int64_t d = threadIdx.x; d < a.D; d += blockDim.x) {
        ((T *)a.k_cache)[to + d] = ((const T *)a.k)[from + d];
        ((T *)a.v_cache)[to + d] = ((const T *)a.v)[from + d];
    }
}

/* Row r of a block is one of the tokens, for one of the heads that share keys. */
template <typename T> struct query_rows {
    const ps_attention_cached_args &a;
    int64_t first, kv;
    __device__ int64_t token(int64_t r) const
    {
        return (first + r) / (a.H / a.KV);
    }
    __device__ int64_t head(int64_t r) const
    {
        return kv * (a.H / a.KV) + (first + r) % (a.H / a.KV);
    }
    __device__ const T *operator()(int r) const
    {
        return (const T *)a.q + token(r) * a.q_stride + head(r) * a.D;
    }
};

/* Keys [from, to) of the part to which tokens [t, t_end) attend; from begins a tile of the part. */
__device__ inline void keys_of_part(const ps_cuda_attention_part_args &p, int64_t part, int64_t t, int64_t t_end,
                                    int64_t window, int64_t *from, int64_t *to)
{
    const int64_t begin = part * p.keys_a_part, end = begin + p.keys_a_part, last = p.a.first + t_end;
    const int64_t low = p.a.first + t - window + 1;
    *from = low > begin ? begin + (low - begin) / PS_CUDA_WARP * PS_CUDA_WARP : begin;
    *to = end < last ? end : last;
}

template <typename T, int WIDTH> __device__ void attention_part(const ps_cuda_attention_part_args &p)
{
    constexpr int R = tile_of<WIDTH>::rows_a_warp, SLOTS = tile_of<WIDTH>::slots, ROWS = tile_of<WIDTH>::rows;
    const ps_attention_cached_args &a = p.a;
    PS_SHARED_SIZED(float, memory);
    const tile_shared s = tile_arrays<WIDTH>(memory, a.D, 1);
    const int64_t n_rows = a.T * (a.H / a.KV), tiles = (n_rows + ROWS - 1) / ROWS, head = blockIdx.x / tiles;
    const query_rows<T> rows = {a, blockIdx.x % tiles * ROWS, head % a.KV};
    const int64_t part = head / a.KV, n = n_rows - rows.first < ROWS ? n_rows - rows.first : ROWS;
    const int64_t window = a.window > 0 && a.window < a.n_positions ? a.window : a.n_positions;
    const T *const k = (const T *)a.k_cache + rows.kv * a.n_positions * a.D;
    const T *const v = (const T *)a.v_cache + rows.kv * a.n_positions * a.D;
    const int64_t lane = lane_of_thread(), first = warp_of_thread() * R;
    int64_t from, to;
    keys_of_part(p, part, rows.token(0), rows.token(n - 1) + 1, window, &from, &to);
    load_rows<T, WIDTH>(s.rows[0], n, a.D, rows);
    running_softmax<SLOTS> softmax[R];
    float y[R][SLOTS] = {};
#pragma unroll
    for (int r = 0; r < R; r++) softmax[r].start();
    for (int64_t j = from; j < to; j += PS_CUDA_WARP) {
        __syncthreads();
        load_others<T>(s.others[0], to - j, a.D, strided_rows<T>{k + j * a.D, a.D});
        load_others<T>(s.others[1], to - j, a.D, strided_rows<T>{v + j * a.D, a.D});
        __syncthreads();
        float weight[R];
        dots<R>(weight, s.rows[0], s.others[0], a.D);
#pragma unroll
        for (int r = 0; r < R; r++) {
            const int64_t key = j + lane, query = a.first + rows.token(first + r);
            const bool is_seen = first + r < n && key < to && key <= query && query - key < window;
            weight[r] = softmax[r].add(is_seen ? weight[r] * a.scale : -PS_INFINITY, y[r]);
        }
        add_weighted<R, SLOTS>(y, weight, s.weights[0], s.others[1], a.D);
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
        if (first + r >= n) continue;
        const int64_t row = (part * a.T + rows.token(first + r)) * a.H + rows.head(first + r);
        store_row<float, SLOTS>(p.y + row * a.D, y[r], 1.0f, a.D);
        if (lane == 0) p.max[row] = softmax[r].max, p.sum[row] = softmax[r].sum;
    }
}

/* One warp per token and head combines the parts in order. Each token attends to itself, so some part has a sum. */
template <typename T> __device__ void attention_join(const ps_cuda_attention_part_args &p)
{
    const ps_attention_cached_args &a = p.a;
    const int64_t row = warp_of_grid(), rows = a.T * a.H;
    if (row >= rows) return;
    float max = -PS_INFINITY, sum = 0.0f;
    for (int64_t i = 0; i < p.n_parts; i++) max = fmaxf(max, p.max[i * rows + row]);
    for (int64_t i = 0; i < p.n_parts; i++) sum += p.sum[i * rows + row] * expf(p.max[i * rows + row] - max);
    for (int64_t d = lane_of_thread(); d < a.D; d += PS_CUDA_WARP) {
        float y = 0.0f;
        for (int64_t i = 0; i < p.n_parts; i++)
            y += p.y[(i * rows + row) * a.D + d] * expf(p.max[i * rows + row] - max);
        ((T *)a.y)[row * a.D + d] = from_float<T>(y / sum);
    }
}

} // namespace

PS_KERNEL_TYPED(attention_append, ps_attention_cached_args)
PS_KERNEL_AS(attention_part_64, _f32, ps_cuda_attention_part_args, attention_part<float, 64>)
PS_KERNEL_AS(attention_part_64, _bf16, ps_cuda_attention_part_args, attention_part<ps_bf16, 64>)
PS_KERNEL_AS(attention_part_64, _f16, ps_cuda_attention_part_args, attention_part<ps_f16, 64>)
PS_KERNEL_AS(attention_part_128, _f32, ps_cuda_attention_part_args, attention_part<float, 128>)
PS_KERNEL_AS(attention_part_128, _bf16, ps_cuda_attention_part_args, attention_part<ps_bf16, 128>)
PS_KERNEL_AS(attention_part_128, _f16, ps_cuda_attention_part_args, attention_part<ps_f16, 128>)
PS_KERNEL_AS(attention_part_256, _f32, ps_cuda_attention_part_args, attention_part<float, 256>)
PS_KERNEL_AS(attention_part_256, _bf16, ps_cuda_attention_part_args, attention_part<ps_bf16, 256>)
PS_KERNEL_AS(attention_part_256, _f16, ps_cuda_attention_part_args, attention_part<ps_f16, 256>)
PS_KERNEL_TYPED(attention_join, ps_cuda_attention_part_args)
