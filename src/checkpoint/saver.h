/* saver.h - a checkpoint is written, while training goes on where there is room for pieces (memory.save_buffer).
 *
 * The driver creates a saver between steps, which begins the driver's snapshot (state/snapshot.h), carries that on, and
 * finishes both. All calls but ps_saver_is_done are the training thread's; with several ranks all make them. */
#ifndef PS_CHECKPOINT_SAVER_H
#define PS_CHECKPOINT_SAVER_H

#include "checkpoint/checkpoint_state.h"
#include "patrickstar.h"
#include "state/snapshot.h"

typedef struct ps_saver ps_saver;

typedef struct ps_saver_desc {
    const ps_model_state *model; /* with tensors; need not outlive the call, what it points to must */
    ps_snapshot *snapshot;       /* none is under way; it must outlive the saver */
    const bool *pending;         /* as in ps_snapshot_begin */
    const int32_t *order;        /* [n] this rank's trained chunks as updates visit them; NULL: by number */
    int32_t n;
    const char *folder;
    const char *tag;   /* name-to-be in it; NULL: by the step */
    int64_t keep_last; /* older checkpoints that stay; 0: all */
    const void *extra; /* [extra_bytes] this rank's extra file; NULL: none */
    int64_t extra_bytes;
    ps_checkpoint_state *state; /* all but `files`; the saver takes what it holds, also when it fails */
    ps_status status;           /* of what this rank had to do before; on a failure none begins */
} ps_saver_desc;

/* Makes a folder that is no checkpoint yet, and the files in it, and begins the snapshot. PS_EIO; PS_EINVAL for a tag
 * that is none; what fails on one rank fails on all. On failure *out is NULL, and no snapshot is under way. */
PS_NODISCARD ps_status ps_saver_create(const ps_saver_desc *d, ps_saver **out);
/* For values that are in no chunk. */
ps_snapshot_sink ps_saver_sink(ps_saver *s);

/* Everything is on disk, or has failed: finishing does not wait long. Any thread. */
bool ps_saver_is_done(const ps_saver *s);
/* The training thread does nothing else any more until ps_saver_finish has returned: the driver ends the snapshot. */
void ps_saver_begin_finish(ps_saver *s);
/* Wait for the writer thread; when all ranks' files are complete they become a checkpoint, and older ones go. st: of the
 * snapshot's end on this rank; after a failure what has not come does not come. Closes it in any case: *s is NULL then. */
PS_NODISCARD ps_status ps_saver_finish(ps_saver **s, ps_status st, ps_checkpoint_info *info);
/* Gives up what is not complete, a snapshot under way too, waits for the rest, frees. NULL is accepted. */
void ps_saver_close(ps_saver *s);

#endif
