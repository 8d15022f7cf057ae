#include "base/machine.h"
#include "base/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NO_LIMIT ((int64_t)1 << 60) /* v1 says "none" as the largest multiple of a page */

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* "Key:   123 kB" in a file of such lines, in bytes. */
static bool proc_kib(const char *root, const char *path, const char *key, int64_t *out_bytes)
{
    char line[512];
    bool found = false;
    const size_t n = strlen(key);
    FILE *f = ps_text_open(root, path);
    if (f == NULL) return false;
    while (!found && fgets(line, sizeof line, f) != NULL) {
        int64_t kib;
        if (strncmp(line, key, n) != 0 || line[n] != ':') continue;
        if (!ps_text_number(line + n + 1, NULL, &kib) || kib > INT64_MAX / 1024) continue;
        *out_bytes = kib * 1024;
        found = true;
    }
    fclose(f);
    return found;
}

/* Limit of one group. Inactive page cache counts as available, as the kernel reclaims it before an allocation fails. */
static void group_clamp_memory(const ps_cgroup *g, ps_machine_memory_info *m)
{
    int64_t limit, used = 0, cache = 0;
    if (!ps_cgroup_number(g, g->is_v2 ? "memory.max" : "memory.limit_in_bytes", &limit) || limit >= NO_LIMIT) return;
    m->total_bytes = ps_min_i64(m->total_bytes, limit);
    if (!ps_cgroup_number(g, g->is_v2 ? "memory.current" : "memory.usage_in_bytes", &used)) return;
    ps_cgroup_keyed_number(g, "memory.stat", g->is_v2 ? "inactive_file " : "total_inactive_file ", &cache);
    used = ps_max_i64(used - ps_min_i64(cache, used), 0);
    m->available_bytes = ps_min_i64(m->available_bytes, ps_max_i64(limit - used, 0));
}

ps_status ps_get_available_memory(int64_t *bytes)
{
    ps_machine_memory_info info;
    PS_TRY(PS_NEED("bytes", bytes));
    const ps_status st = ps_machine_memory(NULL, &info);
    *bytes = info.available_bytes;
    return st;
}

ps_status ps_machine_memory(const char *root, ps_machine_memory_info *out)
{
    const char *path = "/proc/meminfo";
    root = root != NULL ? root : "";
    *out = (ps_machine_memory_info){0};
    if (!proc_kib(root, path, "MemTotal", &out->total_bytes))
        return PS_FAIL(PS_EIO, "%s%s has no MemTotal", root, path);
    if (!proc_kib(root, path, "MemAvailable", &out->available_bytes)) {
        int64_t available = 0, cached = 0;
        proc_kib(root, path, "MemFree", &available);
        proc_kib(root, path, "Cached", &cached);
        out->available_bytes = cached < out->total_bytes - available ? available + cached : available;
    }
    for (int v2 = 0; v2 < 2; v2++) {
        ps_cgroup g;
        if (!ps_cgroup_first(root, "memory", v2 != 0, &g)) continue;
        do group_clamp_memory(&g, out);
        while (ps_cgroup_up(&g));
    }
    out->available_bytes = ps_min_i64(out->available_bytes, out->total_bytes);
    return PS_OK;
}

/* proc(5): size, resident, shared, ... in pages; shared are those of files and of shared memory. */
static ps_status parse_statm(const char *root, const char *line, int64_t *resident, int64_t *shared)
{
    const char *after;
    int64_t size;
    const bool ok = ps_text_number(line, &after, &size) && ps_text_number(after, &after, resident);
    if (!ok || !ps_text_number(after, NULL, shared)) *shared = 0;
    const int64_t page_bytes = sysconf(_SC_PAGESIZE);
    if (!ok || *resident > INT64_MAX / page_bytes || *shared > *resident)
        return PS_FAIL(PS_EIO, "%s/proc/self/statm makes no sense", root);
    *resident *= page_bytes;
    *shared *= page_bytes;
    return PS_OK;
}

ps_status ps_machine_open_statm(int *statm)
{
    *statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    return *statm >= 0 ? PS_OK : PS_FAIL(PS_EIO, "cannot open /proc/self/statm: %s", strerror(errno));
}

ps_status ps_machine_private(int statm, int64_t *bytes)
{
    char line[512];
    int64_t resident, shared;
    const ssize_t n = pread(statm, line, sizeof line - 1, 0);
    *bytes = 0;
    if (n < 0) return PS_FAIL(PS_EIO, "cannot read /proc/self/statm: %s", strerror(errno));
    line[n] = '\0';
    PS_TRY(parse_statm("", line, &resident, &shared));
    *bytes = resident - shared;
    return PS_OK;
}

ps_status ps_machine_rss(const char *root, ps_machine_rss_info *out)
{
    char line[512] = "";
    int64_t shared;
    root = root != NULL ? root : "";
    *out = (ps_machine_rss_info){0};
    FILE *f = ps_text_open(root, "/proc/self/statm");
    if (f == NULL) return PS_FAIL(PS_EIO, "cannot open %s/proc/self/statm: %s", root, strerror(errno));
    if (fgets(line, sizeof line, f) == NULL) line[0] = '\0';
    fclose(f);
    PS_TRY(parse_statm(root, line, &out->resident_bytes, &shared));
    if (!proc_kib(root, "/proc/self/status", "VmHWM", &out->peak_bytes))
        return PS_FAIL(PS_EIO, "%s/proc/self/status has no VmHWM", root);
    return PS_OK;
}

/* ---- processor --------------------------------------------------------------------------------------------------- */

void ps_machine_cpu_name(const char *root, char *out, size_t out_bytes)
{
    char line[512];
    const char *key = "model name", *name = NULL;
    FILE *f = ps_text_open(root != NULL ? root : "", "/proc/cpuinfo");
    while (f != NULL && name == NULL && fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, key, strlen(key)) != 0 || (name = strchr(line, ':')) == NULL) continue;
        name += 1 + strspn(name + 1, " \t");
        if (*name == '\0') name = NULL;
    }
    if (f != NULL) fclose(f);
    snprintf(out, out_bytes, "%s", name != NULL ? name : "unknown CPU");
}

/* v2: "cpu.max" holds "quota period", the quota "max" for none. */
static bool group_quota(const ps_cgroup *g, int64_t *quota, int64_t *period)
{
    if (!g->is_v2)
        return ps_cgroup_number(g, "cpu.cfs_quota_us", quota) && ps_cgroup_number(g, "cpu.cfs_period_us", period);
    char line[128];
    const char *after;
    FILE *f = ps_text_open(g->path, "/cpu.max");
    if (f == NULL) return false;
    const bool ok = fgets(line, sizeof line, f) != NULL && ps_text_number(line, &after, quota) &&
                    ps_text_number(after, NULL, period);
    fclose(f);
    return ok;
}

int ps_machine_cores(const char *root)
{
    cpu_set_t mask[8]; /* 8192 CPUs; one set is too few for the largest machines */
    int64_t cores = 1;
    if (sched_getaffinity(0, sizeof mask, mask) == 0)
        cores = CPU_COUNT_S(sizeof mask, mask);
    else
        cores = sysconf(_SC_NPROCESSORS_ONLN);
    for (int v2 = 0; v2 < 2; v2++) {
        ps_cgroup g;
        if (!ps_cgroup_first(root != NULL ? root : "", "cpu", v2 != 0, &g)) continue;
        do {
            int64_t quota, period;
            if (group_quota(&g, &quota, &period) && quota > 0 && period > 0 && quota / period < cores)
                cores = quota / period + (quota % period != 0);
        } while (ps_cgroup_up(&g));
    }
    return (int)ps_max_i64(cores, 1);
}

int64_t ps_clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
