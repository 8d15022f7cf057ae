/* pstar_gpu.c - the program, linked to this, finds a GPU: of a driver that is not there, with kernels on the emulator
 * (test/cli/test_gpu.sh).
 *
 *   PS_FAKE_GPUS   how many; 1, 0: the driver finds none */
#include "gpu/mock_gpu.h"

static ps_status no_nccl(const ps_nccl **out)
{
    *out = NULL;
    return PS_FAIL(PS_ENOSYS, "the fake NCCL is for threads of one process");
}

__attribute__((constructor)) static void begin(void)
{
    const char *text = getenv("PS_FAKE_GPUS");
    const int n = text != NULL ? atoi(text) : 1;
    mock_gpu_begin(&(fake_options){.seed = 1, .page_bytes = PS_PAGE_BYTES, .n_devices = n > 0 ? n : -1});
    mock_gpu.parts.nccl = no_nccl;
}

__attribute__((destructor)) static void end(void)
{
    if (!mock_gpu_end()) _Exit(99);
}
