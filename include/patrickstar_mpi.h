/* patrickstar_mpi.h - engines over an MPI communicator of the program's own.
 *
 *     MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
 *     MPI_Comm_split(MPI_COMM_WORLD, color, 0, &group);
 *     ps_comm_meet_mpi(config, group, &comm);
 *     ps_engine_options options = {.struct_size = sizeof options, .comm = comm, .purpose = PS_FOR_TRAINING};
 *     ps_initialize_engine_with(ps_model_from_config, config, config, &options, &engine);
 *     ...
 *     ps_engine_destroy(engine);
 *     ps_comm_close(comm);
 *     MPI_Finalize();
 *
 * The calls of MPI are compiled here, with the program's MPI, whichever it is: libpatrickstar has none of them. C99 and
 * C++ clean. */
#ifndef PATRICKSTAR_MPI_H
#define PATRICKSTAR_MPI_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "patrickstar_comm.h"

/* Our own duplicate: no message of the program's can meet ours. */
typedef struct ps_mpi_group {
    MPI_Comm comm;
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

static inline int ps_mpi_send_begin(void *user, int32_t peer, int32_t channel, const void *data, int64_t bytes,
                                    uint64_t *mark, char *error)
{
    MPI_Request request = MPI_REQUEST_NULL;
    const int rc = MPI_Isend(data, (int)bytes, MPI_BYTE, peer, channel, ((const ps_mpi_group *)user)->comm, &request);
    memcpy(mark, &request, sizeof request);
    return ps_mpi_failed(rc, "MPI_Isend", error);
}

static inline int ps_mpi_receive_begin(void *user, int32_t peer, int32_t channel, void *data, int64_t bytes,
                                       uint64_t *mark, char *error)
{
    MPI_Request request = MPI_REQUEST_NULL;
    const int rc = MPI_Irecv(data, (int)bytes, MPI_BYTE, peer, channel, ((const ps_mpi_group *)user)->comm, &request);
    memcpy(mark, &request, sizeof request);
    return ps_mpi_failed(rc, "MPI_Irecv", error);
}

static inline int ps_mpi_test(void *user, uint64_t *mark, int64_t bytes, int32_t *is_done, char *error)
{
    MPI_Request request;
    MPI_Status status;
    int flag = 0, n = 0;
    (void)user;
    memcpy(&request, mark, sizeof request);
    if (ps_mpi_failed(MPI_Test(&request, &flag, &status), "MPI_Test", error)) return 1;
    memcpy(mark, &request, sizeof request);
    *is_done = flag != 0;
    if (!flag || bytes == 0) return 0;
    if (ps_mpi_failed(MPI_Get_count(&status, MPI_BYTE, &n), "MPI_Get_count", error)) return 1;
    if (n == bytes) return 0;
    snprintf(error, PS_MESSAGE_ERROR_BYTES, "a message of %d bytes met a receive of %lld", n, (long long)bytes);
    return 1;
}

/* After a failure MPI_Comm_free might wait for ever for a rank that is gone. */
static inline void ps_mpi_close(void *user, int32_t is_orderly)
{
    ps_mpi_group *g = (ps_mpi_group *)user;
    if (g != NULL && is_orderly) MPI_Comm_free(&g->comm);
    free(g);
}

/* "mpi (Open MPI v4.1.4)": up to the first comma of what the library says of itself. */
static inline void ps_mpi_name(char name[96])
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    if (MPI_Get_library_version(version, &length) != MPI_SUCCESS) version[0] = '\0';
    version[strcspn(version, ",\r\n")] = '\0';
    snprintf(name, 96, "mpi (%.80s)", version);
}

/* NULL; or why messages cannot go by this MPI as it is. */
static inline const char *ps_mpi_trouble(void)
{
    int is_initialized = 0, is_finalized = 0, level = MPI_THREAD_SINGLE;
    MPI_Initialized(&is_initialized);
    MPI_Finalized(&is_finalized);
    if (!is_initialized || is_finalized)
        return "ps_comm_meet_mpi: MPI is not initialised: call it between MPI_Init_thread and MPI_Finalize";
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_MULTIPLE)
        return "ps_comm_meet_mpi: a thread of this library uses MPI too: initialise it by MPI_Init_thread with "
               "MPI_THREAD_MULTIPLE, and see that it gives that level";
    if (sizeof(MPI_Request) > sizeof(uint64_t)) return "ps_comm_meet_mpi: requests of this MPI have more than 8 bytes";
    return NULL;
}

/* The ranks of an MPI communicator, all of which call, with numbers as it has them. It is duplicated, and may be freed.
 * Close before MPI_Finalize. After a failure of another rank (PS_ECOMM) MPI itself may be of no use. PS_EINVAL when
 * MPI is not initialised with MPI_THREAD_MULTIPLE, or comm is MPI_COMM_NULL; else as ps_comm_meet. */
static inline ps_status ps_comm_meet_mpi(const ps_config *config, MPI_Comm comm, ps_comm **out)
{
    char name[96] = "mpi", error[PS_MESSAGE_ERROR_BYTES] = "";
    ps_messages m;
    memset(&m, 0, sizeof m);
    m.struct_size = sizeof m;
    m.size = 1;
    m.name = name;
    m.trouble = ps_mpi_trouble();
    if (m.trouble == NULL && comm == MPI_COMM_NULL)
        m.trouble =
            "ps_comm_meet_mpi: the communicator is MPI_COMM_NULL: this process is no rank of it, and does not call";
    m.send_begin = ps_mpi_send_begin;
    m.receive_begin = ps_mpi_receive_begin;
    m.test = ps_mpi_test;
    m.close = ps_mpi_close;
    ps_mpi_group *g = m.trouble == NULL ? (ps_mpi_group *)calloc(1, sizeof *g) : NULL;
    m.user = g;
    if (m.trouble == NULL && g == NULL) m.trouble = "host memory exhausted";
    if (m.trouble == NULL) {
        int rank = 0, size = 0;
        ps_mpi_name(name);
        if (ps_mpi_failed(MPI_Comm_dup(comm, &g->comm), "MPI_Comm_dup", error) ||
            ps_mpi_failed(MPI_Comm_set_errhandler(g->comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler", error) ||
            ps_mpi_failed(MPI_Comm_rank(g->comm, &rank), "MPI_Comm_rank", error) ||
            ps_mpi_failed(MPI_Comm_size(g->comm, &size), "MPI_Comm_size", error))
            m.trouble = error;
        m.rank = rank;
        m.size = size;
    }
    return ps_comm_meet_by(config, &m, out);
}

#endif
