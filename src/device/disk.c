/* disk.c - transfers of the disk tier: queued when the events that they come after are done, cut into pieces for a
 * backend's threads, and waited for. */
#include "base/bytes.h"
#include "base/fault.h"
#include "base/mem.h"
#include "device/disk_impl.h"
#include "device/sim_time_impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- transfers; the lock is held --------------------------------------------------------------------------------- */

/* A transfer that is not found has succeeded. */
static ps_disk_transfer *find_transfer(const ps_disk *d, ps_ticket ticket)
{
    PS_ASSERT(ticket <= d->queue.issued);
    for (ps_disk_transfer *t = d->first; t != NULL && t->ticket <= ticket; t = t->next)
        if (t->ticket == ticket) return t;
    return NULL;
}

static void forget_transfer(ps_disk *d, ps_disk_transfer *t)
{
    ps_disk_transfer *before = NULL;
    for (ps_disk_transfer *i = d->first; i != t; i = i->next) before = i;
    if (before != NULL)
        before->next = t->next;
    else
        d->first = t->next;
    if (d->last == t) d->last = before;
    ps_mem_free(t);
}

static void announce_done(const ps_disk *d, const ps_disk_transfer *t)
{
    const int64_t now_ns = ps_profile_now(d->queue.observed.profile);
    ps_announce(&d->queue.observed, &(ps_notice){.kind = PS_NOTICE_DONE,
                                                 .ticket = t->ticket,
                                                 .item = PS_QUEUE_ITEM_COPY,
                                                 .begin_ns = t->taken_bytes > 0 ? t->begin_ns : now_ns,
                                                 .end_ns = now_ns,
                                                 .link = d->links[t->is_write]});
}

void ps_disk_complete(ps_disk *d, ps_disk_transfer *t)
{
    if (d->ops != NULL) announce_done(d, t); /* for a simulated disk the observer computes the time */
    if (t->error == 0) {
        _Atomic int64_t *total = t->is_write ? &d->write_bytes : &d->read_bytes;
        *total += t->bytes;
        forget_transfer(d, t);
    }
    pthread_cond_broadcast(&d->has_progress);
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static const char *path_of(const ps_disk *d, int file)
{
    return file < d->n_files ? d->files[file].path : "(simulated disk)";
}

static ps_status report_failure(const ps_disk *d, const ps_disk_transfer *t)
{
    if (t->error == 0) return PS_OK;
    if (t->cause != PS_OK) return PS_FAIL(t->cause, "%s", t->why);
    const bool is_full = t->error == ENOSPC || t->error == EDQUOT;
    return PS_FAIL(
        PS_EIO, "%s: %s at offset %lld: wanted %lld bytes, got %lld: %s%s", path_of(d, t->error_file),
        t->is_write ? "write" : "read", (long long)t->error_offset, (long long)t->error_wanted, (long long)t->error_got,
        t->error == PS_DISK_END ? "the file ends there" : strerror(t->error),
        is_full ? "; free some space there, or choose another folder (memory.disk_path), and continue from the last "
                  "checkpoint"
                : "");
}

static ps_status wait_for_transfer(ps_queue *q, ps_ticket ticket, bool tells)
{
    ps_disk *d = (ps_disk *)q;
    ps_disk_transfer failed = {0};
    pthread_mutex_lock(&d->lock);
    for (ps_disk_transfer *t; (t = find_transfer(d, ticket)) != NULL;) {
        if (ps_disk_transfer_is_done(t)) {
            failed = *t;
            if (tells) forget_transfer(d, t);
            break;
        }
        pthread_cond_wait(&d->has_progress, &d->lock);
    }
    pthread_mutex_unlock(&d->lock);
    return report_failure(d, &failed);
}

static bool transfer_is_over(ps_queue *q, ps_ticket ticket)
{
    ps_disk *d = (ps_disk *)q;
    pthread_mutex_lock(&d->lock);
    const ps_disk_transfer *t = find_transfer(d, ticket);
    const bool done = t == NULL || ps_disk_transfer_is_done(t);
    pthread_mutex_unlock(&d->lock);
    return done;
}

static ps_status refuse_item(ps_queue *q, const ps_queue_item *item, ps_ticket *out)
{
    (void)item, (void)out;
    return PS_FAIL(PS_EINVAL, "%s: the disk takes transfers only", q->name);
}

static void describe(ps_queue *q, ps_ticket ticket, char *text, size_t bytes)
{
    ps_disk *d = (ps_disk *)q;
    char size[PS_BYTES_TEXT_MAX];
    if (pthread_mutex_trylock(&d->lock) != 0) return;
    const ps_disk_transfer *t = ticket <= d->queue.issued ? find_transfer(d, ticket) : NULL;
    if (t != NULL)
        snprintf(text, bytes, "%s of %s at offset %lld of %s, %s", t->is_write ? "write" : "read",
                 ps_bytes_format(t->bytes, size), (long long)t->offset, path_of(d, 0),
                 !t->is_admitted                           ? "which waits for events of other queues"
                 : t->n_flying == 0 && t->taken_bytes == 0 ? "not begun"
                                                           : "begun");
    pthread_mutex_unlock(&d->lock);
}

static const ps_queue_ops disk_queue_ops = {
    .submit = refuse_item, .wait = wait_for_transfer, .is_done = transfer_is_over, .describe = describe};

/* ---- for the caller ---------------------------------------------------------------------------------------------- */

static void number(ps_disk *d, ps_disk_transfer *t)
{
    pthread_mutex_lock(&d->lock);
    t->ticket = ++d->queue.issued;
    *(d->last != NULL ? &d->last->next : &d->first) = t;
    d->last = t;
    pthread_mutex_unlock(&d->lock);
}

void ps_disk_admit(ps_disk *d, ps_disk_transfer *t, ps_status st)
{
    pthread_mutex_lock(&d->lock);
    t->is_admitted = true;
    if (st != PS_OK) {
        t->error = ECANCELED;
        t->cause = st;
        strncpy(t->why, ps_last_error(), sizeof t->why - 1);
    }
    if (ps_disk_transfer_is_done(t)) {
        ps_disk_complete(d, t);
    } else {
        ps_disk_queue_transfer(d, t);
    }
    pthread_mutex_unlock(&d->lock);
    if (d->ops != NULL && d->ops->wake != NULL) d->ops->wake(d->backend);
}

static void announce_issued(const ps_disk *d, bool is_write, int64_t offset, const void *buffer, int64_t bytes,
                            const ps_events *after)
{
    const void *place = (const void *)(uintptr_t)(PS_ORDER_IN_FILE | (uint64_t)offset);
    const ps_use uses[] = {{buffer, bytes, !is_write, NULL}, {place, bytes, is_write, NULL}};
    ps_queue_announce_issued(&d->queue, (ps_notice){.after = after,
                                                    .name = is_write ? "write" : "read",
                                                    .uses = uses,
                                                    .n_uses = 2,
                                                    .bytes = bytes,
                                                    .lane = d->lanes[is_write]});
}

static ps_status tell_failed_copies(const ps_events *after)
{
    for (int i = 0; after != NULL && i < after->n; i++) PS_TRY(ps_event_report_failed_copy(after->event[i]));
    return PS_OK;
}

static ps_status issue(ps_disk *d, bool is_write, int64_t offset, const void *buffer, int64_t bytes,
                       const ps_events *after, ps_event *out)
{
    PS_ASSERT(offset >= 0 && offset % PS_PAGE_BYTES == 0 && bytes > 0 && bytes % PS_PAGE_BYTES == 0);
    PS_ASSERT((int64_t)(uintptr_t)buffer % PS_PAGE_BYTES == 0);
    ps_disk_transfer *t = NULL;
    *out = (ps_event){NULL, 0};
    PS_TRY(tell_failed_copies(after));
    PS_TRY(ps_mem_alloc(1, sizeof *t, &t));
    t->is_write = is_write;
    t->buffer = (char *)(uintptr_t)buffer; /* only read, for a write */
    t->offset = offset;
    t->bytes = bytes;
    if (ps_fault_hit(is_write ? PS_FAULT_WRITE : PS_FAULT_READ)) {
        t->error = EIO;
        t->error_offset = offset;
        t->error_wanted = bytes;
    } else if (d->ops == NULL) {
        t->taken_bytes = bytes;
    }
    number(d, t);
    ps_status st = PS_OK;
    if (d->ops != NULL)
        st = ps_disk_gate_pass(&d->gates[is_write], t, after);
    else
        ps_disk_admit(d, t, PS_OK); /* no event to wait for */
    if (st != PS_OK) {
        pthread_mutex_lock(&d->lock);
        forget_transfer(d, t);
        pthread_mutex_unlock(&d->lock);
        return st;
    }
    *out = ps_queue_event(&d->queue); /* only this thread issues */
    announce_issued(d, is_write, offset, buffer, bytes, after);
    return PS_OK;
}

ps_status ps_disk_read(ps_disk *d, int64_t offset, void *buffer, int64_t bytes, const ps_events *after, ps_event *out)
{
    return issue(d, false, offset, buffer, bytes, after, out);
}

ps_status ps_disk_write(ps_disk *d, int64_t offset, const void *buffer, int64_t bytes, const ps_events *after,
                        ps_event *out)
{
    return issue(d, true, offset, buffer, bytes, after, out);
}

/* ---- statistics -------------------------------------------------------------------------------------------------- */

void ps_disk_set_profile(ps_disk *d, ps_profile *p, int read_link, int write_link)
{
    pthread_mutex_lock(&d->lock);
    ps_queue_set_profile(&d->queue, p, read_link);
    d->links[0] = (uint8_t)read_link;
    d->links[1] = (uint8_t)write_link;
    pthread_mutex_unlock(&d->lock);
}

ps_status ps_sim_disk_join(ps_disk *d, ps_sim_time *t, int read_lane, int write_lane)
{
    PS_ASSERT(d->ops == NULL && d->queue.issued == 0);
    d->lanes[0] = read_lane;
    d->lanes[1] = write_lane;
    return ps_sim_clock_create(t, true, &d->queue.observed);
}

void ps_disk_set_order(ps_disk *d, ps_order *o)
{
    ps_queue_set_order(&d->queue, o);
}

ps_disk_stats ps_disk_get_stats(const ps_disk *d)
{
    ps_disk_stats s = {.read_bytes = d->read_bytes,
                       .write_bytes = d->write_bytes,
                       .backend = d->ops != NULL ? d->ops->name : "sim",
                       .n_files = d->n_files,
                       .n_requests = d->n_requests,
                       .direct = d->n_files > 0};
    for (int i = 0; i < d->n_files; i++) s.direct = s.direct && d->files[i].is_direct;
    if (d->ops != NULL) d->ops->tell(d->backend, &s);
    return s;
}

const char *ps_disk_path(const ps_disk *d)
{
    return path_of(d, 0);
}

/* ---- open and close ---------------------------------------------------------------------------------------------- */

static ps_status start_backend(ps_disk *d, ps_disk_backend backend, int queue_depth)
{
    if (backend != PS_DISK_THREADS) {
        d->ops = &ps_disk_uring_ops;
        const ps_status st = d->ops->start(d, queue_depth, &d->backend);
        if (st != PS_ENOSYS || backend == PS_DISK_URING) return st;
    }
    d->ops = &ps_disk_threads_ops;
    return d->ops->start(d, queue_depth, &d->backend);
}

static void release(ps_disk *d)
{
    ps_sim_clock_destroy(d->queue.observed.clock);
    for (size_t i = 0; i < PS_ARRAY_LEN(d->gates); i++) ps_disk_gate_deinit(&d->gates[i]);
    for (int i = 0; i < d->n_files; i++) ps_disk_file_close(&d->files[i]);
    pthread_cond_destroy(&d->has_progress);
    pthread_cond_destroy(&d->has_work);
    pthread_mutex_destroy(&d->lock);
    ps_mem_free(d);
}

static ps_status open_files(ps_disk *d, const char *text, unsigned avoid)
{
    ps_disk_folders folders;
    PS_TRY(ps_disk_folders_read(text, &folders));
    for (; d->n_files < folders.n; d->n_files++)
        PS_TRY(ps_disk_file_open(folders.name[d->n_files], avoid, &d->files[d->n_files]));
    return PS_OK;
}

ps_status ps_disk_open_avoiding(const char *folders, ps_disk_backend backend, int queue_depth, unsigned avoid,
                                ps_disk **out)
{
    ps_disk *d = NULL;
    *out = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *d, &d));
    d->queue = (ps_queue){.ops = &disk_queue_ops, .name = "disk", .block = PS_BLOCK_DISK, .in_any_order = true};
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->has_work, NULL);
    pthread_cond_init(&d->has_progress, NULL);
    for (size_t i = 0; i < PS_ARRAY_LEN(d->gates); i++) ps_disk_gate_init(&d->gates[i], d);
    ps_status st = PS_OK;
    if (backend != PS_DISK_SIM) {
        PS_TRY_GOTO(open_files(d, folders, avoid));
        PS_TRY_GOTO(start_backend(d, backend, queue_depth));
    }
    *out = d;
    return PS_OK;
out:
    release(d);
    return st;
}

ps_status ps_disk_open(const char *folders, ps_disk_backend backend, int queue_depth, ps_disk **out)
{
    return ps_disk_open_avoiding(folders, backend, queue_depth, 0, out);
}

void ps_disk_close(ps_disk *d)
{
    if (d == NULL) return;
    ps_disk_set_order(d, NULL); /* it will be idle */
    for (size_t i = 0; i < PS_ARRAY_LEN(d->gates); i++) ps_disk_gate_drain(&d->gates[i]);
    if (d->ops != NULL) {
        pthread_mutex_lock(&d->lock);
        d->closing = true;
        pthread_cond_broadcast(&d->has_work);
        pthread_mutex_unlock(&d->lock);
        if (d->ops->wake != NULL) d->ops->wake(d->backend);
        d->ops->stop(d->backend);
    }
    while (d->first != NULL) { /* failures that were never waited for */
        ps_disk_transfer *t = d->first;
        d->first = t->next;
        ps_mem_free(t);
    }
    release(d);
}
