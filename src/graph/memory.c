/* memory.c - the lives of buffers, and offsets for them.
 *
 * Two greedy orders are tried and the one with the lower peak is kept: in order of birth (which keeps what lives long
 * at low addresses, so that the memory in use shrinks as the backward pass goes on), and largest first. */
#include <stdlib.h>

#include "base/mem.h"
#include "graph/code_impl.h"

#define BUFFER_ALIGN 64

typedef struct placing {
    int32_t buffer;
    int32_t first, last;
    int64_t bytes, offset;
} placing;

/* ---- lives ---- */

static void use(ps_code *p, int32_t buffer, int32_t m)
{
    if (buffer < 0) return;
    ps_buffer *b = &p->buffers[buffer];
    if (m < b->first) b->first = m;
    if (m > b->last) b->last = m;
}

static void find_lives(ps_code *p)
{
    for (int32_t m = 0; m < p->n_instrs; m++) {
        const ps_instr *instr = &p->instrs[m];
        const ps_node *node = &p->program->nodes[instr->node];
        for (int i = 0; i < PS_NODE_INPUTS; i++) use(p, instr->x[i], m), use(p, instr->dx[i], m);
        for (int i = 0; i < PS_NODE_SAVED; i++) use(p, instr->saved[i], m);
        use(p, instr->logits, m);
        use(p, instr->constants, m);
        use(p, instr->output, m);
        use(p, instr->y, m);
        use(p, instr->between, m);
        use(p, instr->dy, m);
        use(p, instr->workspace, m);
        for (int i = 0; i < PS_BATCH_ARRAY_COUNT; i++)
            if (node->reads_batch >> i & 1) use(p, p->batch[i], m);
    }
    /* batch and constants are copied in before the first instruction */
    for (int i = 0; i < PS_BATCH_ARRAY_COUNT; i++)
        if (p->batch[i] >= 0) p->buffers[p->batch[i]].first = 0;
    for (int32_t i = 0; i < p->n_constants; i++) p->buffers[p->constants[i].buffer].first = 0;
}

/* ---- offsets ---- */

/* Bytes that it takes, with the guard behind it. */
static int64_t room_of(const ps_buffer *b)
{
    return ps_round_up(ps_max_i64(b->bytes, 1) + PS_CODE_GUARD_BYTES, BUFFER_ALIGN);
}

static int by_birth(const void *a, const void *b)
{
    const placing *p = a, *q = b;
    if (p->first != q->first) return p->first < q->first ? -1 : 1;
    if (p->last != q->last) return p->last > q->last ? -1 : 1; /* the longer life lower */
    return p->buffer < q->buffer ? -1 : 1;
}

static int by_size(const void *a, const void *b)
{
    const placing *p = a, *q = b;
    if (p->bytes != q->bytes) return p->bytes > q->bytes ? -1 : 1;
    return p->buffer < q->buffer ? -1 : 1;
}

static int by_offset(const void *a, const void *b)
{
    const placing *const *p = a, *const *q = b;
    return (*p)->offset < (*q)->offset ? -1 : (*p)->offset > (*q)->offset;
}

/* Each buffer at the lowest offset that is free during its life. Returns the peak. `live` has room for n pointers. */
static int64_t first_fit(placing *items, int32_t n, placing **live)
{
    int64_t peak = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t n_live = 0;
        for (int32_t k = 0; k < i; k++)
            if (items[k].first <= items[i].last && items[k].last >= items[i].first) live[n_live++] = &items[k];
        qsort(live, (size_t)n_live, sizeof *live, by_offset);
        int64_t offset = 0;
        for (int32_t k = 0; k < n_live; k++) {
            if (live[k]->offset - offset >= items[i].bytes) break;
            offset = ps_max_i64(offset, live[k]->offset + live[k]->bytes);
        }
        items[i].offset = offset;
        peak = ps_max_i64(peak, offset + items[i].bytes);
    }
    return peak;
}

static void keep(ps_code *p, const placing *items, int32_t n)
{
    for (int32_t i = 0; i < n; i++) p->buffers[items[i].buffer].offset = items[i].offset;
}

ps_status ps_code_place_buffers(ps_code *p)
{
    find_lives(p);
    ps_status st = PS_OK;
    placing *items = NULL;
    placing **live = NULL;
    PS_TRY_GOTO(ps_mem_alloc((size_t)p->n_buffers, sizeof *items, &items));
    PS_TRY_GOTO(ps_mem_alloc((size_t)p->n_buffers, sizeof *live, &live));
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_buffers; i++) {
        const ps_buffer *b = &p->buffers[i];
        if (b->first > b->last) continue;
        items[n++] = (placing){.buffer = i, .first = b->first, .last = b->last, .bytes = room_of(b)};
    }
    qsort(items, (size_t)n, sizeof *items, by_birth);
    const int64_t peak_by_birth = first_fit(items, n, live);
    keep(p, items, n);
    qsort(items, (size_t)n, sizeof *items, by_size);
    const int64_t peak_by_size = first_fit(items, n, live);
    if (peak_by_size < peak_by_birth) keep(p, items, n);

    p->non_model_bytes = 0;
    for (int32_t m = 0; m < p->n_instrs; m++) {
        int64_t end = 0;
        for (int32_t i = 0; i < p->n_buffers; i++) {
            const ps_buffer *b = &p->buffers[i];
            if (b->first <= m && m <= b->last) end = ps_max_i64(end, b->offset + room_of(b));
        }
        p->instrs[m].non_model_bytes = end;
        p->non_model_bytes = ps_max_i64(p->non_model_bytes, end);
    }
out:
    ps_mem_free(items);
    ps_mem_free(live);
    return st;
}
