/* Several ranks, as threads of this process: losses near those of one rank, the same bits under every budget, counted
 * bytes and peaks as planned. */
#include <math.h>

#include "chunk/comm/comm_impl.h"
#include "comm/shared_collectives.h"
#include "engine/profile_fixture.h"
#include "engine/ranks_fixture.h"
#include "temp_folder.h"

enum { MICRO_BATCHES = 12 /* of all ranks, a step */ };

/* ---- like one rank ----------------------------------------------------------------------------------------------- */

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

/* What one rank computes of the same micro-batches, one after the other; with each rank's mean over its own targets. */
static void test_losses_of_heads(void **state)
{
    (void)state;
    static const char *const heads[][4] = {
        {"model.head=sequence_classification", "model.num_labels=1", NOTHING, NOTHING},
        {"model.head=sequence_classification", "model.num_labels=4", "model.problem_type=multi_label_classification",
         NOTHING},
        {"model.head=token_classification", "model.num_labels=3", "train.class_weights=1,0.5,3",
         "train.label_smoothing=0.1"},
        {"model.head=question_answering", NOTHING, NOTHING, NOTHING},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(heads); i++) {
        const char *const *h = heads[i];
        rank_result alone = RANKS(1, 5, h[0], h[1], h[2], h[3], "gradient_accumulation_steps=2")->result;
        const rank_result *pair = &RANKS(2, 5, h[0], h[1], h[2], h[3])->result;
        for (int step = 0; step < 5; step++) {
            assert_true(fabs(pair->losses[step] - alone.losses[step]) <= 1e-6 * fabs(alone.losses[step]));
            assert_true(fabs(pair->norms[step] - alone.norms[step]) <= 1e-5 * alone.norms[step]);
        }
        const uint64_t hash = pair->hash;
        assert_true(RANKS(2, 5, h[0], h[1], h[2], h[3], "default_chunk_size=4096", "memory.device=900KB",
                          "memory.host=400KB", "memory.disk=20MB")
                        ->result.hash == hash);
    }
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
    for (int32_t n = 1; n <= RANKS_MAX; n++) {
        const rank_task *t = RANKS(n, 0, "default_chunk_size=2048", "memory.host=8MB", "comm.staging=65536");
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

/* ---- promises ---------------------------------------------------------------------------------------------------- */

static uint64_t hash_of(int32_t n, const char *a, const char *b, const char *c, const char *d)
{
    return RANKS(n, 4, "bf16.enabled=true", "memory.disk_path=/tmp", "comm.staging=65536", a, b, c, d)->result.hash;
}

#define VARIATION(...)                                                                                                 \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

/* What changes no bit. */
static const char *const variations[][3] = {
    VARIATION(NOTHING, NOTHING, NOTHING),
    VARIATION("default_chunk_size=4096", NOTHING, NOTHING),
    VARIATION("default_chunk_size=16384", "memory.prefetch=0", NOTHING),
    VARIATION("memory.device=500KB", "memory.host=2MB", "default_chunk_size=4096"),
    VARIATION("memory.device=500KB", "memory.disk=4MB", "default_chunk_size=4096"),
    VARIATION("activation_checkpointing.enabled=true", "memory.defer_updates=false"),
    VARIATION("activation_checkpointing.enabled=true", "client.opts.with_activation_offload=true", "memory.host=2MB"),
    VARIATION("memory.host=4MB", "optimizer.params.use_hybrid_adam=false", "default_chunk_size=4096"),
};

#define SUMMED "gradient_accumulation_steps=3"

static const char *const summed_variations[][3] = {
    VARIATION(SUMMED, NOTHING, NOTHING),
    VARIATION(SUMMED, "default_chunk_size=4096", NOTHING),
    VARIATION(SUMMED, "default_chunk_size=10240", "memory.defer_updates=false"),
    VARIATION(SUMMED, "memory.host=4MB", "optimizer.params.use_hybrid_adam=false"),
};

static void check_same_bits(int32_t n, const char *how, const char *const variation[3], uint64_t want)
{
    if (!is_my_share()) return;
    if (hash_of(n, how, variation[0], variation[1], variation[2]) == want) return;
    fail_msg("%d ranks, %s: other bits by %s, %s, %s", n, how, variation[0], variation[1], variation[2]);
}

static void test_same_bits(void **state)
{
    (void)state;
    static const char *const groups[] = {NOTHING, MSC};
    for (int32_t n = 2; n <= 3; n++) {
        const uint64_t want = hash_of(n, FOR_BITS, NOTHING, NOTHING, NOTHING);
        const uint64_t want_summed = hash_of(n, FOR_BITS, SUMMED, NOTHING, NOTHING);
        for (size_t g = 0; g < PS_ARRAY_LEN(groups); g++) {
            for (size_t i = 0; i < PS_ARRAY_LEN(variations); i++) check_same_bits(n, groups[g], variations[i], want);
            for (size_t i = 0; i < PS_ARRAY_LEN(summed_variations); i++)
                check_same_bits(n, groups[g], summed_variations[i], want_summed);
        }
    }
}

/* Gradients beside the parameters: reduced there, and dropped with the chunks of other ranks. */
static void without_whole_masters(const char *format)
{
#define UNCLIPPED "gradient_clipping=0", "train.max_nonfinite_steps=1"
    for (int32_t n = 2; n <= 3; n++) {
        const uint64_t want = hash_of(n, format, NOTHING, NOTHING, NOTHING);
        const uint64_t want_summed = hash_of(n, format, SUMMED, NOTHING, NOTHING);
        for (size_t i = 0; i < PS_ARRAY_LEN(variations); i++) check_same_bits(n, format, variations[i], want);
        for (size_t i = 0; i < PS_ARRAY_LEN(summed_variations); i++)
            check_same_bits(n, format, summed_variations[i], want_summed);
        assert_true(hash_of(n, format, UNCLIPPED, "memory.update_in_backward=always") ==
                    hash_of(n, format, UNCLIPPED, "memory.update_in_backward=never"));
    }
#undef UNCLIPPED
}

static void test_same_bits_compact_split(void **state)
{
    (void)state;
    without_whole_masters("optimizer.params.state_format=compact_split");
}

static void test_same_bits_bf16_stochastic(void **state)
{
    (void)state;
    without_whole_masters("optimizer.params.state_format=bf16_stochastic");
}

/* With the state of each element with its owner, and with none. */
static void test_same_bits_optimizers(void **state)
{
    (void)state;
    static const char *const options[][2] = {{"optimizer.type=SGD", "optimizer.params.momentum=0.9"},
                                             {"optimizer.type=SGD", "optimizer.params.momentum=0"},
                                             {"optimizer.type=Lion", "optimizer.params.weight_decay=0.1"},
                                             {"optimizer.type=AdamW", "optimizer.params.state_format=compact"}};
#define BETAS "optimizer.params.betas=[0.9, 0.999]"
    uint64_t want[PS_ARRAY_LEN(options)];
    for (size_t i = 0; i < PS_ARRAY_LEN(options); i++) {
        want[i] = hash_of(3, options[i][0], BETAS, options[i][1], FOR_BITS);
        assert_true(hash_of(3, options[i][0], BETAS, options[i][1], "default_chunk_size=4096") == want[i]);
        assert_true(hash_of(3, options[i][0], BETAS, options[i][1], "memory.disk=4MB") == want[i]);
        for (size_t k = 0; k < i; k++) assert_true(want[k] != want[i]);
    }
#undef BETAS
}

/* ---- counted ----------------------------------------------------------------------------------------------------- */

/* Bytes as planned, and 6 (p - 1) / p a parameter and rank, of all ranks together. */
static void test_bytes_and_peaks(void **state)
{
    (void)state;
    for (int msc = 0; msc < 2; msc++)
        for (int32_t n = 2; n <= RANKS_MAX; n++) {
            const rank_task *t = RANKS(n, 8, "bf16.enabled=true", "memory.device=600KB", "memory.host=2MB",
                                       "default_chunk_size=4096", msc ? MSC : NOTHING);
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

/* ---- profiles ---------------------------------------------------------------------------------------------------- */

static void check_profile(const char *path, int32_t rank, int32_t n, bool msc, const rank_result *r)
{
    enum { FIRST = 4, LAST = 6 };
    profile p = profile_read(path);
    assert_int_equal(int_at(p.facts, "rank"), rank);
    assert_int_equal(int_at(p.facts, "n_ranks"), n);
    assert_int_equal(p.first_step, FIRST);
    assert_int_equal(p.last_step, LAST);
    assert_true(p.n_collectives > 0);
    int64_t sent[LAST + 1] = {0};
    int n_gathers = 0, n_reductions = 0;
    size_t i;
    json_t *e;
    json_array_foreach(p.events, i, e)
    {
        if (!is_category(e, "collective")) continue;
        const int step = step_of(&p, span_of(e));
        assert_in_range(step, FIRST, LAST);
        assert_int_equal(int_at(e, "pid"), rank);
        assert_string_equal(text_at(json_object_get(e, "args"), "group"), "world");
        sent[step] += int_at(json_object_get(e, "args"), "bytes");
        n_gathers += strcmp(text_at(e, "name"), msc ? "broadcast" : "all-gather") == 0;
        n_reductions += strcmp(text_at(e, "name"), msc ? "reduction" : "reduce-scatter") == 0;
    }
    assert_true(n_gathers > 0 && n_reductions > 0);
    for (int step = FIRST; step <= LAST; step++)
        assert_int_equal(sent[step], r->forecast.moved_bytes[PS_LINK_COLLECTIVES]);
    const json_t *moved = json_object_get(json_object_get(p.facts, "measured"), "moved_bytes");
    assert_int_equal(int_at(moved, "collectives"), r->forecast.moved_bytes[PS_LINK_COLLECTIVES]);
    json_decref(p.root);
}

/* Each rank's collectives, one after the other, and its waits for them, none of which is in an operator's time. */
static void test_profiles(void **state)
{
    (void)state;
    if (OVER_DISCRETE) skip(); /* copies of the step before reach into the first that is recorded */
    const temp_folder f = temp_folder_make();
    char option[160];
    snprintf(option, sizeof option, "profile.path=%s", temp_folder_file(&f, "profile").text);
    for (int msc = 0; msc < 2; msc++)
        for (int32_t n = 2; n <= 3; n++) {
            const rank_task *t = RANKS(n, 7, "bf16.enabled=true", "memory.device=600KB", "memory.host=2MB",
                                       "default_chunk_size=4096", msc ? MSC : NOTHING, option, "profile.steps=4,6");
            for (int32_t i = 0; i < n; i++) {
                char name[32];
                snprintf(name, sizeof name, "profile.rank-%d", i);
                check_profile(temp_folder_file(&f, name).text, i, n, msc, &t[i].result);
            }
        }
    temp_folder_remove(&f);
}

/* ---- collectives of chunks --------------------------------------------------------------------------------------- */

static shared_hub hub;

static ps_status train_by_another(ps_engine *e, ps_config *c, rank_task *t)
{
    ps_collectives *x = shared_create(&hub, ps_comm_rank(t->comm));
    ps_comm_set_collectives(t->comm, x);
    PS_TRY(rank_train(e, c, t));
    const shared_rank *r = (const shared_rank *)x;
    if (r->n_begun > 0 && r->n_after == r->n_begun) return PS_OK;
    return PS_FAIL(PS_ESTATE, "%lld of %lld transfers come after what computes", (long long)r->n_after,
                   (long long)r->n_begun);
}

/* The same bits without a chunk in any message; and each transfer waits for kernels that a device may do later. */
static void test_other_collectives(void **state)
{
    (void)state;
    if (OVER_DISCRETE) skip(); /* it looks into payloads */
    static const char *const groups[] = {NOTHING, MSC};
    for (int i = 0; i < 2; i++) {
        const rank_task *t = RANKS(3, 3, "bf16.enabled=true", "gradient_accumulation_steps=2", groups[i]);
        const uint64_t want = t[0].result.hash;
        assert_true(t[0].result.sent_bytes > 0);
        shared_hub_init(&hub, 3);
        t = run_ranks(3, 3, train_by_another, CHANGES("bf16.enabled=true", "gradient_accumulation_steps=2", groups[i]));
        shared_hub_deinit(&hub);
        assert_true(t[0].result.hash == want);
        assert_int_equal(t[0].result.sent_bytes, 0);
    }
}

/* ---- what waits -------------------------------------------------------------------------------------------------- */

/* Where the device works later, it waits for other ranks, and the host does not until it reads results. */
static void test_the_host_does_not_wait(void **state)
{
    (void)state;
    static const char *const groups[] = {NOTHING, MSC};
    if (!OVER_DISCRETE) skip();
    for (size_t i = 0; i < PS_ARRAY_LEN(groups); i++)
        run_ranks(2, 0, rank_train_ahead,
                  CHANGES("bf16.enabled=true", "memory.device=500KB", "memory.host=2MB", "default_chunk_size=4096",
                          groups[i]));
}

/* ---- a rank that is no more -------------------------------------------------------------------------------------- */

/* A device that waits for what that rank was to send gets the error, and its host then. */
static void test_a_rank_vanishes(void **state)
{
    (void)state;
    rank_timeout_s = 0.5;
    const rank_task *t = try_ranks(ps_model_from_config, 3, 0, rank_vanish, CHANGES("bf16.enabled=true"));
    rank_timeout_s = 20;
    for (int32_t i = 0; i < 3; i++) {
        const rank_result *r = &t[i].result;
        assert_int_equal(r->st, PS_ECOMM);
        const char *const want = i == 1 ? "has vanished" : "rank 1 (";
        if (strstr(r->error, want) == NULL) fail_msg("rank %d: %s", i, r->error);
    }
}

/* A program that closes before it destroys: the engine has kept the communicator. */
static void *close_first(void *arg)
{
    rank_task *t = arg;
    ps_engine *e = NULL;
    ps_config *c = NULL;
    rank_result *r = &t->result;
    r->st = rank_config(CHANGES(NOTHING), &c);
    if (r->st == PS_OK) r->st = ps_engine_create(t->model, c, c, PS_FOR_TRAINING, t->comm, &e);
    ps_comm_close(t->comm);
    if (r->st == PS_OK) r->st = rank_step(e, t, 0);
    if (r->st == PS_OK) r->st = ps_engine_get_weights_xxh3(e, &r->hash);
    if (r->st != PS_OK) snprintf(r->error, sizeof r->error, "%s", ps_last_error());
    ps_engine_destroy(e);
    ps_config_destroy(c);
    return NULL;
}

static void test_closing_first(void **state)
{
    enum { N = 2 };
    rank_task tasks[N];
    ps_comm *comms[N];
    pthread_t threads[N];
    (void)state;
    const uint64_t hash = RANKS(N, 1, NOTHING)[0].result.hash;
    assert_ok(ps_comm_open_threads(
        &(ps_comm_options){.timeout_s = rank_timeout_s, .staging_bytes = RANKS_STAGING_BYTES}, N, comms));
    for (int32_t i = 0; i < N; i++) {
        tasks[i] = (rank_task){.comm = comms[i], .model = ps_model_from_config};
        assert_int_equal(pthread_create(&threads[i], NULL, close_first, &tasks[i]), 0);
    }
    for (int32_t i = 0; i < N; i++) pthread_join(threads[i], NULL);
    for (int32_t i = 0; i < N; i++) {
        if (tasks[i].result.st != PS_OK) fail_msg("rank %d: %s", i, tasks[i].result.error);
        assert_true(tasks[i].result.hash == hash);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_beginning),
        cmocka_unit_test(test_closing_first),
        cmocka_unit_test(test_losses_f32),
        cmocka_unit_test(test_losses_bf16),
        cmocka_unit_test(test_losses_of_heads),
        cmocka_unit_test(test_one_micro_batch),
        cmocka_unit_test(test_same_bits_optimizers),
        cmocka_unit_test(test_same_bits_compact_split),
        cmocka_unit_test(test_same_bits_bf16_stochastic),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_bytes_and_peaks),
        cmocka_unit_test(test_profiles),
        cmocka_unit_test(test_other_collectives),
        cmocka_unit_test(test_a_rank_vanishes),
        cmocka_unit_test(test_the_host_does_not_wait),
    };
    return RUN_ON_BACKENDS(tests);
}
