#include "cli_device.h"

#include <stdio.h>

#include "base/bytes.h"

void cli_tell_why_no_gpu(const char *command, const ps_engine *e)
{
    const ps_settings *s = &e->settings;
    if (s->gpu.why_not[0] != '\0' && s->backend_kind != PS_BACKEND_CUDA)
        fprintf(stderr, "pstar %s: the processor computes, as the GPU cannot be used: %s\n", command, s->gpu.why_not);
}

void cli_show_gpu(const ps_engine *e)
{
    char total[PS_BYTES_TEXT_MAX], usable[PS_BYTES_TEXT_MAX];
    const ps_settings *s = &e->settings;
    if (s->backend_kind != PS_BACKEND_CUDA) return;
    const ps_cuda_found *f = &s->gpu.found;
    printf("GPU %d of %d: %s, %s, of which %s can be used", s->gpu.ordinal, f->n_gpus, f->info.name,
           ps_bytes_format(f->info.total_bytes, total), ps_bytes_format(ps_settings_gpu_share_bytes(s), usable));
    if (s->gpu.n_sharers > 1) printf(" by each of %d ranks", s->gpu.n_sharers);
    printf("; attention by %s\n", f->attention);
    if (s->nccl.is_used)
        printf("chunks go from GPU to GPU by NCCL, %s\n",
               s->nccl.adds ? "which adds gradients in an order of its own" : "and are added in the order of ranks");
    else if (s->ranks.n > 1)
        printf("chunks go from rank to rank by messages%s%s\n", s->nccl.why_not[0] != '\0' ? ": " : "",
               s->nccl.why_not);
}

void cli_show_products(const ps_engine *e)
{
    const ps_products *p = &e->products;
    if (p->n_measured > 0) printf("timed the algorithms of %d matrix products in %.2g s\n", p->n_measured, p->seconds);
}

void cli_tell_products(const char *command, const ps_engine *e)
{
    if (e->products.trouble[0] != '\0') fprintf(stderr, "pstar %s: %s\n", command, e->products.trouble);
}

const char *cli_gpu_name(const ps_engine *e)
{
    return e->settings.backend_kind == PS_BACKEND_CUDA ? e->settings.gpu.found.info.name : NULL;
}

const char *cli_backend_name(const ps_engine *e)
{
    const ps_settings *s = &e->settings;
    if (s->backend_kind == PS_BACKEND_CUDA || s->backend_kind == PS_BACKEND_REF)
        return ps_backend_kind_name(s->backend_kind);
    return ps_cpu_isa_name(s->isa);
}
