/* cuda_device.cuh - shared by kernels: element types, vectors, sums over a warp.
 *
 * The same sources are compiled by nvcc, and for tests by a host C++ compiler, with an emulator's header included
 * before that defines the words of CUDA. They use one-dimensional grids and blocks only (threadIdx.x), whole warps in
 * shuffles, and PS_SHARED for shared memory. */
#ifndef PS_KERNEL_CUDA_CUDA_DEVICE_CUH
#define PS_KERNEL_CUDA_CUDA_DEVICE_CUH

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
/* Shared memory of a block, undefined on entry; and dynamic shared memory, for one array of `type`. */
#define PS_SHARED(type, name) __shared__ type name
#define PS_SHARED_SIZED(type, name)                                                                                    \
    extern __shared__ __align__(256) unsigned char ps_shared_sized[];                                                  \
    type *const name = reinterpret_cast<type *>(ps_shared_sized)
#define PS_INFINITY __int_as_float(0x7f800000)
#endif

#include "kernel/cuda/cuda_kernels.h"

#define PS_ALL_LANES 0xffffffffu

/* Define the kernel ps_gpu_X as a call of the function X; X<type>, X<first type, second type>. */
#define PS_KERNEL(name, args)                                                                                          \
    extern "C" __global__ void __launch_bounds__(PS_CUDA_THREADS_##name, 1)                                            \
        ps_gpu_##name(const __grid_constant__ args a)                                                                  \
    {                                                                                                                  \
        name(a);                                                                                                       \
    }
#define PS_KERNEL_AS(name, suffix, args, ...)                                                                          \
    extern "C" __global__ void __launch_bounds__(PS_CUDA_THREADS_##name, 1)                                            \
        ps_gpu_##name##suffix(const __grid_constant__ args a)                                                          \
    {                                                                                                                  \
        __VA_ARGS__(a);                                                                                                \
    }
#define PS_KERNEL_TYPED(name, args)                                                                                    \
    PS_KERNEL_AS(name, _f32, args, name<float>)                                                                        \
    PS_KERNEL_AS(name, _bf16, args, name<ps_bf16>)                                                                     \
    PS_KERNEL_AS(name, _f16, args, name<ps_f16>)
#define PS_KERNEL_PAIRED(name, args)                                                                                   \
    PS_KERNEL_AS(name, _f32_f32, args, name<float, float>)                                                             \
    PS_KERNEL_AS(name, _f32_bf16, args, name<float, ps_bf16>)                                                          \
    PS_KERNEL_AS(name, _f32_f16, args, name<float, ps_f16>)                                                            \
    PS_KERNEL_AS(name, _bf16_f32, args, name<ps_bf16, float>)                                                          \
    PS_KERNEL_AS(name, _bf16_bf16, args, name<ps_bf16, ps_bf16>)                                                       \
    PS_KERNEL_AS(name, _bf16_f16, args, name<ps_bf16, ps_f16>)                                                         \
    PS_KERNEL_AS(name, _f16_f32, args, name<ps_f16, float>)                                                            \
    PS_KERNEL_AS(name, _f16_bf16, args, name<ps_f16, ps_bf16>)                                                         \
    PS_KERNEL_AS(name, _f16_f16, args, name<ps_f16, ps_f16>)

/* ---- element types: storage of 16 bits, computed with in float ---- */

struct ps_bf16 {
    uint16_t bits;
};
struct ps_f16 {
    uint16_t bits;
};

__device__ inline float to_float(float x)
{
    return x;
}

/* The element nearest to x; the even one of two. */
template <typename T> __device__ inline T from_float(float x);

template <> __device__ inline float from_float<float>(float x)
{
    return x;
}

#ifdef __CUDACC__
__device__ inline float to_float(ps_bf16 x)
{
    return __uint_as_float((unsigned)x.bits << 16);
}

__device__ inline float to_float(ps_f16 x)
{
    return __half2float(__ushort_as_half(x.bits));
}

template <> __device__ inline ps_bf16 from_float<ps_bf16>(float x)
{
    return ps_bf16{__bfloat16_as_ushort(__float2bfloat16_rn(x))};
}

template <> __device__ inline ps_f16 from_float<ps_f16>(float x)
{
    return ps_f16{__half_as_ushort(__float2half_rn(x))};
}
#else
inline float to_float(ps_bf16 x)
{
    return ps_bf16_to_f32(x.bits);
}

inline float to_float(ps_f16 x)
{
    return ps_f16_to_f32(x.bits);
}

template <> inline ps_bf16 from_float<ps_bf16>(float x)
{
    return ps_bf16{ps_bf16_from_f32(x)};
}

template <> inline ps_f16 from_float<ps_f16>(float x)
{
    return ps_f16{ps_f16_from_f32(x)};
}
#endif

/* Element i of an array whose type is known at run time, for small arrays. */
__device__ inline float load_as(ps_dtype t, const void *array, int64_t i)
{
    if (t == PS_DTYPE_F32) return static_cast<const float *>(array)[i];
    return t == PS_DTYPE_BF16 ? to_float(static_cast<const ps_bf16 *>(array)[i])
                              : to_float(static_cast<const ps_f16 *>(array)[i]);
}

/* array[i] (+)= value, rounded once. */
__device__ inline void store_as(ps_dtype t, void *array, int64_t i, float value, bool accumulate)
{
    if (accumulate) value += load_as(t, array, i);
    if (t == PS_DTYPE_F32)
        static_cast<float *>(array)[i] = value;
    else if (t == PS_DTYPE_BF16)
        static_cast<ps_bf16 *>(array)[i] = from_float<ps_bf16>(value);
    else
        static_cast<ps_f16 *>(array)[i] = from_float<ps_f16>(value);
}

/* ---- vectors: W neighbouring elements in one access ---- */

/* Elements in 16 bytes, the widest access. */
template <typename T> struct ps_vector_of {
    static constexpr int width = 16 / sizeof(T);
};

template <typename T, int W> struct alignas(sizeof(T) * W) ps_pack {
    T v[W];
};

/* p is aligned to the vector. */
template <int W, typename T> __device__ inline void load(float (&out)[W], const T *p)
{
    const ps_pack<T, W> x = *reinterpret_cast<const ps_pack<T, W> *>(p);
#pragma unroll
    for (int i = 0; i < W; i++) out[i] = to_float(x.v[i]);
}

template <int W, typename T> __device__ inline void store(T *p, const float (&x)[W])
{
    ps_pack<T, W> y;
#pragma unroll
    for (int i = 0; i < W; i++) y.v[i] = from_float<T>(x[i]);
    *reinterpret_cast<ps_pack<T, W> *>(p) = y;
}

/* p[i] (+)= x[i], rounded once. */
template <int W, typename T> __device__ inline void store(T *p, const float (&x)[W], bool accumulate)
{
    float sum[W];
    if (accumulate) load<W>(sum, p);
#pragma unroll
    for (int i = 0; i < W; i++) sum[i] = accumulate ? sum[i] + x[i] : x[i];
    store<W>(p, sum);
}

/* Calls body.at<W>(i), for the W elements from i, or body.at<1>(i), so that the grid processes each of the n elements
 * once; in vectors where `aligned`, except a tail. */
template <int W, class Body> __device__ inline void for_each(int64_t n, bool aligned, const Body &body)
{
    const int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, step = (int64_t)gridDim.x * blockDim.x;
    const int64_t n_vectors = aligned ? n / W : 0;
    for (int64_t v = first; v < n_vectors; v += step) body.template at<W>(v * W);
    for (int64_t i = n_vectors * W + first; i < n; i += step) body.template at<1>(i);
}

__device__ inline bool is_aligned(const void *p, size_t bytes)
{
    return reinterpret_cast<uintptr_t>(p) % bytes == 0;
}

/* ---- warps ---- */

__device__ inline int lane_of_thread()
{
    return (int)(threadIdx.x % PS_CUDA_WARP);
}

__device__ inline int warp_of_thread()
{
    return (int)(threadIdx.x / PS_CUDA_WARP);
}

/* The number of this warp in the whole grid. */
__device__ inline int64_t warp_of_grid()
{
    return (int64_t)blockIdx.x * (blockDim.x / PS_CUDA_WARP) + warp_of_thread();
}

/* Sum over all lanes, returned in all of them: by a fixed tree, so with the same bits in each. */
__device__ inline float warp_sum(float x)
{
    for (int distance = PS_CUDA_WARP / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(PS_ALL_LANES, x, distance);
    return x;
}

__device__ inline double warp_sum(double x)
{
    for (int distance = PS_CUDA_WARP / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(PS_ALL_LANES, x, distance);
    return x;
}

__device__ inline float warp_max(float x)
{
    for (int distance = PS_CUDA_WARP / 2; distance > 0; distance /= 2)
        x = fmaxf(x, __shfl_xor_sync(PS_ALL_LANES, x, distance));
    return x;
}

#endif
