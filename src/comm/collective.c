/* collective.c - all-gather, broadcast and reduce-scatter over messages between two ranks.
 *
 * All-gather: the owner of a part sends it to each other rank, which receives it in place. Reduce-scatter: each rank
 * sends its version of a part to the owner, who adds them piece by piece in the order of ranks. When owners have equal
 * shares, a rank sends (p - 1) / p of the parts' bytes in either. Messages to and from all peers are under way at once;
 * each rank begins with the one after it, so that not all begin with the same.
 *
 * A broadcast would leave all sending to one rank. It goes down a chain, owner, owner + 1, ..., each rank passing on a
 * piece as soon as it has it: the whole passes each link once.
 *
 * Pieces of a reduction arrive in the staging memory, PS_COMM_BUFFERS for each peer. What has arrived from all is added
 * by another thread, while the next pieces arrive here:
 *
 *     messages   |== 0 ==|== 1 ==|........|== 2 ==|== 3 ==|
 *     sums               |=== 0 ===|=== 1 ===|....|== 2 ==|
 */
#include <string.h>

#include "base/machine.h"
#include "comm/comm_impl.h"
#include "comm/sum.h"

typedef struct collective {
    ps_comm *c;
    const ps_comm_transfer *t;
    int32_t n_lanes;
    int64_t piece_bytes;
    ps_comm_lane sums;                   /* of a reduction, no messages: where in the own parts the next sum goes */
    ps_event sum_event[PS_COMM_BUFFERS]; /* of sums n_done .. n_begun - 1, at their number modulo the buffers */
} collective;

/* The next piece of a lane: true unless there is none left. Skips what is not its owner's. */
static bool lane_next(const collective *x, ps_comm_lane *l, char **piece, int64_t *bytes)
{
    const ps_comm_transfer *t = x->t;
    while (l->part < t->n_parts) {
        const ps_comm_part *p = &t->parts[l->part];
        const int64_t left_bytes = p->owner == l->owner ? p->n * t->item_bytes - l->offset_bytes : 0;
        if (left_bytes > 0) {
            *piece = (char *)p->payload + l->offset_bytes;
            *bytes = ps_min_i64(left_bytes, x->piece_bytes);
            return true;
        }
        l->part++;
        l->offset_bytes = 0;
    }
    return false;
}

static char *staging_of(const collective *x, const ps_comm_lane *l, int64_t i)
{
    const ps_comm *c = x->c;
    const int64_t others = (l->peer - c->rank + c->size) % c->size - 1;
    return c->staging + ((i % PS_COMM_BUFFERS) * (c->size - 1) + others) * x->piece_bytes;
}

static bool lane_begin_next(collective *x, ps_comm_lane *l, char *piece, int64_t bytes)
{
    ps_transport *t = &x->c->transport;
    if (atomic_load(&x->c->is_stuck)) return ps_comm_life_fail(x->c, "it was given up"); /* payloads may be gone */
    const int64_t slot = l->n_begun % PS_COMM_DEPTH;
    ps_request *request = &l->request[slot];
    if (!l->is_send && x->t->kind == PS_COMM_KIND_REDUCE) piece = staging_of(x, l, l->n_begun);
    const bool is_begun = l->is_send ? t->ops->send_begin(t, l->peer, PS_CHANNEL_DATA, piece, bytes, request)
                                     : t->ops->recv_begin(t, l->peer, PS_CHANNEL_DATA, piece, bytes, request);
    if (!is_begun) return ps_comm_life_broken(x->c);
    l->bytes[slot] = bytes;
    l->offset_bytes += bytes;
    l->n_begun++;
    return true;
}

/* Ends messages that are done and begins others, up to number `limit`. False: it is over. */
static bool lane_move(collective *x, ps_comm_lane *l, int64_t limit, bool *has_moved)
{
    ps_comm *c = x->c;
    while (l->n_done < l->n_begun) {
        const int64_t slot = l->n_done % PS_COMM_DEPTH;
        bool is_done;
        if (!c->transport.ops->test(&c->transport, &l->request[slot], &is_done)) return ps_comm_life_broken(c);
        if (!is_done) break;
        l->n_done++;
        *has_moved = true;
        if (!l->is_send)
            c->peers[l->peer].heard_ns = ps_clock_ns();
        else if (x->t->is_payload)
            atomic_fetch_add(&c->sent_bytes, l->bytes[slot]);
    }
    char *piece;
    int64_t bytes;
    while (l->n_begun < ps_min_i64(limit, l->n_done + PS_COMM_DEPTH) && lane_next(x, l, &piece, &bytes)) {
        if (!lane_begin_next(x, l, piece, bytes)) return false;
        *has_moved = true;
    }
    return true;
}

static bool lane_is_done(const collective *x, ps_comm_lane *l)
{
    char *piece;
    int64_t bytes;
    return l->n_done == l->n_begun && !lane_next(x, l, &piece, &bytes);
}

static void lane_add(collective *x, int32_t peer, int32_t owner, bool is_send)
{
    x->c->lanes[x->n_lanes++] = (ps_comm_lane){.peer = peer, .owner = owner, .is_send = is_send};
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

/* How many messages of a lane may have begun: a chain passes on what it has, a reduction has so much staging memory. */
static int64_t lane_limit(const collective *x, const ps_comm_lane *l)
{
    const ps_comm_lane *first = &x->c->lanes[0];
    if (x->t->kind == PS_COMM_KIND_BROADCAST && l->is_send && !first->is_send) return first->n_done;
    if (x->t->kind == PS_COMM_KIND_REDUCE && !l->is_send) return x->sums.n_done + PS_COMM_BUFFERS;
    return INT64_MAX;
}

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

/* Hands a piece on to be added, if it has arrived from all; *is_begun tells. False: it is over. */
static bool sum_begin(collective *x, char *piece, int64_t bytes, bool *is_begun)
{
    ps_comm *c = x->c;
    const int64_t i = x->sums.n_begun, buffer = i % PS_COMM_BUFFERS;
    const void **values = c->values + buffer * c->size;
    *is_begun = false;
    for (int32_t k = 0; k < x->n_lanes; k++) {
        const ps_comm_lane *l = &c->lanes[k];
        if (l->is_send) continue;
        if (l->n_done <= i) return true;
        values[l->peer] = staging_of(x, l, i);
    }
    values[c->rank] = piece;
    if (atomic_load(&c->is_stuck)) return ps_comm_life_fail(c, "it was given up"); /* payloads may be gone */
    const sum_args args = {
        .values = values, .out = piece, .n = bytes / x->t->item_bytes, .n_values = c->size, .dtype = x->t->dtype};
    const ps_call call = {.name = "sum over ranks", .run = add_values, .args = &args, .args_bytes = sizeof args};
    if (ps_queue_call(c->sums, &call) != PS_OK) return ps_comm_life_fail(c, ps_last_error());
    x->sum_event[buffer] = ps_queue_event(c->sums);
    x->sums.offset_bytes += bytes;
    x->sums.n_begun++;
    *is_begun = true;
    return true;
}

/* Sums that are done make room for messages; others begin. False: it is over. */
static bool sums_move(collective *x, bool *has_moved)
{
    ps_comm_lane *s = &x->sums;
    for (; s->n_done < s->n_begun && ps_event_is_done(x->sum_event[s->n_done % PS_COMM_BUFFERS]); s->n_done++)
        *has_moved = true;
    char *piece;
    int64_t bytes;
    bool is_begun = true;
    while (is_begun && lane_next(x, s, &piece, &bytes)) {
        if (!sum_begin(x, piece, bytes, &is_begun)) return false;
        *has_moved = *has_moved || is_begun;
    }
    return true;
}

void ps_comm_finish_sums(ps_comm *c)
{
    if (c->sums != NULL) (void)!ps_event_wait(ps_queue_event(c->sums));
}

/* A reduction's pieces are as many as fit the staging memory, whole elements and cache lines. */
static int64_t piece_bytes_of(const ps_comm *c, ps_comm_kind kind)
{
    if (kind != PS_COMM_KIND_REDUCE) return c->message_bytes;
    const int64_t share_bytes = c->staging_bytes / (PS_COMM_BUFFERS * (c->size - 1));
    const int64_t bytes = ps_min_i64(c->message_bytes, share_bytes);
    return bytes >= 64 ? bytes / 64 * 64 : 4;
}

bool ps_comm_collective_run(ps_comm *c, const ps_comm_transfer *t)
{
    if (c->size == 1) return true; /* a launcher may start one: what it has is what it gets */
    collective x = {.c = c, .t = t, .piece_bytes = piece_bytes_of(c, t->kind), .sums.owner = c->rank};
    c->current = t;
    c->moved_ns = ps_clock_ns();
    lanes_set_up(&x);
    for (bool all_done = false; !all_done;) {
        bool has_moved = false;
        all_done = true;
        for (int32_t i = 0; i < x.n_lanes; i++) {
            ps_comm_lane *l = &c->lanes[i];
            if (!lane_move(&x, l, lane_limit(&x, l), &has_moved)) return false;
            all_done = all_done && lane_is_done(&x, l);
        }
        if (t->kind == PS_COMM_KIND_REDUCE) {
            if (!sums_move(&x, &has_moved)) return false;
            all_done = all_done && lane_is_done(&x, &x.sums);
        }
        if (!ps_comm_life_turn(c, has_moved)) return false;
    }
    c->current = NULL;
    return true;
}
