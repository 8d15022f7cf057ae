/* hang_disk.c - preloaded: from some time on the disk does not answer any more (test/cli/test_stall.sh).
 *
 *   HANG_AFTER  a file: requests of the disk's threads wait for ever once it exists
 *   HANG_RANK   only on this rank of Open MPI's */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static void hang_perhaps(void)
{
    const char *file = getenv("HANG_AFTER"), *rank = getenv("HANG_RANK"), *own = getenv("OMPI_COMM_WORLD_RANK");
    if (file == NULL || access(file, F_OK) != 0 || (rank != NULL && (own == NULL || strcmp(rank, own) != 0))) return;
    for (;;) pause();
}

ssize_t preadv(int fd, const struct iovec *v, int n, off_t offset)
{
    hang_perhaps();
    return syscall(SYS_preadv, fd, v, n, (long)offset, 0L);
}

ssize_t pwritev(int fd, const struct iovec *v, int n, off_t offset)
{
    hang_perhaps();
    return syscall(SYS_pwritev, fd, v, n, (long)offset, 0L);
}
