#include "device/disk_folders.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/base.h"
#include "base/folder.h"
#include "base/mem.h"

/* Without leading and trailing blanks. */
static char *trim(char *name)
{
    name += strspn(name, " \t");
    size_t n = strlen(name);
    while (n > 0 && (name[n - 1] == ' ' || name[n - 1] == '\t')) n--;
    name[n] = '\0';
    return name;
}

/* Otherwise a folder named "~" would be created in the working folder. */
static ps_status refuse_home(const char *name)
{
    const char *home = getenv("HOME");
    return PS_FAIL(PS_EINVAL,
                   "memory.disk_path: ~ in \"%.200s\" is not replaced by the home folder: write %.200s%.200s, or "
                   "./%.200s for a folder of that name",
                   name, home != NULL ? home : "its path", name + 1, name);
}

ps_status ps_disk_folders_read(const char *text, ps_disk_folders *out)
{
    struct stat info;
    *out = (ps_disk_folders){.n = 0};
    const size_t n_bytes = strlen(text);
    if (n_bytes >= sizeof out->text)
        return PS_FAIL(PS_EINVAL, "memory.disk_path is longer than %zu characters", sizeof out->text - 1);
    memcpy(out->text, text, n_bytes + 1);
    const bool is_one = strchr(text, ',') == NULL || stat(text, &info) == 0;
    for (char *at = out->text, *comma = at; comma != NULL; at = comma + 1) {
        comma = is_one ? NULL : strchr(at, ',');
        if (comma != NULL) *comma = '\0';
        char *const name = is_one ? at : trim(at);
        if (name[0] == '\0') return PS_FAIL(PS_EINVAL, "memory.disk_path = \"%.200s\" has an empty name", text);
        if (name[0] == '~' && (name[1] == '/' || name[1] == '\0')) return refuse_home(name);
        if (out->n == PS_DISK_FILES_MAX)
            return PS_FAIL(PS_EINVAL, "memory.disk_path has more than %d folders", PS_DISK_FILES_MAX);
        out->name[out->n++] = name;
    }
    return PS_OK;
}

/* Of the folder, or of the one in which it will be created. */
static ps_status look_at(const char *folder, struct stat *info, struct statvfs *fs)
{
    char *there;
    PS_TRY(ps_folder_nearest(folder, &there));
    ps_status st = PS_OK;
    if (stat(there, info) != 0 || statvfs(there, fs) != 0)
        st = PS_FAIL(PS_EIO, "memory.disk_path: cannot ask how much room '%s' has: %s", there, strerror(errno));
    ps_mem_free(there);
    return st;
}

ps_status ps_disk_folders_free_bytes(const char *text, int64_t *out)
{
    ps_disk_folders f;
    struct stat info[PS_DISK_FILES_MAX];
    struct statvfs fs[PS_DISK_FILES_MAX];
    PS_TRY(ps_disk_folders_read(text, &f));
    for (int i = 0; i < f.n; i++) PS_TRY(look_at(f.name[i], &info[i], &fs[i]));
    double least = 0;
    for (int i = 0; i < f.n; i++) {
        int n_sharing = 0;
        for (int k = 0; k < f.n; k++) n_sharing += info[k].st_dev == info[i].st_dev;
        const double share = (double)fs[i].f_bavail * (double)fs[i].f_frsize / n_sharing;
        if (i == 0 || share < least) least = share;
    }
    *out = (int64_t)(least * f.n);
    return PS_OK;
}

ps_disk_folder_kind ps_disk_folder_look(const char *folder)
{
    char *there;
    struct statfs fs;
    ps_disk_folder_kind kind = PS_DISK_FOLDER_READ_ONLY;
    if (ps_folder_nearest(folder, &there) != PS_OK) return kind;
    if (statfs(there, &fs) == 0 && access(there, W_OK | X_OK) == 0) {
        const unsigned long type = (unsigned long)fs.f_type;
        kind = type == TMPFS_MAGIC || type == RAMFS_MAGIC ? PS_DISK_FOLDER_IS_RAM : PS_DISK_FOLDER_GOOD;
    }
    ps_mem_free(there);
    return kind;
}
