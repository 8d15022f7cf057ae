/* patrickstar_mpi.h - engines over an MPI communicator of the program.
 *
 *     MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
 *     MPI_Comm_split(MPI_COMM_WORLD, color, 0, &group);
 *     ps_comm_init_mpi(config, group, &comm);
 *     ps_engine_options options = {.struct_size = sizeof options, .comm = comm, .purpose = PS_FOR_TRAINING};
 *     ps_initialize_engine_with(ps_model_from_config, config, config, &options, &engine);
 *     ...
 *     ps_engine_destroy(engine);
 *     ps_comm_close(comm);
 *     MPI_Finalize();
 *
 * The MPI calls are compiled in this header, with the MPI of the program: libpatrickstar makes none. C99 and C++
 * clean. */
#ifndef PATRICKSTAR_MPI_H
#define PATRICKSTAR_MPI_H

#include <mpi.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "patrickstar_comm.h"

/* A duplicate of the communicator, so that messages of the program and of the library cannot be confused. */
typedef struct ps_mpi_group {
    MPI_Comm comm;
    int size;
    int *counts; /* [4 * size]: bytes and offsets sent, bytes and offsets received */
} ps_mpi_group;

static inline int ps_mpi_failed(int rc, const char *call, char *error)
{
    if (rc == MPI_SUCCESS) return 0;
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length = 0;
    MPI_Error_string(rc, text, &length);
    snprintf(error, PS_MESSAGE_ERROR_BYTES, "%s: %.200s", call, text);
    return 1;
}

static inline void ps_mpi_put_counts(const int64_t *bytes, int size, int *counts, int *offsets)
{
    int at = 0;
    for (int r = 0; r < size; r++) {
        counts[r] = (int)bytes[r];
        offsets[r] = at;
        at += counts[r];
    }
}

/* Waits by polling and yielding, which leaves the core to threads that compute; MPI_Alltoallv spins. */
static inline int ps_mpi_all_to_all(void *user, const void *send, const int64_t *send_bytes, void *receive,
                                    const int64_t *receive_bytes, char *error)
{
    const ps_mpi_group *g = (const ps_mpi_group *)user;
    int *out = g->counts, *in = g->counts + 2 * g->size;
    MPI_Request request;
    ps_mpi_put_counts(send_bytes, g->size, out, out + g->size);
    ps_mpi_put_counts(receive_bytes, g->size, in, in + g->size);
    if (ps_mpi_failed(
            MPI_Ialltoallv(send, out, out + g->size, MPI_BYTE, receive, in, in + g->size, MPI_BYTE, g->comm, &request),
            "MPI_Ialltoallv", error))
        return 1;
    for (int n = 0, is_done = 0;; n++) {
        if (ps_mpi_failed(MPI_Test(&request, &is_done, MPI_STATUS_IGNORE), "MPI_Test", error)) return 1;
        if (is_done) return 0;
        if (n < 1000)
            sched_yield();
        else
            poll(NULL, 0, 1);
    }
}

static inline void ps_mpi_group_free(ps_mpi_group *g)
{
    if (g != NULL) free(g->counts);
    free(g);
}

/* After a failure MPI_Comm_free could wait forever for a dead rank, so the communicator is leaked. */
static inline void ps_mpi_close(void *user, int32_t is_orderly)
{
    ps_mpi_group *g = (ps_mpi_group *)user;
    if (g != NULL && is_orderly) MPI_Comm_free(&g->comm);
    ps_mpi_group_free(g);
}

/* "mpi (Open MPI v4.1.4)": MPI's version text up to the first comma. */
static inline void ps_mpi_name(char name[96])
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    if (MPI_Get_library_version(version, &length) != MPI_SUCCESS) version[0] = '\0';
    version[strcspn(version, ",\r\n")] = '\0';
    snprintf(name, 96, "mpi (%.80s)", version);
}

/* NULL, or why this MPI cannot be used in its present state. */
static inline const char *ps_mpi_trouble(void)
{
    int is_initialized = 0, is_finalized = 0, level = MPI_THREAD_SINGLE;
    MPI_Initialized(&is_initialized);
    MPI_Finalized(&is_finalized);
    if (!is_initialized || is_finalized)
        return "ps_comm_init_mpi: MPI is not initialised: call it between MPI_Init_thread and MPI_Finalize";
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_MULTIPLE)
        return "ps_comm_init_mpi: a thread of this library uses MPI too: initialise it by MPI_Init_thread with "
               "MPI_THREAD_MULTIPLE, and see that it gives that level";
    return NULL;
}

static inline ps_mpi_group *ps_mpi_group_new(MPI_Comm comm, int32_t *rank, int32_t *size, char *error)
{
    ps_mpi_group *g = (ps_mpi_group *)calloc(1, sizeof *g);
    int number = 0, n = 0;
    snprintf(error, PS_MESSAGE_ERROR_BYTES, "host memory exhausted");
    if (g == NULL || ps_mpi_failed(MPI_Comm_dup(comm, &g->comm), "MPI_Comm_dup", error) ||
        ps_mpi_failed(MPI_Comm_set_errhandler(g->comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler", error) ||
        ps_mpi_failed(MPI_Comm_rank(g->comm, &number), "MPI_Comm_rank", error) ||
        ps_mpi_failed(MPI_Comm_size(g->comm, &n), "MPI_Comm_size", error) ||
        (g->counts = (int *)calloc(4 * (size_t)n, sizeof *g->counts)) == NULL) {
        ps_mpi_group_free(g);
        return NULL;
    }
    g->size = n;
    *rank = number;
    *size = n;
    return g;
}

/* Create a communicator over the ranks of an MPI communicator; all of them call. Ranks keep their numbers. comm is
 * duplicated, and may be freed. Close before MPI_Finalize. After a failure of another rank (PS_ECOMM) MPI itself may be
 * unusable. PS_EINVAL when MPI is not initialised with MPI_THREAD_MULTIPLE, or comm is MPI_COMM_NULL; else as
 * ps_comm_init. */
static inline ps_status ps_comm_init_mpi(const ps_config *config, MPI_Comm comm, ps_comm **out)
{
    char name[96] = "mpi", error[PS_MESSAGE_ERROR_BYTES] = "";
    ps_process_group p;
    memset(&p, 0, sizeof p);
    p.struct_size = sizeof p;
    p.size = 1;
    p.name = name;
    p.trouble = ps_mpi_trouble();
    if (p.trouble == NULL && comm == MPI_COMM_NULL)
        p.trouble =
            "ps_comm_init_mpi: the communicator is MPI_COMM_NULL: this process is no rank of it, and does not call";
    p.all_to_all = ps_mpi_all_to_all;
    p.close = ps_mpi_close;
    if (p.trouble == NULL) {
        ps_mpi_name(name);
        p.user = ps_mpi_group_new(comm, &p.rank, &p.size, error);
        if (p.user == NULL) p.trouble = error;
    }
    return ps_comm_init_process_group(config, &p, out);
}

#endif
