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

/* The folder that has the entry `path`: "." of a name alone; slashes at the end do not count. The caller frees it by
 * ps_mem_free. */
PS_NODISCARD ps_status ps_folder_of(const char *path, char **out);

/* Make it when it is missing, durably; its parent must be there. A folder of that name, or a link to one, is accepted.
 * PS_EIO. */
PS_NODISCARD ps_status ps_folder_make(const char *path);

/* The same with the folders above it that are missing, as mkdir -p does. */
PS_NODISCARD ps_status ps_folder_make_all(const char *path);

/* The path, or where that is no folder the nearest one above it: at last "." or "/". The caller frees it by
 * ps_mem_free. */
PS_NODISCARD ps_status ps_folder_nearest(const char *path, char **out);

/* Remove the entry `name` of the open folder `parent` (or a path, with AT_FDCWD): a folder and the files in it, a file,
 * of a link the link and never what it leads to. True when nothing is there any more; else errno has the reason, such
 * as a folder in the folder. Needs no memory. */
bool ps_folder_remove(int parent, const char *name);

/* Give folder `from` the name `to`, which another folder has. In one move where the file system can: the old one has
 * the name `from` then. Else (NFS) the old one is renamed to `aside` first; until the second move there is none at
 * `to`, and whoever comes after a crash in between finds the old one at `aside`. *has_swapped says which it was. After
 * PS_EIO both are as before, or the message says where the old one is. */
PS_NODISCARD ps_status ps_folder_replace(const char *from, const char *to, const char *aside, bool *has_swapped);

/* ---- writing: all or nothing ----
 * The files are made in "<path>.tmp-<mark>-<n>" (ps_folder_writer_path; base/leftover.h has the mark); commit syncs
 * that folder and renames it to `path`. What killed writers of `path` have left is removed when the next one opens. */
typedef struct ps_folder_writer ps_folder_writer;

/* `path` must not exist or be empty; with is_replacing it may also be a folder of files without folders in it, which
 * commit takes away. PS_EINVAL when it is in the way; PS_EIO. */
PS_NODISCARD ps_status ps_folder_writer_open(const char *path, bool is_replacing, ps_folder_writer **out);
const char *ps_folder_writer_path(const ps_folder_writer *w);

/* Frees the writer, whether it succeeds or not. On file systems that cannot swap two folders there is a moment without
 * either; after a failure in it the old one is put back, after a crash by the next writer. */
PS_NODISCARD ps_status ps_folder_writer_commit(ps_folder_writer *w);

/* Give up: nothing is left. NULL is accepted. */
void ps_folder_writer_cancel(ps_folder_writer *w);

#endif
