#include "known_machine.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <xxhash.h>

#include "base/base.h"
#include "base/file.h"
#include "base/machine.h"
#include "comm/agree.h"
#include "kernel/backend.h"
#include "measure/measure.h"
#include "settings/settings.h"

#define MEASURE_SECONDS 0.6 /* beside what the least number of samples takes */
#define PATH_BYTES 4096

typedef struct known {
    bool is_known;
    ps_hardware machine;
} known;

/* ---- where it is kept ---- */

/* What rates depend on; another one of these is another machine. */
static uint64_t machine_key(const ps_options *o, ps_dtype format)
{
    char text[1024], cpu[128];
    struct utsname kernel = {.release = "?"};
    struct stat disk = {.st_dev = 0};
    ps_machine_cpu_name(NULL, cpu, sizeof cpu);
    (void)uname(&kernel);
    if (o->memory_disk > 0) (void)stat(ps_settings_disk_folder(o), &disk);
    const int n = snprintf(text, sizeof text, "%d.%d %s|%s|%d|%s|%s|%llu", PS_VERSION_MAJOR, PS_VERSION_MINOR, cpu,
                           ps_cpu_isa_name(ps_settings_isa(o)), ps_machine_cores(NULL), kernel.release,
                           ps_dtype_name(format), (unsigned long long)disk.st_dev);
    return XXH3_64bits(text, (size_t)ps_min_i64(n, (int64_t)sizeof text - 1));
}

/* False: the user has no folder for it. */
static bool cache_folder(char out[PATH_BYTES])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = 0;
    if (cache != NULL && cache[0] == '/')
        n = snprintf(out, PATH_BYTES, "%s/patrickstar", cache);
    else if (home != NULL && home[0] == '/')
        n = snprintf(out, PATH_BYTES, "%s/.cache/patrickstar", home);
    return n > 0 && n < PATH_BYTES - 64;
}

/* The folder and those above it, as far as they can be made. */
static void make_folders(const char *path)
{
    char part[PATH_BYTES];
    for (const char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
        (void)mkdir(part, 0700);
    }
    (void)mkdir(path, 0700);
}

/* ---- measuring ---- */

static ps_status measure(const ps_options *o, ps_dtype format, ps_hardware *out)
{
    const ps_measure_options how = {.disk_folder = o->memory_disk > 0 ? ps_settings_disk_folder(o) : NULL,
                                    .seconds = MEASURE_SECONDS,
                                    .n_samples_least = 1,
                                    .one_format = true,
                                    .format = format};
    ps_measure_report report;
    PS_TRY(ps_measure_machine(&how, &report));
    *out = report.hardware;
    return PS_OK;
}

static void measure_and_keep(const ps_options *o, ps_dtype format, const char *folder, const char *path, known *k)
{
    const int64_t begin_ns = ps_clock_ns();
    if (measure(o, format, &k->machine) != PS_OK) {
        fprintf(stderr, "this machine could not be measured, the plan reckons with another one's rates: %s\n",
                ps_last_error());
        return;
    }
    k->is_known = true;
    const double seconds = (double)(ps_clock_ns() - begin_ns) * 1e-9;
    if (folder[0] != '\0') make_folders(folder);
    if (path[0] != '\0' && ps_hardware_save(&k->machine, path) == PS_OK)
        fprintf(stderr, "measured this machine for %.1f s, to plan with from now on: %s\n", seconds, path);
    else
        fprintf(stderr, "measured this machine for %.1f s, for this run only: %s\n", seconds,
                path[0] != '\0' ? ps_last_error() : "neither XDG_CACHE_HOME nor HOME names a folder");
}

static void find(const ps_options *o, known *k)
{
    const ps_dtype format = ps_settings_dtype(o);
    char folder[PATH_BYTES] = "", path[PATH_BYTES + 64] = "";
    if (cache_folder(folder))
        snprintf(path, sizeof path, "%s/machine-%016" PRIx64 ".json", folder, machine_key(o, format));
    else
        folder[0] = '\0';
    k->is_known = path[0] != '\0' && ps_file_exists(path) && ps_hardware_load(path, &k->machine) == PS_OK;
    if (!k->is_known) measure_and_keep(o, format, folder, path, k);
}

/* ---- whole ---- */

/* What a rank by itself, or the first of several, knows. */
static ps_status know(const ps_config *config, known *k)
{
    const char *said = getenv("PSTAR_HARDWARE");
    const bool is_said = said != NULL && said[0] != '\0' && !ps_config_is_given(config, PS_OPTION_hardware);
    if (!is_said) said = ps_config_options(config)->hardware;
    if (strcmp(said, "auto") == 0) find(ps_config_options(config), k);
    if (!is_said || strcmp(said, "auto") == 0 || strcmp(said, "none") == 0) return PS_OK;
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
