/* disk_pieces.c - transfers cut into pieces: which of them goes next, to which file, and what became of it. */
#include <errno.h>
#include <fcntl.h>

#include "device/disk_impl.h"

#define PIECE_BYTES (4 * PS_MIB)
#define STRIPE_BYTES PS_MIB        /* of several files: a payload of some MB reaches all of them */
#define FLYING_BYTES (32 * PS_MIB) /* of a direction and file: more only makes who comes next wait longer */
#define TRIM_BYTES (32 * PS_MIB)   /* without O_DIRECT: page cache is given back after this much traffic */

/* ---- which goes next; the lock is held --------------------------------------------------------------------------- */

void ps_disk_queue_transfer(ps_disk *d, ps_disk_transfer *t)
{
    ps_disk_direction *w = &d->directions[t->is_write];
    *(w->last != NULL ? &w->last->queue_next : &w->first) = t;
    w->last = t;
    pthread_cond_broadcast(&d->has_work);
}

static void queue_pop(ps_disk_direction *w)
{
    w->first = w->first->queue_next;
    if (w->first == NULL) w->last = NULL;
}

static bool may_fly(const ps_disk *d, const ps_disk_direction *w)
{
    return w->first != NULL && w->flying_bytes < d->n_files * FLYING_BYTES;
}

/* The direction with fewer bytes under way, so that a long queue of one never holds up the other. NULL: nothing to do,
 * or enough is under way. */
static ps_disk_direction *next_direction(ps_disk *d)
{
    ps_disk_direction *r = &d->directions[false], *w = &d->directions[true];
    if (!may_fly(d, r)) return may_fly(d, w) ? w : NULL;
    return may_fly(d, w) && w->flying_bytes < r->flying_bytes ? w : r;
}

static bool is_empty(const ps_disk *d)
{
    return d->directions[false].first == NULL && d->directions[true].first == NULL;
}

/* What is next of t, up to the end of its stripe. */
static ps_disk_piece cut_piece(const ps_disk *d, ps_disk_transfer *t)
{
    ps_disk_piece p = {.transfer = t,
                       .is_write = t->is_write,
                       .buffer = t->buffer + t->taken_bytes,
                       .offset = t->offset + t->taken_bytes,
                       .bytes = ps_min_i64(t->bytes - t->taken_bytes, PIECE_BYTES)};
    if (d->n_files > 1) {
        const int64_t stripe = p.offset / STRIPE_BYTES, at = p.offset % STRIPE_BYTES;
        p.file = (int)(stripe % d->n_files);
        p.offset = stripe / d->n_files * STRIPE_BYTES + at;
        p.bytes = ps_min_i64(p.bytes, STRIPE_BYTES - at);
    }
    return p;
}

/* ---- for the backends' threads ----------------------------------------------------------------------------------- */

int ps_disk_file_count(const ps_disk *d)
{
    return d->n_files;
}

int ps_disk_file_fd(const ps_disk *d, int file)
{
    return d->files[file].fd;
}

ps_disk_take_result ps_disk_take(ps_disk *d, bool block, ps_disk_piece *out)
{
    pthread_mutex_lock(&d->lock);
    ps_disk_direction *w;
    while ((w = next_direction(d)) == NULL && block && !(d->closing && is_empty(d)))
        pthread_cond_wait(&d->has_work, &d->lock);
    ps_disk_take_result result = d->closing && is_empty(d) ? PS_DISK_CLOSED : PS_DISK_NOTHING;
    if (w != NULL) {
        ps_disk_transfer *t = w->first;
        *out = cut_piece(d, t);
        if (t->taken_bytes == 0) t->begin_ns = ps_profile_now(d->profile);
        t->taken_bytes += out->bytes;
        t->n_flying++;
        w->flying_bytes += out->bytes;
        if (t->taken_bytes == t->bytes) queue_pop(w);
        result = PS_DISK_TAKEN;
    }
    pthread_mutex_unlock(&d->lock);
    return result;
}

/* Progress counts in whole pages, because O_DIRECT can only go on from one. Less than a page is a file that ends, or
 * one that cannot grow. */
bool ps_disk_piece_advance(ps_disk_piece *p, int64_t result)
{
    if (result == -EINTR || result == -EAGAIN) return false;
    const int64_t pages_bytes = result / PS_PAGE_BYTES * PS_PAGE_BYTES;
    if (result < 0)
        p->error = (int)-result;
    else if (pages_bytes == 0)
        p->error = p->is_write ? EIO : PS_DISK_END;
    else
        p->done_bytes += pages_bytes;
    return p->error != 0 || p->done_bytes == p->bytes;
}

/* Keep the page cache small where O_DIRECT does not: start writing back what was written, drop what is clean. */
static void trim_cache(ps_disk *d, const ps_disk_piece *p)
{
    const int fd = d->files[p->file].fd;
    if (p->is_write) sync_file_range(fd, p->offset, p->bytes, SYNC_FILE_RANGE_WRITE);
    pthread_mutex_lock(&d->lock);
    int64_t *untrimmed = &d->untrimmed_bytes[p->file];
    *untrimmed += p->bytes;
    const bool is_time = *untrimmed >= TRIM_BYTES;
    if (is_time) *untrimmed = 0;
    pthread_mutex_unlock(&d->lock);
    if (is_time) posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

void ps_disk_finish(ps_disk *d, const ps_disk_piece *p)
{
    if (!d->files[p->file].is_direct) trim_cache(d, p);
    ps_disk_transfer *t = p->transfer;
    ps_disk_direction *w = &d->directions[p->is_write];
    pthread_mutex_lock(&d->lock);
    t->n_flying--;
    w->flying_bytes -= p->bytes;
    if (p->error != 0 && t->error == 0) {
        t->error = p->error;
        t->error_file = p->file;
        t->error_offset = p->offset;
        t->error_wanted = p->bytes;
        t->error_got = p->done_bytes;
        /* The rest of it is not tried. Pieces are taken from the head only, so elsewhere in the queue it cannot be. */
        if (w->first == t) queue_pop(w);
    }
    if (ps_disk_transfer_is_done(t)) ps_disk_settle(d, t);
    if (!is_empty(d) || d->closing) pthread_cond_broadcast(&d->has_work); /* more may fly now */
    pthread_mutex_unlock(&d->lock);
}
