#include "run/snapshot.h"

#include "base/mem.h"
#include "chunk/view.h"
#include "device/blocking.h"
#include "run/moment.h"

bool ps_snapshot_is_under_way(const ps_runner *r)
{
    return r->snapshot.when != NULL;
}

ps_status ps_snapshot_begin(ps_runner *r, const ps_snapshot_sink *sink)
{
    ps_snapshot *s = &r->snapshot;
    PS_ASSERT(s->when == NULL && r->micro == 0);
    const int32_t n_chunks = r->bp->layout->n_chunks;
    PS_TRY(ps_mem_alloc((size_t)n_chunks, sizeof *s->when, &s->when));
    for (int32_t c = 0; c < n_chunks; c++)
        s->when[c] = r->update_pending && r->chunk_pending[c] ? PS_SNAPSHOT_AFTER : PS_SNAPSHOT_BEFORE;
    s->n_left = r->bp->n_ordered;
    for (int32_t c = r->bp->layout->n_mirrored; c < n_chunks; c++) s->n_left += ps_blueprint_owns(r->bp, c);
    s->sink = *sink;
    return PS_OK;
}

/* Of a pinned chunk. Memory that the host cannot touch is read by the queue that computes there, some at a time. */
static ps_status hand_out(const ps_runner *r, int32_t chunk, const ps_piece *piece, ps_list list)
{
    enum { AT_ONCE = 16384 };
    const ps_snapshot_sink *sink = &r->snapshot.sink;
    const ps_tier tier = r->bp->update_tier[chunk];
    ps_queue *q = r->tiers->compute[tier];
    const float *values = ps_state_element(&r->state, list, chunk, piece->chunk_offset);
    if (ps_device_host_can_touch(r->tiers->ram[tier])) {
        PS_TRY(ps_event_wait_as(ps_queue_event(q), PS_BLOCK_READ));
        sink->take(sink->user, list, piece->tensor, piece->tensor_offset, values, piece->n);
        return PS_OK;
    }
    float values_now[AT_ONCE];
    for (int64_t done = 0; done < piece->n; done += AT_ONCE) {
        const int64_t n = ps_min_i64(AT_ONCE, piece->n - done);
        PS_TRY(ps_queue_get(q, values_now, values + done, n * (int64_t)sizeof *values_now));
        sink->take(sink->user, list, piece->tensor, piece->tensor_offset + done, values_now, n);
    }
    return PS_OK;
}

/* Rounded values as floats, which is exact. */
static ps_status take_rounded(const ps_runner *r, const ps_piece *piece, int64_t done, const void *rounded, int64_t n)
{
    enum { AT_ONCE = 8192 };
    _Alignas(64) float values[AT_ONCE];
    const ps_settings *s = r->bp->settings;
    const ps_snapshot_sink *sink = &r->snapshot.sink;
    for (int64_t i = 0; i < n; i += AT_ONCE) {
        const int64_t here = ps_min_i64(AT_ONCE, n - i);
        const ps_cast_args a = {.dst = values,
                                .src = (const char *)rounded + i * (int64_t)ps_dtype_bytes(s->dtype),
                                .n = here,
                                .dst_dtype = PS_DTYPE_F32,
                                .src_dtype = s->dtype};
        PS_TRY(ps_run_cast(ps_backend_host(s->backend), NULL, &a, 0));
        sink->take(sink->user, PS_LIST_MASTER, piece->tensor, piece->tensor_offset + done + i, values, here);
    }
    return PS_OK;
}

static ps_status hand_out_rounded(const ps_runner *r, int32_t chunk, const ps_piece *piece, ps_tier tier)
{
    enum { AT_ONCE_BYTES = 65536 };
    _Alignas(64) char room[AT_ONCE_BYTES];
    const int64_t item = (int64_t)ps_dtype_bytes(r->bp->settings->dtype);
    ps_queue *q = r->tiers->compute[tier];
    const char *values = ps_state_element(&r->state, PS_LIST_PARAM16, chunk, piece->chunk_offset);
    if (ps_device_host_can_touch(r->tiers->ram[tier])) {
        PS_TRY(ps_event_wait_as(ps_queue_event(q), PS_BLOCK_READ));
        return take_rounded(r, piece, 0, values, piece->n);
    }
    for (int64_t done = 0; done < piece->n; done += AT_ONCE_BYTES / item) {
        const int64_t n = ps_min_i64(AT_ONCE_BYTES / item, piece->n - done);
        PS_TRY(ps_queue_get(q, room, values + done * item, n * item));
        PS_TRY(take_rounded(r, piece, done, room, n));
    }
    return PS_OK;
}

static void end_snapshot(ps_runner *r)
{
    r->snapshot.sink.end(r->snapshot.sink.user);
    ps_snapshot_drop(r);
}

static void finish_chunk(ps_runner *r, int32_t chunk)
{
    r->snapshot.when[chunk] = PS_SNAPSHOT_DONE;
    if (--r->snapshot.n_left == 0) end_snapshot(r);
}

ps_status ps_snapshot_visit(ps_runner *r, int32_t chunk, ps_snapshot_when when)
{
    const ps_blueprint *b = r->bp;
    if (r->snapshot.when == NULL || r->snapshot.when[chunk] != when) return PS_OK;
    for (int32_t i = b->pieces.first[chunk]; i < b->pieces.first[chunk + 1]; i++)
        for (ps_list list = PS_LIST_MASTER; list < ps_lists_grad(&b->lists); list++)
            PS_TRY(hand_out(r, chunk, &b->pieces.all[i], list));
    finish_chunk(r, chunk);
    return PS_OK;
}

ps_status ps_snapshot_visit_frozen(ps_runner *r, int32_t chunk, ps_tier tier)
{
    const ps_blueprint *b = r->bp;
    if (r->snapshot.when == NULL || r->snapshot.when[chunk] == PS_SNAPSHOT_DONE) return PS_OK;
    for (int32_t i = b->pieces.first[chunk]; i < b->pieces.first[chunk + 1]; i++)
        PS_TRY(hand_out_rounded(r, chunk, &b->pieces.all[i], tier));
    finish_chunk(r, chunk);
    return PS_OK;
}

/* Of a piece as much as a view shows. */
#define VIEW_ELEMENTS (PS_VIEW_BYTES_MAX / (int64_t)sizeof(float))

static ps_status read_piece(ps_runner *r, int32_t chunk, const ps_piece *piece, ps_list list)
{
    const ps_chunk_id id = ps_store_chunk(r->bp->layout, list, chunk);
    for (int64_t done = 0; done < piece->n; done += VIEW_ELEMENTS) {
        const int64_t n = ps_min_i64(VIEW_ELEMENTS, piece->n - done);
        const int64_t item = r->bp->lists.list[list].item_bytes;
        ps_view v;
        PS_TRY(ps_view_open(r->tiers->store, id, r->bp->update_tier[chunk], (piece->chunk_offset + done) * item,
                            n * item, PS_ACCESS_READ, &v));
        ps_status st = PS_OK;
        if (list == PS_LIST_PARAM16)
            st = take_rounded(r, piece, done, v.bytes, n);
        else
            r->snapshot.sink.take(r->snapshot.sink.user, list, piece->tensor, piece->tensor_offset + done, v.bytes, n);
        const ps_status closed = ps_view_close(r->tiers->store, &v);
        PS_TRY(st);
        PS_TRY(closed);
    }
    return PS_OK;
}

/* Where it lies: there may be no room to bring it anywhere. */
static ps_status read_chunk(ps_runner *r, int32_t chunk)
{
    const ps_blueprint *b = r->bp;
    const bool is_trained = ps_blueprint_trains(b, chunk);
    const ps_list first = is_trained ? PS_LIST_MASTER : PS_LIST_PARAM16;
    const ps_list end = is_trained ? ps_lists_grad(&b->lists) : PS_LIST_MASTER;
    for (ps_list list = first; list < end; list++)
        for (int32_t i = b->pieces.first[chunk]; i < b->pieces.first[chunk + 1]; i++)
            PS_TRY(read_piece(r, chunk, &b->pieces.all[i], list));
    finish_chunk(r, chunk);
    return PS_OK;
}

ps_status ps_snapshot_finish(ps_runner *r)
{
    const ps_blueprint *b = r->bp;
    if (r->snapshot.when == NULL) return PS_OK;
    PS_TRY(ps_runner_flush(r));
    for (int32_t i = 0; r->snapshot.when != NULL && i < b->n_ordered; i++)
        if (r->snapshot.when[b->update_order[i]] != PS_SNAPSHOT_DONE) PS_TRY(read_chunk(r, b->update_order[i]));
    for (int32_t c = b->layout->n_mirrored; r->snapshot.when != NULL && c < b->layout->n_chunks; c++)
        if (ps_blueprint_owns(b, c) && r->snapshot.when[c] != PS_SNAPSHOT_DONE) PS_TRY(read_chunk(r, c));
    if (r->snapshot.when != NULL) end_snapshot(r); /* a rank without chunks */
    return PS_OK;
}

void ps_snapshot_drop(ps_runner *r)
{
    ps_mem_free(r->snapshot.when);
    r->snapshot = (ps_snapshot){0};
}
