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
#define FORGETS_FROM 64
/* Of more buffers only the order by birth is tried: the time of the others grows with the square of their number. */
#define SQUARE_MAX 100000

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

static bool meet(const placing *a, const placing *b)
{
    return a->first <= b->last && a->last >= b->first;
}

/* Buffers that have an offset, the lowest first. */
typedef struct shelf {
    const placing **at; /* [n], with room for all */
    int32_t n;
    int32_t forgets_at; /* so many */
} shelf;

/* Those that ended before instruction m meet nobody any more. The next time is when there are twice as many. */
static void forget_before(shelf *s, int32_t m)
{
    int32_t n = 0;
    for (int32_t k = 0; k < s->n; k++)
        if (s->at[k]->last >= m) s->at[n++] = s->at[k];
    s->n = n;
    s->forgets_at = 2 * n + FORGETS_FROM;
}

/* The lowest offset at which the buffer meets none of the others. */
static int64_t lowest_free(const shelf *s, const placing *x)
{
    int64_t offset = 0;
    for (int32_t k = 0; k < s->n && s->at[k]->offset - offset < x->bytes; k++)
        if (meet(s->at[k], x)) offset = ps_max_i64(offset, s->at[k]->offset + s->at[k]->bytes);
    return offset;
}

static void put(shelf *s, const placing *x)
{
    int32_t low = 0, high = s->n; /* the first that lies higher */
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (s->at[middle]->offset > x->offset)
            high = middle;
        else
            low = middle + 1;
    }
    memmove(&s->at[low + 1], &s->at[low], (size_t)(s->n - low) * sizeof s->at[0]);
    s->at[low] = x;
    s->n++;
}

/* Each buffer at the lowest offset that is free during its life. room: for n pointers. */
static void first_fit(placing *items, int32_t n, bool is_by_birth, const placing **room)
{
    shelf s = {.at = room, .forgets_at = FORGETS_FROM};
    for (int32_t i = 0; i < n; i++) {
        if (is_by_birth && s.n >= s.forgets_at) forget_before(&s, items[i].first);
        items[i].offset = lowest_free(&s, &items[i]);
        put(&s, &items[i]);
    }
}

/* What trying an order needs. */
typedef struct tables {
    const placing **room; /* [n_buffers] */
    int32_t *next;        /* [n_instrs + 1] */
    int64_t *needs;       /* [n_instrs] */
} tables;

typedef struct use_of_memory {
    int64_t peak_bytes, sum_bytes; /* of what each of the instructions needs */
} use_of_memory;

static int higher_end_first(const void *a, const void *b)
{
    const placing *const *p = a, *const *q = b;
    const int64_t x = (*p)->offset + (*p)->bytes, y = (*q)->offset + (*q)->bytes;
    return (x < y) - (x > y);
}

/* The first instruction from m on that has no number yet. next: an instruction's own number while it has none, else one
 * further on. */
static int32_t first_open(int32_t *next, int32_t m)
{
    while (next[m] != m) m = next[m] = next[next[m]];
    return m;
}

/* needs becomes where the last buffer of each instruction ends: the buffer with the highest end comes first, and each
 * fills in what is still open of its life. */
static use_of_memory add_up(const placing *items, int32_t n, tables *t, int32_t n_instrs)
{
    use_of_memory u = {0};
    for (int32_t i = 0; i < n; i++) t->room[i] = &items[i];
    qsort((void *)t->room, (size_t)n, sizeof *t->room, higher_end_first);
    memset(t->needs, 0, (size_t)n_instrs * sizeof *t->needs);
    for (int32_t m = 0; m <= n_instrs; m++) t->next[m] = m;
    for (int32_t i = 0; i < n; i++) {
        const placing *x = t->room[i];
        for (int32_t m = first_open(t->next, x->first); m <= x->last; m = first_open(t->next, m)) {
            t->needs[m] = x->offset + x->bytes;
            t->next[m] = m + 1;
        }
    }
    for (int32_t m = 0; m < n_instrs; m++) {
        u.peak_bytes = ps_max_i64(u.peak_bytes, t->needs[m]);
        u.sum_bytes += t->needs[m];
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

/* Give the items offsets in this order, and keep them if they are better than the best so far. */
static void try_order(ps_code *p, placing *items, int32_t n, int (*order)(const void *, const void *), tables *t,
                      use_of_memory *best)
{
    qsort(items, (size_t)n, sizeof *items, order);
    first_fit(items, n, order == by_birth, t->room);
    const use_of_memory u = add_up(items, n, t, p->n_instrs);
    if (!is_better(&u, best)) return;
    keep(p, items, n, t->needs, u.peak_bytes);
    *best = u;
}

ps_status ps_code_place_buffers(ps_code *p)
{
    int (*const orders[])(const void *, const void *) = {by_birth, by_size, by_life};
    find_lives(p);
    ps_status st = PS_OK;
    placing *items = NULL;
    tables t = {.room = NULL};
    PS_TRY_GOTO(ps_mem_alloc((size_t)p->n_buffers, sizeof *items, &items));
    PS_TRY_GOTO(ps_mem_alloc((size_t)p->n_buffers, sizeof *t.room, (void *)&t.room));
    PS_TRY_GOTO(ps_mem_alloc((size_t)p->n_instrs + 1, sizeof *t.next, &t.next));
    PS_TRY_GOTO(ps_mem_alloc((size_t)p->n_instrs, sizeof *t.needs, &t.needs));
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_buffers; i++) {
        const ps_buffer *b = &p->buffers[i];
        if (b->first > b->last) continue;
        items[n++] = (placing){.buffer = i, .first = b->first, .last = b->last, .bytes = room_of(b)};
    }
    use_of_memory best = {.peak_bytes = INT64_MAX};
    const size_t n_orders = n > SQUARE_MAX ? 1 : PS_ARRAY_LEN(orders);
    for (size_t i = 0; i < n_orders; i++) try_order(p, items, n, orders[i], &t, &best);
out:
    ps_mem_free(items);
    ps_mem_free((void *)t.room);
    ps_mem_free(t.next);
    ps_mem_free(t.needs);
    return st;
}
