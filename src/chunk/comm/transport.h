/* transport.h - the communicator's interface to back ends: messages from one rank to another. All collectives are built
 * on it, once.
 *
 * One thread, always the same, makes all calls of a transport, open and close included. Messages of a channel from one
 * rank to another arrive in the order in which they were sent, and match the receives in the order in which these were
 * begun; each receive is for the exact size of its message.
 *
 * Back ends: threads of a process (transport_thread.c); MPI, a plug-in (mpi/), loaded by transport_mpi.c; a process
 * group of the program (rounds.h). A plug-in is
 * compiled separately from the library and can call nothing of it: errors are text in the structure, and the table has
 * a version. */
#ifndef PS_COMM_TRANSPORT_H
#define PS_COMM_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>

/* To be incremented with every change of this header: a plug-in of another version is refused. */
#define PS_TRANSPORT_ABI 1
/* The variable of type ps_transport_ops that a plug-in exports. */
#define PS_TRANSPORT_SYMBOL "ps_transport_plugin"

typedef enum ps_channel { PS_CHANNEL_DATA, PS_CHANNEL_CONTROL, PS_CHANNEL_COUNT } ps_channel;

/* A message in flight; owned by the transport. */
typedef struct ps_request {
    uint64_t mark;
    int64_t bytes; /* of a receive; a send: 0 */
} ps_request;

typedef struct ps_transport ps_transport;

/* All but close return false when the transport failed, with the reason in t->error. After a failure the other calls
 * may still be tried, to notify other ranks, before it is closed. */
typedef struct ps_transport_ops {
    int32_t abi;
    /* Rendezvous with the other ranks; fills in rank, size and name. When it fails there is nothing to close. */
    bool (*open)(ps_transport *t);
    /* Return at once; the buffer must stay valid until test reports done. 0 < bytes < 2^31. */
    bool (*send_begin)(ps_transport *t, int32_t peer, ps_channel channel, const void *buffer, int64_t bytes,
                       ps_request *out);
    bool (*recv_begin)(ps_transport *t, int32_t peer, ps_channel channel, void *buffer, int64_t bytes, ps_request *out);
    /* A done request is freed. Also progresses other messages. */
    bool (*test)(ps_transport *t, ps_request *request, bool *is_done);
    /* Afterwards no buffer is accessed. is_orderly: all requests are done and every rank closes; waits for them.
     * Otherwise it returns at once, without notifying the others. */
    void (*close)(ps_transport *t, bool is_orderly);
} ps_transport_ops;

struct ps_transport {
    const ps_transport_ops *ops;
    void *self; /* state of the back end */
    int32_t rank, size;
    char name[96]; /* "thread", "mpi (Open MPI v4.1.4)" */
    char error[256];
};

#endif
