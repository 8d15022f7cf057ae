/* Offsets of buffers: those of the plainest first fit, which looks at all buffers for each; and of models of a thousand
 * layers, for which that would take minutes. */
#include "engine/engine_fixture.h"

#include "random_graph.h"
#include "train/graph/code.h"

enum { ALIGN = 64 };

typedef struct item {
    int32_t buffer, first, last;
    int64_t bytes, offset;
} item;

/* ---- the plainest way ---- */

static int by_birth(const void *a, const void *b)
{
    const item *p = a, *q = b;
    if (p->first != q->first) return p->first < q->first ? -1 : 1;
    if (p->last != q->last) return p->last > q->last ? -1 : 1;
    return p->buffer < q->buffer ? -1 : 1;
}

static int by_size(const void *a, const void *b)
{
    const item *p = a, *q = b;
    if (p->bytes != q->bytes) return p->bytes > q->bytes ? -1 : 1;
    return p->buffer < q->buffer ? -1 : 1;
}

static int by_heartbeat(const void *a, const void *b)
{
    const item *p = a, *q = b;
    const int32_t x = p->last - p->first, y = q->last - q->first;
    return x != y ? (x > y ? -1 : 1) : by_birth(a, b);
}

static bool overlap(const item *a, const item *b, int64_t offset)
{
    return a->first <= b->last && a->last >= b->first && a->offset < offset + b->bytes && offset < a->offset + a->bytes;
}

/* Of 0 and all ends of buffers before it, the lowest offset at which it overlaps none. */
static int64_t lowest(const item *items, int32_t i)
{
    int64_t best = INT64_MAX;
    for (int32_t k = -1; k < i; k++) {
        const int64_t offset = k < 0 ? 0 : items[k].offset + items[k].bytes;
        bool is_free = offset < best;
        for (int32_t j = 0; j < i && is_free; j++) is_free = !overlap(&items[j], &items[i], offset);
        if (is_free) best = offset;
    }
    return best;
}

typedef struct cost {
    int64_t peak, sum;
} cost;

static cost cost_of(const ps_code *p, const item *items, int32_t n)
{
    cost c = {0, 0};
    for (int32_t m = 0; m < p->n_instrs; m++) {
        int64_t end = 0;
        for (int32_t i = 0; i < n; i++)
            if (items[i].first <= m && m <= items[i].last) end = ps_max_i64(end, items[i].offset + items[i].bytes);
        c.peak = ps_max_i64(c.peak, end);
        c.sum += end;
    }
    return c;
}

static void assert_first_fit(const ps_code *p)
{
    int (*const orders[])(const void *, const void *) = {by_birth, by_size, by_heartbeat};
    item *items = calloc((size_t)p->n_buffers, sizeof *items), *best = calloc((size_t)p->n_buffers, sizeof *best);
    cost least = {INT64_MAX, INT64_MAX};
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_buffers; i++) {
        const ps_buffer *b = &p->buffers[i];
        const int64_t bytes = ps_round_up(ps_max_i64(b->bytes, 1) + PS_CODE_GUARD_BYTES, ALIGN);
        if (b->first <= b->last) items[n++] = (item){.buffer = i, .first = b->first, .last = b->last, .bytes = bytes};
    }
    for (size_t o = 0; o < PS_ARRAY_LEN(orders); o++) {
        qsort(items, (size_t)n, sizeof *items, orders[o]);
        for (int32_t i = 0; i < n; i++) items[i].offset = lowest(items, i);
        const cost c = cost_of(p, items, n);
        if (c.peak > least.peak || (c.peak == least.peak && c.sum >= least.sum)) continue;
        least = c;
        memcpy(best, items, (size_t)n * sizeof *best);
    }
    for (int32_t i = 0; i < n; i++) assert_int_equal(p->buffers[best[i].buffer].offset, best[i].offset);
    int64_t sum = 0;
    for (int32_t m = 0; m < p->n_instrs; m++) sum += p->instrs[m].non_model_bytes;
    assert_int_equal(p->non_model_bytes, least.peak);
    assert_int_equal(sum, least.sum);
    free(items);
    free(best);
}

/* ---- models ---- */

static void check_code(ps_model_func model, void *user, bool looks, bool checkpointing, bool offloads)
{
    ps_backend *backend = NULL;
    ps_program *program = NULL;
    ps_code *code = NULL;
    assert_ok(ps_backend_create_ref(&backend));
    assert_ok(ps_program_build(model, user, NULL, 2, 4, &program));
    const ps_code_options o = {.backend = backend,
                               .dtype = PS_DTYPE_BF16,
                               .training = true,
                               .checkpointing = checkpointing,
                               .offloads_inputs = offloads,
                               .may_overwrite_params = true};
    assert_ok(ps_code_create(program, &o, &code));
    if (looks) assert_first_fit(code);
    ps_code_destroy(code);
    ps_program_destroy(program);
    ps_backend_destroy(backend);
}

static void offsets_are_those_of_first_fit(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 60; seed++) {
        random_graph graph = {seed, "lcngpd+++", .V = 13, .T = 4, .C = 6, .is_chained = seed % 2 == 0};
        for (int way = 0; way < 3; way++) check_code(model_random, &graph, true, way > 0, way > 1);
    }
    assert_int_equal(ps_mem_live_bytes(), 0);
}

typedef struct depth {
    int32_t n_layers;
} depth;

static ps_status model_deep(ps_builder *b, void *user)
{
    const depth *d = user;
    ps_value x = ps_token_embedding(b, "wte", 13, 8);
    for (int32_t i = 0; i < d->n_layers; i++) {
        char name[32];
        snprintf(name, sizeof name, "h.%d", (int)i);
        ps_begin_block(b, name, 1);
        ps_value y = ps_linear(b, ps_layer_norm(b, x, "ln_1", 1e-5f), "up", 32, 1);
        y = ps_linear(b, ps_gelu(b, y, PS_ACTIVATION_GELU_TANH), "down", 8, 1);
        x = ps_add(b, x, ps_dropout(b, y, 0.1f));
        ps_end_block(b);
    }
    ps_cross_entropy(b, x, "wte.weight", NULL, 13, NULL);
    return PS_OK;
}

static void deep_models_have_offsets_of_first_fit(void **state)
{
    (void)state;
    depth d = {30};
    for (int way = 0; way < 3; way++) check_code(model_deep, &d, true, way > 0, way > 1);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* Work that grew with the square or more of the layers took many minutes here: names of parameters were compared with
 * each other, nodes searched all others for readers, buffers sorted all that live anew. */
static void thousands_of_layers_are_planned(void **state)
{
    (void)state;
    depth d = {1000};
    for (int way = 0; way < 3; way++) check_code(model_deep, &d, false, way > 0, way > 1);
    d.n_layers = 30000;
    check_code(model_deep, &d, false, true, false);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offsets_are_those_of_first_fit),
        cmocka_unit_test(deep_models_have_offsets_of_first_fit),
        cmocka_unit_test(thousands_of_layers_are_planned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
