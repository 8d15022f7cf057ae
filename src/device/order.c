/* order.c - vector clocks of queues and of the host.
 *
 * A *lane* is a sequence of ordered items: a queue; or one item of a queue in any order, as long as the host has not
 * waited for it. A clock has a number for each lane: items of the lane up to this number are before. The host has a
 * clock, and each queue one for each of its waits; an item's clock is the maximum of the host's and its queue's. An
 * item that is ordered after another has at least that one's clock. Items before the host's clock are before all later
 * items: so they are forgotten, and their lane is freed. */
#include "device/order.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "device/order_ranges.h"
#include "device/queue_impl.h"

typedef struct lane {
    int32_t queue;         /* -1: free */
    uint64_t last;         /* number of its last item, or of the last one waited for */
    ps_ticket ticket;      /* of a queue in any order: of its one item*/
    ps_vector_clock after; /* and the clock of that item's waits */
} lane;

/* The clock of a queue from an item on. */
typedef struct known_from {
    ps_ticket ticket;
    ps_vector_clock clock;
} known_from;

typedef struct observed_queue {
    const char *name; /* NULL: removed */
    ps_order_kind kind;
    int32_t lane;      /* in order; else -1 */
    uint64_t base;     /* number in its lane of ticket 0 */
    known_from *known; /* by ticket; entries that the host's clock covers may be missing in front */
    int32_t n_known;
    ps_vector_clock next_after; /* in any order: the clock of its next item */
} observed_queue;

typedef struct kept_text {
    char names[256]; /* identifies it among texts */
    char line[512];
} kept_text;

struct ps_order {
    pthread_mutex_t lock; /* guards all */
    pthread_t host_thread;
    bool as_if_later, gave_up;
    ps_vector_clock host;
    lane *lanes;
    int32_t n_lanes;
    observed_queue *queues;
    int32_t n_queues;
    ps_order_ranges ranges;
    bool is_skipped[PS_WAIT_SITE_COUNT];
    int64_t n_waits[PS_WAIT_SITE_COUNT];
    ps_order_stats stats;
    ps_order_listener *listener;
    void *listener_user;
    kept_text *texts; /* PS_ORDER_TEXTS_MAX */
    int n_texts;
};

/* ---- clocks ---- */

static int32_t n_lanes_of(ps_vector_clock c)
{
    return (int32_t)(ps_mem_bytes(c) / sizeof *c);
}

/* No larger than needed: a clock that learns from another grows to its size, and so on. */
static ps_status make_room(ps_vector_clock *c, int32_t n)
{
    enum { STEP = 16 };
    ps_vector_clock larger = NULL;
    if (n <= n_lanes_of(*c)) return PS_OK;
    PS_TRY(ps_mem_alloc((size_t)ps_round_up(n, STEP), sizeof *larger, &larger));
    if (*c != NULL) memcpy(larger, *c, ps_mem_bytes(*c));
    ps_mem_free(*c);
    *c = larger;
    return PS_OK;
}

static ps_status learn(ps_vector_clock *c, int32_t l, uint64_t seq)
{
    PS_TRY(make_room(c, l + 1));
    if ((*c)[l] < seq) (*c)[l] = seq;
    return PS_OK;
}

static ps_status learn_all(ps_vector_clock *c, ps_vector_clock from)
{
    const int32_t n = n_lanes_of(from);
    PS_TRY(make_room(c, n));
    for (int32_t l = 0; l < n; l++)
        if ((*c)[l] < from[l]) (*c)[l] = from[l];
    return PS_OK;
}

static void forget(ps_vector_clock *c)
{
    ps_mem_free(*c);
    *c = NULL;
}

static bool host_knows(const ps_order *o, int32_t l, uint64_t seq)
{
    return ps_clock_knows(o->host, l, seq);
}

/* ---- reports ---- */

static void keep_text(ps_order *o, const kept_text *t)
{
    for (int i = 0; i < o->n_texts; i++)
        if (strcmp(o->texts[i].names, t->names) == 0) return;
    if (o->n_texts < PS_ORDER_TEXTS_MAX) o->texts[o->n_texts++] = *t;
}

static void write_bytes(char *out, size_t n, const ps_order_access *a)
{
    const char *use = a->use != NULL ? a->use : "", *comma = a->use != NULL ? ", " : "";
    const unsigned long long bytes = a->end - a->begin, begin = a->begin & ~PS_ORDER_IN_FILE;
    if ((a->begin & PS_ORDER_IN_FILE) != 0)
        snprintf(out, n, "%s%s%llu bytes at %llu of a file", use, comma, bytes, begin);
    else
        snprintf(out, n, "%s%s%llu bytes at 0x%llx", use, comma, bytes, begin);
}

static void write_item(char *out, size_t n, const ps_order_access *a)
{
    if (a->ticket == 0)
        snprintf(out, n, "%s: %s", a->queue, a->item);
    else
        snprintf(out, n, "%s: %s %llu", a->queue, a->item, (unsigned long long)a->ticket);
}

static void report(void *user, const ps_touch *first, const ps_touch *second)
{
    ps_order *o = user;
    const ps_order_access *a = &first->access, *b = &second->access;
    o->stats.n_reports++;
    if (o->listener != NULL) o->listener(o->listener_user, a, b);
    kept_text t;
    char item_a[96], item_b[96], bytes_a[96], bytes_b[96];
    write_item(item_a, sizeof item_a, a);
    write_item(item_b, sizeof item_b, b);
    write_bytes(bytes_a, sizeof bytes_a, a);
    write_bytes(bytes_b, sizeof bytes_b, b);
    snprintf(t.names, sizeof t.names, "%s\n%s\n%d\n%s\n%s\n%d", a->queue, a->item, a->is_write, b->queue, b->item,
             b->is_write);
    snprintf(t.line, sizeof t.line, "%s %s %s: nothing orders it after %s, which %s %s", item_b,
             b->is_write ? "writes" : "reads", bytes_b, item_a, a->is_write ? "writes" : "reads", bytes_a);
    keep_text(o, &t);
}

/* A report about possibly missed conflicts, not about a pair of accesses. */
static void report_line(ps_order *o, const char *names, const char *line)
{
    kept_text t;
    snprintf(t.names, sizeof t.names, "%s", names);
    snprintf(t.line, sizeof t.line, "%s", line);
    o->stats.n_reports++;
    keep_text(o, &t);
}

static void give_up_if(ps_order *o, ps_status st)
{
    if (st == PS_OK || o->gave_up) return;
    o->gave_up = true;
    report_line(o, "stopped", "the checker of order ran out of memory, and stops checking");
}

static ps_order_view view_of(ps_order *o, ps_vector_clock item)
{
    return (ps_order_view){.host = o->host, .item = item, .report = report, .user = o};
}

/* ---- queues and lanes ---- */

/* A lane whose items the host's clock covers: one of this queue, or a free one. */
static ps_status take_lane(ps_order *o, int32_t queue, int32_t *out)
{
    int32_t i = 0;
    while (i < o->n_lanes && !((o->lanes[i].queue == queue || o->lanes[i].queue < 0) &&
                               (o->lanes[i].last == 0 || host_knows(o, i, o->lanes[i].last))))
        i++;
    if (i == o->n_lanes) {
        PS_TRY(ps_mem_reserve(&o->lanes, (size_t)i + 1, sizeof *o->lanes));
        o->lanes[i] = (lane){0};
        o->n_lanes++;
    }
    forget(&o->lanes[i].after);
    o->lanes[i].queue = queue;
    *out = i;
    return PS_OK;
}

static ps_status add_queue(ps_order *o, const char *name, ps_order_kind kind, int *out)
{
    int32_t i = 0, l = -1;
    while (i < o->n_queues && o->queues[i].name != NULL) i++;
    PS_TRY(ps_mem_reserve(&o->queues, (size_t)i + 1, sizeof *o->queues));
    if (kind == PS_ORDER_IN_ORDER) PS_TRY(take_lane(o, i, &l));
    o->queues[i] = (observed_queue){.name = name, .kind = kind, .lane = l, .base = l >= 0 ? o->lanes[l].last : 0};
    if (i == o->n_queues) o->n_queues++;
    *out = i;
    return PS_OK;
}

int ps_order_add_queue(ps_order *o, const char *name, ps_order_kind kind)
{
    int id = -1;
    pthread_mutex_lock(&o->lock);
    if (o->as_if_later && kind == PS_ORDER_AT_ONCE) kind = PS_ORDER_IN_ORDER;
    if (!o->gave_up) give_up_if(o, add_queue(o, name, kind, &id));
    pthread_mutex_unlock(&o->lock);
    return id;
}

/* Nothing is in flight there: the host's clock covers all of it. */
static ps_status release_lanes(ps_order *o, int32_t queue)
{
    const observed_queue *q = &o->queues[queue];
    if (q->n_known > 0) PS_TRY(learn_all(&o->host, q->known[q->n_known - 1].clock));
    for (int32_t l = 0; l < o->n_lanes; l++) {
        if (o->lanes[l].queue != queue) continue;
        PS_TRY(learn_all(&o->host, o->lanes[l].after));
        PS_TRY(learn(&o->host, l, o->lanes[l].last));
        o->lanes[l].queue = -1;
    }
    return PS_OK;
}

static void release_queue(observed_queue *q)
{
    for (int32_t i = 0; i < q->n_known; i++) forget(&q->known[i].clock);
    ps_mem_free(q->known);
    forget(&q->next_after);
    *q = (observed_queue){0};
}

void ps_order_remove_queue(ps_order *o, int queue)
{
    if (queue < 0) return;
    pthread_mutex_lock(&o->lock);
    if (!o->gave_up) give_up_if(o, release_lanes(o, queue));
    release_queue(&o->queues[queue]);
    pthread_mutex_unlock(&o->lock);
}

/* ---- events ---- */

typedef struct observed_event {
    int32_t lane;
    uint64_t seq;
    ps_vector_clock clock; /* additional clock after it */
} observed_event;

static ps_vector_clock known_at(const observed_queue *q, ps_ticket t)
{
    int32_t low = 0, high = q->n_known; /* the last that begins at t or before */
    while (low < high) {
        const int32_t mid = low + (high - low) / 2;
        if (q->known[mid].ticket <= t)
            low = mid + 1;
        else
            high = mid;
    }
    return low > 0 ? q->known[low - 1].clock : NULL;
}

/* False: the waiter learns nothing beyond the host's clock. The ticket may be one that was not announced. */
static bool find_event(ps_order *o, int32_t queue, ps_ticket t, observed_event *out)
{
    const observed_queue *q = &o->queues[queue];
    if (q->kind == PS_ORDER_IN_ORDER) {
        *out = (observed_event){q->lane, q->base + t, known_at(q, t)};
        if (o->lanes[q->lane].last < out->seq) o->lanes[q->lane].last = out->seq;
        return !host_knows(o, out->lane, out->seq);
    }
    for (int32_t l = 0; l < o->n_lanes; l++) {
        const lane *i = &o->lanes[l];
        if (i->queue != queue || i->ticket != t) continue;
        *out = (observed_event){l, i->last, i->after};
        return !host_knows(o, l, i->last);
    }
    return false;
}

static ps_status learn_event(ps_vector_clock *c, const observed_event *e)
{
    PS_TRY(learn_all(c, e->clock));
    return learn(c, e->lane, e->seq);
}

/* Waits of the queue up to an item that the host's clock covers are covered too. */
static void forget_old(const ps_order *o, observed_queue *q)
{
    int32_t n = 0;
    while (n + 1 < q->n_known && host_knows(o, q->lane, q->base + q->known[n + 1].ticket - 1)) n++;
    for (int32_t i = 0; i < n; i++) forget(&q->known[i].clock);
    q->n_known -= n;
    if (n > 0) memmove(q->known, q->known + n, (size_t)q->n_known * sizeof *q->known);
}

static ps_status know_from(ps_order *o, observed_queue *q, ps_ticket t, const observed_event *e)
{
    ps_vector_clock before = q->n_known > 0 ? q->known[q->n_known - 1].clock : NULL, after = NULL;
    ps_status st;
    if (ps_clock_knows(before, e->lane, e->seq)) return PS_OK;
    PS_TRY_GOTO(learn_all(&after, before));
    PS_TRY_GOTO(learn_event(&after, e));
    forget_old(o, q);
    PS_TRY_GOTO(ps_mem_reserve(&q->known, (size_t)q->n_known + 1, sizeof *q->known));
    q->known[q->n_known++] = (known_from){t, after};
    return PS_OK;
out:
    forget(&after);
    return st;
}

static ps_status host_learns(ps_order *o, const observed_event *e)
{
    PS_TRY(learn_event(&o->host, e));
    const ps_order_view v = view_of(o, NULL);
    ps_order_ranges_sweep(&o->ranges, &v);
    return PS_OK;
}

static ps_status queue_waits(ps_order *o, int queue, ps_ticket t, const observed_event *e)
{
    observed_queue *q = &o->queues[queue];
    if (q->kind == PS_ORDER_AT_ONCE) return host_learns(o, e);
    if (q->kind == PS_ORDER_ANY_ORDER) return learn_event(&q->next_after, e);
    return know_from(o, q, t, e);
}

/* Takes the lock. True: the calling thread is the host, and the checker is working. */
static bool begin(ps_order *o)
{
    pthread_mutex_lock(&o->lock);
    return !o->gave_up && pthread_equal(o->host_thread, pthread_self());
}

void ps_order_queue_wait(ps_order *o, int queue, ps_ticket t, int from, ps_ticket from_ticket)
{
    observed_event e;
    if (queue < 0 || from < 0 || queue == from) return;
    if (begin(o) && find_event(o, from, from_ticket, &e)) give_up_if(o, queue_waits(o, queue, t, &e));
    pthread_mutex_unlock(&o->lock);
}

void ps_order_host_wait(ps_order *o, int from, ps_ticket from_ticket)
{
    observed_event e;
    if (from < 0) return;
    if (begin(o) && find_event(o, from, from_ticket, &e)) give_up_if(o, host_learns(o, &e));
    pthread_mutex_unlock(&o->lock);
}

/* ---- items ---- */

static ps_status add_uses(ps_order *o, ps_vector_clock known, ps_touch t, const ps_use *uses, int n_uses)
{
    const ps_order_view v = view_of(o, known);
    for (int i = 0; i < n_uses; i++) {
        t.access.use = uses[i].name;
        t.access.is_write = uses[i].is_write;
        t.access.begin = (uint64_t)(uintptr_t)uses[i].address;
        t.access.end = t.access.begin + (uint64_t)uses[i].bytes;
        PS_TRY(ps_order_ranges_add(&o->ranges, &v, &t));
    }
    return PS_OK;
}

static ps_status add_item(ps_order *o, int queue, ps_ticket ticket, const char *item, const ps_use *uses, int n_uses)
{
    observed_queue *q = &o->queues[queue];
    ps_touch t = {.access = {.queue = q->name, .item = item, .ticket = ticket}, .lane = q->lane};
    ps_vector_clock known = q->n_known > 0 ? q->known[q->n_known - 1].clock : NULL;
    if (q->kind == PS_ORDER_ANY_ORDER) {
        PS_TRY(take_lane(o, queue, &t.lane));
        lane *l = &o->lanes[t.lane];
        l->last++;
        l->ticket = ticket;
        l->after = q->next_after;
        q->next_after = NULL;
        known = l->after;
    } else if (t.lane >= 0) {
        o->lanes[t.lane].last = q->base + ticket;
    }
    if (t.lane >= 0) t.seq = o->lanes[t.lane].last;
    o->stats.n_items++;
    o->stats.n_unnamed += n_uses == 0;
    return add_uses(o, known, t, uses, n_uses);
}

void ps_order_issue(ps_order *o, int queue, ps_ticket t, const char *item, const ps_use *uses, int n_uses)
{
    if (queue < 0) return;
    if (begin(o)) {
        give_up_if(o, add_item(o, queue, t, item, uses, n_uses));
    } else if (!o->gave_up) {
        char line[192];
        snprintf(line, sizeof line, "%s: %s is issued by another thread than the checker's", o->queues[queue].name,
                 item);
        report_line(o, line, line);
    }
    pthread_mutex_unlock(&o->lock);
}

void ps_order_touch(ps_order *o, const char *name, const void *address, int64_t bytes, bool is_write)
{
    if (o == NULL) return;
    const ps_touch t = {.access = {.queue = "host", .item = name}, .lane = -1};
    if (begin(o)) {
        o->stats.n_touches++;
        give_up_if(o, add_uses(o, NULL, t, &(ps_use){.address = address, .bytes = bytes, .is_write = is_write}, 1));
    }
    pthread_mutex_unlock(&o->lock);
}

void ps_order_forget(ps_order *o, const void *address, int64_t bytes)
{
    if (o == NULL) return;
    const uint64_t at = (uint64_t)(uintptr_t)address;
    if (begin(o)) give_up_if(o, ps_order_ranges_forget(&o->ranges, at, at + (uint64_t)bytes));
    pthread_mutex_unlock(&o->lock);
}

void ps_order_observe(const ps_observed *w, const ps_notice *n)
{
    const ps_use *use = n->uses;
    switch (n->kind) {
    case PS_NOTICE_ISSUED:
        for (int i = 0; n->after != NULL && i < n->after->n; i++) {
            const ps_event e = n->after->event[i];
            if (e.queue->observed.order == w->order)
                ps_order_queue_wait(w->order, w->order_id, n->ticket, e.queue->observed.order_id, e.ticket);
        }
        if (n->item != PS_QUEUE_ITEM_WAIT && n->item != PS_QUEUE_ITEM_MARK)
            ps_order_issue(w->order, w->order_id, n->ticket, n->name, use, n->n_uses);
        break;
    case PS_NOTICE_WAITED: ps_order_host_wait(w->order, w->order_id, n->ticket); break;
    case PS_NOTICE_TOUCHED: ps_order_touch(w->order, n->name, use->address, use->bytes, use->is_write); break;
    case PS_NOTICE_FORGOTTEN: ps_order_forget(w->order, use->address, use->bytes); break;
    case PS_NOTICE_DONE: break;
    }
}

/* ---- the checker ---- */

ps_status ps_order_create(bool as_if_later, ps_order **out)
{
    ps_order *o = NULL;
    *out = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *o, &o));
    const ps_status st = ps_mem_alloc(PS_ORDER_TEXTS_MAX, sizeof *o->texts, &o->texts);
    if (st != PS_OK) {
        ps_mem_free(o);
        return st;
    }
    pthread_mutex_init(&o->lock, NULL);
    o->host_thread = pthread_self();
    o->as_if_later = as_if_later;
    ps_order_ranges_init(&o->ranges);
    *out = o;
    return PS_OK;
}

bool ps_order_is_as_if_later(const ps_order *o)
{
    return o->as_if_later;
}

void ps_order_destroy(ps_order *o)
{
    if (o == NULL) return;
    for (int32_t i = 0; i < o->n_queues; i++) release_queue(&o->queues[i]);
    for (int32_t i = 0; i < o->n_lanes; i++) forget(&o->lanes[i].after);
    ps_order_ranges_deinit(&o->ranges);
    ps_mem_free(o->queues);
    ps_mem_free(o->lanes);
    ps_mem_free(o->host);
    ps_mem_free(o->texts);
    pthread_mutex_destroy(&o->lock);
    ps_mem_free(o);
}

ps_order_stats ps_order_get_stats(const ps_order *o)
{
    return o->stats;
}

const char *ps_order_text(const ps_order *o, int i)
{
    return i >= 0 && i < o->n_texts ? o->texts[i].line : NULL;
}

void ps_order_set_listener(ps_order *o, ps_order_listener *listener, void *user)
{
    o->listener = listener;
    o->listener_user = user;
}

/* ---- places that wait ---- */

const char *ps_wait_site_name(ps_wait_site site)
{
#define XX(site, name, text) [PS_WAIT_##site] = name,
    static const char *const names[] = {PS_WAIT_SITES(XX)};
#undef XX
    return names[site];
}

const char *ps_wait_site_text(ps_wait_site site)
{
#define XX(site, name, text) [PS_WAIT_##site] = text,
    static const char *const texts[] = {PS_WAIT_SITES(XX)};
#undef XX
    return texts[site];
}

void ps_order_skip(ps_order *o, ps_wait_site site)
{
    o->is_skipped[site] = true;
}

int64_t ps_order_n_waits(const ps_order *o, ps_wait_site site)
{
    return o->n_waits[site];
}

bool ps_order_skips(ps_order *o, ps_wait_site site)
{
    if (o == NULL) return false;
    pthread_mutex_lock(&o->lock);
    o->n_waits[site]++;
    const bool skips = o->is_skipped[site];
    pthread_mutex_unlock(&o->lock);
    return skips;
}
