/* fake_gpu.h - kernels for the fake driver: all of kernel/cuda on the emulator, and matrix products as plain loops. */
#ifndef TEST_CUDA_FAKE_GPU_H
#define TEST_CUDA_FAKE_GPU_H

#include <stdlib.h>
#include <string.h>

#include "cuda/backend_cuda.h"
#include "cuda/emulate.h"
#include "cuda/fake_driver.h"

#define FAKE_PRODUCT_BYTES 512

static inline void fake_gpu_emulate(void *user, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes,
                                    const void *args)
{
    static unsigned seed = 1;
    (void)block;
    emulate((ps_cuda_kernel)(uintptr_t)user, grid[0], shared_bytes, args, seed++);
}

static inline double fake_gpu_element(const ps_cuda_matrix *m, int64_t row, int64_t col)
{
    return (double)ps_dtype_load(m->dtype, m->data, m->is_transposed ? col * m->stride + row : row * m->stride + col);
}

static inline void fake_gpu_multiply(void *user, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes,
                                     const void *args)
{
    const ps_cuda_product *p = args;
    (void)user, (void)grid, (void)block, (void)shared_bytes;
    memset(p->workspace, 0xC3, FAKE_PRODUCT_BYTES); /* it is the library's */
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            const int64_t at = i * p->y_stride + j;
            double sum = p->accumulate ? (double)ps_dtype_load(p->y_dtype, p->y, at) : 0.0;
            if (p->bias != NULL) sum += (double)ps_dtype_load(p->a.dtype, p->bias, j);
            for (int64_t l = 0; l < p->k; l++) sum += fake_gpu_element(&p->a, i, l) * fake_gpu_element(&p->b, l, j);
            ps_dtype_store(p->y_dtype, p->y, at, (float)sum);
        }
}

/* A library of products gives kernels of its own to the stream. */
typedef struct fake_gpu_library {
    const ps_cuda_driver *driver;
    ps_cu_module module;
    ps_cu_function function;
} fake_gpu_library;

static inline ps_status fake_gpu_product(void *self, ps_cu_stream stream, const ps_cuda_product *p)
{
    fake_gpu_library *l = self;
    ps_cuda_product copy = *p;
    const ps_cu_result r = l->driver->launch(l->function, 1, 1, 1, 32, 1, 1, 0, stream, (void *[]){&copy}, NULL);
    return r == PS_CU_SUCCESS ? PS_OK : PS_FAIL(PS_EDEVICE, "a product: result %d", r);
}

static inline void fake_gpu_library_close(void *self)
{
    fake_gpu_library *l = self;
    (void)l->driver->module_unload(l->module);
    free(l);
}

/* Registers the kernels, but the one named so (NULL: all). */
static inline void fake_gpu_add_kernels(const char *but)
{
    static const struct {
        const char *name;
        size_t args_bytes;
    } all[PS_CUDA_KERNEL_COUNT] = {
#define ONE(name, args, threads) {"ps_gpu_" #name, sizeof(args)},
#define THREE(name, args)                                                                                              \
    {"ps_gpu_" #name "_f32", sizeof(args)}, {"ps_gpu_" #name "_bf16", sizeof(args)},                                   \
        {"ps_gpu_" #name "_f16", sizeof(args)},
#define TYPED(name, args, threads) THREE(name, args)
#define PAIRED(name, args, threads) THREE(name##_f32, args) THREE(name##_bf16, args) THREE(name##_f16, args)
        PS_CUDA_KERNELS(ONE) PS_CUDA_TYPED(TYPED) PS_CUDA_PAIRED(PAIRED)
#undef PAIRED
#undef TYPED
#undef THREE
#undef ONE
    };
    for (uintptr_t i = 0; i < PS_CUDA_KERNEL_COUNT; i++)
        if (but == NULL || strcmp(all[i].name, but) != 0)
            fake_kernel_add(all[i].name, fake_gpu_emulate, (void *)i, all[i].args_bytes);
    fake_kernel_add("product", fake_gpu_multiply, NULL, sizeof(ps_cuda_product));
}

/* Over the driver of fake_driver, whose kernels were added. */
static inline ps_status fake_gpu_open(const ps_cuda_driver *d, ps_backend **out)
{
    ps_gpu *g;
    ps_backend *host;
    fake_gpu_library *l = calloc(1, sizeof *l);
    PS_TRY(ps_gpu_open(d, &(ps_gpu_options){.poisons = true}, &g));
    PS_TRY(ps_backend_create_ref(&host));
    l->driver = d;
    if (d->module_load(&l->module, "products") != PS_CU_SUCCESS ||
        d->function_get(&l->function, l->module, "product") != PS_CU_SUCCESS)
        abort();
    return ps_backend_create_cuda(g, "kernels",
                                  &(ps_cuda_products){.self = l,
                                                      .workspace_bytes = FAKE_PRODUCT_BYTES,
                                                      .multiply = fake_gpu_product,
                                                      .destroy = fake_gpu_library_close},
                                  host, out);
}

#endif
