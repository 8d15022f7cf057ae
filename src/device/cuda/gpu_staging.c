/* gpu_staging.c - copies from and to pageable memory, through a ring of page-locked pieces. Small copies share a piece,
 * one after the other; a piece is reused when the last of them is done.
 *
 *     | piece, being filled |======== in flight =========|      free      | */
#include <string.h>

#include "base/mem.h"
#include "device/cuda/gpu_impl.h"

#define PIECES 16
#define PIECE_BYTES (256 * PS_KIB)

struct ps_gpu_staging {
    char *memory;
    ps_cu_event done[PIECES]; /* of the last copy from or to it */
    bool is_used[PIECES];     /* `done` has been recorded */
    int at;                   /* the piece being filled */
    int64_t filled;           /* bytes of it */
};

static ps_status create(ps_gpu_queue *q)
{
    ps_gpu *g = q->gpu;
    void *p = NULL;
    if (q->staging == NULL) PS_TRY(ps_mem_alloc(1, sizeof *q->staging, &q->staging));
    ps_gpu_staging *s = q->staging;
    if (s->memory != NULL) return PS_OK;
    for (int i = 0; i < PIECES; i++)
        if (s->done[i] == NULL)
            PS_TRY(ps_gpu_check(g, g->driver->event_create(&s->done[i], PS_CU_EVENT_BLOCKING | PS_CU_EVENT_NO_TIME),
                                "event"));
    PS_TRY(ps_gpu_check(g, g->driver->host_alloc(&p, (size_t)(PIECES * PIECE_BYTES), PS_CU_HOST_PORTABLE),
                        "page-locked memory"));
    s->memory = p;
    return PS_OK;
}

void ps_gpu_staging_destroy(ps_gpu_queue *q)
{
    ps_gpu_staging *s = q->staging;
    if (s == NULL) return;
    for (int i = 0; i < PIECES; i++)
        if (s->done[i] != NULL) (void)q->gpu->driver->event_destroy(s->done[i]);
    if (s->memory != NULL) (void)q->gpu->driver->host_free(s->memory);
    ps_mem_free(s);
    q->staging = NULL;
}

/* The copies of a piece are done. */
static ps_status wait_for_piece(ps_gpu_queue *q, int i)
{
    ps_gpu *g = q->gpu;
    return ps_gpu_check(g, g->driver->event_wait(q->staging->done[i]), q->base.name);
}

/* Room for at most `bytes`. */
static ps_status take(ps_gpu_queue *q, int64_t bytes, char **out, int64_t *n)
{
    ps_gpu_staging *s = q->staging;
    if (s->filled == PIECE_BYTES) {
        s->at = (s->at + 1) % PIECES;
        s->filled = 0;
        if (s->is_used[s->at]) {
            if (q->gpu->driver->event_query(s->done[s->at]) == PS_CU_NOT_READY) ps_block_note(PS_BLOCK_FULL);
            PS_TRY(wait_for_piece(q, s->at));
        }
    }
    *n = ps_min_i64(bytes, PIECE_BYTES - s->filled);
    *out = s->memory + s->at * PIECE_BYTES + s->filled;
    s->filled += *n;
    return PS_OK;
}

static ps_status copy(ps_gpu_queue *q, ps_cu_address dst, ps_cu_address src, int64_t n)
{
    ps_gpu *g = q->gpu;
    ps_gpu_staging *s = q->staging;
    PS_TRY(ps_gpu_queue_reserve(q, 2));
    PS_TRY(ps_gpu_check(g, g->driver->copy(dst, src, (size_t)n, q->stream), q->base.name));
    PS_TRY(ps_gpu_check(g, g->driver->event_record(s->done[s->at], q->stream), q->base.name));
    s->is_used[s->at] = true;
    return PS_OK;
}

ps_status ps_gpu_staging_put(ps_gpu_queue *q, ps_cu_address dst, const char *src, int64_t bytes)
{
    PS_TRY(create(q));
    for (int64_t n; bytes > 0; dst += (ps_cu_address)n, src += n, bytes -= n) {
        char *p;
        PS_TRY(take(q, bytes, &p, &n));
        memcpy(p, src, (size_t)n);
        PS_TRY(copy(q, dst, (ps_cu_address)(uintptr_t)p, n));
    }
    return PS_OK;
}

/* One piece is read while the next is filled. */
ps_status ps_gpu_staging_get(ps_gpu_queue *q, char *dst, ps_cu_address src, int64_t bytes)
{
    char *before = NULL;
    int64_t n_before = 0;
    int before_at = 0;
    PS_TRY(create(q));
    for (int64_t n; bytes > 0 || n_before > 0; src += (ps_cu_address)n, bytes -= n) {
        char *p = NULL;
        n = 0;
        if (bytes > 0) {
            PS_TRY(take(q, bytes, &p, &n));
            PS_TRY(copy(q, (ps_cu_address)(uintptr_t)p, src, n));
        }
        if (n_before > 0) {
            PS_TRY(wait_for_piece(q, before_at));
            memcpy(dst, before, (size_t)n_before);
            dst += n_before;
        }
        before = p;
        n_before = n;
        before_at = q->staging->at;
    }
    return PS_OK;
}
