/* folder.h - folders and paths: listing, creating, removing, syncing. Fault points as in file.h. */
#ifndef PS_BASE_FOLDER_H
#define PS_BASE_FOLDER_H

#include <stdbool.h>

#include "base/status.h"

PS_PRIVATE_API bool ps_folder_exists(const char *path);

typedef struct ps_folder_list {
    char **names; /* [n], sorted; without "." and ".." */
    int n;
} ps_folder_list;

/* PS_EIO when it cannot be read; the list is empty then. */
PS_NODISCARD ps_status ps_folder_list_read(const char *path, ps_folder_list *out);
void ps_folder_list_free(ps_folder_list *l); /* a zero-filled one is accepted */

/* "<folder>/<name>"; the caller frees it by ps_mem_free. */
PS_PRIVATE_API PS_NODISCARD ps_status ps_folder_join(const char *folder, const char *name, char **out);

/* The folder that contains `path`: "." for a bare name; trailing slashes are ignored. The caller frees it by
 * ps_mem_free. */
PS_PRIVATE_API PS_NODISCARD ps_status ps_folder_of(const char *path, char **out);

/* Create the folder durably if it is missing; its parent must exist. A folder of that name, or a link to one, is
 * accepted. PS_EIO. */
PS_NODISCARD ps_status ps_folder_make(const char *path);

/* The same with its missing parents, as mkdir -p does. */
PS_NODISCARD ps_status ps_folder_make_all(const char *path);

/* The path, or its nearest ancestor that is a folder: in the end "." or "/". The caller frees it by ps_mem_free. */
PS_NODISCARD ps_status ps_folder_nearest(const char *path, char **out);

/* Remove the entry `name` of the open folder `parent` (or a path, with AT_FDCWD): a folder with its files, a file, or a
 * link (never its target). True when the entry no longer exists; else errno has the reason, such as a folder in the
 * folder. Allocates no memory. */
bool ps_folder_remove(int parent, const char *name);

/* Make the entries of a folder durable; those of the folder that contains `path`. */
PS_NODISCARD ps_status ps_folder_sync(const char *folder);
PS_NODISCARD ps_status ps_folder_sync_of(const char *path);

#endif
