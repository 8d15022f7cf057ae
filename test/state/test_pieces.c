/* Pieces: each element of each tensor is in one of them, where the layout puts it. */
#include "train/state/pieces.h"

#include "assert_status.h"
#include "base/base.h"
#include "base/rng.h"

enum { N_MAX = 12 };

static ps_layout *random_layout(uint64_t seed, int32_t *n)
{
    int64_t sizes[N_MAX];
    ps_layout *l;
    static const uint32_t most[] = {40, 2048, 9000};
    const ps_rng_key key = {.seed = seed};
    *n = 1 + (int32_t)(ps_rng_u32(key, 0) % N_MAX);
    for (int32_t i = 0; i < *n; i++) {
        const uint64_t word = 1 + 2 * (uint64_t)i;
        sizes[i] = 1 + ps_rng_u32(key, word) % most[ps_rng_u32(key, word + 1) % PS_ARRAY_LEN(most)];
    }
    assert_ok(ps_layout_create(sizes, NULL, *n, 2048, &l));
    return l;
}

static void check_tensor(const ps_layout *l, const ps_pieces *p, int32_t tensor, int32_t number)
{
    int64_t at = 0;
    for (int32_t k = p->first_of_tensor[tensor]; k < p->first_of_tensor[tensor + 1]; k++) {
        const ps_piece *x = &p->all[p->by_tensor[k]];
        const ps_place *place = &l->places[tensor];
        assert_int_equal(x->tensor, number);
        assert_int_equal(x->tensor_offset, at);
        assert_true(x->n > 0 && x->chunk_offset + x->n <= l->chunk_elements);
        assert_int_equal((int64_t)(x->chunk - place->chunk) * l->chunk_elements + x->chunk_offset, place->offset + at);
        assert_true(p->by_tensor[k] >= p->first[x->chunk] && p->by_tensor[k] < p->first[x->chunk + 1]);
        at += x->n;
    }
    assert_int_equal(at, l->places[tensor].elements);
}

static void test_each_element_is_in_one(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        int32_t n, numbers[N_MAX];
        ps_pieces p;
        ps_layout *l = random_layout(seed, &n);
        for (int32_t i = 0; i < n; i++) numbers[i] = 100 - i;
        assert_ok(ps_pieces_cut(l, seed % 2 == 0 ? NULL : numbers, &p));
        assert_int_equal(p.first[l->n_chunks], p.n);
        assert_int_equal(p.first_of_tensor[n], p.n);
        for (int32_t i = 0; i < n; i++) check_tensor(l, &p, i, seed % 2 == 0 ? i : numbers[i]);
        for (int32_t c = 0; c < l->n_chunks; c++)
            for (int32_t i = p.first[c]; i < p.first[c + 1]; i++) assert_int_equal(p.all[i].chunk, c);
        ps_pieces_deinit(&p);
        ps_layout_destroy(l);
    }
}

/* Any part of a tensor, as views and messages take it. */
static void test_part_of_a_tensor(void **state)
{
    (void)state;
    const int64_t size = 5000;
    ps_layout *l;
    assert_ok(ps_layout_create(&size, NULL, 1, 2048, &l));
    const ps_piece first = ps_piece_from(l, 0, 2000, 3000), second = ps_piece_from(l, 0, 2048, 100);
    assert_int_equal(first.n, 48);
    assert_int_equal(first.chunk_offset, 2000);
    assert_int_equal(second.chunk, 1);
    assert_int_equal(second.chunk_offset, 0);
    assert_int_equal(second.n, 100);
    ps_layout_destroy(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_element_is_in_one),
        cmocka_unit_test(test_part_of_a_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
