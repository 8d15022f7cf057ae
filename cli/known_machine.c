#include "known_machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/machine.h"
#include "comm/agree.h"
#include "device/disk_folders.h"
#include "measuring.h"
#include "settings/settings.h"

typedef struct known {
    bool is_known;
    ps_hardware machine;
} known;

/* The folder, or the nearest above it that is there: a run makes what is missing. */
static void find_folder(const char *path, char out[MACHINE_FOLDER_BYTES])
{
    snprintf(out, MACHINE_FOLDER_BYTES, "%s", path[0] != '\0' ? path : ".");
    while (!ps_folder_exists(out) && strcmp(out, ".") != 0) {
        char *slash = strrchr(out, '/');
        if (slash == NULL)
            strcpy(out, ".");
        else if (slash == out)
            strcpy(out, "/");
        else
            *slash = '\0';
    }
}

/* Of each folder of memory.disk_path. */
static void find_folders(const char *text, char out[MACHINE_FOLDER_BYTES])
{
    ps_disk_folders f;
    int n = 0;
    if (ps_disk_folders_read(text, &f) != PS_OK) f = (ps_disk_folders){.n = 0}; /* is told to who trains */
    out[0] = '\0';
    for (int i = 0; i < f.n && n < MACHINE_FOLDER_BYTES; i++) {
        char one[MACHINE_FOLDER_BYTES];
        find_folder(f.name[i], one);
        n += snprintf(out + n, (size_t)(MACHINE_FOLDER_BYTES - n), "%s%s", i > 0 ? "," : "", one);
    }
    if (f.n == 0) find_folder("", out);
}

static machine_use use_of(const ps_options *o, const char *disk_folder)
{
    const ps_cpu_isa asked = ps_settings_isa(o), most = ps_cpu_isa_detect();
    return (machine_use){.isa = asked < most ? asked : most,
                         .n_threads = o->train_threads > 0 ? (int)o->train_threads : ps_cpu_threads(),
                         .format = ps_settings_dtype(o),
                         .disk_folder = o->memory_disk != 0 ? disk_folder : NULL};
}

static void measure_and_keep(const machine_use *use, const char *path, known *k)
{
    const int64_t begin_ns = ps_clock_ns();
    if (measuring_run(use, &k->machine) != PS_OK) {
        fprintf(stderr, "this machine could not be measured, the plan reckons with another one's rates: %s\n",
                ps_last_error());
        return;
    }
    k->is_known = true;
    const double seconds = (double)(ps_clock_ns() - begin_ns) * 1e-9;
    if (path[0] != '\0' && ps_hardware_save(&k->machine, path) == PS_OK)
        fprintf(stderr, "measured this machine for %.1f s, to plan with from now on: %s\n", seconds, path);
    else
        fprintf(stderr, "measured this machine for %.1f s, for this run only: %s\n", seconds,
                path[0] != '\0' ? ps_last_error() : "neither XDG_CACHE_HOME nor HOME names a folder");
}

/* True: it is kept, and has been read. */
static bool load(const machine_use *use, const char *path, bool says_why_not, known *k)
{
    if (path[0] == '\0' || !ps_file_exists(path)) return false;
    k->is_known = machine_file_load(path, use, &k->machine) == PS_OK;
    if (!k->is_known && says_why_not)
        fprintf(stderr, "what is kept of this machine is measured again: %s\n", ps_last_error());
    return k->is_known;
}

/* While one start measures, others wait for what it finds. */
static void find(const machine_use *use, known *k)
{
    char folder[MACHINE_FOLDER_BYTES], path[MACHINE_PATH_BYTES] = "";
    if (machine_file_folder(folder)) machine_file_path(folder, use, path);
    if (load(use, path, true, k)) return;
    if (folder[0] != '\0') machine_file_make_folder(folder);
    const int lock = folder[0] != '\0' ? machine_file_lock(folder) : -1;
    if (!load(use, path, false, k)) measure_and_keep(use, path, k);
    machine_file_unlock(lock);
}

/* What a rank by itself, or the first of several, knows. */
static ps_status know(const ps_config *config, known *k)
{
    const ps_options *o = ps_config_options(config);
    const bool is_given = ps_config_is_given(config, PS_OPTION_hardware);
    const char *variable = getenv("PSTAR_HARDWARE");
    const bool is_variable = !is_given && variable != NULL && variable[0] != '\0';
    const char *said = is_given ? o->hardware : is_variable ? variable : "auto";
    if (strcmp(said, "auto") == 0) {
        char disk_folder[MACHINE_FOLDER_BYTES];
        find_folders(ps_settings_disk_folders(o), disk_folder);
        const machine_use use = use_of(o, disk_folder);
        find(&use, k);
        return PS_OK;
    }
    if (!is_variable || strcmp(said, "none") == 0) return PS_OK;
    const ps_status st = ps_hardware_load(said, &k->machine);
    if (st != PS_OK) return PS_FAIL(st, "PSTAR_HARDWARE (a file, auto or none): %s", ps_last_error());
    k->is_known = true;
    return PS_OK;
}

ps_status known_machine_tell(ps_config *config, ps_comm *comm)
{
    known k = {.is_known = false};
    const bool is_first = comm == NULL || ps_comm_rank(comm) == 0;
    PS_TRY(ps_comm_agree(comm, is_first ? know(config, &k) : PS_OK));
    if (comm != NULL && ps_comm_size(comm) > 1) PS_TRY(ps_comm_broadcast(comm, &k, sizeof k, 0));
    if (k.is_known) ps_config_know_machine(config, &k.machine);
    return PS_OK;
}
