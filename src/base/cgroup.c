#include "base/cgroup.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 8192 /* the rest of a longer line is read as a separate line, which matches nothing */

/* ---- text -------------------------------------------------------------------------------------------------------- */

bool ps_text_number(const char *s, const char **end, int64_t *out)
{
    while (*s == ' ' || *s == '\t') s++;
    if (!isdigit((unsigned char)*s)) return false;
    char *after;
    errno = 0;
    const long long value = strtoll(s, &after, 10);
    if (errno != 0) return false;
    *out = value;
    if (end != NULL) *end = after;
    return true;
}

FILE *ps_text_open(const char *root, const char *path)
{
    char whole[PATH_MAX];
    const int n = snprintf(whole, sizeof whole, "%s%s", root, path);
    return n >= 0 && (size_t)n < sizeof whole ? fopen(whole, "re") : NULL;
}

/* Is `word` one of the comma-separated words of the list? */
static bool list_has(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *s = list; s != NULL; s = strchr(s, ',')) {
        if (*s == ',') s++;
        if (strncmp(s, word, n) == 0 && (s[n] == ',' || s[n] == '\0')) return true;
    }
    return false;
}

/* ---- where the group is ------------------------------------------------------------------------------------------ */

/* /proc/self/cgroup: "4:memory:/a/b", of v2 "0::/a/b". */
static bool group_find(const char *root, const char *controller, bool is_v2, char *out, size_t out_bytes)
{
    char line[LINE_BYTES];
    bool found = false;
    FILE *f = ps_text_open(root, "/proc/self/cgroup");
    if (f == NULL) return false;
    while (!found && fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (path == NULL || path[1] != '/' || strlen(path + 1) >= out_bytes) continue;
        *path++ = '\0';
        controllers++;
        found = is_v2 ? controllers[0] == '\0' : list_has(controllers, controller);
        if (found) memcpy(out, path, strlen(path) + 1);
    }
    fclose(f);
    return found;
}

typedef struct mount_line {
    char *group_root, *point, *type, *options;
} mount_line;

/* "36 35 98:0 /root /point rw,noatime master:1 - type source options" */
static bool mount_parse(char *line, mount_line *out)
{
    char *field[5], *save = NULL;
    line[strcspn(line, "\n")] = '\0';
    char *tail = strstr(line, " - ");
    if (tail == NULL) return false;
    *tail = '\0';
    for (int i = 0; i < 5; i++)
        if ((field[i] = strtok_r(i == 0 ? line : NULL, " ", &save)) == NULL) return false;
    out->group_root = field[3];
    out->point = field[4];
    out->type = strtok_r(tail + 3, " ", &save);
    const char *source = strtok_r(NULL, " ", &save);
    out->options = strtok_r(NULL, " ", &save);
    return out->type != NULL && source != NULL && out->options != NULL;
}

/* Path of the group below the mount point: in a container the mount may show only a part of the hierarchy, or the group
 * may be outside of it; then the mount point is the nearest group. */
static const char *path_below(const char *path, const char *group_root)
{
    const size_t n = strcmp(group_root, "/") == 0 ? 0 : strlen(group_root);
    if (strncmp(path, group_root, n) != 0 || (path[n] != '/' && path[n] != '\0')) return "";
    if (strstr(path, "/..") != NULL || strcmp(path + n, "/") == 0) return "";
    return path + n;
}

bool ps_cgroup_first(const char *root, const char *controller, bool is_v2, ps_cgroup *out)
{
    char line[LINE_BYTES], path[PATH_MAX];
    bool found = false;
    if (!group_find(root, controller, is_v2, path, sizeof path)) return false;
    FILE *f = ps_text_open(root, "/proc/self/mountinfo");
    if (f == NULL) return false;
    while (!found && fgets(line, sizeof line, f) != NULL) {
        mount_line m;
        if (!mount_parse(line, &m)) continue;
        if (is_v2 ? strcmp(m.type, "cgroup2") != 0 : strcmp(m.type, "cgroup") != 0 || !list_has(m.options, controller))
            continue;
        const int mount_bytes = snprintf(out->path, sizeof out->path, "%s%s", root, m.point);
        const int n = snprintf(out->path, sizeof out->path, "%s%s%s", root, m.point, path_below(path, m.group_root));
        if (mount_bytes < 0 || n < 0 || (size_t)n >= sizeof out->path) continue;
        out->is_v2 = is_v2;
        out->mount_bytes = (size_t)mount_bytes;
        found = true;
    }
    fclose(f);
    return found;
}

bool ps_cgroup_up(ps_cgroup *g)
{
    if (strlen(g->path) <= g->mount_bytes) return false;
    char *slash = strrchr(g->path + g->mount_bytes, '/');
    if (slash == NULL) return false;
    *slash = '\0';
    return true;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

bool ps_cgroup_keyed_number(const ps_cgroup *g, const char *file, const char *key, int64_t *out)
{
    char line[LINE_BYTES];
    bool found = false;
    const size_t n = strlen(key);
    char path[PATH_MAX];
    const int length = snprintf(path, sizeof path, "/%s", file);
    FILE *f = length > 0 && (size_t)length < sizeof path ? ps_text_open(g->path, path) : NULL;
    if (f == NULL) return false;
    while (!found && fgets(line, sizeof line, f) != NULL)
        found = strncmp(line, key, n) == 0 && ps_text_number(line + n, NULL, out);
    fclose(f);
    return found;
}

bool ps_cgroup_number(const ps_cgroup *g, const char *file, int64_t *out)
{
    return ps_cgroup_keyed_number(g, file, "", out);
}
