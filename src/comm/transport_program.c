#include "comm/transport_program.h"

#include <stdatomic.h>
#include <stdio.h>

#include "base/base.h"
#include "base/mem.h"

_Static_assert(sizeof(((ps_transport *)NULL)->error) >= PS_MESSAGE_ERROR_BYTES, "the program writes there");

typedef struct program {
    ps_messages messages;
    atomic_bool is_closed;
    atomic_int n_holders;
} program;

static void let_go(program *p)
{
    if (atomic_fetch_sub(&p->n_holders, 1) == 1) ps_mem_free(p);
}

static void close_once(program *p, bool is_orderly)
{
    if (!atomic_exchange(&p->is_closed, true)) p->messages.close(p->messages.user, is_orderly);
}

static bool open_nothing(ps_transport *t)
{
    (void)t; /* the program has */
    return true;
}

/* A function that says nothing of why leaves a text of ours. */
static bool check(ps_transport *t, const char *call, int rc)
{
    if (rc == 0) return true;
    if (t->error[0] == '\0') snprintf(t->error, sizeof t->error, "%s failed with %d", call, rc);
    return false;
}

static bool send_begin(ps_transport *t, int32_t peer, ps_channel channel, const void *buffer, int64_t bytes,
                       ps_request *out)
{
    const program *p = t->self;
    *out = (ps_request){0};
    return check(t, "send_begin",
                 p->messages.send_begin(p->messages.user, peer, (int32_t)channel, buffer, bytes, &out->mark, t->error));
}

static bool recv_begin(ps_transport *t, int32_t peer, ps_channel channel, void *buffer, int64_t bytes, ps_request *out)
{
    const program *p = t->self;
    *out = (ps_request){.bytes = bytes};
    return check(
        t, "receive_begin",
        p->messages.receive_begin(p->messages.user, peer, (int32_t)channel, buffer, bytes, &out->mark, t->error));
}

static bool test(ps_transport *t, ps_request *request, bool *is_done)
{
    const program *p = t->self;
    int32_t done = 0;
    const int rc = p->messages.test(p->messages.user, &request->mark, request->bytes, &done, t->error);
    *is_done = rc == 0 && done != 0;
    return check(t, "test", rc);
}

static void close_program(ps_transport *t, bool is_orderly)
{
    program *p = t->self;
    t->self = NULL;
    close_once(p, is_orderly);
    let_go(p);
}

static const ps_transport_ops program_ops = {.abi = PS_TRANSPORT_ABI,
                                             .open = open_nothing,
                                             .send_begin = send_begin,
                                             .recv_begin = recv_begin,
                                             .test = test,
                                             .close = close_program};

static ps_status check_messages(const ps_messages *m)
{
    if (m->trouble != NULL) return PS_FAIL(PS_EINVAL, "%s", m->trouble);
    if (m->size < 1 || m->rank < 0 || m->rank >= m->size)
        return PS_FAIL(PS_EINVAL, "ps_messages: rank %d of %d", m->rank, m->size);
    if (m->send_begin != NULL && m->receive_begin != NULL && m->test != NULL) return PS_OK;
    return PS_FAIL(PS_EINVAL, "ps_messages: send_begin, receive_begin and test are needed");
}

ps_status ps_transport_program_make(const ps_messages *m, ps_transport *out)
{
    program *p = NULL;
    *out = (ps_transport){0};
    if (m->close == NULL) return PS_FAIL(PS_EINVAL, "ps_messages: close is needed");
    ps_status st = check_messages(m);
    if (st == PS_OK) st = ps_mem_alloc(1, sizeof *p, &p);
    if (st != PS_OK) {
        m->close(m->user, false);
        return st;
    }
    p->messages = *m;
    atomic_init(&p->n_holders, 2);
    *out = (ps_transport){.ops = &program_ops, .self = p, .rank = m->rank, .size = m->size};
    snprintf(out->name, sizeof out->name, "%s", m->name != NULL ? m->name : "messages of the program");
    return PS_OK;
}

void ps_transport_program_release(const ps_transport *t, bool is_failed)
{
    program *p = t->self;
    if (is_failed && !atomic_load(&p->is_closed)) {
        close_once(p, false);
        let_go(p); /* for the transport */
    }
    let_go(p);
}
