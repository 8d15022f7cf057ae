#include "device/sim_time.h"

#include "base/mem.h"
#include "device/queue_impl.h"
#include "device/sim_time_impl.h"

/* Times remembered at which a wire is busy; earlier ones are as if it had been busy throughout. */
#define BUSY_MAX 64

typedef struct span_ns {
    int64_t begin_ns, end_ns;
} span_ns;

typedef struct wire {
    int n;
    span_ns busy[BUSY_MAX]; /* one after the other; those that touch are one */
    double share[BUSY_MAX]; /* of the lane whose copy it was */
} wire;

struct ps_sim_time {
    int n_lanes, compute;
    ps_sim_lane lanes[PS_SIM_LANES_MAX];
    bool takes_share; /* some lane does */
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
    return ps_device_get_ops(dev) == &ps_device_sim_later_ops ? ps_device_driver(dev) : NULL;
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

/* When a copy that takes ns alone has ended if it begins at begin_ns, beside copies that are slowed no more. */
static int64_t end_beside(const wire *other, double contention, int64_t begin_ns, int64_t ns)
{
    const double moves = 1 - contention; /* of its rate */
    int64_t at_ns = begin_ns, rest_ns = ns;
    for (int i = 0; i < other->n && contention > 0 && at_ns + rest_ns > other->busy[i].begin_ns; i++) {
        const int64_t since = ps_max_i64(at_ns, other->busy[i].begin_ns), until = other->busy[i].end_ns;
        if (until <= since) continue;
        rest_ns -= since - at_ns;
        if ((double)rest_ns <= moves * (double)(until - since)) return since + (int64_t)((double)rest_ns / moves);
        rest_ns -= (int64_t)(moves * (double)(until - since));
        at_ns = until;
    }
    return at_ns + rest_ns;
}

/* The first gap from ready_ns on that holds the copy is taken. */
static span_ns take_wire(wire *w, const wire *other, const ps_sim_lane *lane, int64_t ready_ns, int64_t ns)
{
    const double share = lane->share;
    span_ns span = {ready_ns, end_beside(other, lane->contention, ready_ns, ns)};
    int at = 0;
    while (at < w->n && span.end_ns > w->busy[at].begin_ns) {
        span.begin_ns = ps_max_i64(span.begin_ns, w->busy[at].end_ns);
        span.end_ns = end_beside(other, lane->contention, span.begin_ns, ns);
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

/* What copies take from computing of ns that begins at begin_ns: each its share of the time that both take, as long as
 * computing becomes by it (T = ns + share T). */
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

ps_status ps_sim_clock_create(ps_sim_time *t, ps_sim_clock **out)
{
    ps_sim_clock *c = NULL;
    *out = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *c, &c));
    c->time = t;
    c->lane = c->ready.lane = c->ready.before = -1;
    *out = c;
    return PS_OK;
}

void ps_sim_clock_destroy(ps_sim_clock *c)
{
    ps_mem_free(c);
}

static ps_sim_point point_of(const ps_sim_clock *c, ps_ticket ticket)
{
    PS_ASSERT(ticket <= c->newest);
    if (ticket == 0) return (ps_sim_point){.lane = -1, .before = -1};
    const ps_ticket oldest = c->newest >= PS_SIM_TICKETS ? c->newest - PS_SIM_TICKETS + 1 : 1;
    return c->points[(ticket > oldest ? ticket : oldest) % PS_SIM_TICKETS];
}

static void put_point(ps_sim_clock *c, ps_ticket ticket, ps_sim_point p)
{
    PS_ASSERT(ticket == c->newest + 1);
    c->newest = ticket;
    c->points[ticket % PS_SIM_TICKETS] = p;
}

static ps_sim_point last_point(const ps_sim_clock *c)
{
    return (ps_sim_point){
        .begin_ns = c->last.begin_ns, .end_ns = c->last.end_ns, .lane = c->lane, .before = c->last.cause};
}

void ps_sim_clock_wait(ps_sim_clock *c, ps_event e)
{
    const ps_sim_clock *other = e.queue->clock;
    if (other == NULL) return;
    const ps_sim_point p = point_of(other, e.ticket);
    if (p.end_ns > c->ready.end_ns) c->ready = p;
}

/* Computing stands still from free_ns on: for what it waits for, for what that had waited for before, for the host. */
static void count_wait(ps_sim_time *t, const ps_sim_point *ready, int64_t free_ns, int64_t begin_ns)
{
    const int64_t whole = ps_max_i64(free_ns, ready->end_ns);
    const int64_t since = ps_min_i64(whole, ps_max_i64(free_ns, ready->begin_ns));
    *(ready->lane >= 0 ? &t->sums.waits_ns[ready->lane] : &t->sums.host_waits_ns) += whole - since;
    *(ready->before >= 0 ? &t->sums.waits_ns[ready->before] : &t->sums.host_waits_ns) += since - free_ns;
    t->sums.host_waits_ns += begin_ns - whole;
}

/* The next item begins. One that its queue was busy until then has waited for its own lane. */
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

/* No item of its own, so computing has not begun with it: the time until the next item is still to be accounted for. */
void ps_sim_clock_mark(ps_sim_clock *c, ps_ticket ticket)
{
    put_point(c, ticket, c->ready.end_ns > c->last.end_ns ? c->ready : last_point(c));
}

/* The latency keeps the wire from nobody. */
static span_ns copy_over(ps_sim_time *t, int lane, int64_t ready_ns, int64_t bytes)
{
    const ps_sim_lane *l = &t->lanes[lane];
    const int64_t ns = (int64_t)((double)bytes * 1e9 / l->bytes_per_s);
    span_ns span = take_wire(&t->wires[l->wire], &t->wires[l->beside], l, ready_ns, ns);
    span.end_ns += l->latency_ns;
    return span;
}

void ps_sim_clock_copy(ps_sim_clock *c, ps_ticket ticket, int64_t bytes)
{
    if (c->lane < 0 || c->time->lanes[c->lane].bytes_per_s <= 0) {
        ps_sim_clock_mark(c, ticket);
        return;
    }
    begin_item(c);
    const span_ns span = copy_over(c->time, c->lane, c->last.begin_ns, bytes);
    c->last.begin_ns = span.begin_ns;
    end_item(c, ticket, span.end_ns);
}

void ps_sim_clock_transfer(ps_sim_clock *c, ps_ticket ticket, int lane, int64_t bytes)
{
    const int64_t ready_ns = ps_max_i64(c->time->host_ns, c->ready.end_ns);
    const span_ns span = copy_over(c->time, lane, ready_ns, bytes);
    const int cause = span.begin_ns > ready_ns ? lane : c->time->host_ns >= c->ready.end_ns ? -1 : c->ready.lane;
    c->lane = lane;
    c->last = (ps_sim_item){.free_ns = span.begin_ns, .begin_ns = span.begin_ns, .cause = cause};
    c->ready = (ps_sim_point){.lane = -1, .before = -1}; /* the next one may begin sooner */
    end_item(c, ticket, span.end_ns);
}

int64_t ps_sim_clock_next_ns(const ps_sim_clock *c)
{
    return ps_max_i64(c->time->host_ns, ps_max_i64(c->last.end_ns, c->ready.end_ns));
}

void ps_sim_clock_host_wait(ps_sim_clock *c, ps_ticket ticket)
{
    c->time->host_ns = ps_max_i64(c->time->host_ns, point_of(c, ticket).end_ns);
}

/* ---- queues ---- */

void ps_sim_queue_join(ps_queue *q, int lane)
{
    if (q->clock != NULL) q->clock->lane = lane;
}

void ps_sim_queue_spend(ps_queue *q, int64_t ns, bool computes)
{
    ps_sim_clock *c = q->clock;
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
    if (q->clock != NULL) ps_sim_clock_wait(q->clock, ps_queue_event(other));
}

void ps_sim_queue_read_back(const ps_queue *q, int64_t latency_ns)
{
    if (q->clock == NULL) return;
    ps_sim_clock_host_wait(q->clock, q->issued);
    q->clock->time->host_ns += latency_ns;
}

ps_sim_item ps_sim_queue_last(const ps_queue *q)
{
    return q->clock != NULL ? q->clock->last : (ps_sim_item){0};
}

const int64_t *ps_sim_queue_clock(const ps_queue *q)
{
    return q->clock != NULL ? &q->clock->last.end_ns : NULL;
}
