/* Tensors written in any order: the file and its hash are those of writing it from front to back. */
#include "checkpoint/checkpoint_fixture.h"

#include <xxhash.h>

#include "base/file.h"
#include "weights/safetensors.h"

enum { N = 5, ELEMENTS = 3000 };

static work_folder work;

static void value_bytes(int tensor, unsigned char *out)
{
    for (size_t i = 0; i < ELEMENTS * 4; i++) out[i] = (unsigned char)((i * 31 + (size_t)tensor * 17) >> (i % 3));
}

/* Cut every tensor into pieces and put all pieces in an order drawn from `seed`; seed 0: as they come. */
static uint64_t write_in_order(const char *path, unsigned seed)
{
    static const char *const names[N] = {"a", "b", "c", "d", "e"};
    ps_safetensor tensors[N];
    unsigned char *bytes = malloc(ELEMENTS * 4);
    for (int i = 0; i < N; i++)
        tensors[i] = (ps_safetensor){.name = names[i], .dtype = PS_SAFETENSORS_F32, .n_dims = 1, .shape = {ELEMENTS}};
    ps_safetensors_writer *w = NULL;
    assert_ok(ps_safetensors_writer_open(path, tensors, N, NULL, 0, &w));
    enum { PIECES = 7, PIECE = 1716 }; /* 6 of 1716 bytes, 1 of 1704 */
    int order[N * PIECES];
    for (int i = 0; i < N * PIECES; i++) order[i] = i;
    for (int i = N * PIECES - 1; seed != 0 && i > 0; i--) {
        seed = seed * 1664525u + 1013904223u;
        const int k = (int)((seed >> 8) % (unsigned)(i + 1)), swap = order[i];
        order[i] = order[k];
        order[k] = swap;
    }
    for (int i = 0; i < N * PIECES; i++) {
        const int tensor = order[i] / PIECES, offset = order[i] % PIECES * PIECE;
        value_bytes(tensor, bytes);
        const int n = offset + PIECE > ELEMENTS * 4 ? ELEMENTS * 4 - offset : PIECE;
        assert_ok(ps_safetensors_writer_put(w, tensor, offset, bytes + offset, n));
    }
    assert_int_equal(ps_safetensors_writer_put(w, 0, 0, bytes, 1), PS_EINVAL);
    assert_int_equal(ps_safetensors_writer_put(w, 0, ELEMENTS * 4, bytes, 1), PS_EINVAL);
    free(bytes);
    uint64_t hash;
    int64_t n_bytes, n_read;
    char *all = NULL;
    assert_ok(ps_safetensors_writer_xxh3(w, &hash, &n_bytes));
    assert_ok(ps_safetensors_writer_commit(w));
    assert_ok(ps_file_read_all(path, 1 << 24, &all, &n_read));
    assert_int_equal(n_read, n_bytes);
    assert_true(XXH3_64bits(all, (size_t)n_read) == hash);
    ps_mem_free(all);
    return hash;
}

static void test_any_order(void **state)
{
    (void)state;
    work = work_make();
    const work_path path = work_file(work.path, "x.safetensors");
    const uint64_t hash = write_in_order(path.text, 0);
    for (unsigned seed = 1; seed < 30; seed++) assert_true(write_in_order(path.text, seed) == hash);
    work_remove(work.path);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_any_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
