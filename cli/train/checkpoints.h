/* checkpoints.h - saving and resuming in pstar train: when to save, the program's own state in a checkpoint, and
 * reports.
 *
 * Checkpoints are in train.output_dir/checkpoints. In addition to the engine's state they have the step and an
 * identification of the data: the number of samples in an epoch, a hash of the first and last samples in training
 * order, and a hash of all data (ps_data_loader_xxh3). */
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
    const ps_data_loader *loader;
    int64_t T;                    /* tokens of a sample; a step may have shorter rows */
    bool is_on;                   /* checkpoints are enabled */
    int64_t save_interval;        /* steps; 0: not by steps */
    int64_t save_ns, saved_ns;    /* time between checkpoints, 0: not by time; time of the last begin */
    bool knows_data;              /* the members below are set: before the first save, or at the start of a resumed
                                     run */
    int64_t n_samples;            /* of the training data */
    uint64_t ends_xxh3, all_xxh3; /* of its first and last samples; of all data, validation included */
    bool is_saving;
    int64_t saving_step, saved_step; /* in progress; the last one begun or resumed from */
} checkpoints;

/* data.pad_to_multiple_of of a resumed run, where it differs from the configuration's. */
typedef struct kept_padding {
    bool is_kept, was_given;
    int64_t configured;
} kept_padding;

/* All ranks call all functions, unless said otherwise. A log is rank 0's; NULL for the others.
 *
 * Checkpoints are enabled by train.save, and where train.save_interval or train.save_minutes is given. All pointers
 * must outlive the object. */
PS_NODISCARD ps_status checkpoints_open(checkpoints *c, const ps_config *config, ps_engine *engine, ps_comm *comm,
                                        run_log *log, progress *shown, const ps_data_loader *loader);

/* Set data.pad_to_multiple_of to that of the checkpoint that checkpoints_resume will use, as another value changes the
 * bits; 0 where the checkpoint has none. Call it before the data are opened. Does nothing without resume, or without a
 * checkpoint; checkpoints_resume reports one that cannot be read. */
PS_NODISCARD ps_status checkpoints_keep_padding(ps_config *config, ps_comm *comm, bool resume, const char *path,
                                                kept_padding *out);
/* Report that, for data with padding. Called by one rank. */
void checkpoints_report_padding(const kept_padding *k, const ps_config *config, const ps_data_loader *loader);

/* Resume from `path` (a checkpoint, or a folder with latest), or, if NULL, from this run's latest checkpoint. *step is
 * the step of the save, 0 when there is no checkpoint yet. */
PS_NODISCARD ps_status checkpoints_resume(checkpoints *c, const char *path, int64_t *step);

/* Call after each step: report a completed save, begin one if it is due. Failures are reported, not returned. */
void checkpoints_after_step(checkpoints *c, int64_t step);

/* Call after a step that has ended training (PS_ENUMERIC, the last error): complete and report a save in progress,
 * which does not include that step. The last error is kept. */
void checkpoints_rescue(checkpoints *c);

/* Call after the last step: save it if necessary, wait, report. Returns the status of the last save. */
PS_NODISCARD ps_status checkpoints_end(checkpoints *c, int64_t step);

#endif
