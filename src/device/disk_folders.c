#include "device/disk_folders.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/base.h"

/* Without blanks before and after it. */
static char *trim(char *name)
{
    name += strspn(name, " \t");
    size_t n = strlen(name);
    while (n > 0 && (name[n - 1] == ' ' || name[n - 1] == '\t')) n--;
    name[n] = '\0';
    return name;
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
        if (out->n == PS_DISK_FILES_MAX)
            return PS_FAIL(PS_EINVAL, "memory.disk_path has more than %d folders", PS_DISK_FILES_MAX);
        out->name[out->n++] = name;
    }
    return PS_OK;
}

/* How many of the folders are on the file system of this one. */
static ps_status count_sharing(const ps_disk_folders *f, int which, int *out)
{
    dev_t device[PS_DISK_FILES_MAX];
    *out = 0;
    for (int i = 0; i < f->n; i++) {
        struct stat info;
        if (stat(f->name[i], &info) != 0)
            return PS_FAIL(PS_EIO, "memory.disk_path: %s is not a folder that can be used: %s", f->name[i],
                           strerror(errno));
        device[i] = info.st_dev;
    }
    for (int i = 0; i < f->n; i++) *out += device[i] == device[which];
    return PS_OK;
}

ps_status ps_disk_folders_free_bytes(const char *text, int64_t *out)
{
    ps_disk_folders f;
    PS_TRY(ps_disk_folders_read(text, &f));
    double least = 0;
    for (int i = 0; i < f.n; i++) {
        struct statvfs fs;
        int n_sharing;
        PS_TRY(count_sharing(&f, i, &n_sharing));
        if (statvfs(f.name[i], &fs) != 0)
            return PS_FAIL(PS_EIO, "cannot ask how much room '%s' has: %s", f.name[i], strerror(errno));
        const double share = (double)fs.f_bavail * (double)fs.f_frsize / n_sharing;
        if (i == 0 || share < least) least = share;
    }
    *out = (int64_t)(least * f.n);
    return PS_OK;
}
