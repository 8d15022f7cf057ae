#include "base/folder_writer.h"

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
#include "base/folder.h"
#include "base/leftover.h"
#include "base/mem.h"

#define TEMPORARY_NAMES_MAX 1000

#define OLD_SUFFIX ".old-" /* the old folder, renamed for the new one */

struct ps_folder_writer {
    char *path, *temporary;
    bool is_replacing;
};

static ps_status rename_folder(const char *from, const char *to)
{
    if (!ps_fault_hit_io(PS_FAULT_WRITE) && rename(from, to) == 0) return PS_OK;
    return PS_FAIL(PS_EIO, "%s: cannot rename to %s: %s", from, to, strerror(errno));
}

ps_status ps_folder_replace(const char *from, const char *to, const char *displaced, bool *has_swapped)
{
    *has_swapped = !ps_fault_hit_io(PS_FAULT_WRITE) && renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE) == 0;
    if (*has_swapped) return PS_OK;
    if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP)
        return PS_FAIL(PS_EIO, "%s: cannot replace %s: %s", from, to, strerror(errno));
    PS_TRY(rename_folder(to, displaced));
    const ps_status st = rename_folder(from, to);
    if (st == PS_OK || rename(displaced, to) == 0) return st;
    return PS_FAIL(PS_EIO, "%s: the new folder cannot get this name; the old one is now %s", to, displaced);
}

static void free_writer(ps_folder_writer *w)
{
    ps_mem_free(w->temporary);
    ps_mem_free(w->path);
    ps_mem_free(w);
}

/* Resolve a link to a folder, and "." or ".." to a name; else return the path without trailing slashes. */
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

/* An existing folder must be one that may be replaced. */
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

/* The parent of a path without trailing slashes. */
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

/* After a writer was killed between the two renames of ps_folder_replace, the renamed old folder is the only copy:
 * restore it. */
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

static ps_status clean_siblings(const char *path)
{
    PS_TRY(put_back(path));
    ps_leftovers_remove_siblings(path, PS_LEFTOVER_TEMPORARY);
    if (access(path, F_OK) == 0) ps_leftovers_remove_siblings(path, OLD_SUFFIX);
    return PS_OK;
}

/* "<path><suffix><mark>-<n>" */
static ps_status sibling_name(const char *path, const char *suffix, int n, char **out)
{
    char mark[PS_LEFTOVER_MARK_MAX];
    const size_t n_bytes = strlen(path) + strlen(suffix) + PS_LEFTOVER_MARK_MAX + 8;
    PS_TRY(ps_mem_alloc(n_bytes, 1, out));
    snprintf(*out, n_bytes, "%s%s%s-%d", path, suffix, ps_leftover_mark(mark), n);
    return PS_OK;
}

/* Create the first such name that is free. */
static ps_status make_sibling(const char *path, char **out)
{
    for (int n = 0; n < TEMPORARY_NAMES_MAX; n++) {
        PS_TRY(sibling_name(path, PS_LEFTOVER_TEMPORARY, n, out));
        if (!ps_fault_hit_io(PS_FAULT_WRITE) && mkdir(*out, 0777) == 0) return PS_OK;
        if (errno != EEXIST) break;
        ps_mem_free(*out);
        *out = NULL;
    }
    const ps_status st = PS_FAIL(PS_EIO, "%s: cannot create a folder next to it: %s", path, strerror(errno));
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
    PS_TRY_GOTO(clean_siblings(w->path));
    PS_TRY_GOTO(check_target(w->path, is_replacing));
    PS_TRY_GOTO(make_sibling(w->path, &w->temporary));
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
    char *displaced = NULL;
    bool has_swapped = false;
    PS_TRY_GOTO(ps_folder_sync(w->temporary));
    /* an empty folder is replaced by rename itself */
    if (w->is_replacing && rmdir(w->path) != 0 && errno == ENOTEMPTY) {
        PS_TRY_GOTO(sibling_name(w->path, OLD_SUFFIX, 0, &displaced));
        PS_TRY_GOTO(ps_folder_replace(w->temporary, w->path, displaced, &has_swapped));
        /* the next writer removes the remains */
        (void)ps_folder_remove(AT_FDCWD, has_swapped ? w->temporary : displaced);
    } else {
        PS_TRY_GOTO(rename_folder(w->temporary, w->path));
    }
    st = ps_folder_sync_of(w->path);
    ps_mem_free(displaced);
    free_writer(w);
    return st;
out:
    ps_mem_free(displaced);
    ps_folder_writer_cancel(w);
    return st;
}

void ps_folder_writer_cancel(ps_folder_writer *w)
{
    if (w == NULL) return;
    (void)ps_folder_remove(AT_FDCWD, w->temporary);
    free_writer(w);
}
