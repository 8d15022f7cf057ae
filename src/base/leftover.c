#include "base/leftover.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/base.h"
#include "base/folder.h"

typedef struct maker {
    uint64_t host, start; /* start 0: not known */
    long pid;
} maker;

/* ---- this process ---- */

/* The beginning of a small file, or of a link's target; "" when it cannot be read. */
static void read_text(const char *path, bool is_link, char *text, size_t text_bytes)
{
    ssize_t n = -1;
    if (is_link) {
        n = readlink(path, text, text_bytes - 1);
    } else {
        const int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) n = read(fd, text, text_bytes - 1);
        if (fd >= 0) close(fd);
    }
    text[n > 0 ? n : 0] = '\0';
}

static uint64_t host_of_this(void)
{
    char boot[64], namespace[64], name[256] = "", all[512];
    read_text("/proc/sys/kernel/random/boot_id", false, boot, sizeof boot);
    read_text("/proc/self/ns/pid", true, namespace, sizeof namespace);
    (void)gethostname(name, sizeof name - 1);
    const int n = snprintf(all, sizeof all, "%s %s %s", boot, namespace, name);
    return XXH3_64bits(all, (size_t)n);
}

/* State and start of a process, from proc(5): fields 3 and 22; field 2 is a name in parentheses that may contain any
 * characters. */
static bool process_look(long pid, char *state, uint64_t *start)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    read_text(path, false, text, sizeof text);
    const char *p = strrchr(text, ')');
    if (p == NULL || p[1] != ' ') return false;
    *state = p[2];
    for (int field = 2; field < 22 && p != NULL; field++) p = strchr(p + 1, ' ');
    if (p == NULL) return false;
    *start = strtoull(p, NULL, 10);
    return true;
}

static maker maker_of_this(void)
{
    char state;
    maker m = {.host = host_of_this(), .pid = (long)getpid()};
    if (!process_look(m.pid, &state, &m.start)) m.start = 0;
    return m;
}

const char *ps_leftover_mark(char mark[PS_LEFTOVER_MARK_MAX])
{
    const maker m = maker_of_this();
    snprintf(mark, PS_LEFTOVER_MARK_MAX, "%016" PRIx64 "-%ld-%" PRIu64, m.host, m.pid, m.start);
    return mark;
}

/* ---- marks in names ---- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Fills *out and returns what follows the mark, or NULL. */
static const char *maker_read(const char *name, const char *prefix, maker *out)
{
    const size_t n = strlen(prefix);
    const char *p = name + n;
    char *end;
    if (strncmp(name, prefix, n) != 0 || strspn(p, "0123456789abcdef") != 16 || p[16] != '-') return NULL;
    out->host = strtoull(p, NULL, 16);
    p += 17;
    if (!is_digit(*p)) return NULL;
    out->pid = strtol(p, &end, 10);
    if (*end != '-' || !is_digit(end[1])) return NULL;
    out->start = strtoull(end + 1, &end, 10);
    return *end == '-' || *end == '\0' ? end : NULL;
}

const char *ps_leftover_suffix(const char *name, const char *prefix)
{
    maker m;
    return maker_read(name, prefix, &m);
}

/* ---- has the process ended? ---- */

static bool process_is_gone(const maker *m)
{
    char state;
    uint64_t start;
    if (m->pid <= 0 || m->pid > INT_MAX) return false;
    if (kill((pid_t)m->pid, 0) != 0 && errno == ESRCH) return true;
    if (!process_look(m->pid, &state, &start)) return false;
    return state == 'Z' || state == 'X' || (m->start != 0 && m->start != start);
}

bool ps_leftover_process_has_ended(const char *mark)
{
    maker m;
    const maker own = maker_of_this();
    if (maker_read(mark, "", &m) == NULL || m.host != own.host) return false;
    return !(m.pid == own.pid && m.start == own.start) && process_is_gone(&m);
}

/* Time of the last change of an entry, or of the newest entry in it. */
static time_t newest_change(int folder, const char *name)
{
    struct stat info;
    if (fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) != 0) return time(NULL);
    time_t newest = info.st_mtime;
    const int fd = S_ISDIR(info.st_mode) ? openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (fd >= 0 && d == NULL) close(fd);
    for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;)
        if (strcmp(e->d_name, "..") != 0 && fstatat(dirfd(d), e->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0)
            newest = ps_max_i64(newest, info.st_mtime);
    if (d != NULL) closedir(d);
    return newest;
}

static bool maker_is_gone(const maker *m, const maker *own, int folder, const char *name, bool own_too)
{
    if (m->host != own->host) return time(NULL) - newest_change(folder, name) > PS_LEFTOVER_IDLE_S;
    if (m->pid == own->pid && m->start == own->start) return own_too;
    return process_is_gone(m);
}

bool ps_leftover_is_gone(int folder, const char *name, const char *prefix, bool own_too)
{
    maker m;
    if (maker_read(name, prefix, &m) == NULL) return false;
    const maker own = maker_of_this();
    return maker_is_gone(&m, &own, folder, name, own_too);
}

/* ---- removing ---- */

void ps_leftovers_remove(const char *folder, const char *prefix, bool own_too)
{
    DIR *d = opendir(folder);
    if (d == NULL) return;
    for (const struct dirent *e; (e = readdir(d)) != NULL;)
        if (ps_leftover_is_gone(dirfd(d), e->d_name, prefix, own_too)) (void)ps_folder_remove(dirfd(d), e->d_name);
    closedir(d);
}

void ps_leftovers_remove_siblings(const char *path, const char *suffix)
{
    char folder[PATH_MAX], prefix[NAME_MAX + 1];
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    const int n_folder = slash == NULL ? 1 : (int)(slash == path ? 1 : slash - path);
    if ((size_t)snprintf(prefix, sizeof prefix, "%s%s", name, suffix) >= sizeof prefix) return;
    if ((size_t)snprintf(folder, sizeof folder, "%.*s", n_folder, slash != NULL ? path : ".") >= sizeof folder) return;
    ps_leftovers_remove(folder, prefix, false);
}
