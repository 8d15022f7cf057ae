/* nccl_choice.h - chooses between NCCL and messages for the collectives of chunks between ranks. */
#ifndef PS_CUDA_NCCL_CHOICE_H
#define PS_CUDA_NCCL_CHOICE_H

#include "device/cuda/gpu_choice.h"
#include "device/cuda/nccl_collectives.h"

typedef struct ps_nccl_choice {
    bool is_used;
    char why_not[512]; /* with "auto", where a GPU computes: the reason in one line; "": not tried */
} ps_nccl_choice;

/* PS_OK when a rank on this GPU can use NCCL: no other rank computes on the GPU, and the library is found. */
PS_NODISCARD ps_status ps_nccl_check(const ps_gpu_choice *g);

/* can: the result of ps_nccl_check on this rank. is_required (comm.collectives = nccl): if one rank cannot use NCCL,
 * all fail. Otherwise ("auto") all ranks use it, or none does. All of comm's ranks call; NULL: a plan for ranks that
 * are not running. */
PS_NODISCARD ps_status ps_nccl_choice_make(ps_nccl_choice *c, ps_status can, bool is_required, ps_comm *comm);

/* Staging memory on the device, with a budget of budget_bytes, with which collectives reach full speed. */
int64_t ps_nccl_staging_bytes(int64_t budget_bytes, int32_t n_ranks);

/* Collectives by NCCL for chunks of the backend's device between comm's ranks, by this queue and staging memory of the
 * device. All of comm's ranks call. Errors as ps_nccl_collectives_open. */
PS_NODISCARD ps_status ps_nccl_choice_open(ps_nccl_options o, ps_collectives **out);

#endif
