#include "device/cuda/nccl_choice.h"

#include <stdio.h>

#include "base/bytes.h"
#include "chunk/comm/agree.h"

#define STAGING_MAX (64 * PS_MIB)
#define STAGING_SHARE 64 /* of the device's budget */

ps_status ps_nccl_check(const ps_gpu_choice *g)
{
    const ps_nccl *library;
    if (g->n_sharers > 1)
        return PS_FAIL(PS_EINVAL, "%d ranks share GPU %d, and NCCL requires one each", g->n_sharers, g->ordinal);
    return ps_cuda_get_parts()->nccl != NULL ? ps_cuda_get_parts()->nccl(&library)
                                             : PS_FAIL(PS_ENOSYS, "NCCL is not available here");
}

static ps_status require(ps_nccl_choice *c, ps_status can, ps_comm *comm)
{
    if (can != PS_OK) {
        char why[512];
        snprintf(why, sizeof why, "%s", ps_last_error());
        can = PS_FAIL(can, "comm.collectives = nccl: %s; comm.collectives = messages does without", why);
    }
    PS_TRY(ps_comm_agree(comm, can));
    c->is_used = true;
    return PS_OK;
}

ps_status ps_nccl_choice_make(ps_nccl_choice *c, ps_status can, bool is_required, ps_comm *comm)
{
    double has_all = can == PS_OK;
    if (is_required) return require(c, can, comm);
    if (can != PS_OK) snprintf(c->why_not, sizeof c->why_not, "%s", ps_last_error());
    if (comm != NULL) PS_TRY(ps_comm_all_reduce(comm, &has_all, 1, PS_COMM_MIN));
    c->is_used = has_all > 0;
    if (can == PS_OK && has_all == 0) snprintf(c->why_not, sizeof c->why_not, "another rank cannot use NCCL");
    return PS_OK;
}

int64_t ps_nccl_staging_bytes(int64_t budget_bytes, int32_t n_ranks)
{
    const int64_t share_bytes = budget_bytes / STAGING_SHARE / PS_PAGE_BYTES * PS_PAGE_BYTES;
    return ps_max_i64(PS_PAGE_BYTES * n_ranks, ps_min_i64(STAGING_MAX, share_bytes));
}

ps_status ps_nccl_choice_open(ps_nccl_options o, ps_collectives **out)
{
    *out = NULL;
    PS_TRY(ps_comm_agree(o.comm, ps_cuda_get_parts()->nccl(&o.library)));
    return ps_nccl_collectives_open(&o, out);
}
