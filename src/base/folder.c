#include "base/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/fault.h"
#include "base/mem.h"

#define TEMPORARY_NAMES_MAX 1000

struct ps_folder_writer {
    char *path, *temporary;
    char *old; /* where commit puts a folder that is replaced */
    bool is_replacing;
};

/* An injected failure looks like a broken disk. */
static bool folder_has_fault(ps_fault_kind kind)
{
    if (!ps_fault_hit(kind)) return false;
    errno = EIO;
    return true;
}

bool ps_folder_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* ---- reading ---- */

static int folder_compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

ps_status ps_folder_list_read(const char *path, ps_folder_list *out)
{
    *out = (ps_folder_list){0};
    ps_status st = PS_OK;
    DIR *folder = folder_has_fault(PS_FAULT_READ) ? NULL : opendir(path);
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
        PS_TRY_GOTO(ps_mem_grow(&out->names, (size_t)out->n, (size_t)out->n + 1, sizeof *out->names));
        PS_TRY_GOTO(ps_mem_strdup(entry->d_name, &out->names[out->n]));
        out->n++;
    }
    if (out->n > 0) qsort(out->names, (size_t)out->n, sizeof *out->names, folder_compare);
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

/* ---- writing ---- */

static void folder_writer_free(ps_folder_writer *w)
{
    ps_mem_free(w->old);
    ps_mem_free(w->temporary);
    ps_mem_free(w->path);
    ps_mem_free(w);
}

/* A folder of files, and the files; what cannot be removed is left. Needs no memory, so that cleaning up after a lack of it
 * works. */
static void folder_remove(const char *path)
{
    DIR *folder = opendir(path);
    if (folder == NULL) return;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(folder), entry->d_name, 0);
    closedir(folder);
    rmdir(path);
}

/* May commit put a folder there? */
static ps_status folder_check_place(const char *path, bool is_replacing)
{
    struct stat info;
    ps_folder_list l = {0};
    ps_status st = PS_OK;
    if (lstat(path, &info) != 0) return PS_OK;
    if (!S_ISDIR(info.st_mode)) return PS_FAIL(PS_EINVAL, "%s is there and no folder", path);
    PS_TRY(ps_folder_list_read(path, &l));
    if (l.n > 0 && !is_replacing)
        st = PS_FAIL(PS_EINVAL, "%s is there and not empty (%s, ...); name another folder, or --force", path,
                     l.names[0]);
    for (int i = 0; i < l.n && st == PS_OK; i++) {
        char *inner = NULL;
        PS_TRY_GOTO(ps_folder_join(path, l.names[i], &inner));
        if (ps_folder_exists(inner))
            st = PS_FAIL(PS_EINVAL, "%s has a folder %s in it: it will not be replaced", path, l.names[i]);
        ps_mem_free(inner);
    }
out:
    ps_folder_list_free(&l);
    return st;
}

/* The first of "<path>.<what>-<pid>-<n>" that can be made. */
static ps_status folder_make_beside(const char *path, const char *what, char **out)
{
    const size_t n_bytes = strlen(path) + 48;
    int rc = -1;
    PS_TRY(ps_mem_alloc(n_bytes, 1, out));
    for (int n = 0; n < TEMPORARY_NAMES_MAX; n++) {
        snprintf(*out, n_bytes, "%s.%s-%ld-%d", path, what, (long)getpid(), n);
        rc = folder_has_fault(PS_FAULT_WRITE) ? -1 : mkdir(*out, 0777);
        if (rc == 0 || errno != EEXIST) break;
    }
    if (rc == 0) return PS_OK;
    const ps_status st = PS_FAIL(PS_EIO, "%s: cannot create the folder: %s", *out, strerror(errno));
    ps_mem_free(*out);
    *out = NULL;
    return st;
}

ps_status ps_folder_writer_open(const char *path, bool is_replacing, ps_folder_writer **out)
{
    *out = NULL;
    ps_status st;
    ps_folder_writer *w = NULL;
    PS_TRY(folder_check_place(path, is_replacing));
    PS_TRY(ps_mem_alloc(1, sizeof *w, &w));
    w->is_replacing = is_replacing;
    PS_TRY_GOTO(ps_mem_strdup(path, &w->path));
    for (size_t n = strlen(w->path); n > 1 && w->path[n - 1] == '/'; n--) w->path[n - 1] = '\0';
    PS_TRY_GOTO(folder_make_beside(w->path, "tmp", &w->temporary));
    *out = w;
    return PS_OK;
out:
    folder_writer_free(w);
    return st;
}

const char *ps_folder_writer_path(const ps_folder_writer *w)
{
    return w->temporary;
}

static ps_status folder_sync(const char *path)
{
    const int fd = folder_has_fault(PS_FAULT_WRITE) ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* EINVAL: this file system has nothing to sync for folders */
    const bool is_synced = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL);
    const ps_status st = is_synced ? PS_OK : PS_FAIL(PS_EIO, "%s: cannot sync the folder: %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    return st;
}

static ps_status folder_sync_parent(ps_folder_writer *w)
{
    char *slash = strrchr(w->path, '/');
    if (slash == NULL) return folder_sync(".");
    slash[slash == w->path] = '\0';
    return folder_sync(w->path);
}

ps_status ps_folder_writer_commit(ps_folder_writer *w)
{
    ps_status st;
    PS_TRY_GOTO(folder_sync(w->temporary));
    /* an empty folder is replaced by rename itself; one with files steps aside, over an empty one made for it */
    if (w->is_replacing && rmdir(w->path) != 0 && errno == ENOTEMPTY) {
        PS_TRY_GOTO(folder_make_beside(w->path, "old", &w->old));
        if (folder_has_fault(PS_FAULT_WRITE) || rename(w->path, w->old) != 0) {
            st = PS_FAIL(PS_EIO, "%s: cannot rename to %s: %s", w->path, w->old, strerror(errno));
            rmdir(w->old);
            goto out;
        }
    }
    if (folder_has_fault(PS_FAULT_WRITE) || rename(w->temporary, w->path) != 0) {
        st = PS_FAIL(PS_EIO, "%s: cannot rename to %s: %s", w->temporary, w->path, strerror(errno));
        if (w->old != NULL && rename(w->old, w->path) != 0)
            st = PS_FAIL(PS_EIO, "%s: cannot be put in its place; the old folder is now %s", w->path, w->old);
        goto out;
    }
    if (w->old != NULL) folder_remove(w->old);
    st = folder_sync_parent(w);
    folder_writer_free(w);
    return st;
out:
    ps_folder_writer_cancel(w);
    return st;
}

void ps_folder_writer_cancel(ps_folder_writer *w)
{
    if (w == NULL) return;
    folder_remove(w->temporary);
    folder_writer_free(w);
}
