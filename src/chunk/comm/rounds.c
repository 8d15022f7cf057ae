#include "chunk/comm/rounds.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/mem.h"

_Static_assert(sizeof(((ps_transport *)NULL)->error) >= PS_MESSAGE_ERROR_BYTES, "the program writes there");

enum {
    PARTS_BYTES = 4 << 20,    /* of all parts of a round together, */
    PART_BYTES_MIN = 1 << 12, /* but at least this much for each */
};

/* Sent by each rank to each other before the parts. */
typedef struct head {
    int64_t part_bytes; /* that follow for the receiver */
    int32_t has_parts;  /* for any rank */
    int32_t closes;
} head;

typedef struct frame {
    int32_t channel, unused;
    int64_t bytes;
} frame;

/* A message to be sent, one to be received, or one that arrived before its receive. */
typedef struct message {
    struct message *next;
    char *data;
    int64_t bytes, n_moved;
    int32_t peer, channel;
    bool has_begun; /* its frame's header is sent */
    char content[]; /* of a message that arrived early: data points here */
} message;

/* Lists with the oldest first. */
typedef struct peer {
    message *out;
    message *wanted[PS_CHANNEL_COUNT], *arrived[PS_CHANNEL_COUNT];
    message *arriving; /* the last of its list, to which the next bytes belong; NULL: a frame header is next */
} peer;

typedef struct rounds {
    ps_process_group by;
    atomic_bool is_closed;
    atomic_int n_holders; /* the transport, and its creator */
    bool is_broken, has_begun;
    int64_t part_bytes_max;
    int64_t *send_bytes, *receive_bytes;
    head *heads_out, *heads_in;
    char *parts_out, *parts_in;
    message *sent; /* sent completely, but not tested yet */
    peer peers[];
} rounds;

static void append(message **list, message *m)
{
    while (*list != NULL) list = &(*list)->next;
    m->next = NULL;
    *list = m;
}

static bool take_from(message **list, const message *m)
{
    while (*list != NULL && *list != m) list = &(*list)->next;
    if (*list == NULL) return false;
    *list = m->next;
    return true;
}

static void free_list(message *list)
{
    while (list != NULL) {
        message *next = list->next;
        ps_mem_free(list);
        list = next;
    }
}

__attribute__((format(printf, 3, 4))) static int fail(rounds *r, char *error, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(error, PS_MESSAGE_ERROR_BYTES, format, ap);
    va_end(ap);
    r->is_broken = true;
    return 1;
}

/* ---- a part ---- */

/* The next bytes for the peer, at most part_bytes_max; a frame's header is never split. */
static int64_t pack(rounds *r, peer *p, char *part)
{
    int64_t n = 0;
    while (p->out != NULL) {
        message *m = p->out;
        if (!m->has_begun) {
            const frame f = {.channel = m->channel, .bytes = m->bytes};
            if (r->part_bytes_max - n < (int64_t)sizeof f) break;
            memcpy(part + n, &f, sizeof f);
            n += (int64_t)sizeof f;
            m->has_begun = true;
        }
        const int64_t more = ps_min_i64(m->bytes - m->n_moved, r->part_bytes_max - n);
        memcpy(part + n, m->data + m->n_moved, (size_t)more);
        n += more;
        m->n_moved += more;
        if (m->n_moved < m->bytes) break;
        p->out = m->next;
        append(&r->sent, m);
    }
    return n;
}

static int begin_letter(rounds *r, peer *p, const frame *f, char *error)
{
    message *m = NULL;
    if (f->channel < 0 || f->channel >= PS_CHANNEL_COUNT || f->bytes < 1 || f->bytes > INT32_MAX)
        return fail(r, error, "a part begins with no message: parts do not arrive as they are sent");
    if (ps_mem_alloc(1, sizeof *m + (size_t)f->bytes, &m) != PS_OK)
        return fail(r, error, "no memory for a message of %lld bytes", (long long)f->bytes);
    m->data = m->content;
    m->bytes = f->bytes;
    append(&p->arrived[f->channel], m);
    p->arriving = m;
    return 0;
}

static int unpack(rounds *r, peer *p, const char *part, int64_t bytes, char *error)
{
    for (int64_t n = 0; n < bytes;) {
        if (p->arriving == NULL) {
            frame f;
            if (bytes - n < (int64_t)sizeof f) return fail(r, error, "a part ends within the head of a message");
            memcpy(&f, part + n, sizeof f);
            n += (int64_t)sizeof f;
            if (begin_letter(r, p, &f, error) != 0) return 1;
        }
        message *m = p->arriving;
        const int64_t more = ps_min_i64(m->bytes - m->n_moved, bytes - n);
        memcpy(m->data + m->n_moved, part + n, (size_t)more);
        m->n_moved += more;
        n += more;
        if (m->n_moved == m->bytes) p->arriving = NULL;
    }
    return 0;
}

/* ---- a round ---- */

static int all_to_all(rounds *r, const void *send, void *receive, char *error)
{
    error[0] = '\0';
    const int rc = r->by.all_to_all(r->by.user, send, r->send_bytes, receive, r->receive_bytes, error);
    if (rc == 0) return 0;
    r->is_broken = true;
    if (error[0] == '\0') snprintf(error, PS_MESSAGE_ERROR_BYTES, "all_to_all failed with %d", rc);
    return rc;
}

/* *has_parts: some rank has data; *all_close: all ranks close. */
static int exchange_heads(rounds *r, bool *has_parts, bool *all_close, char *error)
{
    for (int32_t i = 0; i < r->by.size; i++) r->send_bytes[i] = r->receive_bytes[i] = (int64_t)sizeof(head);
    if (all_to_all(r, r->heads_out, r->heads_in, error) != 0) return 1;
    *has_parts = false;
    *all_close = true;
    for (int32_t i = 0; i < r->by.size; i++) {
        const head *h = &r->heads_in[i];
        if (h->part_bytes < 0 || h->part_bytes > r->part_bytes_max)
            return fail(r, error, "rank %d says that it sends %lld bytes: calls do not match", i,
                        (long long)h->part_bytes);
        *has_parts = *has_parts || h->has_parts;
        *all_close = *all_close && h->closes;
    }
    return 0;
}

static int exchange_parts(rounds *r, char *error)
{
    for (int32_t i = 0; i < r->by.size; i++) {
        r->send_bytes[i] = r->heads_out[i].part_bytes;
        r->receive_bytes[i] = r->heads_in[i].part_bytes;
    }
    if (all_to_all(r, r->parts_out, r->parts_in, error) != 0) return 1;
    const char *part = r->parts_in;
    for (int32_t i = 0; i < r->by.size; i++) {
        if (unpack(r, &r->peers[i], part, r->receive_bytes[i], error) != 0) return 1;
        part += r->receive_bytes[i];
    }
    return 0;
}

/* closes: nothing is sent any more, and received data is dropped. */
static int make_round(rounds *r, bool closes, bool *all_close, char *error)
{
    char *part = r->parts_out;
    bool has_parts;
    r->has_begun = true;
    for (int32_t i = 0; i < r->by.size; i++) {
        const int64_t bytes = closes ? 0 : pack(r, &r->peers[i], part);
        r->heads_out[i] = (head){.part_bytes = bytes, .closes = closes};
        part += bytes;
    }
    for (int32_t i = 0; i < r->by.size; i++) r->heads_out[i].has_parts = part != r->parts_out;
    if (exchange_heads(r, &has_parts, all_close, error) != 0) return 1;
    return has_parts ? exchange_parts(r, error) : 0;
}

/* ---- messages ---- */

static bool begin(ps_transport *t, message **list, const message *what, int64_t receive_bytes, ps_request *out)
{
    message *m = NULL;
    if (ps_mem_alloc(1, sizeof *m, &m) != PS_OK) {
        fail(t->self, t->error, "no memory for a message");
        return false;
    }
    *m = *what;
    append(list, m);
    *out = (ps_request){.mark = (uint64_t)(uintptr_t)m, .bytes = receive_bytes};
    return true;
}

static bool send_begin(ps_transport *t, int32_t to, ps_channel channel, const void *data, int64_t bytes,
                       ps_request *out)
{
    rounds *r = t->self;
    /* never written to */
    const message m = {.data = (char *)(uintptr_t)data, .bytes = bytes, .peer = to, .channel = (int32_t)channel};
    return begin(t, &r->peers[to].out, &m, 0, out);
}

static bool recv_begin(ps_transport *t, int32_t from, ps_channel channel, void *data, int64_t bytes, ps_request *out)
{
    rounds *r = t->self;
    const message m = {.data = data, .bytes = bytes, .peer = from, .channel = (int32_t)channel};
    return begin(t, &r->peers[from].wanted[channel], &m, bytes, out);
}

/* Early messages match receives in the order in which these were begun. */
static int take_letter(rounds *r, message *wanted, bool *is_done, char *error)
{
    peer *p = &r->peers[wanted->peer];
    message *letter = p->arrived[wanted->channel];
    if (p->wanted[wanted->channel] != wanted || letter == NULL || letter == p->arriving) return 0;
    if (letter->bytes != wanted->bytes)
        return fail(r, error, "rank %d sent a message of %lld bytes, expected are %lld", wanted->peer,
                    (long long)letter->bytes, (long long)wanted->bytes);
    memcpy(wanted->data, letter->data, (size_t)letter->bytes);
    p->arrived[wanted->channel] = letter->next;
    p->wanted[wanted->channel] = wanted->next;
    ps_mem_free(letter);
    ps_mem_free(wanted);
    *is_done = true;
    return 0;
}

static int look(rounds *r, const ps_request *request, bool *is_done, char *error)
{
    message *const m = (message *)(uintptr_t)request->mark;
    if (request->bytes > 0) return take_letter(r, m, is_done, error);
    *is_done = take_from(&r->sent, m);
    if (*is_done) ps_mem_free(m);
    return 0;
}

static bool test(ps_transport *t, ps_request *request, bool *is_done)
{
    rounds *r = t->self;
    bool all_close;
    *is_done = false;
    if (r->is_broken) return false; /* the error has been set */
    if (look(r, request, is_done, t->error) != 0) return false;
    if (*is_done) return true;
    return make_round(r, false, &all_close, t->error) == 0 && look(r, request, is_done, t->error) == 0;
}

/* ---- creating and closing ---- */

static void destroy(rounds *r)
{
    for (int32_t i = 0; i < r->by.size; i++) {
        free_list(r->peers[i].out);
        for (int k = 0; k < PS_CHANNEL_COUNT; k++) {
            free_list(r->peers[i].wanted[k]);
            free_list(r->peers[i].arrived[k]);
        }
    }
    free_list(r->sent);
    ps_mem_free(r->send_bytes);
    ps_mem_free(r->receive_bytes);
    ps_mem_free(r->heads_out);
    ps_mem_free(r->heads_in);
    ps_mem_free(r->parts_out);
    ps_mem_free(r->parts_in);
    ps_mem_free(r);
}

static void let_go(rounds *r)
{
    if (atomic_fetch_sub(&r->n_holders, 1) == 1) destroy(r);
}

/* The others may be in a round, or continue for a while. They have been notified of a rank that ends after a
 * failure. */
static void close_once(rounds *r, bool is_orderly)
{
    char error[PS_MESSAGE_ERROR_BYTES];
    if (atomic_exchange(&r->is_closed, true)) return;
    bool all_close = !is_orderly && !r->has_begun;
    while (!all_close && !r->is_broken && make_round(r, true, &all_close, error) == 0) {
    }
    r->by.close(r->by.user, is_orderly && !r->is_broken);
}

static bool open_nothing(ps_transport *t)
{
    (void)t; /* the program's group exists already */
    return true;
}

static void close_rounds(ps_transport *t, bool is_orderly)
{
    rounds *r = t->self;
    t->self = NULL;
    close_once(r, is_orderly);
    let_go(r);
}

static const ps_transport_ops rounds_ops = {.abi = PS_TRANSPORT_ABI,
                                            .open = open_nothing,
                                            .send_begin = send_begin,
                                            .recv_begin = recv_begin,
                                            .test = test,
                                            .close = close_rounds};

static ps_status check_group(const ps_process_group *c)
{
    if (c->trouble != NULL) return PS_FAIL(PS_EINVAL, "%s", c->trouble);
    if (c->size < 1 || c->rank < 0 || c->rank >= c->size)
        return PS_FAIL(PS_EINVAL, "ps_process_group: rank %d of %d", c->rank, c->size);
    return c->all_to_all != NULL ? PS_OK : PS_FAIL(PS_EINVAL, "ps_process_group: all_to_all is needed");
}

static ps_status create(const ps_process_group *c, rounds **out)
{
    rounds *r = NULL;
    ps_status st = PS_OK;
    const size_t p = (size_t)c->size;
    *out = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *r + p * sizeof r->peers[0], &r));
    r->by = *c;
    atomic_init(&r->n_holders, 2);
    r->part_bytes_max = ps_max_i64(PARTS_BYTES / c->size, PART_BYTES_MIN);
    PS_TRY_GOTO(ps_mem_alloc(p, sizeof *r->send_bytes, &r->send_bytes));
    PS_TRY_GOTO(ps_mem_alloc(p, sizeof *r->receive_bytes, &r->receive_bytes));
    PS_TRY_GOTO(ps_mem_alloc(p, sizeof *r->heads_out, &r->heads_out));
    PS_TRY_GOTO(ps_mem_alloc(p, sizeof *r->heads_in, &r->heads_in));
    PS_TRY_GOTO(ps_mem_alloc(p, (size_t)r->part_bytes_max, &r->parts_out));
    PS_TRY_GOTO(ps_mem_alloc(p, (size_t)r->part_bytes_max, &r->parts_in));
    *out = r;
out:
    if (st != PS_OK) destroy(r);
    return st;
}

ps_status ps_rounds_make(const ps_process_group *c, ps_transport *out)
{
    rounds *r = NULL;
    *out = (ps_transport){0};
    if (c->close == NULL) return PS_FAIL(PS_EINVAL, "ps_process_group: close is needed");
    ps_status st = check_group(c);
    if (st == PS_OK) st = create(c, &r);
    if (st != PS_OK) {
        c->close(c->user, false);
        return st;
    }
    *out = (ps_transport){.ops = &rounds_ops, .self = r, .rank = c->rank, .size = c->size};
    snprintf(out->name, sizeof out->name, "%s", c->name != NULL ? c->name : "process group of the program");
    return PS_OK;
}

void ps_rounds_release(const ps_transport *t, bool is_failed)
{
    rounds *r = t->self;
    if (is_failed && !atomic_load(&r->is_closed)) {
        close_once(r, false);
        let_go(r); /* the transport's reference */
    }
    let_go(r);
}
