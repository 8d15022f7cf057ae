/* test_muon.c - updates of whole matrices by Muon against the iteration in double, and against what torch.optim.Muon
 * computes in bf16; on each backend that this processor has, and whatever its number of threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "config/config.h"
#include "train/optim/optimizer.h"

enum { N_MAX = 4 * 20011, N_STEPS = 3 };

static const double coefficients[3] = {3.4445, -4.7750, 2.0315};

static ps_status read(const char *params, ps_optimizer_setup *out)
{
    char text[512];
    ps_config *c = NULL;
    snprintf(text, sizeof text, "{\"optimizer\": {\"type\": \"Muon\", \"params\": {%s}}}", params);
    ps_status st = ps_config_parse(text, "c.json", &c);
    if (st == PS_OK) st = ps_config_validate(c);
    if (st == PS_OK) st = ps_optimizer_read(ps_config_options(c), out);
    ps_config_destroy(c);
    return st;
}

static ps_optimizer_setup setup_of(const char *params)
{
    ps_optimizer_setup o;
    if (read(params, &o) != PS_OK) fail_msg("%s", ps_last_error());
    return o;
}

/* Deterministic, with a few large directions: as gradients are. */
static void draw(float *out, int64_t n, uint32_t seed)
{
    uint32_t x = seed * 2654435761u + 12345;
    for (int64_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        out[i] = ((float)(x >> 8) / 8388608.0f - 1) * (i % 7 == 0 ? 3.0f : 0.5f);
    }
}

/* ---- references ---- */

static double exactly(double x)
{
    return x;
}

static double as_bf16(double x)
{
    return (double)ps_bf16_to_f32(ps_bf16_from_f32((float)x));
}

/* out [rows, cols] = alpha left [rows, k] right [k, cols] + beta c, rounded once; a transposed right is [cols, k]. */
static void multiply(double *out, const double *left, const double *right, bool transposed, int64_t rows, int64_t k,
                     int64_t cols, double alpha, double beta, const double *c, double (*round)(double))
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += left[i * k + l] * (transposed ? right[j * k + l] : right[l * cols + j]);
            out[i * cols + j] = round(alpha * sum + (c != NULL ? beta * c[i * cols + j] : 0));
        }
}

/* As torch's _zeropower_via_newtonschulz: a tall matrix is transposed. u is replaced. */
static void orthogonalize(double *u, int64_t rows, int64_t cols, double (*round)(double))
{
    static double x[N_MAX], next[N_MAX], a[96 * 96], b[96 * 96];
    const bool is_tall = rows > cols;
    const int64_t m = is_tall ? cols : rows, n = is_tall ? rows : cols;
    double norm = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            const double value = round(u[i * cols + j]);
            norm += value * value;
            x[is_tall ? j * rows + i : i * cols + j] = value;
        }
    norm = fmax(round(sqrt(norm)), 1e-7);
    for (int64_t i = 0; i < m * n; i++) x[i] = round(x[i] / norm);
    for (int step = 0; step < 5; step++) {
        multiply(a, x, x, true, m, n, m, 1, 0, NULL, round);
        multiply(b, a, a, false, m, m, m, coefficients[2], coefficients[1], a, round);
        multiply(next, b, x, false, m, m, n, 1, coefficients[0], x, round);
        memcpy(x, next, (size_t)(m * n) * sizeof *x);
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) u[i * cols + j] = x[is_tall ? j * rows + i : i * cols + j];
}

typedef struct problem {
    int64_t rows, cols;
    double momentum, lr, decay, grad_scale;
    bool nesterov, matches_rms;
    uint32_t seed;
} problem;

static double lr_ratio(const problem *p)
{
    const double rows = (double)p->rows, cols = (double)p->cols;
    return p->matches_rms ? 0.2 * sqrt(fmax(rows, cols)) : sqrt(fmax(1, rows / cols));
}

/* N_STEPS updates; the buffer and the master in double. */
static void refer(const problem *p, double (*round)(double), double *buffer, double *master)
{
    static double u[N_MAX];
    static float values[N_MAX];
    const int64_t n = p->rows * p->cols;
    const double ratio = lr_ratio(p);
    draw(values, n, 100 * p->seed + 1);
    for (int64_t i = 0; i < n; i++) buffer[i] = 0, master[i] = (double)values[i];
    for (uint32_t step = 0; step < N_STEPS; step++) {
        draw(values, n, 100 * p->seed + 2 + step);
        for (int64_t i = 0; i < n; i++) {
            const double g = (double)values[i] * p->grad_scale;
            buffer[i] += (1 - p->momentum) * (g - buffer[i]);
            u[i] = p->nesterov ? g + p->momentum * (buffer[i] - g) : buffer[i];
        }
        orthogonalize(u, p->rows, p->cols, round);
        for (int64_t i = 0; i < n; i++) master[i] += -p->lr * p->decay * master[i] - p->lr * ratio * u[i];
    }
}

/* The same by the optimizer. param follows the master, over the gradient. */
static void run(ps_backend *b, const ps_optimizer_setup *o, const problem *p, float *buffer, float *master)
{
    const int64_t n = p->rows * p->cols;
    int64_t bytes;
    float *grad;
    char *scratch;
    if (ps_optimizer_scratch_bytes(b, o, p->rows, p->cols, &bytes) != PS_OK) fail_msg("%s", ps_last_error());
    assert_int_equal(ps_mem_alloc((size_t)n, sizeof *grad, &grad), PS_OK);
    assert_int_equal(posix_memalign((void **)&scratch, 64, (size_t)bytes + 64), 0);
    memset(scratch, 0xff, (size_t)bytes + 64); /* NaNs */
    memset(buffer, 0, (size_t)n * sizeof *buffer);
    draw(master, n, 100 * p->seed + 1);
    for (uint32_t step = 0; step < N_STEPS; step++) {
        draw(grad, n, 100 * p->seed + 2 + step);
        const ps_optimizer_matrix m = {
            .all = {.param = grad,
                    .grad = grad,
                    .master = master,
                    .state = {buffer},
                    .n = n,
                    .weight_decay = (float)p->decay,
                    .param_dtype = PS_DTYPE_F32,
                    .grad_dtype = PS_DTYPE_F32},
            .rows = p->rows,
            .cols = p->cols,
            .scratch = scratch,
        };
        const ps_optimizer_step s = {.t = step + 1, .lr = (float)p->lr, .grad_scale = (float)p->grad_scale};
        if (ps_optimizer_update_whole(b, NULL, o, &s, &m) != PS_OK) fail_msg("%s", ps_last_error());
        assert_memory_equal(grad, master, (size_t)n * sizeof *grad);
    }
    for (int64_t i = bytes; i < bytes + 64; i++) assert_int_equal((unsigned char)scratch[i], 0xff);
    free(scratch);
    ps_mem_free(grad);
}

/* Of the master: the root of the mean square. *largest: of single elements, in units of lr. */
static double distance(const problem *p, const float *is, const double *want, double *largest)
{
    const int64_t n = p->rows * p->cols;
    double sum = 0;
    *largest = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = ((double)is[i] - want[i]) / p->lr;
        if (!(fabs(d) <= *largest)) *largest = fabs(d);
        sum += d * d;
    }
    return sqrt(sum / (double)n);
}

/* ---- tests ---- */

static ps_backend *backend_of(int i, char name[32])
{
    ps_backend *b = NULL;
    if (i > 1 + (int)ps_cpu_isa_detect()) return NULL;
    snprintf(name, 32, "%s", i == 0 ? "ref" : ps_cpu_isa_name((ps_cpu_isa)(i - 1)));
    const ps_status st = i == 0 ? ps_backend_create_ref(&b) : ps_backend_create_cpu((ps_cpu_isa)(i - 1), 2, &b);
    if (st != PS_OK) fail_msg("%s", ps_last_error());
    return b;
}

static const problem problems[] = {
    {24, 56, 0.95, 0.5, 0.1, 1, true, false, 0},   {65, 33, 0.95, 0.5, 0.1, 0.25, true, false, 0},
    {48, 48, 0.9, 0.25, 0, 1, false, false, 0},    {96, 130, 0.95, 0.5, 0.1, 1, true, true, 0},
    {1, 40, 0.5, 0.5, 0.1, 1, true, false, 0},     {40, 1, 0.5, 0.5, 0.1, 1, true, true, 0},
    {33, 32, 0.95, 0.5, 0.1, 1e-3, true, true, 0}, {4, 20011, 0.95, 0.5, 0.1, 1, true, false, 0}};

static ps_optimizer_setup setup_for(const problem *p, const char *gemms)
{
    char text[256];
    snprintf(text, sizeof text, "\"momentum\": %g, \"nesterov\": %s, \"adjust_lr_fn\": \"%s\", \"ns_gemms\": \"%s\"",
             p->momentum, p->nesterov ? "true" : "false", p->matches_rms ? "match_rms_adamw" : "original", gemms);
    return setup_of(text);
}

/* To 1e-5 of a step's length with fp32 products. */
static void test_iteration_in_double(void **state)
{
    (void)state;
    static double buffer[N_MAX], master[N_MAX];
    static float buffer_is[N_MAX], master_is[N_MAX];
    for (size_t k = 0; k < PS_ARRAY_LEN(problems); k++) {
        const problem *p = &problems[k];
        const ps_optimizer_setup o = setup_for(p, "fp32");
        ps_backend *b;
        char name[32];
        refer(p, exactly, buffer, master);
        for (int i = 0; (b = backend_of(i, name)) != NULL; i++) {
            double most;
            run(b, &o, p, buffer_is, master_is);
            const double is = distance(p, master_is, master, &most);
            print_message("%s: %lld x %lld: %.3g of a step, at most %.3g\n", name, (long long)p->rows,
                          (long long)p->cols, is, most);
            if (!(most <= 1e-5 * lr_ratio(p)))
                fail_msg("%s: %lld x %lld is %g steps off", name, (long long)p->rows, (long long)p->cols, most);
            for (int64_t j = 0; j < p->rows * p->cols; j++)
                if (!(fabs((double)buffer_is[j] - buffer[j]) <= 1e-6)) fail_msg("%s: buffer", name);
            ps_backend_destroy(b);
        }
    }
}

enum { N_DRAWS = 12, BACKENDS_MAX = 8 };

/* Over a number of draws no farther from the exact iteration than torch's, which rounds to bf16 what here is fp32. */
static void test_bf16_gemms(void **state)
{
    (void)state;
    static double buffer[N_MAX], master[N_MAX], torch[N_MAX];
    static float buffer_is[N_MAX], master_is[N_MAX], of_torch[N_MAX];
    for (size_t k = 0; k < PS_ARRAY_LEN(problems); k++) {
        double is[BACKENDS_MAX] = {0}, torch_is = 0, most;
        problem p = problems[k];
        const ps_optimizer_setup o = setup_for(&p, "bf16");
        ps_backend *b;
        char name[32];
        for (p.seed = 0; p.seed < N_DRAWS; p.seed++) {
            refer(&p, as_bf16, buffer, torch);
            refer(&p, exactly, buffer, master);
            for (int64_t j = 0; j < p.rows * p.cols; j++) of_torch[j] = (float)torch[j];
            torch_is += pow(distance(&p, of_torch, master, &most), 2);
            for (int i = 0; (b = backend_of(i, name)) != NULL; i++) {
                run(b, &o, &p, buffer_is, master_is);
                is[i] += pow(distance(&p, master_is, master, &most), 2);
                ps_backend_destroy(b);
            }
        }
        for (int i = 0; (b = backend_of(i, name)) != NULL; i++) {
            ps_backend_destroy(b);
            print_message("%s: %lld x %lld: %.3g of a step, torch %.3g\n", name, (long long)p.rows, (long long)p.cols,
                          sqrt(is[i] / N_DRAWS), sqrt(torch_is / N_DRAWS));
            assert_true(is[i] <= torch_is && torch_is > 0 && is[i] > 0);
        }
    }
}

static void test_threads(void **state)
{
    (void)state;
    static float buffer[2][N_MAX], master[2][N_MAX];
    static const char *const formats[] = {"fp32", "bf16"};
    for (size_t k = 0; k < 2 * PS_ARRAY_LEN(problems); k++) {
        const problem *p = &problems[k / 2];
        const ps_optimizer_setup o = setup_for(p, formats[k % 2]);
        for (int i = 0; i < 2; i++) {
            ps_backend *b = NULL;
            assert_int_equal(ps_backend_create_cpu(ps_cpu_isa_detect(), i == 0 ? 1 : 3, &b), PS_OK);
            run(b, &o, p, buffer[i], master[i]);
            ps_backend_destroy(b);
        }
        assert_memory_equal(buffer[0], buffer[1], (size_t)(p->rows * p->cols) * sizeof(float));
        assert_memory_equal(master[0], master[1], (size_t)(p->rows * p->cols) * sizeof(float));
    }
}

/* A matrix without a gradient only decays. */
static void test_zero(void **state)
{
    (void)state;
    enum { ROWS = 4, COLS = 8, N = ROWS * COLS };
    const ps_optimizer_setup o = setup_of("\"lr\": 1");
    ps_backend *b;
    char name[32];
    for (int i = 0; (b = backend_of(i, name)) != NULL; i++) {
        _Alignas(64) float grad[N] = {0}, buffer[N] = {0}, master[N];
        void *scratch;
        int64_t bytes;
        for (int k = 0; k < N; k++) master[k] = (float)k;
        assert_int_equal(ps_optimizer_scratch_bytes(b, &o, ROWS, COLS, &bytes), PS_OK);
        assert_int_equal(posix_memalign(&scratch, 64, (size_t)bytes), 0);
        const ps_optimizer_matrix m = {
            .all = {.param = grad, .grad = grad, .master = master, .state = {buffer}, .n = N, .weight_decay = 0.25f},
            .rows = ROWS,
            .cols = COLS,
            .scratch = scratch};
        assert_int_equal(
            ps_optimizer_update_whole(b, NULL, &o, &(ps_optimizer_step){.t = 1, .lr = 1, .grad_scale = 1}, &m), PS_OK);
        for (int k = 0; k < N; k++) assert_true(master[k] == (float)k * 0.75f && buffer[k] == 0);
        free(scratch);
        ps_backend_destroy(b);
    }
}

#define TEN "3.4445, 3.4445, 3.4445, 3.4445, 3.4445, 3.4445, 3.4445, 3.4445, 3.4445, 3.4445, "

/* Defaults of torch.optim.Muon; states of a matrix, and of other tensors. */
static void test_options(void **state)
{
    (void)state;
    const ps_optimizer_setup o = setup_of("\"lr\": 0.02"),
                             same = setup_of("\"momentum\": 0.95, \"nesterov\": true, \"weight_decay\": 0.1, "
                                             "\"ns_coefficients\": [3.4445, -4.775, 2.0315], "
                                             "\"ns_eps\": 1e-7, \"ns_steps\": 5, \"adjust_lr_fn\": \"original\", "
                                             "\"betas\": [0.9, 0.999], \"eps\": 1e-8");
    assert_memory_equal(o.number, same.number, sizeof o.number);
    assert_true(o.weight_decay == same.weight_decay && o.weight_decay == 0.1);
    assert_true(ps_optimizer_has_whole(&o));
    assert_int_equal(ps_optimizer_states_of(&o, true), 1);
    assert_int_equal(ps_optimizer_states_of(&o, false), 6);
    assert_int_equal(ps_optimizer_bytes_of(&o, ps_optimizer_states_of(&o, true), 10), 80);
    assert_int_equal(ps_optimizer_checkpoint_bytes(&o, 10, true, false), 120);
    assert_int_equal(ps_optimizer_checkpoint_bytes(&o, 10, false, true), 40);
    assert_string_equal(ps_optimizer_state_name(&o, 0), "momentum_buffer");
    static const char *const bad[][2] = {
        {"\"ns_coefficients\": \"3.4,-4.7\"", "expected three numbers"},
        {"\"ns_coefficients\": [3.4, -4.7]",
         "c.json:1:62: optimizer.params.ns_coefficients is \"3.4,-4.7\", expected three numbers"},
        {"\"ns_coefficients\": \"3.4,-4.7,2,1\"", "c.json:1:62: optimizer.params.ns_coefficients is \"3.4,-4.7,2,1\""},
        {"\"ns_coefficients\": \"3.4,-4.7,inf\"", "expected three numbers"},
        {"\"ns_coefficients\": [" TEN TEN TEN TEN "2]", "expected three numbers"},
        {"\"ns_coefficients\": [3.4, \"b\", 2]", "must be an array of numbers, or a string"},
        {"\"ns_coefficients\": [3.4445, 4.7750, 2.0315]",
         "c.json:1:62: optimizer.params.ns_coefficients is 3.4445,4.775,2.0315, with "
         "which step 2 of ns_steps 5 makes singular values as large as"},
        {"\"ns_steps\": 99, \"ns_coefficients\": [1.5, 0, 0]", "step 11 of ns_steps 99"},
        {"\"ns_steps\": 0", "ns_steps"},
        {"\"dampening\": 0.5", "optimizer.params.dampening has no effect with optimizer.type Muon"},
        {"\"state_format\": \"compact\"", "optimizer.params.state_format has no effect with optimizer.type Muon"},
        {"\"adjust_lr_fn\": \"none\"", "optimizer.params.adjust_lr_fn must be one of original, match_rms_adamw"},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(bad); i++) {
        ps_optimizer_setup none;
        assert_int_equal(read(bad[i][0], &none), PS_EINVAL);
        if (strstr(ps_last_error(), bad[i][1]) == NULL) fail_msg("%s: %s", bad[i][0], ps_last_error());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_iteration_in_double),
        cmocka_unit_test(test_bf16_gemms),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_zero),
        cmocka_unit_test(test_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
