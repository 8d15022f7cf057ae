/* One atomic word has the number of the deal and its remaining items. A thread takes an item by a compare-and-swap that
 * decrements the word; it fails when anything has changed, so the thread may read the run's description before it, and
 * a run need not wait for late threads. The run ends when all items are done, which another word counts. */
#include "kernel/cpu/cpu_pool.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xmmintrin.h>

#include "base/machine.h"
#include "base/mem.h"
#include "device/stall.h"

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

/* A waiting thread spins for about the time between two kernels of a step, which is about the time of waking a
 * thread. */
#define SPIN_NS 50000

/* Pauses between two readings of the clock. */
#define PAUSES 8

/* Without a signal frame; hundreds of kilobytes more than any kernel uses. */
#define STACK_BYTES ((size_t)1 << 20)

/* Maximum number of items of a deal: they are counted in half a word. */
#define DEAL_ITEMS (INT64_C(1) << 31)

/* Items of elementwise work per thread; several, so that a late thread does not delay the others. */
#define SHARES_A_THREAD 8

/* Keeps words that different threads write in separate cache lines. */
#define LINE_BYTES 64

typedef struct pool_thread {
    ps_cpu_pool *pool;
    int64_t number; /* 1 .. n_threads - 1 */
    pthread_t id;
} pool_thread;

struct ps_cpu_pool {
    pthread_mutex_t turn; /* held by the caller of the active run */
    int n_threads, n_started;
    pid_t process; /* the process of the threads */
#if PS_DEBUG >= 1
    _Atomic pid_t running; /* the process of the active run; 0: none */
#endif

    /* The active run: written while no items remain, read by threads that may take an item. */
    _Atomic(ps_cpu_work) work;
    _Atomic(const void *) args;
    _Atomic int64_t first;   /* item of this deal */
    _Atomic uint32_t n_deal; /* items */

    char line_of_left[LINE_BYTES];
    _Atomic uint64_t left; /* number of the deal << 32 | items not taken yet */
    char line_of_undone[LINE_BYTES];
    _Atomic uint32_t n_undone;  /* items; the caller sleeps on it */
    _Atomic bool caller_sleeps; /* or is about to */
    char line_of_call[LINE_BYTES];
    _Atomic uint32_t call;     /* futex word, incremented to wake the threads */
    _Atomic uint32_t n_asleep; /* or about to sleep */
    _Atomic bool is_ending;
    char line_of_threads[LINE_BYTES];
    pool_thread threads[]; /* [n_threads - 1] */
};

static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int64_t n)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, (int)n, NULL, NULL, 0);
}

/* ---- checks of the contract ---- */

#if PS_DEBUG >= 1

static _Thread_local bool is_at_work; /* this thread executes items */

static void check_call(const ps_cpu_pool *pool)
{
    const pid_t process = atomic_load(&pool->running);
    PS_ASSERT(!is_at_work);                         /* work must not run a pool */
    PS_ASSERT(process == 0 || process == getpid()); /* forked during a run, which cannot end in the child */
}

static void note_work(bool begins)
{
    is_at_work = begins;
}

static void note_run(ps_cpu_pool *pool, bool begins)
{
    atomic_store(&pool->running, begins ? getpid() : 0);
}

#else

static void check_call(const ps_cpu_pool *pool)
{
    (void)pool;
}

static void note_work(bool begins)
{
    (void)begins;
}

static void note_run(ps_cpu_pool *pool, bool begins)
{
    (void)pool, (void)begins;
}

#endif

/* ---- items ---- */

static bool has_items(const ps_cpu_pool *pool)
{
    return (uint32_t)atomic_load(&pool->left) != 0;
}

/* Execute items until none is left. The run cannot end, nor another begin, before taken items are counted as done. */
static void do_items(ps_cpu_pool *pool, int64_t thread)
{
    uint32_t n_done = 0;
    uint64_t left = atomic_load(&pool->left);
    note_work(true);
    while ((uint32_t)left != 0) {
        const ps_cpu_work work = atomic_load_explicit(&pool->work, memory_order_relaxed);
        const void *const args = atomic_load_explicit(&pool->args, memory_order_relaxed);
        const int64_t end = atomic_load_explicit(&pool->first, memory_order_relaxed) +
                            atomic_load_explicit(&pool->n_deal, memory_order_relaxed);
        if (!atomic_compare_exchange_weak(&pool->left, &left, left - 1)) continue;
        work(args, end - (uint32_t)left, thread);
        ps_stall_progress();
        n_done++;
        left = atomic_load(&pool->left);
    }
    note_work(false);
    if (n_done > 0 && atomic_fetch_sub(&pool->n_undone, n_done) == n_done && atomic_load(&pool->caller_sleeps))
        futex_wake(&pool->n_undone, 1);
}

/* ---- waiting ---- */

static bool is_called(const ps_cpu_pool *pool)
{
    return has_items(pool) || atomic_load(&pool->is_ending);
}

static bool is_done(const ps_cpu_pool *pool)
{
    return atomic_load(&pool->n_undone) == 0;
}

static bool spin(const ps_cpu_pool *pool, bool (*has_come)(const ps_cpu_pool *))
{
    const int64_t until_ns = ps_clock_ns() + SPIN_NS;
    do
        for (int i = 0; i < PAUSES; i++) {
            if (has_come(pool)) return true;
            _mm_pause();
        }
    while (ps_clock_ns() < until_ns);
    return false;
}

/* Returns when there may be items. Either this thread sees the items, or the dealing thread sees that it sleeps; a call
 * between the check and the sleep changes the futex word. */
static void await_call(ps_cpu_pool *pool)
{
    if (spin(pool, is_called)) return;
    atomic_fetch_add(&pool->n_asleep, 1);
    const uint32_t call = atomic_load(&pool->call);
    if (!is_called(pool)) futex_wait(&pool->call, call);
    atomic_fetch_sub(&pool->n_asleep, 1);
}

static void wake_threads(ps_cpu_pool *pool, int64_t n)
{
    const int64_t n_asleep = atomic_load(&pool->n_asleep);
    if (n_asleep == 0) return;
    atomic_fetch_add(&pool->call, 1);
    futex_wake(&pool->call, ps_min_i64(n, n_asleep));
}

static void await_done(ps_cpu_pool *pool)
{
    if (is_done(pool) || spin(pool, is_done)) return;
    atomic_store(&pool->caller_sleeps, true);
    for (uint32_t n; (n = atomic_load(&pool->n_undone)) != 0;) futex_wait(&pool->n_undone, n);
    atomic_store(&pool->caller_sleeps, false);
}

/* ---- runs ---- */

static void deal_items(ps_cpu_pool *pool, int64_t first, int64_t n, ps_cpu_work work, const void *args)
{
    atomic_store_explicit(&pool->work, work, memory_order_relaxed);
    atomic_store_explicit(&pool->args, args, memory_order_relaxed);
    atomic_store_explicit(&pool->first, first, memory_order_relaxed);
    atomic_store_explicit(&pool->n_deal, (uint32_t)n, memory_order_relaxed);
    atomic_store_explicit(&pool->n_undone, (uint32_t)n, memory_order_relaxed);
    const uint64_t deal = (atomic_load_explicit(&pool->left, memory_order_relaxed) >> 32) + 1;
    atomic_store(&pool->left, deal << 32 | (uint64_t)n);
    wake_threads(pool, n - 1);
    do_items(pool, 0);
    await_done(pool);
}

static void run_single_rank(int64_t n_items, ps_cpu_work work, const void *args)
{
    note_work(true);
    for (int64_t i = 0; i < n_items; i++) {
        work(args, i, 0);
        ps_stall_progress();
    }
    note_work(false);
}

void ps_cpu_pool_run_if(ps_cpu_pool *pool, bool is_worthwhile, int64_t n_items, ps_cpu_work work, const void *args)
{
    check_call(pool);
    if (pool->n_threads == 1 || n_items <= 1 || !is_worthwhile) {
        run_single_rank(n_items, work, args);
        return;
    }
    pthread_mutex_lock(&pool->turn);
    note_run(pool, true);
    for (int64_t i = 0; i < n_items; i += DEAL_ITEMS)
        deal_items(pool, i, ps_min_i64(DEAL_ITEMS, n_items - i), work, args);
    note_run(pool, false);
    pthread_mutex_unlock(&pool->turn);
}

void ps_cpu_pool_run(ps_cpu_pool *pool, int64_t n_items, ps_cpu_work work, const void *args)
{
    ps_cpu_pool_run_if(pool, true, n_items, work, args);
}

typedef struct range_work {
    ps_cpu_range range;
    const void *args;
    int64_t n, share;
} range_work;

static void do_share(const void *args, int64_t item, int64_t thread)
{
    const range_work *const r = args;
    (void)thread;
    r->range(r->args, item * r->share, ps_min_i64(r->n, (item + 1) * r->share));
}

void ps_cpu_pool_run_range(ps_cpu_pool *pool, int64_t n, int64_t block, int64_t least, ps_cpu_range range,
                           const void *args)
{
    check_call(pool);
    if (n <= 0) return;
    if (n < least || pool->n_threads == 1) {
        note_work(true);
        range(args, 0, n);
        note_work(false);
        return;
    }
    const int64_t n_blocks = ps_ceil_div(n, block), n_shares = (int64_t)pool->n_threads * SHARES_A_THREAD;
    const range_work r = {range, args, n, block * ps_ceil_div(n_blocks, n_shares)};
    ps_cpu_pool_run(pool, ps_ceil_div(n, r.share), do_share, &r);
}

int ps_cpu_pool_threads(const ps_cpu_pool *pool)
{
    return pool->n_threads;
}

/* ---- threads ---- */

static void *thread_main(void *arg)
{
    pool_thread *const t = arg;
    char name[16];
    snprintf(name, sizeof name, "ps-cpu-%d", (int)t->number);
    pthread_setname_np(pthread_self(), name);
    _mm_setcsr(PS_CPU_ROUNDING); /* inherited from the starting thread until now */
    while (!atomic_load(&t->pool->is_ending)) {
        do_items(t->pool, t->number);
        await_call(t->pool);
    }
    return NULL;
}

/* A signal frame has all registers, tiles included. */
static size_t stack_bytes(void)
{
    return STACK_BYTES + (size_t)ps_round_up((int64_t)getauxval(AT_MINSIGSTKSZ), 4096);
}

/* Synchronous signals (faults) cannot be blocked; all others are left to the program's threads. */
static void get_blocked_signals(sigset_t *out)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS, SIGABRT};
    sigfillset(out);
    for (size_t i = 0; i < PS_ARRAY_LEN(faults); i++) sigdelset(out, faults[i]);
}

/* Starts as many threads as the system allows; returns the error of the first failure. */
static int start_threads(ps_cpu_pool *pool)
{
    pthread_attr_t attr;
    sigset_t blocked, before;
    int error = pthread_attr_init(&attr);
    if (error != 0) return error;
    pthread_attr_setstacksize(&attr, stack_bytes());
    get_blocked_signals(&blocked);
    pthread_sigmask(SIG_BLOCK, &blocked, &before); /* threads inherit the signal mask */
    while (error == 0 && pool->n_started < pool->n_threads - 1) {
        pool_thread *const t = &pool->threads[pool->n_started];
        *t = (pool_thread){.pool = pool, .number = pool->n_started + 1};
        error = pthread_create(&t->id, &attr, thread_main, t);
        if (error == 0) pool->n_started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return error;
}

ps_status ps_cpu_pool_create(int n_threads, ps_cpu_pool **out)
{
    ps_cpu_pool *pool = NULL;
    *out = NULL;
    if (n_threads < 1) return PS_FAIL(PS_EINVAL, "%d threads: at least 1 is needed", n_threads);
    PS_TRY(ps_mem_alloc(1, sizeof *pool + (size_t)(n_threads - 1) * sizeof pool->threads[0], &pool));
    pool->n_threads = n_threads;
    pool->process = getpid();
    pthread_mutex_init(&pool->turn, NULL);
    const int error = start_threads(pool), n_had = pool->n_started + 1;
    if (error != 0) {
        ps_cpu_pool_destroy(pool);
        return PS_FAIL(
            PS_ENOSYS,
            "the system starts no more than %d of the %d threads that were planned (%s): raise its limit (ulimit -u, "
            "ulimit -v, pids.max of the cgroup), or take %d",
            n_had, n_threads, strerror(error), n_had);
    }
    *out = pool;
    return PS_OK;
}

void ps_cpu_pool_destroy(ps_cpu_pool *pool)
{
    if (pool == NULL) return;
    atomic_store(&pool->is_ending, true);
    wake_threads(pool, pool->n_started);
    for (int i = 0; i < pool->n_started && pool->process == getpid(); i++) pthread_join(pool->threads[i].id, NULL);
    pthread_mutex_destroy(&pool->turn);
    ps_mem_free(pool);
}
