/* A framework that computes something simple drives a client: what it trains is what plain Adam trains, with the same
 * bits in any memory. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "assert_status.h"
#include "base/base.h"
#include "base/mem.h"
#include "chunk/comm/comm.h"
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

/* "key=value", NULL after the last. */
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

static void build(network *n, ps_config *c, ps_comm *comm, ps_dtype given)
{
    assert_ok(ps_client_create(c, comm, &n->client));
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
        ps_client_release(n->client, n->number[t]);
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

static void step(network *n, bool is_recorded, bool may_be_recorded)
{
    ps_client_step_info info = {.struct_size = sizeof info};
    assert_ok(ps_client_step(n->client, &info));
    assert_int_equal(info.is_skipped, 0);
    if (!may_be_recorded) assert_int_equal(info.is_recorded, is_recorded);
}

/* Decoupled decay of 0, in double. */
static void check_plain(const network *n)
{
    for (int32_t t = 0; t < TENSORS; t++) {
        float *got = malloc((size_t)size_of(t) * sizeof *got);
        assert_ok(ps_client_read_state(n->client, n->number[t], NULL, 0, size_of(t), got));
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

static uint64_t hash_values(network *n)
{
    uint64_t sum = 0;
    for (int32_t t = 0; t < TENSORS; t++)
        for (const char *const *what = (const char *const[]){"", "exp_avg", "exp_avg_sq", NULL}; *what != NULL;
             what++) {
            float *got = malloc((size_t)size_of(t) * sizeof *got);
            assert_ok(ps_client_read_state(n->client, n->number[t], **what != 0 ? *what : NULL, 0, size_of(t), got));
            for (int64_t i = 0; i < size_of(t); i++) {
                uint32_t bits;
                memcpy(&bits, &got[i], sizeof bits);
                sum = sum * 31 + bits;
            }
            free(got);
        }
    return sum;
}

static double train(ps_config *c, ps_comm *comm, ps_dtype given, int n_micro, uint64_t *sum)
{
    network n;
    build(&n, c, comm, given);
    for (int s = 0; s < STEPS; s++) {
        for (int m = 0; m < n_micro; m++) run_micro(&n, false);
        /* the first time a parameter is read after its gradient, that one gets a place of its own; and where updates are
         * deferred the second step has those of the first. With several ranks the next one has its groups prefetched,
         * which gradients may come with in the one after it. */
        step(&n, s == 0, s == 1 || (comm != NULL && s <= 3));
    }
    if (n.dtype == PS_DTYPE_F32 && given == PS_DTYPE_F32 && n_micro == 1) check_plain(&n);
    *sum = hash_values(&n);
    ps_client_destroy(n.client);
    return n.loss;
}

#define ROOMY "memory.device=200MB", "memory.host=0", "memory.disk=0"
#define TIGHT "memory.device=1500KB", "memory.host=700KB", "memory.disk=100MB", "default_chunk_size=8192"
#define DISK "memory.device=1800KB", "memory.host=0", "memory.disk=100MB", "default_chunk_size=8192"

static void test_same_bits(void **state)
{
    (void)state;
    const int64_t live = ps_mem_live_bytes();
    const char *const formats[] = {"bf16.enabled=false", "bf16.enabled=true"};
    for (size_t k = 0; k < PS_ARRAY_LEN(formats); k++)
        for (ps_dtype given = PS_DTYPE_F32; given <= PS_DTYPE_BF16; given++)
            for (int n_micro = 1; n_micro <= 2; n_micro++) {
                const char *format = formats[k];
                uint64_t roomy, tight, disk;
                const double loss = train(CONFIG(format, ROOMY), NULL, given, n_micro, &roomy);
                assert_true(train(CONFIG(format, TIGHT), NULL, given, n_micro, &tight) == loss);
                assert_true(train(CONFIG(format, DISK), NULL, given, n_micro, &disk) == loss);
                assert_true(roomy == tight && roomy == disk);
            }
    assert_int_equal(ps_mem_live_bytes(), live);
}

/* ---- ranks ---- */

enum { RANKS_MAX = 3 };

typedef struct member {
    ps_comm *comm;
    const char *const *assignments;
    int n_micro;
    double loss;
    uint64_t sum;
} member;

static void *member_main(void *arg)
{
    member *m = arg;
    m->loss = train(config_of(m->assignments), m->comm, PS_DTYPE_F32, m->n_micro, &m->sum);
    ps_comm_close(m->comm);
    return NULL;
}

/* All ranks compute the same, so what they sum up is what one has. */
static uint64_t train_ranks(int n, int n_micro, const char *const *assignments, double *loss)
{
    ps_comm *comms[RANKS_MAX];
    member m[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    const ps_comm_options o = {.timeout_s = 30, .staging_bytes = 1 << 16};
    assert_ok(ps_comm_open_threads(&o, n, comms));
    for (int r = 0; r < n; r++) {
        m[r] = (member){.comm = comms[r], .assignments = assignments, .n_micro = n_micro};
        assert_int_equal(pthread_create(&threads[r], NULL, member_main, &m[r]), 0);
    }
    for (int r = 0; r < n; r++) assert_int_equal(pthread_join(threads[r], NULL), 0);
    for (int r = 1; r < n; r++) assert_true(m[r].sum == m[0].sum && m[r].loss == m[0].loss);
    *loss = m[0].loss;
    return m[0].sum;
}

#define ASSIGNED(...) ((const char *const[]){"optimizer.type=\"AdamW\"", "optimizer.params.lr=0.01", __VA_ARGS__, NULL})

static void test_ranks(void **state)
{
    (void)state;
    double one, several;
    uint64_t sum;
    for (int n_micro = 1; n_micro <= 2; n_micro++) {
        /* sums of two equal gradients, and their mean, are exact */
        one = train(CONFIG("bf16.enabled=true", ROOMY), NULL, PS_DTYPE_F32, n_micro, &sum);
        assert_true(train_ranks(2, n_micro, ASSIGNED("bf16.enabled=true", ROOMY), &several) == sum && several == one);
        assert_true(train_ranks(2, n_micro, ASSIGNED("bf16.enabled=true", DISK), &several) == sum && several == one);
        one = train(CONFIG(ROOMY), NULL, PS_DTYPE_F32, n_micro, &sum);
        (void)train_ranks(3, n_micro, ASSIGNED(TIGHT), &several);
        assert_true(fabs(several - one) <= 1e-5 * fabs(one));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
