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
    size_t bytes;
    unsigned char byte;
    ps_cu_event event;
    uint64_t number;
    bool is_lost; /* the device, then */
    void (*run)(void *user);
    void *user;
    ps_cu_function function;
    unsigned grid[3], block[3], shared_bytes;
    fake_command *next;
    _Alignas(16) char args[];
};

/* ---- streams ---- */

static void break_all(ps_cu_stream s, ps_cu_result r)
{
    if (s->context->broken == PS_CU_SUCCESS) s->context->broken = r;
}

static bool is_broken(ps_cu_context c)
{
    return c->broken != PS_CU_SUCCESS;
}

static void sleep_unlocked(int64_t ns)
{
    pthread_mutex_unlock(&fake.lock);
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
    pthread_mutex_lock(&fake.lock);
}

/* Without the lock. */
static void begin_touching(ps_cu_stream s)
{
    s->context->n_touching++;
    pthread_mutex_unlock(&fake.lock);
}

static void end_touching(ps_cu_stream s)
{
    pthread_mutex_lock(&fake.lock);
    s->context->n_touching--;
    if (is_broken(s->context)) pthread_cond_broadcast(&fake.changed);
}

/* Half of it now, half of it a little later: who looks too early finds either. */
static void move(ps_cu_stream s, const fake_command *c, uint32_t draw)
{
    char *dst = fake_touch(s->context, c->dst, c->bytes);
    const char *src = c->kind == COPY ? fake_touch(s->context, c->src, c->bytes) : dst;
    if (dst == NULL || src == NULL) {
        break_all(s, PS_CU_ILLEGAL_ADDRESS);
        return;
    }
    for (size_t half = draw % 2 == 0 ? c->bytes / 2 : 0, at = 0, n = half; at < c->bytes; at += n, n = c->bytes - at) {
        if (n == 0) n = c->bytes;
        begin_touching(s);
        if (c->kind == COPY)
            memcpy(dst + at, src + at, n);
        else
            memset(dst + at, c->byte, n);
        end_touching(s);
        if (at == 0 && n < c->bytes) sleep_unlocked(draw % 50000);
        if (is_broken(s->context)) return;
    }
}

static _Thread_local double spent_seconds; /* by the kernel that runs */

void fake_spend(double seconds)
{
    spent_seconds += seconds;
}

static void run_kernel(ps_cu_stream s, const fake_command *c)
{
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    spent_seconds = 0;
    fake_open_arena(true);
    begin_touching(s);
    pthread_mutex_lock(&one);
    c->function->run(c->function->user, c->grid, c->block, c->shared_bytes, c->args);
    pthread_mutex_unlock(&one);
    end_touching(s);
    s->spent_ns += (int64_t)(spent_seconds * 1e9);
    fake_open_arena(false);
}

static void carry_out(ps_cu_stream s, const fake_command *c)
{
    uint32_t w[4];
    ps_rng_block((ps_rng_key){fake.o.seed, s->id}, s->n_done, w);
    if (w[0] % 4 == 0) sleep_unlocked(w[1] % 200000);
    const ps_cu_context own = s->context;
    if (own->break_in >= 0 && own->break_in-- == 0) break_all(s, own->break_with);
    if (c->is_lost) break_all(s, PS_CU_LAUNCH_FAILED);
    if (c->kind == WAIT_EVENT)
        while (!is_broken(own) && c->event->done < c->number) pthread_cond_wait(&fake.changed, &fake.lock);
    if (c->kind == WAIT_VALUE) {
        const _Atomic uint32_t *word = (const _Atomic uint32_t *)(uintptr_t)c->dst;
        while (!is_broken(own) && !s->stops && (int32_t)(atomic_load(word) - (uint32_t)c->number) < 0)
            sleep_unlocked(20000);
    }
    if (!is_broken(own) && (c->kind == COPY || c->kind == FILL)) move(s, c, w[2]);
    if (!is_broken(own) && c->kind == KERNEL) run_kernel(s, c);
    if (c->kind == CALL) c->run(c->user);
    if (c->kind == RECORD) {
        if (c->number > c->event->done) c->event->done = c->number;
        c->event->at_ns = ps_clock_ns() + s->spent_ns;
    }
    s->n_done++;
}

static void *run_stream(void *arg)
{
    ps_cu_stream s = arg;
    pthread_mutex_lock(&fake.lock);
    for (;;) {
        while (s->first == NULL && !s->stops) pthread_cond_wait(&s->has_work, &fake.lock);
        if (s->first == NULL) break;
        fake_command *c = s->first;
        carry_out(s, c);
        s->first = c->next;
        if (c->kind == RECORD || s->first == NULL || is_broken(s->context)) pthread_cond_broadcast(&fake.changed);
        free(c);
    }
    pthread_mutex_unlock(&fake.lock);
    return NULL;
}

ps_cu_result fake_stream_create(ps_cu_stream *out, unsigned flags, int priority)
{
    (void)flags;
    ENTER(true);
    ps_cu_stream s = calloc(1, sizeof *s);
    s->priority = priority;
    s->context = fake_current();
    s->id = fake.n_streams_ever++;
    s->next = fake.streams;
    fake.streams = s;
    fake.n_streams++;
    pthread_cond_init(&s->has_work, NULL);
    if (pthread_create(&s->thread, NULL, run_stream, s) != 0) abort();
    *out = s;
    return fake_leave(PS_CU_SUCCESS);
}

/* What is under way is still done. */
ps_cu_result fake_stream_destroy(ps_cu_stream s)
{
    pthread_mutex_lock(&fake.lock);
    s->stops = true;
    pthread_cond_signal(&s->has_work);
    pthread_mutex_unlock(&fake.lock);
    pthread_join(s->thread, NULL);
    pthread_mutex_lock(&fake.lock);
    ps_cu_stream *p = &fake.streams;
    while (*p != s) p = &(*p)->next;
    *p = s->next;
    fake.n_streams--;
    pthread_cond_destroy(&s->has_work);
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
    pthread_cond_signal(&s->has_work);
}

void fake_issue_call(ps_cu_stream s, void (*run)(void *user), void *user)
{
    append(s, &(fake_command){.kind = CALL, .run = run, .user = user}, NULL, 0);
}

/* The lock is held, and is not afterwards. */
static ps_cu_result issue(ps_cu_stream s, const fake_command *what, const void *args, size_t args_bytes)
{
    append(s, what, args, args_bytes);
    return fake_leave(PS_CU_SUCCESS);
}

ps_cu_result fake_stream_wait(ps_cu_stream s)
{
    ENTER(true);
    while (s->first != NULL && !is_broken(fake_current())) pthread_cond_wait(&fake.changed, &fake.lock);
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
    const ps_cu_result r = issue(s, &(fake_command){.kind = COPY, .dst = dst, .src = src, .bytes = bytes}, NULL, 0);
    pthread_mutex_lock(&fake.lock);
    while (!is_known && s->first != NULL) pthread_cond_wait(&fake.changed, &fake.lock);
    pthread_mutex_unlock(&fake.lock);
    return r;
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
    return fake_leave(e->done >= e->recorded ? PS_CU_SUCCESS : PS_CU_NOT_READY);
}

ps_cu_result fake_event_wait(ps_cu_event e)
{
    ENTER(true);
    const uint64_t number = e->recorded;
    while (e->done < number && !is_broken(fake_current())) pthread_cond_wait(&fake.changed, &fake.lock);
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
    const fake_command c = {.kind = KERNEL,
                            .function = function,
                            .grid = {grid_x, grid_y, grid_z},
                            .block = {block_x, block_y, block_z},
                            .shared_bytes = shared_bytes};
    return issue(s, &c, args[0], function->args_bytes);
}

void fake_kernel_add(const char *name, fake_kernel run, void *user, size_t args_bytes)
{
    if (fake.n_kernels == FAKE_KERNELS) abort();
    fake.kernels[fake.n_kernels++] = (struct ps_cu_function_state){name, run, user, args_bytes, 0};
}
