/* disk_file.c - the temporary file of the disk tier: without a name and with direct I/O where possible. */
#include "base/folder.h"
#include "base/leftover.h"
#include "base/mem.h"
#include "device/disk_backend.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_TRIES 1000 /* disks of one process in one folder */

#define NAME_PREFIX "patrickstar-"
#define NAME_SUFFIX ".chunks"

static bool is_left(int folder, const char *name)
{
    const char *rest = ps_leftover_suffix(name, NAME_PREFIX);
    int n, end = 0;
    return rest != NULL && sscanf(rest, "-%d" NAME_SUFFIX "%n", &n, &end) == 1 && end > 0 && rest[end] == '\0' &&
           ps_leftover_is_gone(folder, name, NAME_PREFIX, false);
}

/* A live process holds the lock of its file, which other machines see too where the file system supports that. Files
 * that cannot be opened are left in place. */
static void remove_leftovers(const char *folder)
{
    DIR *dir = opendir(folder);
    if (dir == NULL) return;
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        if (!is_left(dirfd(dir), e->d_name)) continue;
        const int fd = openat(dirfd(dir), e->d_name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0) continue;
        struct stat info;
        if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && flock(fd, LOCK_EX | LOCK_NB) == 0)
            unlinkat(dirfd(dir), e->d_name, 0);
        close(fd);
    }
    closedir(dir);
}

/* Between create and lock another process may remove the new file as a leftover: then its name or its lock is gone, and
 * the next name is tried. */
static ps_status create_named(const char *folder, ps_disk_file *f)
{
    char mark[PS_LEFTOVER_MARK_MAX];
    const size_t path_bytes = strlen(folder) + PS_LEFTOVER_MARK_MAX + 64;
    PS_TRY(ps_mem_alloc(path_bytes, 1, &f->path));
    (void)ps_leftover_mark(mark);
    int error = EEXIST;
    for (int n = 0; n < NAME_TRIES; n++) {
        snprintf(f->path, path_bytes, "%s/" NAME_PREFIX "%s-%d" NAME_SUFFIX, folder, mark, n);
        const int fd = open(f->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0) {
            error = errno;
            if (error == EEXIST) continue;
            break;
        }
        struct stat info;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &info) == 0 && info.st_nlink == 1) {
            f->fd = fd;
            f->is_named = true;
            return PS_OK;
        }
        close(fd);
    }
    ps_mem_free(f->path);
    f->path = NULL;
    return PS_FAIL(PS_EIO, "memory.disk_path: cannot create a file in folder %s: %s", folder, strerror(error));
}

static ps_status create_unnamed(const char *folder, ps_disk_file *f)
{
    const size_t path_bytes = strlen(folder) + 64;
    const int fd = open(folder, O_RDWR | O_TMPFILE | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return PS_FAIL(PS_ENOSYS, "no file without a name in %s: %s", folder, strerror(errno));
    const ps_status st = ps_mem_alloc(path_bytes, 1, &f->path);
    if (st != PS_OK) {
        close(fd);
        return st;
    }
    snprintf(f->path, path_bytes, "temporary file in %s", folder);
    f->fd = fd;
    return PS_OK;
}

/* Some file systems accept the flag and refuse the transfers, so one page is written and read back, not at the start of
 * the file, where a larger alignment would go unnoticed. */
static bool try_direct(int fd)
{
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_DIRECT) != 0) return false;
    const size_t bytes = (size_t)PS_PAGE_BYTES;
    void *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool works = false;
    if (page != MAP_FAILED) {
        works = pwrite(fd, page, bytes, PS_PAGE_BYTES) == (ssize_t)bytes &&
                pread(fd, page, bytes, PS_PAGE_BYTES) == (ssize_t)bytes;
        munmap(page, bytes);
    }
    if (ftruncate(fd, 0) != 0) works = false;
    if (!works) fcntl(fd, F_SETFL, flags);
    return works;
}

static ps_status make_folder(const char *folder)
{
    const ps_status st = ps_folder_exists(folder) ? PS_OK : ps_folder_make_all(folder);
    return st == PS_OK ? st : PS_FAIL(st, "memory.disk_path: %s", ps_last_error());
}

ps_status ps_disk_file_open(const char *folder, unsigned avoid, ps_disk_file *out)
{
    *out = (ps_disk_file){.fd = -1};
    PS_TRY(make_folder(folder));
    remove_leftovers(folder);
    ps_status st = PS_ENOSYS;
    if ((avoid & PS_DISK_NO_TMPFILE) == 0) st = create_unnamed(folder, out);
    if (st == PS_ENOSYS) st = create_named(folder, out);
    if (st != PS_OK) return st;
    if ((avoid & PS_DISK_NO_DIRECT) == 0) out->is_direct = try_direct(out->fd);
    return PS_OK;
}

void ps_disk_file_close(ps_disk_file *f)
{
    if (f->fd < 0) return;
    if (f->is_named) unlink(f->path);
    /* The kernel frees the rings of io_uring, which refer to the file, some time after the process ended. A run that
     * starts by then needs the room. */
    if (ftruncate(f->fd, 0) != 0) errno = 0;
    close(f->fd);
    ps_mem_free(f->path);
    *f = (ps_disk_file){.fd = -1};
}
