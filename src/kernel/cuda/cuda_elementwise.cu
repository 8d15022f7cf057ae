/* cuda_elementwise.cu - elementwise operators: one pass, with the widest memory accesses. */
#include "kernel/cuda/cuda_random.cuh"

namespace
{

/* For aligned arrays of one element type. */
template <typename T, class Body> __device__ inline void for_each_of(int64_t n, const Body &body)
{
    for_each<ps_vector_of<T>::width>(n, true, body);
}

template <typename T> struct add_at {
    const ps_add_args &a;
    template <int W> __device__ void at(int64_t i) const
    {
        float x[W], y[W];
        load<W>(x, (const T *)a.a + i);
        load<W>(y, (const T *)a.b + i);
#pragma unroll
        for (int j = 0; j < W; j++) y[j] += x[j];
        store<W>((T *)a.y + i, y);
    }
};

template <typename T> __device__ void add(const ps_add_args &a)
{
    for_each_of<T>(a.n, add_at<T>{a});
}

/* ---- y = f(x), dx (+)= dy f'(x or y) ---- */

template <typename T, class F> struct map_at {
    T *y;
    const T *x;
    F f;
    template <int W> __device__ void at(int64_t i) const
    {
        float v[W];
        load<W>(v, x + i);
#pragma unroll
        for (int j = 0; j < W; j++) v[j] = f(v[j]);
        store<W>(y + i, v);
    }
};

template <typename T, class F> __device__ inline void map(void *y, const void *x, int64_t n, F f)
{
    for_each_of<T>(n, map_at<T, F>{(T *)y, (const T *)x, f});
}

/* f(dy, v): v is x or y, whichever backward reads. */
template <typename T, class F> struct gradient_at {
    T *dx;
    const T *dy, *v;
    bool accumulate;
    F f;
    template <int W> __device__ void at(int64_t i) const
    {
        float d[W], u[W];
        load<W>(d, dy + i);
        load<W>(u, v + i);
#pragma unroll
        for (int j = 0; j < W; j++) d[j] = f(d[j], u[j]);
        store<W>(dx + i, d, accumulate);
    }
};

template <typename T, class F>
__device__ inline void gradient(void *dx, const void *dy, const void *v, int64_t n, bool accumulate, F f)
{
    for_each_of<T>(n, gradient_at<T, F>{(T *)dx, (const T *)dy, (const T *)v, accumulate, f});
}

constexpr float sqrt_2_over_pi = 0.79788456080286535588f, sqrt_half = 0.70710678118654752440f, cubic = 0.044715f;

struct gelu {
    ps_gelu_kind kind;
    __device__ float operator()(float x) const
    {
        const float t = kind == PS_GELU_TANH ? tanhf(sqrt_2_over_pi * (x + cubic * x * x * x)) : erff(x * sqrt_half);
        return 0.5f * x * (1.0f + t);
    }
};

/* Beyond 16 the slope is 0 or 1, and powers of what bf16 can hold would overflow. */
struct gelu_gradient {
    ps_gelu_kind kind;
    __device__ float operator()(float dy, float x) const
    {
        const float u = fminf(fmaxf(x, -16.0f), 16.0f), square = u * u;
        float slope;
        if (kind == PS_GELU_TANH) {
            const float t = tanhf(sqrt_2_over_pi * (u + cubic * square * u));
            slope = 0.5f * (1.0f + t) + 0.5f * u * (1.0f - t * t) * sqrt_2_over_pi * (1.0f + 3.0f * cubic * square);
        } else {
            slope = 0.5f * (1.0f + erff(u * sqrt_half)) + 0.5f * u * sqrt_2_over_pi * expf(-0.5f * square);
        }
        return dy * (x == x ? slope : x);
    }
};

template <typename T> __device__ void gelu_fwd(const ps_gelu_fwd_args &a)
{
    map<T>(a.y, a.x, a.n, gelu{a.kind});
}

template <typename T> __device__ void gelu_bwd(const ps_gelu_bwd_args &a)
{
    gradient<T>(a.dx, a.dy, a.x, a.n, a.accumulate_dx, gelu_gradient{a.kind});
}

struct hyperbolic_tangent {
    __device__ float operator()(float x) const
    {
        return tanhf(x);
    }
};

struct hyperbolic_tangent_gradient {
    __device__ float operator()(float dy, float y) const
    {
        return dy * (1.0f - y * y);
    }
};

template <typename T> __device__ void tanh_fwd(const ps_tanh_fwd_args &a)
{
    map<T>(a.y, a.x, a.n, hyperbolic_tangent{});
}

template <typename T> __device__ void tanh_bwd(const ps_tanh_bwd_args &a)
{
    gradient<T>(a.dx, a.dy, a.y, a.n, a.accumulate_dx, hyperbolic_tangent_gradient{});
}

struct positive {
    __device__ float operator()(float x) const
    {
        return x <= 0.0f ? 0.0f : x;
    }
};

struct positive_gradient {
    __device__ float operator()(float dy, float y) const
    {
        return y <= 0.0f ? 0.0f : dy;
    }
};

template <typename T> __device__ void relu_fwd(const ps_relu_fwd_args &a)
{
    map<T>(a.y, a.x, a.n, positive{});
}

template <typename T> __device__ void relu_bwd(const ps_relu_bwd_args &a)
{
    gradient<T>(a.dx, a.dy, a.y, a.n, a.accumulate_dx, positive_gradient{});
}

/* ---- SwiGLU ---- */

__device__ inline float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

template <typename T> struct swiglu_at {
    const ps_swiglu_fwd_args &a;
    template <int W> __device__ void at(int64_t i) const
    {
        float gate[W], up[W];
        load<W>(gate, (const T *)a.gate + i);
        load<W>(up, (const T *)a.up + i);
#pragma unroll
        for (int j = 0; j < W; j++) up[j] *= gate[j] * sigmoid(gate[j]);
        store<W>((T *)a.y + i, up);
    }
};

template <typename T> __device__ void swiglu_fwd(const ps_swiglu_fwd_args &a)
{
    for_each_of<T>(a.n, swiglu_at<T>{a});
}

template <typename T> struct swiglu_gradient_at {
    const ps_swiglu_bwd_args &a;
    template <int W> __device__ void at(int64_t i) const
    {
        float dy[W], gate[W], up[W], dgate[W], dup[W];
        load<W>(dy, (const T *)a.dy + i);
        load<W>(gate, (const T *)a.gate + i);
        load<W>(up, (const T *)a.up + i);
#pragma unroll
        for (int j = 0; j < W; j++) {
            const float s = sigmoid(gate[j]);
            dgate[j] = dy[j] * up[j] * s * (1.0f + gate[j] * (1.0f - s));
            dup[j] = dy[j] * gate[j] * s;
        }
        store<W>((T *)a.dgate + i, dgate, a.accumulate_dgate);
        store<W>((T *)a.dup + i, dup, a.accumulate_dup);
    }
};

template <typename T> __device__ void swiglu_bwd(const ps_swiglu_bwd_args &a)
{
    for_each_of<T>(a.n, swiglu_gradient_at<T>{a});
}

/* ---- dropout: a block of random words has four elements ---- */

template <typename T> struct dropout_at {
    const ps_dropout_args &a;
    uint32_t threshold;
    float scale;
    template <int W> __device__ void at(int64_t i) const
    {
        float x[W];
        load<W>(x, (const T *)a.x + i);
        uint32_t words[W < 4 ? 1 : W / 4][4] = {};
#pragma unroll
        for (int k = 0; k < W / 4; k++) random_block(a.key, (uint64_t)i / 4 + (uint64_t)k, words[k]);
#pragma unroll
        for (int j = 0; j < W; j++) {
            const uint32_t word = W >= 4 ? words[j / 4][j % 4] : random_word(a.key, (uint64_t)i);
            x[j] = word >= threshold ? __fmul_rn(x[j], scale) : 0.0f;
        }
        if (a.has_residual) {
            float residual[W];
            load<W>(residual, (const T *)a.residual + i);
#pragma unroll
            for (int j = 0; j < W; j++) x[j] = residual[j] + to_float(from_float<T>(x[j]));
        }
        store<W>((T *)a.y + i, x, a.accumulate);
    }
};

template <typename T> __device__ void dropout(const ps_dropout_args &a)
{
    for_each_of<T>(a.n,
                   dropout_at<T>{a, dropout_threshold(a.p), (float)((double)a.scale * (1.0 / (1.0 - (double)a.p)))});
}

/* ---- casts ---- */

template <typename D, typename S> struct cast_at {
    const ps_cast_args &a;
    template <int W> __device__ void at(int64_t i) const
    {
        float x[W];
        load<W>(x, (const S *)a.src + i);
        store<W>((D *)a.dst + i, x);
    }
};

template <typename D, typename S> __device__ void cast(const ps_cast_args &a)
{
    const bool aligned = is_aligned(a.dst, 4 * sizeof(D)) && is_aligned(a.src, 4 * sizeof(S));
    for_each<4>(a.n, aligned, cast_at<D, S>{a});
}

/* ---- quantized weights ---- */

struct nf4_shared {
    float values[16];
};

/* N bytes from p on, four a word, the first one lowest; N is 1, 2, 4 or 8, and p aligned to it. */
template <int N> __device__ inline void load_bytes(uint32_t (&words)[N > 4 ? 2 : 1], const unsigned char *p)
{
    if constexpr (N == 1)
        words[0] = *p;
    else if constexpr (N == 2)
        words[0] = *(const uint16_t *)p;
    else
#pragma unroll
        for (int k = 0; k < N / 4; k++) words[k] = ((const uint32_t *)p)[k];
}

template <typename T> struct dequantize_at {
    const ps_dequantize_args &a;
    const float *values;
    template <int W> __device__ void at(int64_t i) const
    {
        const int64_t in = i % PS_QUANT_RECORD;
        const bool is_nf4 = a.quant == PS_QUANT_NF4;
        const unsigned char *const record =
            (const unsigned char *)a.x +
            i / PS_QUANT_RECORD * (int64_t)(is_nf4 ? sizeof(ps_nf4_record) : sizeof(ps_int8_record));
        const float scale = to_float(((const ps_bf16 *)record)[in / PS_QUANT_GROUP]);
        const unsigned char *const codes = record + PS_QUANT_SCALES * sizeof(ps_bf16);
        float y[W];
        if (is_nf4) {
            uint32_t pairs[1];
            load_bytes<W == 1 ? 1 : W / 2>(pairs, codes + in / 2);
#pragma unroll
            for (int j = 0; j < W; j++) {
                const bool is_low = W > 1 ? j % 2 == 1 : in % 2 == 1;
                y[j] = __fmul_rn(scale, values[pairs[0] >> (8 * (j / 2) + (is_low ? 0 : 4)) & 15]);
            }
        } else {
            uint32_t bytes[W > 4 ? 2 : 1];
            load_bytes<W>(bytes, codes + in);
#pragma unroll
            for (int j = 0; j < W; j++) y[j] = __fmul_rn(scale, (float)(int8_t)(bytes[j / 4] >> (j % 4 * 8)));
        }
        store<W>((T *)a.y + i, y);
    }
};

template <typename T> __device__ void dequantize(const ps_dequantize_args &a)
{
    PS_SHARED(nf4_shared, s);
    if (threadIdx.x == 0) {
        const float values[16] = {PS_NF4_VALUES};
#pragma unroll
        for (int c = 0; c < 16; c++) s.values[c] = values[c];
    }
    __syncthreads();
    for_each_of<T>(a.n, dequantize_at<T>{a, s.values});
}

struct zero_at {
    unsigned char *dst;
    template <int W> __device__ void at(int64_t i) const
    {
        ps_pack<unsigned char, W> none = {};
        *reinterpret_cast<ps_pack<unsigned char, W> *>(dst + i) = none;
    }
};

__device__ inline void zero(const ps_cuda_zero_args &a)
{
    for_each<16>(a.bytes, true, zero_at{(unsigned char *)a.dst});
}

} // namespace

PS_KERNEL_TYPED(add, ps_add_args)
PS_KERNEL_TYPED(gelu_fwd, ps_gelu_fwd_args)
PS_KERNEL_TYPED(gelu_bwd, ps_gelu_bwd_args)
PS_KERNEL_TYPED(tanh_fwd, ps_tanh_fwd_args)
PS_KERNEL_TYPED(tanh_bwd, ps_tanh_bwd_args)
PS_KERNEL_TYPED(relu_fwd, ps_relu_fwd_args)
PS_KERNEL_TYPED(relu_bwd, ps_relu_bwd_args)
PS_KERNEL_TYPED(swiglu_fwd, ps_swiglu_fwd_args)
PS_KERNEL_TYPED(swiglu_bwd, ps_swiglu_bwd_args)
PS_KERNEL_TYPED(dropout, ps_dropout_args)
PS_KERNEL_TYPED(dequantize, ps_dequantize_args)
PS_KERNEL_PAIRED(cast, ps_cast_args)
PS_KERNEL(zero, ps_cuda_zero_args)
