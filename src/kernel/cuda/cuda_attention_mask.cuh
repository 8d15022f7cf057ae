/* cuda_attention_mask.cuh - shared by all attention kernels: the attention mask, dropout, and the rows of a block. */
#ifndef PS_KERNEL_CUDA_CUDA_ATTENTION_MASK_CUH
#define PS_KERNEL_CUDA_CUDA_ATTENTION_MASK_CUH

#include "kernel/cuda/cuda_random.cuh"

/* The mask of pairs, and their dropout factors. */
struct attention_mask {
    const int32_t *mask; /* of this sequence, or NULL */
    int64_t T, window;   /* the window is at most T */
    uint64_t first_word; /* of dropout, in this head */
    ps_rng_key key;
    uint32_t threshold;
    float kept, scale;
    bool causal;

    __device__ bool sees(int64_t i, int64_t j) const
    {
        if (i >= T || j >= T || (causal && j > i) || i - j >= window || j - i >= window) return false;
        return mask == nullptr || mask[j] != 0;
    }
    __device__ float dropped(int64_t i, int64_t j) const
    {
        if (threshold == 0) return kept;
        return random_word(key, first_word + (uint64_t)(i * T + j)) >= threshold ? kept : 0.0f;
    }
    /* All keys to which queries [first, end) attend are in [*from, *to); *from begins a tile. */
    __device__ void keys_of(int64_t first, int64_t end, int64_t *from, int64_t *to) const
    {
        const int64_t low = first - window + 1, high = causal ? end : end - 1 + window;
        *from = low > 0 ? low / PS_CUDA_WARP * PS_CUDA_WARP : 0;
        *to = high < T ? high : T;
    }
    /* The same for queries that attend to any of the keys [first, end). */
    __device__ void queries_of(int64_t first, int64_t end, int64_t *from, int64_t *to) const
    {
        const int64_t low = causal ? first : first - window + 1, high = end - 1 + window;
        *from = low > 0 ? low / PS_CUDA_WARP * PS_CUDA_WARP : 0;
        *to = high < T ? high : T;
    }
};

/* The dropout word of pair 0, 0 of a head. */
template <class A> __device__ inline uint64_t first_word_of(const A &a, int64_t b, int64_t h)
{
    return (uint64_t)((b * a.H + h) * a.T * a.T);
}

template <class A> __device__ inline attention_mask attention_mask_of(const A &a, int64_t b, int64_t h)
{
    attention_mask s;
    s.mask = a.mask != nullptr ? a.mask + b * a.T : nullptr;
    s.T = a.T, s.window = a.window > 0 && a.window < a.T ? a.window : a.T;
    s.first_word = first_word_of(a, b, h), s.key = a.dropout_key;
    s.threshold = dropout_threshold(a.dropout_p), s.kept = 1.0f / (1.0f - a.dropout_p);
    s.scale = a.scale, s.causal = a.causal;
    return s;
}

/* Position of a block of the grid: rows [first, end) of head h of sequence b. */
struct place {
    int b, h;
    int64_t first, end;
};

/* For blocks of `rows` rows each, in ascending or descending order of the rows of a head. */
template <int rows> __device__ inline place place_of(int64_t T, int64_t heads, bool begins_with_last)
{
    const int64_t tiles = (T + rows - 1) / rows, turn = blockIdx.x % tiles, head = blockIdx.x / tiles;
    const int64_t tile = begins_with_last ? tiles - 1 - turn : turn, end = (tile + 1) * rows;
    return {(int)(head / heads), (int)(head % heads), tile * rows, end < T ? end : T};
}

#endif
