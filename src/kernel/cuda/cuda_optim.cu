/* cuda_optim.cu - optimizers over a piece of a chunk: every array is read and written once.
 *
 * References fix the sequence of roundings (ref_adam.c), so this file uses operations that no compiler fuses, and the
 * bits are those of every other backend. */
#include "base/compact.h"
#include "base/split.h"
#include "base/stochastic.h"
#include "kernel/cuda/cuda_random.cuh"

namespace
{

template <typename P, typename G> struct adam_at {
    const ps_adam_args &a;
    float step, shrink, decay;
    __device__ explicit adam_at(const ps_adam_args &args)
        : a(args), step(__fdiv_rn(args.lr, args.bias1)), shrink(__fdiv_rn(1.0f, __fsqrt_rn(args.bias2))),
          decay(__fmul_rn(args.lr, args.weight_decay))
    {
    }
    /* Returns the square root of the new v. */
    __device__ float one(float grad, float &w, float &m, float &v) const
    {
        float g = __fmul_rn(grad, a.grad_scale);
        if (a.decoupled_decay)
            w = __fsub_rn(w, __fmul_rn(decay, w));
        else
            g = __fadd_rn(g, __fmul_rn(a.weight_decay, w));
        m = __fadd_rn(__fmul_rn(a.beta1, m), __fmul_rn(a.one_minus_beta1, g));
        v = __fadd_rn(__fmul_rn(a.beta2, v), __fmul_rn(a.one_minus_beta2, __fmul_rn(g, g)));
        const float root = __fsqrt_rn(v), divisor = __fadd_rn(__fmul_rn(root, shrink), a.eps);
        w = __fsub_rn(w, __fdiv_rn(__fmul_rn(step, m), divisor));
        return root;
    }
    template <int W> __device__ void at(int64_t i) const
    {
        float g[W], w[W], m[W], v[W];
        load<W>(g, (const G *)a.grad + i);
        load<W>(w, a.master + i);
        load<W>(m, (const float *)a.m + i);
        load<W>(v, (const float *)a.v + i);
#pragma unroll
        for (int j = 0; j < W; j++) (void)one(g[j], w[j], m[j], v[j]);
        store<W>((float *)a.m + i, m);
        store<W>((float *)a.v + i, v);
        store<W>(a.master + i, w);
        store<W>((P *)a.param + i, w);
    }
};

template <typename P, typename G> __device__ void adam(const ps_adam_args &a)
{
    const bool aligned = is_aligned(a.param, 4 * sizeof(P)) && is_aligned(a.grad, 4 * sizeof(G)) &&
                         is_aligned(a.master, 16) && is_aligned(a.m, 16) && is_aligned(a.v, 16);
    for_each<4>(a.n, aligned, adam_at<P, G>(a));
}

/* ---- compact: the operations of base/compact.h, a warp for each group, a lane for each element ---- */

__device__ inline int code_of(float x)
{
    return __float_as_int(__fadd_rn(x, PS_FORMAT_ROUND)) - 0x4b400000;
}

__device__ inline float signed_of(float scale, int c)
{
    return __fmul_rn(scale, __fdiv_rn((float)c, (float)(254 - (c < 0 ? -c : c))));
}

__device__ inline float root_of(float scale, int c)
{
    const float u = __fmul_rn(scale, __fmul_rn((float)c, PS_FORMAT_STEP_ROOT));
    return __fmul_rn(u, u);
}

/* The scale of a group with these magnitudes, as bits with NaN above infinity; *has_codes: its codes are not zeros. */
__device__ inline float scale_of(float x, float least, bool *has_codes)
{
    int most = __float_as_int(x) & 0x7fffffff;
    for (int distance = PS_CUDA_WARP / 2; distance > 0; distance /= 2) {
        const int other = __shfl_xor_sync(PS_ALL_LANES, most, distance);
        if (other > most) most = other;
    }
    const float scale = __int_as_float(most);
    const bool ends = !(scale < PS_FORMAT_END), is_zero = scale < least;
    *has_codes = !ends && !is_zero;
    return ends ? __int_as_float((int)PS_FORMAT_NAN_BITS) : is_zero ? 0.0f : scale;
}

/* ---- split: the operations of base/split.h ---- */

__device__ inline float split_join(unsigned p, unsigned low)
{
    return __int_as_float((int)((p << 16) + low - PS_SPLIT_CARRY(low)));
}

__device__ inline uint16_t split_low(float x)
{
    const unsigned u = (unsigned)__float_as_int(x), low = u & 0xffffu;
    if (x != x) return 0;
    return (uint16_t)(low == PS_SPLIT_HALF ? low + (u >> 16 & 1u) : low);
}

/* is_split of a type other than bf16 is not launched. */
template <typename P, typename G> __device__ void adam_compact(const ps_adam_args &a)
{
    const bool is_split = sizeof(P) == sizeof(uint16_t) && a.low != nullptr;
    const adam_at<P, G> update(a);
    const int lane = lane_of_thread();
    const int64_t n_groups = (a.n + PS_FORMAT_GROUP - 1) / PS_FORMAT_GROUP;
    const int64_t step = (int64_t)gridDim.x * (blockDim.x / PS_CUDA_WARP);
    for (int64_t group = warp_of_grid(); group < n_groups; group += step) {
        ps_compact_group *const gm = (ps_compact_group *)a.m + group, *const gv = (ps_compact_group *)a.v + group;
        const int64_t i = group * PS_FORMAT_GROUP + lane;
        float m = signed_of(gm->scale, (int)(int8_t)gm->codes[lane]), v = root_of(gv->scale, (int)gv->codes[lane]);
        float root = 0.0f;
        if (i < a.n) {
            float w = is_split ? split_join(((const uint16_t *)a.param)[i], a.low[i]) : a.master[i];
            root = update.one(to_float(((const G *)a.grad)[i]), w, m, v);
            if (is_split)
                a.low[i] = split_low(w);
            else
                a.master[i] = w;
            ((P *)a.param)[i] = from_float<P>(w);
        } else {
            m = 0.0f;
        }
        bool has_m, has_v;
        const float scale_m = scale_of(m, PS_FORMAT_LEAST_SIGNED, &has_m);
        const float scale_v = scale_of(root, PS_FORMAT_LEAST_ROOT, &has_v);
        int code_m = 0, code_v = 0;
        if (has_m) code_m = code_of(__fmul_rn(254.0f, __fdiv_rn(m, __fadd_rn(scale_m, fabsf(m)))));
        if (has_v) code_v = code_of(__fmul_rn(root, __fdiv_rn(255.0f, scale_v)));
        if (has_v && code_v == 0 && root > 0.0f) code_v = 1;
        gm->codes[lane] = (uint8_t)code_m;
        gv->codes[lane] = (uint8_t)code_v;
        if (lane == 0) gm->scale = scale_m, gv->scale = scale_v;
    }
}

/* ---- stochastic: the operations of base/stochastic.h, a block of random words for four elements ---- */

/* A bf16 value, which storing does not change. */
__device__ inline float stochastic_of(float x, unsigned word)
{
    return x != x ? x : __int_as_float((int)(((unsigned)__float_as_int(x) + word) & 0xffff0000u));
}

template <typename G> struct adam_stochastic_at {
    const ps_adam_args &a;
    adam_at<ps_bf16, G> update;
    template <int W> __device__ void at(int64_t i) const
    {
        static_assert(W == 1 || W == 4, "one element, or those of a block of words");
        float g[W], w[W], m[W], v[W];
        uint32_t words[4];
        load<W>(g, (const G *)a.grad + i);
        load<W>(w, (const ps_bf16 *)a.param + i);
        load<W>(m, (const ps_bf16 *)a.m + i);
        load<W>(v, (const ps_bf16 *)a.v + i);
        if (W == 4)
            random_block(a.key, (uint64_t)(a.first + i) / 4, words);
        else
            words[0] = random_word(a.key, (uint64_t)(a.first + i));
#pragma unroll
        for (int j = 0; j < W; j++) {
            (void)update.one(g[j], w[j], m[j], v[j]);
            w[j] = stochastic_of(w[j], PS_STOCHASTIC_PARAM(words[j]));
            m[j] = stochastic_of(m[j], PS_STOCHASTIC_MOMENTUM(words[j]));
            v[j] = stochastic_of(v[j], PS_STOCHASTIC_VARIANCE(words[j]));
        }
        store<W>((ps_bf16 *)a.m + i, m);
        store<W>((ps_bf16 *)a.v + i, v);
        store<W>((ps_bf16 *)a.param + i, w);
    }
};

template <typename G> __device__ void adam_stochastic(const ps_adam_args &a)
{
    const bool aligned = is_aligned(a.param, 8) && is_aligned(a.grad, 4 * sizeof(G)) && is_aligned(a.m, 8) &&
                         is_aligned(a.v, 8) && a.first % 4 == 0;
    for_each<4>(a.n, aligned, adam_stochastic_at<G>{a, adam_at<ps_bf16, G>(a)});
}

/* ---- optimizers with one state, which is compact: a warp for each group ---- */

/* at.one(grad, w, m) updates an element. */
template <typename P, typename G, class At>
__device__ void update_compact(int64_t n, void *param, const void *grad, float *master, void *state, const At &at)
{
    const int lane = lane_of_thread();
    const int64_t n_groups = (n + PS_FORMAT_GROUP - 1) / PS_FORMAT_GROUP;
    const int64_t step = (int64_t)gridDim.x * (blockDim.x / PS_CUDA_WARP);
    for (int64_t group = warp_of_grid(); group < n_groups; group += step) {
        ps_compact_group *const g = (ps_compact_group *)state + group;
        const int64_t i = group * PS_FORMAT_GROUP + lane;
        float m = signed_of(g->scale, (int)(int8_t)g->codes[lane]);
        if (i < n) {
            float w = master[i];
            at.one(to_float(((const G *)grad)[i]), w, m);
            master[i] = w;
            ((P *)param)[i] = from_float<P>(w);
        } else {
            m = 0.0f;
        }
        bool has_codes;
        const float scale = scale_of(m, PS_FORMAT_LEAST_SIGNED, &has_codes);
        int code = 0;
        if (has_codes) code = code_of(__fmul_rn(254.0f, __fdiv_rn(m, __fadd_rn(scale, fabsf(m)))));
        g->codes[lane] = (uint8_t)code;
        if (lane == 0) g->scale = scale;
    }
}

template <typename P, typename G> struct sgd_at {
    const ps_sgd_args &a;
    __device__ void one(float grad, float &w, float &buffer) const
    {
        const float g = __fadd_rn(__fmul_rn(grad, a.grad_scale), __fmul_rn(a.weight_decay, w));
        float d = g;
        if (a.buffer != nullptr) {
            buffer = __fadd_rn(__fmul_rn(a.momentum, buffer), __fmul_rn(a.one_minus_dampening, g));
            d = a.nesterov ? __fadd_rn(g, __fmul_rn(a.momentum, buffer)) : buffer;
        }
        w = __fsub_rn(w, __fmul_rn(a.lr, d));
    }
    template <int W> __device__ void at(int64_t i) const
    {
        float g[W], w[W], buffer[W] = {};
        load<W>(g, (const G *)a.grad + i);
        load<W>(w, a.master + i);
        if (a.buffer != nullptr) load<W>(buffer, (const float *)a.buffer + i);
#pragma unroll
        for (int j = 0; j < W; j++) one(g[j], w[j], buffer[j]);
        if (a.buffer != nullptr) store<W>((float *)a.buffer + i, buffer);
        store<W>(a.master + i, w);
        store<W>((P *)a.param + i, w);
    }
};

template <typename P, typename G> __device__ void sgd(const ps_sgd_args &a)
{
    const bool aligned = is_aligned(a.param, 4 * sizeof(P)) && is_aligned(a.grad, 4 * sizeof(G)) &&
                         is_aligned(a.master, 16) && is_aligned(a.buffer, 16);
    for_each<4>(a.n, aligned, sgd_at<P, G>{a});
}

template <typename P, typename G> __device__ void sgd_compact(const ps_sgd_args &a)
{
    update_compact<P, G>(a.n, a.param, a.grad, a.master, a.buffer, sgd_at<P, G>{a});
}

template <typename P, typename G> struct lion_at {
    const ps_lion_args &a;
    float decay;
    __device__ void one(float grad, float &w, float &m) const
    {
        const float g = __fmul_rn(grad, a.grad_scale);
        const float u = __fadd_rn(__fmul_rn(a.beta1, m), __fmul_rn(a.one_minus_beta1, g));
        w = __fsub_rn(w, __fmul_rn(decay, w));
        w = __fsub_rn(w, u > 0 ? a.lr : u < 0 ? -a.lr : 0.0f);
        m = __fadd_rn(__fmul_rn(a.beta2, m), __fmul_rn(a.one_minus_beta2, g));
    }
    template <int W> __device__ void at(int64_t i) const
    {
        float g[W], w[W], m[W];
        load<W>(g, (const G *)a.grad + i);
        load<W>(w, a.master + i);
        load<W>(m, (const float *)a.m + i);
#pragma unroll
        for (int j = 0; j < W; j++) one(g[j], w[j], m[j]);
        store<W>((float *)a.m + i, m);
        store<W>(a.master + i, w);
        store<W>((P *)a.param + i, w);
    }
};

template <typename P, typename G> __device__ void lion(const ps_lion_args &a)
{
    const bool aligned = is_aligned(a.param, 4 * sizeof(P)) && is_aligned(a.grad, 4 * sizeof(G)) &&
                         is_aligned(a.master, 16) && is_aligned(a.m, 16);
    for_each<4>(a.n, aligned, lion_at<P, G>{a, __fmul_rn(a.lr, a.weight_decay)});
}

template <typename P, typename G> __device__ void lion_compact(const ps_lion_args &a)
{
    update_compact<P, G>(a.n, a.param, a.grad, a.master, a.m, lion_at<P, G>{a, __fmul_rn(a.lr, a.weight_decay)});
}

} // namespace

PS_KERNEL_PAIRED(adam, ps_adam_args)
PS_KERNEL_PAIRED(adam_compact, ps_adam_args)
PS_KERNEL_TYPED(adam_stochastic, ps_adam_args)
PS_KERNEL_PAIRED(sgd, ps_sgd_args)
PS_KERNEL_PAIRED(sgd_compact, ps_sgd_args)
PS_KERNEL_PAIRED(lion, ps_lion_args)
PS_KERNEL_PAIRED(lion_compact, ps_lion_args)
