#include "device/stall.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/machine.h"
#include "base/mem.h"
#include "device/queue_impl.h"
#include "device/worker.h"

/* Between looks, at most; a thread that was not running for longer than twice that (stopped, or a suspended machine) does
 * not take the time for a stall. */
#define LOOK_NS ((int64_t)1000000000)
/* A rank that waits for others reports so much later than one that does not, which thus names the cause. */
#define GRACE_NS ((int64_t)5000000000)
#define TEXT_MAX 2048
#define ITEM_MAX 320
#define LISTED_MAX 6 /* threads */

struct ps_stall_watch {
    ps_stall_options o;
    ps_stall_watch *next;
};

_Atomic uint64_t ps_stall_count;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ps_stall_entry *first, *last; /* lock */
static atomic_int n_watches, n_entries;
static _Atomic uint64_t n_peers_seen; /* notes of other ranks that go on */
static char checkpoint[PATH_MAX];     /* lock */

/* Held while a stall is reported, and to open and close: a watch outlives the report that calls it. */
static pthread_mutex_t reporting = PTHREAD_MUTEX_INITIALIZER;
static ps_stall_watch *watches; /* reporting */
static ps_stall_func listener;  /* lock */
static void *listener_user;     /* lock */

static struct {
    uint64_t count, peers;
    int64_t moved_ns, looked_ns;
} seen; /* reporting */

/* ---- the table ---- */

static void enter(ps_stall_entry *s)
{
    s->is_listed = atomic_load_explicit(&n_watches, memory_order_relaxed) > 0;
    if (!s->is_listed) return;
    s->thread = pthread_self();
    s->begin_ns = ps_clock_ns();
    s->after = NULL;
    pthread_mutex_lock(&lock);
    s->before = last;
    *(last != NULL ? &last->after : &first) = s;
    last = s;
    atomic_fetch_add(&n_entries, 1);
    pthread_mutex_unlock(&lock);
}

void ps_stall_begin(ps_stall_entry *s, const char *does, const char *name, int64_t number)
{
    s->does = does;
    s->name = name;
    s->number = number;
    s->queue = NULL;
    ps_stall_progress();
    enter(s);
}

void ps_stall_begin_item(ps_stall_entry *s, const char *does, ps_queue *q, ps_ticket t, const char *name)
{
    s->does = does;
    s->name = name;
    s->number = -1;
    s->queue = q;
    s->ticket = t;
    enter(s);
}

void ps_stall_end(ps_stall_entry *s)
{
    ps_stall_progress();
    if (!s->is_listed) return;
    pthread_mutex_lock(&lock);
    *(s->before != NULL ? &s->before->after : &first) = s->after;
    *(s->after != NULL ? &s->after->before : &last) = s->before;
    atomic_fetch_sub(&n_entries, 1);
    pthread_mutex_unlock(&lock);
}

bool ps_stall_is_busy(void)
{
    return atomic_load(&n_entries) > 0;
}

void ps_stall_note_peer(void)
{
    atomic_fetch_add(&n_peers_seen, 1);
}

void ps_stall_set_checkpoint(const char *path)
{
    pthread_mutex_lock(&lock);
    snprintf(checkpoint, sizeof checkpoint, "%s", path);
    pthread_mutex_unlock(&lock);
}

void ps_set_stall(ps_stall_func func, void *user)
{
    pthread_mutex_lock(&lock);
    listener = func;
    listener_user = user;
    pthread_mutex_unlock(&lock);
}

/* ---- the report ---- */

__attribute__((format(printf, 2, 3))) static void add(char *text, const char *format, ...)
{
    const size_t length = strlen(text);
    va_list ap;
    va_start(ap, format);
    vsnprintf(text + length, TEXT_MAX - length, format, ap);
    va_end(ap);
}

static void add_entry(char *text, const ps_stall_entry *s, int64_t now_ns)
{
    char item[ITEM_MAX] = "";
    add(text, "%s", s->does);
    if (s->name != NULL) add(text, " %s", s->name);
    if (s->number >= 0) add(text, " %lld", (long long)s->number);
    if (s->queue != NULL) {
        add(text, "%s item %llu of queue %s", s->name != NULL ? "," : "", (unsigned long long)s->ticket,
            ps_queue_name(s->queue));
        if (s->queue->ops->describe != NULL) s->queue->ops->describe(s->queue, s->ticket, item, sizeof item);
        if (item[0] != '\0') add(text, " (%s)", item);
    }
    add(text, ", for %.3g s", (double)(now_ns - s->begin_ns) * 1e-9);
}

static bool is_first_of_thread(const ps_stall_entry *s)
{
    for (const ps_stall_entry *e = s->before; e != NULL; e = e->before)
        if (pthread_equal(e->thread, s->thread)) return false;
    return true;
}

/* All that the thread is in, the outermost first. A thread of the library has its name, another one the program's. */
static void add_thread(char *text, const ps_stall_entry *of, int64_t now_ns)
{
    char name[16] = "?";
    (void)pthread_getname_np(of->thread, name, sizeof name);
    add(text, "thread %s ", name);
    for (const ps_stall_entry *s = of; s != NULL; s = s->after) {
        if (!pthread_equal(s->thread, of->thread)) continue;
        if (s != of) add(text, ", and ");
        add_entry(text, s, now_ns);
    }
}

/* The lock is held; what queues say of their items takes no lock that is held. */
static void describe(char *text, int64_t still_ns, int64_t now_ns)
{
    int n = 0;
    text[0] = '\0';
    add(text, "no progress for %.3g s (train.stall_s): ", (double)still_ns * 1e-9);
    for (const ps_stall_entry *s = first; s != NULL; s = s->after) {
        if (!is_first_of_thread(s) || n++ >= LISTED_MAX) continue;
        if (n > 1) add(text, "; ");
        add_thread(text, s, now_ns);
    }
    if (n > LISTED_MAX) add(text, "; and %d more threads", n - LISTED_MAX);
    add(text, ". ");
    if (checkpoint[0] != '\0')
        add(text, "Continue from checkpoint %s", checkpoint);
    else
        add(text, "There is no checkpoint to continue from");
}

/* `reporting` is held. */
static void report(const char *text)
{
    for (ps_stall_watch *w = watches; w != NULL; w = w->next)
        if (w->o.tell != NULL) w->o.tell(w->o.user, text);
    pthread_mutex_lock(&lock);
    const ps_stall_func func = listener;
    void *const user = listener_user;
    pthread_mutex_unlock(&lock);
    if (func != NULL)
        func(user, text);
    else
        ps_log(PS_LOG_WARNING, "%s", text);
}

/* ---- looking ---- */

/* The lock is held. */
static bool waits_for_ranks(void)
{
    for (const ps_stall_entry *s = first; s != NULL; s = s->after)
        if (s->queue != NULL && s->queue->is_of_ranks) return true;
    return false;
}

static int64_t least_stall_ns(void)
{
    int64_t least = INT64_MAX;
    for (const ps_stall_watch *w = watches; w != NULL; w = w->next) least = ps_min_i64(least, w->o.stall_ns);
    return least;
}

static bool look(int64_t now_ns)
{
    char text[TEXT_MAX];
    const int64_t gap_ns = now_ns - seen.looked_ns, stall_ns = least_stall_ns();
    const uint64_t count = atomic_load(&ps_stall_count), peers = atomic_load(&n_peers_seen);
    seen.looked_ns = now_ns;
    if (gap_ns > 2 * ps_min_i64(LOOK_NS, stall_ns / 4)) seen.moved_ns += gap_ns;
    if (!ps_stall_is_busy() || count != seen.count || peers != seen.peers) seen.moved_ns = now_ns;
    seen.count = count;
    seen.peers = peers;
    const int64_t still_ns = now_ns - seen.moved_ns;
    if (still_ns < stall_ns) return false;
    pthread_mutex_lock(&lock);
    const bool is_early = waits_for_ranks() && still_ns < stall_ns + GRACE_NS;
    const bool is_stall = first != NULL && !is_early;
    if (is_stall) describe(text, still_ns, now_ns);
    pthread_mutex_unlock(&lock);
    if (!is_stall) return false;
    seen.moved_ns = now_ns;
    report(text);
    return true;
}

bool ps_stall_look(int64_t now_ns)
{
    pthread_mutex_lock(&reporting);
    const bool is_found = watches != NULL && look(now_ns);
    pthread_mutex_unlock(&reporting);
    return is_found;
}

void ps_stall_await_report(void)
{
    pthread_mutex_lock(&reporting);
    pthread_mutex_unlock(&reporting);
}

/* ---- the watcher ---- */

static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t has_changed;
    bool is_started, stops; /* stops: lock */
    int64_t period_ns;      /* lock */
} watcher = {.lock = PTHREAD_MUTEX_INITIALIZER, .has_changed = PTHREAD_COND_INITIALIZER};

static void *run(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&watcher.lock);
    while (!watcher.stops) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        const int64_t ns = until.tv_nsec + watcher.period_ns;
        until = (struct timespec){.tv_sec = until.tv_sec + ns / 1000000000, .tv_nsec = ns % 1000000000};
        (void)pthread_cond_timedwait(&watcher.has_changed, &watcher.lock, &until);
        if (watcher.stops) break;
        pthread_mutex_unlock(&watcher.lock);
        (void)ps_stall_look(ps_clock_ns());
        pthread_mutex_lock(&watcher.lock);
    }
    pthread_mutex_unlock(&watcher.lock);
    return NULL;
}

/* Held to open and to close a watch. */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static ps_status start(const ps_stall_options *o)
{
    pthread_mutex_lock(&watcher.lock);
    const int64_t period_ns = ps_max_i64(1000000, ps_min_i64(LOOK_NS, o->stall_ns / 4));
    if (!watcher.is_started || period_ns < watcher.period_ns) watcher.period_ns = period_ns;
    watcher.stops = false;
    pthread_mutex_unlock(&watcher.lock);
    if (watcher.is_started) return PS_OK;
    PS_TRY(ps_worker_start("ps-stall", run, NULL, &watcher.thread));
    watcher.is_started = true;
    return PS_OK;
}

static void stop(void)
{
    if (!watcher.is_started) return;
    pthread_mutex_lock(&watcher.lock);
    watcher.stops = true;
    pthread_cond_signal(&watcher.has_changed);
    pthread_mutex_unlock(&watcher.lock);
    pthread_join(watcher.thread, NULL);
    watcher.is_started = false;
}

ps_status ps_stall_open(const ps_stall_options *o, ps_stall_watch **out)
{
    PS_ASSERT(o->stall_ns > 0);
    PS_TRY(ps_mem_alloc(1, sizeof **out, out));
    (*out)->o = *o;
    pthread_mutex_lock(&turn);
    pthread_mutex_lock(&reporting);
    seen.looked_ns = seen.moved_ns = ps_clock_ns();
    (*out)->next = watches;
    watches = *out;
    pthread_mutex_unlock(&reporting);
    atomic_fetch_add(&n_watches, 1);
    const ps_status st = o->is_manual ? PS_OK : start(o);
    pthread_mutex_unlock(&turn);
    if (st == PS_OK) return PS_OK;
    ps_stall_close(*out);
    *out = NULL;
    return st;
}

void ps_stall_close(ps_stall_watch *w)
{
    if (w == NULL) return;
    pthread_mutex_lock(&turn);
    pthread_mutex_lock(&reporting);
    ps_stall_watch **p = &watches;
    while (*p != w) p = &(*p)->next;
    *p = w->next;
    pthread_mutex_unlock(&reporting);
    if (atomic_fetch_sub(&n_watches, 1) == 1) stop();
    pthread_mutex_unlock(&turn);
    ps_mem_free(w);
}
