/* saver.h - writes a checkpoint, while training continues if there is staging memory (memory.save_buffer).
 *
 * The driver creates a saver between steps, which begins the driver's snapshot (train/state/snapshot.h); the driver
 * continues the snapshot, and finishes both. All calls but ps_saver_is_done belong to the training thread; with several
 * ranks all make them. */
#ifndef PS_CHECKPOINT_SAVER_H
#define PS_CHECKPOINT_SAVER_H

#include "api/checkpoint/checkpoint_state.h"
#include "patrickstar.h"
#include "train/state/snapshot.h"

typedef struct ps_saver ps_saver;

typedef struct ps_saver_desc {
    const ps_model_state *model; /* with tensors; the struct need not outlive the call, its pointers must */
    ps_snapshot *snapshot;       /* none is in progress; it must outlive the saver */
    const bool *pending;         /* as in ps_snapshot_begin */
    const int32_t *order;        /* [n] this rank's trained chunks as updates visit them; NULL: by number */
    int32_t n;
    const char *folder;
    const char *tag;   /* name of the checkpoint in it; NULL: by the step */
    int64_t keep_last; /* older checkpoints that stay; 0: all */
    const void *extra; /* [extra_bytes] this rank's extra file; NULL: none */
    int64_t extra_bytes;
    ps_checkpoint_state *state; /* all but `files`; the saver takes over its allocations, also when it fails */
    ps_status status;           /* of this rank's preparations; on a failure none begins */
} ps_saver_desc;

/* Creates a folder that is no checkpoint yet, and the files in it, and begins the snapshot. PS_EIO; PS_EINVAL for an
 * invalid tag; a failure on one rank is one on all. On failure *out is NULL, and no snapshot is in progress. */
PS_NODISCARD ps_status ps_saver_create(const ps_saver_desc *d, ps_saver **out);
/* For values outside of chunks. */
ps_snapshot_sink ps_saver_sink(ps_saver *s);

/* Everything is on disk, or has failed: finishing will not wait long. Any thread. */
bool ps_saver_is_done(const ps_saver *s);
/* From now on the training thread only waits for ps_saver_finish: the driver ends the snapshot. */
void ps_saver_begin_finish(ps_saver *s);
/* Wait for the writer thread; when all ranks' files are complete they become a checkpoint by one
 * rename (weights/checkpoint_folder.h), and older ones are removed.
 * st: of the snapshot's end on this rank; after a failure no more pieces come. Closes it in any case: *s is NULL
 * then. */
PS_NODISCARD ps_status ps_saver_finish(ps_saver **s, ps_status st, ps_checkpoint_info *info);
/* Cancels incomplete files and a snapshot in progress, waits for the writer, frees. NULL is accepted. */
void ps_saver_close(ps_saver *s);

#endif
