/* log_file.h - a file that grows by whole records while a run trains. A full disk does not end the run: records are
 * kept in memory, and written as soon as there is room. */
#ifndef PSTAR_LOG_FILE_H
#define PSTAR_LOG_FILE_H

#include "client.h"

typedef struct log_file {
    char path[CLIENT_FOLDER_MAX + 256];
    int fd; /* -1: not open */
    int64_t n_written;
    char *waiting; /* records that could not be written */
    size_t n_waiting;
} log_file;

/* Call before anything else. */
void log_file_init(log_file *f);

/* Open the file of f->path for writing after its first n_kept bytes, and cut what follows them. is_new: it must not
 * exist yet. PS_EIO, also for a link to another file. */
PS_NODISCARD ps_status log_file_open(log_file *f, int64_t n_kept, bool is_new);

/* Write a record, after those that wait: all of them or none, so that no record is cut. PS_OK on a full disk, too. */
PS_NODISCARD ps_status log_file_put(log_file *f, const void *record, size_t n_bytes);

/* Try again to write what waits. PS_EIO when the disk is still full. */
PS_NODISCARD ps_status log_file_flush(log_file *f);

void log_file_close(log_file *f); /* a file that is not open is accepted */

#endif
