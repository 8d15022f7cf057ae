/* disk_folders.h - the folders of the disk tier as one text, the value of memory.disk_path: "/disk1,/disk2", or
 * "/disk1, /disk2". A text that is the name of a folder is that one, with its commas. */
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

/* Whether they exist is not looked at. PS_EINVAL for an empty name, too many, and a text that is too long. */
PS_NODISCARD ps_status ps_disk_folders_read(const char *text, ps_disk_folders *out);

/* What a disk tier in these folders has room for: each has an equal part of it, and folders of one file system share
 * what that has free. One that is missing is going to be made where the nearest folder above it is. PS_EIO naming the
 * folder that cannot be looked at. */
PS_NODISCARD ps_status ps_disk_folders_free_bytes(const char *text, int64_t *out);

typedef enum ps_disk_folder_kind {
    PS_DISK_FOLDER_GOOD,
    PS_DISK_FOLDER_IS_RAM,    /* on tmpfs or ramfs: files take what they are to save */
    PS_DISK_FOLDER_READ_ONLY, /* nothing can be written there, or it cannot be looked at */
} ps_disk_folder_kind;

/* Is this folder, or the one that it is going to be made in, one for a disk tier that nobody asked for? */
ps_disk_folder_kind ps_disk_folder_look(const char *folder);

#endif
