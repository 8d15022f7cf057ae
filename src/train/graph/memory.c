/* memory.c - lifetimes of buffers, and offsets for them.
 *
 * Greedy orders are tried, and the one with the lowest peak is kept: by birth, largest first, longest lifetime first.
 * Among equal peaks it is the one with the least memory on average: long lifetimes are at low addresses then, so that
 * memory in use shrinks during the backward pass and chunks can use it. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "train/graph/code_impl.h"

#define BUFFER_ALIGN 64
#define OFFSET_BLOCK_MAX 256
/* With more buffers only the order by birth is tried: the time of the others is quadratic. */
#define ALL_ORDERS_BUFFERS_MAX 100000

typedef struct placing {
    int32_t buffer;
    int32_t first, last;
    int64_t bytes, offset;
} placing;

/* ---- lifetimes ---- */

static void use(ps_code *p, int32_t buffer, int32_t m)
{
    if (buffer < 0) return;
    ps_buffer *b = &p->buffers[buffer];
    if (m < b->first) b->first = m;
    if (m > b->last) b->last = m;
}

static void find_lifetimes(ps_code *p)
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

/* Its bytes, with the guard after it. */
static int64_t room_of(const ps_buffer *b)
{
    return ps_round_up(ps_max_i64(b->bytes, 1) + PS_CODE_GUARD_BYTES, BUFFER_ALIGN);
}

static int by_birth(const void *a, const void *b)
{
    const placing *p = a, *q = b;
    if (p->first != q->first) return p->first < q->first ? -1 : 1;
    if (p->last != q->last) return p->last > q->last ? -1 : 1; /* the longer lifetime lower */
    return p->buffer < q->buffer ? -1 : 1;
}

static int by_size(const void *a, const void *b)
{
    const placing *p = a, *q = b;
    if (p->bytes != q->bytes) return p->bytes > q->bytes ? -1 : 1;
    return p->buffer < q->buffer ? -1 : 1;
}

static int by_heartbeat(const void *a, const void *b)
{
    const placing *p = a, *q = b;
    if (p->last - p->first != q->last - q->first) return p->last - p->first > q->last - q->first ? -1 : 1;
    return by_birth(a, b);
}

static bool lifetimes_overlap(const placing *a, const placing *b)
{
    return a->first <= b->last && a->last >= b->first;
}

/* Buffers that have an offset, the lowest first, and a summary: their births and deaths, the highest end, and the
 * largest hole between neighbours. */
typedef struct offset_block {
    const placing *at[OFFSET_BLOCK_MAX];
    int32_t n;
    int32_t least_first, most_first, least_last, most_last;
    int64_t end, hole;
} offset_block;

/* All placed buffers by offset, in blocks of at most OFFSET_BLOCK_MAX, the lowest first. A full one is split in two. */
typedef struct offset_list {
    offset_block *blocks; /* [n], in order of insertion */
    int32_t *order;       /* [n] numbers of blocks */
    int32_t n;
    bool is_by_birth; /* buffers are inserted in that order: those that ended before one are dropped */
} offset_list;

/* Number of blocks that suffices for n buffers. */
static int32_t blocks_for(int32_t n)
{
    return n / (OFFSET_BLOCK_MAX / 2) + 1;
}

static void sum_up(offset_block *b)
{
    b->least_first = b->least_last = INT32_MAX;
    b->most_first = b->most_last = -1;
    b->end = b->hole = 0;
    for (int32_t k = 0; k < b->n; k++) {
        const placing *p = b->at[k];
        if (k > 0) b->hole = ps_max_i64(b->hole, p->offset - b->end);
        b->end = ps_max_i64(b->end, p->offset + p->bytes);
        b->least_first = (int32_t)ps_min_i64(b->least_first, p->first);
        b->most_first = (int32_t)ps_max_i64(b->most_first, p->first);
        b->least_last = (int32_t)ps_min_i64(b->least_last, p->last);
        b->most_last = (int32_t)ps_max_i64(b->most_last, p->last);
    }
}

static void drop_dead_before(offset_block *b, int32_t m)
{
    int32_t n = 0;
    for (int32_t k = 0; k < b->n; k++)
        if (b->at[k]->last >= m) b->at[n++] = b->at[k];
    b->n = n;
    sum_up(b);
}

/* Raise *offset above the buffers of the block whose lifetimes overlap with that of x. True: it fits below one of
 * them. */
static bool find_gap(const offset_block *b, const placing *x, int64_t *offset)
{
    const bool overlaps_all = b->most_first <= x->last && b->least_last >= x->first;
    if (b->least_first > x->last || b->most_last < x->first) return false;
    if (overlaps_all && b->hole < x->bytes) {
        *offset = ps_max_i64(*offset, b->end);
        return false;
    }
    for (int32_t k = 0; k < b->n; k++) {
        if (b->at[k]->offset - *offset >= x->bytes) return true;
        if (lifetimes_overlap(b->at[k], x)) *offset = ps_max_i64(*offset, b->at[k]->offset + b->at[k]->bytes);
    }
    return false;
}

/* The lowest offset at which the buffer overlaps with no other one alive at the same time. */
static int64_t lowest_free(offset_list *s, const placing *x)
{
    int64_t offset = 0;
    for (int32_t i = 0; i < s->n; i++) {
        offset_block *b = &s->blocks[s->order[i]];
        if (s->is_by_birth && b->least_last < x->first) drop_dead_before(b, x->first);
        if (b->n == 0) continue;
        if (b->at[0]->offset - offset >= x->bytes || find_gap(b, x, &offset)) break;
    }
    return offset;
}

/* Split the i-th block in two. */
static void split(offset_list *s, int32_t i)
{
    offset_block *low = &s->blocks[s->order[i]], *high = &s->blocks[s->n];
    low->n = OFFSET_BLOCK_MAX / 2;
    high->n = OFFSET_BLOCK_MAX - low->n;
    memcpy(high->at, low->at + low->n, (size_t)high->n * sizeof high->at[0]);
    memmove(&s->order[i + 2], &s->order[i + 1], (size_t)(s->n - i - 1) * sizeof s->order[0]);
    s->order[i + 1] = s->n++;
    sum_up(low);
    sum_up(high);
}

/* The last block that begins no higher; the first if none does. */
static int32_t block_for(const offset_list *s, int64_t offset)
{
    int32_t found = 0;
    for (int32_t i = 0; i < s->n; i++) {
        const offset_block *b = &s->blocks[s->order[i]];
        if (b->n > 0 && b->at[0]->offset > offset) break;
        if (b->n > 0) found = i;
    }
    return found;
}

static void put(offset_list *s, const placing *x)
{
    int32_t i = block_for(s, x->offset);
    if (s->blocks[s->order[i]].n == OFFSET_BLOCK_MAX) {
        split(s, i);
        i = block_for(s, x->offset);
    }
    offset_block *b = &s->blocks[s->order[i]];
    int32_t k = b->n++;
    for (; k > 0 && b->at[k - 1]->offset > x->offset; k--) b->at[k] = b->at[k - 1];
    b->at[k] = x;
    sum_up(b);
}

/* Each buffer at the lowest offset that is free during its lifetime. */
static void first_fit(placing *items, int32_t n, offset_list *s)
{
    s->n = 1;
    s->order[0] = 0;
    s->blocks[0].n = 0;
    sum_up(&s->blocks[0]);
    for (int32_t i = 0; i < n; i++) {
        items[i].offset = lowest_free(s, &items[i]);
        put(s, &items[i]);
    }
}

/* State for trying an order. */
typedef struct tables {
    offset_list placed;
    const placing **by_end; /* [n_buffers] the highest end first */
    int32_t *next;          /* [n_instrs + 1] */
    int64_t *needs;         /* [n_instrs] */
} tables;

typedef struct use_of_memory {
    int64_t peak_bytes, sum_bytes; /* over the needs of instructions */
} use_of_memory;

static int higher_end_first(const void *a, const void *b)
{
    const placing *const *p = a, *const *q = b;
    const int64_t x = (*p)->offset + (*p)->bytes, y = (*q)->offset + (*q)->bytes;
    return (x < y) - (x > y);
}

/* The first instruction from m on whose need is not set. next is a union-find forest with path halving: an instruction
 * that is not set is its own root, another one points to a later one. */
static int32_t find_unset(int32_t *next, int32_t m)
{
    while (next[m] != m) m = next[m] = next[next[m]];
    return m;
}

/* needs becomes the end of the highest live buffer of each instruction: the buffer with the highest end comes first,
 * and each sets the entries of its lifetime that are not set yet. */
static use_of_memory add_up(const placing *items, int32_t n, tables *t, int32_t n_instrs)
{
    use_of_memory u = {0};
    for (int32_t i = 0; i < n; i++) t->by_end[i] = &items[i];
    qsort((void *)t->by_end, (size_t)n, sizeof *t->by_end, higher_end_first);
    memset(t->needs, 0, (size_t)n_instrs * sizeof *t->needs);
    for (int32_t m = 0; m <= n_instrs; m++) t->next[m] = m;
    for (int32_t i = 0; i < n; i++) {
        const placing *x = t->by_end[i];
        for (int32_t m = find_unset(t->next, x->first); m <= x->last; m = find_unset(t->next, m)) {
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
    t->placed.is_by_birth = order == by_birth;
    first_fit(items, n, &t->placed);
    const use_of_memory u = add_up(items, n, t, p->n_instrs);
    if (!is_better(&u, best)) return;
    keep(p, items, n, t->needs, u.peak_bytes);
    *best = u;
}

ps_status ps_code_place_buffers(ps_code *p)
{
    int (*const orders[])(const void *, const void *) = {by_birth, by_size, by_heartbeat};
    find_lifetimes(p);
    ps_status st = PS_OK;
    placing *items = NULL;
    tables t = {.by_end = NULL};
    PS_TRY_GOTO(ps_mem_alloc((size_t)p->n_buffers, sizeof *items, &items));
    const size_t n_blocks = (size_t)blocks_for(p->n_buffers);
    PS_TRY_GOTO(ps_mem_alloc(n_blocks, sizeof *t.placed.blocks, &t.placed.blocks));
    PS_TRY_GOTO(ps_mem_alloc(n_blocks, sizeof *t.placed.order, &t.placed.order));
    PS_TRY_GOTO(ps_mem_alloc((size_t)p->n_buffers, sizeof *t.by_end, (void *)&t.by_end));
    PS_TRY_GOTO(ps_mem_alloc((size_t)p->n_instrs + 1, sizeof *t.next, &t.next));
    PS_TRY_GOTO(ps_mem_alloc((size_t)p->n_instrs, sizeof *t.needs, &t.needs));
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_buffers; i++) {
        const ps_buffer *b = &p->buffers[i];
        if (b->first > b->last) continue;
        items[n++] = (placing){.buffer = i, .first = b->first, .last = b->last, .bytes = room_of(b)};
    }
    use_of_memory best = {.peak_bytes = INT64_MAX};
    const size_t n_orders = n > ALL_ORDERS_BUFFERS_MAX ? 1 : PS_ARRAY_LEN(orders);
    for (size_t i = 0; i < n_orders; i++) try_order(p, items, n, orders[i], &t, &best);
out:
    ps_mem_free(items);
    ps_mem_free(t.placed.blocks);
    ps_mem_free(t.placed.order);
    ps_mem_free((void *)t.by_end);
    ps_mem_free(t.next);
    ps_mem_free(t.needs);
    return st;
}
