/* disk_room.h - whether what a run is going to write has room on disk, looked at before its first step. */
#ifndef PSTAR_DISK_ROOM_H
#define PSTAR_DISK_ROOM_H

#include "client.h"

typedef struct disk_room {
    int64_t checkpoint_bytes; /* one checkpoint */
    int64_t n_checkpoints;    /* that may be written at most: one a step; 0: none is */
    int64_t keep_last;        /* train.keep_last; 0: all are kept */
    int64_t weights_bytes;    /* model.safetensors; 0: none is written */
    int64_t metrics_bytes;    /* of the steps to come, about, at most 50 MB */
} disk_room;

/* What a run of n_steps more steps writes into train.output_dir; writes_checkpoints: at all. */
disk_room disk_room_of(const ps_config *config, const ps_engine *engine, bool writes_checkpoints, int64_t n_steps);

/* Print a line: what a checkpoint takes, and how many there are. keep_last: train.keep_last. */
void disk_room_tell(int64_t checkpoint_bytes, int64_t keep_last);

/* Is there room for it in `folder`, which exists? Checkpoints that a run has there count as free as far as newer ones
 * replace them, which is when those are complete; where this run overwrites
 * that one they are removed before. With train.keep_last = 0 room for one more is asked for. Where the
 * disk tier of n_sharers ranks lies on the same file system, what it still needs counts too. Of the rank that writes
 * metrics. PS_EIO with all figures where there is not. */
PS_NODISCARD ps_status disk_room_check(const disk_room *need, const ps_engine *engine, int64_t n_sharers,
                                       bool overwrites, const char *folder);

#endif
