#include "known_machine.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/machine.h"
#include "base/mem.h"
#include "chunk/comm/agree.h"
#include "device/cuda/open.h"
#include "device/disk_folders.h"
#include "measuring.h"
#include "train/settings/settings.h"

typedef struct known {
    char asked_for[MACHINE_FOLDER_BYTES]; /* auto, none, a file */
    bool is_known;
    ps_hardware machine;
} known;

/* A run creates missing folders. */
static void find_folder(const char *path, char out[MACHINE_FOLDER_BYTES])
{
    char *there = NULL;
    const bool is_found = ps_folder_nearest(path[0] != '\0' ? path : ".", &there) == PS_OK;
    snprintf(out, MACHINE_FOLDER_BYTES, "%s", is_found ? there : ".");
    ps_mem_free(there);
}

/* For each folder of memory.disk_path. */
static void find_folders(const char *text, char out[MACHINE_FOLDER_BYTES])
{
    ps_disk_folders f;
    int n = 0;
    if (ps_disk_folders_read(text, &f) != PS_OK) f = (ps_disk_folders){.n = 0}; /* training reports the error */
    out[0] = '\0';
    for (int i = 0; i < f.n && n < MACHINE_FOLDER_BYTES; i++) {
        char one[MACHINE_FOLDER_BYTES];
        find_folder(f.name[i], one);
        n += snprintf(out + n, (size_t)(MACHINE_FOLDER_BYTES - n), "%s%s", i > 0 ? "," : "", one);
    }
    if (f.n == 0) find_folder("", out);
}

/* The GPU that would compute; "" when none would. */
static void find_gpu(const ps_options *o, char *out, size_t bytes)
{
    ps_cuda_found f;
    const bool is_auto = o->train_backend == PS_CONFIG_BACKEND_AUTO;
    out[0] = '\0';
    if (!is_auto && o->train_backend != PS_CONFIG_BACKEND_CUDA) return;
    /* as ps_settings_find_gpu does */
    if (is_auto && (o->train_reproducible == PS_CONFIG_REPRODUCIBLE_MACHINE || !ps_cuda_is_expected())) return;
    if (ps_cuda_find(0, ps_settings_attention(o), &f) == PS_OK)
        snprintf(out, bytes, "%.*s", (int)bytes - 1, f.info.name);
}

/* n_ranks share the machine's cores. */
static machine_use use_of(const ps_options *o, const char *disk_folder, int n_ranks)
{
    const ps_cpu_isa asked = ps_settings_isa(o), most = ps_cpu_isa_detect();
    machine_use use = {.isa = asked < most ? asked : most,
                       .n_threads = o->train_threads > 0 ? (int)o->train_threads * n_ranks : ps_cpu_threads(),
                       .format = ps_settings_dtype(o),
                       .disk_folder = o->memory_disk != 0 ? disk_folder : NULL};
    find_gpu(o, use.gpu, sizeof use.gpu);
    return use;
}

/* ---- a part: compute, or disk ---- */

typedef struct part {
    machine_part which;
    bool is_wanted, is_known;
    ps_hardware seen;
} part;

static bool load_file(const machine_use *use, const char *path, bool says_why_not, part *p)
{
    if (path[0] == '\0' || !ps_file_exists(path)) return false;
    if (machine_file_load(path, use, p->which, &p->seen) == PS_OK) return true;
    if (says_why_not) fprintf(stderr, "this machine is measured again: %s\n", ps_last_error());
    return false;
}

static void load(const char *folder, const machine_use *use, bool says_why_not, part *p)
{
    char path[MACHINE_PATH_BYTES];
    machine_file_path(folder, use, p->which, path);
    p->is_known = !p->is_wanted || load_file(use, path, says_why_not, p);
}

/* Present file in path; false: none, for the reason in ps_last_error. */
static bool keep(const char *folder, const machine_use *use, const part *p, char path[MACHINE_PATH_BYTES])
{
    machine_file_path(folder, use, p->which, path);
    if (path[0] == '\0') (void)PS_FAIL(PS_EIO, "neither XDG_CACHE_HOME nor HOME names a folder");
    if (path[0] == '\0' || machine_file_make_folder(folder) != PS_OK) return false;
    return ps_hardware_save(&p->seen, path) == PS_OK;
}

/* ---- the whole description ---- */

/* If only the disk cannot be measured, measure the rest if it is unknown. */
static ps_status measure(const machine_use *use, bool knows_remaining, ps_hardware *out, bool *was_busy)
{
    ps_status st = measuring_run(use, out, was_busy);
    if (st == PS_OK || use->disk_folder == NULL) return st;
    machine_use rest = *use;
    rest.disk_folder = NULL;
    fprintf(stderr, "memory.disk_path could not be measured, the plan assumes a typical disk: %s\n", ps_last_error());
    return knows_remaining ? st : measuring_run(&rest, out, was_busy);
}

static void measure_and_keep(const char *folder, const machine_use *use, part parts[MACHINE_PARTS])
{
    const int64_t begin_ns = ps_clock_ns();
    char path[MACHINE_PARTS][MACHINE_PATH_BYTES] = {""};
    machine_use missing = *use;
    ps_hardware found;
    bool was_busy = false, is_kept = true;
    if (parts[MACHINE_DISK].is_known) missing.disk_folder = NULL;
    const bool knows_computing = parts[MACHINE_COMPUTING].is_known;
    if (measure(&missing, knows_computing, &found, &was_busy) != PS_OK) {
        if (!knows_computing)
            fprintf(stderr, "this machine could not be measured, the plan assumes a typical PC: %s\n", ps_last_error());
        return;
    }
    for (int i = 0; i < MACHINE_PARTS; i++) {
        part *const p = &parts[i];
        if (p->is_known || (i == MACHINE_DISK && !found.disk.present)) continue;
        p->seen = found;
        p->is_known = true;
        is_kept = keep(folder, use, p, path[i]) && is_kept;
    }
    const double seconds = (double)(ps_clock_ns() - begin_ns) * 1e-9;
    if (!is_kept)
        fprintf(stderr, "measured this machine (%.1f s), which cannot be saved for later runs: %s\n", seconds,
                ps_last_error());
    else
        fprintf(stderr, "measured this machine once (%.1f s), for the times of plans%s: %s\n", seconds,
                was_busy ? "; other programs were running, so they may be off (pstar info --forget measures again)"
                         : "",
                path[path[MACHINE_COMPUTING][0] != '\0' ? MACHINE_COMPUTING : MACHINE_DISK]);
}

/* While one start measures, others wait for its result. */
static void find(const machine_use *use, known *k)
{
    part parts[MACHINE_PARTS] = {{.which = MACHINE_COMPUTING, .is_wanted = true},
                                 {.which = MACHINE_DISK, .is_wanted = use->disk_folder != NULL}};
    part *const computing = &parts[MACHINE_COMPUTING], *const disk = &parts[MACHINE_DISK];
    char folder[MACHINE_FOLDER_BYTES];
    (void)machine_file_folder(folder);
    for (int i = 0; i < MACHINE_PARTS; i++) load(folder, use, true, &parts[i]);
    if (!computing->is_known || !disk->is_known) {
        const bool has_folder = folder[0] != '\0' && machine_file_make_folder(folder) == PS_OK; /* keep() reports the
                                                                                                   reason */
        const int lock = has_folder ? machine_file_lock(folder) : -1;
        for (int i = 0; i < MACHINE_PARTS; i++) /* another start may have measured it since */
            if (!parts[i].is_known) load(folder, use, false, &parts[i]);
        if (!computing->is_known || !disk->is_known) measure_and_keep(folder, use, parts);
        machine_file_unlock(lock);
    }
    k->is_known = computing->is_known;
    k->machine = computing->seen;
    k->machine.disk = disk->is_wanted && disk->is_known ? disk->seen.disk : (ps_hardware_disk){.present = false};
}

static const char *asked_for(const ps_config *config, bool *is_variable)
{
    const bool is_given = ps_config_gives(config, PS_OPTION_hardware);
    const char *variable = getenv("PSTAR_HARDWARE");
    *is_variable = !is_given && variable != NULL && variable[0] != '\0';
    return is_given ? ps_config_options(config)->hardware : *is_variable ? variable : "auto";
}

/* The description of a single rank, or of the first of several. */
static ps_status know(const ps_config *config, int n_ranks, known *k)
{
    const ps_options *o = ps_config_options(config);
    bool is_variable;
    const char *said = asked_for(config, &is_variable);
    snprintf(k->asked_for, sizeof k->asked_for, "%s", said);
    if (strcmp(said, "auto") == 0) {
        char disk_folder[MACHINE_FOLDER_BYTES];
        find_folders(ps_settings_likely_disk_folders(config), disk_folder);
        const machine_use use = use_of(o, disk_folder, n_ranks);
        find(&use, k);
        return PS_OK;
    }
    if (!is_variable || strcmp(said, "none") == 0) return PS_OK;
    const ps_status st = ps_hardware_load(said, &k->machine);
    if (st != PS_OK) return PS_FAIL(st, "PSTAR_HARDWARE (a file, auto or none): %s", ps_last_error());
    k->is_known = true;
    return PS_OK;
}

/* ---- ranks ---- */

enum { N_CORES = CPU_SETSIZE };

/* The cores of all ranks of a host: mpirun gives each rank some of them. All nodes are equal. */
static ps_status join_cores(ps_comm *comm, cpu_set_t *cores)
{
    double may_use[N_CORES];
    for (size_t i = 0; i < N_CORES; i++) may_use[i] = CPU_ISSET(i, cores) ? 1 : 0;
    PS_TRY(ps_comm_all_reduce(comm, may_use, N_CORES, PS_COMM_MAX));
    for (size_t i = 0; i < N_CORES; i++)
        if (may_use[i] > 0) CPU_SET(i, cores);
    return PS_OK;
}

/* Rank 0 measures for all, with the cores of all ranks. */
static ps_status know_for_all(const ps_config *config, ps_comm *comm, known *k)
{
    cpu_set_t own, cores;
    ps_status st = PS_OK;
    CPU_ZERO(&own);
    const bool has_mask = sched_getaffinity(0, sizeof own, &own) == 0;
    cores = own;
    PS_TRY(join_cores(comm, &cores));
    if (ps_comm_rank(comm) == 0) {
        if (has_mask) (void)sched_setaffinity(0, sizeof cores, &cores);
        st = know(config, ps_comm_local_size(comm), k);
        if (has_mask) (void)sched_setaffinity(0, sizeof own, &own);
    }
    PS_TRY(ps_comm_agree(comm, st));
    return ps_comm_broadcast(comm, k, sizeof *k, 0);
}

static ps_status name(ps_config *config, const char *said)
{
    return ps_config_gives(config, PS_OPTION_hardware) ? PS_OK : ps_config_set(config, "hardware", said);
}

ps_status known_machine_name(ps_config *config)
{
    bool is_variable;
    return name(config, asked_for(config, &is_variable));
}

ps_status program_report_machine(ps_config *config, ps_comm *comm, int n_ranks)
{
    known k = {.is_known = false};
    if (comm != NULL && ps_comm_size(comm) > 1)
        PS_TRY(know_for_all(config, comm, &k));
    else
        PS_TRY(ps_comm_agree(comm, know(config, n_ranks > 0 ? n_ranks : 1, &k)));
    if (k.is_known) ps_config_know_machine(config, &k.machine);
    return name(config, k.asked_for);
}
