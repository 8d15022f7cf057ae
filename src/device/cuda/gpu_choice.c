#include "device/cuda/gpu_choice.h"

#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "chunk/comm/agree.h"
#include "device/cuda/cudnn_attention.h"

/* ---- choosing a GPU ---- */

/* Equal for ranks that see the same GPUs of one machine: a launcher may make a different GPU visible to each rank. */
static uint64_t number_of_view(const char *host)
{
    const char *visible = ps_cuda_visible();
    if (visible == NULL) visible = "all";
    return XXH3_64bits_withSeed(visible, strlen(visible), XXH3_64bits(host, strlen(host)));
}

static ps_status count_ranks_before(ps_comm *comm, uint64_t *views, ps_gpu_local_rank *out)
{
    const int32_t n = ps_comm_size(comm), rank = ps_comm_rank(comm);
    const uint64_t own = number_of_view(ps_comm_host(comm, rank));
    PS_TRY(ps_comm_all_gather(comm, &own, sizeof own, views));
    *out = (ps_gpu_local_rank){0};
    for (int32_t i = 0; i < n; i++) {
        if (views[i] != own) continue;
        out->number += i < rank;
        out->n_ranks++;
    }
    return PS_OK;
}

ps_status ps_gpu_local_rank_find(ps_comm *comm, ps_gpu_local_rank *out)
{
    uint64_t *views;
    *out = (ps_gpu_local_rank){.n_ranks = 1};
    if (comm == NULL || ps_comm_size(comm) == 1) return PS_OK;
    ps_status st = ps_mem_alloc((size_t)ps_comm_size(comm), sizeof *views, &views);
    st = ps_comm_agree(comm, st);
    if (st == PS_OK) st = count_ranks_before(comm, views, out);
    ps_mem_free(views);
    return st;
}

void ps_gpu_choice_use_local_rank(ps_gpu_choice *g, ps_gpu_local_rank local_rank)
{
    const int32_t n = g->found.n_gpus > 0 ? g->found.n_gpus : 1;
    g->local_rank = local_rank;
    g->ordinal = local_rank.number % n;
    g->n_sharers = (local_rank.n_ranks - g->ordinal + n - 1) / n;
}

void ps_gpu_choice_find(ps_gpu_choice *g)
{
    g->status = ps_cuda_find(g->local_rank.number, g->attention, &g->found);
    if (g->status != PS_OK) snprintf(g->why_not, sizeof g->why_not, "%s", ps_last_error());
    ps_gpu_choice_use_local_rank(g, g->local_rank);
}

ps_status ps_gpu_choice_check(const ps_gpu_choice *g)
{
    if (g->status == PS_OK) return PS_OK;
    const bool has_remedy = strstr(g->why_not, "; or set ") != NULL; /* of an option that the processor refuses, too */
    return PS_FAIL(g->status, "train.backend = cuda: %s%s", g->why_not,
                   has_remedy ? "" : "; or set train.backend = cpu");
}

ps_status ps_gpu_choice_agree(const ps_gpu_choice *g, ps_comm *comm)
{
    const double name = (double)(XXH3_64bits(g->found.attention, strlen(g->found.attention)) >> 12);
    double least, most;
    PS_TRY(ps_comm_find_range(comm, &name, 1, &least, &most));
    if (least == most) return PS_OK;
    return PS_FAIL(PS_EINVAL,
                   "ranks compute attention by different libraries, this one by %s; install the same cuDNN "
                   "everywhere, or set train.attention = own",
                   g->found.attention);
}

/* ---- share of its memory ---- */

/* Usable bytes are what remains when one rank has loaded kernels and libraries; each other rank needs as much again. */
int64_t ps_gpu_choice_share_bytes(const ps_gpu_choice *g, bool uses_nccl)
{
    const ps_cuda_found *f = &g->found;
    const int64_t n = g->n_sharers, loaded_bytes = ps_max_i64(0, f->info.free_bytes - f->usable_bytes);
    const int64_t nccl_bytes = uses_nccl ? ps_cuda_get_parts()->nccl_bytes : 0;
    return ps_max_i64(0, f->usable_bytes - (n - 1) * loaded_bytes - nccl_bytes) / n;
}

/* Pages are allocated on demand, so an excess would otherwise be found in the middle of a step. */
static ps_status check_budget(const ps_gpu_choice *g, bool uses_nccl, int64_t budget_bytes)
{
    const ps_cuda_found *f = &g->found;
    const int64_t share_bytes = ps_gpu_choice_share_bytes(g, uses_nccl);
    char asked[PS_BYTES_TEXT_MAX], usable[PS_BYTES_TEXT_MAX], total[PS_BYTES_TEXT_MAX], shared[64] = "";
    char left[PS_BYTES_TEXT_MAX], to_nccl[96] = "";
    if (budget_bytes <= share_bytes) return PS_OK;
    if (uses_nccl)
        snprintf(to_nccl, sizeof to_nccl, ", with %s reserved for NCCL (comm.collectives)",
                 ps_bytes_format(ps_cuda_get_parts()->nccl_bytes, left));
    if (g->n_sharers > 1) snprintf(shared, sizeof shared, " by each of %d ranks", g->n_sharers);
    return PS_FAIL(
        PS_EBUDGET,
        "memory.device = %s, but of the %s of GPU %d (%s) %s (%lld) can be used%s%s: lower it, or leave it out",
        ps_bytes_format(budget_bytes, asked), ps_bytes_format(f->info.total_bytes, total), g->ordinal, f->info.name,
        ps_bytes_format(share_bytes, usable), (long long)share_bytes, shared, to_nccl);
}

/* ---- opening ---- */

static ps_status open_it(const ps_gpu_choice *g, bool plans_only, ps_backend *host, ps_backend **out)
{
    ps_cuda_attention attention;
    if (!plans_only) return ps_backend_open_cuda(g->ordinal, g->attention, host, out);
    if (ps_cuda_get_parts()->backend != NULL) return ps_cuda_get_parts()->backend(NULL, g->found.page_bytes, host, out);
    ps_cudnn_attention_guess(&attention);
    const bool has_cudnn = strncmp(g->found.attention, attention.name, strlen(attention.name)) == 0;
    return ps_backend_create_cuda_for_plans(g->found.page_bytes, ps_cuda_get_parts()->gemm_bytes,
                                            has_cudnn ? &attention : NULL, host, out);
}

ps_status ps_gpu_choice_open(const ps_gpu_choice *g, bool uses_nccl, int64_t budget_bytes, bool plans_only,
                             ps_backend *host, ps_backend **out)
{
    ps_status st = ps_gpu_choice_check(g);
    if (st == PS_OK) st = check_budget(g, uses_nccl, budget_bytes);
    if (st == PS_OK) return open_it(g, plans_only, host, out);
    ps_backend_destroy(host);
    return st;
}
