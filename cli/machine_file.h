/* machine_file.h - where descriptions of the machine at hand are kept: files of the user's cache folder,
 * $XDG_CACHE_HOME/patrickstar, else ~/.cache/patrickstar.
 *
 * A file's name says what its rates depend on, so that another processor, kernel or disk is another file; the disk, or
 * several, have one of their own, of which only what it says of the disk counts:
 *
 *     machine-0.1-intel-xeon-gold-6430-32-cores-6.1.0-13-amd64-amx-32-threads-bf16.json
 *     machine-0.1-intel-xeon-gold-6430-32-cores-6.1.0-13-amd64-disk-259.2.json
 *
 * What was measured while the machine was busy has ".busy-1" or ".busy-2" before the end: that often it was, and the
 * file has the best of it. */
#ifndef PSTAR_MACHINE_FILE_H
#define PSTAR_MACHINE_FILE_H

#include "base/status.h"
#include "config/hardware.h"
#include "kernel/backend.h"

enum { MACHINE_FOLDER_BYTES = 4096, MACHINE_PATH_BYTES = MACHINE_FOLDER_BYTES + 256 };

/* What rates depend on, beside the machine. */
typedef struct machine_use {
    char gpu[96]; /* that computes; "": the processor does */
    ps_cpu_isa isa;
    int n_threads;
    ps_dtype format;         /* of products */
    const char *disk_folder; /* or several (device/disk_folders.h), whose devices count; NULL: no disk */
} machine_use;

/* False: the user has no folder for it, and out is "". */
bool machine_file_folder(char out[MACHINE_FOLDER_BYTES]);
/* The folder and those above it. PS_EIO names the first of them that cannot be made. */
PS_NODISCARD ps_status machine_file_make_folder(const char *folder);
/* What is described apart from the other. */
typedef enum machine_part { MACHINE_COMPUTING, MACHINE_DISK, MACHINE_PARTS } machine_part;

/* Where this use of this part is kept: "" where there is no folder; n_busy times measured while busy, 0: not so. */
void machine_file_path(const char *folder, const machine_use *use, machine_part part, int n_busy,
                       char out[MACHINE_PATH_BYTES]);

/* Does the file's name say that it is of this machine, in whatever use? */
bool machine_file_is_of_this_machine(const char *name);
/* Is it of a disk, or several? */
bool machine_file_is_of_disk(const char *name);

/* Whoever has the lock measures; others wait for three quarters of a minute at most, as
 * measuring a GPU may take, and after two seconds say so on stderr.
 * -1: there is no locking in this folder, or the other one takes too long. */
int machine_file_lock(const char *folder);
void machine_file_unlock(int lock); /* -1 is accepted */

/* The description, if it is the user's own and has what `use` needs of the part. PS_EIO, PS_EFORMAT, PS_EINVAL with the
 * reason. */
PS_NODISCARD ps_status machine_file_load(const char *path, const machine_use *use, machine_part part, ps_hardware *out);

/* Of two descriptions of one machine: of each section the one that is faster, since what slows a measurement is others.
 * Into *a. */
void machine_file_take_best(ps_hardware *a, const ps_hardware *b, ps_dtype format);

#endif
