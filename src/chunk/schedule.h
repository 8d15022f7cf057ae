/* schedule.h - knowledge of the future: a trace, turned so that it answers "when is this chunk next used?".
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

/* The same over both tiers that have addresses. */
int32_t ps_schedule_next_use_anywhere(const ps_schedule *s, ps_chunk_id chunk, int32_t now);

/* What lies before an access. The last two count moments back: 1 = the moment before; PS_NEVER: none does. */
typedef struct ps_access_past {
    int32_t moment;           /* of the access itself */
    int32_t change;           /* back to the last moment that changes its chunk */
    int32_t change_elsewhere; /* back to the last one that changes it on another tier than this access wants */
} ps_access_past;

const ps_access_past *ps_schedule_pasts(const ps_schedule *s); /* [trace->n_accesses] */

/* The accesses of the trace, ascending, that want the chunk on that tier: *n of them. */
const int32_t *ps_schedule_accesses(const ps_schedule *s, ps_chunk_id chunk, ps_tier tier, int32_t *n);

/* Moments from `now` (0 = now itself) to the next handover: one that changes a chunk for the last time before it is
 * wanted on another tier, so that a copy to there may begin right after it. PS_NEVER: there is none. */
int32_t ps_schedule_next_handover(const ps_schedule *s, int32_t now);

/* Largest non-model bytes of the moments now .. now + n_ahead (wrapping into the next step): those of the trace, or,
 * not NULL, told, by moment. */
int64_t ps_schedule_non_model_ahead(const ps_schedule *s, const ps_max_tree *told, int32_t now, int32_t n_ahead);

#endif
