/* collective.c - all-gather, broadcast and reduce-scatter over messages between two ranks.
 *
 * All-gather: the owner of a part sends it to each other rank, which receives it in place. Reduce-scatter: each rank
 * sends its values of a part to the owner, which adds them piece by piece in the order of ranks. When owners have equal
 * shares, a rank sends (p - 1) / p of the parts' bytes in either. Messages to and from all peers are in flight at once;
 * each rank begins with the one after it, so that not all begin with the same.
 *
 * In a broadcast by the owner alone, the owner would send everything. Instead it is a chain, owner, owner + 1, ..., in
 * which each rank forwards a piece as soon as it has it: the whole passes each link once.
 *
 * Pieces of a reduction are received in the staging memory, in a ring of PS_COMM_BUFFERS for each peer. Another thread
 * adds the pieces received from all ranks, while the next ones arrive:
 *
 *     messages   |== 0 ==|== 1 ==|........|== 2 ==|== 3 ==|
 *     sums               |=== 0 ===|=== 1 ===|....|== 2 ==|
 *
 * Payloads that the host cannot access have a ring for each stream of pieces, copied by queues of the device, which
 * this thread polls:
 *
 *     gathering   device --> own ring --> to all others        from each other --> its ring --> device
 *     chain       from the rank before --> ring --> device, and to the rank after
 *     reduction   device --> ring of each owner --> to that owner
 *                 device --> own ring, and from each other --> its ring:   added in the own ring --> device
 */
#include <string.h>

#include "base/machine.h"
#include "base/mem.h"
#include "chunk/comm/comm_impl.h"
#include "chunk/comm/sum.h"

typedef struct collective {
    ps_comm *c;
    const ps_comm_transfer *t;
    const ps_comm_device *device; /* NULL: payloads in host memory */
    int32_t n_lanes;
    int64_t piece_bytes;
    ps_comm_stream out;  /* with a device: copies of the own parts from it */
    ps_comm_stream sums; /* of a reduction */
    ps_comm_stream in;   /* of a reduction with a device: copies of sums to it */
} collective;

/* ---- pieces ---- */

/* The next piece of a stream; false if there is none left. Skips parts of other owners. */
static bool stream_next(const collective *x, ps_comm_stream *s, char **piece, int64_t *bytes)
{
    const ps_comm_transfer *t = x->t;
    while (s->part < t->n_parts) {
        const ps_comm_part *p = &t->parts[s->part];
        const int64_t left_bytes = p->owner == s->owner ? p->n * t->item_bytes - s->offset_bytes : 0;
        if (left_bytes > 0) {
            *piece = (char *)p->payload + s->offset_bytes;
            *bytes = ps_min_i64(left_bytes, x->piece_bytes);
            return true;
        }
        s->part++;
        s->offset_bytes = 0;
    }
    return false;
}

static void stream_pass(ps_comm_stream *s, int64_t bytes)
{
    s->offset_bytes += bytes;
    s->n_begun++;
}

static bool stream_is_done(const collective *x, ps_comm_stream *s)
{
    char *piece;
    int64_t bytes;
    return s->n_done == s->n_begun && !stream_next(x, s, &piece, &bytes);
}

/* ---- staging memory: rings for receives from each rank, for own parts, for sends to each ---- */

static int32_t own_ring(const collective *x)
{
    return x->t->kind == PS_COMM_KIND_BROADCAST ? 0 : x->c->size - 1;
}

static int32_t ring_of(const collective *x, const ps_comm_lane *l)
{
    const ps_comm *c = x->c;
    const int32_t others = (l->peer - c->rank + c->size) % c->size - 1;
    if (x->t->kind == PS_COMM_KIND_BROADCAST) return 0;
    if (!l->is_send) return others;
    return x->t->kind == PS_COMM_KIND_REDUCE ? c->size + others : own_ring(x);
}

static int32_t n_rings_of(const ps_comm *c, ps_comm_kind kind, bool is_device)
{
    switch (kind) {
    case PS_COMM_KIND_BROADCAST: return 1;
    case PS_COMM_KIND_GATHER: return c->size;
    case PS_COMM_KIND_REDUCE: break;
    }
    return is_device ? 2 * c->size - 1 : c->size - 1;
}

/* The buffer of piece i. */
static char *buffer_of(const collective *x, int32_t ring, int64_t i)
{
    char *staging = x->device != NULL ? x->device->staging : x->c->staging;
    return staging + (ring * PS_COMM_BUFFERS + i % PS_COMM_BUFFERS) * x->piece_bytes;
}

/* Pieces are whole elements and cache lines, as many as fit the staging memory that they need. */
static int64_t piece_bytes_of(const ps_comm *c, ps_comm_kind kind, bool is_device)
{
    if (kind != PS_COMM_KIND_REDUCE && !is_device) return c->message_bytes;
    const int64_t share_bytes = c->staging_bytes / (PS_COMM_BUFFERS * n_rings_of(c, kind, is_device));
    const int64_t bytes = ps_min_i64(c->message_bytes, share_bytes);
    return bytes >= 64 ? bytes / 64 * 64 : 4;
}

/* ---- messages ---- */

/* Payloads may be freed already. */
static bool is_given_up(const collective *x)
{
    return atomic_load(&x->c->is_stuck) && !ps_comm_heartbeat_fail(x->c, "callers no longer wait for it");
}

static bool lane_begin_next(collective *x, ps_comm_lane *l, char *piece, int64_t bytes)
{
    ps_transport *t = &x->c->transport;
    if (is_given_up(x)) return false;
    const int64_t slot = l->messages.n_begun % PS_COMM_DEPTH;
    ps_request *request = &l->request[slot];
    if (x->device != NULL || (!l->is_send && x->t->kind == PS_COMM_KIND_REDUCE))
        piece = buffer_of(x, ring_of(x, l), l->messages.n_begun);
    const bool is_begun = l->is_send ? t->ops->send_begin(t, l->peer, PS_CHANNEL_DATA, piece, bytes, request)
                                     : t->ops->recv_begin(t, l->peer, PS_CHANNEL_DATA, piece, bytes, request);
    if (!is_begun) return ps_comm_heartbeat_broken(x->c);
    l->bytes[slot] = bytes;
    stream_pass(&l->messages, bytes);
    return true;
}

/* Completes messages that are done and begins others, up to number `limit`. False: the transfer has failed. */
static bool lane_move(collective *x, ps_comm_lane *l, int64_t limit, bool *has_moved)
{
    ps_comm *c = x->c;
    ps_comm_stream *s = &l->messages;
    while (s->n_done < s->n_begun) {
        const int64_t slot = s->n_done % PS_COMM_DEPTH;
        bool is_done;
        if (!c->transport.ops->test(&c->transport, &l->request[slot], &is_done)) return ps_comm_heartbeat_broken(c);
        if (!is_done) break;
        s->n_done++;
        *has_moved = true;
        if (!l->is_send)
            c->peers[l->peer].heard_ns = ps_clock_ns();
        else if (x->t->is_payload)
            atomic_fetch_add(&c->sent_bytes, l->bytes[slot]);
    }
    char *piece;
    int64_t bytes;
    while (s->n_begun < ps_min_i64(limit, s->n_done + PS_COMM_DEPTH) && stream_next(x, s, &piece, &bytes)) {
        if (!lane_begin_next(x, l, piece, bytes)) return false;
        *has_moved = true;
    }
    return true;
}

static void lane_add(collective *x, int32_t peer, int32_t owner, bool is_send)
{
    x->c->lanes[x->n_lanes++] =
        (ps_comm_lane){.peer = peer, .is_send = is_send, .messages.owner = owner, .copies.owner = owner};
}

static void lanes_set_up(collective *x)
{
    const ps_comm *c = x->c;
    const int32_t p = c->size, r = c->rank, next = (r + 1) % p, previous = (r + p - 1) % p;
    if (x->t->kind == PS_COMM_KIND_BROADCAST) {
        const int32_t owner = ps_comm_one_owner(x->t->parts, x->t->n_parts);
        if (r != owner) lane_add(x, previous, owner, false);
        if (next != owner) lane_add(x, next, owner, true);
        return;
    }
    for (int32_t k = 1; k < p; k++) {
        const int32_t to = (r + k) % p, from = (r + p - k) % p;
        const bool is_gather = x->t->kind == PS_COMM_KIND_GATHER;
        lane_add(x, to, is_gather ? r : to, true);
        lane_add(x, from, is_gather ? from : r, false);
    }
}

/* In a chain the second lane forwards the pieces that the first receives. */
static bool passes_on(const collective *x)
{
    return x->t->kind == PS_COMM_KIND_BROADCAST && !x->c->lanes[0].is_send && x->n_lanes > 1;
}

/* How many messages of a lane may have begun: a chain forwards received pieces, a device sends copied ones, and staging
 * memory is limited. */
static int64_t sends_limit(const collective *x, const ps_comm_lane *l)
{
    if (passes_on(x)) return x->c->lanes[0].messages.n_done;
    if (x->device == NULL) return INT64_MAX;
    return x->t->kind == PS_COMM_KIND_REDUCE ? l->copies.n_done : x->out.n_done;
}

static int64_t receives_limit(const collective *x, const ps_comm_lane *l)
{
    if (x->t->kind == PS_COMM_KIND_REDUCE) return x->sums.n_done + PS_COMM_BUFFERS;
    if (x->device == NULL) return INT64_MAX;
    const int64_t n_sent = passes_on(x) ? x->c->lanes[1].messages.n_done : INT64_MAX;
    return ps_min_i64(l->copies.n_done, n_sent) + PS_COMM_BUFFERS;
}

/* ---- copies from and to a device ---- */

static bool copy_begin(const collective *x, ps_comm_stream *s, ps_queue *q, char *dst, const char *src, int64_t bytes)
{
    if (is_given_up(x)) return false;
    if (ps_queue_copy(q, dst, src, bytes) != PS_OK) return ps_comm_heartbeat_fail(x->c, ps_last_error());
    s->event[s->n_begun % PS_COMM_BUFFERS] = ps_queue_event(q);
    stream_pass(s, bytes);
    return true;
}

/* Completes copies between payloads and a ring, and begins others, up to number `limit`. False: the transfer has
 * failed. */
static bool copies_move(const collective *x, ps_comm_stream *s, int32_t ring, bool is_out, int64_t limit,
                        bool *has_moved)
{
    char *piece;
    int64_t bytes;
    for (; s->n_done < s->n_begun; s->n_done++) {
        const ps_event e = s->event[s->n_done % PS_COMM_BUFFERS];
        if (!ps_event_is_done(e)) break;
        if (ps_event_wait(e) != PS_OK) return ps_comm_heartbeat_fail(x->c, ps_last_error());
        *has_moved = true;
    }
    while (s->n_begun < limit && stream_next(x, s, &piece, &bytes)) {
        char *buffer = buffer_of(x, ring, s->n_begun);
        if (!copy_begin(x, s, is_out ? x->device->out : x->device->in, is_out ? buffer : piece, is_out ? piece : buffer,
                        bytes))
            return false;
        *has_moved = true;
    }
    return true;
}

/* Pieces of the own ring that all messages have finished with. */
static int64_t n_used_up(const collective *x)
{
    int64_t n = INT64_MAX - PS_COMM_BUFFERS;
    if (x->t->kind == PS_COMM_KIND_REDUCE) return x->in.n_done;
    for (int32_t i = 0; i < x->n_lanes; i++)
        if (x->c->lanes[i].is_send) n = ps_min_i64(n, x->c->lanes[i].messages.n_done);
    return n;
}

/* False: the transfer has failed. */
static bool all_copies_move(collective *x, bool *has_moved)
{
    if (is_given_up(x)) return false; /* the queues of copies may be gone */
    const bool is_reduction = x->t->kind == PS_COMM_KIND_REDUCE;
    const int32_t own = own_ring(x);
    for (int32_t i = 0; i < x->n_lanes; i++) {
        ps_comm_lane *l = &x->c->lanes[i];
        if (l->is_send != is_reduction) continue; /* sums, or the own ring */
        const int64_t limit = l->messages.n_done + (l->is_send ? PS_COMM_BUFFERS : 0);
        if (!copies_move(x, &l->copies, ring_of(x, l), l->is_send, limit, has_moved)) return false;
    }
    if (!copies_move(x, &x->out, own, true, n_used_up(x) + PS_COMM_BUFFERS, has_moved)) return false;
    return !is_reduction || copies_move(x, &x->in, own, false, x->sums.n_done, has_moved);
}

static bool all_copies_are_done(collective *x)
{
    const bool is_reduction = x->t->kind == PS_COMM_KIND_REDUCE;
    for (int32_t i = 0; i < x->n_lanes; i++) {
        ps_comm_lane *l = &x->c->lanes[i];
        if (l->is_send == is_reduction && !stream_is_done(x, &l->copies)) return false;
    }
    return stream_is_done(x, &x->out) && (!is_reduction || stream_is_done(x, &x->in));
}

/* ---- sums ---- */

typedef struct sum_args {
    const void *const *values; /* [n_values] */
    void *out;
    int64_t n;
    int32_t n_values;
    ps_dtype dtype;
} sum_args;

static ps_status add_values(void *self, const void *args)
{
    const sum_args *a = args;
    (void)self;
    ps_comm_sum(a->dtype, a->values, a->n_values, a->n, a->out);
    return PS_OK;
}

/* Starts adding a piece if it has been received from all ranks; *is_begun says whether. False: the transfer has
 * failed. */
static bool sum_begin(collective *x, char *piece, int64_t bytes, bool *is_begun)
{
    ps_comm *c = x->c;
    const int64_t i = x->sums.n_begun, buffer = i % PS_COMM_BUFFERS;
    const void **values = c->values + buffer * c->size;
    *is_begun = false;
    if (x->device != NULL && x->out.n_done <= i) return true;
    for (int32_t k = 0; k < x->n_lanes; k++) {
        const ps_comm_lane *l = &c->lanes[k];
        if (l->is_send) continue;
        if (l->messages.n_done <= i) return true;
        values[l->peer] = buffer_of(x, ring_of(x, l), i);
    }
    if (x->device != NULL) piece = buffer_of(x, own_ring(x), i);
    values[c->rank] = piece;
    if (is_given_up(x)) return false;
    const sum_args args = {
        .values = values, .out = piece, .n = bytes / x->t->item_bytes, .n_values = c->size, .dtype = x->t->dtype};
    const ps_call call = {.name = "sum over ranks", .run = add_values, .args = &args, .args_bytes = sizeof args};
    if (ps_queue_call(c->sums, &call) != PS_OK) return ps_comm_heartbeat_fail(c, ps_last_error());
    x->sums.event[buffer] = ps_queue_event(c->sums);
    stream_pass(&x->sums, bytes);
    *is_begun = true;
    return true;
}

/* Completed sums free buffers for messages; begins others. False: the transfer has failed. */
static bool sums_move(collective *x, bool *has_moved)
{
    ps_comm_stream *s = &x->sums;
    for (; s->n_done < s->n_begun && ps_event_is_done(s->event[s->n_done % PS_COMM_BUFFERS]); s->n_done++)
        *has_moved = true;
    char *piece;
    int64_t bytes;
    bool is_begun = true;
    while (is_begun && stream_next(x, s, &piece, &bytes)) {
        if (!sum_begin(x, piece, bytes, &is_begun)) return false;
        *has_moved = *has_moved || is_begun;
    }
    return true;
}

/* ---- a transfer ---- */

/* With a device the own part is in place already. */
static bool take_staging(ps_comm *c)
{
    if (c->staging != NULL || ps_mem_alloc((size_t)c->staging_bytes, 1, &c->staging) == PS_OK) return true;
    return ps_comm_heartbeat_fail(c, ps_last_error());
}

static bool set_up(collective *x)
{
    ps_comm *c = x->c;
    c->current = x->t;
    c->moved_ns = ps_clock_ns();
    c->copying = x->device = x->t->on_device && c->has_device ? &c->device : NULL;
    x->piece_bytes = piece_bytes_of(c, x->t->kind, x->device != NULL);
    x->out.owner = x->sums.owner = x->in.owner = c->rank;
    lanes_set_up(x);
    return x->t->kind != PS_COMM_KIND_REDUCE || x->device != NULL || take_staging(c);
}

/* Does all that is possible now. False: the transfer has failed. */
static bool move(collective *x, bool *has_moved, bool *all_done)
{
    const ps_comm *c = x->c;
    *all_done = true;
    for (int32_t i = 0; i < x->n_lanes; i++) {
        ps_comm_lane *l = &c->lanes[i];
        if (!lane_move(x, l, l->is_send ? sends_limit(x, l) : receives_limit(x, l), has_moved)) return false;
        *all_done = *all_done && stream_is_done(x, &l->messages);
    }
    if (x->t->kind == PS_COMM_KIND_REDUCE) {
        if (!sums_move(x, has_moved)) return false;
        *all_done = *all_done && stream_is_done(x, &x->sums);
    }
    if (x->device == NULL) return true;
    if (!all_copies_move(x, has_moved)) return false;
    *all_done = *all_done && all_copies_are_done(x);
    return true;
}

bool ps_comm_collective_run(ps_comm *c, const ps_comm_transfer *t)
{
    if (c->size == 1) return true; /* with one rank the payload is the result */
    collective x = {.c = c, .t = t};
    if (!set_up(&x)) return false;
    for (bool all_done = false; !all_done;) {
        bool has_moved = false;
        if (!move(&x, &has_moved, &all_done)) return false;
        if (!ps_comm_heartbeat_tick(c, has_moved)) return false;
    }
    c->current = NULL;
    c->copying = NULL;
    return true;
}
