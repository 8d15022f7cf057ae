/* store_impl.h - the store over its levels, for its own files and tests.
 * Each level has a header and includes lower ones only: tool/layers.txt, where its files are, too.
 *
 *   store.h          the calls of a user                 store_stats.h, view.h: inspection
 *   scheduling.h     what moves when                     over chunk_lists.h, trace.h, schedule.h
 *   movement.h       transfers between tiers
 *   residency.h      the table of chunks */
#ifndef PS_CHUNK_STORE_IMPL_H
#define PS_CHUNK_STORE_IMPL_H

#include "chunk/scheduling.h"
#include "chunk/store_stats.h"

struct ps_store {
    ps_residency r;
    ps_movement m;
    ps_scheduling s;
    uint64_t tick;    /* counts pins */
    bool owes_moment; /* the cost of the current moment is not on the timeline yet */
};

/* Returns st. A message of PS_EBUDGET gets the current moment and its needs added. */
ps_status ps_store_with_moment(const ps_store *s, ps_status st);

/* A store without memory, by which plans are tried, makes many times the transitions of what is then trained: it is
 * checked in one moment of seven, and outside of moments if the one before was. */
static inline bool ps_store_is_check_due(const ps_store *s)
{
    return !s->m.is_simulated || s->s.moment_serial % 7 == 0;
}

/* Debug level 2: check the invariants. */
#if PS_DEBUG >= 2
#define STORE_CHECK(s) assert(!ps_store_is_check_due(s) || ps_store_check(s) == PS_OK)
#else
#define STORE_CHECK(s) ((void)(s))
#endif

#endif
