/* recording.h - a profile read back: a recorded or simulated run in memory, as doc/profile.md describes the file.
 *
 * Times are nanoseconds since recording began, sizes bytes. Everything is owned by the profile. */
#ifndef PS_REPORT_RECORDING_H
#define PS_REPORT_RECORDING_H

#include <stdbool.h>

#include "base/status.h"

typedef enum ps_recording_tier {
    PS_RECORDING_DEVICE,
    PS_RECORDING_HOST,
    PS_RECORDING_DISK,
    PS_RECORDING_N_TIERS
} ps_recording_tier;

/* Rows of spans; the numbers are the file's "tid". */
typedef enum ps_recording_lane {
    PS_RECORDING_STEPS,
    PS_RECORDING_PHASES,
    PS_RECORDING_COMPUTE,
    PS_RECORDING_WAITS,
    PS_RECORDING_HOST_TO_DEVICE,
    PS_RECORDING_DEVICE_TO_HOST,
    PS_RECORDING_DISK_READ,
    PS_RECORDING_DISK_WRITE,
    PS_RECORDING_COLLECTIVES,
    PS_RECORDING_N_LANES
} ps_recording_lane;

typedef enum ps_recording_phase {
    PS_RECORDING_FORWARD,
    PS_RECORDING_BACKWARD,
    PS_RECORDING_ADAM,
    PS_RECORDING_N_PHASES
} ps_recording_phase;

typedef enum ps_recording_reason {
    PS_RECORDING_WANTED,
    PS_RECORDING_PREFETCH,
    PS_RECORDING_WRITE_BACK,
    PS_RECORDING_N_REASONS
} ps_recording_reason;

/* As the file spells them: "device", "host->device", "forward", "write back". */
extern const char *const ps_recording_tier_names[PS_RECORDING_N_TIERS];
extern const char *const ps_recording_lane_names[PS_RECORDING_N_LANES];
extern const char *const ps_recording_phase_names[PS_RECORDING_N_PHASES];
extern const char *const ps_recording_reason_names[PS_RECORDING_N_REASONS];

/* Lists in the order of chunk ids. */
enum { PS_RECORDING_N_LISTS = 5 };
extern const char *const ps_recording_list_names[PS_RECORDING_N_LISTS];

typedef struct ps_recording_chunk {
    int list, index;
    int64_t bytes;
    int n_tensors;
    char **tensors; /* names */
} ps_recording_chunk;

/* Something with a begin and an end. */
typedef struct ps_recording_span {
    ps_recording_lane lane;
    int64_t begin_ns, end_ns; /* begin <= end */
    char *name;
    int chunk;                  /* into chunks, or -1 */
    ps_recording_phase phase;   /* of phases and operators */
    ps_recording_reason reason; /* of copies */
    ps_recording_lane link;     /* of waits: the row of what is waited for */
    int64_t bytes;              /* of copies and collectives */
    int order;                  /* index of the event in the file */
} ps_recording_span;

/* A chunk has (is_there) or no longer has a payload on a tier. */
typedef struct ps_recording_change {
    int64_t at_ns;
    int chunk; /* into chunks */
    ps_recording_tier tier;
    bool is_there;
    int order;
} ps_recording_change;

/* Bytes in use on a tier from now on. */
typedef struct ps_recording_sample {
    int64_t at_ns;
    ps_recording_tier tier;
    int64_t chunk_bytes, non_model_bytes, other_bytes;
    int order;
} ps_recording_sample;

/* Predicted, or measured as averages over the steps; what is not known is negative. */
typedef struct ps_recording_account {
    double step_seconds;
    double busy_seconds[PS_RECORDING_N_LANES]; /* of compute, the four links and collectives */
    int64_t moved_bytes[PS_RECORDING_N_LANES]; /* of the four links */
    int64_t peak_bytes[PS_RECORDING_N_TIERS];
    char *critical; /* the busiest row, or NULL */
} ps_recording_account;

typedef struct ps_recording {
    bool is_simulated;
    int rank, n_ranks;
    char *title; /* the configuration's file, or "" */
    int64_t first_step, last_step;
    int64_t budget_bytes[PS_RECORDING_N_TIERS];
    int64_t chunk_elements;
    double waste; /* of the chunks' elements, 0..1; negative when not known */
    int n_chunks;
    ps_recording_chunk *chunks;
    int n_spans, n_changes, n_samples;
    ps_recording_span *spans;     /* by begin */
    ps_recording_change *changes; /* by time; in the file's order where that is equal */
    ps_recording_sample *samples; /* likewise */
    ps_recording_account predicted, measured;
} ps_recording;

/* Read a file of profile.path. PS_EIO; PS_EFORMAT with the file, the index of the event and the key, what was expected
 * and what is there. Unknown rows, categories and keys are passed over: other tools may add theirs. */
PS_NODISCARD ps_status ps_recording_read(const char *path, ps_recording **out);

void ps_recording_destroy(ps_recording *p); /* NULL is accepted */

#endif
