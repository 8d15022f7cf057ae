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

/* A message under way, in memory of its own behind it: after a failure MPI may be at it when engines, communicator and
 * their memory are gone. */
typedef struct ps_mpi_message {
    struct ps_mpi_message *next;
    MPI_Request request;
    void *data; /* where a receive goes once it is there; NULL: a send */
} ps_mpi_message;

/* Our own duplicate: no message of the program's can meet ours. */
typedef struct ps_mpi_group {
    MPI_Comm comm;
    ps_mpi_message *open;
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

static inline ps_mpi_message *ps_mpi_message_new(ps_mpi_group *g, int64_t bytes, void *data, uint64_t *mark,
                                                 char *error)
{
    ps_mpi_message *m = (ps_mpi_message *)malloc(sizeof *m + (size_t)bytes);
    if (m == NULL) {
        snprintf(error, PS_MESSAGE_ERROR_BYTES, "host memory exhausted");
        return NULL;
    }
    m->next = g->open;
    m->request = MPI_REQUEST_NULL;
    m->data = data;
    g->open = m;
    *mark = (uint64_t)(uintptr_t)m;
    return m;
}

/* MPI is not at it any more. */
static inline void ps_mpi_message_free(ps_mpi_group *g, ps_mpi_message *m)
{
    ps_mpi_message **at = &g->open;
    while (*at != m) at = &(*at)->next;
    *at = m->next;
    free(m);
}

static inline int ps_mpi_send_begin(void *user, int32_t peer, int32_t channel, const void *data, int64_t bytes,
                                    uint64_t *mark, char *error)
{
    ps_mpi_group *g = (ps_mpi_group *)user;
    ps_mpi_message *m = ps_mpi_message_new(g, bytes, NULL, mark, error);
    if (m == NULL) return 1;
    memcpy(m + 1, data, (size_t)bytes);
    return ps_mpi_failed(MPI_Isend(m + 1, (int)bytes, MPI_BYTE, peer, channel, g->comm, &m->request), "MPI_Isend",
                         error);
}

static inline int ps_mpi_receive_begin(void *user, int32_t peer, int32_t channel, void *data, int64_t bytes,
                                       uint64_t *mark, char *error)
{
    ps_mpi_group *g = (ps_mpi_group *)user;
    ps_mpi_message *m = ps_mpi_message_new(g, bytes, data, mark, error);
    if (m == NULL) return 1;
    return ps_mpi_failed(MPI_Irecv(m + 1, (int)bytes, MPI_BYTE, peer, channel, g->comm, &m->request), "MPI_Irecv",
                         error);
}

static inline int ps_mpi_test(void *user, uint64_t *mark, int64_t bytes, int32_t *is_done, char *error)
{
    ps_mpi_message *m = (ps_mpi_message *)(uintptr_t)*mark;
    MPI_Status status;
    int flag = 0, n = 0;
    if (ps_mpi_failed(MPI_Test(&m->request, &flag, &status), "MPI_Test", error)) return 1;
    *is_done = flag != 0;
    if (!flag) return 0;
    int failed = bytes > 0 && ps_mpi_failed(MPI_Get_count(&status, MPI_BYTE, &n), "MPI_Get_count", error);
    if (!failed && n != bytes) {
        snprintf(error, PS_MESSAGE_ERROR_BYTES, "a message of %d bytes met a receive of %lld", n, (long long)bytes);
        failed = 1;
    }
    if (!failed && bytes > 0) memcpy(m->data, m + 1, (size_t)bytes);
    ps_mpi_message_free((ps_mpi_group *)user, m);
    return failed;
}

/* What ends within 0.2 s; receives are cancelled. The rest waits for a rank that is gone: its memory is left to MPI. */
static inline void ps_mpi_end_open(ps_mpi_group *g)
{
    int is_finalized = 0;
    MPI_Finalized(&is_finalized);
    if (is_finalized) return;
    for (ps_mpi_message *m = g->open; m != NULL; m = m->next)
        if (m->data != NULL && m->request != MPI_REQUEST_NULL) MPI_Cancel(&m->request);
    const double begin_s = MPI_Wtime();
    while (g->open != NULL && MPI_Wtime() - begin_s < 0.2)
        for (ps_mpi_message *m = g->open, *next; m != NULL; m = next) {
            int flag = 0;
            next = m->next;
            if (MPI_Test(&m->request, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS && flag) ps_mpi_message_free(g, m);
        }
}

/* After a failure MPI_Comm_free might wait for ever for a rank that is gone. */
static inline void ps_mpi_close(void *user, int32_t is_orderly)
{
    ps_mpi_group *g = (ps_mpi_group *)user;
    if (g == NULL) return;
    if (is_orderly)
        MPI_Comm_free(&g->comm);
    else
        ps_mpi_end_open(g);
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
    return NULL;
}

/* The ranks of an MPI communicator, all of which call, with numbers as it has them. It is duplicated, and may be freed.
 * Close before MPI_Finalize. After a failure of another rank (PS_ECOMM) MPI itself may be of no use; messages that
 * cannot be ended then, keep at most 1 MiB each, which are never given back, and write nowhere else. PS_EINVAL when
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
