/* disk_pieces.c - transfers cut into pieces: which piece is next, for which file, and its result. */
#include <errno.h>
#include <fcntl.h>

#include "device/disk_impl.h"
#include "device/stall.h"

#define PIECE_BYTES (4 * PS_MIB)
#define STRIPE_BYTES PS_MIB        /* of several files: a payload of some MB reaches all of them */
#define FLYING_BYTES (32 * PS_MIB) /* of a direction and file: more would only delay the next transfer */
#define TRIM_BYTES (32 * PS_MIB)   /* without O_DIRECT: page cache is dropped after this much traffic */

/* ---- choosing the next piece; the lock is held
 * --------------------------------------------------------------------------- */

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

/* The direction with fewer bytes in flight, so that a long queue of one never holds up the other. NULL: nothing to do,
 * or enough is in flight. */
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

/* The place in the files of offset `at`. */
static ps_disk_piece begin_piece(const ps_disk *d, bool is_write, int64_t at)
{
    ps_disk_piece p = {.is_write = is_write, .offset = at};
    if (d->n_files > 1) {
        const int64_t stripe = at / STRIPE_BYTES;
        p.file = (int)(stripe % d->n_files);
        p.offset = stripe / d->n_files * STRIPE_BYTES + at % STRIPE_BYTES;
    }
    return p;
}

/* Ends at the end of a stripe, too. */
static int64_t room_in_piece(const ps_disk *d, const ps_disk_piece *p)
{
    const int64_t room = PIECE_BYTES - p->bytes, end = p->offset + p->bytes;
    if (d->n_files == 1) return room;
    return p->bytes > 0 && end % STRIPE_BYTES == 0 ? 0 : ps_min_i64(room, STRIPE_BYTES - end % STRIPE_BYTES);
}

/* The next piece of the direction's first transfer. */
static void add_part(ps_disk *d, ps_disk_direction *w, ps_disk_piece *p)
{
    ps_disk_transfer *t = w->first;
    const int64_t bytes = ps_min_i64(t->bytes - t->taken_bytes, room_in_piece(d, p));
    p->part[p->n_parts++] = (ps_disk_part){.transfer = t, .buffer = t->buffer + t->taken_bytes, .bytes = bytes};
    p->bytes += bytes;
    if (t->taken_bytes == 0) t->begin_ns = ps_profile_now(d->queue.observed.profile);
    t->taken_bytes += bytes;
    t->n_flying++;
    w->flying_bytes += bytes;
    if (t->taken_bytes == t->bytes) queue_pop(w);
}

/* The first transfer, and those after it in the queue that are adjacent in the file and fit as a whole: so small
 * transfers are sent as one request when they have to wait. `at`: where the piece ends, in the range of offsets. */
static void fill_piece(ps_disk *d, ps_disk_direction *w, ps_disk_piece *out)
{
    int64_t at = w->first->offset + w->first->taken_bytes;
    *out = begin_piece(d, w->first->is_write, at);
    do {
        const int64_t before = out->bytes;
        add_part(d, w, out);
        at += out->bytes - before;
    } while (out->n_parts < PS_DISK_PARTS_MAX && w->first != NULL && w->first->taken_bytes == 0 &&
             w->first->offset == at && w->first->bytes <= room_in_piece(d, out));
}

/* False when nothing is left. */
static bool find_buffers(ps_disk_piece *p)
{
    int64_t begin = 0;
    p->n_buffers = 0;
    for (int i = 0; i < p->n_parts; i++) {
        const ps_disk_part *a = &p->part[i];
        const int64_t done = ps_max_i64(0, p->done_bytes - begin);
        begin += a->bytes;
        if (done >= a->bytes) continue;
        p->buffer[p->n_buffers++] = (struct iovec){.iov_base = a->buffer + done, .iov_len = (size_t)(a->bytes - done)};
        if (p->is_one_by_one) break;
    }
    return p->n_buffers > 0;
}

/* The part that has the next byte. */
static ps_disk_part *part_at(ps_disk_piece *p, int64_t *begin)
{
    ps_disk_part *a = p->part;
    for (*begin = 0; *begin + a->bytes <= p->done_bytes; a++) *begin += a->bytes;
    return a;
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
        fill_piece(d, w, out);
        (void)find_buffers(out);
        d->n_requests++;
        result = PS_DISK_TAKEN;
    }
    pthread_mutex_unlock(&d->lock);
    return result;
}

/* Progress counts in whole pages, because O_DIRECT can only continue at one. Less than a page means the end of the
 * file, or a file that cannot grow. */
bool ps_disk_piece_advance(ps_disk_piece *p, int64_t result)
{
    if (result == -EINTR || result == -EAGAIN) return false;
    ps_stall_progress();
    const int64_t pages_bytes = result / PS_PAGE_BYTES * PS_PAGE_BYTES;
    if (result > 0 && pages_bytes > 0) {
        p->done_bytes += pages_bytes;
    } else if (p->n_buffers > 1) {
        p->is_one_by_one = true;
    } else {
        int64_t begin;
        ps_disk_part *bad = part_at(p, &begin);
        bad->error = result < 0 ? (int)-result : p->is_write ? EIO : PS_DISK_END;
        bad->got_bytes = p->done_bytes - begin;
        p->done_bytes = begin + bad->bytes;
    }
    return !find_buffers(p);
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

/* `offset`: of the part in its file. */
static void finish_part(ps_disk *d, ps_disk_direction *w, const ps_disk_piece *p, const ps_disk_part *a, int64_t offset)
{
    ps_disk_transfer *t = a->transfer;
    t->n_flying--;
    if (a->error != 0 && t->error == 0) {
        t->error = a->error;
        t->error_file = p->file;
        t->error_offset = offset;
        t->error_wanted = a->bytes;
        t->error_got = a->got_bytes;
        /* Its other pieces are not tried. Pieces are taken from the head only, so elsewhere in the queue it cannot
         * be. */
        if (w->first == t) queue_pop(w);
    }
    if (ps_disk_transfer_is_done(t)) ps_disk_complete(d, t);
}

void ps_disk_finish(ps_disk *d, const ps_disk_piece *p)
{
    if (!d->files[p->file].is_direct) trim_cache(d, p);
    ps_disk_direction *w = &d->directions[p->is_write];
    int64_t offset = p->offset;
    pthread_mutex_lock(&d->lock);
    w->flying_bytes -= p->bytes;
    for (int i = 0; i < p->n_parts; offset += p->part[i++].bytes) finish_part(d, w, p, &p->part[i], offset);
    if (!is_empty(d) || d->closing) pthread_cond_broadcast(&d->has_work); /* more may be in flight now */
    pthread_mutex_unlock(&d->lock);
}
