/* What the pool of threads costs: microseconds of runs that do nothing.
 *
 * usage: bench_pool [ROUNDS] [THREADS]          (2000, one a core)
 *
 *   warm      a run of one item a thread right after another: what each kernel of a step pays
 *   asleep    the same after two milliseconds, when all threads sleep
 *   together  the same where each item waits until all have begun, and so until all threads are there
 *   item      dealing one item of many */
#include <stdatomic.h>
#include <time.h>

#include "bench.h"
#include "kernel/cpu/cpu_pool.h"

#define ITEMS 100000

static void nothing(const void *args, int64_t item, int64_t thread)
{
    (void)args, (void)item, (void)thread;
}

typedef struct meeting {
    atomic_int n_here;
    int n;
} meeting;

static void synchronize(const void *args, int64_t item, int64_t thread)
{
    meeting *const m = *(meeting *const *)args;
    (void)item, (void)thread;
    atomic_fetch_add(&m->n_here, 1);
    while (atomic_load(&m->n_here) < m->n) {
    }
}

static double run_us(ps_cpu_pool *pool, int64_t n_items)
{
    const double begin = bench_now();
    ps_cpu_pool_run(pool, n_items, nothing, NULL);
    return 1e6 * (bench_now() - begin);
}

static double barrier_us(ps_cpu_pool *pool)
{
    meeting m = {.n = ps_cpu_pool_threads(pool)}, *const at = &m;
    const double begin = bench_now();
    ps_cpu_pool_run(pool, m.n, synchronize, &at);
    return 1e6 * (bench_now() - begin);
}

static void rest(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

static void print(const char *what, bench_samples *s)
{
    const double median = bench_median(s);
    printf("%-24s %10.3f %10.3f\n", what, median, bench_least(s));
}

/* A sample of `warm` is the mean of ten runs. */
int main(int argc, char **argv)
{
    const int rounds = argc > 1 ? atoi(argv[1]) : 2000, n_threads = argc > 2 ? atoi(argv[2]) : ps_cpu_threads();
    bench_samples warm = {.n = 0}, asleep = {.n = 0}, together[2] = {{.n = 0}}, item = {.n = 0};
    ps_cpu_pool *pool;
    bench_check(ps_cpu_pool_create(n_threads, &pool));
    for (int i = 0; i < 10; i++) run_us(pool, n_threads);
    for (int i = 0; i < rounds / 10; i++) {
        double us = 0;
        for (int j = 0; j < 10; j++) us += run_us(pool, n_threads) / 10;
        bench_add(&warm, us);
    }
    for (int i = 0; i < rounds / 20; i++) {
        rest();
        bench_add(&asleep, run_us(pool, n_threads));
        rest();
        bench_add(&together[1], barrier_us(pool));
        bench_add(&together[0], barrier_us(pool));
    }
    for (int i = 0; i < rounds / 100; i++) bench_add(&item, run_us(pool, ITEMS) / ITEMS);
    printf("%d threads\nmicroseconds                  median      least\n", n_threads);
    print("warm", &warm);
    print("warm, together", &together[0]);
    print("asleep", &asleep);
    print("asleep, together", &together[1]);
    print("item", &item);
    ps_cpu_pool_destroy(pool);
    return 0;
}
