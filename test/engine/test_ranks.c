/* Several ranks, as threads of this process: losses near those of one rank, the same bits under every budget, counted bytes and
 * peaks as planned. */
#include <math.h>
#include <pthread.h>

#include "comm/comm.h"
#include "engine/engine.h"
#include "engine/engine_fixture.h"

enum { RANKS_MAX = 4, MICRO_BATCHES = 12 /* of all ranks, a step */ };

typedef struct rank_result {
    ps_status st;
    char error[512];
    uint64_t hash;
    double losses[MAX_STEPS], norms[MAX_STEPS];
    ps_memory_info memory;
    ps_store_stats store; /* after the last step */
    int64_t sent_bytes;   /* of the last step, as the communicator counts them */
    ps_forecast forecast;
    int64_t chunk_elements;
    bool fits_alone;
} rank_result;

typedef struct rank_task {
    ps_comm *comm;
    const char *const *changes;
    int n_steps;
    rank_result result;
} rank_task;

static ps_status train_rank(ps_engine *e, rank_task *t)
{
    rank_result *r = &t->result;
    const int32_t n = ps_comm_size(t->comm), rank = ps_comm_rank(t->comm);
    int64_t B, T, K, V;
    ps_engine_get_shape(e, &B, &T, &K, &V);
    int32_t tokens[64], targets[64];
    for (int step = 0; step < t->n_steps; step++) {
        const int64_t sent = ps_comm_get_stats(t->comm).sent_bytes;
        for (int64_t k = 0; k < K; k++) {
            fill_batch(tokens, targets, B, T, TINY_VOCABULARY, (step * K + k) * n + rank);
            PS_TRY(ps_forward(e, &(ps_batch){.tokens = tokens, .targets = targets}, NULL));
            PS_TRY(ps_backward(e));
            PS_TRY(ps_step(e));
        }
        ps_step_info info;
        ps_engine_get_step_info(e, &info);
        r->losses[step] = info.loss;
        r->norms[step] = info.grad_norm;
        r->sent_bytes = ps_comm_get_stats(t->comm).sent_bytes - sent;
    }
    ps_engine_get_memory_info(e, &r->memory);
    r->store = ps_store_get_stats(e->tiers.store);
    return ps_engine_weights_xxh3(e, &r->hash);
}

static void *run_rank(void *arg)
{
    rank_task *t = arg;
    rank_result *r = &t->result;
    ps_engine *e = NULL;
    ps_config *c = NULL;
    r->st = ps_config_parse(tiny_config, "tiny", &c);
    for (const char *const *change = t->changes; r->st == PS_OK && *change != NULL; change++) {
        char key[128];
        const char *equals = strchr(*change, '=');
        snprintf(key, sizeof key, "%.*s", (int)(equals - *change), *change);
        r->st = ps_config_set(c, key, equals + 1);
    }
    if (r->st == PS_OK) r->st = ps_engine_create(ps_model_from_config, c, c, true, t->comm, &e);
    if (r->st == PS_OK) {
        r->forecast = e->shape->forecast;
        r->chunk_elements = e->blueprint->layout->chunk_elements;
        r->st = train_rank(e, t);
    }
    if (r->st != PS_OK) snprintf(r->error, sizeof r->error, "%s", ps_last_error());
    ps_engine_destroy(e);
    ps_config_destroy(c);
    ps_comm_close(t->comm);
    return NULL;
}

/* The results of n ranks; those of the caller are valid until the next call. */
static const rank_task *train_ranks(int32_t n, int n_steps, const char *const *changes)
{
    static rank_task tasks[RANKS_MAX];
    ps_comm *comms[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    assert_ok(ps_comm_open_threads(&(ps_comm_options){.timeout_s = 20, .staging_bytes = 1 << 16}, n, comms));
    for (int32_t i = 0; i < n; i++) {
        tasks[i] = (rank_task){.comm = comms[i], .changes = changes, .n_steps = n_steps};
        assert_int_equal(pthread_create(&threads[i], NULL, run_rank, &tasks[i]), 0);
    }
    for (int32_t i = 0; i < n; i++) pthread_join(threads[i], NULL);
    for (int32_t i = 0; i < n; i++)
        if (tasks[i].result.st != PS_OK) fail_msg("%d ranks, rank %d: %s", n, i, tasks[i].result.error);
    return tasks;
}

#define RANKS(n, n_steps, ...) train_ranks(n, n_steps, (const char *const[]){__VA_ARGS__, NULL})

/* ---- like one rank --------------------------------------------------------------------------------------------------- */

static void check_losses(const char *dtype, const char *reuse, double tolerance)
{
    enum { STEPS = 20 };
    double alone[STEPS];
    for (int32_t n = 1; n <= RANKS_MAX; n++) {
        char accumulation[64];
        snprintf(accumulation, sizeof accumulation, "gradient_accumulation_steps=%d", MICRO_BATCHES / n);
        const rank_task *t = RANKS(n, STEPS, "train_micro_batch_size_per_gpu=1", accumulation, dtype, reuse);
        for (int step = 0; step < STEPS; step++) {
            if (n == 1) alone[step] = t[0].result.losses[step];
            const double off = fabs(t[0].result.losses[step] / alone[step] - 1);
            if (!(off <= tolerance)) fail_msg("%d ranks, %s, step %d: loss off by %g", n, dtype, step, off);
        }
        for (int32_t i = 1; i < n; i++) {
            assert_true(t[i].result.hash == t[0].result.hash);
            assert_memory_equal(t[i].result.losses, t[0].result.losses, sizeof t[0].result.losses);
            assert_memory_equal(t[i].result.norms, t[0].result.norms, sizeof t[0].result.norms);
        }
    }
}

static void test_losses_f32(void **state)
{
    (void)state;
    check_losses("bf16.enabled=false", "train.seed=7", 1e-6);
}

static void test_losses_bf16(void **state)
{
    (void)state;
    check_losses("bf16.enabled=true", "train.seed=7", 1e-3);
}

/* One micro-batch a rank: gradients overwrite parameters. */
static void test_one_micro_batch(void **state)
{
    (void)state;
    enum { STEPS = 20 };
    for (int32_t n = 2; n <= RANKS_MAX; n++) {
        char accumulation[64];
        snprintf(accumulation, sizeof accumulation, "gradient_accumulation_steps=%d", n);
        double alone[STEPS];
        memcpy(alone, RANKS(1, STEPS, accumulation)[0].result.losses, sizeof alone);
        const rank_result *r = &RANKS(n, STEPS, "train.seed=7")[0].result;
        for (int step = 0; step < STEPS; step++) {
            const double off = fabs(r->losses[step] / alone[step] - 1);
            if (!(off <= 1e-6)) fail_msg("%d ranks, step %d: loss off by %g", n, step, off);
        }
    }
}

/* Parameters begin with the same bits on however many ranks, and are owned, not copied: embeddings too. */
static void test_beginning(void **state)
{
    (void)state;
    const uint64_t want = RANKS(1, 0, "train.seed=7")[0].result.hash;
    for (int32_t n = 1; n <= RANKS_MAX; n++)
        for (int released = 0; released < 2; released++) {
            const rank_task *t = RANKS(n, 0, "default_chunk_size=2048", "memory.host=8MB", "comm.staging=65536",
                                       released ? "release_after_init=true" : "release_after_init=false");
            int64_t largest = 0;
            for (int32_t i = 0; i < n; i++) {
                assert_true(t[i].result.hash == want);
                const ps_store_stats *s = &t[i].result.store;
                largest = ps_max_i64(largest, s->chunk_bytes[PS_TIER_DEVICE] + s->chunk_bytes[PS_TIER_HOST]);
            }
            /* two lists of four begin; a chunk of each and page rounding are what shares may differ by */
            const ps_memory_info *m = &t[0].result.memory;
            const int64_t share = m->n_chunks * 2 * m->chunk_elements * 4 / n;
            if (largest > share + 4 * m->chunk_elements * 4)
                fail_msg("%d ranks: one holds %lld bytes, of %lld each", n, (long long)largest, (long long)share);
        }
}

/* ---- promises -------------------------------------------------------------------------------------------------------- */

static uint64_t hash_of(int32_t n, const char *a, const char *b, const char *c, const char *d)
{
    const rank_task *t = RANKS(n, 4, "bf16.enabled=true", "memory.disk_path=/tmp", "comm.staging=65536", a, b, c, d);
    for (int32_t i = 0; i < n; i++) {
        const rank_result *r = &t[i].result;
        assert_true(r->hash == t[0].result.hash);
        assert_true(r->memory.device_peak_bytes <= r->memory.device_budget_bytes);
        assert_true(r->memory.host_peak_bytes <= r->memory.host_budget_bytes);
        assert_true(r->memory.disk_peak_bytes <= r->memory.disk_budget_bytes);
    }
    return t[0].result.hash;
}

static void test_same_bits(void **state)
{
    (void)state;
#define NOTHING "train.seed=7"
#define MSC "client.opts.with_mem_saving_comm=true"
    for (int32_t n = 2; n <= 3; n++) {
        const uint64_t want = hash_of(n, NOTHING, NOTHING, NOTHING, NOTHING);
        assert_true(hash_of(n, MSC, NOTHING, NOTHING, NOTHING) == want);
        for (int msc = 0; msc < 2; msc++) {
            const char *const how = msc ? MSC : NOTHING;
            assert_true(hash_of(n, how, "default_chunk_size=4096", NOTHING, NOTHING) == want);
            assert_true(hash_of(n, how, "default_chunk_size=16384", "memory.prefetch=0", NOTHING) == want);
            assert_true(hash_of(n, how, "memory.device=500KB", "memory.host=2MB", "default_chunk_size=4096") == want);
            assert_true(hash_of(n, how, "memory.device=500KB", "memory.disk=4MB", "default_chunk_size=4096") == want);
            assert_true(hash_of(n, how, "activation_checkpointing.enabled=true", "memory.defer_updates=false",
                                "memory.policy=lru") == want);
        }
    }
}

/* ---- counted --------------------------------------------------------------------------------------------------------- */

/* Bytes as planned, and 6 (p - 1) / p a parameter and rank, of all ranks together. */
static void test_bytes_and_peaks(void **state)
{
    (void)state;
    for (int msc = 0; msc < 2; msc++)
        for (int32_t n = 2; n <= RANKS_MAX; n++) {
            const rank_task *t = RANKS(n, 8, "bf16.enabled=true", "memory.device=600KB", "memory.host=2MB",
                                       "comm.staging=65536", "default_chunk_size=4096", msc ? MSC : NOTHING);
            int64_t sent = 0, parameters = t[0].result.memory.parameters;
            for (int32_t i = 0; i < n; i++) {
                const rank_result *r = &t[i].result;
                assert_int_equal(r->sent_bytes, r->forecast.moved_bytes[PS_LINK_COLLECTIVES]);
                assert_int_equal(r->memory.device_peak_bytes, r->forecast.peak_bytes[PS_TIER_DEVICE]);
                assert_int_equal(r->memory.host_peak_bytes, r->forecast.peak_bytes[PS_TIER_HOST]);
                sent += r->sent_bytes;
            }
            const double each = (double)sent / (double)(6 * (n - 1) * parameters);
            if (each < 1.0 || each > 1.01) fail_msg("%d ranks: %.4f times 6 (p - 1) / p bytes a parameter", n, each);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_beginning),   cmocka_unit_test(test_losses_f32),
        cmocka_unit_test(test_losses_bf16), cmocka_unit_test(test_one_micro_batch),
        cmocka_unit_test(test_same_bits),   cmocka_unit_test(test_bytes_and_peaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
