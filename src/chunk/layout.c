#include "chunk/layout.h"
#include "base/base.h"
#include "base/mem.h"

/* How many chunks back a tensor may be placed. Further back would save little, and an operator with a small tensor
 * would need a chunk of a distant layer. */
#define LOOK_BACK 3
#define WASTE_TARGET 0.01
/* Small chunks should be whole huge pages (2 MiB of fp32): the remainder is in small pages, which a disk reads and
 * writes at half the bandwidth and copies fault in one by one. That is worth a little waste and up to half the size;
 * for large chunks it hardly matters. */
#define WHOLE_ELEMENTS ((int64_t)1 << 19)
#define WHOLE_WASTE_TARGET 0.015
#define WHOLE_MATTERS_BELOW (16 * WHOLE_ELEMENTS)
/* Far beyond any model, and sums of it with paddings stay far below INT64_MAX. */
#define MAX_ELEMENTS ((int64_t)1 << 56)

static int64_t aligned(int64_t elements)
{
    return ps_round_up(elements, PS_TENSOR_ALIGN_ELEMENTS);
}

/* Candidates for the next tensor. */
typedef struct fill {
    int64_t used[LOOK_BACK]; /* of the last chunks, newest at [0] */
    int64_t first_chunk;     /* chunks before it are closed */
    int64_t n_chunks;
    int32_t n_runs;
} fill;

/* With l == NULL only count the chunks: the search runs this hundreds of times without allocating. */
static void place_tensor(fill *f, int64_t elements, int32_t t, int64_t capacity, ps_layout *l)
{
    const int64_t need = aligned(elements);
    const int64_t n_needed = ps_ceil_div(need, capacity); /* chunks; more than one: a run */
    int64_t back = 0; /* the one of the last chunks for it, or its first chunk, counted back; -1: a new one */
    if (n_needed > 1) {
        back = -1;
    } else {
        for (back = ps_min_i64(LOOK_BACK, f->n_chunks - f->first_chunk) - 1; back >= 0; back--)
            if (f->used[back] + need <= capacity) break;
    }
    int64_t offset = 0;
    if (back >= 0) {
        offset = f->used[back];
        f->used[back] += need;
    } else {
        /* when only counting, a huge run need not be walked through */
        for (int64_t k = l != NULL ? 0 : ps_max_i64(0, n_needed - LOOK_BACK); k < n_needed; k++) {
            for (int i = LOOK_BACK - 1; i > 0; i--) f->used[i] = f->used[i - 1];
            f->used[0] = k + 1 < n_needed ? capacity : need - (n_needed - 1) * capacity;
            if (l != NULL) l->used_elements[f->n_chunks + k] = f->used[0];
        }
        f->n_chunks += n_needed;
        back = n_needed - 1;
        if (l != NULL && n_needed > 1) {
            l->runs[f->n_runs] = (ps_run){.first = (int32_t)(f->n_chunks - n_needed), .n_chunks = (int32_t)n_needed};
            for (int64_t k = f->n_chunks - n_needed; k < f->n_chunks; k++) l->run_of_chunk[k] = f->n_runs;
        }
        f->n_runs += n_needed > 1;
    }
    if (l == NULL) return;
    const int64_t first = f->n_chunks - 1 - back;
    l->places[t] =
        (ps_place){.chunk = (int32_t)first, .n_chunks = (int32_t)n_needed, .offset = offset, .elements = elements};
    if (n_needed == 1) l->used_elements[first] = offset + need;
}

/* Places tensors of the first list only, after all others. Returns the number of chunks. */
static int64_t place_all(const int64_t *elements, const bool *in_first_list_only, int32_t n, int64_t capacity,
                         ps_layout *l)
{
    fill f = {.n_chunks = 0};
    for (int32_t t = 0; t < n; t++)
        if (in_first_list_only == NULL || !in_first_list_only[t]) place_tensor(&f, elements[t], t, capacity, l);
    f.first_chunk = f.n_chunks;
    if (l != NULL) l->n_mirrored = (int32_t)f.n_chunks;
    for (int32_t t = 0; in_first_list_only != NULL && t < n; t++)
        if (in_first_list_only[t]) place_tensor(&f, elements[t], t, capacity, l);
    if (l != NULL) l->n_runs = f.n_runs;
    return f.n_chunks;
}

/* *total: sum of the sizes. */
static ps_status check_sizes(const int64_t *tensor_elements, int32_t n_tensors, int64_t *total)
{
    *total = 0;
    if (n_tensors < 1) return PS_FAIL(PS_EINVAL, "a layout needs at least one tensor");
    for (int32_t t = 0; t < n_tensors; t++) {
        if (tensor_elements[t] < 1 || tensor_elements[t] > MAX_ELEMENTS - *total)
            return PS_FAIL(PS_EINVAL, "tensor %d has %lld elements", t, (long long)tensor_elements[t]);
        *total += tensor_elements[t];
    }
    return PS_OK;
}

ps_status ps_layout_create(const int64_t *tensor_elements, const bool *in_first_list_only, int32_t n_tensors,
                           int64_t chunk_elements, ps_layout **out)
{
    *out = NULL;
    int64_t total = 0;
    PS_TRY(check_sizes(tensor_elements, n_tensors, &total));
    if (chunk_elements < 1 || chunk_elements > MAX_ELEMENTS)
        return PS_FAIL(PS_EINVAL, "chunk size of %lld elements", (long long)chunk_elements);
    const int64_t capacity = ps_round_up(chunk_elements, PS_CHUNK_UNIT_ELEMENTS);
    const int64_t n_chunks = place_all(tensor_elements, in_first_list_only, n_tensors, capacity, NULL);
    if (n_chunks > INT32_MAX / 8)
        return PS_FAIL(PS_EINVAL, "%lld chunks of %lld elements are too many: raise default_chunk_size",
                       (long long)n_chunks, (long long)capacity);

    ps_status st = PS_OK;
    ps_layout *l = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *l, &l));
    l->chunk_elements = capacity;
    l->n_tensors = n_tensors;
    l->n_chunks = (int32_t)n_chunks;
    l->tensor_elements = total;
    PS_TRY_GOTO(ps_mem_alloc((size_t)n_tensors, sizeof *l->places, &l->places));
    PS_TRY_GOTO(ps_mem_alloc((size_t)n_tensors, sizeof *l->runs, &l->runs));
    PS_TRY_GOTO(ps_mem_alloc((size_t)n_chunks, sizeof *l->run_of_chunk, &l->run_of_chunk));
    PS_TRY_GOTO(ps_mem_alloc((size_t)n_chunks, sizeof *l->used_elements, &l->used_elements));
    for (int64_t c = 0; c < n_chunks; c++) l->run_of_chunk[c] = -1;
    place_all(tensor_elements, in_first_list_only, n_tensors, capacity, l);
    *out = l;
    l = NULL;
out:
    ps_layout_destroy(l);
    return st;
}

void ps_layout_destroy(ps_layout *l)
{
    if (l == NULL) return;
    ps_mem_free(l->places);
    ps_mem_free(l->runs);
    ps_mem_free(l->run_of_chunk);
    ps_mem_free(l->used_elements);
    ps_mem_free(l);
}

double ps_layout_waste(const ps_layout *l)
{
    return 1.0 - (double)l->tensor_elements / ((double)l->n_chunks * (double)l->chunk_elements);
}

typedef struct search_state {
    const int64_t *elements;
    const bool *in_first_list_only;
    int32_t n;
    int64_t total, unit, min, max;
    int64_t best_size;
    double best_waste;
    bool best_is_good;
    int64_t best_whole; /* the largest size of whole huge pages that wastes little; 0: none */
} search_state;

/* Permitted waste of a size: with large units, a group that ends in the middle of one would otherwise rule out all but
 * small chunks, which hold no whole group. */
static double waste_target(const search_state *s, int64_t size)
{
    const double rounding = (double)(s->unit - PS_CHUNK_UNIT_ELEMENTS) / (double)size;
    return WASTE_TARGET + (rounding < WASTE_TARGET ? rounding : WASTE_TARGET);
}

static void try_size(search_state *s, int64_t size)
{
    size = ps_round_up(size, s->unit);
    if (size < s->min || size > s->max) return;
    const int64_t n_chunks = place_all(s->elements, s->in_first_list_only, s->n, size, NULL);
    const double waste = 1.0 - (double)s->total / ((double)n_chunks * (double)size);
    const bool good = waste <= waste_target(s, size);
    const bool better =
        good && s->best_is_good ? size > s->best_size : good || (!s->best_is_good && waste < s->best_waste);
    if (s->best_size == 0 || better) s->best_size = size, s->best_waste = waste, s->best_is_good = good;
    if (size % WHOLE_ELEMENTS == 0 && waste <= WHOLE_WASTE_TARGET) s->best_whole = ps_max_i64(s->best_whole, size);
}

ps_status ps_layout_search(const int64_t *tensor_elements, const bool *in_first_list_only, int32_t n_tensors,
                           int64_t unit_elements, int64_t min_elements, int64_t max_elements, int64_t *chunk_elements)
{
    *chunk_elements = 0;
    search_state s = {.elements = tensor_elements,
                      .in_first_list_only = in_first_list_only,
                      .n = n_tensors,
                      .unit = unit_elements,
                      .best_waste = 1};
    s.min = ps_round_up(ps_min_i64(ps_max_i64(min_elements, 1), MAX_ELEMENTS), unit_elements);
    s.max = ps_max_i64(s.min, max_elements);
    PS_TRY(check_sizes(tensor_elements, n_tensors, &s.total));
    /* Equal divisions: no waste except at the ends. Of many, every n_step-th is tried: about a hundred. */
    const int64_t n_first = ps_max_i64(1, s.total / s.max), n_last = s.total / s.min + 1;
    const int64_t n_step = ps_max_i64(1, (n_last - n_first) / 64);
    for (int64_t n = n_first; n <= n_last; n += n_step) {
        try_size(&s, ps_ceil_div(s.total, n));
        try_size(&s, ps_ceil_div(s.total, n) + 16 * PS_TENSOR_ALIGN_ELEMENTS);
    }
    /* Ends of groups of whole tensors, from a few starting tensors: a repeated layer gives a size that tiles. */
    const int32_t n_starts = n_tensors < 32 ? n_tensors : 32;
    for (int32_t start = 0; start < n_starts; start++) {
        int64_t sum = 0;
        for (int32_t t = start; t < n_tensors && sum <= s.max; t++) {
            sum += aligned(tensor_elements[t]);
            if (t - start < 128) try_size(&s, sum);
        }
    }
    try_size(&s, s.min);
    for (int64_t size = WHOLE_ELEMENTS; size < WHOLE_MATTERS_BELOW; size += WHOLE_ELEMENTS) try_size(&s, size);
    const bool prefers_whole = s.best_size < WHOLE_MATTERS_BELOW && 2 * s.best_whole >= s.best_size;
    *chunk_elements = prefers_whole ? s.best_whole : s.best_size;
    return PS_OK;
}
