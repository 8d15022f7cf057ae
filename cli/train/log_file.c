#include "log_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void log_file_init(log_file *f)
{
    *f = (log_file){.fd = -1};
}

ps_status log_file_open(log_file *f, int64_t n_kept, bool is_new)
{
    f->fd = open(f->path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | (is_new ? O_EXCL : 0), 0666);
    if (f->fd < 0 && errno == ELOOP)
        return client_fail(PS_EIO, "%s is a link to another file, which is not written over: remove the link", f->path);
    if (f->fd < 0 || ftruncate(f->fd, n_kept) != 0)
        return client_fail(PS_EIO, "cannot write %s: %s", f->path, strerror(errno));
    f->n_written = n_kept;
    return PS_OK;
}

void log_kept_add(log_kept *k, char *text, int64_t at, int64_t n_bytes)
{
    if (at == k->n_bytes) k->n_in_place += n_bytes;
    memmove(text + k->n_bytes, text + at, (size_t)n_bytes);
    k->n_bytes += n_bytes;
}

static ps_status write_waiting(log_file *f)
{
    size_t done = 0;
    while (done < f->n_waiting) {
        const ssize_t n = pwrite(f->fd, f->waiting + done, f->n_waiting - done, f->n_written + (int64_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n > 0) {
            done += (size_t)n;
            continue;
        }
        const int cause = n == 0 ? ENOSPC : errno;
        (void)!ftruncate(f->fd, f->n_written); /* where it fails, the next write covers what is there */
        return client_fail(PS_EIO, "cannot write %s: %s", f->path, strerror(cause));
    }
    f->n_written += (int64_t)done;
    f->n_waiting = 0;
    return PS_OK;
}

static ps_status add_waiting(log_file *f, const void *record, size_t n_bytes)
{
    TRY(client_reserve(&f->waiting, (int64_t)(f->n_waiting + n_bytes), 1));
    memcpy(f->waiting + f->n_waiting, record, n_bytes);
    f->n_waiting += n_bytes;
    return PS_OK;
}

ps_status log_file_put(log_file *f, const void *record, size_t n_bytes)
{
    TRY(add_waiting(f, record, n_bytes));
    return write_waiting(f);
}

ps_status log_file_open_kept(log_file *f, const char *text, const log_kept *k)
{
    const int64_t n_moved = k->n_bytes - k->n_in_place;
    TRY(log_file_open(f, k->n_in_place, false));
    return n_moved > 0 ? add_waiting(f, text + k->n_in_place, (size_t)n_moved) : PS_OK;
}

ps_status log_file_flush(log_file *f)
{
    return f->n_waiting > 0 ? write_waiting(f) : PS_OK;
}

void log_file_close(log_file *f)
{
    if (f->fd >= 0) close(f->fd);
    free(f->waiting);
    log_file_init(f);
}
