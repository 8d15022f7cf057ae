/* fake_gpu.h - kernels for the fake driver: all of kernel/cuda on the emulator, and products of a fake cuBLASLt. */
#ifndef TEST_CUDA_FAKE_GPU_H
#define TEST_CUDA_FAKE_GPU_H

#include <stdlib.h>
#include <string.h>

#include "cuda/emulate.h"
#include "cuda/fake_cublaslt.h"
#include "cuda/fake_driver.h"
#include "device/cuda/backend_cuda.h"

#define FAKE_GEMM_BYTES 512

static inline void fake_gpu_emulate(void *user, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes,
                                    const void *args)
{
    static unsigned seed = 1;
    (void)block;
    emulate_over(fake_find_memory);
    emulate((ps_cuda_kernel)(uintptr_t)user, grid[0], shared_bytes, args, seed++);
}

/* Registers the kernels, but the one named so (NULL: all). */
static inline void fake_gpu_add_kernels(const char *but)
{
    for (uintptr_t i = 0; i < PS_CUDA_KERNEL_COUNT; i++)
        if (but == NULL || strcmp(ps_cuda_kernel_table[i].name, but) != 0)
            fake_kernel_add(ps_cuda_kernel_table[i].name, fake_gpu_emulate, (void *)i,
                            ps_cuda_kernel_table[i].args_bytes);
    fake_cublaslt_begin();
}

/* Its kernels are found by name, whatever the module. */
static const ps_cuda_image fake_gpu_image = {
    .abi = PS_CUDA_IMAGE_ABI, .n_modules = 2, .kernels = "fake", .modules = (const void *const[]){"kernels", "more"}};

/* Of a GPU over fake_driver, whose kernels were added. */
static inline ps_status fake_gpu_gemms(ps_gpu *gpu, ps_cuda_gemms *out)
{
    return ps_cublaslt_open_with(gpu, &fake_cublaslt, FAKE_GEMM_BYTES, out);
}

static inline ps_status fake_gpu_open(const ps_cuda_driver *d, ps_backend **out)
{
    ps_gpu *g;
    ps_backend *host;
    ps_cuda_gemms gemms;
    PS_TRY(ps_gpu_open(d, &(ps_gpu_options){.poisons = true, .stream_commands = fake_depth()}, &g));
    PS_TRY(ps_backend_create_ref(&host));
    PS_TRY(fake_gpu_gemms(g, &gemms));
    return ps_backend_create_cuda(g, &fake_gpu_image, &gemms, NULL, host, out);
}

#endif
