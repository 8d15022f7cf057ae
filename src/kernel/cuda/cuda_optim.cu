/* cuda_optim.cu - optimizers over a piece of a chunk: every array is read and written once.
 *
 * References fix the sequence of roundings (ref_adam.c), so this file uses operations that no compiler fuses, and the
 * bits are those of every other backend. */
#include "kernel/cuda/cuda_device.cuh"

namespace
{

template <typename P, typename G> struct adam_at {
    const ps_adam_args &a;
    float step, shrink, decay;
    __device__ void one(float grad, float &w, float &m, float &v) const
    {
        float g = __fmul_rn(grad, a.grad_scale);
        if (a.decoupled_decay)
            w = __fsub_rn(w, __fmul_rn(decay, w));
        else
            g = __fadd_rn(g, __fmul_rn(a.weight_decay, w));
        m = __fadd_rn(__fmul_rn(a.beta1, m), __fmul_rn(a.one_minus_beta1, g));
        v = __fadd_rn(__fmul_rn(a.beta2, v), __fmul_rn(a.one_minus_beta2, __fmul_rn(g, g)));
        const float root = __fadd_rn(__fmul_rn(__fsqrt_rn(v), shrink), a.eps);
        w = __fsub_rn(w, __fdiv_rn(__fmul_rn(step, m), root));
    }
    template <int W> __device__ void at(int64_t i) const
    {
        float g[W], w[W], m[W], v[W];
        load<W>(g, (const G *)a.grad + i);
        load<W>(w, a.master + i);
        load<W>(m, a.m + i);
        load<W>(v, a.v + i);
#pragma unroll
        for (int j = 0; j < W; j++) one(g[j], w[j], m[j], v[j]);
        store<W>(a.m + i, m);
        store<W>(a.v + i, v);
        store<W>(a.master + i, w);
        store<W>((P *)a.param + i, w);
    }
};

template <typename P, typename G> __device__ void adam(const ps_adam_args &a)
{
    const bool aligned = is_aligned(a.param, 4 * sizeof(P)) && is_aligned(a.grad, 4 * sizeof(G)) &&
                         is_aligned(a.master, 16) && is_aligned(a.m, 16) && is_aligned(a.v, 16);
    const float step = __fdiv_rn(a.lr, a.bias1), shrink = __fdiv_rn(1.0f, __fsqrt_rn(a.bias2));
    const float decay = __fmul_rn(a.lr, a.weight_decay);
    for_each<4>(a.n, aligned, adam_at<P, G>{a, step, shrink, decay});
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
        if (a.buffer != nullptr) load<W>(buffer, a.buffer + i);
#pragma unroll
        for (int j = 0; j < W; j++) one(g[j], w[j], buffer[j]);
        if (a.buffer != nullptr) store<W>(a.buffer + i, buffer);
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

} // namespace

PS_KERNEL_PAIRED(adam, ps_adam_args)
PS_KERNEL_PAIRED(sgd, ps_sgd_args)
