/* client_file.h - folders and whole files. */
#ifndef PSTAR_CLIENT_FILE_H
#define PSTAR_CLIENT_FILE_H

#include "client.h"

/* Create the folder and its parents, as mkdir -p does. PS_EIO. */
PS_NODISCARD ps_status client_make_folders(const char *path);

/* Read a file, with a terminating zero byte; freed by free. *text is NULL when there is no such file. PS_EIO. */
PS_NODISCARD ps_status client_read_file(const char *path, char **text, size_t *n_bytes);

/* Write a file atomically: it is replaced when "<path>.tmp" is complete on disk. One writer at a time. PS_EIO. */
PS_NODISCARD ps_status client_write_file(const char *path, const char *text, size_t n_bytes);

#endif
