/* comm.h - what ranks tell each other; small things, and its end, are in patrickstar.h. Messages go by one of several
 * back ends (transport.h).
 *
 * A rank is one process (back ends single and mpi), or one thread of a process (back end thread, for tests and
 * debuggers). Every rank makes the same calls in the same order. Chunks go by transfers of collectives.h, which threads
 * of the communicator's own carry out while operators run: one moves messages, one adds up what has arrived.
 *
 * A rank that dies, fails, leaves, or cannot be reached for timeout_s makes each call of the others fail with PS_ECOMM
 * naming it. From then on the communicator is of no use: all that can be done is to close it. Payloads of transfers
 * that were under way are the caller's again, with undefined content.
 *
 * With MPI, a process that closed after a failure has not called MPI_Finalize (it might wait for ever) and must end
 * with a status other than 0: then the launcher ends what is left of the others. */
#ifndef PS_COMM_COMM_H
#define PS_COMM_COMM_H

#include "comm/collectives.h"
#include "device/order.h"
#include "patrickstar_comm.h"

typedef enum ps_comm_backend {
    PS_COMM_AUTO,   /* mpi when a launcher started this process as one of several (mpirun, srun), else single */
    PS_COMM_SINGLE, /* one rank */
    PS_COMM_MPI,
} ps_comm_backend;

typedef struct ps_comm_options {
    ps_comm_backend backend;
    double timeout_s; /* a rank of which nothing is heard for so long is lost; > 0 */
    /* memory for pieces of others while they are added up, taken at open: at least 4096 for each rank. All ranks use
     * the least that one of them gives. */
    int64_t staging_bytes;
} ps_comm_options;

/* Meets the other ranks: returns when all are there. With MPI once in a process. PS_ENOSYS when the plug-in for the
 * launcher's MPI is missing (comm/transport_mpi.h: where it is looked for), or another MPI's was taken; PS_EINVAL for
 * wrong options; PS_ECOMM when a rank fails meanwhile. On failure *out is NULL. */
PS_NODISCARD ps_status ps_comm_open(const ps_comm_options *o, ps_comm **out);
/* Ranks that the calling program has messages between. *m is copied; its close is called once, whatever comes of it. */
PS_NODISCARD ps_status ps_comm_open_messages(const ps_comm_options *o, const ps_messages *m, ps_comm **out);
/* n communicators in out[n], of ranks that are threads of this process, each to be used and closed by one thread: at
 * the same time, because they wait for each other. On failure all are NULL. */
PS_NODISCARD ps_status ps_comm_open_threads(const ps_comm_options *o, int32_t n, ps_comm **out);
/* Keep it for an engine: one more ps_comm_close before it ends. By the thread that uses it. */
void ps_comm_keep(ps_comm *c);
int64_t ps_comm_staging_bytes(const ps_comm *c); /* that it uses: the least of all ranks */

/* ---- chunks: collectives.h ---- */

/* Who carries them: messages of this communicator's, unless it was given another. */
ps_collectives *ps_comm_collectives(ps_comm *c);
/* Messages, whoever carries chunks: of payloads that are the host's. */
ps_collectives *ps_comm_messages(ps_comm *c);
/* From now on x does (GPUs have networks of their own, a calling program ranks of its own); small things still go by
 * messages. On all ranks, while no transfer is under way. x becomes the communicator's. When another rank is lost x is
 * not told: it has to look at ps_comm_failed_rank while it waits. NULL: messages again, and what was given is destroyed.
 * Messages give back their staging memory, and take it again when they have to add. */
void ps_comm_set_collectives(ps_comm *c, ps_collectives *x);
/* x has begun a transfer, which counts in the statistics; and a rank that leaves having begun fewer than this one has
 * left before the others. */
void ps_comm_count_carried(ps_comm *c, int64_t sent_bytes);

/* Messages go from and to memory of the host. Payloads that it cannot touch are copied to staging memory before they
 * are sent, and from there when they have arrived. */
typedef struct ps_comm_device {
    ps_queue *in, *out; /* to the device, and off it; only the communicator issues to them */
    char *staging;      /* ps_comm_staging_bytes that both reach, in place of the communicator's own */
} ps_comm_device;

/* From now on transfers marked on_device are of such payloads: on all ranks, or on none; while no transfer is under
 * way. *d is copied; NULL: no longer. */
void ps_comm_set_device(ps_comm *c, const ps_comm_device *d);
/* o is told of all transfers, and of those that the caller waits for; as ps_queue_set_order. */
void ps_comm_set_order(ps_comm *c, ps_order *o);

/* Begin what ps_comm_all_gather does, with several ranks: all[r * bytes] is rank r's, this one's in place, > 0 bytes each.
 * It must stay until *done, which ps_collectives_wait of ps_comm_messages waits for. */
PS_NODISCARD ps_status ps_comm_begin_all_gather(ps_comm *c, char *all, int64_t bytes, ps_event *done);

/* A caller that waits for one transfer for longer says `text` once, by ps_log. It must stay until NULL is set again. */
void ps_comm_set_late_text(ps_comm *c, const char *text, int64_t after_ns);

/* ---- failure ---- */

/* Did this rank or another one fail? The first failure's rank; -1: none. Any thread, as the next. */
int32_t ps_comm_failed_rank(const ps_comm *c);
/* PS_ECOMM with that failure, if there was one. */
PS_NODISCARD ps_status ps_comm_check_failure(const ps_comm *c);
int64_t ps_comm_timeout_ns(const ps_comm *c); /* a rank of which nothing is heard for so long is lost */

/* ---- accounting ---- */

typedef struct ps_comm_stats {
    int64_t sent_bytes; /* of chunk payloads, to other ranks; without messages' heads, signs of life and small things */
    int64_t n_transfers; /* an all-reduce is two */
    int64_t busy_ns;     /* chunk transfers were under way */
    int64_t wait_ns;     /* callers stood still for them, and for small things */
} ps_comm_stats;

ps_comm_stats ps_comm_get_stats(const ps_comm *c); /* sums since open */

/* From now on, record begin and end of each chunk transfer (PS_PROFILE_COLLECTIVE, with the bytes that this rank sends)
 * and each time that a caller stands still for a transfer of whatever kind (PS_PROFILE_WAIT, as one of this link).
 * NULL: no longer; p must stay until then. A transfer is recorded before anybody hears that it is done. */
void ps_comm_set_profile(ps_comm *c, ps_profile *p, int link);

#endif
