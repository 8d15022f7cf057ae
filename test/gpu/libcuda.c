/* libcuda.c - the fake driver as a library of its name, libcuda.so.1, with kernels on the emulator; also under the name of
 * cuBLASLt's, and under those of cuDNN's and NCCL's, which lack their functions, so that this machine's are not used. With
 * its folder in LD_LIBRARY_PATH programs and Python find a GPU as on hardware, by the library's own code.
 *
 *   PS_FAKE_GPUS   how many; 1, 0: the driver finds none
 *
 * What a program leaves at its end is not looked at: the library that uses it may end later. */
#include "cuda/fake_gpu.h"

__attribute__((constructor)) static void begin(void)
{
    const char *text = getenv("PS_FAKE_GPUS");
    const int n = text != NULL ? atoi(text) : 1;
    (void)fake_driver(&(fake_options){.seed = 1, .page_bytes = PS_PAGE_BYTES, .n_devices = n > 0 ? n : -1});
    fake_gpu_add_kernels(NULL);
}
