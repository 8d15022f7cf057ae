/* bound.h - a lower bound for a step's duration on a machine with this throughput: the busiest resource, without any
 * waits.
 *
 *     bound = max(computing, updates on the host, copies, disk, collectives)
 *
 * Copies and disk are bytes / bandwidth, without latencies: the longer of the two directions, or both when they slow
 * each other. The bytes are those of the forecast, so another order that moves fewer has another bound.
 *
 * The disk's phases are another bound, for any order of updates. Of the model data, D bytes in M of memory, E are those
 * of chunks updated early, R the others, and t(x) is the time in which the disk reads x bytes and writes as many:
 *
 *       first forward pass     other micro-batches       last backward pass
 *     |--------- F ----------|------- A, if any -------|--------- B ----------|   computing
 *        R is accessed           no optimizer data         E is accessed
 *
 * A window begins with at most M bytes of what it accesses in memory, and ends with at most M that are yet to be
 * written. So at least E - M are read and written in the last backward pass, R - M in the first forward pass with the
 * updates before it, and D - M in both together, as one follows the other. A step takes at least
 *
 *     A + max( max(B, t(E - M)) + max(F, t(R - M)), t(D - M) )
 *
 * That is A + B + t(D - M) with deferred updates alone, A + F + t(D - M) with early ones alone; only a mix comes down to
 * the longer of computing and the disk's bytes. */
#ifndef PS_RUN_BOUND_H
#define PS_RUN_BOUND_H

#include "train/run/exec_plan.h"
#include "train/run/forecast.h"

typedef enum ps_bound_part {
    PS_BOUND_COMPUTE,
    PS_BOUND_HOST, /* updates on the host, where they have a separate queue */
    PS_BOUND_RAM,  /* copies between device and host */
    PS_BOUND_DISK,
    PS_BOUND_COLLECTIVES,
    PS_BOUND_COUNT,
} ps_bound_part;

typedef struct ps_bound {
    int64_t part_ns[PS_BOUND_COUNT];
    ps_bound_part by;  /* the part that takes longest: its time is the bound */
    int64_t phases_ns; /* the disk's; 0: memory holds everything */
} ps_bound;

/* Without phases; and with them, for a plan. */
ps_bound ps_bound_of(const ps_link_bandwidths *throughput, const ps_forecast *f);
ps_bound ps_bound_of_plan(const ps_exec_plan *b, const ps_forecast *f);

/* For the disk's phases: F, A and B, computing without updates; E and R. */
typedef struct ps_bound_windows {
    int64_t first_forward_ns, between_ns, last_backward_ns;
    int64_t early_bytes, other_bytes;
} ps_bound_windows;

/* The disk's phases. 0 where memory holds everything. */
int64_t ps_bound_phases_ns(const ps_link_bandwidths *throughput, const ps_bound_windows *w, int64_t memory_bytes);

static inline int64_t ps_bound_ns(const ps_bound *b)
{
    return b->part_ns[b->by];
}

/* "computing", "host updates", "copies between device and host", "the disk", "collectives" */
const char *ps_bound_part_name(ps_bound_part p);
extern const char ps_bound_phases_name[]; /* "the disk's phases" */

enum { PS_BOUND_TEXT_MAX = 320 };

/* "0.481 s for computing alone; 0.232 s for the disk, 0.3 s for passes that wait for the disk traffic of updates" */
const char *ps_bound_text(const ps_bound *b, char text[PS_BOUND_TEXT_MAX]);

/* Reasons why this step is slower than the bound: "computing waits 0.0514 s for disk write, 0.0313 s for disk read;
 * copies slow it by 0.0110 s; the disk is idle, or busy in one direction only, for 0.200 s". "" where there is none. */
const char *ps_bound_between(const ps_bound *b, const ps_step_time *t, char text[PS_BOUND_TEXT_MAX]);

#endif
