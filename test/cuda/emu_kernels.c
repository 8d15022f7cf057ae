/* emu_kernels.c - the table of kernels that a program of the tests has: with EMU_TRANSLATED those of PTX (tool/ptx_to_c.py),
 * else those of the sources, by a compiler of the host. */
#include "cuda/emulate.h"

#ifdef EMU_TRANSLATED
#define XX(symbol, args, n_threads) extern const emu_kernel symbol##_kernel;
#else
#define XX(symbol, args, n_threads)                                                                                    \
    void symbol(const args);                                                                                           \
    static void call_##symbol(const void *p)                                                                           \
    {                                                                                                                  \
        symbol(*(const args *)p);                                                                                      \
    }                                                                                                                  \
    static const emu_kernel symbol##_kernel = {                                                                        \
        .name = #symbol, .threads = n_threads, .args_bytes = sizeof(args), .call = call_##symbol};
#endif
#include "kernel/cuda/cuda_kernels.def"
#undef XX

static const emu_kernel *const kernels[PS_CUDA_KERNEL_COUNT] = {
#define XX(symbol, args, n_threads) &symbol##_kernel,
#include "kernel/cuda/cuda_kernels.def"
#undef XX
};

void emulate(ps_cuda_kernel kernel, unsigned blocks, unsigned shared_bytes, const void *args, unsigned seed)
{
    emulate_kernel(kernels[kernel], blocks, shared_bytes, args, seed);
}
