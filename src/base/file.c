#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/base.h"
#include "base/fault.h"
#include "base/folder.h"
#include "base/leftover.h"
#include "base/mem.h"

/* Linux transfers at most 2 GiB - 4 KiB in one call; a round number below it. */
#define FILE_IO_BYTES_MAX PS_GIB
#define TEMPORARY_NAMES_MAX 1000

/* A page fault maps this much of the page cache around the page (fault_around_bytes of Linux), so this much is
 * released. */
#define FAULT_AROUND_BYTES (64 * PS_KIB)

struct ps_file {
    int fd;
    int64_t n_bytes;
    unsigned char *map; /* NULL: not mapped */
    char path[];        /* zero-terminated */
};

struct ps_file_writer {
    int fd;
    char *path, *temporary;
};

/* A clone has such a pointer file in place of a large file that was not fetched: three lines, at most 1 KiB
 * (https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md). */
static ps_status check_no_pointer(const ps_file *f)
{
    static const char begin[] = "version https://git-lfs.github.com/spec/";
    char head[sizeof begin - 1];
    if (f->n_bytes < (int64_t)sizeof head || f->n_bytes > 1024) return PS_OK;
    if (pread(f->fd, head, sizeof head, 0) != (ssize_t)sizeof head || memcmp(head, begin, sizeof head) != 0)
        return PS_OK;
    return PS_FAIL(PS_EFORMAT,
                   "%s: a pointer of git-lfs, %lld bytes, in the place of the file itself, which was not fetched: run "
                   "`git lfs pull` in its folder",
                   f->path, (long long)f->n_bytes);
}

ps_status ps_file_open(const char *path, ps_file **out)
{
    *out = NULL;
    ps_file *f = NULL;
    const size_t path_bytes = strlen(path) + 1;
    PS_TRY(ps_mem_alloc(1, sizeof *f + path_bytes, &f));
    memcpy(f->path, path, path_bytes);
    /* O_NONBLOCK: opening a pipe by mistake must not hang; it changes nothing for regular files */
    f->fd = ps_fault_hit_io(PS_FAULT_READ) ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    ps_status st = PS_OK;
    if (f->fd < 0 || fstat(f->fd, &info) != 0)
        st = PS_FAIL(PS_EIO, "%s: cannot open: %s", path, strerror(errno));
    else if (!S_ISREG(info.st_mode))
        st = PS_FAIL(PS_EIO, "%s: not a regular file", path);
    if (st == PS_OK) {
        f->n_bytes = info.st_size;
        st = check_no_pointer(f);
    }
    if (st != PS_OK) {
        ps_file_close(f);
        return st;
    }
    *out = f;
    return PS_OK;
}

void ps_file_close(ps_file *f)
{
    if (f == NULL) return;
    if (f->map != NULL) munmap(f->map, (size_t)f->n_bytes);
    if (f->fd >= 0) close(f->fd);
    ps_mem_free(f);
}

int64_t ps_file_bytes(const ps_file *f)
{
    return f->n_bytes;
}

const char *ps_file_path(const ps_file *f)
{
    return f->path;
}

static ps_status read_at(int fd, const char *path, int64_t offset, void *dst, int64_t n_bytes)
{
    PS_ASSERT(offset >= 0 && n_bytes >= 0);
    for (int64_t done = 0; done < n_bytes;) {
        const size_t want = (size_t)ps_min_i64(n_bytes - done, FILE_IO_BYTES_MAX);
        const ssize_t got = ps_fault_hit_io(PS_FAULT_READ) ? -1 : pread(fd, (char *)dst + done, want, offset + done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return PS_FAIL(PS_EIO, "%s: reading %lld bytes at offset %lld: %s", path, (long long)n_bytes,
                           (long long)offset, strerror(errno));
        if (got == 0)
            return PS_FAIL(PS_EIO, "%s: wanted %lld bytes at offset %lld, but the file ends at %lld", path,
                           (long long)n_bytes, (long long)offset, (long long)(offset + done));
        done += got;
    }
    return PS_OK;
}

ps_status ps_file_read(const ps_file *f, int64_t offset, void *dst, int64_t n_bytes)
{
    return read_at(f->fd, f->path, offset, dst, n_bytes);
}

void ps_file_read_ahead(const ps_file *f, int64_t offset, int64_t n_bytes)
{
    (void)posix_fadvise(f->fd, offset, n_bytes, POSIX_FADV_WILLNEED); /* a hint: a failure shows in the read itself */
}

ps_status ps_file_read_all(const char *path, int64_t max_bytes, char **out_data, int64_t *out_bytes)
{
    *out_data = NULL;
    *out_bytes = 0;
    ps_file *f = NULL;
    char *data = NULL;
    ps_status st;
    PS_TRY(ps_file_open(path, &f));
    if (f->n_bytes > max_bytes) {
        st = PS_FAIL(PS_EFORMAT, "%s: %lld bytes, expected at most %lld", path, (long long)f->n_bytes,
                     (long long)max_bytes);
        goto out;
    }
    PS_TRY_GOTO(ps_mem_alloc((size_t)f->n_bytes + 1, 1, &data));
    PS_TRY_GOTO(ps_file_read(f, 0, data, f->n_bytes));
    *out_data = data;
    *out_bytes = f->n_bytes;
    data = NULL;
out:
    ps_mem_free(data);
    ps_file_close(f);
    return st;
}

bool ps_file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

/* ---- mapping ---- */

ps_status ps_file_map(ps_file *f)
{
    PS_ASSERT(f->map == NULL && f->n_bytes > 0);
    void *map =
        ps_fault_hit_io(PS_FAULT_READ) ? MAP_FAILED : mmap(NULL, (size_t)f->n_bytes, PROT_READ, MAP_SHARED, f->fd, 0);
    if (map == MAP_FAILED)
        return PS_FAIL(PS_EIO, "%s: cannot map its %lld bytes: %s", f->path, (long long)f->n_bytes, strerror(errno));
    f->map = map;
    return PS_OK;
}

ps_status ps_file_begin_view(const ps_file *f, int64_t offset, int64_t n_bytes, const unsigned char **out)
{
    PS_ASSERT(f->map != NULL && offset >= 0 && n_bytes >= 0 && offset + n_bytes <= f->n_bytes);
    struct stat info;
    if (ps_fault_hit_io(PS_FAULT_READ) || fstat(f->fd, &info) != 0)
        return PS_FAIL(PS_EIO, "%s: reading %lld bytes at offset %lld: %s", f->path, (long long)n_bytes,
                       (long long)offset, strerror(errno));
    if (info.st_size < offset + n_bytes)
        return PS_FAIL(PS_EIO,
                       "%s: wanted %lld bytes at offset %lld, but the file, %lld bytes when opened, now ends at %lld",
                       f->path, (long long)n_bytes, (long long)offset, (long long)f->n_bytes, (long long)info.st_size);
    *out = f->map + offset;
    return PS_OK;
}

void ps_file_end_view(const ps_file *f, int64_t offset, int64_t n_bytes)
{
    const int64_t begin = offset / FAULT_AROUND_BYTES * FAULT_AROUND_BYTES;
    const int64_t end = ps_min_i64(ps_round_up(offset + n_bytes, FAULT_AROUND_BYTES), f->n_bytes);
    /* a hint: when it fails, the pages stay until the system reclaims them */
    if (end > begin) (void)madvise(f->map + begin, (size_t)(end - begin), MADV_DONTNEED);
}

/* ---- writing ---- */

static void free_writer(ps_file_writer *w)
{
    if (w->fd >= 0) close(w->fd);
    ps_mem_free(w->temporary);
    ps_mem_free(w->path);
    ps_mem_free(w);
}

ps_status ps_file_writer_open(const char *path, ps_file_writer **out)
{
    *out = NULL;
    ps_status st;
    ps_file_writer *w = NULL;
    struct stat there; /* the rename at the end would replace a device or a pipe by a file */
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode))
        return PS_FAIL(PS_EIO, "%s: not a regular file, and will not be replaced by one", path);
    PS_TRY(ps_mem_alloc(1, sizeof *w, &w));
    w->fd = -1;
    char mark[PS_LEFTOVER_MARK_MAX];
    const size_t name_bytes = strlen(path) + PS_LEFTOVER_MARK_MAX + 16;
    ps_leftovers_remove_siblings(path, PS_LEFTOVER_TEMPORARY);
    (void)ps_leftover_mark(mark);
    PS_TRY_GOTO(ps_mem_strdup(path, &w->path));
    PS_TRY_GOTO(ps_mem_alloc(name_bytes, 1, &w->temporary));
    /* another writer of the same file, perhaps in this process, may be active */
    for (int n = 0; n < TEMPORARY_NAMES_MAX; n++) {
        snprintf(w->temporary, name_bytes, "%s" PS_LEFTOVER_TEMPORARY "%s-%d", path, mark, n);
        w->fd = ps_fault_hit_io(PS_FAULT_WRITE) ? -1 : open(w->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (w->fd >= 0 || errno != EEXIST) break;
    }
    if (w->fd < 0) {
        st = PS_FAIL(PS_EIO, "%s: cannot create: %s", w->temporary, strerror(errno));
        goto out;
    }
    *out = w;
    return PS_OK;
out:
    free_writer(w);
    return st;
}

ps_status ps_file_writer_write(ps_file_writer *w, int64_t offset, const void *data, int64_t n_bytes)
{
    PS_ASSERT(offset >= 0 && n_bytes >= 0);
    for (int64_t done = 0; done < n_bytes;) {
        const size_t want = (size_t)ps_min_i64(n_bytes - done, FILE_IO_BYTES_MAX);
        const ssize_t put =
            ps_fault_hit_io(PS_FAULT_WRITE) ? -1 : pwrite(w->fd, (const char *)data + done, want, offset + done);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0)
            return PS_FAIL(PS_EIO, "%s: writing %lld bytes at offset %lld: %s", w->temporary, (long long)n_bytes,
                           (long long)offset, put < 0 ? strerror(errno) : "no byte was accepted");
        done += put;
    }
    return PS_OK;
}

ps_status ps_file_writer_read(const ps_file_writer *w, int64_t offset, void *dst, int64_t n_bytes)
{
    return read_at(w->fd, w->temporary, offset, dst, n_bytes);
}

void ps_file_writer_start_sync(const ps_file_writer *w, int64_t offset, int64_t n_bytes)
{
    /* a hint: the sync at the end writes the rest, and reports failures */
    (void)sync_file_range(w->fd, offset, n_bytes, SYNC_FILE_RANGE_WRITE);
}

ps_status ps_file_writer_commit(ps_file_writer *w)
{
    ps_status st = PS_OK;
    if (ps_fault_hit_io(PS_FAULT_WRITE) || fsync(w->fd) != 0) {
        st = PS_FAIL(PS_EIO, "%s: cannot sync: %s", w->temporary, strerror(errno));
        goto out;
    }
    const int fd = w->fd;
    w->fd = -1;
    /* network file systems report late write errors here */
    if (close(fd) != 0) {
        st = PS_FAIL(PS_EIO, "%s: cannot close: %s", w->temporary, strerror(errno));
        goto out;
    }
    if (ps_fault_hit_io(PS_FAULT_WRITE) || rename(w->temporary, w->path) != 0) {
        st = PS_FAIL(PS_EIO, "%s: cannot rename to %s: %s", w->temporary, w->path, strerror(errno));
        goto out;
    }
    st = ps_folder_sync_of(w->path);
    free_writer(w);
    return st;
out:
    ps_file_writer_cancel(w);
    return st;
}

void ps_file_writer_cancel(ps_file_writer *w)
{
    if (w == NULL) return;
    unlink(w->temporary);
    free_writer(w);
}

ps_status ps_file_write_all(const char *path, const void *data, int64_t n_bytes)
{
    ps_file_writer *w = NULL;
    PS_TRY(ps_file_writer_open(path, &w));
    const ps_status st = ps_file_writer_write(w, 0, data, n_bytes);
    if (st != PS_OK) {
        ps_file_writer_cancel(w);
        return st;
    }
    return ps_file_writer_commit(w);
}

ps_status ps_file_xxh3(const char *path, uint64_t *out)
{
    enum { PIECE_BYTES = 1 << 20 };
    char *piece = NULL;
    ps_file *f = NULL;
    XXH3_state_t *state = XXH3_createState();
    ps_status st = state != NULL ? PS_OK : PS_FAIL(PS_ENOMEM_HOST, "no memory for a hash");
    if (st != PS_OK) return st;
    XXH3_64bits_reset(state);
    PS_TRY_GOTO(ps_file_open(path, &f));
    PS_TRY_GOTO(ps_mem_alloc(PIECE_BYTES, 1, &piece));
    const int64_t n = ps_file_bytes(f);
    for (int64_t at = 0; at < n; at += PIECE_BYTES) {
        const int64_t here = ps_min_i64(PIECE_BYTES, n - at);
        PS_TRY_GOTO(ps_file_read(f, at, piece, here));
        XXH3_64bits_update(state, piece, (size_t)here);
    }
    *out = XXH3_64bits_digest(state);
out:
    ps_mem_free(piece);
    ps_file_close(f);
    XXH3_freeState(state);
    return st;
}
