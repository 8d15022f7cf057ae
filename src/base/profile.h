/* profile.h - a recorder of timed events: operators, copies, waits, chunks that arrive and leave, bytes of each tier.
 *
 * Records are binary and of one size, in blocks that are added as needed. Recording formats no text, copies nothing,
 * and allocates one block per thousands of records. A record costs a reading of the clock and a lock that is rarely
 * contended. Recording does not change scheduling: moves are the same with and without.
 *
 * The layers above define the numbers (a chunk's id; ps_tier, ps_link and ps_reason of chunk/trace.h, timeline.h and
 * reason.h; moments of the trace). Text is a pointer that must outlive the recorder.
 *
 * A copy has two records: the scheduler adds COPY (chunk, bytes, reason), the queue that executes it MOVED (begin,
 * end); queue and ticket link them. An operator that is issued and computed later has its times from two MARKs of its
 * queue in the same way.
 *
 * Every function accepts NULL (no recorder) and does nothing then. Any thread may add records while the recorder is on;
 * only the owning thread makes the other calls. */
#ifndef PS_BASE_PROFILE_H
#define PS_BASE_PROFILE_H

#include "base/base.h"
#include "base/status.h"

typedef struct ps_profile ps_profile;

typedef enum ps_profile_kind {
    PS_PROFILE_STEP,
    PS_PROFILE_OP,
    PS_PROFILE_WAIT, /* the computing thread waits for a copy */
    PS_PROFILE_COPY, /* requested at begin_ns */
    PS_PROFILE_MOVED,
    PS_PROFILE_MARK, /* the queue reached it at begin_ns */
    PS_PROFILE_COLLECTIVE,
    PS_PROFILE_ARRIVE, /* from begin_ns on the chunk is on the tier */
    PS_PROFILE_LEAVE,  /* from begin_ns on it is not on the tier */
    PS_PROFILE_MEMORY, /* from begin_ns on the tier holds that many bytes */
} ps_profile_kind;

/* The MARKs of a queue around a computation; both 0: the times are those of the issue. */
typedef struct ps_profile_marks {
    uint64_t first, last; /* tickets */
    uint8_t link;
} ps_profile_marks;

typedef struct ps_profile_record {
    ps_profile_kind kind;
    int32_t chunk;            /* -1: none */
    int64_t begin_ns, end_ns; /* ps_profile_now; end_ns only for records with a duration */
    ps_profile_marks marks;   /* STEP, OP */
    union {
        struct {
            int64_t number;                     /* counted from 1 */
            int32_t n_speculated, n_taken_back; /* as in ps_step_info */
            bool recomputed;
        } step; /* STEP */
        struct {
            const char *label;
            int64_t step, non_model_bytes;
            int32_t moment, phase;
            bool is_recompute; /* of the step's second passes */
        } op;                  /* OP; chunk: the one updated */
        struct {
            uint64_t ticket;
            int64_t bytes;
            uint8_t link, from, to, reason;
        } copy; /* WAIT: link; COPY: all; MOVED, MARK: ticket and link */
        struct {
            const char *name, *group;
            int64_t bytes;
        } collective;
        struct {
            uint8_t tier, reason;
        } residency; /* ARRIVE, LEAVE */
        struct {
            int64_t chunk_bytes, non_model_bytes, other_bytes;
            uint8_t tier;
        } memory;
    };
} ps_profile_record;

/* The recorder is off at first. now_ns: the clock (of a simulated run); NULL: the machine's. */
PS_NODISCARD ps_status ps_profile_create(const int64_t *now_ns, ps_profile **out);
/* Set the clock. ps_profile_begin_ns is in the clock that is in use when the recorder is first switched on. */
void ps_profile_use_clock(ps_profile *p, const int64_t *now_ns);
void ps_profile_destroy(ps_profile *p);

/* Records that are added while it is off are dropped. */
void ps_profile_start(ps_profile *p);
void ps_profile_stop(ps_profile *p);
bool ps_profile_is_on(const ps_profile *p);
/* Drop all records, as after ps_profile_create. Only while it is off. */
void ps_profile_clear(ps_profile *p);

/* Implementation of ps_profile_add and ps_profile_now for a recorder. */
void ps_profile_append(ps_profile *p, const ps_profile_record *r);
int64_t ps_profile_clock(const ps_profile *p);

static inline void ps_profile_add(ps_profile *p, const ps_profile_record *r)
{
    if (p != NULL) ps_profile_append(p, r);
}

/* Time for a record; 0 when the recorder is off. */
static inline int64_t ps_profile_now(const ps_profile *p)
{
    return p != NULL ? ps_profile_clock(p) : 0;
}

/* ---- reading: no record may be added meanwhile ---- */

int64_t ps_profile_begin_ns(const ps_profile *p); /* when it was first switched on; 0: never */
int64_t ps_profile_count(const ps_profile *p);
const ps_profile_record *ps_profile_at(const ps_profile *p, int64_t i); /* in the order in which they were added */

/* True after 64 MiB of records: a caller that can stop recording should. */
bool ps_profile_is_full(const ps_profile *p);

/* PS_ENOMEM_HOST when records were lost because a block could not be allocated. */
PS_NODISCARD ps_status ps_profile_check(const ps_profile *p);

#endif
