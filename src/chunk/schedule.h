/* schedule.h - the accesses of a trace by chunk: answers "when is this chunk next used?".
 *
 * Steps repeat, so time is a circle of n_moments: after the last moment comes the first of the next step. */
#ifndef PS_CHUNK_SCHEDULE_H
#define PS_CHUNK_SCHEDULE_H

#include "chunk/max_tree.h"
#include "chunk/trace.h"

#define PS_NEVER INT32_MAX

typedef struct ps_schedule ps_schedule;

/* Keeps a pointer to the trace, which must outlive it. n_chunks: number of chunk ids over all lists. */
PS_NODISCARD ps_status ps_schedule_create(const ps_trace *trace, int32_t n_chunks, ps_schedule **out);
void ps_schedule_destroy(ps_schedule *s); /* NULL is accepted */

const ps_trace *ps_schedule_trace(const ps_schedule *s);

/* Moments from `now` (exclusive) to the next use of the chunk on that tier: 1 = the next moment, up to n_moments = the
 * same moment of the next step. PS_NEVER: not used there. now may be -1: before the first moment. */
int32_t ps_schedule_next_use(const ps_schedule *s, ps_chunk_id chunk, ps_tier tier, int32_t now);

/* The same over both RAM tiers. */
int32_t ps_schedule_next_use_anywhere(const ps_schedule *s, ps_chunk_id chunk, int32_t now);

/* Changes before an access. The last two count moments back: 1 = the moment before; PS_NEVER: none. */
typedef struct ps_access_past {
    int32_t moment;           /* of the access itself */
    int32_t change;           /* back to the last moment that changes its chunk */
    int32_t change_elsewhere; /* back to the last one that changes it on another tier than that of this access */
} ps_access_past;

const ps_access_past *ps_schedule_pasts(const ps_schedule *s); /* [trace->n_accesses] */

/* The accesses of the trace, ascending, to the chunk on that tier: *n of them. */
const int32_t *ps_schedule_accesses(const ps_schedule *s, ps_chunk_id chunk, ps_tier tier, int32_t *n);

/* Moments from `now` (0 = now itself) to the next handover: a moment that changes a chunk for the last time before it
 * is used on another tier, so that a copy to that tier may begin right after it. PS_NEVER: none. */
int32_t ps_schedule_next_handover(const ps_schedule *s, int32_t now);

/* Largest non-model bytes of the moments now .. now + n_ahead (wrapping into the next step): those of the trace, or, if
 * not NULL, `last_bytes`, by moment. */
int64_t ps_schedule_non_model_ahead(const ps_schedule *s, const ps_max_tree *last_bytes, int32_t now, int32_t n_ahead);

#endif
