/* disk_room.h - checks before the first step that the disk has room for the files of a run. */
#ifndef PSTAR_DISK_ROOM_H
#define PSTAR_DISK_ROOM_H

#include "client.h"

typedef struct disk_room {
    int64_t checkpoint_bytes; /* one checkpoint */
    int64_t n_checkpoints;    /* maximum number of checkpoints, one per step; 0: none */
    int64_t keep_last;        /* train.keep_last; 0: all are kept */
    int64_t weights_bytes;    /* model.safetensors; 0: none is written */
    int64_t metrics_bytes;    /* estimate for the remaining steps, at most 50 MB */
} disk_room;

/* The bytes that n_steps more steps write to train.output_dir; writes_checkpoints: whether checkpoints are enabled. */
disk_room disk_room_of(const ps_config *config, const ps_engine *engine, bool writes_checkpoints, int64_t n_steps);

/* Print the size of a checkpoint, and how many are kept. keep_last: train.keep_last. */
void disk_room_report(int64_t checkpoint_bytes, int64_t keep_last);

/* Check that `folder`, which exists, has room. Existing checkpoints count as free as far as newer ones replace them
 * after their completion; where this run overwrites the earlier run, they are removed before. With train.keep_last = 0
 * room for one more is required. If the disk tier of n_sharers ranks is on the same file system, the bytes that it
 * still needs are added. Called by the rank that writes metrics. PS_EIO, with all numbers, when there is not enough
 * room. */
PS_NODISCARD ps_status disk_room_check(const disk_room *need, const ps_engine *engine, int64_t n_sharers,
                                       bool overwrites, const char *folder);

#endif
