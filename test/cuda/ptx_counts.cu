/* ptx_counts.cu - small kernels whose accesses and instructions test_cuda_counts.c has as counted by hand.
 * ptx_counts.ptx is what nvcc made of this file, so that the test needs none; test/cli/test_ptx.sh compares them. */
#include "cuda/ptx_args.h"

#define THREADS 64

#define KERNEL(name)                                                                                                   \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) name(const __grid_constant__ ps_ptx_args a)

KERNEL(count_copy)
{
    a.y[threadIdx.x] = a.x[threadIdx.x];
}

KERNEL(count_stride)
{
    a.y[threadIdx.x] = a.x[2 * threadIdx.x];
}

KERNEL(count_offset)
{
    a.y[threadIdx.x] = a.x[threadIdx.x + 1];
}

KERNEL(count_vectors)
{
    reinterpret_cast<float4 *>(a.y)[threadIdx.x] = reinterpret_cast<const float4 *>(a.x)[threadIdx.x];
}

KERNEL(count_halves)
{
    reinterpret_cast<uint16_t *>(a.y)[threadIdx.x] = reinterpret_cast<const uint16_t *>(a.x)[threadIdx.x];
}

/* One address for all lanes. */
KERNEL(count_broadcast)
{
    a.y[threadIdx.x] = a.x[a.n];
}

/* The first n lanes of each warp. */
KERNEL(count_part)
{
    if (threadIdx.x % 32 < a.n) a.y[threadIdx.x] = a.x[threadIdx.x];
}

__device__ float load_if(const float *x, int does)
{
    float v = 0.0f;
    asm volatile("{ .reg .pred %%q; setp.ne.s32 %%q, %2, 0; @%%q ld.global.f32 %0, [%1]; }"
                 : "+f"(v)
                 : "l"(x), "r"(does));
    return v;
}

/* Even lanes in even passes, odd ones in odd passes. */
KERNEL(count_turns)
{
    float sum = 0.0f;
#pragma unroll 1
    for (int64_t k = 0; k < a.n; k++) sum += load_if(a.x + threadIdx.x, (int)(threadIdx.x + k + 1) % 2);
    a.y[threadIdx.x] = sum;
}

/* Before the warp meets, its first half has three passes, then its other half has. */
KERNEL(count_meetings)
{
    const int half = threadIdx.x % 32 / 16;
    float sum = 0.0f;
#pragma unroll 1
    for (int m = 0; m < 2; m++) {
        const int n = half == m ? 3 : 1;
#pragma unroll 1
        for (int k = 0; k < n; k++) sum += load_if(a.x + threadIdx.x, n);
        __syncwarp();
    }
    a.y[threadIdx.x] = sum;
}

/* n passes; lanes of the second half of a warp have one more. */
KERNEL(count_loop)
{
    const int64_t n = a.n + threadIdx.x % 32 / 16;
    float sum = 0.0f;
#pragma unroll 1
    for (int64_t k = 0; k < n; k++) sum += a.x[k * THREADS + threadIdx.x];
    a.y[threadIdx.x] = sum;
}

/* Copies to shared memory: n bytes of the 4 are there, 0 or all. */
KERNEL(count_async)
{
    __shared__ float x[THREADS];
    asm volatile(
        "cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"((unsigned)__cvta_generic_to_shared(&x[threadIdx.x])),
        "l"(a.x + threadIdx.x), "r"((int)a.n)
        : "memory");
    asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    a.y[threadIdx.x] = x[threadIdx.x];
}

/* By addresses that may be anywhere: shared memory and global memory. */
KERNEL(count_generic)
{
    __shared__ float x[THREADS];
    float v, w;
    x[threadIdx.x] = 1.0f;
    __syncthreads();
    asm volatile("ld.f32 %0, [%1];" : "=f"(v) : "l"(&x[threadIdx.x]) : "memory");
    asm volatile("ld.f32 %0, [%1];" : "=f"(w) : "l"(a.x + threadIdx.x) : "memory");
    a.y[threadIdx.x] = v + w;
}

/* Instructions that are not the kernel's own. */
__device__ __noinline__ int square_and(int x, int y)
{
    return x * x + y;
}

/* Some of the lanes call it. */
KERNEL(count_call)
{
    const int x = reinterpret_cast<const int *>(a.x)[threadIdx.x];
    reinterpret_cast<int *>(a.y)[threadIdx.x] = threadIdx.x % 32 < 8 ? square_and(x, (int)a.n) : x;
}

KERNEL(count_atomic)
{
    atomicAdd(reinterpret_cast<unsigned long long *>(a.y), 1ull);
}
