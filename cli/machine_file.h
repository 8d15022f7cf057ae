/* machine_file.h - stored descriptions of this machine: files of the user's cache folder, $XDG_CACHE_HOME/patrickstar,
 * else ~/.cache/patrickstar.
 *
 * The name of a file has everything on which its measurements depend, so that another CPU, kernel or disk has another
 * file. The disk, or several, have a separate file, of which only the disk section is used:
 *
 *     machine-0.1-intel-xeon-gold-6430-32-cores-6.1.0-13-amd64-amx-32-threads-bf16.json
 *     machine-0.1-intel-xeon-gold-6430-32-cores-6.1.0-13-amd64-disk-259.2.json */
#ifndef PSTAR_MACHINE_FILE_H
#define PSTAR_MACHINE_FILE_H

#include "base/status.h"
#include "config/hardware.h"
#include "kernel/backend.h"

enum { MACHINE_FOLDER_BYTES = 4096, MACHINE_PATH_BYTES = MACHINE_FOLDER_BYTES + 256 };

/* What measurements depend on, in addition to the machine. */
typedef struct machine_use {
    char gpu[96]; /* that computes; "": the CPU computes */
    ps_cpu_isa isa;
    int n_threads;
    ps_dtype format;         /* of matrix multiplication */
    const char *disk_folder; /* or several (device/disk_folders.h), identified by their devices; NULL: no disk */
} machine_use;

/* False: the user has no cache folder, and out is "". */
bool machine_file_folder(char out[MACHINE_FOLDER_BYTES]);
/* Create the folder and its parents. PS_EIO names the first one that cannot be created. */
PS_NODISCARD ps_status machine_file_make_folder(const char *folder);
/* Parts with separate files. */
typedef enum machine_part { MACHINE_COMPUTING, MACHINE_DISK, MACHINE_PARTS } machine_part;

/* Path of the file for this use and part; "" where there is no folder. */
void machine_file_path(const char *folder, const machine_use *use, machine_part part, char out[MACHINE_PATH_BYTES]);

/* Whether the file's name is of this machine, for any use. */
bool machine_file_is_of_this_machine(const char *name);
/* Whether it is of one or several disks. */
bool machine_file_is_of_disk(const char *name);

/* Lock for the process that measures. Others wait for at most 45 seconds, which measuring a GPU may take, and report on
 * stderr after two seconds. -1: the folder does not support locks, or the other process takes too long. */
int machine_file_lock(const char *folder);
void machine_file_unlock(int lock); /* -1 is accepted */

/* Read the description, if the user owns it and it has what `use` needs of the part. PS_EIO, PS_EFORMAT, PS_EINVAL with
 * the reason. */
PS_NODISCARD ps_status machine_file_load(const char *path, const machine_use *use, machine_part part, ps_hardware *out);

#endif
