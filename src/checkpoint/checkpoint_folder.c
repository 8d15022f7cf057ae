#include "checkpoint/checkpoint_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/base.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/mem.h"

#define SAVE_PREFIX ".tmp-save-"
#define DELETE_PREFIX ".tmp-delete-"
#define LATEST_PREFIX PS_CHECKPOINT_LATEST ".tmp-"
#define STEP_PREFIX "step-"
#define LATEST_BYTES_MAX 256

const char *ps_checkpoint_name(int64_t step, char name[PS_CHECKPOINT_NAME_MAX])
{
    snprintf(name, PS_CHECKPOINT_NAME_MAX, STEP_PREFIX "%06lld", (long long)step);
    return name;
}

/* The step of a name that ps_checkpoint_name gives, else -1. */
static int64_t step_of(const char *name)
{
    char again[PS_CHECKPOINT_NAME_MAX];
    if (strncmp(name, STEP_PREFIX, strlen(STEP_PREFIX)) != 0) return -1;
    const int64_t step = strtoll(name + strlen(STEP_PREFIX), NULL, 10);
    return step >= 0 && strcmp(ps_checkpoint_name(step, again), name) == 0 ? step : -1;
}

/* A change on disk that is made to fail for a test looks like a broken disk. */
static bool folder_has_fault(void)
{
    if (!ps_fault_hit(PS_FAULT_WRITE)) return false;
    errno = EIO;
    return true;
}

static ps_status folder_rename(const char *from, const char *to)
{
    if (!folder_has_fault() && rename(from, to) == 0) return PS_OK;
    return PS_FAIL(PS_EIO, "%s: cannot rename to %s: %s", from, to, strerror(errno));
}

/* ---- removing ---- */

/* Checkpoints have files only, no folders. */
static ps_status remove_folder(const char *path)
{
    DIR *d = opendir(path);
    if (d == NULL) return errno == ENOENT ? PS_OK : PS_FAIL(PS_EIO, "%s: cannot list: %s", path, strerror(errno));
    for (const struct dirent *e; (e = readdir(d)) != NULL;)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) (void)unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    if (folder_has_fault() || rmdir(path) != 0) return PS_FAIL(PS_EIO, "%s: cannot remove: %s", path, strerror(errno));
    return PS_OK;
}

/* A kill in the midst of removing must not leave half a checkpoint under a valid name. */
static ps_status remove_checkpoint(const char *root, const char *name)
{
    char hidden[96];
    char *from = NULL, *to = NULL;
    snprintf(hidden, sizeof hidden, DELETE_PREFIX "%ld-%.32s", (long)getpid(), name);
    ps_status st = PS_OK;
    PS_TRY_GOTO(ps_folder_join(root, name, &from));
    PS_TRY_GOTO(ps_folder_join(root, hidden, &to));
    PS_TRY_GOTO(folder_rename(from, to));
    st = remove_folder(to);
out:
    ps_mem_free(to);
    ps_mem_free(from);
    return st;
}

/* The number after the prefix, when the name begins with it; -1 otherwise. */
static long pid_of(const char *name, const char *prefix)
{
    const size_t n = strlen(prefix);
    char *end;
    if (strncmp(name, prefix, n) != 0 || name[n] < '0' || name[n] > '9') return -1;
    const long pid = strtol(name + n, &end, 10);
    return *end == '-' ? pid : -1;
}

/* A process with our own number, before we have begun anything, is an earlier one. */
static bool is_at_work(long pid)
{
    return pid != (long)getpid() && (kill((pid_t)pid, 0) == 0 || errno != ESRCH);
}

void ps_checkpoint_folder_clean(const char *root)
{
    DIR *d = opendir(root);
    if (d == NULL) return;
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        const long save = pid_of(e->d_name, SAVE_PREFIX), removal = pid_of(e->d_name, DELETE_PREFIX);
        const long latest = pid_of(e->d_name, LATEST_PREFIX), pid = ps_max_i64(ps_max_i64(save, removal), latest);
        if (pid < 0 || is_at_work(pid)) continue;
        char *path = NULL;
        if (latest >= 0)
            (void)unlinkat(dirfd(d), e->d_name, 0);
        else if (ps_folder_join(root, e->d_name, &path) == PS_OK)
            (void)remove_folder(path); /* what cannot be removed now harms nobody, and is tried again next time */
        ps_mem_free(path);
    }
    closedir(d);
}

/* ---- latest ---- */

static void latest_text(const char *name, char text[LATEST_BYTES_MAX])
{
    snprintf(text, LATEST_BYTES_MAX, "%.100s %016" PRIx64 "\n", name, XXH3_64bits(name, strlen(name)));
}

static ps_status read_latest(const char *root, char name[PS_CHECKPOINT_NAME_MAX])
{
    char *path = NULL, *text = NULL, expected[LATEST_BYTES_MAX];
    int64_t n = 0;
    ps_status st = PS_OK;
    PS_TRY_GOTO(ps_folder_join(root, PS_CHECKPOINT_LATEST, &path));
    PS_TRY_GOTO(ps_file_read_all(path, LATEST_BYTES_MAX, &text, &n));
    snprintf(name, PS_CHECKPOINT_NAME_MAX, "%.*s", (int)ps_min_i64((int64_t)strcspn(text, " \n"), 31), text);
    latest_text(name, expected);
    if (step_of(name) < 0 || (int64_t)strlen(expected) != n || memcmp(text, expected, (size_t)n) != 0)
        st = PS_FAIL(
            PS_EFORMAT,
            "%s: damaged: expected the name of a checkpoint (step-000100) and the checksum of that name; name a "
            "checkpoint's folder instead",
            path);
out:
    ps_mem_free(text);
    ps_mem_free(path);
    return st;
}

static ps_status move_latest(const ps_checkpoint_folder *f)
{
    char text[LATEST_BYTES_MAX], *path = NULL;
    PS_TRY(ps_folder_join(f->root, PS_CHECKPOINT_LATEST, &path));
    latest_text(f->name, text);
    const ps_status st = ps_file_write_all(path, text, (int64_t)strlen(text));
    ps_mem_free(path);
    return st;
}

static ps_status has_file(const char *folder, const char *name, bool *yes)
{
    char *path = NULL;
    PS_TRY(ps_folder_join(folder, name, &path));
    *yes = ps_file_exists(path);
    ps_mem_free(path);
    return PS_OK;
}

ps_status ps_checkpoint_folder_has_latest(const char *root, bool *yes)
{
    return has_file(root, PS_CHECKPOINT_LATEST, yes);
}

ps_status ps_checkpoint_folder_find(const char *path, char **out)
{
    *out = NULL;
    char name[PS_CHECKPOINT_NAME_MAX];
    bool yes;
    PS_TRY(has_file(path, PS_CHECKPOINT_STATE, &yes));
    if (yes) return ps_mem_strdup(path, out);
    PS_TRY(ps_checkpoint_folder_has_latest(path, &yes));
    if (!yes)
        return PS_FAIL(PS_EIO, "%s: no checkpoint: it has neither " PS_CHECKPOINT_STATE " nor " PS_CHECKPOINT_LATEST,
                       path);
    PS_TRY(read_latest(path, name));
    return ps_folder_join(path, name, out);
}

ps_status ps_checkpoint_folder_of_run(const char *run, char **out)
{
    *out = NULL;
    char *root = NULL;
    bool yes;
    PS_TRY(ps_folder_join(run, "checkpoints", &root));
    ps_status st = ps_checkpoint_folder_has_latest(root, &yes);
    if (st == PS_OK && yes) st = ps_checkpoint_folder_find(root, out);
    ps_mem_free(root);
    return st;
}

/* ---- a save ---- */

static ps_status make_folder(const char *path, bool may_exist)
{
    if (!folder_has_fault() && (mkdir(path, 0777) == 0 || (may_exist && errno == EEXIST))) return PS_OK;
    return PS_FAIL(PS_EIO, "%s: cannot make the folder: %s", path, strerror(errno));
}

int64_t ps_checkpoint_folder_pid(void)
{
    return (int64_t)getpid();
}

static ps_status name_folder(const char *root, int64_t step, int64_t pid, ps_checkpoint_folder *f)
{
    char hidden[96];
    (void)ps_checkpoint_name(step, f->name);
    snprintf(hidden, sizeof hidden, SAVE_PREFIX "%lld-%s", (long long)pid, f->name);
    PS_TRY(ps_mem_strdup(root, &f->root));
    PS_TRY(ps_folder_join(root, f->name, &f->final));
    return ps_folder_join(root, hidden, &f->temporary);
}

ps_status ps_checkpoint_folder_open(const char *root, int64_t step, ps_checkpoint_folder *f)
{
    ps_status st = PS_OK;
    *f = (ps_checkpoint_folder){0};
    PS_TRY_GOTO(make_folder(root, true));
    ps_checkpoint_folder_clean(root);
    PS_TRY_GOTO(name_folder(root, step, ps_checkpoint_folder_pid(), f));
    PS_TRY_GOTO(make_folder(f->temporary, false));
    f->is_owner = true;
    return PS_OK;
out:
    ps_checkpoint_folder_close(f);
    return st;
}

ps_status ps_checkpoint_folder_join(const char *root, int64_t step, int64_t pid, ps_checkpoint_folder *f)
{
    *f = (ps_checkpoint_folder){0};
    ps_status st = name_folder(root, step, pid, f);
    if (st == PS_OK && !ps_folder_exists(f->temporary))
        st = PS_FAIL(
            PS_EIO,
            "%s: rank 0 has made this folder, but it is not there on this machine; all ranks need one file system",
            f->temporary);
    if (st != PS_OK) ps_checkpoint_folder_close(f);
    return st;
}

void ps_checkpoint_folder_close(ps_checkpoint_folder *f)
{
    if (f->is_owner) (void)remove_folder(f->temporary);
    ps_mem_free(f->temporary);
    ps_mem_free(f->final);
    ps_mem_free(f->root);
    *f = (ps_checkpoint_folder){0};
}

/* A checkpoint of the same step may be there: of a run that was killed before `latest` moved, or taken back. The two change
 * places in one move, so that there is one under this name at any time. */
static ps_status give_name(const ps_checkpoint_folder *f)
{
    if (access(f->final, F_OK) != 0) return folder_rename(f->temporary, f->final);
    if (!folder_has_fault() && renameat2(AT_FDCWD, f->temporary, AT_FDCWD, f->final, RENAME_EXCHANGE) == 0)
        return PS_OK; /* the old one lies in the temporary folder now and goes with it */
    return PS_FAIL(PS_EIO, "%s is there already and cannot be replaced in one move: %s; remove or rename it", f->final,
                   strerror(errno));
}

/* Newest first; those of later steps than `now` last. */
static bool is_newer(int64_t a, int64_t b, int64_t now)
{
    if ((a <= now) != (b <= now)) return a <= now;
    return a > b;
}

/* One of those with more than `keep` newer ones, or -1. */
static ps_status find_surplus(const char *root, int64_t now, int64_t keep, int64_t *step)
{
    int64_t *steps = NULL, n = 0, room = 0;
    *step = -1;
    ps_status st = PS_OK;
    DIR *d = opendir(root);
    if (d == NULL) return PS_FAIL(PS_EIO, "%s: cannot list: %s", root, strerror(errno));
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        if (step_of(e->d_name) < 0) continue;
        if (n == room) {
            PS_TRY_GOTO(ps_mem_grow(&steps, (size_t)room, (size_t)room + 64, sizeof *steps));
            room += 64;
        }
        steps[n++] = step_of(e->d_name);
    }
    for (int64_t i = 0; i < n && *step < 0; i++) {
        int64_t newer = 0;
        for (int64_t k = 0; k < n; k++) newer += is_newer(steps[k], steps[i], now);
        if (newer >= keep) *step = steps[i];
    }
out:
    ps_mem_free(steps);
    closedir(d);
    return st;
}

static ps_status remove_surplus(const ps_checkpoint_folder *f, int64_t keep_last)
{
    char name[PS_CHECKPOINT_NAME_MAX];
    for (int64_t step = 0; keep_last > 0;) {
        PS_TRY(find_surplus(f->root, step_of(f->name), keep_last, &step));
        if (step < 0) return PS_OK;
        PS_TRY(remove_checkpoint(f->root, ps_checkpoint_name(step, name)));
    }
    return PS_OK;
}

ps_status ps_checkpoint_folder_commit(ps_checkpoint_folder *f, int64_t keep_last)
{
    PS_TRY(ps_file_sync_folder(f->temporary));
    PS_TRY(give_name(f));
    PS_TRY(ps_file_sync_folder(f->root));
    PS_TRY(move_latest(f));
    const ps_status st = remove_surplus(f, keep_last);
    if (st == PS_OK) return PS_OK;
    char cause[512];
    snprintf(cause, sizeof cause, "%.500s", ps_last_error());
    return PS_FAIL(st, "%s is complete, but an older checkpoint could not be removed: %s", f->final, cause);
}
