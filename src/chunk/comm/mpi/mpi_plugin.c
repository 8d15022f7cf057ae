/* mpi_plugin.c - messages by MPI 3.1: compiled once with each MPI's compiler, loaded by transport_mpi.c. Uses nothing
 * of the library.
 *
 * One thread makes all calls, MPI_Init_thread and MPI_Finalize among them, so MPI_THREAD_FUNNELED is enough. A program
 * that uses MPI has initialised it before; then two threads call MPI, which must be MPI_THREAD_MULTIPLE, and the
 * program finalises it. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunk/comm/transport.h"

_Static_assert(sizeof(MPI_Request) <= sizeof(uint64_t), "ps_request.mark holds an MPI_Request");

/* Where the program owns MPI: a message in flight, in a separate allocation, as MPI may access it after a failure when
 * the library's memory is freed. */
typedef struct mpi_message {
    struct mpi_message *next;
    MPI_Request request;
    void *data; /* destination of a receive; NULL: a send */
    _Alignas(64) char content[];
} mpi_message;

typedef struct mpi_world {
    MPI_Comm comm;     /* a duplicate: separate from the program's messages */
    bool is_owner;     /* of MPI: finalises it, and MPI is not called after close */
    mpi_message *open; /* not is_owner */
} mpi_world;

/* True when rc is success. */
static bool mpi_check(ps_transport *t, const char *call, int rc)
{
    if (rc == MPI_SUCCESS) return true;
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length;
    MPI_Error_string(rc, text, &length);
    snprintf(t->error, sizeof t->error, "%s: %.200s", call, text);
    return false;
}

static bool mpi_refuse(ps_transport *t, const char *text)
{
    snprintf(t->error, sizeof t->error, "%s", text);
    return false;
}

static bool mpi_start(ps_transport *t, bool *is_owner)
{
    int is_initialized, is_finalized, level;
    if (!mpi_check(t, "MPI_Initialized", MPI_Initialized(&is_initialized)) ||
        !mpi_check(t, "MPI_Finalized", MPI_Finalized(&is_finalized)))
        return false;
    *is_owner = !is_initialized;
    if (is_finalized)
        return mpi_refuse(t, "MPI cannot be started a second time in a process: open the communicator once");
    if (is_initialized) {
        if (!mpi_check(t, "MPI_Query_thread", MPI_Query_thread(&level))) return false;
        if (level < MPI_THREAD_MULTIPLE)
            return mpi_refuse(t, "the program has initialised MPI itself: it must do so with MPI_Init_thread and "
                                 "MPI_THREAD_MULTIPLE, because a thread of this library uses MPI too");
        return true;
    }
    if (!mpi_check(t, "MPI_Init_thread", MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level))) return false;
    if (level < MPI_THREAD_FUNNELED)
        return mpi_refuse(t, "this MPI has no MPI_THREAD_FUNNELED: it cannot be called by a thread");
    return true;
}

/* "mpi (Open MPI v4.1.4)", "mpi (MPICH 4.0.2)": the first words of the library's version string. */
static void mpi_set_name(ps_transport *t)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length;
    if (MPI_Get_library_version(version, &length) != MPI_SUCCESS) version[0] = '\0';
    version[strcspn(version, ",\r\n")] = '\0';
    char *number = strstr(version, " Version:");
    if (number != NULL) {
        const char *rest = number + strlen(" Version:");
        rest += strspn(rest, " \t");
        memmove(number + 1, rest, strlen(rest) + 1);
    }
    snprintf(t->name, sizeof t->name, "mpi (%.80s)", version[0] != '\0' ? version : "unknown library");
}

static bool mpi_open(ps_transport *t)
{
    mpi_world *w = calloc(1, sizeof *w); /* base/mem.h is not available here */
    if (w == NULL) return mpi_refuse(t, "host memory exhausted");
    int rank = 0, size = 0;
    const bool is_open = mpi_start(t, &w->is_owner) &&
                         mpi_check(t, "MPI_Comm_dup", MPI_Comm_dup(MPI_COMM_WORLD, &w->comm)) &&
                         mpi_check(t, "MPI_Comm_set_errhandler", MPI_Comm_set_errhandler(w->comm, MPI_ERRORS_RETURN)) &&
                         mpi_check(t, "MPI_Comm_rank", MPI_Comm_rank(w->comm, &rank)) &&
                         mpi_check(t, "MPI_Comm_size", MPI_Comm_size(w->comm, &size));
    if (!is_open) {
        free(w);
        return false;
    }
    t->self = w;
    t->rank = rank;
    t->size = size;
    mpi_set_name(t);
    return true;
}

/* NULL: no memory. */
static mpi_message *message_new(ps_transport *t, int64_t bytes, void *data, ps_request *out)
{
    mpi_world *w = t->self;
    mpi_message *m = aligned_alloc(64, (sizeof *m + (size_t)bytes + 63) / 64 * 64);
    if (m == NULL) {
        mpi_refuse(t, "host memory exhausted");
        return NULL;
    }
    *m = (mpi_message){.next = w->open, .request = MPI_REQUEST_NULL, .data = data};
    w->open = m;
    out->mark = (uint64_t)(uintptr_t)m;
    return m;
}

static void message_free(mpi_world *w, mpi_message *m)
{
    mpi_message **at = &w->open;
    while (*at != m) at = &(*at)->next;
    *at = m->next;
    free(m);
}

static bool mpi_send_begin(ps_transport *t, int32_t peer, ps_channel channel, const void *buffer, int64_t bytes,
                           ps_request *out)
{
    const mpi_world *w = t->self;
    MPI_Request request = MPI_REQUEST_NULL;
    mpi_message *m = NULL;
    *out = (ps_request){0};
    if (!w->is_owner) {
        m = message_new(t, bytes, NULL, out);
        if (m == NULL) return false;
        buffer = memcpy(m->content, buffer, (size_t)bytes);
    }
    if (!mpi_check(
            t, "MPI_Isend",
            MPI_Isend(buffer, (int)bytes, MPI_BYTE, peer, (int)channel, w->comm, m != NULL ? &m->request : &request)))
        return false;
    if (m == NULL) memcpy(&out->mark, &request, sizeof request);
    return true;
}

static bool mpi_recv_begin(ps_transport *t, int32_t peer, ps_channel channel, void *buffer, int64_t bytes,
                           ps_request *out)
{
    const mpi_world *w = t->self;
    MPI_Request request = MPI_REQUEST_NULL;
    mpi_message *m = NULL;
    *out = (ps_request){.bytes = bytes};
    if (!w->is_owner) {
        m = message_new(t, bytes, buffer, out);
        if (m == NULL) return false;
        buffer = m->content;
    }
    if (!mpi_check(
            t, "MPI_Irecv",
            MPI_Irecv(buffer, (int)bytes, MPI_BYTE, peer, (int)channel, w->comm, m != NULL ? &m->request : &request)))
        return false;
    if (m == NULL) memcpy(&out->mark, &request, sizeof request);
    return true;
}

/* A receive that has arrived completely. */
static bool take_count(ps_transport *t, const ps_request *r, const MPI_Status *status)
{
    int bytes = 0;
    if (r->bytes == 0) return true;
    if (!mpi_check(t, "MPI_Get_count", MPI_Get_count(status, MPI_BYTE, &bytes))) return false;
    if (bytes == r->bytes) return true;
    snprintf(t->error, sizeof t->error, "a message of %d bytes matches a receive of %lld", bytes, (long long)r->bytes);
    return false;
}

static bool mpi_test(ps_transport *t, ps_request *r, bool *is_done)
{
    mpi_world *w = t->self;
    mpi_message *m = w->is_owner ? NULL : (mpi_message *)(uintptr_t)r->mark;
    MPI_Request request;
    MPI_Status status;
    int flag = 0;
    memcpy(&request, &r->mark, sizeof request);
    *is_done = false;
    if (!mpi_check(t, "MPI_Test", MPI_Test(m != NULL ? &m->request : &request, &flag, &status))) return false;
    if (!flag) return true;
    *is_done = true;
    const bool is_whole = take_count(t, r, &status);
    if (m == NULL) return is_whole;
    if (is_whole && r->bytes > 0) memcpy(m->data, m->content, (size_t)r->bytes);
    message_free(w, m);
    return is_whole;
}

/* Completes messages within 0.2 s; receives are cancelled. The rest waits for a lost rank: its memory is leaked to
 * MPI. */
static void end_open(mpi_world *w)
{
    int is_finalized = 0;
    if (MPI_Finalized(&is_finalized) != MPI_SUCCESS || is_finalized) return;
    for (mpi_message *m = w->open; m != NULL; m = m->next)
        if (m->data != NULL && m->request != MPI_REQUEST_NULL) MPI_Cancel(&m->request);
    const double begin_s = MPI_Wtime();
    while (w->open != NULL && MPI_Wtime() - begin_s < 0.2)
        for (mpi_message *m = w->open, *next; m != NULL; m = next) {
            int flag = 0;
            next = m->next;
            if (MPI_Test(&m->request, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS && flag) message_free(w, m);
        }
}

/* After a failure MPI_Finalize may wait for ever for a lost rank, and MPI_Abort would end the program before it has
 * reported the reason. So MPI is not finalised: when the process ends with a status other than 0, the launcher ends the
 * others. Only a program that owns MPI calls it afterwards, which may then still progress our messages. */
static void mpi_close(ps_transport *t, bool is_orderly)
{
    mpi_world *w = t->self;
    t->self = NULL;
    if (is_orderly) {
        MPI_Comm_free(&w->comm);
        if (w->is_owner) MPI_Finalize();
    } else if (!w->is_owner) {
        end_open(w);
    }
    free(w);
}

extern const ps_transport_ops ps_transport_plugin __attribute__((visibility("default")));
const ps_transport_ops ps_transport_plugin = {.abi = PS_TRANSPORT_ABI,
                                              .open = mpi_open,
                                              .send_begin = mpi_send_begin,
                                              .recv_begin = mpi_recv_begin,
                                              .test = mpi_test,
                                              .close = mpi_close};
