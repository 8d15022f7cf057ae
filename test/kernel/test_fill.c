#include "kernel/op_check.h"

static const ps_rng_key key = {.seed = 42, .stream = 3};

static float *fill(ps_backend *k, int64_t n, int64_t first, float mean, float std, ps_rng_key with)
{
    float *dst = op_alloc((size_t)n * sizeof *dst);
    const ps_fill_args a = {.dst = dst, .n = n, .first_index = first, .mean = mean, .std = std, .key = with};
    op_expect_ok(ps_run_fill(k, NULL, &a, 0));
    return dst;
}

/* Mean, variance, skewness and kurtosis within 5 standard errors; neighbours not correlated. */
static void test_moments(void **state)
{
    (void)state;
    enum { N = 200000 };
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++) {
        op_label("moments, %s", name);
        const float *x = fill(k, N, 0, 1.0f, 0.5f, key);
        double m[5] = {0}, neighbours = 0.0;
        for (int j = 0; j < N; j++) {
            const double z = ((double)x[j] - 1.0) / 0.5;
            for (int power = 1; power <= 4; power++) m[power] += pow(z, power) / N;
            if (j > 0) neighbours += z * ((double)x[j - 1] - 1.0) / 0.5 / N;
        }
        const double error = 5.0 / sqrt(N);
        assert_true(fabs(m[1]) < error);
        assert_true(fabs(m[2] - 1.0) < error * sqrt(2.0));
        assert_true(fabs(m[3]) < error * sqrt(15.0));
        assert_true(fabs(m[4] - 3.0) < error * sqrt(96.0));
        assert_true(fabs(neighbours) < error);
        op_release();
    }
}

static float *fill_uniform(ps_backend *k, int64_t n, int64_t first, float mean, float half)
{
    float *dst = op_alloc((size_t)n * sizeof *dst);
    const ps_fill_args a = {
        .dst = dst, .n = n, .first_index = first, .mean = mean, .std = half, .key = key, .is_uniform = true};
    op_expect_ok(ps_run_fill(k, NULL, &a, 0));
    return dst;
}

/* The documented words, the same on all backends but for the reference's rounding, in any window. */
static void test_uniform(void **state)
{
    (void)state;
    enum { N = 100000 };
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++) {
        op_label("uniform, %s", name);
        const float *x = fill_uniform(k, N, 0, 0.0f, 0.25f);
        double square = 0;
        for (int j = 0; j < N; j++) {
            const double u = (double)ps_rng_unit(ps_rng_u32(key, (uint64_t)j));
            assert_true(fabs((double)x[j] - 0.25 * (2 * u - 1)) < 1e-7);
            square += (double)x[j] * (double)x[j] / N;
        }
        assert_true(fabs(square / (0.25 * 0.25 / 3) - 1) < 0.02); /* standard error sqrt(4/5 / N) = 0.003 */
        const float *window = fill_uniform(k, 777, 13, 0.0f, 0.25f);
        assert_memory_equal(window, x + 13, 777 * sizeof *x);
        op_release();
    }
}

/* Any window of the sequence equals the same part of the whole; other seeds and streams differ; std 0 is constant. */
static void test_windows_and_keys(void **state)
{
    (void)state;
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++) {
        op_label("windows, %s", name);
        const float *whole = fill(k, 1000, 0, 0.0f, 1.0f, key);
        for (int64_t first = 0; first < 40; first++) {
            const int64_t n = first * 7 % 33 + 1;
            assert_memory_equal(fill(k, n, first, 0.0f, 1.0f, key), whole + first, (size_t)n * sizeof *whole);
        }
        const float *seed = fill(k, 1000, 0, 0.0f, 1.0f, (ps_rng_key){43, 3});
        const float *stream = fill(k, 1000, 0, 0.0f, 1.0f, (ps_rng_key){42, 4});
        const float *constant = fill(k, 1000, 0, 0.25f, 0.0f, key);
        for (int j = 0; j < 1000; j++) {
            assert_true(whole[j] != seed[j] && whole[j] != stream[j]);
            assert_true(constant[j] == 0.25f);
        }
        op_release();
    }
}

/* Faster backends may take logarithm and sine in float. */
static void test_backends(void **state)
{
    (void)state;
    ps_backend *k, *ref = op_reference();
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++) {
        op_label("backends, %s", name);
        const int64_t first = ((int64_t)1 << 33) + 5;
        const float *got = fill(k, 4099, first, 0.5f, 2.0f, key), *want = fill(ref, 4099, first, 0.5f, 2.0f, key);
        for (int j = 0; j < 4099; j++) assert_float_equal(got[j], want[j], 2e-5);
        op_release();
    }
}

/* All but the reference have the same bits: a model begins the same on every processor, and on GPUs. */
static void test_same_bits(void **state)
{
    (void)state;
    enum { N = 5000 };
    ps_backend *k, *cpu;
    char name[64];
    op_expect_ok(ps_backend_create_cpu(PS_CPU_PORTABLE, 1, &cpu));
    for (int i = 0; op_backend(i, &k, name); i++) {
        if (strcmp(ps_backend_name(k), "ref") == 0) continue;
        op_label("same bits, %s", name);
        for (int64_t first = 0; first < 3; first++)
            assert_memory_equal(fill(k, N, first, 0.5f, 2.0f, key), fill(cpu, N, first, 0.5f, 2.0f, key),
                                N * sizeof(float));
        op_release();
    }
    ps_backend_destroy(cpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moments),  cmocka_unit_test(test_uniform),   cmocka_unit_test(test_windows_and_keys),
        cmocka_unit_test(test_backends), cmocka_unit_test(test_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
