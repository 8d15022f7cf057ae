/* file.h - whole files in, whole files out, and reads at an offset: the thin wrappers where the outside call is made.
 *
 * Every message names the file, the offset and what the system said. Reads are fault points PS_FAULT_READ, every
 * change on disk (create, write, sync, rename) is a fault point PS_FAULT_WRITE.
 * Files are read unless ps_file_map is asked for: then a file that shrinks while open is an error and no SIGBUS. */
#ifndef PS_BASE_FILE_H
#define PS_BASE_FILE_H

#include <stdbool.h>

#include "base/status.h"

/* ---- reading ---- */

typedef struct ps_file ps_file;

/* Open a regular file for reading. PS_EIO when it is missing, no regular file, or not readable; PS_EFORMAT when it is
 * a pointer of git-lfs to a file that was not fetched. */
PS_NODISCARD ps_status ps_file_open(const char *path, ps_file **out);
void ps_file_close(ps_file *f); /* NULL is accepted */

int64_t ps_file_bytes(const ps_file *f); /* size when opened */
const char *ps_file_path(const ps_file *f);

/* Exactly n_bytes at `offset` into dst; PS_EIO when the file ends before. Safe from several threads at once. */
PS_NODISCARD ps_status ps_file_read(const ps_file *f, int64_t offset, void *dst, int64_t n_bytes);

/* Ask the system to begin reading these bytes, without waiting: a read to come finds them in memory. */
void ps_file_read_ahead(const ps_file *f, int64_t offset, int64_t n_bytes);

/* The whole file in memory, with a zero byte behind it. The caller frees *out_data by ps_mem_free.
 * Larger than max_bytes is PS_EFORMAT with both numbers. */
PS_NODISCARD ps_status ps_file_read_all(const char *path, int64_t max_bytes, char **out_data, int64_t *out_bytes);

bool ps_file_exists(const char *path);

/* ---- mapping: reading at random offsets without a copy ----
 * A view asks the system for the file's size first, so a file that has shrunk since is PS_EIO. What remains: when it
 * shrinks while a view is in use, the process gets SIGBUS as with any mapping; so views are short, and files which must
 * survive even that are read. Pages are given back at the end of a view: resident memory does not grow with what was
 * visited. */

/* Map an open file of at least one byte, once, for as long as it is open. PS_EIO. */
PS_NODISCARD ps_status ps_file_map(ps_file *f);

/* The n_bytes at `offset` of a mapped file, valid until ps_file_end_view with the same numbers. Safe from several
 * threads at once. PS_EIO when the file ends before. */
PS_NODISCARD ps_status ps_file_begin_view(const ps_file *f, int64_t offset, int64_t n_bytes, const unsigned char **out);
void ps_file_end_view(const ps_file *f, int64_t offset, int64_t n_bytes);

/* ---- writing: all or nothing ----
 * A writer fills "<path>.tmp-<mark>-<n>" in the folder of `path` (base/leftover.h has the mark); commit syncs it,
 * renames it over `path` and syncs the folder. Until then, and after any failure, `path` is as before. What killed
 * writers of `path` have left is removed when the next one opens. */
typedef struct ps_file_writer ps_file_writer;

/* The folder must exist. PS_EIO with the reason. */
PS_NODISCARD ps_status ps_file_writer_open(const char *path, ps_file_writer **out);

/* All n_bytes at `offset`; pieces may come in any order. */
PS_NODISCARD ps_status ps_file_writer_write(ps_file_writer *w, int64_t offset, const void *data, int64_t n_bytes);

/* Read back what was written. */
PS_NODISCARD ps_status ps_file_writer_read(const ps_file_writer *w, int64_t offset, void *dst, int64_t n_bytes);

/* Ask the system to begin moving these bytes to the disk, without waiting: less is left for the sync at the end. */
void ps_file_writer_start_sync(const ps_file_writer *w, int64_t offset, int64_t n_bytes);

/* Make the file durable under its name and free the writer, whether it succeeds or not. When nothing but the sync of
 * the folder fails, the new file is there, but may not survive a power failure; the message says so. */
PS_NODISCARD ps_status ps_file_writer_commit(ps_file_writer *w);

/* Give up: remove the temporary file. NULL is accepted. */
void ps_file_writer_cancel(ps_file_writer *w);

/* Make the folder's entries durable; those of the folder in which `path` is. */
PS_NODISCARD ps_status ps_file_sync_folder(const char *folder);
PS_NODISCARD ps_status ps_file_sync_folder_of(const char *path);

/* A small file in one call. */
PS_NODISCARD ps_status ps_file_write_all(const char *path, const void *data, int64_t n_bytes);

/* xxh3 (64 bit) of a file of any size, which is read in pieces. PS_EIO. */
PS_NODISCARD ps_status ps_file_xxh3(const char *path, uint64_t *out);

#endif
