/* Where tensors lie: properties over random sizes, the search's waste on real models, bad input. */
#include "chunk/chunk_fixture.h"

#define MAX_TENSORS 512

static int64_t aligned(int64_t elements)
{
    return ps_round_up(elements, PS_TENSOR_ALIGN_ELEMENTS);
}

/* Everything layout.h promises of any layout. */
static void check_layout(const ps_layout *l, const int64_t *elements, int32_t n)
{
    int64_t total = 0;
    int32_t n_runs = 0, fresh = 0; /* chunks opened so far */
    int64_t *used = calloc((size_t)l->n_chunks, sizeof *used);
    assert_int_equal(l->chunk_elements % PS_CHUNK_UNIT_ELEMENTS, 0);
    assert_int_equal(l->n_tensors, n);
    for (int32_t t = 0; t < n; t++) {
        const ps_place *p = &l->places[t];
        const int64_t need = aligned(elements[t]);
        total += elements[t];
        assert_int_equal(p->elements, elements[t]);
        assert_int_equal(p->offset % PS_TENSOR_ALIGN_ELEMENTS, 0);
        assert_int_equal(p->n_chunks, ps_ceil_div(need, l->chunk_elements));
        assert_in_range(p->chunk, 0, l->n_chunks - p->n_chunks);
        if (p->n_chunks > 1) { /* a run: fresh chunks from the start, contiguous, recorded */
            assert_int_equal(p->offset, 0);
            assert_int_equal(p->chunk, fresh);
            assert_true(n_runs < l->n_runs);
            assert_int_equal(l->runs[n_runs].first, p->chunk);
            assert_int_equal(l->runs[n_runs].n_chunks, p->n_chunks);
            for (int32_t k = 0; k < p->n_chunks; k++) {
                assert_int_equal(l->run_of_chunk[p->chunk + k], n_runs);
                assert_int_equal(used[p->chunk + k], 0);
                used[p->chunk + k] = ps_min_i64(need - k * l->chunk_elements, l->chunk_elements);
            }
            n_runs++;
        } else { /* within one chunk, after everything placed there before: no overlap */
            assert_int_equal(p->offset, used[p->chunk]);
            assert_true(p->offset + need <= l->chunk_elements);
            if (p->offset == 0) assert_int_equal(l->run_of_chunk[p->chunk], -1);
            used[p->chunk] = p->offset + need;
            assert_true(p->chunk <= fresh); /* chunks are opened in order */
        }
        if (p->chunk + p->n_chunks > fresh) fresh = p->chunk + p->n_chunks;
    }
    assert_int_equal(fresh, l->n_chunks); /* no empty chunk */
    assert_int_equal(n_runs, l->n_runs);
    assert_int_equal(total, l->tensor_elements);
    assert_memory_equal(used, l->used_elements, (size_t)l->n_chunks * sizeof *used);
    const double waste = 1.0 - (double)total / ((double)l->n_chunks * (double)l->chunk_elements);
    assert_true(ps_layout_waste(l) == waste);
    free(used);
}

static void test_random(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        dice d = dice_of(seed);
        int64_t elements[MAX_TENSORS];
        const int32_t n = 1 + roll(&d, 120);
        for (int32_t t = 0; t < n; t++) {
            static const int32_t scale[] = {1, 40, 2048, 5000, 60000};
            elements[t] = 1 + roll(&d, scale[roll(&d, 5)]);
        }
        ps_layout *l = NULL, *again = NULL;
        const int64_t size = 1 + roll(&d, 20000);
        assert_ok(ps_layout_create(elements, NULL, n, size, &l));
        assert_int_equal(l->chunk_elements, ps_round_up(size, PS_CHUNK_UNIT_ELEMENTS));
        check_layout(l, elements, n);
        assert_ok(ps_layout_create(elements, NULL, n, size, &again)); /* a pure function */
        assert_memory_equal(l->places, again->places, (size_t)n * sizeof *l->places);
        ps_layout_destroy(l);
        ps_layout_destroy(again);
    }
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* PatrickStar's test_chunk_tensor_index and test_chunk_data, in units of 2048 elements: a tensor goes where there is
 * room, a later small one fills the gap that an earlier large one left; offsets follow one another. */
static void test_patrickstar_cases(void **state)
{
    (void)state;
    enum { U = 2048 };
    static const int64_t sizes[] = {10 * U / 2, 15 * U / 2, 5 * U / 2};
    ps_layout *l = NULL;
    assert_ok(ps_layout_create(sizes, NULL, 3, 20 * U, &l));
    assert_int_equal(l->n_chunks, 1);
    assert_int_equal(l->places[1].offset, sizes[0]);
    assert_int_equal(l->places[2].offset, sizes[0] + sizes[1]);
    ps_layout_destroy(l);

    /* capacity 20: 10, 30 (a run where PatrickStar refuses), 20, 7, 2 */
    static const int64_t mixed[] = {10 * U, 30 * U, 20 * U, 7 * U, 2 * U};
    assert_ok(ps_layout_create(mixed, NULL, 5, 20 * U, &l));
    check_layout(l, mixed, 5);
    assert_int_equal(l->places[1].n_chunks, 2);
    assert_int_equal(l->places[3].chunk, 2); /* in the tail of the run */
    assert_int_equal(l->places[3].offset, 10 * U);
    assert_int_equal(l->places[4].chunk, 2);
    assert_int_equal(l->places[4].offset, 17 * U);
    ps_layout_destroy(l);
}

/* Parameters of GPT-2 in order of declaration. */
static int32_t gpt2_shapes(int64_t V, int64_t T, int64_t C, int32_t layers, int64_t *e)
{
    int32_t n = 0;
    e[n++] = V * C;
    e[n++] = T * C;
    for (int32_t i = 0; i < layers; i++) {
        const int64_t block[] = {C, C, 3 * C * C, 3 * C, C * C, C, C, C, 4 * C * C, 4 * C, 4 * C * C, C};
        for (size_t k = 0; k < PS_ARRAY_LEN(block); k++) e[n++] = block[k];
    }
    e[n++] = C;
    e[n++] = C;
    return n;
}

static void check_search(int64_t V, int64_t T, int64_t C, int32_t layers, int64_t parameters, int64_t min, int64_t max)
{
    static int64_t e[1024];
    const int32_t n = gpt2_shapes(V, T, C, layers, e);
    int64_t total = 0, size = 0;
    for (int32_t i = 0; i < n; i++) total += e[i];
    if (parameters > 0) assert_int_equal(total, parameters);
    assert_ok(ps_layout_search(e, NULL, n, PS_CHUNK_UNIT_ELEMENTS, min, max, &size));
    assert_true(size >= min && size <= max && size % PS_CHUNK_UNIT_ELEMENTS == 0);
    ps_layout *l = NULL;
    assert_ok(ps_layout_create(e, NULL, n, size, &l));
    check_layout(l, e, n);
    assert_int_equal(l->chunk_elements, size);
    if (ps_layout_waste(l) > 0.01)
        fail_msg("%lld parameters, chunks of %lld: %.2f %% wasted", (long long)total, (long long)size,
                 100 * ps_layout_waste(l));
    ps_layout_destroy(l);
}

static void test_search_waste(void **state)
{
    (void)state;
    check_search(50257, 1024, 768, 12, 124439808, 32768, 16 << 20);
    check_search(50257, 1024, 768, 12, 124439808, 32768, 4 << 20);
    check_search(50257, 1024, 768, 12, 124439808, 32768, 1 << 20);
    check_search(50257, 1024, 1600, 48, 1557611200, 32768, 64 << 20);
    check_search(50257, 1024, 1600, 48, 1557611200, 32768, 16 << 20);
    check_search(8192, 512, 384, 8, 0, 32768, 8 << 20); /* 18M */
    check_search(8192, 512, 384, 8, 0, 32768, 1 << 20);
}

static void test_search_range(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        dice d = dice_of(1000 + seed);
        int64_t e[64], size = 0;
        const int32_t n = 1 + roll(&d, 64);
        for (int32_t t = 0; t < n; t++) e[t] = 1 + roll(&d, 1 << (1 + roll(&d, 20)));
        const int64_t min = roll(&d, 100000), max = roll(&d, 1000000);
        const int64_t unit = PS_CHUNK_UNIT_ELEMENTS << roll(&d, 8);
        assert_ok(ps_layout_search(e, NULL, n, unit, min, max, &size));
        const int64_t lo = ps_round_up(ps_max_i64(min, 1), unit);
        assert_int_equal(size % unit, 0);
        assert_in_range(size, lo, ps_max_i64(lo, max));
    }
    /* a range of one size */
    const int64_t one = 100;
    int64_t size = 0;
    assert_ok(ps_layout_search(&one, NULL, 1, PS_CHUNK_UNIT_ELEMENTS, 4096, 4096, &size));
    assert_int_equal(size, 4096);
}

static void test_bad_input(void **state)
{
    (void)state;
    const int64_t good = 5, zero[] = {5, 0}, negative[] = {-1}, many[] = {(int64_t)1 << 50},
                  huge[] = {INT64_MAX / 2, INT64_MAX / 2, INT64_MAX / 2};
    ps_layout *l = (ps_layout *)&l;
    int64_t size = 1;
    assert_int_equal(ps_layout_create(&good, NULL, 0, 2048, &l), PS_EINVAL);
    assert_null(l);
    assert_int_equal(ps_layout_create(&good, NULL, 1, 0, &l), PS_EINVAL);
    assert_int_equal(ps_layout_create(&good, NULL, 1, -5, &l), PS_EINVAL);
    assert_int_equal(ps_layout_create(&good, NULL, 1, INT64_MAX, &l), PS_EINVAL);
    assert_int_equal(ps_layout_create(zero, NULL, 2, 2048, &l), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "tensor 1 has 0 elements"));
    assert_int_equal(ps_layout_create(negative, NULL, 1, 2048, &l), PS_EINVAL);
    assert_int_equal(ps_layout_create(huge, NULL, 3, 2048, &l), PS_EINVAL);
    assert_int_equal(ps_layout_create(many, NULL, 1, 2048, &l), PS_EINVAL); /* too many chunks */
    assert_non_null(strstr(ps_last_error(), "default_chunk_size"));
    assert_null(l);
    assert_int_equal(ps_layout_search(zero, NULL, 2, PS_CHUNK_UNIT_ELEMENTS, 2048, 4096, &size), PS_EINVAL);
    assert_int_equal(ps_layout_search(&good, NULL, 0, PS_CHUNK_UNIT_ELEMENTS, 2048, 4096, &size), PS_EINVAL);
    assert_int_equal(ps_layout_search(huge, NULL, 3, PS_CHUNK_UNIT_ELEMENTS, 2048, 4096, &size), PS_EINVAL);
    assert_int_equal(size, 0);
    ps_layout_destroy(NULL);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* Tensors that are alone have chunks of their own, after the others; each kind is laid out as it would be alone. */
static void test_parted(void **state)
{
    (void)state;
    enum { N = 40 };
    int64_t sizes[N], kind[2][N];
    bool in_first_list_only[N];
    for (int parting = 0; parting < 4; parting++)
        for (int64_t size = 2048; size <= 65536; size *= 2) {
            int32_t n[2] = {0, 0}, at[2] = {0, 0};
            for (int i = 0; i < N; i++) {
                sizes[i] = 1 + (i * 7919 + parting * 104729) % (i % 9 == 0 ? 90000 : 3000);
                in_first_list_only[i] = parting == 0   ? i < N / 2
                                        : parting == 1 ? i % 2 == 0
                                        : parting == 2 ? i == 7
                                                       : i != 7;
                kind[in_first_list_only[i]][n[in_first_list_only[i]]++] = sizes[i];
            }
            ps_layout *l, *of[2];
            assert_ok(ps_layout_create(sizes, in_first_list_only, N, size, &l));
            for (int k = 0; k < 2; k++) assert_ok(ps_layout_create(kind[k], NULL, n[k], size, &of[k]));
            assert_int_equal(l->n_mirrored, of[0]->n_chunks);
            assert_int_equal(of[0]->n_mirrored, of[0]->n_chunks);
            assert_int_equal(l->n_chunks, of[0]->n_chunks + of[1]->n_chunks);
            assert_int_equal(l->n_runs, of[0]->n_runs + of[1]->n_runs);
            for (int i = 0; i < N; i++) {
                const int k = in_first_list_only[i];
                const ps_place *want = &of[k]->places[at[k]++], *have = &l->places[i];
                assert_int_equal(have->chunk, want->chunk + (k ? l->n_mirrored : 0));
                assert_int_equal(have->offset, want->offset);
                assert_int_equal(have->n_chunks, want->n_chunks);
            }
            for (int32_t c = 0; c < l->n_chunks; c++) {
                const ps_layout *k = of[c >= l->n_mirrored];
                const int32_t i = c >= l->n_mirrored ? c - l->n_mirrored : c;
                assert_int_equal(l->used_elements[c], k->used_elements[i]);
                assert_int_equal(l->run_of_chunk[c] >= 0, k->run_of_chunk[i] >= 0);
            }
            int64_t found;
            assert_ok(ps_layout_search(sizes, in_first_list_only, N, PS_CHUNK_UNIT_ELEMENTS, 2048, size, &found));
            assert_in_range(found, 2048, size);
            ps_layout_destroy(l);
            for (int k = 0; k < 2; k++) ps_layout_destroy(of[k]);
        }
    assert_int_equal(ps_mem_live_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),       cmocka_unit_test(test_patrickstar_cases),
        cmocka_unit_test(test_search_waste), cmocka_unit_test(test_search_range),
        cmocka_unit_test(test_parted),       cmocka_unit_test(test_bad_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
