/* patrickstar_comm.h - ranks: rendezvous and messages of the processes that train one model together, for programs
 * whose launcher ps_initialize_engine does not find by itself. */
#ifndef PATRICKSTAR_COMM_H
#define PATRICKSTAR_COMM_H

#include "patrickstar.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A communicator connects the processes (or threads) that train one model together, each a rank. All ranks make the
 * same calls in the same order. When a rank dies, fails, leaves, or sends nothing for comm.timeout_s, each call of the
 * others fails with PS_ECOMM, naming that rank; the communicator can then only be closed. One thread at a time may use
 * a communicator. */

/* ---- rendezvous (src/api/engine) ------------------------------------------------------------------------- */

/* Connect the ranks that mpirun or srun started, this process among them; without a launcher there is one rank. With
 * MPI this works once in a process. The library initialises and finalises MPI, unless the program has initialised it by
 * MPI_Init_thread with MPI_THREAD_MULTIPLE. config: its section comm. PS_ENOSYS, PS_EINVAL, PS_ECOMM; *out is NULL
 * then. */
PS_API PS_NODISCARD ps_status ps_comm_init(const ps_config *config, ps_comm **out);

enum { PS_MESSAGE_ERROR_BYTES = 256 };

/* A collective of the program as the transport of a communicator: all_to_all_single of a PyTorch process group, or an
 * MPI communicator (patrickstar_mpi.h). It transfers bytes; this library computes reductions, in the order of ranks, so
 * bits are the same as over the launcher's MPI. Messages are sent in rounds of this collective.
 *
 * One thread of the library makes all calls, from ps_comm_init_process_group to close, one after the other; all ranks
 * make the same calls in the same order. So only this communicator may use the group; other threads may use other
 * groups meanwhile (MPI: MPI_THREAD_MULTIPLE). An idle rank still calls, every 10 ms at least. */
typedef struct ps_process_group {
    size_t struct_size;
    void *user;          /* passed to each function */
    int32_t rank, size;  /* 0 <= rank < size */
    const char *name;    /* for messages: "torch.distributed (gloo)" */
    const char *trouble; /* NULL, or why the group cannot be used; ps_comm_init_process_group then fails with it */
    /* Part r of send, of send_bytes[r] >= 0 bytes, becomes part `rank` of receive on rank r. Parts are stored one after
     * the other, this rank's included; a part has at most max(4 MiB / size, 4096) bytes. Returns 0 when receive is
     * complete and send may be overwritten; another number on failure, with a text in error [PS_MESSAGE_ERROR_BYTES].
     * When it fails on one rank, it must fail or return on the others in bounded time; a rank whose call does not
     * return counts as failed after comm.timeout_s. */
    int (*all_to_all)(void *user, const void *send, const int64_t *send_bytes, void *receive,
                      const int64_t *receive_bytes, char *error);
    /* Last call, made once, also when ps_comm_init_process_group fails. is_orderly: every rank closes, and no call
     * failed. */
    void (*close)(void *user, int32_t is_orderly);
} ps_process_group;

/* Create a communicator over the ranks of the group; all of them call. *group is copied. config NULL: the defaults. */
PS_API PS_NODISCARD ps_status ps_comm_init_process_group(const ps_config *config, const ps_process_group *group,
                                                         ps_comm **out);

/* ---- communicators (src/chunk/comm) ---------------------------------------------------------------------- */

/* Complete pending operations and close; ranks without a failure wait for each other. Engines hold a reference: where
 * some exist, this releases the caller's reference, and the ps_engine_destroy of the last engine closes. NULL is
 * accepted. */
PS_API void ps_comm_close(ps_comm *comm);

PS_API int32_t ps_comm_rank(const ps_comm *comm);
PS_API int32_t ps_comm_size(const ps_comm *comm);
PS_API int32_t ps_comm_local_rank(const ps_comm *comm); /* among the ranks of this machine */
PS_API int32_t ps_comm_local_size(const ps_comm *comm); /* number of ranks of this machine */
/* Host name of a rank; "unknown host" also for an invalid rank. */
PS_API const char *ps_comm_host(const ps_comm *comm, int32_t rank);
PS_API const char *ps_comm_describe(const ps_comm *comm); /* "single", "mpi (Open MPI v4.1.4)" */

typedef enum ps_comm_op { PS_COMM_SUM, PS_COMM_MIN, PS_COMM_MAX } ps_comm_op;

/* Collectives for small data of the program. All ranks call with the same bytes, n, op and root. PS_EINVAL, before
 * anything is sent, for a size that is negative or larger than memory, and for an invalid root or op; the communicator
 * stays usable. The reduction is in place and in the order of ranks; all ranks get the same bits. */
PS_API PS_NODISCARD ps_status ps_comm_all_reduce(ps_comm *comm, double *values, int64_t n, ps_comm_op op);
/* all[size * bytes] gets `bytes` of each rank, in the order of ranks. */
PS_API PS_NODISCARD ps_status ps_comm_all_gather(ps_comm *comm, const void *mine, int64_t bytes, void *all);
PS_API PS_NODISCARD ps_status ps_comm_broadcast(ps_comm *comm, void *data, int64_t bytes, int32_t root);
PS_API PS_NODISCARD ps_status ps_comm_barrier(ps_comm *comm);

/* Agree on a status. PS_OK when st is PS_OK on all ranks; else all ranks return the status of the first rank that
 * failed, with "rank 2 (host): " and that rank's last error as message. comm NULL: returns st. */
PS_API PS_NODISCARD ps_status ps_comm_agree(ps_comm *comm, ps_status st);
/* Report that this rank has failed: calls of the other ranks fail with PS_ECOMM, naming this rank, its host and the
 * text (cut at 495 bytes), as far as they can be reached within a second. */
PS_API void ps_comm_fail(ps_comm *comm, const char *text);

/* ---- consistency (src/api/engine) ------------------------------------------------------------------------ */

/* Check that all ranks have the same program, library (version and file) and configuration, except for keys that name
 * files and folders of a machine; else PS_EINVAL on all ranks, naming rank, machine and the difference.
 * ps_initialize_engine and its variants call it themselves. Reads both files, in some milliseconds. comm may be NULL:
 * single rank. */
PS_API PS_NODISCARD ps_status ps_comm_check_same(ps_comm *comm, const ps_config *config);

#ifdef __cplusplus
}
#endif
#endif
