/* memory.c - the lives of buffers, and offsets for them.
 *
 * Greedy orders are tried, and the one with the lowest peak is kept: by birth, largest first, longest life first. Of
 * those with the same peak it is the one that uses the least memory on average: what lives long is at low addresses
 * then, so that memory in use shrinks as the backward pass goes on and chunks can have it. */
#include <stdlib.h>
#include <string.h>

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
        for (int i = 0; i < PS_NODE_PARAMS; i++) use(p, instr->unwanted_dw[i], m);
        use(p, instr->logits, m);
        use(p, instr->constants, m);
        use(p, instr->output, m);
        use(p, instr->y, m);
        use(p, instr->between, m);
        use(p, instr->dy, m);
        use(p, instr->workspace, m);
        for (int i = 0; i < PS_BATCH_ARRAY_COUNT; i++)
            if (ps_instr_computes_node(instr) && (node->reads_batch >> i & 1)) use(p, p->batch[i], m);
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

static int by_life(const void *a, const void *b)
{
    const placing *p = a, *q = b;
    if (p->last - p->first != q->last - q->first) return p->last - p->first > q->last - q->first ? -1 : 1;
    return by_birth(a, b);
}

static int by_offset(const void *a, const void *b)
{
    const placing *const *p = a, *const *q = b;
    return (*p)->offset < (*q)->offset ? -1 : (*p)->offset > (*q)->offset;
}

/* Each buffer at the lowest offset that is free during its life. `live` has room for n pointers. */
static void first_fit(placing *items, int32_t n, placing **live)
{
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
    }
}

typedef struct use_of_memory {
    int64_t peak_bytes, sum_bytes; /* of what each of the instructions needs */
} use_of_memory;

/* needs: [n_instrs], where the last buffer of each instruction ends. */
static use_of_memory add_up(const placing *items, int32_t n, int64_t *needs, int32_t n_instrs)
{
    use_of_memory u = {0};
    memset(needs, 0, (size_t)n_instrs * sizeof *needs);
    for (int32_t i = 0; i < n; i++)
        for (int32_t m = items[i].first; m <= items[i].last; m++)
            needs[m] = ps_max_i64(needs[m], items[i].offset + items[i].bytes);
    for (int32_t m = 0; m < n_instrs; m++) {
        u.peak_bytes = ps_max_i64(u.peak_bytes, needs[m]);
        u.sum_bytes += needs[m];
    }
    return u;
}

static bool is_better(const use_of_memory *a, const use_of_memory *b)
{
    return a->peak_bytes != b->peak_bytes ? a->peak_bytes < b->peak_bytes : a->sum_bytes < b->sum_bytes;
}

static void keep(ps_code *p, const placing *items, int32_t n, const int64_t *needs, int64_t peak_bytes)
{
    for (int32_t i = 0; i < n; i++) p->buffers[items[i].buffer].offset = items[i].offset;
    for (int32_t m = 0; m < p->n_instrs; m++) p->instrs[m].non_model_bytes = needs[m];
    p->non_model_bytes = peak_bytes;
}

ps_status ps_code_place_buffers(ps_code *p)
{
    int (*const orders[])(const void *, const void *) = {by_birth, by_size, by_life};
    find_lives(p);
    ps_status st = PS_OK;
    placing *items = NULL;
    placing **live = NULL;
    int64_t *needs = NULL;
    PS_TRY_GOTO(ps_mem_alloc((size_t)p->n_buffers, sizeof *items, &items));
    PS_TRY_GOTO(ps_mem_alloc((size_t)p->n_buffers, sizeof *live, &live));
    PS_TRY_GOTO(ps_mem_alloc((size_t)p->n_instrs, sizeof *needs, &needs));
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_buffers; i++) {
        const ps_buffer *b = &p->buffers[i];
        if (b->first > b->last) continue;
        items[n++] = (placing){.buffer = i, .first = b->first, .last = b->last, .bytes = room_of(b)};
    }
    use_of_memory best = {.peak_bytes = INT64_MAX};
    for (size_t i = 0; i < PS_ARRAY_LEN(orders); i++) {
        qsort(items, (size_t)n, sizeof *items, orders[i]);
        first_fit(items, n, live);
        const use_of_memory u = add_up(items, n, needs, p->n_instrs);
        if (!is_better(&u, &best)) continue;
        keep(p, items, n, needs, u.peak_bytes);
        best = u;
    }
out:
    ps_mem_free(items);
    ps_mem_free(live);
    ps_mem_free(needs);
    return st;
}
