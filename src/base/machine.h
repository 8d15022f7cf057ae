/* machine.h - what this machine offers the process: memory, cores, a clock.
 *
 * Asked of /proc and of the cgroups (v1 and v2, the whole way up), which bound a container; libraries such as hwloc
 * tell of the whole host. `root` is put before /proc and the cgroup mount points, for tests; NULL is the real machine.
 * What these files hold is not trusted: a line that makes no sense is skipped. */
#ifndef PS_BASE_MACHINE_H
#define PS_BASE_MACHINE_H

#include "base/base.h"
#include "base/status.h"

typedef struct ps_machine_memory_info {
    int64_t total_bytes;     /* physical, or the smallest cgroup limit if less */
    int64_t available_bytes; /* without swapping; page cache of files counts as available */
} ps_machine_memory_info;

/* PS_EIO when /proc/meminfo does not say. A kernel older than MemAvailable: what is free and cached. */
PS_NODISCARD ps_status ps_machine_memory(const char *root, ps_machine_memory_info *out);

typedef struct ps_machine_rss_info {
    int64_t resident_bytes, peak_bytes; /* of this process, now and since it began */
} ps_machine_rss_info;

/* PS_EIO when /proc/self does not say. */
PS_NODISCARD ps_status ps_machine_rss(const char *root, ps_machine_rss_info *out);

/* "Intel(R) Xeon(R) ...", or "unknown CPU". */
void ps_machine_cpu_name(const char *root, char *out, size_t out_bytes);

/* Cores this process may keep busy: its affinity mask and its cgroups' quota, rounded up. At least 1. */
int ps_machine_cores(const char *root);

int64_t ps_clock_ns(void); /* monotonic; only differences mean anything */

#endif
