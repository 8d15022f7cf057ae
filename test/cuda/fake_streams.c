#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fault.h"
#include "base/machine.h"
#include "base/rng.h"
#include "cuda/fake_impl.h"

typedef enum kind { COPY, FILL, RECORD, WAIT_EVENT, WAIT_VALUE, KERNEL, CALL } kind;

struct fake_command {
    kind kind;
    ps_cu_address dst, src;
    size_t bytes, n_moved;
    unsigned char byte;
    ps_cu_event event;
    uint64_t number;
    bool is_lost; /* the device, then */
    bool is_begun;
    bool (*run)(void *user);
    void *user;
    ps_cu_function function;
    unsigned grid[3], block[3], shared_bytes;
    fake_command *next;
    _Alignas(16) char args[];
};

/* ---- commands ---- */

static bool is_broken(ps_cu_context c)
{
    return c->broken != PS_CU_SUCCESS;
}

static void break_context(ps_cu_context c, ps_cu_result r)
{
    if (!is_broken(c)) c->broken = r;
}

static uint32_t draw(uint32_t n)
{
    uint32_t w[4];
    ps_rng_block((ps_rng_key){fake.o.seed, 0}, fake.n_draws++, w);
    return w[0] % n;
}

/* Half of it now, half of it a little later: a reader that is too early finds either. */
static bool move(ps_cu_stream s, fake_command *c)
{
    char *dst = fake_touch(s->context, c->dst, c->bytes);
    const char *src = c->kind == COPY ? fake_touch(s->context, c->src, c->bytes) : dst;
    if (dst == NULL || src == NULL) {
        break_context(s->context, PS_CU_ILLEGAL_ADDRESS);
        return true;
    }
    const size_t at = c->n_moved, n = at == 0 && c->bytes > 1 && draw(2) == 0 ? c->bytes / 2 : c->bytes - at;
    if (c->kind == COPY)
        memcpy(dst + at, src + at, n);
    else
        memset(dst + at, c->byte, n);
    c->n_moved += n;
    return c->n_moved == c->bytes;
}

static void run_kernel(fake_command *c)
{
    fake_finish_unmapping();
    fake_translate(c->args, c->function->args_bytes);
    c->function->run(c->function->user, c->grid, c->block, c->shared_bytes, c->args);
}

static bool has_value(const fake_command *c)
{
    const _Atomic uint32_t *word = (const _Atomic uint32_t *)(uintptr_t)c->dst;
    return (int32_t)(atomic_load(word) - (uint32_t)c->number) >= 0;
}

typedef enum progress { WAITS, GOES_ON, IS_DONE } progress;

static progress execute(ps_cu_stream s, fake_command *c)
{
    const ps_cu_context own = s->context;
    if (!c->is_begun && own->break_in >= 0 && own->break_in-- == 0) break_context(own, own->break_with);
    if (!c->is_begun && c->is_lost) break_context(own, PS_CU_LAUNCH_FAILED);
    c->is_begun = true;
    if (c->kind == CALL) return c->run(c->user) ? IS_DONE : WAITS;
    if (c->kind == RECORD) {
        if (c->number > c->event->done) c->event->done = c->number;
        c->event->at_ns = ps_clock_ns();
    }
    if (is_broken(own)) return IS_DONE;
    switch (c->kind) {
    case COPY:
    case FILL: return move(s, c) ? IS_DONE : GOES_ON;
    case WAIT_EVENT: return c->event->done >= c->number ? IS_DONE : WAITS;
    case WAIT_VALUE: return s->stops || has_value(c) ? IS_DONE : WAITS;
    case KERNEL: run_kernel(c); return IS_DONE;
    case RECORD:
    case CALL: break;
    }
    return IS_DONE;
}

/* ---- going on ---- */

/* False: its command waits. */
static bool advance(ps_cu_stream s)
{
    fake_command *c = s->first;
    const progress p = execute(s, c);
    fake.n_moves += p != WAITS;
    if (p != IS_DONE) return p == GOES_ON;
    s->first = c->next;
    s->n_commands--;
    free(c);
    return true;
}

/* A command of a stream that is drawn; false: those of all streams wait. */
static bool advance_any(void)
{
    uint32_t n = 0;
    for (ps_cu_stream s = fake.streams; s != NULL; s = s->next) n += s->first != NULL;
    for (uint32_t skip = n > 1 ? draw(n) : 0, rounds = 0; n > 0 && rounds < 2; rounds++)
        for (ps_cu_stream s = fake.streams; s != NULL; s = s->next) {
            if (s->first == NULL) continue;
            if (skip > 0)
                skip--;
            else if (advance(s))
                return true;
        }
    return false;
}

/* What is done between two calls of the host: for a while nothing, then little or much. */
static void advance_some(void)
{
    static const uint32_t paces[] = {0, 1, 2, 4};
    if (fake.n_calls++ % 64 == 0) fake.pace = paces[draw(PS_ARRAY_LEN(paces))];
    if (fake.pace == 0) return;
    for (uint32_t n = draw(2 * fake.pace + 1); n > 0 && advance_any(); n--) continue;
}

/* Something else has to happen: another thread of the host issues commands, or writes a value. */
static void stand_by(int n_times)
{
    pthread_mutex_unlock(&fake.lock);
    if (n_times < 10)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    pthread_mutex_lock(&fake.lock);
}

/* ---- deadlocks ---- */

static void describe(ps_cu_stream s, char *out, size_t bytes)
{
    static const char *const kinds[] = {"a copy", "a fill", "a record", "", "", "a kernel", "other ranks"};
    const fake_command *c = s->first;
    char what[96];
    snprintf(what, sizeof what, "%s", kinds[c->kind]);
    if (c->kind == WAIT_EVENT)
        snprintf(what, sizeof what, "a record of an event, number %llu of %llu", (unsigned long long)c->number,
                 (unsigned long long)c->event->done);
    if (c->kind == WAIT_VALUE)
        snprintf(what, sizeof what, "the host to write %u where %u is", (unsigned)c->number,
                 *(const unsigned *)(uintptr_t)c->dst);
    snprintf(out, bytes, "\n  stream %d: %d commands; the first waits for %s", s->number, s->n_commands, what);
}

static void report_deadlock(const char *function, const char *waits_for)
{
    char text[2048];
    size_t n =
        (size_t)snprintf(text, sizeof text, "fake_driver: deadlock: %s waits for %s, and nothing went on for %d ms",
                         function, waits_for, fake.o.stall_ms);
    for (ps_cu_stream s = fake.streams; s != NULL && n < sizeof text - 1; s = s->next) {
        if (s->first == NULL) continue;
        describe(s, text + n, sizeof text - n);
        n += strlen(text + n);
    }
    if (fake.o.on_deadlock == NULL) {
        fprintf(stderr, "%s\n", text);
        abort();
    }
    fake.o.on_deadlock(text);
    for (int i = 0; i < FAKE_DEVICES; i++) break_context(&fake.contexts[i], PS_CU_LAUNCH_TIMEOUT);
}

/* A call that waits: since when nothing has gone on, of any stream. */
typedef struct patience {
    uint64_t n_moves;
    int64_t since_ns;
    int n_times;
} patience;

/* The lock is held, and given up meanwhile. */
static void go_on(patience *p, const char *function, const char *waits_for)
{
    if (advance_any()) {
        p->n_times = 0;
        return;
    }
    stand_by(++p->n_times);
    const int64_t now_ns = ps_clock_ns();
    if (p->since_ns == 0 || p->n_moves != fake.n_moves) *p = (patience){fake.n_moves, now_ns, p->n_times};
    if (now_ns - p->since_ns < fake.o.stall_ms * (int64_t)1000000) return;
    report_deadlock(function, waits_for);
    p->since_ns = now_ns;
}

#define ADVANCE_UNTIL(condition, waits_for)                                                                            \
    do {                                                                                                               \
        patience p_ = {0};                                                                                             \
        while (!(condition)) go_on(&p_, __func__ + 5, waits_for);                                                      \
    } while (0)

/* ---- the context's lock ---- */

static bool is_locked_out(ps_cu_context c)
{
    return c != NULL && c->full != NULL && !pthread_equal(c->waits, pthread_self()) && !is_broken(c);
}

void fake_wait_for_context(const char *function)
{
    patience p = {0};
    while (is_locked_out(fake_current())) go_on(&p, function, "the context, in which another call waits");
}

/* The lock is held. */
static void wait_for_room(ps_cu_stream s, const char *function)
{
    const ps_cu_context c = s->context;
    patience p = {0};
    if (s->n_commands < fake.o.depth) return;
    fake.n_full++;
    c->full = s;
    c->waits = pthread_self();
    while (s->n_commands >= fake.o.depth && !is_broken(c)) go_on(&p, function, "room in a stream");
    c->full = NULL;
}

static bool is_idle_for_me(void)
{
    for (ps_cu_stream s = fake.streams; s != NULL; s = s->next)
        if (s->first != NULL && s->context == fake_current() && pthread_equal(s->creator, pthread_self())) return false;
    return true;
}

void fake_synchronize(const char *function)
{
    patience p = {0};
    fake.n_synchronized++;
    if (fake_current() == NULL || fake.calls_do_not_wait) return;
    while (!is_idle_for_me() && !is_broken(fake_current())) go_on(&p, function, "all streams to be idle");
}

/* ---- streams ---- */

ps_cu_result fake_stream_create(ps_cu_stream *out, unsigned flags, int priority)
{
    (void)flags;
    ENTER(true);
    ps_cu_stream s = calloc(1, sizeof *s);
    s->priority = priority;
    s->context = fake_current();
    s->creator = pthread_self();
    s->number = fake.n_made++;
    s->next = fake.streams;
    fake.streams = s;
    fake.n_streams++;
    *out = s;
    return fake_leave(PS_CU_SUCCESS);
}

/* What is under way is still done. */
ps_cu_result fake_stream_destroy(ps_cu_stream s)
{
    pthread_mutex_lock(&fake.lock);
    s->stops = true;
    ADVANCE_UNTIL(s->first == NULL, "what the stream has");
    ps_cu_stream *p = &fake.streams;
    while (*p != s) p = &(*p)->next;
    *p = s->next;
    fake.n_streams--;
    free(s);
    return fake_leave(PS_CU_SUCCESS);
}

/* The lock is held. */
static void append(ps_cu_stream s, const fake_command *what, const void *args, size_t args_bytes)
{
    fake_command *c = calloc(1, sizeof *c + args_bytes);
    *c = *what;
    if (args_bytes > 0) memcpy(c->args, args, args_bytes);
    *(s->first == NULL ? &s->first : &s->last->next) = c;
    s->last = c;
    s->n_commands++;
    fake.n_moves++;
}

void fake_issue_call(ps_cu_stream s, bool (*run)(void *user), void *user)
{
    wait_for_room(s, "a collective");
    append(s, &(fake_command){.kind = CALL, .run = run, .user = user}, NULL, 0);
}

/* The lock is held, and is not afterwards. */
static ps_cu_result issue(ps_cu_stream s, const fake_command *what, const void *args, size_t args_bytes)
{
    static const char *const names[] = {[FILL] = "fill",
                                        [RECORD] = "event_record",
                                        [WAIT_EVENT] = "stream_wait_event",
                                        [WAIT_VALUE] = "stream_wait_value",
                                        [KERNEL] = "launch"};
    wait_for_room(s, names[what->kind]);
    append(s, what, args, args_bytes);
    advance_some();
    return fake_leave(PS_CU_SUCCESS);
}

ps_cu_result fake_stream_wait(ps_cu_stream s)
{
    ENTER(true);
    ADVANCE_UNTIL(s->first == NULL || is_broken(fake_current()), "what the stream has");
    return fake_leave(fake_broken());
}

ps_cu_result fake_stream_wait_event(ps_cu_stream s, ps_cu_event e, unsigned flags)
{
    (void)flags;
    ENTER(true);
    return issue(s, &(fake_command){.kind = WAIT_EVENT, .event = e, .number = e->recorded}, NULL, 0);
}

ps_cu_result fake_stream_wait_value(ps_cu_stream s, ps_cu_address p, uint32_t value, unsigned flags)
{
    ENTER(true);
    if (flags != PS_CU_WAIT_GEQ || !fake_is_pinned(p, sizeof value)) return fake_leave(PS_CU_INVALID_VALUE);
    return issue(s, &(fake_command){.kind = WAIT_VALUE, .dst = p, .number = value}, NULL, 0);
}

ps_cu_result fake_copy(ps_cu_address dst, ps_cu_address src, size_t bytes, ps_cu_stream s)
{
    ENTER(true);
    const bool is_known = fake_is_known(dst, bytes) && fake_is_known(src, bytes);
    if (!is_known && !fake.o.copies_unlocked) return fake_leave(PS_CU_INVALID_VALUE);
    wait_for_room(s, "copy");
    append(s, &(fake_command){.kind = COPY, .dst = dst, .src = src, .bytes = bytes}, NULL, 0);
    if (is_known)
        advance_some();
    else
        ADVANCE_UNTIL(s->first == NULL, "what the stream has");
    return fake_leave(PS_CU_SUCCESS);
}

ps_cu_result fake_fill(ps_cu_address dst, unsigned char byte, size_t bytes, ps_cu_stream s)
{
    ENTER(true);
    if (!fake_is_known(dst, bytes)) return fake_leave(PS_CU_INVALID_VALUE);
    return issue(s, &(fake_command){.kind = FILL, .dst = dst, .byte = byte, .bytes = bytes}, NULL, 0);
}

/* ---- events ---- */

ps_cu_result fake_event_create(ps_cu_event *out, unsigned flags)
{
    ENTER(true);
    ps_cu_event e = calloc(1, sizeof *e);
    e->has_time = (flags & PS_CU_EVENT_NO_TIME) == 0;
    e->next = fake.events;
    fake.events = e;
    fake.n_events++;
    *out = e;
    return fake_leave(PS_CU_SUCCESS);
}

/* Commands may still name it. */
ps_cu_result fake_event_destroy(ps_cu_event e)
{
    pthread_mutex_lock(&fake.lock);
    if (e->is_destroyed) abort();
    e->is_destroyed = true;
    fake.n_events--;
    return fake_leave(PS_CU_SUCCESS);
}

ps_cu_result fake_event_record(ps_cu_event e, ps_cu_stream s)
{
    ENTER(true);
    const bool is_lost = ps_fault_hit(PS_FAULT_LOST); /* each item of a queue ends with an event */
    return issue(s, &(fake_command){.kind = RECORD, .event = e, .number = ++e->recorded, .is_lost = is_lost}, NULL, 0);
}

ps_cu_result fake_event_query(ps_cu_event e)
{
    ENTER(true);
    if (e->done < e->recorded) /* a caller that polls calls nothing else */
        for (uint32_t n = draw(4); n > 0 && advance_any(); n--) continue;
    return fake_leave(e->done >= e->recorded ? PS_CU_SUCCESS : PS_CU_NOT_READY);
}

ps_cu_result fake_event_wait(ps_cu_event e)
{
    ENTER(true);
    const uint64_t number = e->recorded;
    ADVANCE_UNTIL(e->done >= number || is_broken(fake_current()), "an event");
    return fake_leave(fake_broken());
}

ps_cu_result fake_event_elapsed(float *out_ms, ps_cu_event begin, ps_cu_event end)
{
    ENTER(true);
    if (!begin->has_time || !end->has_time) return fake_leave(PS_CU_INVALID_VALUE);
    *out_ms = (float)(1e-6 * (double)(end->at_ns - begin->at_ns));
    return fake_leave(begin->done < begin->recorded || end->done < end->recorded ? PS_CU_NOT_READY : PS_CU_SUCCESS);
}

/* ---- kernels ---- */

ps_cu_result fake_module_load(ps_cu_module *out, const void *image)
{
    (void)image;
    ENTER(true);
    fake_synchronize("module_load");
    fake_current()->n_modules++;
    *out = (ps_cu_module)fake_current();
    return fake_leave(PS_CU_SUCCESS);
}

ps_cu_result fake_module_unload(ps_cu_module module)
{
    pthread_mutex_lock(&fake.lock);
    ((ps_cu_context)module)->n_modules--;
    return fake_leave(PS_CU_SUCCESS);
}

ps_cu_result fake_function_get(ps_cu_function *out, ps_cu_module module, const char *name)
{
    (void)module;
    ENTER(true);
    for (int i = 0; i < fake.n_kernels; i++) {
        if (strcmp(fake.kernels[i].name, name) != 0) continue;
        *out = &fake.kernels[i];
        return fake_leave(PS_CU_SUCCESS);
    }
    return fake_leave(PS_CU_NOT_FOUND);
}

ps_cu_result fake_function_load(ps_cu_function function)
{
    ENTER(true);
    if (!function->is_loaded) fake_synchronize("function_load");
    function->is_loaded = true;
    return fake_leave(PS_CU_SUCCESS);
}

ps_cu_result fake_function_set(ps_cu_function function, ps_cu_function_attribute which, int value)
{
    ENTER(true);
    if (which != PS_CU_FUNCTION_SHARED_BYTES || value < 0 || value > 99 * 1024) return fake_leave(PS_CU_INVALID_VALUE);
    function->shared_allowed = (unsigned)value;
    return fake_leave(PS_CU_SUCCESS);
}

ps_cu_result fake_launch(ps_cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                         unsigned block_y, unsigned block_z, unsigned shared_bytes, ps_cu_stream s, void **args,
                         void **extra)
{
    ENTER(true);
    if (extra != NULL || grid_x * block_x == 0 || grid_y > 65535 || grid_z > 65535 ||
        block_x * block_y * block_z > 1024 || (shared_bytes > 48 * 1024 && shared_bytes > function->shared_allowed))
        return fake_leave(PS_CU_INVALID_VALUE);
    if (!function->is_loaded) fake_synchronize("launch");
    function->is_loaded = true;
    const fake_command c = {.kind = KERNEL,
                            .function = function,
                            .grid = {grid_x, grid_y, grid_z},
                            .block = {block_x, block_y, block_z},
                            .shared_bytes = shared_bytes};
    return issue(s, &c, args[0], function->args_bytes);
}

void fake_kernel_add(const char *name, fake_kernel run, void *user, size_t args_bytes)
{
    if (fake.n_kernels == FAKE_KERNELS) {
        fprintf(stderr, "fake driver: more than %d kernels: FAKE_KERNELS of fake_impl.h\n", FAKE_KERNELS);
        abort();
    }
    fake.kernels[fake.n_kernels++] =
        (struct ps_cu_function_state){.name = name, .run = run, .user = user, .args_bytes = args_bytes};
}
