/* cpu_pool.h - the compute threads of a cpu backend. They are independent of the program's OpenMP and of environment
 * variables.
 *
 *     ps_cpu_pool_run(pool, n_items, work, args)        work(args, item, thread) for each item of [0, n_items)
 *
 * Such a call is a run of the pool. Free threads take items in ascending order. There is no barrier inside work: two
 * phases are two runs. Results may depend on the item, never on the thread or the number of threads; `thread` selects
 * scratch only.
 *
 * Threads without work spin for some tens of microseconds, then sleep. A run waits for started items, not for threads:
 * a descheduled thread takes fewer items, and delays no other thread. The threads block all signals except those of
 * their own faults, have stacks of a fixed size, independent of limits, and the rounding mode PS_CPU_ROUNDING.
 *
 * Any thread may call it, several at once; runs that need the threads are serialised. A forked child has only the
 * forking thread, which then executes all items of its runs, and may destroy the pool. If the fork happened during a
 * run, the child must not run the pool. These rules are asserted from DEBUG=1 on. */
#ifndef PS_KERNEL_CPU_POOL_H
#define PS_KERNEL_CPU_POOL_H

#include "base/base.h"
#include "base/status.h"

typedef struct ps_cpu_pool ps_cpu_pool;

/* MXCSR of compute threads: round to nearest, keep subnormal numbers, no traps. */
#define PS_CPU_ROUNDING 0x1F80u

/* thread: 0 .. n_threads - 1, different for concurrent items, so that it selects exclusive scratch. Must not run a
 * pool. */
typedef void (*ps_cpu_work)(const void *args, int64_t item, int64_t thread);

/* Elements [lo, hi) of elementwise work. */
typedef void (*ps_cpu_range)(const void *args, int64_t lo, int64_t hi);

/* n_threads >= 1 includes the caller of a run: n_threads - 1 are started. PS_EINVAL when it is less, PS_ENOSYS when the
 * system refuses to start them, PS_ENOMEM_HOST. */
PS_NODISCARD ps_status ps_cpu_pool_create(int n_threads, ps_cpu_pool **out);
void ps_cpu_pool_destroy(ps_cpu_pool *pool); /* NULL is accepted; no run may be active */

int ps_cpu_pool_threads(const ps_cpu_pool *pool);

/* Returns when all items are done; the caller is thread 0. With one thread or one item only the caller works. */
void ps_cpu_pool_run(ps_cpu_pool *pool, int64_t n_items, ps_cpu_work work, const void *args);

/* As ps_cpu_pool_run if is_worthwhile; else the caller executes all items, and no thread is woken. */
void ps_cpu_pool_run_if(ps_cpu_pool *pool, bool is_worthwhile, int64_t n_items, ps_cpu_work work, const void *args);

/* Call range for all of [0, n), divided at multiples of `block`; by the caller only if n < least. The number of blocks
 * of a call depends on the number of threads, so elements must be independent of each other. */
void ps_cpu_pool_run_range(ps_cpu_pool *pool, int64_t n, int64_t block, int64_t least, ps_cpu_range range,
                           const void *args);

#endif
