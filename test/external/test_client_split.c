/* test_client_split.c - optimizer.params.state_format = compact_split in a client: parameters and masters are those of
 * compact, gradients lie beside parameters in their type, and what fp32 values become; and bf16_stochastic, whose
 * parameters are the values. test_client_walk.c has budgets, early updates and ranks. */
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

/* ---- without masters --------------------------------------------------------------------------------------------- */

static void read_values(ps_client *c, int32_t t, const char *state, float *out)
{
    assert_ok(ps_client_read_state(c, t, state, 0, sizes[t], out));
}

static bool are_bf16(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (ps_bf16_to_f32(ps_bf16_from_f32(x[i])) != x[i]) return false;
    return true;
}

/* Values and states are bf16, but outside of chunks; of an update they are what a kernel makes of the parameter, its
 * gradient, and random numbers of seed, name and count. */
static void test_rounded_at_random(void **state)
{
    (void)state;
    static float value[LARGEST], other[LARGEST], want[LARGEST];
    static uint16_t param[LARGEST], g[LARGEST], m[LARGEST], v[LARGEST];
    ps_client *c = begun(COMPACT "bf16_stochastic optimizer.params.lr=0.01 train.seed=7"),
              *d = begun(COMPACT "bf16_stochastic optimizer.params.lr=0.01 train.seed=8");
    read_both(c, LONG, param, value);
    for (uint64_t step = 0; step < 2; step++) {
        for (int i = 0; i < 2; i++) {
            give(i == 0 ? c : d, LONG, 30 + step);
            give(i == 0 ? c : d, SCOPED, 40 + step);
            (void)stepped(i == 0 ? c : d);
        }
        for (int64_t i = 0; i < LARGEST; i++) g[i] = ps_bf16_from_f32(drawn(30 + step, i));
        const double t = (double)step + 1;
        const ps_adam_args a = {.param = param,
                                .grad = g,
                                .m = m,
                                .v = v,
                                .n = LARGEST,
                                .key = ps_state_rounding_key(&c->settings, (int64_t)step + 1, "long"),
                                .lr = 0.01f,
                                .beta1 = 0.9f,
                                .beta2 = 0.999f,
                                .eps = 1e-8f,
                                .one_minus_beta1 = (float)(1 - 0.9),
                                .one_minus_beta2 = (float)(1 - 0.999),
                                .bias1 = (float)(1 - pow(0.9, t)),
                                .bias2 = (float)(1 - pow(0.999, t)),
                                .grad_scale = 1,
                                .is_stochastic = true,
                                .decoupled_decay = true,
                                .weight_decay = (float)c->settings.optimizer.weight_decay,
                                .param_dtype = PS_DTYPE_BF16,
                                .grad_dtype = PS_DTYPE_BF16};
        assert_ok(ps_run_adam(ps_backend_host(c->settings.backend), NULL, &a, 0));
    }
    for (int64_t i = 0; i < LARGEST; i++) want[i] = ps_bf16_to_f32(param[i]);
    read_values(c, LONG, NULL, value);
    assert_memory_equal(value, want, sizeof want);
    read_values(d, LONG, NULL, other);
    assert_true(memcmp(value, other, sizeof value) != 0);
    for (int64_t i = 0; i < LARGEST; i++) want[i] = ps_bf16_to_f32(v[i]);
    read_values(c, LONG, "exp_avg_sq", value);
    assert_memory_equal(value, want, sizeof want);
    read_values(c, SCOPED, NULL, value);
    assert_false(are_bf16(value, sizes[SCOPED]));
    ps_client_destroy(d);
    ps_client_destroy(c);
    expect_nothing_left();
}

/* Saved as fp32 values, exactly; resumed with the same bits; and what another format saved is rounded to nearest. */
static void test_saved_without_masters(void **state)
{
    (void)state;
    static float want[LARGEST], is[LARGEST];
    static const char *const states[] = {NULL, "exp_avg", "exp_avg_sq"};
    temp_folder work = temp_folder_make(), of_floats = temp_folder_make();
    ps_client *c = begun(COMPACT "bf16_stochastic"), *d = begun(COMPACT "bf16_stochastic"), *e = begun(COMPACT "fp32");
    ps_client_place place = {.struct_size = sizeof place};
    train(c);
    assert_ok(ps_client_begin_checkpoint(c, work.path, NULL));
    const ps_client_place p = pinned(c, A, PS_CLIENT_PARAM, PS_CLIENT_WRITE);
    put_value(c, &p, 7, 0.5f);
    ps_client_unpin(c, A, PS_CLIENT_PARAM);
    assert_ok(ps_client_finish_checkpoint(c, NULL));
    assert_ok(ps_client_load_checkpoint(d, work.path, NULL));
    assert_ok(ps_client_load_checkpoint(e, work.path, NULL));
    read_values(c, A, NULL, is);
    assert_true(is[7] == 0.5f);
    for (int32_t t = 0; t < N; t++)
        for (size_t k = 0; k < PS_ARRAY_LEN(states); k++) {
            read_values(d, t, states[k], want);
            read_values(e, t, states[k], is);
            assert_memory_equal(is, want, (size_t)sizes[t] * sizeof *is);
            assert_true(t == SCOPED || are_bf16(want, sizes[t]));
            if (t == A) continue; /* of before the write */
            read_values(c, t, states[k], is);
            assert_memory_equal(is, want, (size_t)sizes[t] * sizeof *is);
        }
    assert_ok(ps_client_load_checkpoint(c, work.path, NULL));
    for (int i = 0; i < 2; i++) train(i == 0 ? c : d);
    for (int32_t t = 0; t < N; t++) {
        read_values(c, t, NULL, want);
        read_values(d, t, NULL, is);
        assert_memory_equal(is, want, (size_t)sizes[t] * sizeof *is);
    }
    train(e);
    assert_ok(ps_client_begin_checkpoint(e, of_floats.path, NULL));
    assert_ok(ps_client_finish_checkpoint(e, NULL));
    assert_ok(ps_client_load_checkpoint(c, of_floats.path, NULL));
    for (size_t k = 0; k < PS_ARRAY_LEN(states); k++) {
        read_values(e, LONG, states[k], want);
        read_values(c, LONG, states[k], is);
        for (int64_t i = 0; i < LARGEST; i++) assert_true(is[i] == ps_bf16_to_f32(ps_bf16_from_f32(want[i])));
    }
    assert_fails(ps_client_pin(c, A, PS_CLIENT_MASTER, PS_CLIENT_READ, &place), PS_ENOSYS, "bf16_stochastic");
    ps_client_destroy(e);
    ps_client_destroy(d);
    ps_client_destroy(c);
    temp_folder_remove(&of_floats);
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
        cmocka_unit_test_setup(test_rounded_at_random, note_live),
        cmocka_unit_test_setup(test_saved_without_masters, note_live),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
