/* checkpoint_folder.h - the folder that holds checkpoints: names, and the order of changes that leaves the last
 * complete checkpoint in place whenever the process or the machine stops.
 *
 *     checkpoints/
 *       step-000100/ step-000200/      complete, each
 *       before-merge/                  the same, by a name of the program's (a tag): stays until the program removes it
 *       latest                         "step-000200 <xxh3 of the name>": what --resume takes
 *       .tmp-save-<mark>-step-000300/  being written; base/leftover.h has the mark
 *       .tmp-old-<mark>-step-.../      replaced by another of that step, where a file system cannot swap folders
 *       .tmp-delete-<mark>-step-.../   being removed
 *
 * A save writes and syncs every file in .tmp-save, syncs that folder, renames it to its final name, syncs checkpoints/,
 * replaces `latest` (rename), and then removes old checkpoints, each renamed to .tmp-delete first.
 *
 * A checkpoint may be a link to another folder; then the link is removed or replaced, never its target. */
#ifndef PS_CHECKPOINT_FOLDER_H
#define PS_CHECKPOINT_FOLDER_H

#include <stdbool.h>

#include "base/folder.h"
#include "base/status.h"

#define PS_CHECKPOINT_NAME_MAX 32
#define PS_CHECKPOINT_HIDDEN_MAX 128
#define PS_CHECKPOINT_LATEST "latest"
#define PS_CHECKPOINT_STATE "state.json"

/* "step-000100". Returns name. */
const char *ps_checkpoint_name(int64_t step, char name[PS_CHECKPOINT_NAME_MAX]);
/* PS_EINVAL unless tag is a valid name: 1 to 31 letters, digits, '.', '_' and '-', the first a letter or digit, and
 * neither "latest" nor a name by step. */
PS_NODISCARD ps_status ps_checkpoint_check_tag(const char *tag);

typedef struct ps_checkpoint_folder {
    char *root;      /* folder of all checkpoints */
    char *temporary; /* path of the temporary folder */
    char *final;     /* its final path */
    bool is_owner;   /* created the temporary folder, and removes it */
    int64_t step;    /* of the checkpoint */
    char name[PS_CHECKPOINT_NAME_MAX];
    char hidden[PS_CHECKPOINT_HIDDEN_MAX]; /* name of the temporary folder */
} ps_checkpoint_folder;

/* Create root if missing (its parent must exist), remove temporary files of killed runs, create an empty temporary
 * folder. tag: the final name; NULL: by step. PS_EIO; PS_EINVAL for an invalid tag. */
PS_NODISCARD ps_status ps_checkpoint_folder_open(const char *root, const char *tag, int64_t step,
                                                 ps_checkpoint_folder *f);
/* Open the temporary folder `hidden` that rank 0, on this or another machine, has created in root, for the other ranks
 * to write into. PS_EIO when it is not visible here. */
PS_NODISCARD ps_status ps_checkpoint_folder_join(const char *root, const char *tag, int64_t step, const char *hidden,
                                                 ps_checkpoint_folder *f);
/* Complete a save whose files are all written and synced: rename the folder, update `latest`, and remove all but the
 * keep_last (0: keep all) newest checkpoints named by step. Checkpoints of later steps, left by a run that was resumed
 * from an earlier step, count as older than all others. When only the removal fails, the checkpoint is valid; the
 * message says so. */
PS_NODISCARD ps_status ps_checkpoint_folder_commit(ps_checkpoint_folder *f, int64_t keep_last);
/* Free; the owner of the temporary folder also removes it, if it still exists. An empty one is accepted. */
void ps_checkpoint_folder_close(ps_checkpoint_folder *f);

/* Remove temporary folders and files of killed runs, and rename a replaced checkpoint back to its name. Does nothing
 * when root is missing. */
void ps_checkpoint_folder_clean(const char *root);

/* Resolve `path` to a checkpoint: itself if it has a state.json; else the one that its `latest` names, also under its
 * temporary name; without a `latest` (a copy without it, a kill before its first write) the newest complete one that is
 * named by step. Changes nothing on disk. *out: freed with ps_mem_free. PS_EIO when there is none, PS_EFORMAT when
 * `latest` is damaged. */
PS_NODISCARD ps_status ps_checkpoint_folder_find(const char *path, char **out);

/* The newest checkpoint of the run in output folder `run`: in its "checkpoints", or in the folder itself where that has
 * a `latest`. *out is NULL when there is none, else freed with ps_mem_free. PS_EFORMAT when `latest` is damaged. */
PS_NODISCARD ps_status ps_checkpoint_folder_of_run(const char *run, char **out);

#endif
