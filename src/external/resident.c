#include "external/resident.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

ps_status ps_resident_open(ps_resident *r)
{
    r->fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    return r->fd >= 0 ? PS_OK : PS_FAIL(PS_EIO, "/proc/self/statm: %s", strerror(errno));
}

void ps_resident_close(ps_resident *r)
{
    if (r->fd >= 0) close(r->fd);
    r->fd = -1;
}

/* proc(5): size, resident, shared, ... in pages; shared are those of files and of shared memory. */
ps_status ps_resident_measure(const ps_resident *r, int64_t *bytes)
{
    char text[128];
    long long resident, shared;
    const ssize_t n = pread(r->fd, text, sizeof text - 1, 0);
    *bytes = 0;
    if (n <= 0) return PS_FAIL(PS_EIO, "/proc/self/statm: %s", n < 0 ? strerror(errno) : "empty");
    text[n] = '\0';
    if (sscanf(text, "%*d %lld %lld", &resident, &shared) != 2 || resident < shared)
        return PS_FAIL(PS_EIO, "/proc/self/statm: no sizes in '%.60s'", text);
    *bytes = (int64_t)(resident - shared) * sysconf(_SC_PAGESIZE);
    return PS_OK;
}

void ps_resident_trim(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}
