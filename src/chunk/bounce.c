/* bounce.c - transfers between the disk and memory that the host cannot access. They use bounce buffers in host memory,
 * several at a time:
 *
 *     from the device   to-host    | copy 0 | copy 1 |        | copy 2 |               into a buffer when its earlier
 *                       disk                |== write 0 ==|== write 1 ==|== write 2    write has ended
 *     to the device     disk       |== read 0 ==|== read 1 ==|        |== read 2 ==|   into a buffer when its earlier
 *                       to-device               | copy 0 |   | copy 1 |                copy has ended
 *
 * Each direction has separate buffers, as copies from the device may wait long for computing. Nothing here waits on the
 * host: the disk's events report success or failure (ps_movement_retire). */
#include "base/bytes.h"
#include "chunk/movement.h"

#define PIECE_BYTES_MAX (4 * PS_MIB) /* the largest request of the disk */
#define TRIAL_PIECES 8               /* of a payload in a trial, at most */

bool ps_movement_bounces(const ps_movement *m, ps_tier ram)
{
    return m->is_asynchronous && ram == PS_TIER_DEVICE;
}

/* Over lists: standalone chunks may change their size, while the buffers allocated first stay. */
static int64_t largest_payload(const ps_movement *m)
{
    int64_t most = 0;
    for (ps_chunk_id id = 0; id < m->r->n_ids - m->r->lists.n_standalone; id++)
        most = ps_max_i64(most, m->r->chunks[id].bytes);
    return most;
}

/* No larger than the largest payload or the free memory: a single page suffices, slowly. */
ps_status ps_bounce_init(ps_movement *m)
{
    ps_device *host = m->r->ram[PS_TIER_HOST];
    ps_bounce *b = &m->bounce;
    const int64_t free_bytes = ps_device_free_bytes(host), least = ps_device_page_bytes(host);
    char text[3][PS_BYTES_TEXT_MAX];
    if (m->r->disk == NULL || !ps_movement_bounces(m, PS_TIER_DEVICE)) return PS_OK;
    if (free_bytes < least)
        return PS_FAIL(PS_EBUDGET,
                       "chunks go to and from the disk through %s of host memory at least, of which %s are free: raise "
                       "memory.host by %s",
                       ps_bytes_format(least, text[0]), ps_bytes_format(free_bytes, text[1]),
                       ps_bytes_round_up(least - free_bytes, text[2]));
    const int64_t bytes = ps_min_i64(ps_min_i64(largest_payload(m), PS_BOUNCES * PIECE_BYTES_MAX), free_bytes);
    b->n = (int)ps_min_i64(PS_BOUNCES, bytes / PS_PAGE_BYTES);
    b->piece_bytes = bytes / b->n / PS_PAGE_BYTES * PS_PAGE_BYTES;
    PS_TRY(ps_device_alloc(host, b->n * b->piece_bytes, (void *)&b->memory));
    for (int i = 0; i < b->n; i++) b->after[i] = ps_device_gave_after(host);
    m->r->use[PS_TIER_HOST].other_bytes = ps_device_get_stats(host).used_bytes;
    return PS_OK;
}

void ps_bounce_deinit(ps_movement *m)
{
    const ps_bounce *b = &m->bounce;
    if (b->memory != NULL) ps_device_free(m->r->ram[PS_TIER_HOST], b->memory, b->n * b->piece_bytes, NULL);
}

/* ---- through the pieces ---- */

/* The next buffer of a direction; if there is only one, both directions use it. */
static int next_piece(ps_bounce *b, bool is_write)
{
    const int n_out = b->n / 2, first = is_write ? 0 : n_out, n = !is_write ? b->n - n_out : n_out > 0 ? n_out : 1;
    return first + (int)(b->n_used[is_write]++ % (uint64_t)n);
}

/* Transfer bytes [at, at + n) of the payload to their place in the file. */
static ps_status write_piece(ps_movement *m, ps_chunk_id id, int64_t at, int64_t n, ps_event *done)
{
    const chunk *c = &m->r->chunks[id];
    ps_queue *q = m->copies[PS_LINK_DEVICE_TO_HOST];
    ps_bounce *b = &m->bounce;
    const int i = next_piece(b, true);
    char *piece = b->memory + i * b->piece_bytes;
    ps_events copied = {.n = 0};
    PS_TRY(ps_queue_outlast_at(q, b->after[i], PS_WAIT_BOUNCE));
    PS_TRY(ps_queue_copy(q, piece, (const char *)c->payload[PS_TIER_DEVICE] + at, n));
    b->after[i] = ps_queue_event(q);
    ps_residency_note_item(m->r, id, PS_TIER_DEVICE, b->after[i], false);
    ps_events_add_at(&copied, b->after[i], PS_WAIT_BOUNCED);
    PS_TRY(ps_disk_write(m->r->disk, c->disk_offset + at, piece, n, &copied, done));
    b->after[i] = *done;
    return PS_OK;
}

static ps_status read_piece(ps_movement *m, ps_chunk_id id, int64_t at, int64_t n, ps_event *done)
{
    const chunk *c = &m->r->chunks[id];
    ps_queue *q = m->copies[PS_LINK_HOST_TO_DEVICE];
    ps_bounce *b = &m->bounce;
    const int i = next_piece(b, false);
    char *piece = b->memory + i * b->piece_bytes;
    ps_events unused = {.n = 0};
    ps_events_add_at(&unused, b->after[i], PS_WAIT_BOUNCE);
    PS_TRY(ps_disk_read(m->r->disk, c->disk_offset + at, piece, n, &unused, done));
    b->after[i] = *done;
    /* Bytes that could not be read are copied too: ps_movement_retire drops the payload. */
    PS_TRY(ps_queue_outlast_at(q, *done, PS_WAIT_BOUNCED));
    PS_TRY(ps_queue_copy(q, (char *)c->payload[PS_TIER_DEVICE] + at, piece, n));
    b->after[i] = ps_queue_event(q);
    ps_residency_note_item(m->r, id, PS_TIER_DEVICE, b->after[i], true);
    return PS_OK;
}

/* Size of a request. In a trial without observers, requests of a large payload are larger than the buffers: the times
 * are as good, and small requests would dominate the trial's duration. */
static int64_t bytes_at_once(const ps_movement *m, int64_t bytes)
{
    const int64_t least = m->bounce.piece_bytes;
    if (!m->is_timed || ps_device_order(m->r->ram[PS_TIER_DEVICE]) != NULL) return least;
    return ps_max_i64(least, ps_round_up(ps_ceil_div(bytes, TRIAL_PIECES), PS_PAGE_BYTES));
}

ps_status ps_movement_bounce(ps_movement *m, ps_chunk_id id, bool is_write, ps_disk_parts *parts)
{
    const int64_t bytes = m->r->chunks[id].bytes, at_once = bytes_at_once(m, bytes);
    ps_queue *q = m->copies[is_write ? PS_LINK_DEVICE_TO_HOST : PS_LINK_HOST_TO_DEVICE];
    ps_status st = is_write ? ps_residency_await_whole(m->r, id, PS_TIER_DEVICE, q, PS_WAIT_WRITE_BACK)
                            : ps_residency_await_unused(m->r, id, PS_TIER_DEVICE, q, PS_WAIT_ROOM);
    for (int64_t at = 0; st == PS_OK && at < bytes; at += at_once) {
        const int64_t n = ps_min_i64(at_once, bytes - at);
        ps_event done = {NULL, 0};
        st = is_write ? write_piece(m, id, at, n, &done) : read_piece(m, id, at, n, &done);
        ps_disk_parts_add(parts, done);
    }
    return st;
}
