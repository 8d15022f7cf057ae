/* A framework that computes something simple drives a client: what it trains is what plain Adam trains, with the same
 * bits in any memory. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "assert_status.h"
#include "base/base.h"
#include "base/mem.h"
#include "patrickstar_client.h"
#include "patrickstar_own.h"

enum { TENSORS = 12, STEPS = 6 };

static const int64_t shapes[TENSORS][2] = {{5000, 16}, {128, 64}, {64, 1},    {300, 100}, {100, 1}, {1, 7},
                                           {64, 2048}, {2048, 1}, {333, 111}, {17, 1},    {96, 96}, {1, 1}};

typedef struct network {
    ps_client *client;
    ps_dtype dtype;
    int32_t number[TENSORS];
    double loss;
} network;

static float first_value(int32_t t, int64_t i)
{
    return (float)((double)((i * 7919 + t * 104729) % 2003) / 1001.5 - 1.0);
}

static int64_t size_of(int32_t t)
{
    return shapes[t][0] * shapes[t][1];
}

#define CONFIG(...)                                                                                                    \
    config_of((const char *const[]){"optimizer.type=\"AdamW\"", "optimizer.params.lr=0.01", __VA_ARGS__, NULL})

/* "key=value", NULL behind the last. */
static ps_config *config_of(const char *const *assignments)
{
    ps_config *c = NULL;
    char key[128];
    assert_ok(ps_config_create(&c));
    for (; *assignments != NULL; assignments++) {
        const char *value = strchr(*assignments, '=');
        snprintf(key, sizeof key, "%.*s", (int)(value - *assignments), *assignments);
        assert_ok(ps_config_set(c, key, value + 1));
    }
    return c;
}

static void build(network *n, ps_config *c, ps_dtype given)
{
    assert_ok(ps_client_create(c, NULL, &n->client));
    ps_config_destroy(c);
    for (int32_t t = 0; t < TENSORS; t++) {
        char name[32];
        void *values;
        snprintf(name, sizeof name, "layer.%d.weight", t);
        const ps_client_tensor x = {
            .struct_size = sizeof x, .name = name, .shape = shapes[t], .n_dims = 2, .dtype = given};
        assert_ok(ps_client_add(n->client, &x, &n->number[t], &values));
        for (int64_t i = 0; i < size_of(t); i++) {
            const float v = first_value(t, i);
            ps_from_floats(given, values, i, 1, &v);
        }
        ps_client_rest(n->client, n->number[t]);
    }
    assert_ok(ps_client_begin(n->client));
    ps_client_info info = {.struct_size = sizeof info};
    assert_ok(ps_client_get_info(n->client, &info));
    n->dtype = info.dtype;
}

/* loss = sum of w^2 / 2 + sum of w, whose gradient is w + 1: forward reads all, backward in the other order. */
static void run_micro(network *n, bool reverses)
{
    ps_client_place p = {.struct_size = sizeof p};
    n->loss = 0;
    for (int32_t k = 0; k < 2 * TENSORS; k++) {
        const bool is_backward = k >= TENSORS;
        const int32_t i = is_backward ? 2 * TENSORS - 1 - k : k, t = reverses ? TENSORS - 1 - i : i;
        char label[32];
        snprintf(label, sizeof label, "layer.%d", t);
        assert_ok(ps_client_moment(n->client, is_backward ? PS_CLIENT_BACKWARD : PS_CLIENT_FORWARD, label, 4096 * i));
        assert_ok(ps_client_pin(n->client, n->number[t], PS_CLIENT_PARAM, PS_CLIENT_READ, &p));
        float *g = malloc((size_t)size_of(t) * sizeof *g);
        assert_int_equal(p.dtype, n->dtype);
        ps_to_floats(p.dtype, p.address, 0, size_of(t), g);
        for (int64_t j = 0; j < size_of(t) && !is_backward; j++)
            n->loss += (double)g[j] * (double)g[j] / 2 + (double)g[j];
        for (int64_t j = 0; j < size_of(t); j++) g[j] += 1;
        ps_client_unpin(n->client, n->number[t], PS_CLIENT_PARAM);
        if (is_backward) assert_ok(ps_client_give_gradient(n->client, n->number[t], g, PS_DTYPE_F32, 0));
        free(g);
    }
}

static void step(network *n, bool is_watched)
{
    ps_client_step_info info = {.struct_size = sizeof info};
    assert_ok(ps_client_step(n->client, &info));
    assert_int_equal(info.is_skipped, 0);
    assert_int_equal(info.is_watched, is_watched);
}

/* Decoupled decay of 0, in double. */
static void check_plain(const network *n)
{
    for (int32_t t = 0; t < TENSORS; t++) {
        float *got = malloc((size_t)size_of(t) * sizeof *got);
        assert_ok(ps_client_read(n->client, n->number[t], NULL, 0, size_of(t), got));
        for (int64_t i = 0; i < size_of(t); i += 37) {
            double w = (double)first_value(t, i), m = 0, v = 0;
            for (int s = 1; s <= STEPS; s++) {
                const double g = w + 1;
                m = 0.9 * m + 0.1 * g;
                v = 0.999 * v + 0.001 * g * g;
                w -= 0.01 * (m / (1 - pow(0.9, s))) / (sqrt(v / (1 - pow(0.999, s))) + 1e-8);
            }
            if (fabs(w - (double)got[i]) > 2e-5)
                fail_msg("tensor %d, %lld: %.9g, not %.9g", t, (long long)i, (double)got[i], w);
        }
        free(got);
    }
}

static double train(ps_config *c, ps_dtype given, uint64_t *sum)
{
    const int64_t live = ps_mem_live_bytes();
    network n;
    build(&n, c, given);
    for (int s = 0; s < STEPS; s++) {
        run_micro(&n, false);
        step(&n, s == 0);
    }
    if (n.dtype == PS_DTYPE_F32 && given == PS_DTYPE_F32) check_plain(&n);
    *sum = 0;
    for (int32_t t = 0; t < TENSORS; t++)
        for (const char *const *what = (const char *const[]){"", "exp_avg", "exp_avg_sq", NULL}; *what != NULL;
             what++) {
            float *got = malloc((size_t)size_of(t) * sizeof *got);
            assert_ok(ps_client_read(n.client, n.number[t], **what != 0 ? *what : NULL, 0, size_of(t), got));
            for (int64_t i = 0; i < size_of(t); i++) {
                uint32_t bits;
                memcpy(&bits, &got[i], sizeof bits);
                *sum = *sum * 31 + bits;
            }
            free(got);
        }
    ps_client_destroy(n.client);
    (void)live;
    return n.loss;
}

#define ROOMY "memory.device=200MB", "memory.host=0", "memory.disk=0"
#define TIGHT "memory.device=1500KB", "memory.host=700KB", "memory.disk=100MB", "default_chunk_size=8192"
#define DISK "memory.device=1800KB", "memory.host=0", "memory.disk=100MB", "default_chunk_size=8192"

static void test_same_bits(void **state)
{
    (void)state;
    const char *const formats[] = {"bf16.enabled=false", "bf16.enabled=true"};
    for (size_t k = 0; k < PS_ARRAY_LEN(formats); k++)
        for (ps_dtype given = PS_DTYPE_F32; given <= PS_DTYPE_BF16; given++) {
            const char *format = formats[k];
            uint64_t roomy, tight, disk;
            const double loss = train(CONFIG(format, ROOMY), given, &roomy);
            assert_true(train(CONFIG(format, TIGHT), given, &tight) == loss);
            assert_true(train(CONFIG(format, DISK), given, &disk) == loss);
            assert_true(roomy == tight && roomy == disk);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
