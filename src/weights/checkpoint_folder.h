/* checkpoint_folder.h - the folder that holds checkpoints: names, and the order of changes that leaves the last
 * complete checkpoint in place whenever the process or the machine stops.
 *
 *     checkpoints/
 *       step-000100/ step-000200/      complete, each
 *       before-merge/                  the same, by a name of the program's (a tag): stays until the program removes it
 *       latest                         "step-000200 <xxh3 of the name>": what --resume takes
 *       .tmp-save-<mark>-step-000300/  being written; base/leftover.h has the mark
 *       .tmp-old-<mark>-step-.../      steps aside for another of that step, where a file system cannot swap folders
 *       .tmp-delete-<mark>-step-.../   being removed
 *
 * A save: write and sync every file in .tmp-save, sync that folder, rename it to its name, sync checkpoints/, replace
 * `latest` (rename), then remove what is older than wanted, each renamed to .tmp-delete first.
 *
 * A checkpoint may be a link to a folder elsewhere; then the link is removed or replaced, never what it leads to. */
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
/* PS_EINVAL, unless a checkpoint may be called so: 1 to 31 letters, digits, '.', '_' and '-', the first a letter or digit,
 * and neither "latest" nor a name by a step. */
PS_NODISCARD ps_status ps_checkpoint_check_tag(const char *tag);

typedef struct ps_checkpoint_folder {
    char *root;      /* where checkpoints lie */
    char *temporary; /* of the one being written, with root */
    char *final;     /* its name-to-be, with root */
    bool is_owner;   /* made the temporary folder, and removes it */
    int64_t step;    /* that it is of */
    char name[PS_CHECKPOINT_NAME_MAX];
    char hidden[PS_CHECKPOINT_HIDDEN_MAX]; /* name of the temporary folder */
} ps_checkpoint_folder;

/* Make root if missing (its parent must exist), remove what killed runs left, make an empty temporary folder. tag: the
 * name-to-be; NULL: by the step. PS_EIO; PS_EINVAL for such a tag. */
PS_NODISCARD ps_status ps_checkpoint_folder_open(const char *root, const char *tag, int64_t step,
                                                 ps_checkpoint_folder *f);
/* The temporary folder `hidden` that rank 0, on this machine or another one, has made in root: for ranks that write
 * into it. PS_EIO when it cannot be seen here. */
PS_NODISCARD ps_status ps_checkpoint_folder_join(const char *root, const char *tag, int64_t step, const char *hidden,
                                                 ps_checkpoint_folder *f);
/* All files are in the temporary folder, synced: give it its name, move `latest`, remove all but the keep_last (0: all
 * kept) newest, of those that are named by their step. Checkpoints of later steps, of a run that was taken back, count as
 * older than all others. When only the removal fails, the checkpoint is in place and valid; the message says so. */
PS_NODISCARD ps_status ps_checkpoint_folder_commit(ps_checkpoint_folder *f, int64_t keep_last);
/* The maker of the temporary folder removes it, if it is still there. Frees. An empty one is accepted. */
void ps_checkpoint_folder_close(ps_checkpoint_folder *f);

/* Remove temporary folders and files that killed runs left, and give a checkpoint that had stepped aside its name back.
 * Nothing to do when root is missing. */
void ps_checkpoint_folder_clean(const char *root);

/* What `path` means as a checkpoint: itself if it has a state.json, what its `latest` names otherwise, also while that
 * has stepped aside; without a `latest` (a copy that lost it, a kill before it was first written) the newest complete
 * one that is named by its step. Changes nothing on disk. *out: freed with ps_mem_free. PS_EIO when it is neither, PS_EFORMAT when `latest` is
 * damaged. */
PS_NODISCARD ps_status ps_checkpoint_folder_find(const char *path, char **out);

/* The newest checkpoint of the run in output folder `run`, in its "checkpoints", or in the folder itself where that has a
 * `latest`; *out is NULL when there is none, else freed with ps_mem_free. PS_EFORMAT when `latest` is damaged. */
PS_NODISCARD ps_status ps_checkpoint_folder_of_run(const char *run, char **out);

#endif
