/* gpu_choice.h - which GPU of the machine a rank computes on, whether it can be used, and how much of its memory is the
 * rank's. */
#ifndef PS_CUDA_GPU_CHOICE_H
#define PS_CUDA_GPU_CHOICE_H

#include "chunk/comm/comm.h"
#include "device/cuda/open.h"

/* This is number `number` of the n_ranks ranks that see the same GPUs of one machine and are assigned one each, round
 * robin. */
typedef struct ps_gpu_local_rank {
    int32_t number, n_ranks;
} ps_gpu_local_rank;

typedef struct ps_gpu_choice {
    ps_gpu_local_rank local_rank;
    ps_cuda_attention_choice attention;
    ps_cuda_found found; /* n_gpus 0: none */
    ps_status status;    /* PS_OK: usable, or not searched for */
    char why_not[512];   /* otherwise the reason, in one line */
    int32_t ordinal;     /* among those listed in CUDA_VISIBLE_DEVICES */
    int32_t n_sharers;   /* ranks that compute on it */
} ps_gpu_choice;

/* All of comm's ranks call; NULL: a single rank. */
PS_NODISCARD ps_status ps_gpu_local_rank_find(ps_comm *comm, ps_gpu_local_rank *out);

/* Examines the GPU of g->local_rank, for attention as in g->attention (ps_cuda_find). An error is kept in status and why_not:
 * plans for other machines need no GPU here. */
void ps_gpu_choice_find(ps_gpu_choice *g);
/* The same GPUs, as rank local_rank.number of local_rank.n_ranks sees them. */
void ps_gpu_choice_use_local_rank(ps_gpu_choice *g, ps_gpu_local_rank local_rank);

/* PS_OK when the GPU can be used; else g->status, with the reason for which train.backend = cuda is refused. */
PS_NODISCARD ps_status ps_gpu_choice_check(const ps_gpu_choice *g);
/* PS_EINVAL where comm's ranks compute attention by different libraries, whose bits and workspace would differ. All of
 * comm's ranks call. */
PS_NODISCARD ps_status ps_gpu_choice_agree(const ps_gpu_choice *g, ps_comm *comm);

/* Bytes of GPU memory that each of its ranks can use at most. Every rank loads kernels and libraries, and NCCL
 * allocates memory. */
int64_t ps_gpu_choice_share_bytes(const ps_gpu_choice *g, bool uses_nccl);

/* Create the backend that computes on it; with plans_only one that only measures. It owns host, on failure too.
 * PS_EBUDGET where budget_bytes is more than ps_gpu_choice_share_bytes; other errors as ps_gpu_choice_check and
 * ps_backend_open_cuda. */
PS_NODISCARD ps_status ps_gpu_choice_open(const ps_gpu_choice *g, bool uses_nccl, int64_t budget_bytes, bool plans_only,
                                          ps_backend *host, ps_backend **out);

#endif
