/* trace.h - the accesses of one training step, moment by moment.
 *
 * A moment is one operator (or the update of one chunk). The trace is made once: from the plan of a step, or by an
 * external framework during a warm-up step. A schedule is made of it (schedule.h). */
#ifndef PS_CHUNK_TRACE_H
#define PS_CHUNK_TRACE_H

#include "base/base.h"
#include "base/status.h"

typedef enum ps_tier {
    PS_TIER_DEVICE,
    PS_TIER_HOST,
    PS_TIER_DISK,
    PS_TIER_COUNT,
} ps_tier;

typedef struct ps_budgets {
    int64_t bytes[PS_TIER_COUNT]; /* disk 0: no disk tier */
} ps_budgets;

#define PS_RAM_TIER_COUNT 2 /* device and host: where a payload has an address */

const char *ps_tier_name(ps_tier t); /* "device", "host", "disk" */

typedef enum ps_phase {
    PS_PHASE_FORWARD,
    PS_PHASE_BACKWARD,
    PS_PHASE_UPDATE,
    PS_PHASE_COUNT,
} ps_phase;

const char *ps_phase_name(ps_phase p); /* "forward", "backward", "update" */

/* A chunk of any list: list * n_chunks + index. See store.h. */
typedef int32_t ps_chunk_id;

typedef enum ps_access_mode {
    PS_ACCESS_READ,
    PS_ACCESS_WRITE,     /* reads and changes: copies on other tiers become stale */
    PS_ACCESS_OVERWRITE, /* changes without reading: nothing is copied in */
} ps_access_mode;

typedef struct ps_access {
    ps_chunk_id chunk;
    ps_tier tier; /* device or host */
    ps_access_mode mode;
} ps_access;

typedef struct ps_moment {
    ps_phase phase;
    const char *label;       /* "h.3.mlp.c_fc backward"; owned by the program, which outlives the trace */
    int64_t non_model_bytes; /* device bytes of activations and workspace while it runs */
    int64_t cost_ns;         /* estimated duration, for planning only: results never depend on it */
    int32_t first_access, n_accesses;
    bool continues; /* a part of the same moment as the one before, split for its size */
} ps_moment;

/* " (forward)" and the like, to follow the moment's label in a message; "" where the label says it: "wte forward". */
const char *ps_moment_suffix(const ps_moment *m);

typedef struct ps_trace {
    int32_t n_moments, n_accesses;
    ps_moment *moments;
    ps_access *accesses;
    int32_t *latest; /* by chunk: its latest access; 0: none */
} ps_trace;

/* The tier that computes a moment: that of its first access; the device, if it has none. */
static inline ps_tier ps_trace_tier_of(const ps_trace *t, const ps_moment *m)
{
    return m->n_accesses > 0 ? t->accesses[m->first_access].tier : PS_TIER_DEVICE;
}

PS_NODISCARD ps_status ps_trace_create(ps_trace **out);
void ps_trace_destroy(ps_trace *t); /* NULL is accepted */

/* Append a moment; its accesses are those added until the next one. */
PS_NODISCARD ps_status ps_trace_add_moment(ps_trace *t, ps_phase phase, const char *label, int64_t non_model_bytes,
                                           int64_t cost_ns);
/* tier: device or host. A second access to the same chunk in one moment merges with the first: two different modes make
 * PS_ACCESS_WRITE. PS_EINVAL for accesses on two tiers in one moment. */
PS_NODISCARD ps_status ps_trace_add_access(ps_trace *t, ps_chunk_id chunk, ps_tier tier, ps_access_mode mode);

#endif
