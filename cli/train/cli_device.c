#include "cli_device.h"

#include <stdio.h>

static ps_device_info info_of(const ps_engine *e)
{
    ps_device_info info = {.struct_size = sizeof info};
    ps_engine_get_device_info(e, &info);
    return info;
}

void cli_report_why_no_gpu(const char *command, const ps_engine *e)
{
    const ps_device_info d = info_of(e);
    if (d.why_not_gpu[0] != '\0')
        fprintf(stderr, "pstar %s: the processor computes, as the GPU cannot be used: %s\n", command, d.why_not_gpu);
}

void cli_show_gpu(const ps_engine *e)
{
    char total[PS_BYTES_TEXT_MAX], usable[PS_BYTES_TEXT_MAX];
    const ps_device_info d = info_of(e);
    int32_t n_ranks;
    if (d.gpu[0] == '\0') return;
    ps_engine_get_ranks(e, NULL, &n_ranks);
    printf("GPU %d of %d: %s, %s, of which %s can be used", d.gpu_number, d.n_gpus, d.gpu,
           ps_bytes_format(d.gpu_bytes, total), ps_bytes_format(d.usable_bytes, usable));
    if (d.n_sharers > 1) printf(" by each of %d ranks", d.n_sharers);
    printf("; attention by %s\n", d.attention);
    if (d.has_nccl)
        puts("chunks go from GPU to GPU by NCCL, and are added in the order of ranks");
    else if (n_ranks > 1)
        printf("chunks go from rank to rank by messages%s%s\n", d.why_not_nccl[0] != '\0' ? ": " : "", d.why_not_nccl);
}

void cli_show_memory(const ps_engine *e)
{
    const ps_device_info d = info_of(e);
    if (d.memory[0] != '\0') printf("%s\n", d.memory);
}

void cli_report_notices(const char *command, const ps_engine *e)
{
    const char *notices = ps_engine_get_notices(e);
    if (notices[0] != '\0') fprintf(stderr, "pstar %s: %s\n", command, notices);
}
