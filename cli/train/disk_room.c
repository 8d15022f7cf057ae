#include "disk_room.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define METRICS_LINE_BYTES 512
#define METRICS_BYTES_MAX 50000000 /* a run of 100,000 steps; a longer one has time to be looked after */

disk_room disk_room_of(const ps_config *config, const ps_engine *engine, bool writes_checkpoints, int64_t n_steps)
{
    ps_memory_info m = {.struct_size = sizeof m};
    ps_engine_get_memory_info(engine, &m);
    const int64_t keep_last = client_int(config, "train.keep_last");
    disk_room need = {.checkpoint_bytes = m.checkpoint_bytes};
    if (writes_checkpoints) need.n_checkpoints = (keep_last > 0 ? keep_last : 1) + 1;
    if (client_int(config, "train.save")) need.weights_bytes = m.parameters * (int64_t)sizeof(float);
    need.metrics_bytes =
        n_steps < METRICS_BYTES_MAX / METRICS_LINE_BYTES ? n_steps * METRICS_LINE_BYTES : METRICS_BYTES_MAX;
    return need;
}

static int64_t checkpoints_bytes(const disk_room *need)
{
    return need->n_checkpoints * need->checkpoint_bytes;
}

void disk_room_tell(const disk_room *need)
{
    char one[BYTES_TEXT_MAX], all[BYTES_TEXT_MAX];
    if (need->n_checkpoints == 0) return;
    printf("a checkpoint takes %s on disk, at most %s with the next beside the %lld kept (train.keep_last)\n",
           client_bytes(need->checkpoint_bytes, one), client_bytes(checkpoints_bytes(need), all),
           (long long)need->n_checkpoints - 1);
}

/* On disk, of the file, or of all in the folder; 0 of what cannot be looked at. */
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

static int64_t replaced_bytes(const char *folder)
{
    static const char *const names[] = {"checkpoints", "model.safetensors"};
    char path[CLIENT_FOLDER_MAX + 32];
    int64_t bytes = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        bytes += taken_bytes(path);
    }
    return bytes;
}

/* Bytes that the disk tier is still going to take on the file system `device`: its folders have equal parts. */
static int64_t tier_bytes(const ps_config *config, const ps_engine *engine, dev_t device)
{
    ps_memory_info m = {.struct_size = sizeof m};
    char folders[CLIENT_FOLDER_MAX], *rest = folders;
    struct stat info;
    int n = 0, n_there = 0;
    ps_engine_get_memory_info(engine, &m);
    snprintf(folders, sizeof folders, "%s", client_string(config, "memory.disk_path"));
    if (stat(folders, &info) == 0) rest = NULL, n = 1, n_there = info.st_dev == device; /* commas are of its name */
    for (char *name; rest != NULL && (name = strsep(&rest, ",")) != NULL; n++) {
        name += strspn(name, " ");
        n_there += stat(name, &info) == 0 && info.st_dev == device;
    }
    const int64_t more = m.planned_disk_peak_bytes - m.disk_used_bytes;
    return more > 0 && n > 0 ? more / n * n_there : 0;
}

ps_status disk_room_check(const disk_room *need, const ps_config *config, const ps_engine *engine, const char *folder)
{
    struct statvfs fs;
    struct stat info;
    char text[6][BYTES_TEXT_MAX];
    if (statvfs(folder, &fs) != 0 || stat(folder, &info) != 0)
        return client_fail(PS_EIO, "%s: cannot ask how much room it has: %s", folder, strerror(errno));
    const int64_t free_bytes = (int64_t)((double)fs.f_bavail * (double)fs.f_frsize) + replaced_bytes(folder);
    const int64_t tier = tier_bytes(config, engine, info.st_dev);
    const int64_t all = checkpoints_bytes(need) + need->weights_bytes + need->metrics_bytes + tier;
    if (all <= free_bytes) return PS_OK;
    return client_fail(
        PS_EIO,
        "%s has room for %s, and this run writes up to %s there: %lld checkpoints of %s, %s of weights, %s "
        "of metrics, %s of the disk tier. Name another train.output_dir, or set train.save = false, "
        "which writes neither weights nor checkpoints",
        folder, client_bytes(free_bytes, text[0]), client_bytes(all, text[1]), (long long)need->n_checkpoints,
        client_bytes(need->checkpoint_bytes, text[2]), client_bytes(need->weights_bytes, text[3]),
        client_bytes(need->metrics_bytes, text[4]), client_bytes(tier, text[5]));
}
