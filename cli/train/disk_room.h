/* disk_room.h - whether what a run is going to write has room on disk, looked at before its first step. */
#ifndef PSTAR_DISK_ROOM_H
#define PSTAR_DISK_ROOM_H

#include "client.h"

typedef struct disk_room {
    int64_t checkpoint_bytes; /* one checkpoint */
    int64_t n_checkpoints;    /* at once: those that are kept, and the next while it is written; 0: none is written */
    int64_t weights_bytes;    /* model.safetensors; 0: none is written */
    int64_t metrics_bytes;    /* of the steps to come, about, at most 50 MB */
} disk_room;

/* What a run of n_steps more steps writes into train.output_dir; writes_checkpoints: at all. With train.keep_last = 0,
 * which keeps all of them, two checkpoints are asked for. */
disk_room disk_room_of(const ps_config *config, const ps_engine *engine, bool writes_checkpoints, int64_t n_steps);

/* What a checkpoint takes, and at most with those that are kept; prints nothing where none is written. */
void disk_room_tell(const disk_room *need);

/* Is there room for it in `folder`, which exists? What checkpoints and model.safetensors of a run there take now counts
 * as free: they are replaced. Where the disk tier lies on the same file system, so does what it still needs count. Of the
 * rank that writes metrics. PS_EIO with all figures where there is not. */
PS_NODISCARD ps_status disk_room_check(const disk_room *need, const ps_config *config, const ps_engine *engine,
                                       const char *folder);

#endif
