#include "cli_device.h"

#include <stdio.h>

static ps_device_info info_of(const ps_engine *e)
{
    ps_device_info info = {.struct_size = sizeof info};
    ps_engine_get_device_info(e, &info);
    return info;
}

void cli_tell_why_no_gpu(const char *command, const ps_engine *e)
{
    const ps_device_info d = info_of(e);
    if (d.why_not_gpu[0] != '\0')
        fprintf(stderr, "pstar %s: the processor computes, as the GPU cannot be used: %s\n", command, d.why_not_gpu);
}

void cli_show_gpu(const ps_engine *e)
{
    char total[BYTES_TEXT_MAX], usable[BYTES_TEXT_MAX];
    const ps_device_info d = info_of(e);
    int32_t n_ranks;
    if (d.gpu[0] == '\0') return;
    ps_engine_get_ranks(e, NULL, &n_ranks);
    printf("GPU %d of %d: %s, %s, of which %s can be used", d.gpu_number, d.n_gpus, d.gpu,
           client_bytes(d.gpu_bytes, total), client_bytes(d.usable_bytes, usable));
    if (d.n_sharers > 1) printf(" by each of %d ranks", d.n_sharers);
    printf("; attention by %s\n", d.attention);
    if (d.has_nccl)
        printf("chunks go from GPU to GPU by NCCL, %s\n",
               d.nccl_adds ? "which adds gradients in an order of its own" : "and are added in the order of ranks");
    else if (n_ranks > 1)
        printf("chunks go from rank to rank by messages%s%s\n", d.why_not_nccl[0] != '\0' ? ": " : "", d.why_not_nccl);
}

void cli_show_memory(const ps_engine *e)
{
    const ps_device_info d = info_of(e);
    if (d.memory[0] != '\0') printf("%s\n", d.memory);
}

void cli_show_products(const ps_engine *e)
{
    const ps_device_info d = info_of(e);
    if (d.n_timed_products > 0)
        printf("timed the algorithms of %d matrix products in %.2g s\n", d.n_timed_products, d.timed_seconds);
}

void cli_tell_notices(const char *command, const ps_engine *e)
{
    const ps_device_info d = info_of(e);
    const char *notices = ps_engine_get_notices(e);
    if (d.products_trouble[0] != '\0') fprintf(stderr, "pstar %s: %s\n", command, d.products_trouble);
    if (notices[0] != '\0') fprintf(stderr, "pstar %s: %s\n", command, notices);
}
