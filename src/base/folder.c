#include "base/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/fault.h"
#include "base/mem.h"

/* An injected failure looks like a broken disk. */
bool ps_folder_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* ---- reading ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

ps_status ps_folder_list_read(const char *path, ps_folder_list *out)
{
    *out = (ps_folder_list){0};
    ps_status st = PS_OK;
    DIR *folder = ps_fault_hit_io(PS_FAULT_READ) ? NULL : opendir(path);
    if (folder == NULL) return PS_FAIL(PS_EIO, "%s: cannot open the folder: %s", path, strerror(errno));
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(folder);
        if (entry == NULL && errno != 0) {
            st = PS_FAIL(PS_EIO, "%s: cannot read the folder: %s", path, strerror(errno));
            goto out;
        }
        if (entry == NULL) break;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        PS_TRY_GOTO(ps_mem_reserve(&out->names, (size_t)out->n + 1, sizeof *out->names));
        PS_TRY_GOTO(ps_mem_strdup(entry->d_name, &out->names[out->n]));
        out->n++;
    }
    if (out->n > 0) qsort(out->names, (size_t)out->n, sizeof *out->names, compare_names);
out:
    closedir(folder);
    if (st != PS_OK) ps_folder_list_free(out);
    return st;
}

void ps_folder_list_free(ps_folder_list *l)
{
    for (int i = 0; i < l->n; i++) ps_mem_free(l->names[i]);
    ps_mem_free(l->names);
    *l = (ps_folder_list){0};
}

ps_status ps_folder_join(const char *folder, const char *name, char **out)
{
    const size_t n = strlen(folder) + strlen(name) + 2;
    const size_t n_folder = strlen(folder);
    PS_TRY(ps_mem_alloc(n, 1, out));
    snprintf(*out, n, "%s%s%s", folder, n_folder > 0 && folder[n_folder - 1] == '/' ? "" : "/", name);
    return PS_OK;
}

ps_status ps_folder_of(const char *path, char **out)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    while (n > 0 && path[n - 1] != '/') n--;
    if (n == 0) return ps_mem_strdup(".", out);
    PS_TRY(ps_mem_strdup(path, out));
    (*out)[n > 1 ? n - 1 : 1] = '\0';
    return PS_OK;
}

/* ---- changing ---- */

ps_status ps_folder_sync(const char *folder)
{
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ps_status st = PS_OK;
    /* EINVAL: this file system has nothing to sync for folders */
    if (ps_fault_hit_io(PS_FAULT_WRITE) || fd < 0 || (fsync(fd) != 0 && errno != EINVAL))
        st = PS_FAIL(PS_EIO, "%s: the folder could not be synced: %s", folder, strerror(errno));
    if (fd >= 0) close(fd);
    return st;
}

/* Without this a power failure may lose the rename, although the data are safe. */
ps_status ps_folder_sync_of(const char *path)
{
    char *folder = NULL;
    PS_TRY(ps_folder_of(path, &folder));
    const ps_status st = ps_folder_sync(folder);
    ps_mem_free(folder);
    return st;
}

ps_status ps_folder_make(const char *path)
{
    if (!ps_fault_hit_io(PS_FAULT_WRITE)) {
        if (mkdir(path, 0777) == 0) return ps_folder_sync_of(path);
        const int error = errno;
        if (ps_folder_exists(path)) return PS_OK;
        if (error == EEXIST) return PS_FAIL(PS_EIO, "%s: is not a folder", path);
        errno = error;
    }
    return PS_FAIL(PS_EIO, "%s: cannot make the folder: %s", path, strerror(errno));
}

ps_status ps_folder_make_all(const char *path)
{
    char *part;
    ps_status st = PS_OK;
    PS_TRY(ps_mem_strdup(path, &part));
    for (char *p = part; *p != '\0' && st == PS_OK; p++) {
        if (*p != '/' || p == part) continue;
        *p = '\0';
        if (!ps_folder_exists(part)) st = ps_folder_make(part);
        *p = '/';
    }
    if (st == PS_OK && !ps_folder_exists(part)) st = ps_folder_make(part);
    ps_mem_free(part);
    return st;
}

ps_status ps_folder_nearest(const char *path, char **out)
{
    PS_TRY(ps_mem_strdup(path, out));
    while (!ps_folder_exists(*out) && strcmp(*out, ".") != 0 && strcmp(*out, "/") != 0) {
        char *above;
        const ps_status st = ps_folder_of(*out, &above);
        ps_mem_free(*out);
        *out = NULL;
        PS_TRY(st);
        *out = above;
    }
    return PS_OK;
}

bool ps_folder_remove(int parent, const char *name)
{
    const int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return true;
    const bool is_other = fd < 0 && (errno == ENOTDIR || errno == ELOOP);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (fd >= 0 && d == NULL) close(fd);
    for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) (void)unlinkat(dirfd(d), e->d_name, 0);
    if (d != NULL) closedir(d);
    return unlinkat(parent, name, is_other ? 0 : AT_REMOVEDIR) == 0;
}
