/* machine.h - resources that this machine has for the process: memory, cores, a clock.
 *
 * Read from /proc and from the cgroups (v1 and v2, from the process's group up to the root), which limit a container;
 * libraries such as hwloc report the whole host. `root` is a prefix of /proc and of the cgroup mount points, for tests;
 * NULL is the real machine. Malformed lines of these files are skipped. */
#ifndef PS_BASE_MACHINE_H
#define PS_BASE_MACHINE_H

#include "base/base.h"
#include "base/status.h"

typedef struct ps_machine_memory_info {
    int64_t total_bytes;     /* physical memory, or the smallest cgroup limit if less */
    int64_t available_bytes; /* without swapping; page cache of files counts as available */
} ps_machine_memory_info;

/* PS_EIO when /proc/meminfo lacks the values. On kernels without MemAvailable: free and cached memory. */
PS_NODISCARD ps_status ps_machine_memory(const char *root, ps_machine_memory_info *out);

typedef struct ps_machine_rss_info {
    int64_t resident_bytes, peak_bytes; /* of this process, now and since its start */
} ps_machine_rss_info;

/* PS_EIO when /proc/self lacks the values. */
PS_PRIVATE_API PS_NODISCARD ps_status ps_machine_rss(const char *root, ps_machine_rss_info *out);

/* /proc/self/statm, for ps_machine_private; the caller closes it. PS_EIO. */
PS_NODISCARD ps_status ps_machine_open_statm(int *statm);
/* Anonymous resident memory of this process (neither file-backed nor shared), in bytes; takes a microsecond. PS_EIO. */
PS_NODISCARD ps_status ps_machine_private(int statm, int64_t *bytes);

/* "Intel(R) Xeon(R) ...", or "unknown CPU". */
void ps_machine_cpu_name(const char *root, char *out, size_t out_bytes);

/* Cores this process may keep busy: its affinity mask and its cgroups' quota, rounded up. At least 1. */
int ps_machine_cores(const char *root);

int64_t ps_clock_ns(void); /* monotonic; only differences mean anything */

#endif
