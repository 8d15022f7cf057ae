/* file.h - reading and writing whole files, and reads at an offset: thin wrappers of the system calls.
 *
 * Every message has the file, the offset and the system's error. Reads are fault points PS_FAULT_READ, every change on
 * disk (create, write, sync, rename) is a fault point PS_FAULT_WRITE.
 * Files are read, not mapped, unless ps_file_map is called, so that a file that shrinks while open is an error, not a
 * SIGBUS. */
#ifndef PS_BASE_FILE_H
#define PS_BASE_FILE_H

#include <stdbool.h>

#include "base/status.h"

/* ---- reading ---- */

typedef struct ps_file ps_file;

/* Open a regular file for reading. PS_EIO when it is missing, not a regular file, or not readable; PS_EFORMAT when it
 * is a git-lfs pointer to a file that was not fetched. */
PS_PRIVATE_API PS_NODISCARD ps_status ps_file_open(const char *path, ps_file **out);
PS_PRIVATE_API void ps_file_close(ps_file *f); /* NULL is accepted */

PS_PRIVATE_API int64_t ps_file_bytes(const ps_file *f); /* size when opened */
PS_PRIVATE_API const char *ps_file_path(const ps_file *f);

/* Read exactly n_bytes at `offset` into dst; PS_EIO when the file ends before. Safe from several threads at once. */
PS_PRIVATE_API PS_NODISCARD ps_status ps_file_read(const ps_file *f, int64_t offset, void *dst, int64_t n_bytes);

/* Ask the system to read these bytes ahead, without waiting. */
void ps_file_read_ahead(const ps_file *f, int64_t offset, int64_t n_bytes);

/* Read the whole file into memory, with a terminating zero byte. The caller frees *out_data by ps_mem_free. Larger than
 * max_bytes is PS_EFORMAT with both numbers. */
PS_PRIVATE_API PS_NODISCARD ps_status ps_file_read_all(const char *path, int64_t max_bytes, char **out_data,
                                                       int64_t *out_bytes);

PS_PRIVATE_API bool ps_file_exists(const char *path);

/* ---- mapping: reading at random offsets without a copy ----
 * A view first checks the file's size, so a file that has shrunk is PS_EIO. When the file shrinks while a view is in
 * use, the process gets SIGBUS as with any mapping. So views are short, and files for which that must not happen are
 * read. The pages are released at the end of a view, so that resident memory does not grow with the bytes visited. */

/* Map an open file of at least one byte until it is closed; once per file. PS_EIO. */
PS_PRIVATE_API PS_NODISCARD ps_status ps_file_map(ps_file *f);

/* The n_bytes at `offset` of a mapped file, valid until ps_file_end_view with the same offset and size. Safe from
 * several threads at once. PS_EIO when the file ends before. */
PS_PRIVATE_API PS_NODISCARD ps_status ps_file_begin_view(const ps_file *f, int64_t offset, int64_t n_bytes,
                                                         const unsigned char **out);
PS_PRIVATE_API void ps_file_end_view(const ps_file *f, int64_t offset, int64_t n_bytes);

/* ---- writing: all or nothing ----
 * A writer fills "<path>.tmp-<mark>-<n>" in the folder of `path` (base/leftover.h has the mark); commit syncs it,
 * renames it over `path` and syncs the folder. Until then, and after any failure, `path` is unchanged. The next writer
 * of `path` removes temporary files that killed writers have left. */
typedef struct ps_file_writer ps_file_writer;

/* The folder must exist. PS_EIO with the reason. */
PS_PRIVATE_API PS_NODISCARD ps_status ps_file_writer_open(const char *path, ps_file_writer **out);

/* Write all n_bytes at `offset`; pieces may come in any order. */
PS_PRIVATE_API PS_NODISCARD ps_status ps_file_writer_write(ps_file_writer *w, int64_t offset, const void *data,
                                                           int64_t n_bytes);

/* Read back what was written. */
PS_NODISCARD ps_status ps_file_writer_read(const ps_file_writer *w, int64_t offset, void *dst, int64_t n_bytes);

/* Ask the system to start writing these bytes to the disk, without waiting, so that the sync at the end is shorter. */
void ps_file_writer_start_sync(const ps_file_writer *w, int64_t offset, int64_t n_bytes);

/* Make the file durable under its name. The writer is freed, also after a failure. When only the sync of the folder
 * fails, the new file exists, but may not survive a power failure; the message says so. */
PS_PRIVATE_API PS_NODISCARD ps_status ps_file_writer_commit(ps_file_writer *w);

/* Abort: remove the temporary file, and free the writer. NULL is accepted. */
PS_PRIVATE_API void ps_file_writer_cancel(ps_file_writer *w);

/* Write a small file in one call. */
PS_NODISCARD ps_status ps_file_write_all(const char *path, const void *data, int64_t n_bytes);

/* xxh3 (64 bit) of a file of any size, which is read in pieces. PS_EIO. */
PS_NODISCARD ps_status ps_file_xxh3(const char *path, uint64_t *out);

#endif
