/* bounce.c - payloads between the disk and memory that the host cannot touch. They go through pieces of host memory,
 * and several of these are under way:
 *
 *     off the device    to-host    | copy 0 | copy 1 |        | copy 2 |               into a piece when the write that
 *                       disk                |== write 0 ==|== write 1 ==|== write 2    had it before has ended
 *     onto it           disk       |== read 0 ==|== read 1 ==|        |== read 2 ==|   into a piece when the copy that
 *                       to-device               | copy 0 |   | copy 1 |                had it before has ended
 *
 * Each direction has its own pieces, as copies off the device may wait long for what is computed there. Nothing here
 * waits on the host: it learns from the disk's events whether all went well (ps_store_retire). */
#include "chunk/store_impl.h"

#define PIECE_BYTES_MAX (4 * PS_MIB) /* the disk itself takes no more at once */
#define TRIAL_PIECES 8               /* of a payload in a trial, at most */

bool ps_store_bounces(const ps_store *s, ps_tier ram)
{
    return s->d.works_later && ram == PS_TIER_DEVICE;
}

/* Of lists: those apart may change their size, and what is taken at first stays. */
static int64_t largest_payload(const ps_store *s)
{
    int64_t most = 0;
    for (ps_chunk_id id = 0; id < s->n_ids - s->d.lists.n_apart; id++) most = ps_max_i64(most, s->chunks[id].bytes);
    return most;
}

/* No more than the largest payload, nor than there is: with a page it goes slower, but goes. */
ps_status ps_store_take_bounce(ps_store *s)
{
    ps_device *host = s->d.ram[PS_TIER_HOST];
    ps_bounce *b = &s->bounce;
    const int64_t free_bytes = ps_device_free_bytes(host), least = ps_device_page_bytes(host);
    if (s->d.disk == NULL || !ps_store_bounces(s, PS_TIER_DEVICE)) return PS_OK;
    if (free_bytes < least)
        return PS_FAIL(PS_EBUDGET,
                       "host: chunks go to and from the disk through %lld bytes of host memory at least, of which %lld "
                       "are free: raise memory.host by %lld",
                       (long long)least, (long long)free_bytes, (long long)(least - free_bytes));
    const int64_t bytes = ps_min_i64(ps_min_i64(largest_payload(s), PS_BOUNCES * PIECE_BYTES_MAX), free_bytes);
    b->n = (int)ps_min_i64(PS_BOUNCES, bytes / PS_PAGE_BYTES);
    b->piece_bytes = bytes / b->n / PS_PAGE_BYTES * PS_PAGE_BYTES;
    PS_TRY(ps_device_alloc(host, b->n * b->piece_bytes, (void *)&b->memory));
    for (int i = 0; i < b->n; i++) b->after[i] = ps_device_gave_after(host);
    s->other_bytes[PS_TIER_HOST] = ps_device_get_stats(host).used_bytes;
    return PS_OK;
}

void ps_store_give_bounce(ps_store *s)
{
    const ps_bounce *b = &s->bounce;
    if (b->memory != NULL) ps_device_free(s->d.ram[PS_TIER_HOST], b->memory, b->n * b->piece_bytes, NULL);
}

/* ---- through the pieces ---- */

/* The next piece of a direction: of one alone both have it. */
static int next_piece(ps_bounce *b, bool is_write)
{
    const int n_out = b->n / 2, first = is_write ? 0 : n_out, n = !is_write ? b->n - n_out : n_out > 0 ? n_out : 1;
    return first + (int)(b->n_used[is_write]++ % (uint64_t)n);
}

/* Bytes [at, at + n) of the payload to their place in the file. */
static ps_status write_piece(ps_store *s, ps_chunk_id id, int64_t at, int64_t n, ps_event *done)
{
    const chunk *c = &s->chunks[id];
    ps_queue *q = s->copies[PS_LINK_DEVICE_TO_HOST];
    ps_bounce *b = &s->bounce;
    const int i = next_piece(b, true);
    char *piece = b->memory + i * b->piece_bytes;
    ps_events copied = {.n = 0};
    PS_TRY(ps_queue_outlast_at(q, b->after[i], PS_WAIT_BOUNCE));
    PS_TRY(ps_queue_copy(q, piece, (const char *)c->payload[PS_TIER_DEVICE] + at, n));
    b->after[i] = ps_queue_event(q);
    ps_store_note_item(s, id, PS_TIER_DEVICE, b->after[i], false);
    ps_events_add_at(&copied, b->after[i], PS_WAIT_BOUNCED);
    PS_TRY(ps_disk_write(s->d.disk, c->disk_offset + at, piece, n, &copied, done));
    b->after[i] = *done;
    return PS_OK;
}

static ps_status read_piece(ps_store *s, ps_chunk_id id, int64_t at, int64_t n, ps_event *done)
{
    const chunk *c = &s->chunks[id];
    ps_queue *q = s->copies[PS_LINK_HOST_TO_DEVICE];
    ps_bounce *b = &s->bounce;
    const int i = next_piece(b, false);
    char *piece = b->memory + i * b->piece_bytes;
    ps_events unused = {.n = 0};
    ps_events_add_at(&unused, b->after[i], PS_WAIT_BOUNCE);
    PS_TRY(ps_disk_read(s->d.disk, c->disk_offset + at, piece, n, &unused, done));
    b->after[i] = *done;
    /* What could not be read is copied all the same: ps_store_retire gives the payload up. */
    PS_TRY(ps_queue_outlast_at(q, *done, PS_WAIT_BOUNCED));
    PS_TRY(ps_queue_copy(q, (char *)c->payload[PS_TIER_DEVICE] + at, piece, n));
    b->after[i] = ps_queue_event(q);
    ps_store_note_item(s, id, PS_TIER_DEVICE, b->after[i], true);
    return PS_OK;
}

/* What goes at once. In a trial that nobody looks at, pieces of a large payload are larger than there is memory for:
 * time is as good by them, and small ones would be most of what the trial does. */
static int64_t bytes_at_once(const ps_store *s, int64_t bytes)
{
    const int64_t least = s->bounce.piece_bytes;
    if (!s->is_timed || ps_device_order(s->d.ram[PS_TIER_DEVICE]) != NULL) return least;
    return ps_max_i64(least, ps_round_up(ps_ceil_div(bytes, TRIAL_PIECES), PS_PAGE_BYTES));
}

ps_status ps_store_bounce(ps_store *s, ps_chunk_id id, bool is_write, ps_disk_parts *parts)
{
    const int64_t bytes = s->chunks[id].bytes, at_once = bytes_at_once(s, bytes);
    ps_queue *q = s->copies[is_write ? PS_LINK_DEVICE_TO_HOST : PS_LINK_HOST_TO_DEVICE];
    ps_status st = is_write ? ps_store_await_whole(s, id, PS_TIER_DEVICE, q, PS_WAIT_WRITE_BACK)
                            : ps_store_await_unused(s, id, PS_TIER_DEVICE, q, PS_WAIT_ROOM);
    for (int64_t at = 0; st == PS_OK && at < bytes; at += at_once) {
        const int64_t n = ps_min_i64(at_once, bytes - at);
        ps_event done = {NULL, 0};
        st = is_write ? write_piece(s, id, at, n, &done) : read_piece(s, id, at, n, &done);
        ps_disk_parts_add(parts, done);
    }
    return st;
}
