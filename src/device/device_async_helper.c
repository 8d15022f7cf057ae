/* device_async_helper.c - the helper process of the fake GPU: one thread, which takes the first command of any line
 * that may be carried out, does it or a part of it, and looks again.
 *
 * Which one, and whether it is put off before, are numbers of the seed: the delays are those of line and command, the
 * choice is that of the turn. So the delays are the same in each run, whatever the host's speed. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/machine.h"
#include "base/rng.h"
#include "device/async_impl.h"

/* One command of PUT_OFF_ONE_IN is put off by up to PUT_OFF_NS, as many are held until the host waits, for HOLD_NS at
 * most. Longer than the host takes for some calls; short beside a test. */
#define PUT_OFF_ONE_IN 8
#define PUT_OFF_NS 100000
#define HOLD_NS 1000000
/* Larger copies and fills may be found half done. */
#define WHOLE_BYTES 256

#define CHOICE_STREAM UINT64_MAX

/* What has been decided about the first command of a line. */
typedef struct head {
    uint64_t seen;    /* commands of the line that were looked at: taken, or one more */
    int64_t begin_ns; /* not before */
    bool is_held;     /* nor before the host waits, up to HOLD_NS */
    int64_t moved_bytes;
} head;

typedef struct helper {
    ps_async *device;
    ps_async_shared *shared;
    uint64_t turn;
    head heads[PS_ASYNC_LINES];
    int64_t in_until_ns, out_until_ns; /* what copy engines have been given so far */
} helper;

static uint32_t draw(helper *h)
{
    return ps_rng_u32((ps_rng_key){h->device->options.seed, CHOICE_STREAM}, h->turn++);
}

/* ---- when ---- */

/* A copy is seen when the engine of its direction has come to its end. */
static int64_t engine_time(helper *h, const ps_async_command *c, int64_t now)
{
    const ps_async *a = h->device;
    if (c->kind != PS_ASYNC_COPY) return now;
    const bool from_device = ps_async_memory_has(&a->device, c->copy.src, 1);
    const bool to_device = ps_async_memory_has(&a->device, c->copy.dst, 1);
    if (from_device == to_device) return now;
    const int64_t rate = to_device ? a->options.in_bytes_per_s : a->options.out_bytes_per_s;
    int64_t *until_ns = to_device ? &h->in_until_ns : &h->out_until_ns;
    if (rate <= 0) return now;
    *until_ns = ps_max_i64(*until_ns, now) + (int64_t)(1e9 * (double)c->copy.bytes / (double)rate);
    return *until_ns;
}

static void look_at(helper *h, int i, const ps_async_command *c, uint64_t number, int64_t now)
{
    head *first = &h->heads[i];
    uint32_t w[4];
    if (first->seen == number) return;
    ps_rng_block((ps_rng_key){h->device->options.seed, (uint64_t)i}, number, w);
    *first = (head){.seen = number, .begin_ns = engine_time(h, c, now)};
    if (w[0] % PUT_OFF_ONE_IN == 0) first->begin_ns += w[1] % PUT_OFF_NS;
    first->is_held = w[0] % PUT_OFF_ONE_IN == 1;
}

static bool is_waited_for(const helper *h, int i, const ps_async_command *c)
{
    const ps_async_shared *s = h->shared;
    if (c->kind == PS_ASYNC_WAIT) return atomic_load(&s->lines[c->wait.line].done) < c->wait.ticket;
    return c->kind == PS_ASYNC_WAIT_FOREIGN && atomic_load(&s->lines[i].foreign_done) < c->foreign;
}

/* *next_ns: not later than when the line's command may begin, where only time keeps it. */
static bool may_begin(helper *h, int i, int64_t now, int64_t *next_ns)
{
    ps_async_line *l = &h->shared->lines[i];
    const uint64_t taken = atomic_load(&l->taken);
    if (atomic_load(&l->put) == taken) return false;
    const ps_async_command *c = &l->ring[taken % PS_ASYNC_RING];
    if (atomic_load(&l->failed_at) != 0) return true;
    if (is_waited_for(h, i, c)) return false;
    look_at(h, i, c, taken + 1, now);
    const head *first = &h->heads[i];
    const bool is_held = first->is_held && atomic_load(&h->shared->n_waiting) == 0;
    const int64_t begin_ns = first->begin_ns + (is_held ? HOLD_NS : 0);
    if (begin_ns <= now) return true;
    *next_ns = ps_min_i64(*next_ns, begin_ns);
    return false;
}

/* One of the lines whose command may begin; -1: none before *next_ns. */
static int choose(helper *h, int64_t *next_ns)
{
    const int64_t now = ps_clock_ns();
    int ready[PS_ASYNC_LINES], n = 0;
    *next_ns = INT64_MAX;
    for (int i = 0; i < PS_ASYNC_LINES; i++)
        if (may_begin(h, i, now, next_ns)) ready[n++] = i;
    return n > 0 ? ready[draw(h) % (uint32_t)n] : -1;
}

/* ---- what ---- */

static void finish(helper *h, ps_async_line *l, ps_async_command *c)
{
    const ps_ticket ticket = c->ticket;
    c->end_ns = ps_clock_ns();
    if (c->staged != 0) atomic_store(&l->staging_taken, c->staged);
    atomic_store(&h->shared->busy_with, NULL);
    atomic_fetch_add(&l->taken, 1); /* the host may write over *c from here on */
    atomic_store(&l->done, ticket);
    if (atomic_load(&h->shared->n_waiting) > 0) ps_async_wake(&h->shared->progress);
}

static void fail(ps_async_line *l, const ps_async_command *c, ps_status st, const char *why)
{
    l->failure.st = st;
    snprintf(l->failure.why, sizeof l->failure.why, "%s", why);
    atomic_store(&l->failed_at, c->ticket);
}

static void take_failure(helper *h, ps_async_line *l, const ps_async_command *c)
{
    const ps_async_line *other = c->kind == PS_ASYNC_WAIT ? &h->shared->lines[c->wait.line] : NULL;
    const uint64_t failed_at = other != NULL ? atomic_load(&other->failed_at) : l->foreign_failed_at;
    const ps_async_failure *f = other != NULL ? &other->failure : &l->foreign_failure;
    const uint64_t until = other != NULL ? c->wait.ticket : c->foreign;
    if (!c->ignores_failure && failed_at != 0 && failed_at <= until) fail(l, c, f->st, f->why);
}

/* How far it goes on in this turn. */
static int64_t part_of(helper *h, int64_t bytes)
{
    return bytes > WHOLE_BYTES && draw(h) % 2 == 0 ? bytes / 2 : bytes;
}

/* True when the command is done. */
static bool go_on(helper *h, ps_async_line *l, head *first, const ps_async_command *c)
{
    ps_status st;
    int64_t n;
    switch (c->kind) {
    case PS_ASYNC_COPY:
        n = part_of(h, c->copy.bytes - first->moved_bytes);
        if (n > 0) memcpy(c->copy.dst + first->moved_bytes, c->copy.src + first->moved_bytes, (size_t)n);
        first->moved_bytes += n;
        return first->moved_bytes == c->copy.bytes;
    case PS_ASYNC_FILL:
        n = part_of(h, c->fill.bytes - first->moved_bytes);
        if (n > 0) memset(c->fill.dst + first->moved_bytes, c->fill.byte, (size_t)n);
        first->moved_bytes += n;
        return first->moved_bytes == c->fill.bytes;
    case PS_ASYNC_CALL:
        st = c->call.run(c->call.self, c->args);
        if (st != PS_OK) fail(l, c, st, ps_last_error());
        return true;
    case PS_ASYNC_MARK: return true;
    case PS_ASYNC_WAIT:
    case PS_ASYNC_WAIT_FOREIGN: take_failure(h, l, c); return true;
    }
    return true;
}

static void carry_out(helper *h, int i)
{
    static const char *const names[] = {
        [PS_ASYNC_COPY] = "copy", [PS_ASYNC_FILL] = "fill", [PS_ASYNC_CALL] = "call",
        [PS_ASYNC_MARK] = "mark", [PS_ASYNC_WAIT] = "wait", [PS_ASYNC_WAIT_FOREIGN] = "wait"};
    ps_async_line *l = &h->shared->lines[i];
    ps_async_command *c = &l->ring[atomic_load(&l->taken) % PS_ASYNC_RING];
    atomic_store(&h->shared->busy_line, i);
    atomic_store(&h->shared->busy_with, c->kind == PS_ASYNC_CALL ? c->call.name : names[c->kind]);
    if (c->is_lost) raise(SIGKILL);
    if (h->heads[i].moved_bytes == 0) c->begin_ns = ps_clock_ns();
    if (atomic_load(&l->failed_at) != 0 || go_on(h, l, &h->heads[i], c)) finish(h, l, c);
}

/* ---- the process ---- */

/* Of the host it keeps the addresses and stderr: not its faults, not its files, whose locks and space would outlast
 * them. Signals are blocked by whoever forked. */
static void settle(ps_async *a)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != a->host) _exit(1); /* it has died already */
    prctl(PR_SET_NAME, "cpu_async");
    syscall(SYS_close_range, STDERR_FILENO + 1, ~0u, 0);
    for (int kind = 0; kind < PS_FAULT_COUNT; kind++) ps_fault_arm((ps_fault_kind)kind, -1, false);
    if (mprotect(a->device.base, (size_t)a->device.bytes, PROT_READ | PROT_WRITE) != 0) _exit(1);
}

void ps_async_help(ps_async *a)
{
    helper h = {.device = a, .shared = a->shared};
    settle(a);
    atomic_store(&a->shared->helper, getpid());
    atomic_store(&a->shared->is_ready, true);
    ps_async_wake(&a->shared->progress);
    for (;;) {
        const uint32_t seen = atomic_load(&a->shared->wake);
        int64_t next_ns;
        const int line = choose(&h, &next_ns);
        if (line >= 0)
            carry_out(&h, line);
        else if (atomic_load(&a->shared->stops))
            _exit(0);
        else
            ps_async_sleep(&a->shared->wake, seen, next_ns);
    }
}
