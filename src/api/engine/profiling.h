/* profiling.h - the steps of an engine that are recorded (profile.steps, or from start to stop), and the writing of the
 * file (profile.path). */
#ifndef PS_ENGINE_PROFILING_H
#define PS_ENGINE_PROFILING_H

#include "patrickstar.h"
#include "train/state/work_time.h"

typedef struct ps_profiling {
    ps_profile *recorder; /* off, unless a profile is requested; NULL: the engine does not train */
    bool is_asked;        /* by ps_engine_start_profile: all steps until stop */
    int64_t step;         /* the current step, if it is recorded; 0: none */
    ps_work_time begin;   /* of that step */
    int64_t first, last;  /* steps that are recorded and complete; 0: none */
    bool is_past;         /* the steps of profile.steps are over */
    bool is_written;      /* profile.path has all records */
    char error[512];      /* why it is not written */
} ps_profiling;

/* Do records point to texts of shapes? */
bool ps_profiling_holds_text(const ps_engine *e);
/* Create the recorder, and check that profile.path can be written: PS_EIO before the first step rather than after the
 * last. */
PS_NODISCARD ps_status ps_profiling_open(ps_engine *e);
/* Optimizer step number `step` begins, or the current one ends. */
void ps_profiling_begin_step(ps_engine *e, int64_t step);
void ps_profiling_end_step(ps_engine *e);
/* Write records that are not written yet; the tiers are still open. */
void ps_profiling_finish(ps_engine *e);
/* After the tiers were closed. */
void ps_profiling_close(ps_engine *e);

#endif
