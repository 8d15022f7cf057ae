/* folder_writer.h - writes a folder of files atomically. Fault points as in file.h. */
#ifndef PS_BASE_FOLDER_WRITER_H
#define PS_BASE_FOLDER_WRITER_H

#include <stdbool.h>

#include "base/status.h"

/* Rename folder `from` to `to`, which is another folder. Where the file system can swap two names (*has_swapped =
 * true), the old folder then has the name `from`. Else (NFS) the old folder is renamed to `displaced` first; `to` does
 * not exist until the second rename, and after a crash between the two the old folder is at `displaced`. After PS_EIO
 * both are unchanged, or the message says where the old folder is. */
PS_NODISCARD ps_status ps_folder_replace(const char *from, const char *to, const char *displaced, bool *has_swapped);

/* ---- writing: all or nothing ----
 * The files are created in "<path>.tmp-<mark>-<n>" (ps_folder_writer_path; base/leftover.h has the mark); commit syncs
 * that folder and renames it to `path`. The next writer of `path` removes temporary folders that killed writers have
 * left. */
typedef struct ps_folder_writer ps_folder_writer;

/* `path` must not exist, or be an empty folder; with is_replacing it may also be a folder of files only, which commit
 * removes. PS_EINVAL when `path` is anything else; PS_EIO. */
PS_NODISCARD ps_status ps_folder_writer_open(const char *path, bool is_replacing, ps_folder_writer **out);
const char *ps_folder_writer_path(const ps_folder_writer *w);

/* Frees the writer, also after a failure. On file systems that cannot swap two folders neither exists for a moment;
 * after a failure in between the old folder is restored, after a crash by the next writer. */
PS_NODISCARD ps_status ps_folder_writer_commit(ps_folder_writer *w);

/* Abort: remove the files, and free the writer. NULL is accepted. */
void ps_folder_writer_cancel(ps_folder_writer *w);

#endif
