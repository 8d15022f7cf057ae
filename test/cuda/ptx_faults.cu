/* ptx_faults.cu - small kernels with a fault each, and the same without: test_cuda_ptx.c sees that the emulator finds them.
 * ptx_faults.ptx is what nvcc made of this file, so that the test needs none; test/cli/test_ptx.sh holds it to this file. */
#include "cuda/ptx_args.h"

#define THREADS 128
#define TILES 4

#define KERNEL(name, call)                                                                                             \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) name(const __grid_constant__ ps_ptx_args a)               \
    {                                                                                                                  \
        call;                                                                                                          \
    }

/* y[i] = x[i + 1], the last one x[0]. */
template <bool IS_GOOD> __device__ void rotate(const ps_ptx_args &a)
{
    __shared__ float x[THREADS];
    x[threadIdx.x] = a.x[threadIdx.x];
    if (IS_GOOD) __syncthreads();
    a.y[threadIdx.x] = x[(threadIdx.x + 1) % THREADS];
}
KERNEL(fault_barrier, rotate<false>(a))
KERNEL(sound_barrier, rotate<true>(a))

/* The same of lanes of a warp. */
template <bool IS_GOOD> __device__ void rotate_warp(const ps_ptx_args &a)
{
    __shared__ float x[THREADS];
    const int to = (threadIdx.x & ~31) + (threadIdx.x + 1) % 32;
    x[threadIdx.x] = a.x[threadIdx.x];
    if (IS_GOOD) __syncwarp();
    a.y[threadIdx.x] = x[to];
}
KERNEL(fault_warp_barrier, rotate_warp<false>(a))
KERNEL(sound_warp_barrier, rotate_warp<true>(a))

__device__ void copy_begin(float *to, const float *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"((unsigned)__cvta_generic_to_shared(to)),
                 "l"(from), "r"(4)
                 : "memory");
}

__device__ void copies_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int N> __device__ void copies_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* y[i] = the sum over tiles of x[tile][i ^ 64], which another warp copies: the next tile goes into the other one of two
 * buffers. All have read that before the barrier; in the fault its copy begins before. */
template <bool IS_GOOD> __device__ void sum_tiles(const ps_ptx_args &a)
{
    __shared__ float buffer[2][THREADS];
    float sum = 0.0f;
    copy_begin(&buffer[0][threadIdx.x], a.x + threadIdx.x);
    copies_commit();
    for (int tile = 0; tile < TILES; tile++) {
        if (IS_GOOD) {
            copies_wait<0>();
            __syncthreads();
        }
        if (tile + 1 < TILES)
            copy_begin(&buffer[(tile + 1) % 2][threadIdx.x], a.x + (tile + 1) * THREADS + threadIdx.x);
        copies_commit();
        if (!IS_GOOD) {
            copies_wait<1>();
            __syncthreads();
        }
        sum += buffer[tile % 2][threadIdx.x ^ 64];
    }
    copies_wait<0>();
    a.y[threadIdx.x] = sum;
}
KERNEL(fault_overwrite, sum_tiles<false>(a))
KERNEL(sound_overwrite, sum_tiles<true>(a))

/* y[i] = x[i + offset] in vectors of 4. */
__device__ void move_vectors(const ps_ptx_args &a, int offset)
{
    if (4 * threadIdx.x >= THREADS) return;
    const float4 v = *reinterpret_cast<const float4 *>(a.x + offset + 4 * threadIdx.x);
    *reinterpret_cast<float4 *>(a.y + 4 * threadIdx.x) = v;
}
KERNEL(fault_alignment, move_vectors(a, 2))
KERNEL(sound_alignment, move_vectors(a, 4))

/* y[i] = x[i] + x[i + 1] where there is such a one. */
__device__ void add_next(const ps_ptx_args &a, int64_t end)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= a.n) return;
    a.y[i] = a.x[i] + (i < end ? a.x[i + 1] : 0.0f);
}
KERNEL(fault_bound, add_next(a, a.n))
KERNEL(sound_bound, add_next(a, a.n - 1))

/* y[i] = x[i] + x[i ^ 1], for n of the lanes. */
__device__ void add_pairs(const ps_ptx_args &a, unsigned mask)
{
    const int lane = threadIdx.x % 32;
    float x = a.x[threadIdx.x];
    if (lane < a.n) x += __shfl_xor_sync(mask, x, 1);
    a.y[threadIdx.x] = x;
}
KERNEL(fault_mask, add_pairs(a, 0x0000ffffu))
KERNEL(sound_mask, add_pairs(a, 0xffffffffu))
