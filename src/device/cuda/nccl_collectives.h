/* nccl_collectives.h - collectives of chunks by NCCL (nccl.h), between ranks with one GPU each: from GPU memory to GPU
 * memory, on a separate queue. The communicator's messages still transfer small data and host payloads, and detect lost
 * ranks. */
#ifndef PS_CUDA_NCCL_COLLECTIVES_H
#define PS_CUDA_NCCL_COLLECTIVES_H

#include "chunk/comm/comm.h"
#include "device/cuda/nccl.h"
#include "kernel/backend.h"

/* Estimate of the GPU memory that NCCL allocates outside of budgets: buffers of its channels. */
#define PS_NCCL_RESERVE_BYTES (512 * PS_MIB)

typedef struct ps_nccl_options {
    const ps_nccl *library;
    ps_backend *backend;   /* of CUDA, whose kernel adds; all members must outlive the collectives */
    ps_comm *comm;         /* that will use it (ps_comm_set_collectives) */
    ps_queue *queue;       /* of the backend's device; used for nothing else */
    void *staging;         /* device memory for values of other ranks while they are summed */
    int64_t staging_bytes; /* at least 64 for each rank */
} ps_nccl_options;

/* All ranks call; it returns when all ranks have. After PS_EDEVICE or PS_ECOMM the communicator is unusable. */
PS_NODISCARD ps_status ps_nccl_collectives_open(const ps_nccl_options *o, ps_collectives **out);

#endif
