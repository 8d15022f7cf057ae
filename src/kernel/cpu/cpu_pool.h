/* cpu_pool.h - the threads that a cpu backend computes with: its own, so that neither a program's OpenMP nor the
 * environment has a say in how many there are.
 *
 *     ps_cpu_pool_run(pool, n_items, work, args)        work(args, item, thread) for each item of [0, n_items)
 *
 * Such a call is a run of the pool. Items are dealt in ascending order to whichever thread is free. There is no barrier
 * inside work: two phases are two runs. What is computed may depend on the item, never on the thread or on how many
 * there are; `thread` picks scratch only.
 *
 * Threads without work spin for some tens of microseconds, then sleep. A run waits for the items that were begun, and
 * for no thread: one that the system does not let run takes fewer items, and holds up nobody. The threads take no
 * signals but those of their own faults, have stacks of a fixed size, whatever the limits say, and round as
 * PS_CPU_ROUNDING says.
 *
 * May be called from any thread, by several at once: runs that need the threads come one after another. A forked child
 * has the thread that forked and no other: that one does all items of its runs, and may destroy the pool. If it forked
 * while a run was under way, the child must not run the pool. What is forbidden is asserted from DEBUG=1 on. */
#ifndef PS_KERNEL_CPU_POOL_H
#define PS_KERNEL_CPU_POOL_H

#include "base/base.h"
#include "base/status.h"

typedef struct ps_cpu_pool ps_cpu_pool;

/* MXCSR (the register of rounding) of threads that compute: to nearest, subnormal numbers kept, no traps. */
#define PS_CPU_ROUNDING 0x1F80u

/* thread: 0 .. n_threads - 1, never the same for two items at once, so the scratch of that number is this item's
 * meanwhile. Must not run any pool. */
typedef void (*ps_cpu_work)(const void *args, int64_t item, int64_t thread);

/* Elements [lo, hi) of elementwise work. */
typedef void (*ps_cpu_range)(const void *args, int64_t lo, int64_t hi);

/* n_threads >= 1, the caller of a run counted: n_threads - 1 are started. PS_EINVAL when it is less, PS_ENOSYS when the
 * system refuses to start as many, PS_ENOMEM_HOST. */
PS_NODISCARD ps_status ps_cpu_pool_create(int n_threads, ps_cpu_pool **out);
void ps_cpu_pool_destroy(ps_cpu_pool *pool); /* NULL is accepted; nobody may be in a run */

int ps_cpu_pool_threads(const ps_cpu_pool *pool);

/* Returns when all items are done; the caller is thread 0. With one thread or one item the caller does it alone. */
void ps_cpu_pool_run(ps_cpu_pool *pool, int64_t n_items, ps_cpu_work work, const void *args);

/* As ps_cpu_pool_run where is_worthwhile; else the caller does all items, and nobody is woken. */
void ps_cpu_pool_run_if(ps_cpu_pool *pool, bool is_worthwhile, int64_t n_items, ps_cpu_work work, const void *args);

/* Call range for all of [0, n), cut at multiples of `block`; by the caller alone if n < least. How many blocks go into
 * a call depends on the number of threads: only for work whose elements have nothing to do with each other. */
void ps_cpu_pool_run_range(ps_cpu_pool *pool, int64_t n, int64_t block, int64_t least, ps_cpu_range range,
                           const void *args);

#endif
