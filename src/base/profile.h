/* profile.h - a recorder of what happened when: operators, copies, waits, chunks that come and go, bytes of each tier.
 *
 * Records are binary and of one size, in blocks that are added as needed: while a run goes on no text is made, nothing
 * is copied and nothing allocated but one block in thousands of records. A record costs a reading of the clock and a
 * lock that others rarely hold. Recording decides nothing: what is moved when is the same with and without.
 *
 * The recorder knows no names. Numbers mean what the floors above say (a chunk's id, ps_tier, ps_link, ps_reason of
 * chunk/store.h, moments of the trace); text is a pointer that must outlive the recorder.
 *
 * A copy is two records, because two parties know about it: COPY by who asked for it (chunk, bytes, reason), MOVED by
 * the queue that carried it out (begin, end); queue and ticket join them. An operator that is issued and computed later
 * has its times from two MARKs of its queue in the same way.
 *
 * Every function accepts NULL, no recorder, and does nothing then. Any thread may add records while it is on; all else
 * is for the thread that owns it. */
#ifndef PS_BASE_PROFILE_H
#define PS_BASE_PROFILE_H

#include "base/base.h"
#include "base/status.h"

typedef struct ps_profile ps_profile;

typedef enum ps_profile_kind {
    PS_PROFILE_STEP,
    PS_PROFILE_OP,
    PS_PROFILE_WAIT, /* the computing thread stands still for a copy */
    PS_PROFILE_COPY, /* asked for at begin_ns */
    PS_PROFILE_MOVED,
    PS_PROFILE_MARK, /* a queue has reached it at begin_ns */
    PS_PROFILE_COLLECTIVE,
    PS_PROFILE_ARRIVE, /* from begin_ns on the chunk is on the tier */
    PS_PROFILE_LEAVE,  /* from begin_ns on it is not */
    PS_PROFILE_MEMORY, /* from begin_ns on the tier holds so many bytes */
} ps_profile_kind;

/* The MARKs of a queue between which something was computed; both 0: when it was issued. */
typedef struct ps_profile_marks {
    uint64_t first, last; /* tickets */
    uint8_t link;
} ps_profile_marks;

typedef struct ps_profile_record {
    ps_profile_kind kind;
    int32_t chunk;            /* -1: none */
    int64_t begin_ns, end_ns; /* ps_profile_now; end_ns only where something lasts */
    ps_profile_marks marks;   /* STEP, OP */
    union {
        int64_t step; /* STEP: counted from 1 */
        struct {
            const char *label;
            int64_t step, non_model_bytes;
            int32_t moment, phase;
        } op; /* OP; chunk: the one updated */
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

/* Off at first. now_ns: a clock to be read instead of the machine's (a simulated run); NULL: the machine's. */
PS_NODISCARD ps_status ps_profile_create(const int64_t *now_ns, ps_profile **out);
/* From now on; begin_ns of the recording is by the clock in use when it is first switched on. */
void ps_profile_use_clock(ps_profile *p, const int64_t *now_ns);
void ps_profile_destroy(ps_profile *p);

/* What is added while it is off is not kept. */
void ps_profile_start(ps_profile *p);
void ps_profile_stop(ps_profile *p);
bool ps_profile_is_on(const ps_profile *p);
/* Forget what was added: as after ps_profile_create. While it is off. */
void ps_profile_clear(ps_profile *p);

/* What ps_profile_add and ps_profile_now do when there is a recorder. */
void ps_profile_append(ps_profile *p, const ps_profile_record *r);
int64_t ps_profile_clock(const ps_profile *p);

static inline void ps_profile_add(ps_profile *p, const ps_profile_record *r)
{
    if (p != NULL) ps_profile_append(p, r);
}

/* Time for a record; 0 when it would not be kept. */
static inline int64_t ps_profile_now(const ps_profile *p)
{
    return p != NULL ? ps_profile_clock(p) : 0;
}

/* ---- reading: no record may be added meanwhile ---- */

int64_t ps_profile_begin_ns(const ps_profile *p); /* when it was first switched on; 0: never */
int64_t ps_profile_count(const ps_profile *p);
const ps_profile_record *ps_profile_at(const ps_profile *p, int64_t i); /* in the order in which they were added */

/* Enough has been recorded (64 MiB) for who can choose to stop. */
bool ps_profile_is_full(const ps_profile *p);

/* PS_ENOMEM_HOST when records were lost because a block could not be had. */
PS_NODISCARD ps_status ps_profile_check(const ps_profile *p);

#endif
