/* tier_options.h - options of device, host and disk, as configured, except their budgets. */
#ifndef PS_SETTINGS_TIER_OPTIONS_H
#define PS_SETTINGS_TIER_OPTIONS_H

#include "chunk/store_options.h"
#include "device/disk.h"
#include "device/disk_folders.h"

typedef struct ps_tier_options {
    ps_store_options store;
    ps_disk_backend disk_backend;             /* memory.disk_backend */
    char disk_folders[PS_DISK_FOLDERS_BYTES]; /* of the files of the disk tier: ps_tier_options_disk_folders */
} ps_tier_options;

/* Errors as of ps_disk_folders_read. */
PS_NODISCARD ps_status ps_tier_options_read(const ps_options *o, ps_tier_options *out);

/* The folders of the disk tier (disk_folders.h): memory.disk_path, or its default for "". */
const char *ps_tier_options_disk_folders(const ps_options *o);

#endif
