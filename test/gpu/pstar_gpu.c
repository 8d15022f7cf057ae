/* pstar_gpu.c - the program, linked to this, finds a GPU: of a driver that is not there, with kernels on the emulator
 * (test/cli/test_gpu.sh).
 *
 *   PS_FAKE_GPUS         how many; 1, 0: the driver finds none
 *   PS_FAKE_ALGORITHMS   so many for each matrix product, the last the fastest; 1 */
#include "gpu/stand_in.h"

static ps_status no_nccl(const ps_nccl **out)
{
    *out = NULL;
    return PS_FAIL(PS_ENOSYS, "the fake NCCL is for threads of one process");
}

static int n_algorithms = 1;

static double last_is_fastest(int ordinal, uint64_t what, int algorithm)
{
    (void)ordinal, (void)what;
    return n_algorithms > 1 ? 100 - 10 * algorithm : 0;
}

__attribute__((constructor)) static void begin(void)
{
    const char *text = getenv("PS_FAKE_GPUS");
    const int n = text != NULL ? atoi(text) : 1;
    stand_in_begin(&(fake_options){.seed = 1, .page_bytes = PS_PAGE_BYTES, .n_devices = n > 0 ? n : -1});
    stand_in.parts.nccl = no_nccl;
    const char *algorithms = getenv("PS_FAKE_ALGORITHMS");
    if (algorithms != NULL) n_algorithms = atoi(algorithms);
    fake_cublaslt_offer(n_algorithms, last_is_fastest);
}

__attribute__((destructor)) static void end(void)
{
    if (!stand_in_end()) _Exit(99);
}
