/* checkpoints.h - how pstar train saves and resumes: when, what beside the engine's own state, and what it says about
 * it.
 *
 * Checkpoints lie in train.output_dir/checkpoints. Beside the engine's state they hold the step and what tells the data:
 * the number of samples in an epoch, a hash of the first and last of them as training sees them, which knows their
 * order, and one of all that the data has (ps_feed_xxh3). */
#ifndef PSTAR_CHECKPOINTS_H
#define PSTAR_CHECKPOINTS_H

#include "client.h"
#include "progress.h"
#include "run_log.h"

typedef struct checkpoints {
    char folder[4096];
    ps_engine *engine;
    ps_comm *comm;
    run_log *log;
    progress *progress;
    const ps_config *config;
    const ps_feed *feed;
    int64_t T;                    /* tokens of a sample; those of a step may be fewer */
    bool is_on;                   /* checkpoints are written at all */
    int64_t save_interval;        /* steps; 0: not by steps */
    int64_t save_ns, saved_ns;    /* time between two, 0: not by time; when the last one was begun */
    bool knows_data;              /* the following are known: before the first save, or at the start of a resumed run */
    int64_t n_samples;            /* of the training data */
    uint64_t ends_xxh3, all_xxh3; /* of its first and last samples; of all of it, validation too */
    bool is_saving;
    int64_t saving_step, saved_step; /* under way; the last one begun or resumed from */
} checkpoints;

/* data.pad_to_multiple_of of a run that goes on, where it is not that of its configuration. */
typedef struct kept_padding {
    bool is_kept, was_given;
    int64_t configured;
} kept_padding;

/* All functions are called by all ranks, except where they say otherwise. A log is rank 0's; NULL for the others.
 *
 * Checkpoints are on with train.save, or where train.save_interval or train.save_minutes is given. All pointers must
 * outlive it. */
PS_NODISCARD ps_status checkpoints_open(checkpoints *c, const ps_config *config, ps_engine *engine, ps_comm *comm,
                                        run_log *log, progress *shown, const ps_feed *feed);

/* Before the data are opened: data.pad_to_multiple_of becomes that of the checkpoint which checkpoints_resume will take,
 * as another one changes the bits; 0 where it knows none. Nothing without resume, or without a checkpoint; one that
 * cannot be read is left to checkpoints_resume. */
PS_NODISCARD ps_status checkpoints_keep_padding(ps_config *config, ps_comm *comm, bool resume, const char *path,
                                                kept_padding *out);
/* Say so, of data that have any padding. Of one rank. */
void checkpoints_tell_padding(const kept_padding *k, const ps_config *config, const ps_feed *feed);

/* Go on from `path` (a checkpoint, or a folder with latest), or from the latest of this run's own when it is NULL;
 * *step is the step it was saved after, 0 when there is no checkpoint yet. */
PS_NODISCARD ps_status checkpoints_resume(checkpoints *c, const char *path, int64_t *step);

/* After each step: report a save that has become complete, begin one if it is due. Failures are reported, not
 * returned. */
void checkpoints_after_step(checkpoints *c, int64_t step);

/* After a step that has ended training (PS_ENUMERIC, the last error): a save under way, which that step is not part of,
 * is made complete and reported. The last error stays. */
void checkpoints_rescue(checkpoints *c);

/* After the last step: save it if it is not, wait, report. The status of the last save. */
PS_NODISCARD ps_status checkpoints_end(checkpoints *c, int64_t step);

#endif
