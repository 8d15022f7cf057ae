/* test_client_split.c - optimizer.params.state_format = compact_split in a client: parameters and masters are those of
 * compact, gradients lie beside parameters in their type, and what fp32 values become. test_client_walk.c has budgets,
 * early updates and ranks. */
#include "external/client_fixture.h"

#define COMPACT "bf16.enabled=true memory.device=4MB memory.disk=4MB optimizer.params.state_format="

enum { A, LONG, FROZEN, SCOPED, N, LARGEST = 9000, STEPS = 4 };

static const int64_t sizes[N] = {3000, LARGEST, 700, 50};

static ps_client *begun(const char *changes)
{
    static const char *const names[N] = {"a", "long", "frozen", "scoped"};
    ps_client *c = client_of(changes);
    int32_t number;
    for (int32_t t = 0; t < N; t++)
        assert_ok(add_tensor(c, names[t], sizes[t], PS_DTYPE_F32, t == FROZEN, t == SCOPED, &number));
    assert_ok(ps_client_begin(c));
    return c;
}

static void give(ps_client *c, int32_t t, uint64_t stream)
{
    static float of[LARGEST];
    for (int64_t i = 0; i < sizes[t]; i++) of[i] = drawn(stream, i);
    give_gradient(c, t, of, sizes[t], 0);
}

/* Reads parameters after their gradients. */
static void train(ps_client *c)
{
    for (uint64_t step = 0; step < STEPS; step++) {
        for (int32_t t = 0; t < N; t++)
            if (t != FROZEN || step > 1) give(c, t, 10 * step + (uint64_t)t);
        const ps_client_step_info info = stepped(c);
        assert_int_equal(info.n_restored, 0);
        assert_int_equal(info.n_separate, 0);
    }
}

static void read_both(ps_client *c, int32_t t, uint16_t *params, float *values)
{
    if (t != SCOPED) {
        const ps_client_place p = pinned(c, t, PS_CLIENT_PARAM, PS_CLIENT_READ);
        get_bytes(c, &p, 0, params, 2 * sizes[t]);
        ps_client_unpin(c, t, PS_CLIENT_PARAM);
    }
    assert_ok(ps_client_read_state(c, t, NULL, 0, sizes[t], values));
}

/* But for values half-way between two parameters: base/split.h. */
static void test_values_of_compact(void **state)
{
    (void)state;
    static float want[LARGEST], is[LARGEST];
    static uint16_t params[2][LARGEST];
    ps_client *whole = begun(COMPACT "compact"), *split = begun(COMPACT "compact_split");
    int64_t n_others = 0;
    train(whole);
    train(split);
    for (int32_t t = 0; t < N; t++) {
        read_both(whole, t, params[0], want);
        read_both(split, t, params[1], is);
        if (t != SCOPED) assert_memory_equal(params[0], params[1], 2 * (size_t)sizes[t]);
        for (int64_t i = 0; i < sizes[t]; i++) {
            n_others += is[i] != want[i];
            assert_true(fabs((double)is[i] - (double)want[i]) <= 5e-7 * fabs((double)want[i]));
        }
        assert_ok(ps_client_read_state(whole, t, "exp_avg", 0, sizes[t], want));
        assert_ok(ps_client_read_state(split, t, "exp_avg", 0, sizes[t], is));
        assert_memory_equal(is, want, (size_t)sizes[t] * sizeof *is);
    }
    assert_true(n_others <= 4);
    ps_client_destroy(split);
    ps_client_destroy(whole);
    expect_nothing_left();
}

/* A gradient is not over its parameter; a second one makes it fp32, then and later. */
static void test_gradients(void **state)
{
    (void)state;
    ps_client *c = begun(COMPACT "compact_split");
    uint16_t before[8], after[8];
    float sums[8];
    ps_client_place p = pinned(c, A, PS_CLIENT_PARAM, PS_CLIENT_READ);
    get_bytes(c, &p, 0, before, sizeof before);
    give(c, A, 1);
    get_bytes(c, &p, 0, after, sizeof after);
    assert_memory_equal(after, before, sizeof before);
    ps_client_unpin(c, A, PS_CLIENT_PARAM);
    p = pinned(c, A, PS_CLIENT_GRADIENT, PS_CLIENT_READ);
    assert_int_equal(p.dtype, PS_DTYPE_BF16);
    get_bytes(c, &p, 0, after, sizeof after);
    for (int i = 0; i < 8; i++) assert_int_equal(after[i], ps_bf16_from_f32(drawn(1, i)));
    ps_client_unpin(c, A, PS_CLIENT_GRADIENT);
    give(c, A, 2);
    for (int k = 0; k < 2; k++) {
        p = pinned(c, A, PS_CLIENT_GRADIENT, PS_CLIENT_READ);
        assert_int_equal(p.dtype, PS_DTYPE_F32);
        get_bytes(c, &p, 0, sums, sizeof sums);
        for (int i = 0; i < 8; i++) {
            const float first = k == 0 ? ps_bf16_to_f32(ps_bf16_from_f32(drawn(1, i))) : drawn(1, i);
            assert_true(sums[i] == first + drawn(2, i));
        }
        ps_client_unpin(c, A, PS_CLIENT_GRADIENT);
        (void)stepped(c);
        if (k > 0) continue;
        give(c, A, 1);
        give(c, A, 2);
    }
    ps_client_destroy(c);
    expect_nothing_left();
}

/* Written parameters keep the 16 bits beside them; values that are written as fp32 are exact; a step that is skipped, or
 * has its gradients dropped, changes nothing. */
static void test_written_values(void **state)
{
    (void)state;
    ps_client *c = begun(COMPACT "compact_split");
    float values[64], is[64];
    ps_client_place place = {.struct_size = sizeof place};
    for (int i = 0; i < 64; i++) values[i] = drawn(9, i) / 3;
    assert_ok(ps_client_write_state(c, LONG, NULL, 4090, 64, values));
    assert_ok(ps_client_read_state(c, LONG, NULL, 4090, 64, is));
    assert_memory_equal(is, values, sizeof is);
    give(c, LONG, 3);
    assert_ok(ps_client_drop_gradients(c, -1));
    assert_ok(ps_client_read_state(c, LONG, NULL, 4090, 64, is));
    assert_memory_equal(is, values, sizeof is);
    const float infinite = INFINITY;
    static float of[LARGEST];
    of[5] = infinite;
    assert_ok(ps_client_give_gradient(c, LONG, of, PS_DTYPE_F32, 0));
    assert_int_equal(stepped(c).is_skipped, 1);
    assert_ok(ps_client_read_state(c, LONG, NULL, 4090, 64, is));
    assert_memory_equal(is, values, sizeof is);
    const ps_client_place p = pinned(c, A, PS_CLIENT_PARAM, PS_CLIENT_WRITE);
    put_value(c, &p, 7, 0.5f);
    ps_client_unpin(c, A, PS_CLIENT_PARAM);
    assert_ok(ps_client_read_state(c, A, NULL, 7, 1, is));
    assert_true(fabs((double)is[0] - 0.5) <= 0.5 / 256 && ps_bf16_from_f32(is[0]) == ps_bf16_from_f32(0.5f));
    assert_fails(ps_client_pin(c, A, PS_CLIENT_MASTER, PS_CLIENT_READ, &place), PS_ENOSYS, "ps_client_read_state");
    ps_client_destroy(c);
    expect_nothing_left();
}

/* Written to while it is saved: the checkpoint has the values of its beginning. */
static void test_saved(void **state)
{
    (void)state;
    static float want[LARGEST], is[LARGEST];
    temp_folder work = temp_folder_make();
    ps_client *c = begun(COMPACT "compact_split"), *d = begun(COMPACT "compact_split"), *e = begun(COMPACT "fp32");
    train(c);
    assert_ok(ps_client_read_state(c, A, NULL, 0, sizes[A], want));
    assert_ok(ps_client_begin_checkpoint(c, work.path, NULL));
    const ps_client_place p = pinned(c, A, PS_CLIENT_PARAM, PS_CLIENT_WRITE);
    put_value(c, &p, 7, 0.5f);
    ps_client_unpin(c, A, PS_CLIENT_PARAM);
    assert_ok(ps_client_finish_checkpoint(c, NULL));
    for (int i = 0; i < 2; i++) {
        ps_client *other = i == 0 ? d : e;
        assert_ok(ps_client_load_checkpoint(other, work.path, NULL));
        assert_ok(ps_client_read_state(other, A, NULL, 0, sizes[A], is));
        assert_memory_equal(is, want, (size_t)sizes[A] * sizeof *is);
    }
    ps_client_destroy(e);
    ps_client_destroy(d);
    ps_client_destroy(c);
    temp_folder_remove(&work);
    expect_nothing_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_values_of_compact, note_live),
        cmocka_unit_test_setup(test_gradients, note_live),
        cmocka_unit_test_setup(test_written_values, note_live),
        cmocka_unit_test_setup(test_saved, note_live),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
