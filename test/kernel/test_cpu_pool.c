/* Every item is done once, by the threads there are, whichever thread calls and however short the run. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/mem.h"
#include "kernel/cpu/cpu_pool.h"

enum { MOST_THREADS = 8, MOST_ITEMS = 3000 };

typedef struct tally {
    int n_threads;
    atomic_int times[MOST_ITEMS];    /* that the item was done */
    atomic_int inside[MOST_THREADS]; /* threads of that number that work now */
    atomic_bool is_wrong;
} tally;

static tally *tally_create(int n_threads)
{
    tally *t;
    assert_int_equal(ps_mem_alloc(1, sizeof *t, &t), PS_OK);
    t->n_threads = n_threads;
    return t;
}

static void tally_count(const void *args, int64_t item, int64_t thread)
{
    tally *const t = *(tally *const *)args;
    if (thread < 0 || thread >= t->n_threads || item < 0 || item >= MOST_ITEMS) {
        atomic_store(&t->is_wrong, true);
        return;
    }
    if (atomic_fetch_add(&t->inside[thread], 1) != 0) atomic_store(&t->is_wrong, true);
    atomic_fetch_add(&t->times[item], 1);
    atomic_fetch_sub(&t->inside[thread], 1);
}

/* n items were done `times` times each, no other was. */
static void tally_check(const tally *t, int64_t n, int times)
{
    assert_false(atomic_load(&t->is_wrong));
    for (int64_t i = 0; i < MOST_ITEMS; i++) assert_int_equal(atomic_load(&t->times[i]), i < n ? times : 0);
}

static ps_cpu_pool *pool_of(int n_threads)
{
    ps_cpu_pool *pool;
    assert_int_equal(ps_cpu_pool_create(n_threads, &pool), PS_OK);
    assert_int_equal(ps_cpu_pool_threads(pool), n_threads);
    return pool;
}

static void sleep_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL);
}

static void every_item_is_done_once(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 2, 3, 7, 8, 9, 64, 1000, MOST_ITEMS};
    for (int n_threads = 1; n_threads <= MOST_THREADS; n_threads++) {
        ps_cpu_pool *const pool = pool_of(n_threads);
        for (size_t i = 0; i < PS_ARRAY_LEN(sizes); i++) {
            tally *t = tally_create(n_threads);
            ps_cpu_pool_run(pool, sizes[i], tally_count, &t);
            tally_check(t, sizes[i], 1);
            ps_cpu_pool_run_if(pool, false, sizes[i], tally_count, &t);
            tally_check(t, sizes[i], 2);
            ps_mem_free(t);
        }
        ps_cpu_pool_destroy(pool);
    }
}

static void thousands_of_short_runs(void **state)
{
    (void)state;
    for (int n_threads = 2; n_threads <= MOST_THREADS; n_threads += 3) {
        ps_cpu_pool *const pool = pool_of(n_threads);
        tally *t = tally_create(n_threads);
        for (int i = 0; i < 3000; i++) {
            ps_cpu_pool_run(pool, 2 + i % 3, tally_count, &t);
            if (i % 1000 == 0) sleep_ms(2); /* the threads sleep */
        }
        assert_false(atomic_load(&t->is_wrong));
        assert_int_equal(atomic_load(&t->times[0]), 3000);
        assert_int_equal(atomic_load(&t->times[1]), 3000);
        assert_int_equal(atomic_load(&t->times[2]), 2000);
        assert_int_equal(atomic_load(&t->times[3]), 1000);
        ps_mem_free(t);
        ps_cpu_pool_destroy(pool);
    }
}

/* Each item waits until all have been begun: done by one thread after the other it would never end. */
static void synchronize(const void *args, int64_t item, int64_t thread)
{
    atomic_int *const n_here = *(atomic_int *const *)args;
    (void)item, (void)thread;
    atomic_fetch_add(n_here, 1);
    while (atomic_load(n_here) < MOST_THREADS) sched_yield();
}

static void all_threads_work_at_once(void **state)
{
    (void)state;
    ps_cpu_pool *const pool = pool_of(MOST_THREADS);
    for (int i = 0; i < 20; i++) {
        atomic_int n_here = 0, *const at = &n_here;
        if (i % 2 == 1) sleep_ms(2);
        ps_cpu_pool_run(pool, MOST_THREADS, synchronize, &at);
    }
    ps_cpu_pool_destroy(pool);
}

typedef struct caller {
    ps_cpu_pool *pool;
    tally *t;
    int n_runs;
} caller;

static void *caller_main(void *arg)
{
    const caller *const c = arg;
    for (int i = 0; i < c->n_runs; i++) ps_cpu_pool_run(c->pool, 10, tally_count, &c->t);
    return NULL;
}

static void callers_take_turns(void **state)
{
    (void)state;
    enum { CALLERS = 4, RUNS = 500 };
    ps_cpu_pool *const pool = pool_of(3);
    caller callers[CALLERS];
    pthread_t ids[CALLERS];
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = (caller){pool, tally_create(3), RUNS};
        assert_int_equal(pthread_create(&ids[i], NULL, caller_main, &callers[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(ids[i], NULL);
        tally_check(callers[i].t, 10, RUNS);
        ps_mem_free(callers[i].t);
    }
    ps_cpu_pool_destroy(pool);
}

static void count_range(const void *args, int64_t lo, int64_t hi)
{
    tally *const t = *(tally *const *)args;
    if (lo % 16 != 0 || lo >= hi || hi > MOST_ITEMS) atomic_store(&t->is_wrong, true);
    for (int64_t i = lo; i < hi; i++) atomic_fetch_add(&t->times[i], 1);
}

static void ranges_are_cut_at_blocks(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 15, 16, 17, 99, 100, 160, 1000, 1001, MOST_ITEMS};
    for (int n_threads = 1; n_threads <= MOST_THREADS; n_threads++) {
        ps_cpu_pool *const pool = pool_of(n_threads);
        for (size_t i = 0; i < PS_ARRAY_LEN(sizes); i++) {
            tally *t = tally_create(n_threads);
            ps_cpu_pool_run_range(pool, sizes[i], 16, 100, count_range, &t);
            tally_check(t, sizes[i], 1);
            ps_mem_free(t);
        }
        ps_cpu_pool_destroy(pool);
    }
}

static void pools_end_asleep_and_awake(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) {
        ps_cpu_pool *const pool = pool_of(1 + i % MOST_THREADS);
        if (i % 4 == 1) sleep_ms(1);
        tally *t = tally_create(MOST_THREADS);
        if (i % 4 >= 2) ps_cpu_pool_run(pool, 9, tally_count, &t);
        ps_mem_free(t);
        ps_cpu_pool_destroy(pool);
    }
    ps_cpu_pool_destroy(NULL);
}

/* ---- what the threads are ---- */

typedef struct thread_facts {
    atomic_int n_here, n_named, n_blocking, n_faulting;
} thread_facts;

static void look(const void *args, int64_t item, int64_t thread)
{
    thread_facts *const f = *(thread_facts *const *)args;
    char name[16] = "", want[16];
    sigset_t mask;
    pthread_getname_np(pthread_self(), name, sizeof name);
    snprintf(want, sizeof want, "ps-cpu-%d", (int)thread);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    if (thread > 0 && strcmp(name, want) == 0) atomic_fetch_add(&f->n_named, 1);
    if (sigismember(&mask, SIGTERM) && sigismember(&mask, SIGUSR1)) atomic_fetch_add(&f->n_blocking, 1);
    if (!sigismember(&mask, SIGSEGV)) atomic_fetch_add(&f->n_faulting, 1);
    atomic_int *const n_here = &f->n_here;
    synchronize(&n_here, item, thread);
}

static void threads_have_names_and_take_no_signals(void **state)
{
    (void)state;
    thread_facts facts = {0}, *const at = &facts;
    sigset_t before, after;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    ps_cpu_pool *const pool = pool_of(MOST_THREADS);
    ps_cpu_pool_run(pool, MOST_THREADS, look, &at);
    ps_cpu_pool_destroy(pool);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    assert_int_equal(facts.n_named, MOST_THREADS - 1);
    assert_int_equal(facts.n_blocking, MOST_THREADS - 1);
    assert_int_equal(facts.n_faulting, MOST_THREADS);
    assert_int_equal(sigismember(&before, SIGTERM), sigismember(&after, SIGTERM));
}

/* ---- refusals ---- */

static void what_cannot_be_had_is_refused(void **state)
{
    (void)state;
    const int64_t before = ps_mem_live_bytes();
    ps_cpu_pool *pool;
    assert_int_equal(ps_cpu_pool_create(0, &pool), PS_EINVAL);
    assert_null(pool);
    ps_fault_arm(PS_FAULT_ALLOC, 0, false);
    assert_int_equal(ps_cpu_pool_create(2, &pool), PS_ENOMEM_HOST);
    ps_fault_arm(PS_FAULT_ALLOC, -1, false);
    assert_null(pool);
    assert_int_equal(ps_mem_live_bytes(), before);
}

/* A child, as no limit goes up again. Address space for some of the stacks, not for a thousand. */
static int too_many_threads(void)
{
    const struct rlimit limit = {(rlim_t)256 << 20, (rlim_t)256 << 20};
    const int64_t before = ps_mem_live_bytes();
    ps_cpu_pool *pool;
    if (setrlimit(RLIMIT_AS, &limit) != 0) return 1;
    if (ps_cpu_pool_create(1000, &pool) != PS_ENOSYS || pool != NULL) return 2;
    if (strstr(ps_last_error(), "of the 1000 threads") == NULL || strstr(ps_last_error(), ", or take ") == NULL)
        return 3;
    return ps_mem_live_bytes() == before ? 0 : 4;
}

static int status_of_child(pid_t pid)
{
    int status = 0;
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256;
}

static void a_limit_of_the_system_is_named(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* sanitizers want more address space than any such limit leaves */
#endif
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) _exit(too_many_threads());
    assert_int_equal(status_of_child(pid), 0);
}

static void a_forked_child_works_alone(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* it ends children of programs with threads */
#endif
    ps_cpu_pool *const pool = pool_of(4);
    tally *t = tally_create(1);
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        ps_cpu_pool_run(pool, 100, tally_count, &t);
        for (int i = 0; i < 100; i++)
            if (atomic_load(&t->times[i]) != 1) _exit(1);
        ps_cpu_pool_destroy(pool);
        _exit(atomic_load(&t->is_wrong) ? 2 : 0);
    }
    assert_int_equal(status_of_child(pid), 0);
    ps_mem_free(t);
    ps_cpu_pool_destroy(pool);
}

/* ---- what is forbidden is an assertion ---- */

typedef struct nested {
    ps_cpu_pool *pool, *other;
    bool by_thread; /* of the pool, else by the caller */
    bool alone;
} nested;

static void nothing(const void *args, int64_t item, int64_t thread)
{
    (void)args, (void)item, (void)thread;
}

static void run_inside(const void *args, int64_t item, int64_t thread)
{
    const nested *const n = args;
    (void)item;
    if ((thread > 0) == n->by_thread) ps_cpu_pool_run_if(n->other, !n->alone, 2, nothing, NULL);
    sleep_ms(1); /* the others get items too */
}

static void range_inside(const void *args, int64_t lo, int64_t hi)
{
    (void)lo, (void)hi;
    run_inside(args, 0, 0);
}

/* A child that asserts dies of SIGABRT, which cmocka and sanitizers would catch. */
static void expect_abort_begins(void)
{
    signal(SIGABRT, SIG_DFL);
    close(STDERR_FILENO);
}

static bool has_aborted(pid_t pid)
{
    int status = 0;
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void work_must_not_run_a_pool(void **state)
{
    (void)state;
    if (PS_DEBUG < 1) skip();
    for (int i = 0; i < 10; i++) {
        fflush(NULL);
        const pid_t pid = fork();
        if (pid == 0) {
            expect_abort_begins();
            ps_cpu_pool *const pool = pool_of(4);
            const nested n = {pool, i & 1 ? pool_of(2) : pool, i & 2, i & 4};
            if (i < 8)
                ps_cpu_pool_run(pool, 40, run_inside, &n);
            else
                ps_cpu_pool_run_range(pool, 1, 1, i == 8 ? 2 : 1, range_inside, &n);
            _exit(0);
        }
        assert_true(has_aborted(pid));
    }
}

/* One item waits until it is let go. */
typedef struct gate {
    ps_cpu_pool *pool;
    atomic_bool is_inside, is_open;
} gate;

static void wait_at_gate(const void *args, int64_t item, int64_t thread)
{
    gate *const g = *(gate *const *)args;
    (void)item, (void)thread;
    atomic_store(&g->is_inside, true);
    while (!atomic_load(&g->is_open)) sleep_ms(1);
}

static void *run_to_gate(void *arg)
{
    gate *const g = arg;
    ps_cpu_pool_run(g->pool, 2, wait_at_gate, &g);
    return NULL;
}

static void a_child_of_the_midst_of_a_run_must_not_run(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* it ends children of programs with threads */
#endif
    if (PS_DEBUG < 1) skip();
    gate g = {.pool = pool_of(2)};
    pthread_t runner;
    assert_int_equal(pthread_create(&runner, NULL, run_to_gate, &g), 0);
    while (!atomic_load(&g.is_inside)) sleep_ms(1);
    fflush(NULL);
    const pid_t runs = fork();
    if (runs == 0) {
        expect_abort_begins();
        ps_cpu_pool_run(g.pool, 2, nothing, NULL);
        _exit(0);
    }
    const pid_t destroys = fork();
    if (destroys == 0) {
        ps_cpu_pool_destroy(g.pool);
        _exit(0);
    }
    atomic_store(&g.is_open, true);
    pthread_join(runner, NULL);
    assert_true(has_aborted(runs));
    assert_int_equal(status_of_child(destroys), 0);
    ps_cpu_pool_destroy(g.pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_is_done_once),
        cmocka_unit_test(thousands_of_short_runs),
        cmocka_unit_test(all_threads_work_at_once),
        cmocka_unit_test(callers_take_turns),
        cmocka_unit_test(ranges_are_cut_at_blocks),
        cmocka_unit_test(pools_end_asleep_and_awake),
        cmocka_unit_test(threads_have_names_and_take_no_signals),
        cmocka_unit_test(what_cannot_be_had_is_refused),
        cmocka_unit_test(a_limit_of_the_system_is_named),
        cmocka_unit_test(a_forked_child_works_alone),
        cmocka_unit_test(work_must_not_run_a_pool),
        cmocka_unit_test(a_child_of_the_midst_of_a_run_must_not_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
