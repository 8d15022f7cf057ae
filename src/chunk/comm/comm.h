/* comm.h - communication between ranks; its public part is in patrickstar_comm.h. Messages use one of several back ends
 * (transport.h).
 *
 * A rank is one process (single, MPI, or a process group of the program), or one thread of a process (back end thread,
 * for tests and debuggers). Every rank makes the same calls in the same order. Chunks are transferred by the
 * collectives of collectives.h, which threads of the communicator carry out while operators run: one moves messages,
 * one adds up received pieces.
 *
 * When a rank dies, fails, leaves, or cannot be reached for timeout_s, each call of the others fails with PS_ECOMM
 * naming it. From then on the communicator can only be closed. Payloads of transfers in flight have undefined content,
 * and the caller owns them again.
 *
 * With MPI, a process that closed after a failure has not called MPI_Finalize (it might wait for ever) and must end
 * with a status other than 0: then the launcher ends the remaining processes. */
#ifndef PS_COMM_COMM_H
#define PS_COMM_COMM_H

#include "chunk/comm/collectives.h"
#include "device/order.h"
#include "patrickstar_comm.h"

typedef enum ps_comm_backend {
    PS_COMM_AUTO,   /* mpi when a launcher started this process as one of several (mpirun, srun), else single */
    PS_COMM_SINGLE, /* one rank */
    PS_COMM_MPI,
} ps_comm_backend;

typedef struct ps_comm_options {
    ps_comm_backend backend;
    double timeout_s; /* a rank without a heartbeat for so long is lost; > 0 */
    /* Memory for pieces of other ranks while they are added up, allocated at open: at least 4096 for each rank. All
     * ranks use the minimum over ranks. */
    int64_t staging_bytes;
} ps_comm_options;

/* Rendezvous with the other ranks: returns when all have called it. With MPI once in a process. PS_ENOSYS when the
 * plug-in for the launcher's MPI is missing (chunk/comm/transport_mpi.h: the folders that are searched), or belongs to
 * another MPI; PS_EINVAL for wrong options; PS_ECOMM when a rank fails meanwhile. On failure *out is NULL. */
PS_NODISCARD ps_status ps_comm_open(const ps_comm_options *o, ps_comm **out);
/* A communicator over a process group of the calling program. *group is copied; its close is called once, also after a
 * failure. */
PS_NODISCARD ps_status ps_comm_open_group(const ps_comm_options *o, const ps_process_group *group, ps_comm **out);
/* n communicators in out[n], for ranks that are threads of this process, each used and closed by one thread. They must
 * be used at the same time, because they wait for each other. On failure all are NULL. */
PS_NODISCARD ps_status ps_comm_open_threads(const ps_comm_options *o, int32_t n, ps_comm **out);
/* Adds a reference, for an engine: one more ps_comm_close before it ends. By the thread that uses it. */
void ps_comm_keep(ps_comm *c);
int64_t ps_comm_staging_bytes(const ps_comm *c); /* in use: the minimum over ranks */

/* ---- chunks: collectives.h ---- */

/* The collectives in use: messages of this communicator, unless another implementation was set. */
ps_collectives *ps_comm_collectives(ps_comm *c);
/* Collectives by messages, whichever implementation is set: for payloads in host memory. */
ps_collectives *ps_comm_messages(ps_comm *c);
/* From now on chunks are transferred by x (NCCL, or ranks of the calling program); small data still goes by messages.
 * On all ranks, while no transfer is in flight. The communicator owns x. x is not informed when another rank is lost:
 * it has to poll ps_comm_failed_rank while it waits. NULL: messages again, and x is destroyed. Messages free their
 * staging memory, and allocate it again when they have to add. */
void ps_comm_set_collectives(ps_comm *c, ps_collectives *x);
/* x has begun a transfer, which counts in the statistics. A rank that leaves having begun fewer transfers than this one
 * has left early. */
void ps_comm_count_carried(ps_comm *c, int64_t sent_bytes);

/* Messages are sent from and received into host memory. Payloads that the host cannot access are copied to staging
 * memory before sending, and from there after receiving. */
typedef struct ps_comm_device {
    ps_queue *in, *out; /* to the device, and from it; only the communicator issues to them */
    char *staging;      /* ps_comm_staging_bytes accessible to both, in place of the communicator's staging */
} ps_comm_device;

/* From now on transfers marked on_device are of such payloads: on all ranks, or on none; while no transfer is in
 * flight. *d is copied; NULL: no longer. */
void ps_comm_set_device(ps_comm *c, const ps_comm_device *d);
/* o observes all transfers, and waits of the caller for them; as ps_queue_set_order. */
void ps_comm_set_order(ps_comm *c, ps_order *o);

/* Begin an all-gather as of ps_comm_all_gather, with several ranks: all[r * bytes] is rank r's part, this one's in
 * place, > 0 bytes each. The memory must stay valid until *done, for which ps_collectives_wait of ps_comm_messages
 * waits. */
PS_NODISCARD ps_status ps_comm_begin_all_gather(ps_comm *c, char *all, int64_t bytes, ps_event *done);

/* A caller that waits for one transfer for longer logs `text` once, by ps_log. `text` must stay valid until NULL is
 * set. */
void ps_comm_set_late_text(ps_comm *c, const char *text, int64_t after_ns);

/* ---- failure ---- */

/* Has this rank or another one failed? The first failed rank; -1: none. Any thread, as the next. */
int32_t ps_comm_failed_rank(const ps_comm *c);
/* PS_ECOMM with that failure, if there was one. */
PS_NODISCARD ps_status ps_comm_check_failure(const ps_comm *c);
int64_t ps_comm_timeout_ns(const ps_comm *c); /* a rank without a heartbeat for so long is lost */

/* ---- accounting ---- */

typedef struct ps_comm_stats {
    int64_t sent_bytes;  /* of chunk payloads, to other ranks; without message headers, heartbeats and small data */
    int64_t n_transfers; /* an all-reduce is two */
    int64_t busy_ns;     /* time with chunk transfers in flight */
    int64_t wait_ns;     /* time that callers waited for them, and for small data */
} ps_comm_stats;

ps_comm_stats ps_comm_get_stats(const ps_comm *c); /* sums since open */

/* From now on, record begin and end of each chunk transfer (PS_PROFILE_COLLECTIVE, with the bytes that this rank sends)
 * and each wait of a caller for any transfer (PS_PROFILE_WAIT, of this link). NULL: no longer; p must stay valid until
 * then. A transfer is recorded before its waiters continue. */
void ps_comm_set_profile(ps_comm *c, ps_profile *p, int link);

#endif
