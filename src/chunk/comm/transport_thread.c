/* transport_thread.c - mailboxes: for each ordered pair of ranks and each channel a queue of sends that wait for a
 * receive, or of receives that wait for a send. The second of a pair copies and marks both as done. */
#include "chunk/comm/transport_thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/mem.h"

typedef enum post_state { POST_WAITS, POST_DONE, POST_MISFIT } post_state;

typedef struct mailbox mailbox;

/* One end of a message: a send or a receive. Freed by the rank that created it. */
typedef struct post {
    struct post *next;                /* in the mailbox */
    struct post *own_prev, *own_next; /* of the same rank */
    mailbox *box;
    void *buffer;
    int64_t bytes;
    int64_t other_bytes; /* of the matching end */
    bool is_send;
    atomic_int state;
} post;

struct mailbox {
    pthread_mutex_t lock; /* guards the posts in it, and their copies */
    post *first, *last;   /* sends only, or receives only */
};

struct ps_thread_hub {
    int32_t size;
    atomic_int n_holders;
    mailbox *boxes; /* [from][to][channel] */
};

typedef struct thread_rank {
    ps_thread_hub *hub;
    post *own; /* not yet tested as done */
} thread_rank;

ps_status ps_thread_hub_create(int32_t size, ps_thread_hub **out)
{
    *out = NULL;
    ps_thread_hub *hub = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *hub, &hub));
    const size_t n_boxes = (size_t)size * (size_t)size * PS_CHANNEL_COUNT;
    const ps_status st = ps_mem_alloc(n_boxes, sizeof *hub->boxes, &hub->boxes);
    if (st != PS_OK) {
        ps_mem_free(hub);
        return st;
    }
    hub->size = size;
    atomic_init(&hub->n_holders, 1);
    for (size_t i = 0; i < n_boxes; i++) pthread_mutex_init(&hub->boxes[i].lock, NULL);
    *out = hub;
    return PS_OK;
}

void ps_thread_hub_release(ps_thread_hub *hub)
{
    if (hub == NULL || atomic_fetch_sub(&hub->n_holders, 1) != 1) return;
    const size_t n_boxes = (size_t)hub->size * (size_t)hub->size * PS_CHANNEL_COUNT;
    for (size_t i = 0; i < n_boxes; i++) pthread_mutex_destroy(&hub->boxes[i].lock);
    ps_mem_free(hub->boxes);
    ps_mem_free(hub);
}

ps_status ps_thread_hub_attach(ps_thread_hub *hub, int32_t rank, ps_transport *out)
{
    thread_rank *r = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *r, &r));
    r->hub = hub;
    atomic_fetch_add(&hub->n_holders, 1);
    *out = (ps_transport){.ops = &ps_transport_thread_ops, .self = r, .rank = rank, .size = hub->size};
    snprintf(out->name, sizeof out->name, "thread");
    return PS_OK;
}

static bool open_rank(ps_transport *t)
{
    (void)t;
    return true;
}

/* The lock is held. */
static void match_posts(post *send, post *receive)
{
    const post_state state = send->bytes == receive->bytes ? POST_DONE : POST_MISFIT;
    if (state == POST_DONE) memcpy(receive->buffer, send->buffer, (size_t)send->bytes);
    send->other_bytes = receive->bytes;
    receive->other_bytes = send->bytes;
    atomic_store_explicit(&send->state, state, memory_order_release);
    atomic_store_explicit(&receive->state, state, memory_order_release);
}

static bool post_begin(ps_transport *t, int32_t from, int32_t to, ps_channel channel, post *p, ps_request *out)
{
    thread_rank *r = t->self;
    mailbox *box = &r->hub->boxes[((size_t)from * (size_t)r->hub->size + (size_t)to) * PS_CHANNEL_COUNT + channel];
    p->box = box;
    p->own_next = r->own;
    if (r->own != NULL) r->own->own_prev = p;
    r->own = p;
    pthread_mutex_lock(&box->lock);
    post *other = box->first;
    if (other != NULL && other->is_send != p->is_send) {
        box->first = other->next;
        if (p->is_send)
            match_posts(p, other);
        else
            match_posts(other, p);
    } else {
        if (other != NULL)
            box->last->next = p;
        else
            box->first = p;
        box->last = p;
    }
    pthread_mutex_unlock(&box->lock);
    *out = (ps_request){.mark = (uintptr_t)p};
    return true;
}

static post *post_create(ps_transport *t, void *buffer, int64_t bytes, bool is_send)
{
    post *p = NULL;
    if (ps_mem_alloc(1, sizeof *p, &p) != PS_OK) {
        snprintf(t->error, sizeof t->error, "%s", ps_last_error());
        return NULL;
    }
    p->buffer = buffer;
    p->bytes = bytes;
    p->is_send = is_send;
    atomic_init(&p->state, POST_WAITS);
    return p;
}

static void post_destroy(thread_rank *r, post *p)
{
    if (p->own_prev != NULL)
        p->own_prev->own_next = p->own_next;
    else
        r->own = p->own_next;
    if (p->own_next != NULL) p->own_next->own_prev = p->own_prev;
    ps_mem_free(p);
}

static bool begin_send(ps_transport *t, int32_t peer, ps_channel channel, const void *buffer, int64_t bytes,
                       ps_request *out)
{
    union {
        const void *given;
        void *kept; /* a send only reads it */
    } b = {.given = buffer};
    post *p = post_create(t, b.kept, bytes, true);
    return p != NULL && post_begin(t, t->rank, peer, channel, p, out);
}

static bool begin_receive(ps_transport *t, int32_t peer, ps_channel channel, void *buffer, int64_t bytes,
                          ps_request *out)
{
    post *p = post_create(t, buffer, bytes, false);
    return p != NULL && post_begin(t, peer, t->rank, channel, p, out);
}

static bool test_post(ps_transport *t, ps_request *request, bool *is_done)
{
    post *p = (post *)(uintptr_t)request->mark;
    const int state = atomic_load_explicit(&p->state, memory_order_acquire);
    *is_done = state == POST_DONE;
    if (state == POST_MISFIT) {
        snprintf(t->error, sizeof t->error, "a message of %lld bytes matches a receive of %lld",
                 (long long)(p->is_send ? p->bytes : p->other_bytes),
                 (long long)(p->is_send ? p->other_bytes : p->bytes));
        return false;
    }
    if (*is_done) post_destroy(t->self, p);
    return true;
}

/* A waiting post leaves its mailbox; a matched one is out of it already. */
static void post_withdraw(post *p)
{
    mailbox *box = p->box;
    pthread_mutex_lock(&box->lock);
    post *before = NULL, *i = box->first;
    while (i != NULL && i != p) {
        before = i;
        i = i->next;
    }
    if (i != NULL) {
        if (before != NULL)
            before->next = p->next;
        else
            box->first = p->next;
        if (box->last == p) box->last = before;
    }
    pthread_mutex_unlock(&box->lock);
}

static void close_rank(ps_transport *t, bool is_orderly)
{
    (void)is_orderly; /* no need to wait: shared state stays until the last has closed */
    thread_rank *r = t->self;
    while (r->own != NULL) {
        post_withdraw(r->own);
        post_destroy(r, r->own);
    }
    ps_thread_hub_release(r->hub);
    ps_mem_free(r);
    t->self = NULL;
}

const ps_transport_ops ps_transport_thread_ops = {.abi = PS_TRANSPORT_ABI,
                                                  .open = open_rank,
                                                  .send_begin = begin_send,
                                                  .recv_begin = begin_receive,
                                                  .test = test_post,
                                                  .close = close_rank};
