/* test_blocking.c - where the host blocks in a step, over the fake driver. Without a disk nowhere but where it reads
 * what the step amounts to, once, however little memory there is; with one, where the disk's transfers are due. What it
 * waits for pages of a GPU's is not counted: whose former use is not over they cannot be mapped elsewhere where addresses
 * are those of a run (src/device/cuda/gpu_memory.c), or be unlocked (src/device/cuda/gpu_pinned.c). */
#include "cuda/fake_cpu.h"
#include "engine/ranks_fixture.h"

#include "chunk/store_stats.h"
#include "device/blocking.h"

#define FORMAT "bf16.enabled=true"
#define SMALL_CHUNKS "default_chunk_size=2048"
/* Several ranks issue more commands for a chunk: with these a step has fewer than a stream takes before it is full. */
#define FEWER_CHUNKS "default_chunk_size=4096"

enum { WARM_STEPS = 2, STEPS = 3 };

static ps_blocked waits_since(const ps_blocked *before)
{
    ps_blocked n = ps_blocked_so_far();
    for (int why = 0; why < PS_BLOCK_COUNT; why++) n.n[why] -= before->n[why];
    n.n[PS_BLOCK_PAGE] = 0;
    return n;
}

typedef struct stops {
    ps_blocked before_end; /* in forward, backward and what a step of not the last micro-batch does */
    ps_blocked end;        /* in the ps_step that ends a step */
    int64_t moved_bytes[PS_LINK_COUNT];
} stops;

static void add(ps_blocked *sum, const ps_blocked *n)
{
    for (int why = 0; why < PS_BLOCK_COUNT; why++) sum->n[why] += n->n[why];
}

static stops count_stops(const char *const *changes, uint64_t seed, int64_t device_bytes)
{
    stops sum = {0};
    char text[32];
    fake_cpu_begin(&(fake_options){.seed = seed, .page_bytes = PS_PAGE_BYTES});
    ps_config *c = tiny_with(changes);
    assert_ok(ps_config_set(c, "train.backend", "cuda"));
    snprintf(text, sizeof text, "%lld", (long long)device_bytes);
    assert_ok(ps_config_set(c, "memory.device", text));
    ps_engine *e = engine_of(c);
    int64_t B, T, K, V;
    ps_engine_get_shape(e, &B, &T, &K, &V);
    int32_t tokens[2 * 16], targets[2 * 16];
    assert_int_equal(B * T, 2 * 16);
    ps_store_stats before_all = {0};
    for (int step = 0; step < WARM_STEPS + STEPS; step++) {
        if (step == WARM_STEPS) before_all = ps_store_get_stats(e->tiers.store);
        for (int64_t k = 0; k < K; k++) {
            fill_batch(tokens, targets, B, T, TINY_VOCABULARY, step * K + k);
            const ps_blocked begin = ps_blocked_so_far();
            assert_ok(ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets},
                                 NULL));
            assert_ok(ps_backward(e));
            if (k + 1 < K) assert_ok(ps_step(e));
            const ps_blocked before_end = waits_since(&begin), middle = ps_blocked_so_far();
            if (k + 1 == K) assert_ok(ps_step(e));
            const ps_blocked end = waits_since(&middle);
            if (step >= WARM_STEPS) add(&sum.before_end, &before_end);
            if (step >= WARM_STEPS) add(&sum.end, &end);
        }
    }
    const ps_store_stats s = ps_store_get_stats(e->tiers.store);
    for (int l = 0; l < PS_LINK_COUNT; l++) sum.moved_bytes[l] = s.moved_bytes[l] - before_all.moved_bytes[l];
    ps_engine_destroy(e);
    ps_config_destroy(c);
    assert_true(fake_cpu_end());
    return sum;
}

/* The least that the refusal names. */
static int64_t least_device(const char *const *changes)
{
    ps_config *c = tiny_with(changes);
    ps_engine *e = NULL;
    fake_cpu_begin(&(fake_options){.page_bytes = PS_PAGE_BYTES});
    assert_ok(ps_config_set(c, "train.backend", "cuda"));
    assert_ok(ps_config_set(c, "memory.device", "4096"));
    assert_int_equal(ps_initialize_engine(ps_model_from_config, c, 0, c, &e), PS_EBUDGET);
    ps_config_destroy(c);
    assert_true(fake_cpu_end());
    return named_bytes(ps_last_error(), "memory.device=");
}

/* None but these reasons, of which a bit each. */
static void expect_only(const char *what, const char *when, const ps_blocked *n, unsigned reasons)
{
    for (int why = 0; why < PS_BLOCK_COUNT; why++)
        if (n->n[why] > 0 && (reasons >> why & 1) == 0)
            fail_msg("%s: %s, the host waits %lld times for %s", what, when, (long long)n->n[why],
                     ps_block_name((ps_block)why));
}

#define CHANGES(...) ((const char *const[]){__VA_ARGS__, NULL})
#define SGD "optimizer.type=SGD", "optimizer.params.betas=[0.9, 0.999]", "optimizer.params.momentum=0.9"

/* A variation; in much memory and in the least, for each seed. */
static void expect_reads(const char *what, const char *const *changes, int n_reads)
{
    const int64_t least = least_device(changes), budgets[] = {least, least + 100000};
    for (uint64_t seed = 1; seed <= 3; seed++)
        for (size_t i = 0; i < PS_ARRAY_LEN(budgets); i++) {
            const stops s = count_stops(changes, seed, budgets[i]);
            expect_only(what, "before a step ends", &s.before_end, 0);
            expect_only(what, "when a step ends", &s.end, 1u << PS_BLOCK_READ);
            assert_int_equal(s.end.n[PS_BLOCK_READ], STEPS * n_reads);
            assert_true(s.moved_bytes[PS_LINK_HOST_TO_DEVICE] > 0);
            assert_true(s.moved_bytes[PS_LINK_DEVICE_TO_HOST] > 0);
        }
}

static void expect_no_stops(const char *what, const char *const *changes)
{
    expect_reads(what, changes, 1);
}

static void test_a_step_without_a_disk_waits_for_nothing(void **state)
{
    (void)state;
    expect_no_stops("Adam", CHANGES(FORMAT, SMALL_CHUNKS, "memory.host=4MB"));
    expect_no_stops("large chunks", CHANGES(FORMAT, "memory.host=8MB"));
    expect_no_stops("SGD", CHANGES(FORMAT, SMALL_CHUNKS, SGD, "memory.host=4MB"));
    expect_no_stops("updates at once", CHANGES(FORMAT, SMALL_CHUNKS, "memory.host=4MB", "memory.defer_updates=false"));
    expect_no_stops("no prefetch", CHANGES(FORMAT, SMALL_CHUNKS, "memory.host=4MB", "memory.prefetch=0"));
    expect_no_stops("far prefetch", CHANGES(FORMAT, SMALL_CHUNKS, "memory.host=4MB", "memory.prefetch=16"));
    expect_no_stops("accumulation", CHANGES(FORMAT, SMALL_CHUNKS, "memory.host=4MB", "gradient_accumulation_steps=3"));
    expect_no_stops("checkpointing",
                    CHANGES(FORMAT, SMALL_CHUNKS, "memory.host=4MB", "activation_checkpointing.enabled=true"));
    expect_no_stops("inputs offloaded",
                    CHANGES(FORMAT, SMALL_CHUNKS, "memory.host=4MB", "activation_checkpointing.enabled=true",
                            "client.opts.with_activation_offload=true"));
    expect_no_stops("f32", CHANGES(SMALL_CHUNKS, "memory.host=4MB"));
    expect_no_stops("Adam on the host",
                    CHANGES(FORMAT, SMALL_CHUNKS, "memory.host=8MB", "optimizer.params.use_hybrid_adam=false"));
}

/* Gradients of embeddings are summed up on the host, others on the device: it reads both. */
static void test_embeddings_on_the_host(void **state)
{
    (void)state;
    expect_reads("embeddings", CHANGES(FORMAT, SMALL_CHUNKS, "memory.host=4MB", "use_cpu_embedding=true"), 2);
}

/* Several ranks agree once a step on what it amounts to. */
static ps_status rank_counts(ps_engine *e, ps_config *c, rank_task *t)
{
    (void)c;
    int32_t tokens[RANK_TOKENS_MAX], targets[RANK_TOKENS_MAX];
    for (int step = 0; step < WARM_STEPS + STEPS; step++) {
        fill_batch(tokens, targets, 2, 16, TINY_VOCABULARY, step);
        const ps_blocked begin = ps_blocked_so_far();
        PS_TRY(ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, NULL));
        PS_TRY(ps_backward(e));
        ps_blocked want = {.n = {0}}, n = waits_since(&begin);
        if (step >= WARM_STEPS && memcmp(&n, &want, sizeof n) != 0) return PS_FAIL(PS_ESTATE, "it waits in a pass");
        PS_TRY(ps_step(e));
        n = waits_since(&begin);
        want.n[PS_BLOCK_READ] = want.n[PS_BLOCK_EVENT] = 1;
        if (step >= WARM_STEPS && memcmp(&n, &want, sizeof n) != 0)
            return PS_FAIL(PS_ESTATE, "a step ends with %lld readings, %lld agreements, %lld others",
                           (long long)n.n[PS_BLOCK_READ], (long long)n.n[PS_BLOCK_EVENT],
                           (long long)(n.n[PS_BLOCK_DISK] + n.n[PS_BLOCK_FREE] + n.n[PS_BLOCK_FULL]));
        rank_take(e, &t->result, step);
    }
    return PS_OK;
}

static void test_ranks_wait_to_agree(void **state)
{
    (void)state;
    static const char *const more[][2] = {{"memory.defer_updates=true", "memory.prefetch=4"},
                                          {"memory.defer_updates=false", "memory.prefetch=4"},
                                          {"client.opts.with_mem_saving_comm=true", "memory.prefetch=0"}};
    fake_cpu_begin(&(fake_options){.seed = 1, .page_bytes = PS_PAGE_BYTES});
    for (size_t i = 0; i < PS_ARRAY_LEN(more); i++)
        for (int32_t n = 2; n <= 3; n++)
            (void)run_ranks_of(ps_model_from_config, n, 1, rank_counts,
                               CHANGES("train.backend=cuda", FORMAT, FEWER_CHUNKS, "memory.device=800KB",
                                       "memory.host=4MB", more[i][0], more[i][1]));
    assert_true(fake_cpu_end());
}

static void test_with_a_disk_it_waits_for_that(void **state)
{
    (void)state;
    static const char *const hosts[] = {"memory.host=4096", "memory.host=40KB", "memory.host=300KB"};
    for (size_t i = 0; i < PS_ARRAY_LEN(hosts); i++) {
        const char *const *changes = CHANGES(FORMAT, SMALL_CHUNKS, hosts[i], "memory.disk=20MB");
        const int64_t least = least_device(changes);
        const stops s = count_stops(changes, i + 1, least);
        expect_only(hosts[i], "before a step ends", &s.before_end, 1u << PS_BLOCK_DISK);
        expect_only(hosts[i], "when a step ends", &s.end, 1u << PS_BLOCK_READ | 1u << PS_BLOCK_DISK);
        assert_int_equal(s.end.n[PS_BLOCK_READ], STEPS);
        assert_true(s.before_end.n[PS_BLOCK_DISK] > 0);
        assert_true(s.moved_bytes[PS_LINK_DISK_READ] > 0 && s.moved_bytes[PS_LINK_DISK_WRITE] > 0);
    }
}

int main(void)
{
    /* of a driver's usual depth: a shorter stream is waited for when it is full */
    if (setenv("FAKE_DEPTH", "1024", 1) != 0) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_step_without_a_disk_waits_for_nothing),
        cmocka_unit_test(test_embeddings_on_the_host),
        cmocka_unit_test(test_ranks_wait_to_agree),
        cmocka_unit_test(test_with_a_disk_it_waits_for_that),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
