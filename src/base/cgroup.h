/* cgroup.h - walk the control groups of this process, from its own up to the outermost one that is visible. */
#ifndef PS_BASE_CGROUP_H
#define PS_BASE_CGROUP_H

#include <limits.h>
#include <stdio.h>

#include "base/base.h"

typedef struct ps_cgroup {
    bool is_v2;
    size_t mount_bytes;  /* length of the mount point at the front of path */
    char path[PATH_MAX]; /* folder of the present group */
} ps_cgroup;

/* The process' own group in the hierarchy that governs `controller` ("memory", "cpu"): the v1 one of that name or the
 * unified v2 one. False when there is none. root: "" or a folder put before all paths. */
bool ps_cgroup_first(const char *root, const char *controller, bool is_v2, ps_cgroup *out);
bool ps_cgroup_up(ps_cgroup *g); /* to the parent; false at the mount point */

/* Read a number from a file of the group. False when the file is missing, or has "max", a negative number or malformed
 * text. */
bool ps_cgroup_number(const ps_cgroup *g, const char *file, int64_t *out);

/* The number after `key` at the start of a line. */
bool ps_cgroup_keyed_number(const ps_cgroup *g, const char *file, const char *key, int64_t *out);

/* ---- text of /proc, shared with machine.c ------------------------------------------------------------------------ */

/* A number >= 0 at the start of s after blanks; *end (may be NULL) points past it. False when there is none, or it is
 * too large. */
bool ps_text_number(const char *s, const char **end, int64_t *out);

/* fopen(root + path, "r"), NULL when that fails. */
FILE *ps_text_open(const char *root, const char *path);

#endif
