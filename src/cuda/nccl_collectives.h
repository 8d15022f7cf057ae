/* nccl_collectives.h - chunks from rank to rank by NCCL (nccl.h), of ranks that have a GPU each: from the memory of one to
 * that of another, on a queue of its own. Messages of the communicator stay for small things, for payloads of the host,
 * and for who is there. */
#ifndef PS_CUDA_NCCL_COLLECTIVES_H
#define PS_CUDA_NCCL_COLLECTIVES_H

#include "comm/comm.h"
#include "cuda/nccl.h"
#include "kernel/backend.h"

/* Memory of the GPU that NCCL is taken to want for itself, beside budgets: buffers of its channels. An estimate. */
#define PS_NCCL_BESIDE_BYTES (512 * PS_MIB)

typedef struct ps_nccl_options {
    const ps_nccl *library;
    ps_backend *backend;   /* of CUDA: whose kernel adds; this and what follows must outlast the collectives */
    ps_comm *comm;         /* that it is to be given to (ps_comm_set_collectives) */
    ps_queue *queue;       /* of the backend's device; nobody else issues to it */
    void *staging;         /* memory of the device for values of others while they are added up */
    int64_t staging_bytes; /* at least 64 a rank */
    /* Sums by NCCL: not in the order of ranks, of 16 bits rounded after each addition; nothing of staging is used. */
    bool library_adds;
} ps_nccl_options;

/* Called by all ranks: returns when all are there. PS_EDEVICE, PS_ECOMM: after that the communicator is of no use. */
PS_NODISCARD ps_status ps_nccl_collectives_open(const ps_nccl_options *o, ps_collectives **out);

#endif
