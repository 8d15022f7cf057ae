#include "device/sim_time.h"

#include "base/mem.h"
#include "device/queue_impl.h"
#include "device/sim_time_impl.h"

/* Number of intervals kept in which a wire is busy; before the first it counts as always busy. */
#define BUSY_MAX 64

typedef struct wire {
    int n;
    ps_sim_span busy[BUSY_MAX]; /* in order; adjacent ones are merged */
    double share[BUSY_MAX];     /* share of the copy's lane */
} wire;

struct ps_sim_time {
    int n_lanes, compute;
    ps_sim_lane lanes[PS_SIM_LANES_MAX];
    bool takes_share; /* some lane has a share */
    wire wires[PS_SIM_LANES_MAX];
    ps_sim_sums sums;
    int64_t host_ns;
};

ps_status ps_sim_time_create(const ps_sim_lane *lanes, int n_lanes, int compute, ps_sim_time **out)
{
    ps_sim_time *t = NULL;
    *out = NULL;
    PS_ASSERT(n_lanes <= PS_SIM_LANES_MAX);
    PS_TRY(ps_mem_alloc(1, sizeof *t, &t));
    t->n_lanes = n_lanes;
    t->compute = compute;
    for (int i = 0; i < n_lanes; i++) {
        t->lanes[i] = lanes[i];
        t->takes_share |= lanes[i].share > 0;
    }
    *out = t;
    return PS_OK;
}

void ps_sim_time_destroy(ps_sim_time *t)
{
    ps_mem_free(t);
}

ps_sim_sums ps_sim_time_sums(const ps_sim_time *t)
{
    return t->sums;
}

ps_sim_time *ps_sim_time_of(const ps_device *dev)
{
    return ps_device_get_ops(dev) == &ps_device_sim_async_ops ? ps_device_driver(dev) : NULL;
}

/* ---- wires ---- */

static void forget_oldest(wire *w)
{
    w->n--;
    for (int i = 0; i < w->n; i++) {
        w->busy[i] = w->busy[i + 1];
        w->share[i] = w->share[i + 1];
    }
    w->busy[0].begin_ns = 0;
}

int64_t ps_sim_end_contended(const ps_sim_span *busy, int n, double contention, int64_t begin_ns, int64_t ns)
{
    const double moves = 1 - contention; /* of its bandwidth */
    int64_t at_ns = begin_ns, rest_ns = ns;
    for (int i = 0; i < n && contention > 0 && at_ns + rest_ns > busy[i].begin_ns; i++) {
        const int64_t since = ps_max_i64(at_ns, busy[i].begin_ns), until = busy[i].end_ns;
        if (until <= since) continue;
        rest_ns -= since - at_ns;
        if ((double)rest_ns <= moves * (double)(until - since)) return since + (int64_t)((double)rest_ns / moves);
        rest_ns -= (int64_t)(moves * (double)(until - since));
        at_ns = until;
    }
    return at_ns + rest_ns;
}

/* The first gap from ready_ns on that is long enough is taken. */
static ps_sim_span take_wire(wire *w, const wire *other, const ps_sim_lane *lane, int64_t ready_ns, int64_t ns)
{
    const double share = lane->share;
    ps_sim_span span = {ready_ns, ps_sim_end_contended(other->busy, other->n, lane->contention, ready_ns, ns)};
    int at = 0;
    while (at < w->n && span.end_ns > w->busy[at].begin_ns) {
        span.begin_ns = ps_max_i64(span.begin_ns, w->busy[at].end_ns);
        span.end_ns = ps_sim_end_contended(other->busy, other->n, lane->contention, span.begin_ns, ns);
        at++;
    }
    if (ns == 0) return span;
    if (at > 0 && w->busy[at - 1].end_ns == span.begin_ns && w->share[at - 1] == share) {
        w->busy[at - 1].end_ns = span.end_ns;
        return span;
    }
    if (w->n == BUSY_MAX) {
        forget_oldest(w);
        at = at > 0 ? at - 1 : 0;
    }
    for (int i = w->n; i > at; i--) {
        w->busy[i] = w->busy[i - 1];
        w->share[i] = w->share[i - 1];
    }
    w->busy[at] = span;
    w->share[at] = share;
    w->n++;
    return span;
}

/* Time that copies take from a computation of ns that begins at begin_ns: each copy its share of the overlap, with the
 * lengthened computation (T = ns + share T). */
static int64_t lost_to_wires(const ps_sim_time *t, int64_t begin_ns, int64_t ns)
{
    double lost = 0;
    for (int k = 0; k < PS_SIM_LANES_MAX && t->takes_share; k++)
        for (int i = 0; i < t->wires[k].n; i++) {
            const double share = t->wires[k].share[i];
            if (share <= 0 || t->wires[k].busy[i].end_ns <= begin_ns) continue;
            const int64_t longest_end = begin_ns + (int64_t)((double)ns / (1 - share));
            const int64_t begin = ps_max_i64(begin_ns, t->wires[k].busy[i].begin_ns);
            const int64_t end = ps_min_i64(longest_end, t->wires[k].busy[i].end_ns);
            if (end > begin) lost += (double)(end - begin) * share;
        }
    return (int64_t)lost;
}

/* ---- clocks of queues ---- */

/* The ends of so many tickets are kept; older ones use that of the oldest kept. */
#define TICKETS 2048

/* An awaited item: its time, its lane, and the lane that it waited for before; -1: the host. */
typedef struct point {
    int64_t begin_ns, end_ns;
    int lane, before;
} point;

typedef struct ps_sim_clock ps_sim_clock;
struct ps_sim_clock {
    ps_sim_time *time;
    bool in_any_order; /* items begin independently (a disk) */
    int lane;
    ps_sim_item last;
    point ready; /* when all that the next item waits for has ended */
    ps_ticket newest;
    point points[TICKETS]; /* by ticket */
};

ps_status ps_sim_clock_create(ps_sim_time *t, bool in_any_order, ps_observed *w)
{
    ps_sim_clock *c = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *c, &c));
    c->time = t;
    c->in_any_order = in_any_order;
    c->lane = c->ready.lane = c->ready.before = -1;
    w->clock = c;
    ps_observe(w, PS_OBSERVER_CLOCK, true);
    return PS_OK;
}

void ps_sim_clock_destroy(ps_sim_clock *c)
{
    ps_mem_free(c);
}

static point point_of(const ps_sim_clock *c, ps_ticket ticket)
{
    PS_ASSERT(ticket <= c->newest);
    if (ticket == 0) return (point){.lane = -1, .before = -1};
    const ps_ticket oldest = c->newest >= TICKETS ? c->newest - TICKETS + 1 : 1;
    return c->points[(ticket > oldest ? ticket : oldest) % TICKETS];
}

static void put_point(ps_sim_clock *c, ps_ticket ticket, point p)
{
    PS_ASSERT(ticket == c->newest + 1);
    c->newest = ticket;
    c->points[ticket % TICKETS] = p;
}

static point last_point(const ps_sim_clock *c)
{
    return (point){.begin_ns = c->last.begin_ns, .end_ns = c->last.end_ns, .lane = c->lane, .before = c->last.cause};
}

static void come_after(ps_sim_clock *c, ps_event e)
{
    const ps_sim_clock *other = e.queue->observed.clock;
    if (other == NULL) return;
    const point p = point_of(other, e.ticket);
    if (p.end_ns > c->ready.end_ns) c->ready = p;
}

/* Computing waits from free_ns on: for the awaited item, for what that had waited for, for the host. */
static void count_wait(ps_sim_time *t, const point *ready, int64_t free_ns, int64_t begin_ns)
{
    const int64_t whole = ps_max_i64(free_ns, ready->end_ns);
    const int64_t since = ps_min_i64(whole, ps_max_i64(free_ns, ready->begin_ns));
    *(ready->lane >= 0 ? &t->sums.waits_ns[ready->lane] : &t->sums.host_waits_ns) += whole - since;
    *(ready->before >= 0 ? &t->sums.waits_ns[ready->before] : &t->sums.host_waits_ns) += since - free_ns;
    t->sums.host_waits_ns += begin_ns - whole;
}

/* The next item begins. If its queue was busy until then it has waited for its own lane. */
static void begin_item(ps_sim_clock *c)
{
    const ps_sim_time *t = c->time;
    const int64_t free_ns = c->last.end_ns, ready_ns = ps_max_i64(free_ns, c->ready.end_ns);
    const int cause = t->host_ns > ready_ns ? -1 : c->ready.end_ns > free_ns ? c->ready.lane : c->lane;
    c->last = (ps_sim_item){.free_ns = free_ns, .begin_ns = ps_max_i64(ready_ns, t->host_ns), .cause = cause};
    if (c->lane == t->compute) count_wait(c->time, &c->ready, free_ns, c->last.begin_ns);
}

static void end_item(ps_sim_clock *c, ps_ticket ticket, int64_t end_ns)
{
    c->last.end_ns = end_ns;
    if (c->lane >= 0) c->time->sums.busy_ns[c->lane] += end_ns - c->last.begin_ns;
    put_point(c, ticket, last_point(c));
}

/* Not an item, so computing has not begun with it: the time until the next item is still to be accounted for. */
static void mark(ps_sim_clock *c, ps_ticket ticket)
{
    put_point(c, ticket, c->ready.end_ns > c->last.end_ns ? c->ready : last_point(c));
}

/* Latency does not occupy the wire. */
static ps_sim_span copy_over(ps_sim_time *t, int lane, int64_t ready_ns, int64_t bytes)
{
    const ps_sim_lane *l = &t->lanes[lane];
    ps_sim_span span = take_wire(&t->wires[l->wire], &t->wires[l->contending_wire], l, ready_ns,
                                 ps_sim_copy_ns(bytes, l->bytes_per_s));
    span.end_ns += l->latency_ns;
    return span;
}

static void copy(ps_sim_clock *c, ps_ticket ticket, int64_t bytes)
{
    if (c->lane < 0 || c->time->lanes[c->lane].bytes_per_s <= 0) {
        mark(c, ticket);
        return;
    }
    begin_item(c);
    const ps_sim_span span = copy_over(c->time, c->lane, c->last.begin_ns, bytes);
    c->last.begin_ns = span.begin_ns;
    end_item(c, ticket, span.end_ns);
}

static void transfer(ps_sim_clock *c, ps_ticket ticket, int lane, int64_t bytes)
{
    const int64_t ready_ns = ps_max_i64(c->time->host_ns, c->ready.end_ns);
    const ps_sim_span span = copy_over(c->time, lane, ready_ns, bytes);
    const int cause = span.begin_ns > ready_ns ? lane : c->time->host_ns >= c->ready.end_ns ? -1 : c->ready.lane;
    c->lane = lane;
    c->last = (ps_sim_item){.free_ns = span.begin_ns, .begin_ns = span.begin_ns, .cause = cause};
    c->ready = (point){.lane = -1, .before = -1}; /* the next one may begin sooner */
    end_item(c, ticket, span.end_ns);
}

/* When the next item can begin, according to the waits known so far. */
static int64_t next_ns(const ps_sim_clock *c)
{
    return ps_max_i64(c->time->host_ns, ps_max_i64(c->last.end_ns, c->ready.end_ns));
}

static void issue(const ps_observed *w, const ps_notice *n)
{
    ps_sim_clock *c = w->clock;
    const bool copies = n->item == PS_QUEUE_ITEM_COPY && n->bytes >= 0;
    for (int i = 0; n->after != NULL && i < n->after->n; i++) come_after(c, n->after->event[i]);
    if (c->in_any_order)
        transfer(c, n->ticket, n->lane, n->bytes);
    else if (copies)
        copy(c, n->ticket, n->bytes);
    else
        mark(c, n->ticket);
    if (c->in_any_order || (!copies && n->item != PS_QUEUE_ITEM_MARK)) return;
    ps_announce(w, &(ps_notice){.kind = PS_NOTICE_DONE,
                                .ticket = n->ticket,
                                .item = n->item,
                                .begin_ns = copies ? c->last.begin_ns : next_ns(c),
                                .end_ns = copies ? c->last.end_ns : next_ns(c),
                                .link = w->profile_link});
}

/* The host continues when item `ticket` has ended. */
static void host_wait(const ps_sim_clock *c, ps_ticket ticket)
{
    c->time->host_ns = ps_max_i64(c->time->host_ns, point_of(c, ticket).end_ns);
}

void ps_sim_clock_observe(const ps_observed *w, const ps_notice *n)
{
    if (n->kind == PS_NOTICE_ISSUED) issue(w, n);
    if (n->kind == PS_NOTICE_WAITED) host_wait(w->clock, n->ticket);
}

/* ---- queues ---- */

void ps_sim_queue_join(ps_queue *q, int lane)
{
    if (q->observed.clock != NULL) q->observed.clock->lane = lane;
}

void ps_sim_queue_spend(ps_queue *q, int64_t ns, bool computes)
{
    ps_sim_clock *c = q->observed.clock;
    if (c == NULL) return;
    ps_sim_sums *sums = &c->time->sums;
    begin_item(c);
    const int64_t lost_ns = computes ? lost_to_wires(c->time, c->last.begin_ns, ns) : 0;
    sums->compute_ns += computes ? ns : 0;
    sums->lost_ns += lost_ns;
    end_item(c, ++q->issued, c->last.begin_ns + ns + lost_ns);
}

void ps_sim_queue_come_after(ps_queue *q, const ps_queue *other)
{
    if (q->observed.clock != NULL) come_after(q->observed.clock, ps_queue_event(other));
}

void ps_sim_queue_read_back(const ps_queue *q, int64_t latency_ns)
{
    if (q->observed.clock == NULL) return;
    host_wait(q->observed.clock, q->issued);
    q->observed.clock->time->host_ns += latency_ns;
}

ps_sim_item ps_sim_queue_last(const ps_queue *q)
{
    return q->observed.clock != NULL ? q->observed.clock->last : (ps_sim_item){0};
}

const int64_t *ps_sim_queue_clock(const ps_queue *q)
{
    return q->observed.clock != NULL ? &q->observed.clock->last.end_ns : NULL;
}
