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
#include "base/file.h"
#include "base/leftover.h"
#include "base/mem.h"

#define TEMPORARY_NAMES_MAX 1000

#define OLD_SUFFIX ".old-" /* a folder that has stepped aside for the new one */

struct ps_folder_writer {
    char *path, *temporary;
    bool is_replacing;
};

/* An injected failure looks like a broken disk. */
static bool has_fault(ps_fault_kind kind)
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

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

ps_status ps_folder_list_read(const char *path, ps_folder_list *out)
{
    *out = (ps_folder_list){0};
    ps_status st = PS_OK;
    DIR *folder = has_fault(PS_FAULT_READ) ? NULL : opendir(path);
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

/* ---- writing ---- */

ps_status ps_folder_make(const char *path)
{
    if (!has_fault(PS_FAULT_WRITE)) {
        if (mkdir(path, 0777) == 0) return ps_file_sync_folder_of(path);
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

static ps_status rename_folder(const char *from, const char *to)
{
    if (!has_fault(PS_FAULT_WRITE) && rename(from, to) == 0) return PS_OK;
    return PS_FAIL(PS_EIO, "%s: cannot rename to %s: %s", from, to, strerror(errno));
}

ps_status ps_folder_replace(const char *from, const char *to, const char *aside, bool *has_swapped)
{
    *has_swapped = !has_fault(PS_FAULT_WRITE) && renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE) == 0;
    if (*has_swapped) return PS_OK;
    if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP)
        return PS_FAIL(PS_EIO, "%s: cannot replace %s: %s", from, to, strerror(errno));
    PS_TRY(rename_folder(to, aside));
    const ps_status st = rename_folder(from, to);
    if (st == PS_OK || rename(aside, to) == 0) return st;
    return PS_FAIL(PS_EIO, "%s: the new folder cannot get this name; the old one is now %s", to, aside);
}

static void free_writer(ps_folder_writer *w)
{
    ps_mem_free(w->temporary);
    ps_mem_free(w->path);
    ps_mem_free(w);
}

/* The folder that a link leads to, and a name instead of "." or ".."; else the path, without slashes at its end. */
static ps_status resolve(const char *path, char **out)
{
    char real[PATH_MAX];
    struct stat info;
    PS_TRY(ps_mem_strdup(path, out));
    for (size_t n = strlen(*out); n > 1 && (*out)[n - 1] == '/'; n--) (*out)[n - 1] = '\0';
    const char *slash = strrchr(*out, '/'), *name = slash != NULL ? slash + 1 : *out;
    const bool is_dots = strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
    const bool is_link = lstat(*out, &info) == 0 && S_ISLNK(info.st_mode);
    if (!(is_dots || is_link) || !ps_folder_exists(*out) || realpath(*out, real) == NULL) return PS_OK;
    ps_mem_free(*out);
    return ps_mem_strdup(real, out);
}

static bool is_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* A folder that is there must be one that another can replace. */
static ps_status check_movable(const char *path)
{
    struct stat info, here, parent;
    char *up = NULL;
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) return PS_OK;
    if (stat(".", &here) == 0 && is_same_file(&info, &here))
        return PS_FAIL(PS_EINVAL, "%s is the working folder, which cannot be replaced; name another", path);
    PS_TRY(ps_folder_join(path, "..", &up));
    const bool has_parent = stat(up, &parent) == 0;
    ps_mem_free(up);
    if (has_parent && (parent.st_dev != info.st_dev || is_same_file(&info, &parent)))
        return PS_FAIL(PS_EINVAL, "%s is where a file system begins and cannot be replaced; name a folder in it", path);
    return PS_OK;
}

/* May commit put a folder there? */
static ps_status check_target(const char *path, bool is_replacing)
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

/* ---- leftovers ---- */

/* The parent of a path without slashes at its end. */
static ps_status open_parent(const char *path, DIR **out, const char **name)
{
    char *parent = NULL;
    const char *slash = strrchr(path, '/');
    PS_TRY(ps_folder_of(path, &parent));
    *name = slash != NULL ? slash + 1 : path;
    *out = opendir(parent);
    ps_mem_free(parent);
    return PS_OK;
}

/* A writer that was killed between the two moves of ps_folder_replace: what it has put aside is the only one. */
static ps_status put_back(const char *path)
{
    DIR *d;
    const char *name;
    char prefix[NAME_MAX + 1];
    if (access(path, F_OK) == 0) return PS_OK;
    PS_TRY(open_parent(path, &d, &name));
    if ((size_t)snprintf(prefix, sizeof prefix, "%s" OLD_SUFFIX, name) < sizeof prefix)
        for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;)
            if (ps_leftover_is_gone(dirfd(d), e->d_name, prefix, true) &&
                renameat(dirfd(d), e->d_name, dirfd(d), name) == 0)
                break;
    if (d != NULL) closedir(d);
    return PS_OK;
}

static ps_status clean_beside(const char *path)
{
    PS_TRY(put_back(path));
    ps_leftovers_remove_beside(path, PS_LEFTOVER_TEMPORARY);
    if (access(path, F_OK) == 0) ps_leftovers_remove_beside(path, OLD_SUFFIX);
    return PS_OK;
}

/* "<path><suffix><mark>-<n>" */
static ps_status name_beside(const char *path, const char *suffix, int n, char **out)
{
    char mark[PS_LEFTOVER_MARK_MAX];
    const size_t n_bytes = strlen(path) + strlen(suffix) + PS_LEFTOVER_MARK_MAX + 8;
    PS_TRY(ps_mem_alloc(n_bytes, 1, out));
    snprintf(*out, n_bytes, "%s%s%s-%d", path, suffix, ps_leftover_mark(mark), n);
    return PS_OK;
}

/* The first such name that can be made. */
static ps_status make_beside(const char *path, char **out)
{
    for (int n = 0; n < TEMPORARY_NAMES_MAX; n++) {
        PS_TRY(name_beside(path, PS_LEFTOVER_TEMPORARY, n, out));
        if (!has_fault(PS_FAULT_WRITE) && mkdir(*out, 0777) == 0) return PS_OK;
        if (errno != EEXIST) break;
        ps_mem_free(*out);
        *out = NULL;
    }
    const ps_status st = PS_FAIL(PS_EIO, "%s: cannot create a folder beside it: %s", path, strerror(errno));
    ps_mem_free(*out);
    *out = NULL;
    return st;
}

ps_status ps_folder_writer_open(const char *path, bool is_replacing, ps_folder_writer **out)
{
    *out = NULL;
    ps_status st;
    ps_folder_writer *w = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *w, &w));
    w->is_replacing = is_replacing;
    PS_TRY_GOTO(resolve(path, &w->path));
    PS_TRY_GOTO(check_movable(w->path));
    PS_TRY_GOTO(clean_beside(w->path));
    PS_TRY_GOTO(check_target(w->path, is_replacing));
    PS_TRY_GOTO(make_beside(w->path, &w->temporary));
    *out = w;
    return PS_OK;
out:
    free_writer(w);
    return st;
}

const char *ps_folder_writer_path(const ps_folder_writer *w)
{
    return w->temporary;
}

ps_status ps_folder_writer_commit(ps_folder_writer *w)
{
    ps_status st;
    char *aside = NULL;
    bool has_swapped = false;
    PS_TRY_GOTO(ps_file_sync_folder(w->temporary));
    /* an empty folder is replaced by rename itself */
    if (w->is_replacing && rmdir(w->path) != 0 && errno == ENOTEMPTY) {
        PS_TRY_GOTO(name_beside(w->path, OLD_SUFFIX, 0, &aside));
        PS_TRY_GOTO(ps_folder_replace(w->temporary, w->path, aside, &has_swapped));
        /* what stays of it is removed by the next writer */
        (void)ps_folder_remove(AT_FDCWD, has_swapped ? w->temporary : aside);
    } else {
        PS_TRY_GOTO(rename_folder(w->temporary, w->path));
    }
    st = ps_file_sync_folder_of(w->path);
    ps_mem_free(aside);
    free_writer(w);
    return st;
out:
    ps_mem_free(aside);
    ps_folder_writer_cancel(w);
    return st;
}

void ps_folder_writer_cancel(ps_folder_writer *w)
{
    if (w == NULL) return;
    (void)ps_folder_remove(AT_FDCWD, w->temporary);
    free_writer(w);
}
