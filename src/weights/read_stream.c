#include "weights/read_stream.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/base.h"
#include "base/mem.h"
#include "device/worker.h"

/* Read-ahead requested from the system while the thread waits for room. */
#define AHEAD_BYTES (8 * PS_MIB)

struct ps_read_stream {
    const ps_read_range *ranges; /* [n] */
    int n;
    void *block;
    ps_piece_ring *ring;
    pthread_t thread;
    atomic_bool stop;
    /* written by the reading thread; read by the consumer after the ring is closed */
    ps_status status;
    char message[1024];
    /* of the consumer */
    ps_ring_piece piece;
    int64_t piece_used;
};

static ps_status read_range(ps_read_stream *s, int i)
{
    const ps_read_range *r = &s->ranges[i];
    ps_file_read_ahead(r->file, r->offset, ps_min_i64(AHEAD_BYTES, r->n_bytes));
    for (int64_t done = 0, n; done < r->n_bytes && !atomic_load(&s->stop); done += n) {
        void *room = ps_piece_ring_reserve(s->ring, r->n_bytes - done, &n);
        PS_TRY(ps_file_read(r->file, r->offset + done, room, n));
        ps_piece_ring_publish(s->ring, i, r->offset + done, n);
        const int64_t ahead = done + AHEAD_BYTES;
        if (ahead < r->n_bytes) ps_file_read_ahead(r->file, r->offset + ahead, ps_min_i64(n, r->n_bytes - ahead));
    }
    return PS_OK;
}

static void *reader_main(void *arg)
{
    ps_read_stream *s = arg;
    for (int i = 0; i < s->n && s->status == PS_OK && !atomic_load(&s->stop); i++) s->status = read_range(s, i);
    if (s->status != PS_OK) strncpy(s->message, ps_last_error(), sizeof s->message - 1);
    ps_piece_ring_close(s->ring);
    return NULL;
}

static void free_stream(ps_read_stream *s)
{
    ps_piece_ring_destroy(s->ring);
    ps_mem_free(s->block);
    ps_mem_free(s);
}

ps_status ps_read_stream_open(const ps_read_range *ranges, int n, ps_read_stream **out)
{
    *out = NULL;
    ps_read_stream *s = NULL;
    ps_status st;
    PS_TRY(ps_mem_alloc(1, sizeof *s, &s));
    s->ranges = ranges;
    s->n = n;
    PS_TRY_GOTO(ps_mem_alloc((size_t)PS_READ_STREAM_BYTES, 1, &s->block));
    PS_TRY_GOTO(ps_piece_ring_create(s->block, PS_READ_STREAM_BYTES, &s->ring));
    PS_TRY_GOTO(ps_worker_start("ps-reader", reader_main, s, &s->thread));
    *out = s;
    return PS_OK;
out:
    free_stream(s);
    return st;
}

bool ps_read_stream_take(ps_read_stream *s, ps_ring_piece *out)
{
    if (!ps_piece_ring_take(s->ring, &s->piece)) return false;
    s->piece_used = s->piece.n_bytes;
    *out = s->piece;
    return true;
}

static ps_status failure(const ps_read_stream *s)
{
    return s->status != PS_OK ? PS_FAIL(s->status, "%s", s->message) : PS_OK;
}

ps_status ps_read_stream_read(ps_read_stream *s, void *dst, int64_t n_bytes)
{
    for (int64_t done = 0, n; done < n_bytes; done += n) {
        if (s->piece_used == s->piece.n_bytes) {
            const bool there = ps_piece_ring_take(s->ring, &s->piece);
            if (!there) PS_TRY(failure(s));
            PS_ASSERT(there); /* the consumer never reads more than the ranges have */
            s->piece_used = 0;
        }
        n = ps_min_i64(n_bytes - done, s->piece.n_bytes - s->piece_used);
        memcpy((char *)dst + done, (const char *)s->piece.data + s->piece_used, (size_t)n);
        s->piece_used += n;
    }
    return PS_OK;
}

ps_status ps_read_stream_close(ps_read_stream *s)
{
    ps_ring_piece p;
    if (s == NULL) return PS_OK;
    atomic_store(&s->stop, true);
    while (ps_piece_ring_take(s->ring, &p)) continue; /* the thread may be waiting for room */
    pthread_join(s->thread, NULL);
    const ps_status st = failure(s);
    free_stream(s);
    return st;
}
