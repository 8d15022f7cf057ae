/* log_file.h - a file that grows by whole records while a run trains. Records that cannot be written, as on a full disk,
 * are kept in memory, and written as soon as that works: training need not end for them. */
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

/* What a resumed run keeps of a file that an earlier process left: records, in their order. {0}: nothing yet. */
typedef struct log_kept {
    int64_t n_bytes;    /* at the begin of the text, once log_kept_add has moved them there */
    int64_t n_in_place; /* of these, what no dropped record precedes */
} log_kept;

/* Keep the record text[at .. at + n_bytes), at or after the end of what is kept already. */
void log_kept_add(log_kept *k, char *text, int64_t at, int64_t n_bytes);

/* Open the file of f->path, whose text it was, with the kept records alone. PS_EIO: it cannot be opened; a failure to
 * write what moves is one of log_file_flush. */
PS_NODISCARD ps_status log_file_open_kept(log_file *f, const char *text, const log_kept *k);

/* Write a record, after those that wait: all of them or none, so that no record is cut. After PS_EIO they wait. */
PS_NODISCARD ps_status log_file_put(log_file *f, const void *record, size_t n_bytes);

/* Try again to write what waits. PS_EIO when that still fails. */
PS_NODISCARD ps_status log_file_flush(log_file *f);

void log_file_close(log_file *f); /* a file that is not open is accepted */

#endif
