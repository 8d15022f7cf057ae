/* folder.h - folders: what is in one, and a new one with all its files or none. Fault points as in file.h. */
#ifndef PS_BASE_FOLDER_H
#define PS_BASE_FOLDER_H

#include <stdbool.h>

#include "base/status.h"

bool ps_folder_exists(const char *path);

typedef struct ps_folder_list {
    char **names; /* [n], sorted; "." and ".." are not among them */
    int n;
} ps_folder_list;

/* PS_EIO when it cannot be read; the list is empty then. */
PS_NODISCARD ps_status ps_folder_list_read(const char *path, ps_folder_list *out);
void ps_folder_list_free(ps_folder_list *l); /* a zero-filled one is accepted */

/* "<folder>/<name>"; the caller frees it by ps_mem_free. */
PS_NODISCARD ps_status ps_folder_join(const char *folder, const char *name, char **out);

/* ---- writing: all or nothing ----
 * The files are made in "<path>.tmp-<pid>-<n>" (ps_folder_writer_path); commit syncs that folder and renames it to `path`. */
typedef struct ps_folder_writer ps_folder_writer;

/* `path` must not exist or be empty; with is_replacing it may also be a folder of files without folders in it, which
 * commit takes away. PS_EINVAL when it is in the way; PS_EIO. */
PS_NODISCARD ps_status ps_folder_writer_open(const char *path, bool is_replacing, ps_folder_writer **out);
const char *ps_folder_writer_path(const ps_folder_writer *w);

/* Frees the writer, whether it succeeds or not. Between taking an old folder away and putting the new one in its place there
 * is a moment without either; after a failure in it the old one is put back. */
PS_NODISCARD ps_status ps_folder_writer_commit(ps_folder_writer *w);

/* Give up: nothing is left. NULL is accepted. */
void ps_folder_writer_cancel(ps_folder_writer *w);

#endif
