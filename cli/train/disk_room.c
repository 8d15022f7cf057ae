#include "disk_room.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define METRICS_LINE_BYTES 512
#define METRICS_BYTES_MAX 50000000 /* a run of 100,000 steps; longer runs are not estimated */

disk_room disk_room_of(const ps_config *config, const ps_engine *engine, bool writes_checkpoints, int64_t n_steps)
{
    ps_memory_info m = {.struct_size = sizeof m};
    ps_engine_get_memory_info(engine, &m);
    disk_room need = {.checkpoint_bytes = m.checkpoint_bytes};
    if (writes_checkpoints) need.n_checkpoints = n_steps;
    const bool has_adapters = client_int(config, "lora.r") > 0; /* the base is not written */
    need.keep_last = client_int(config, "train.keep_last");
    if (client_int(config, "train.save"))
        need.weights_bytes = (has_adapters ? m.trained_parameters : m.parameters) * (int64_t)sizeof(float);
    need.metrics_bytes =
        n_steps < METRICS_BYTES_MAX / METRICS_LINE_BYTES ? n_steps * METRICS_LINE_BYTES : METRICS_BYTES_MAX;
    return need;
}

void disk_room_report(int64_t checkpoint_bytes, int64_t keep_last)
{
    char one[PS_BYTES_TEXT_MAX], all[PS_BYTES_TEXT_MAX];
    printf("a checkpoint takes %s on disk; ", ps_bytes_format(checkpoint_bytes, one));
    if (keep_last == 0)
        printf("all are kept (train.keep_last = 0)\n");
    else
        printf("%lld %s kept (train.keep_last), and one more while it is written: %s\n", (long long)keep_last,
               keep_last == 1 ? "is" : "are",
               ps_bytes_format((int64_t)((double)(keep_last + 1) * (double)checkpoint_bytes), all));
}

/* Bytes on disk of a file, or of all files in a folder; 0 if they cannot be read. */
static int64_t taken_bytes(const char *path)
{
    struct stat info;
    if (lstat(path, &info) != 0) return 0;
    int64_t bytes = (int64_t)info.st_blocks * 512;
    DIR *d = S_ISDIR(info.st_mode) ? opendir(path) : NULL;
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        char inner[CLIENT_FOLDER_MAX + 512];
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (snprintf(inner, sizeof inner, "%s/%s", path, e->d_name) < (int)sizeof inner) bytes += taken_bytes(inner);
    }
    if (d != NULL) closedir(d);
    return bytes;
}

/* Checkpoints in the run's folder. */
typedef struct kept {
    int64_t n, bytes;
} kept;

static kept find_kept(const char *folder)
{
    char path[CLIENT_FOLDER_MAX + 32];
    kept k = {0};
    snprintf(path, sizeof path, "%s/checkpoints", folder);
    DIR *d = opendir(path);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) k.n += strncmp(e->d_name, "step-", 5) == 0;
    if (d != NULL) closedir(d);
    if (k.n > 0) k.bytes = taken_bytes(path);
    return k;
}

/* Bytes that the disk tier will still allocate on the file system `device`; its folders have equal parts. n_sharers
 * ranks of the machine share the folders, and allocate about the same each. */
static int64_t tier_bytes(const ps_engine *engine, int64_t n_sharers, dev_t device)
{
    ps_memory_info m = {.struct_size = sizeof m};
    ps_disk_info disk = {.struct_size = sizeof disk};
    char folders[CLIENT_FOLDER_MAX], *rest = folders;
    struct stat info;
    int n = 0, n_there = 0;
    ps_engine_get_memory_info(engine, &m);
    if (ps_engine_get_disk_info(engine, &disk) != PS_OK) return 0;
    snprintf(folders, sizeof folders, "%s", disk.folders);
    if (stat(folders, &info) == 0) rest = NULL, n = 1, n_there = info.st_dev == device; /* the name has commas */
    for (char *name; rest != NULL && (name = strsep(&rest, ",")) != NULL; n++) {
        name += strspn(name, " ");
        n_there += stat(name, &info) == 0 && info.st_dev == device;
    }
    const int64_t more = m.planned_disk_peak_bytes - m.disk_used_bytes;
    return more > 0 && n > 0 ? more / n * n_there * n_sharers : 0;
}

/* Maximum number of checkpoints that exist at once, earlier ones included. There are at most as many saves as steps. */
static int64_t most_checkpoints(const disk_room *need, const kept *before)
{
    if (need->n_checkpoints == 0) return before->n;
    if (need->keep_last == 0) return before->n + 1;
    const int64_t all = before->n + need->n_checkpoints;
    return all < need->keep_last + 1 ? all : need->keep_last + 1;
}

ps_status disk_room_check(const disk_room *need, const ps_engine *engine, int64_t n_sharers, bool overwrites,
                          const char *folder)
{
    struct statvfs fs;
    struct stat info;
    char text[6][PS_BYTES_TEXT_MAX], tier_text[PS_BYTES_TEXT_MAX];
    if (statvfs(folder, &fs) != 0 || stat(folder, &info) != 0)
        return client_fail(PS_EIO, "%s: cannot ask how much room it has: %s", folder, strerror(errno));
    kept before = find_kept(folder);
    double free_bytes = (double)fs.f_bavail * (double)fs.f_frsize;
    if (overwrites) {
        free_bytes += (double)before.bytes;
        before = (kept){0};
    }
    const double one = (double)need->checkpoint_bytes;
    const double tier = (double)tier_bytes(engine, n_sharers, info.st_dev);
    /* Older checkpoints are removed after a newer one is complete. */
    const double first = need->n_checkpoints > 0 ? one : 0;
    const double later = (double)most_checkpoints(need, &before) * one - (double)before.bytes;
    const double checkpoints = first > later ? first : later;
    const double all = checkpoints + (double)(need->weights_bytes + need->metrics_bytes) + tier;
    if (all <= free_bytes) return PS_OK;
    return client_fail(
        PS_EIO,
        "%s has %s free, and this run needs up to %s more there: %s for checkpoints of %s each, %s of weights, %s of "
        "metrics, %s of the disk tier. Name another train.output_dir, or set train.save = false, which writes neither "
        "weights nor checkpoints",
        folder, ps_bytes_format((int64_t)free_bytes, text[0]), ps_bytes_format((int64_t)all, text[1]),
        ps_bytes_format((int64_t)checkpoints, text[2]), ps_bytes_format(need->checkpoint_bytes, text[3]),
        ps_bytes_format(need->weights_bytes, text[4]), ps_bytes_format(need->metrics_bytes, text[5]),
        ps_bytes_format((int64_t)tier, tier_text));
}
