/* patrickstar_comm.h - ranks: how the processes that train one model together meet and talk, for programs that start
 * them otherwise than ps_initialize_engine finds them. */
#ifndef PATRICKSTAR_COMM_H
#define PATRICKSTAR_COMM_H

#include "patrickstar.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Processes (or threads) that train one model together, each a rank. They make the same calls in the same order. One
 * that dies, fails, leaves, or is not heard of for comm.timeout_s makes each call of the others fail with PS_ECOMM,
 * naming it; all that can be done then is to close. One thread at a time may use a communicator. */

/* Meet the ranks that mpirun or srun started, this process among them; without a launcher there is one rank. With MPI
 * once in a process, and this library starts and ends MPI unless the program has started it, by MPI_Init_thread with
 * MPI_THREAD_MULTIPLE. config: its section comm. PS_ENOSYS, PS_EINVAL, PS_ECOMM; *out is NULL then. */
PS_API PS_NODISCARD ps_status ps_comm_meet(const ps_config *config, ps_comm **out);

enum { PS_MESSAGE_ERROR_BYTES = 256 };

/* Messages of the program's own, under a communicator: an MPI communicator (patrickstar_mpi.h), a process group of
 * PyTorch (isend, irecv; gloo tells that one is done to a thread that waits: test/cli/torch_ranks.py), sockets. All
 * collectives are made of them, and sums are added by this library in the order of ranks, so bits are the same over all
 * of them.
 *
 * One thread, of the library's own, makes all calls. Messages of a channel from one rank to another must arrive in the
 * order in which they were sent, and meet the receives in the order in which these were begun; each receive is for the
 * exact size of its message. Functions return 0, or another number when they failed, with a text in error
 * [PS_MESSAGE_ERROR_BYTES]. */
typedef struct ps_messages {
    size_t struct_size;
    void *user;          /* given to each function */
    int32_t rank, size;  /* 0 <= rank < size */
    const char *name;    /* for people: "mpi (Open MPI v4.1.4)" */
    const char *trouble; /* NULL; else why there can be no messages, which is then the failure of ps_comm_meet_by */
    /* Return at once; data must stay until test says done. 0 < bytes < 2^31. *request is the program's. */
    int (*send_begin)(void *user, int32_t peer, int32_t channel, const void *data, int64_t bytes, uint64_t *request,
                      char *error);
    int (*receive_begin)(void *user, int32_t peer, int32_t channel, void *data, int64_t bytes, uint64_t *request,
                         char *error);
    /* bytes: of a receive its size, of a send 0. Once done the request is no more. Also moves other messages on. */
    int (*test)(void *user, uint64_t *request, int64_t bytes, int32_t *is_done, char *error);
    /* Afterwards no data is touched, and nothing called any more. is_orderly: all requests are done and every rank
     * closes. Called once, also when ps_comm_meet_by fails. */
    void (*close)(void *user, int32_t is_orderly);
} ps_messages;

/* The ranks that these messages reach: all of them call. *messages is copied; config may be NULL: all defaults. */
PS_API PS_NODISCARD ps_status ps_comm_meet_by(const ps_config *config, const ps_messages *messages, ps_comm **out);

/* A collective of the program's own, where it has no messages from rank to rank: a process group of PyTorch
 * (all_to_all_single), MPI_Alltoallv. It carries bytes; sums are added by this library in the order of ranks, so bits
 * are the same as over messages. Messages go in rounds that all ranks take part in: prefer ps_messages where there are
 * any.
 *
 * One thread, of the library's own, makes all calls, from ps_comm_meet_by_process_group to close, one after the other;
 * all ranks make the same ones in the same order. So the group must be this communicator's alone, and other threads may
 * use others meanwhile (MPI: MPI_THREAD_MULTIPLE). A rank that has nothing to say still calls, every 10 ms at least. */
typedef struct ps_process_group {
    size_t struct_size;
    void *user;          /* given to each function */
    int32_t rank, size;  /* 0 <= rank < size */
    const char *name;    /* for people: "torch.distributed (gloo)" */
    const char *trouble; /* NULL; else why there is none, which is then the failure of ps_comm_meet_by_process_group */
    /* Part r of send, send_bytes[r] >= 0 of it, becomes part `rank` of receive on rank r; parts lie one after the
     * other, the own one too, each at most as large as size allows: 4 MiB / size, at least 4096 bytes. Returns when
     * receive is whole and send may be written to: 0, or another number when it failed, with a text in error
     * [PS_MESSAGE_ERROR_BYTES]. Where it fails on one rank, it must fail on the others, or return, in bounded time;
     * ranks whose call does not return are given up after comm.timeout_s. */
    int (*all_to_all)(void *user, const void *send, const int64_t *send_bytes, void *receive,
                      const int64_t *receive_bytes, char *error);
    /* Nothing is called any more. is_orderly: every rank closes, and all calls went well. Called once, also when
     * ps_comm_meet_by_process_group fails. */
    void (*close)(void *user, int32_t is_orderly);
} ps_process_group;

/* The ranks that it joins: all of them call. *group is copied. config NULL: the defaults. */
PS_API PS_NODISCARD ps_status ps_comm_meet_by_process_group(const ps_config *config, const ps_process_group *group,
                                                            ps_comm **out);

/* Ends what was begun and leaves; ranks that are well wait for each other. Engines keep theirs: where some are left,
 * this gives the caller's hold up, and the last one's ps_engine_destroy does the rest. NULL is accepted. */
PS_API void ps_comm_close(ps_comm *comm);

PS_API int32_t ps_comm_rank(const ps_comm *comm);
PS_API int32_t ps_comm_size(const ps_comm *comm);
PS_API int32_t ps_comm_local_rank(const ps_comm *comm); /* among the ranks of this machine, */
PS_API int32_t ps_comm_local_size(const ps_comm *comm); /* of which there are so many */
/* Name of its machine; "unknown host" also for what is no rank. */
PS_API const char *ps_comm_host(const ps_comm *comm, int32_t rank);
PS_API const char *ps_comm_describe(const ps_comm *comm); /* "single", "mpi (Open MPI v4.1.4)" */

typedef enum ps_comm_op { PS_COMM_SUM, PS_COMM_MIN, PS_COMM_MAX } ps_comm_op;

/* Small things beside an engine's own: all ranks call, with the same bytes, n, op and root. A negative size or one past
 * all memory, a root or op that there is not: PS_EINVAL before anything is sent, and the communicator goes on. In
 * place, in the order of ranks; all get the same bits. */
PS_API PS_NODISCARD ps_status ps_comm_all_reduce(ps_comm *comm, double *values, int64_t n, ps_comm_op op);
/* Every rank's `bytes`, one after the other, in all[size * bytes]. */
PS_API PS_NODISCARD ps_status ps_comm_all_gather(ps_comm *comm, const void *mine, int64_t bytes, void *all);
PS_API PS_NODISCARD ps_status ps_comm_broadcast(ps_comm *comm, void *data, int64_t bytes, int32_t root);
PS_API PS_NODISCARD ps_status ps_comm_barrier(ps_comm *comm);

/* All ranks go on, or none does: each comes with what it has come to. PS_OK when that was PS_OK for all; else all get
 * the status of the first rank that failed, and "rank 2 (host): " with its last error. comm NULL: st as it is. */
PS_API PS_NODISCARD ps_status ps_comm_agree(ps_comm *comm, ps_status st);
/* This rank cannot go on: the others get PS_ECOMM with this rank, its host and the text (cut at 495 bytes), as far as
 * they can be reached within a second. */
PS_API void ps_comm_fail(ps_comm *comm, const char *text);

/* PS_EINVAL on all ranks, naming rank, machine and what differs, unless all have the same program, library (version and
 * file) and configuration; keys that name files and folders of a machine may differ. ps_initialize_engine and its
 * relatives do so by themselves. Reads both files: some milliseconds. comm may be NULL: alone. */
PS_API PS_NODISCARD ps_status ps_comm_check_same(ps_comm *comm, const ps_config *config);

#ifdef __cplusplus
}
#endif
#endif
