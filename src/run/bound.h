/* bound.h - what a step cannot be faster than on a machine with these rates: whoever has most to do, if nobody ever
 * waited for another.
 *
 *     bound = max(computing, updates on the host, copies, disk, collectives)
 *
 * Copies and disk are bytes / rate, without latencies: of the two ways the longer one, or both when they slow each
 * other. The bytes are those that the forecast moves, so another order that moves fewer has another bound.
 *
 * Beside it stand the disk's phases, which no order of updates after the backward pass gets round: they touch all of D
 * bytes of model data after the norm and before the next backward pass, so of them the D - M that memory does not hold
 * are read then, and as many written; and the backward pass comes after it. Early updates have none. */
#ifndef PS_RUN_BOUND_H
#define PS_RUN_BOUND_H

#include "run/blueprint.h"
#include "run/forecast.h"

typedef enum ps_bound_part {
    PS_BOUND_COMPUTE,
    PS_BOUND_HOST, /* updates on the host, where they have a queue of their own */
    PS_BOUND_RAM,  /* copies between device and host */
    PS_BOUND_DISK,
    PS_BOUND_COLLECTIVES,
    PS_BOUND_COUNT,
} ps_bound_part;

typedef struct ps_bound {
    int64_t part_ns[PS_BOUND_COUNT];
    ps_bound_part by;  /* the one that takes longest: the bound is its time */
    int64_t phases_ns; /* the disk's; 0: memory holds all, or updates are early */
} ps_bound;

/* Without phases; and with them, for a plan. */
ps_bound ps_bound_of(const ps_link_rates *rates, const ps_forecast *f);
ps_bound ps_bound_of_plan(const ps_blueprint *b, const ps_forecast *f);

/* The disk's phases: model_bytes in memory_bytes, and computing from the first backward operator to the last. 0 where
 * memory holds all. */
int64_t ps_bound_phases_ns(const ps_link_rates *rates, int64_t model_bytes, int64_t memory_bytes, int64_t backward_ns);

static inline int64_t ps_bound_ns(const ps_bound *b)
{
    return b->part_ns[b->by];
}

/* "computing", "host updates", "copies between device and host", "the disk", "collectives" */
const char *ps_bound_part_name(ps_bound_part p);
extern const char ps_bound_phases_name[]; /* "the disk's phases" */

enum { PS_BOUND_TEXT_MAX = 320 };

/* "0.4809 s a step by computing; the disk 0.2320 s, copies between device and host 0.0070 s, the disk's phases 0.3 s" */
const char *ps_bound_text(const ps_bound *b, char text[PS_BOUND_TEXT_MAX]);

/* What stands between the bound and this step: "computing waits 0.0514 s for disk write, 0.0313 s for disk read; copies
 * slow it by 0.0110 s; for 0.2 s the disk stands still, or goes one way only". "" where nothing does. */
const char *ps_bound_between(const ps_bound *b, const ps_step_time *t, char text[PS_BOUND_TEXT_MAX]);

#endif
