/* profile_read.h - a profile read back: a recorded or simulated run in memory, as doc/profile.md describes the file.
 *
 * Times are nanoseconds since recording began, sizes bytes. Everything is owned by the profile. */
#ifndef PS_REPORT_PROFILE_READ_H
#define PS_REPORT_PROFILE_READ_H

#include <stdbool.h>

#include "base/status.h"

typedef enum ps_report_profile_tier {
    PS_REPORT_DEVICE,
    PS_REPORT_HOST,
    PS_REPORT_DISK,
    PS_REPORT_N_TIERS
} ps_report_profile_tier;

/* Rows of spans; the numbers are the file's "tid". */
typedef enum ps_report_profile_lane {
    PS_REPORT_STEPS,
    PS_REPORT_PHASES,
    PS_REPORT_COMPUTE,
    PS_REPORT_WAITS,
    PS_REPORT_HOST_TO_DEVICE,
    PS_REPORT_DEVICE_TO_HOST,
    PS_REPORT_DISK_READ,
    PS_REPORT_DISK_WRITE,
    PS_REPORT_COLLECTIVES,
    PS_REPORT_CHUNKS,       /* has no spans */
    PS_REPORT_HOST_COMPUTE, /* next to an asynchronous device */
    PS_REPORT_N_LANES
} ps_report_profile_lane;

typedef enum ps_report_profile_phase {
    PS_REPORT_FORWARD,
    PS_REPORT_BACKWARD,
    PS_REPORT_UPDATE,
    PS_REPORT_N_PHASES
} ps_report_profile_phase;

typedef enum ps_report_profile_reason {
    PS_REPORT_WANTED,
    PS_REPORT_PREFETCH,
    PS_REPORT_WRITE_BACK,
    PS_REPORT_N_REASONS
} ps_report_profile_reason;

/* As the file spells them: "device", "host->device", "forward", "write back"; updates are "adam", whatever made
 * them. */
extern const char *const ps_report_profile_tier_names[PS_REPORT_N_TIERS];
extern const char *const ps_report_profile_lane_names[PS_REPORT_N_LANES];
extern const char *const ps_report_profile_phase_names[PS_REPORT_N_PHASES];
extern const char *const ps_report_profile_reason_names[PS_REPORT_N_REASONS];

/* Lists of chunks, by number: the file says which there are. */
enum { PS_REPORT_LISTS_MAX = 16, PS_REPORT_LIST_NAME_MAX = 32 };

typedef struct ps_report_profile_chunk {
    int list, index; /* list: into list_names */
    int64_t bytes;
    int n_tensors;
    char **tensors; /* names */
} ps_report_profile_chunk;

/* What takes time: a step, a phase, an operator, a wait, a copy, a collective. */
typedef struct ps_report_profile_span {
    ps_report_profile_lane lane;
    int64_t begin_ns, end_ns; /* begin <= end */
    char *name;
    int chunk;                       /* into chunks, or -1 */
    ps_report_profile_phase phase;   /* of phases and operators */
    ps_report_profile_reason reason; /* of copies */
    ps_report_profile_lane link;     /* of waits: the row of what is waited for */
    int64_t bytes;                   /* of copies and collectives */
    int order;                       /* index of the event in the file */
} ps_report_profile_span;

/* A chunk has (is_there) or no longer has a payload on a tier. */
typedef struct ps_report_profile_change {
    int64_t at_ns;
    int chunk; /* into chunks */
    ps_report_profile_tier tier;
    bool is_there;
    int order;
} ps_report_profile_change;

/* Bytes in use on a tier from now on. */
typedef struct ps_report_profile_sample {
    int64_t at_ns;
    ps_report_profile_tier tier;
    int64_t chunk_bytes, non_model_bytes, other_bytes;
    int order;
} ps_report_profile_sample;

/* Predicted, or measured as averages over the steps; what is not known is negative. */
typedef struct ps_report_profile_account {
    double step_seconds;
    double busy_seconds[PS_REPORT_N_LANES]; /* of compute, the four links and collectives */
    int64_t moved_bytes[PS_REPORT_N_LANES]; /* of the four links */
    int64_t peak_bytes[PS_REPORT_N_TIERS];
    char *critical; /* name of the row that bounds a step, or NULL */
} ps_report_profile_account;

enum { PS_REPORT_PARTS_MAX = 8, PS_REPORT_THROUGHPUTS_MAX = 16, PS_REPORT_NAME_MAX = 48 };

/* The least time of a step, at the rates that the plan reckoned with: that of the part which takes longest. */
typedef struct ps_report_profile_bound {
    int n, by; /* by: into the parts; n 0: not known */
    char names[PS_REPORT_PARTS_MAX][PS_REPORT_NAME_MAX];
    double seconds[PS_REPORT_PARTS_MAX];
} ps_report_profile_bound;

/* A rate that the plan reckoned with, and what was seen of it. */
typedef struct ps_report_profile_throughput {
    char of[PS_REPORT_NAME_MAX], unit[PS_REPORT_NAME_MAX];
    double reckoned, seen;
} ps_report_profile_throughput;

typedef struct ps_report_profile {
    bool is_simulated;
    int rank, n_ranks;
    char *title; /* the configuration's file, or "" */
    int64_t first_step, last_step;
    int64_t budget_bytes[PS_REPORT_N_TIERS];
    int64_t chunk_elements;
    double waste; /* of the chunks' elements, 0..1; negative when not known */
    char list_names[PS_REPORT_LISTS_MAX][PS_REPORT_LIST_NAME_MAX]; /* "": no chunk is of it */
    int n_chunks, n_standalone_chunks; /* apart: of all of them those whose size is not chunk_elements */
    ps_report_profile_chunk *chunks;
    int n_spans, n_changes, n_samples;
    ps_report_profile_span *spans;     /* by begin */
    ps_report_profile_change *changes; /* by time; in the file's order where that is equal */
    ps_report_profile_sample *samples; /* likewise */
    ps_report_profile_account predicted, measured;
    ps_report_profile_bound bound;
    int n_throughputs;
    ps_report_profile_throughput throughput[PS_REPORT_THROUGHPUTS_MAX];
} ps_report_profile;

/* Read a file of profile.path. PS_EIO; PS_EFORMAT with the file, the index of the event and the key, what was expected
 * and what is there. Unknown rows, categories and keys are passed over: other tools may add theirs. */
PS_NODISCARD ps_status ps_report_profile_read(const char *path, ps_report_profile **out);

void ps_report_profile_destroy(ps_report_profile *p); /* NULL is accepted */

#endif
