#include "weights/piece_ring.h"

#include <pthread.h>
#include <string.h>

#include "base/base.h"
#include "base/mem.h"

#define RING_UNIT ((int64_t)64)
/* A shorter piece is not worth a separate system call: the end of the block is skipped instead. */
#define PIECE_BYTES_MIN ((int64_t)4096)
#define PIECE_BYTES_MAX ((int64_t)1 << 20)

/* Precedes the data; n_bytes < 0: the rest of the block is skipped. */
typedef struct ring_record {
    int64_t index, offset, n_bytes;
} ring_record;

struct ps_piece_ring {
    char *block;
    int64_t bytes, piece_bytes_max;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* bytes put and released since the ring was last empty: head - tail are in use. Under the lock */
    int64_t head, tail;
    int64_t taken_bytes; /* of the last piece, released by the next take */
    bool closed;
};

ps_status ps_piece_ring_create(void *block, int64_t bytes, ps_piece_ring **out)
{
    *out = NULL;
    PS_ASSERT(bytes >= PS_PIECE_RING_BYTES_MIN);
    ps_piece_ring *r = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *r, &r));
    r->block = block;
    r->bytes = bytes / RING_UNIT * RING_UNIT;
    /* a quarter, so that both threads can work */
    r->piece_bytes_max = ps_min_i64(PIECE_BYTES_MAX, (r->bytes / 4 - RING_UNIT) / RING_UNIT * RING_UNIT);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    *out = r;
    return PS_OK;
}

void ps_piece_ring_destroy(ps_piece_ring *r)
{
    if (r == NULL) return;
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    ps_mem_free(r);
}

/* Only the producer changes head, so it may read head without the lock. */
static char *wait_for_room(ps_piece_ring *r, int64_t bytes)
{
    pthread_mutex_lock(&r->lock);
    while (r->bytes - (r->head - r->tail) < bytes) pthread_cond_wait(&r->changed, &r->lock);
    pthread_mutex_unlock(&r->lock);
    return r->block + r->head % r->bytes;
}

static void publish(ps_piece_ring *r, const ring_record *record, int64_t bytes)
{
    memcpy(r->block + r->head % r->bytes, record, sizeof *record);
    pthread_mutex_lock(&r->lock);
    r->head += bytes;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

/* The ring is empty: begin at the front again, which is in the cache. A large block is for the worst case; cycling
 * through all of it would touch memory needlessly. */
static void rewind_if_empty(ps_piece_ring *r)
{
    pthread_mutex_lock(&r->lock);
    if (r->head == r->tail) r->head = r->tail = 0;
    pthread_mutex_unlock(&r->lock);
}

void *ps_piece_ring_reserve(ps_piece_ring *r, int64_t wanted_bytes, int64_t *n_bytes)
{
    rewind_if_empty(r);
    const int64_t wanted = ps_min_i64(wanted_bytes, r->piece_bytes_max);
    int64_t to_end = r->bytes - r->head % r->bytes;
    if (to_end < RING_UNIT + ps_min_i64(wanted, PIECE_BYTES_MIN)) {
        (void)wait_for_room(r, to_end);
        publish(r, &(ring_record){.n_bytes = -1}, to_end);
        to_end = r->bytes;
    }
    *n_bytes = ps_min_i64(wanted, to_end - RING_UNIT);
    return wait_for_room(r, RING_UNIT + ps_round_up(*n_bytes, RING_UNIT)) + RING_UNIT;
}

void ps_piece_ring_publish(ps_piece_ring *r, int32_t index, int64_t offset, int64_t n_bytes)
{
    const ring_record record = {.index = index, .offset = offset, .n_bytes = n_bytes};
    publish(r, &record, RING_UNIT + ps_round_up(n_bytes, RING_UNIT));
}

void ps_piece_ring_put(ps_piece_ring *r, const ps_ring_piece *piece)
{
    for (int64_t done = 0, n; done < piece->n_bytes; done += n) {
        void *room = ps_piece_ring_reserve(r, piece->n_bytes - done, &n);
        memcpy(room, (const char *)piece->data + done, (size_t)n);
        ps_piece_ring_publish(r, piece->index, piece->offset + done, n);
    }
}

void ps_piece_ring_close(ps_piece_ring *r)
{
    pthread_mutex_lock(&r->lock);
    r->closed = true;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

/* Release the last piece, and wait for the next record. */
static bool next_record(ps_piece_ring *r)
{
    pthread_mutex_lock(&r->lock);
    if (r->taken_bytes > 0) {
        r->tail += r->taken_bytes;
        r->taken_bytes = 0;
        pthread_cond_broadcast(&r->changed);
    }
    while (r->head == r->tail && !r->closed) pthread_cond_wait(&r->changed, &r->lock);
    const bool there = r->head != r->tail;
    pthread_mutex_unlock(&r->lock);
    return there;
}

bool ps_piece_ring_take(ps_piece_ring *r, ps_ring_piece *out)
{
    while (next_record(r)) {
        const int64_t at = r->tail % r->bytes;
        ring_record record;
        memcpy(&record, r->block + at, sizeof record);
        if (record.n_bytes < 0) {
            r->taken_bytes = r->bytes - at;
            continue;
        }
        r->taken_bytes = RING_UNIT + ps_round_up(record.n_bytes, RING_UNIT);
        *out = (ps_ring_piece){.index = (int32_t)record.index,
                               .offset = record.offset,
                               .n_bytes = record.n_bytes,
                               .data = r->block + at + RING_UNIT};
        return true;
    }
    return false;
}
