/* disk_folders.h - the folders of the disk tier as one string, the value of memory.disk_path: "/disk1,/disk2", or
 * "/disk1, /disk2". A string that is the name of an existing folder is that folder, with its commas. */
#ifndef PS_DEVICE_DISK_FOLDERS_H
#define PS_DEVICE_DISK_FOLDERS_H

#include <stdint.h>

#include "base/status.h"

#define PS_DISK_FILES_MAX 16
#define PS_DISK_FOLDERS_BYTES 4096 /* of the text, with its end */

typedef struct ps_disk_folders { /* not to be copied */
    int n;
    const char *name[PS_DISK_FILES_MAX];
    char text[PS_DISK_FOLDERS_BYTES];
} ps_disk_folders;

/* Does not check that they exist. PS_EINVAL for an empty name, too many, and a string that is too long. */
PS_NODISCARD ps_status ps_disk_folders_read(const char *text, ps_disk_folders *out);

/* Room for a disk tier in these folders: each holds an equal part of it, and folders of one file system share its free
 * space. A missing one will be created under its nearest existing parent. PS_EIO naming the folder that cannot be
 * examined. */
PS_NODISCARD ps_status ps_disk_folders_free_bytes(const char *text, int64_t *out);

typedef enum ps_disk_folder_kind {
    PS_DISK_FOLDER_GOOD,
    PS_DISK_FOLDER_IS_RAM,    /* on tmpfs or ramfs: files occupy the RAM that they are to save */
    PS_DISK_FOLDER_READ_ONLY, /* not writable, or it cannot be examined */
} ps_disk_folder_kind;

/* Is this folder, or the one in which it will be created, suitable for a disk tier that the user did not ask for? */
ps_disk_folder_kind ps_disk_folder_look(const char *folder);

#endif
