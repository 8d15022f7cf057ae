#include "weights/checkpoint_folder.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
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
#include "base/folder_writer.h"
#include "base/leftover.h"
#include "base/mem.h"

#define SAVE_PREFIX ".tmp-save-"
#define OLD_PREFIX ".tmp-old-"
#define DELETE_PREFIX ".tmp-delete-"
#define LATEST_PREFIX PS_CHECKPOINT_LATEST PS_LEFTOVER_TEMPORARY
#define STEP_PREFIX "step-"
#define LATEST_BYTES_MAX 256

const char *ps_checkpoint_name(int64_t step, char name[PS_CHECKPOINT_NAME_MAX])
{
    snprintf(name, PS_CHECKPOINT_NAME_MAX, STEP_PREFIX "%06lld", (long long)step);
    return name;
}

/* The step of a name of ps_checkpoint_name, else -1. */
static int64_t step_of(const char *name)
{
    char again[PS_CHECKPOINT_NAME_MAX];
    if (strncmp(name, STEP_PREFIX, strlen(STEP_PREFIX)) != 0) return -1;
    const int64_t step = strtoll(name + strlen(STEP_PREFIX), NULL, 10);
    return step >= 0 && strcmp(ps_checkpoint_name(step, again), name) == 0 ? step : -1;
}

static bool is_name(const char *name)
{
    bool is_valid = isalnum((unsigned char)name[0]) && strlen(name) < PS_CHECKPOINT_NAME_MAX &&
                    strcmp(name, PS_CHECKPOINT_LATEST) != 0;
    for (const char *c = name; *c != '\0'; c++) is_valid &= isalnum((unsigned char)*c) || strchr("._-", *c) != NULL;
    return is_valid;
}

ps_status ps_checkpoint_check_tag(const char *tag)
{
    if (is_name(tag) && step_of(tag) < 0) return PS_OK;
    return PS_FAIL(
        PS_EINVAL,
        "tag '%.64s': expected 1 to %d letters, digits, '.', '_' or '-', the first a letter or digit, and neither "
        "\"" PS_CHECKPOINT_LATEST "\" nor a name by step (step-000100)",
        tag, PS_CHECKPOINT_NAME_MAX - 1);
}

static ps_status rename_entry(const char *from, const char *to)
{
    if (!ps_fault_hit_io(PS_FAULT_WRITE) && rename(from, to) == 0) return PS_OK;
    return PS_FAIL(PS_EIO, "%s: cannot rename to %s: %s", from, to, strerror(errno));
}

/* "<prefix><mark>-<name>", in root with *path. */
static ps_status hide(const char *root, const char *prefix, const char *name, char hidden[PS_CHECKPOINT_HIDDEN_MAX],
                      char **path)
{
    char mark[PS_LEFTOVER_MARK_MAX];
    snprintf(hidden, PS_CHECKPOINT_HIDDEN_MAX, "%s%s-%.32s", prefix, ps_leftover_mark(mark), name);
    return ps_folder_join(root, hidden, path);
}

/* ---- removing ---- */

static bool has_entry(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

static ps_status remove_folder(const char *path)
{
    if (!has_entry(path)) return PS_OK;
    if (!ps_fault_hit_io(PS_FAULT_WRITE) && ps_folder_remove(AT_FDCWD, path)) return PS_OK;
    return PS_FAIL(PS_EIO, "%s: cannot remove: %s", path, strerror(errno));
}

/* A kill during removal must not leave a partial checkpoint under a valid name. */
static ps_status remove_checkpoint(const char *root, const char *name)
{
    char hidden[PS_CHECKPOINT_HIDDEN_MAX];
    char *from = NULL, *to = NULL;
    ps_status st = PS_OK;
    PS_TRY_GOTO(ps_folder_join(root, name, &from));
    PS_TRY_GOTO(hide(root, DELETE_PREFIX, name, hidden, &to));
    PS_TRY_GOTO(rename_entry(from, to));
    st = remove_folder(to);
out:
    ps_mem_free(to);
    ps_mem_free(from);
    return st;
}

/* The checkpoint's name in "<prefix><mark>-<name>"; "" for other names. */
static const char *hidden_name_of(const char *hidden, const char *prefix)
{
    const char *rest = ps_leftover_suffix(hidden, prefix);
    return rest != NULL && rest[0] == '-' && is_name(rest + 1) ? rest + 1 : "";
}

/* After a save was killed between its two renames, the old checkpoint may be the only one, so it is removed only when
 * its name exists. */
static void put_back_or_remove(int root, const char *hidden)
{
    struct stat info;
    const char *name = hidden_name_of(hidden, OLD_PREFIX);
    if (name[0] == '\0' || !ps_leftover_is_gone(root, hidden, OLD_PREFIX, true)) return;
    if (fstatat(root, name, &info, AT_SYMLINK_NOFOLLOW) != 0)
        (void)renameat(root, hidden, root, name); /* on failure it stays, and can be loaded under the temporary name */
    else
        (void)ps_folder_remove(root, hidden);
}

void ps_checkpoint_folder_clean(const char *root)
{
    DIR *d = opendir(root);
    if (d == NULL) return;
    for (const struct dirent *e; (e = readdir(d)) != NULL;) put_back_or_remove(dirfd(d), e->d_name);
    closedir(d);
    ps_leftovers_remove(root, SAVE_PREFIX, false);
    ps_leftovers_remove(root, DELETE_PREFIX, true); /* these are to be removed, whatever process created them */
    ps_leftovers_remove(root, LATEST_PREFIX, false);
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
    if (!is_name(name) || (int64_t)strlen(expected) != n || memcmp(text, expected, (size_t)n) != 0)
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

/* The folder of the newest complete checkpoint in root that is named by step, also under its temporary name; "" when
 * there is none, or no root. */
static ps_status find_newest(const char *root, char name[PS_CHECKPOINT_HIDDEN_MAX])
{
    ps_status st = PS_OK;
    int64_t newest = -1;
    name[0] = '\0';
    DIR *d = opendir(root);
    if (d == NULL) return PS_OK;
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        char *path = NULL;
        bool is_complete = false;
        const int64_t own = step_of(e->d_name);
        const int64_t step = own >= 0 ? own : step_of(hidden_name_of(e->d_name, OLD_PREFIX));
        if (step < newest || (step == newest && own < 0) || strlen(e->d_name) >= PS_CHECKPOINT_HIDDEN_MAX) continue;
        PS_TRY_GOTO(ps_folder_join(root, e->d_name, &path));
        st = has_file(path, PS_CHECKPOINT_STATE, &is_complete);
        ps_mem_free(path);
        if (st != PS_OK) break;
        if (!is_complete) continue;
        newest = step;
        strcpy(name, e->d_name);
    }
out:
    closedir(d);
    return st;
}

/* The temporary name of a replaced checkpoint `name`; "" when there is none. */
static void find_displaced(const char *root, const char *name, char hidden[PS_CHECKPOINT_HIDDEN_MAX])
{
    hidden[0] = '\0';
    DIR *d = opendir(root);
    if (d == NULL) return;
    for (const struct dirent *e; (e = readdir(d)) != NULL;)
        if (strcmp(hidden_name_of(e->d_name, OLD_PREFIX), name) == 0 && strlen(e->d_name) < PS_CHECKPOINT_HIDDEN_MAX)
            strcpy(hidden, e->d_name);
    closedir(d);
}

static ps_status find_latest(const char *root, char **out)
{
    char name[PS_CHECKPOINT_NAME_MAX], hidden[PS_CHECKPOINT_HIDDEN_MAX];
    PS_TRY(read_latest(root, name));
    PS_TRY(ps_folder_join(root, name, out));
    if (ps_folder_exists(*out)) return PS_OK;
    find_displaced(root, name, hidden);
    if (hidden[0] == '\0' || ps_folder_exists(*out)) return PS_OK; /* opening it reports a missing one */
    ps_mem_free(*out);
    *out = NULL;
    return ps_folder_join(root, hidden, out);
}

ps_status ps_checkpoint_find(const char *folder, char **path, int32_t *is_latest)
{
    char name[PS_CHECKPOINT_HIDDEN_MAX];
    bool has_latest = false;
    PS_TRY(PS_NEED_FOR(path, "folder path", folder, path));
    if (is_latest != NULL) *is_latest = 0;
    PS_TRY(has_file(folder, PS_CHECKPOINT_LATEST, &has_latest));
    if (is_latest != NULL) *is_latest = has_latest;
    if (has_latest) return find_latest(folder, path);
    PS_TRY(find_newest(folder, name));
    return name[0] != '\0' ? ps_folder_join(folder, name, path) : PS_OK;
}

ps_status ps_checkpoint_folder_find(const char *path, char **out)
{
    *out = NULL;
    bool yes;
    PS_TRY(has_file(path, PS_CHECKPOINT_STATE, &yes));
    if (yes) return ps_mem_strdup(path, out);
    PS_TRY(ps_checkpoint_find(path, out, NULL));
    if (*out != NULL) return PS_OK;
    return PS_FAIL(PS_EIO, "%s: no checkpoint: it has neither " PS_CHECKPOINT_STATE " nor " PS_CHECKPOINT_LATEST, path);
}

ps_status ps_checkpoint_folder_of_run(const char *run, char **out)
{
    *out = NULL;
    char *root = NULL;
    bool is_root;
    PS_TRY(has_file(run, PS_CHECKPOINT_LATEST, &is_root));
    PS_TRY(is_root ? ps_mem_strdup(run, &root) : ps_folder_join(run, "checkpoints", &root));
    const ps_status st = ps_checkpoint_find(root, out, NULL);
    ps_mem_free(root);
    return st;
}

/* ---- a save ---- */

/* f->hidden is set. */
static ps_status name_folder(const char *root, ps_checkpoint_folder *f)
{
    PS_TRY(ps_mem_strdup(root, &f->root));
    PS_TRY(ps_folder_join(root, f->name, &f->final));
    return ps_folder_join(root, f->hidden, &f->temporary);
}

static ps_status make_temporary(ps_checkpoint_folder *f)
{
    (void)ps_folder_remove(AT_FDCWD, f->temporary); /* an earlier attempt of this process that could not be removed */
    f->is_owner = !ps_fault_hit_io(PS_FAULT_WRITE) && mkdir(f->temporary, 0777) == 0;
    if (f->is_owner) return PS_OK;
    return PS_FAIL(PS_EIO, "%s: cannot make the folder: %s", f->temporary, strerror(errno));
}

/* Set the checkpoint's name. */
static ps_status set_name(const char *tag, int64_t step, ps_checkpoint_folder *f)
{
    *f = (ps_checkpoint_folder){.step = step};
    if (tag != NULL) PS_TRY(ps_checkpoint_check_tag(tag));
    if (tag != NULL)
        snprintf(f->name, sizeof f->name, "%s", tag);
    else
        (void)ps_checkpoint_name(step, f->name);
    return PS_OK;
}

ps_status ps_checkpoint_folder_open(const char *root, const char *tag, int64_t step, ps_checkpoint_folder *f)
{
    char mark[PS_LEFTOVER_MARK_MAX];
    ps_status st = PS_OK;
    PS_TRY(set_name(tag, step, f));
    PS_TRY_GOTO(ps_folder_make(root));
    ps_checkpoint_folder_clean(root);
    snprintf(f->hidden, sizeof f->hidden, SAVE_PREFIX "%s-%s", ps_leftover_mark(mark), f->name);
    PS_TRY_GOTO(name_folder(root, f));
    PS_TRY_GOTO(make_temporary(f));
    return PS_OK;
out:
    ps_checkpoint_folder_close(f);
    return st;
}

ps_status ps_checkpoint_folder_join(const char *root, const char *tag, int64_t step, const char *hidden,
                                    ps_checkpoint_folder *f)
{
    PS_TRY(set_name(tag, step, f));
    snprintf(f->hidden, sizeof f->hidden, "%s", hidden);
    ps_status st = name_folder(root, f);
    if (st == PS_OK && !ps_folder_exists(f->temporary))
        st = PS_FAIL(PS_EIO,
                     "%s: rank 0 has made this folder, but this rank does not see it: all ranks must give the same "
                     "folder, in one file system",
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

/* A checkpoint of the same step may exist, of a run that was killed before it updated `latest`, or that was resumed
 * from an earlier step. Where the file system can swap names, the old one is then in the temporary folder, and is
 * removed with it; else it is at *aside. */
static ps_status give_name(const ps_checkpoint_folder *f, char **displaced)
{
    char hidden[PS_CHECKPOINT_HIDDEN_MAX];
    bool has_swapped = false;
    *displaced = NULL;
    if (!has_entry(f->final)) return rename_entry(f->temporary, f->final);
    PS_TRY(hide(f->root, OLD_PREFIX, f->name, hidden, displaced));
    const ps_status st = ps_folder_replace(f->temporary, f->final, *displaced, &has_swapped);
    if (st == PS_OK && !has_swapped) return st;
    ps_mem_free(*displaced);
    *displaced = NULL;
    return st;
}

/* Newest first; steps later than `now` come last. */
static bool is_newer(int64_t a, int64_t b, int64_t now)
{
    if ((a <= now) != (b <= now)) return a <= now;
    return a > b;
}

/* A checkpoint with more than `keep` newer ones, or -1. */
static ps_status find_surplus(const char *root, int64_t now, int64_t keep, int64_t *step)
{
    int64_t *steps = NULL, n = 0;
    *step = -1;
    ps_status st = PS_OK;
    DIR *d = opendir(root);
    if (d == NULL) return PS_FAIL(PS_EIO, "%s: cannot list: %s", root, strerror(errno));
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        if (step_of(e->d_name) < 0) continue;
        PS_TRY_GOTO(ps_mem_reserve(&steps, (size_t)n + 1, sizeof *steps));
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
        PS_TRY(find_surplus(f->root, f->step, keep_last, &step));
        if (step < 0) return PS_OK;
        PS_TRY(remove_checkpoint(f->root, ps_checkpoint_name(step, name)));
    }
    return PS_OK;
}

/* Remove checkpoints that are no longer needed. */
static ps_status remove_older(const ps_checkpoint_folder *f, const char *displaced, int64_t keep_last)
{
    const ps_status st = displaced != NULL ? remove_folder(displaced) : PS_OK;
    PS_TRY(remove_surplus(f, keep_last));
    return st;
}

ps_status ps_checkpoint_remove_all(const char *folder)
{
    char *latest = NULL, name[PS_CHECKPOINT_NAME_MAX];
    ps_status st = PS_OK;
    PS_TRY(PS_NEED("folder", folder));
    if (!ps_folder_exists(folder)) return PS_OK;
    ps_checkpoint_folder_clean(folder); /* renames a replaced checkpoint back to its name */
    PS_TRY_GOTO(ps_folder_join(folder, PS_CHECKPOINT_LATEST, &latest));
    if (unlink(latest) != 0 && errno != ENOENT)
        PS_TRY_GOTO(PS_FAIL(PS_EIO, "%s: cannot remove: %s", latest, strerror(errno)));
    for (int64_t step = 0;;) {
        PS_TRY_GOTO(find_surplus(folder, INT64_MAX, 0, &step));
        if (step < 0) break;
        PS_TRY_GOTO(remove_checkpoint(folder, ps_checkpoint_name(step, name)));
    }
out:
    ps_mem_free(latest);
    return st;
}

ps_status ps_checkpoint_folder_commit(ps_checkpoint_folder *f, int64_t keep_last)
{
    char *displaced = NULL;
    ps_status st;
    PS_TRY_GOTO(ps_folder_sync(f->temporary));
    PS_TRY_GOTO(give_name(f, &displaced));
    PS_TRY_GOTO(ps_folder_sync(f->root));
    PS_TRY_GOTO(move_latest(f));
    st = remove_older(f, displaced, keep_last);
    if (st == PS_OK) goto out;
    st = PS_FAIL(st, "%s is complete, but an older checkpoint could not be removed: %s", f->final, ps_last_error());
out:
    ps_mem_free(displaced);
    return st;
}
