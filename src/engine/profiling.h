/* profiling.h - which steps of an engine are recorded (profile.steps, or from start to stop), and when the file
 * (profile.path) is written. */
#ifndef PS_ENGINE_PROFILING_H
#define PS_ENGINE_PROFILING_H

#include "patrickstar.h"
#include "state/work_time.h"

typedef struct ps_profiling {
    ps_profile *recorder; /* off, unless a profile is wanted; NULL: the engine does not train */
    bool is_asked;        /* by ps_engine_start_profile: all steps until stop */
    int64_t step;         /* under way, when it is recorded; 0: none */
    ps_work_time begin;   /* of that step */
    int64_t first, last;  /* steps that are recorded and complete; 0: none */
    bool is_past;         /* nothing more is recorded of what profile.steps asks for */
    bool is_written;      /* profile.path holds all that was recorded */
    char error[512];      /* why not */
} ps_profiling;

/* Do records point to texts of shapes? */
bool ps_profiling_holds_text(const ps_engine *e);
/* Make the recorder, and try whether profile.path can be written: PS_EIO before the first step rather than after the
 * last. */
PS_NODISCARD ps_status ps_profiling_open(ps_engine *e);
/* Optimizer step number `step` begins, or the one that began ends. */
void ps_profiling_begin_step(ps_engine *e, int64_t step);
void ps_profiling_end_step(ps_engine *e);
/* Write what is not written yet; the tiers are still open. */
void ps_profiling_finish(ps_engine *e);
/* After the tiers were closed. */
void ps_profiling_close(ps_engine *e);

#endif
