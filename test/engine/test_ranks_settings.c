/* Several ranks under other settings: what one rank with all the micro-batches does, they do too; what memory there is
 * changes no bit; and what goes wrong on one of them happens on all. */
#include <math.h>

#include "engine/ranks_fixture.h"
#include "temp_folder.h"

enum { STEPS = 6, MICRO_BATCHES = 12 /* of all ranks, a step */ };

#define DROPOUT "model.embd_pdrop=0.1", "model.resid_pdrop=0.1", "model.attn_pdrop=0.1"
#define TIGHT "memory.device=560KB", "memory.host=300KB", "memory.disk=20MB", "default_chunk_size=4096"

static void assert_near(const rank_result *a, const rank_result *b, double tolerance, const char *what)
{
    for (int s = 0; s < STEPS; s++) {
        const double off = fabs(a->losses[s] / b->losses[s] - 1);
        if (!(off <= tolerance)) fail_msg("%s, step %d: loss off by %g", what, s, off);
    }
}

/* As many micro-batches as one rank has, on 2, 3 and 4. */
#define AS_ONE_RANK(tolerance, ...)                                                                                    \
    do {                                                                                                               \
        const rank_result one_ =                                                                                       \
            RANKS(1, STEPS, "train_micro_batch_size_per_gpu=1", "gradient_accumulation_steps=12", __VA_ARGS__)         \
                ->result;                                                                                              \
        for (int n_ = 2; n_ <= RANKS_MAX; n_++) {                                                                      \
            char accumulation_[64], what_[24];                                                                         \
            snprintf(accumulation_, sizeof accumulation_, "gradient_accumulation_steps=%d", MICRO_BATCHES / n_);       \
            snprintf(what_, sizeof what_, "%d ranks", n_);                                                             \
            const rank_task *t_ = RANKS(n_, STEPS, "train_micro_batch_size_per_gpu=1", accumulation_, __VA_ARGS__);    \
            assert_near(&t_->result, &one_, tolerance, what_);                                                         \
        }                                                                                                              \
    } while (0)

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static void test_dropout(void **state)
{
    (void)state;
    AS_ONE_RANK(1e-6, DROPOUT);
    /* and it was dropout */
    const rank_result with = RANKS(2, STEPS, DROPOUT)->result, without = RANKS(2, STEPS, NOTHING)->result;
    assert_true(fabs(with.losses[0] / without.losses[0] - 1) > 1e-5);
}

static void test_fp32_reduction(void **state)
{
    (void)state;
    AS_ONE_RANK(1e-3, "bf16.enabled=true", "zero.fp32_reduce_scatter=true");
    for (int n = 2; n <= 3; n++) {
        const rank_result narrow = RANKS(n, 4, "bf16.enabled=true")->result;
        for (int msc = 0; msc < 2; msc++) {
            const rank_task *t =
                RANKS(n, 4, "bf16.enabled=true", "zero.fp32_reduce_scatter=true", "memory.device=600KB",
                      "memory.host=2MB", "default_chunk_size=4096", msc ? MSC : NOTHING);
            assert_true(t->result.hash != narrow.hash);
            for (int i = 0; i < n; i++) {
                const rank_result *r = &t[i].result;
                assert_int_equal(r->sent_bytes, r->forecast.moved_bytes[PS_LINK_COLLECTIVES]);
                assert_int_equal(r->memory.device_peak_bytes, r->forecast.peak_bytes[PS_TIER_DEVICE]);
            }
        }
    }
}

/* In fp32 a power of two changes no bit. */
static void test_predivide(void **state)
{
    (void)state;
    const uint64_t want = RANKS(3, STEPS, "zero.gradient_predivide_factor=1")->result.hash;
    assert_true(RANKS(3, STEPS, "zero.gradient_predivide_factor=4")->result.hash == want);
    assert_true(RANKS(3, STEPS, "zero.gradient_predivide_factor=0.5")->result.hash == want);
    AS_ONE_RANK(1e-6, "zero.gradient_predivide_factor=3");
    AS_ONE_RANK(1e-6, "zero.gradient_predivide_factor=0");
}

/* ---- fp16 -------------------------------------------------------------------------------------------------------- */

static void test_fp16(void **state)
{
    (void)state;
    AS_ONE_RANK(3e-3, "fp16.enabled=true", "fp16.initial_scale_power=10");
}

/* Targets for the last rank only: the others' gradients are 0, and only its overflow. */
static ps_status step_of_last_rank(ps_engine *e, rank_task *t, int64_t step)
{
    int32_t tokens[32], targets[32];
    fill_batch(tokens, targets, 2, 16, TINY_VOCABULARY, step);
    for (int i = 0; ps_comm_rank(t->comm) + 1 < ps_comm_size(t->comm) && i < 32; i++) targets[i] = PS_IGNORE_INDEX;
    PS_TRY(ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, NULL));
    PS_TRY(ps_backward(e));
    return ps_step(e);
}

/* The scale is far too large at first: steps are skipped on all ranks, without a trace in the weights, until it is
 * not. */
static ps_status overflow_on_one(ps_engine *e, ps_config *c, rank_task *t)
{
    (void)c;
    uint64_t before = 0, after = 0;
    PS_TRY(ps_engine_get_weights_xxh3(e, &before));
    int n_skipped = 0;
    for (int step = 0; step < t->n_steps; step++) {
        PS_TRY(step_of_last_rank(e, t, step));
        rank_take(e, &t->result, step);
        const ps_step_info *info = &t->result.last_step;
        PS_TRY(ps_engine_get_weights_xxh3(e, &after));
        if ((bool)info->is_skipped != (after == before)) return PS_FAIL(PS_ESTATE, "step %d: skipped or not?", step);
        if ((bool)info->is_skipped != (bool)isinf(info->grad_norm)) return PS_FAIL(PS_ESTATE, "step %d: norm", step);
        n_skipped += info->is_skipped;
        before = after;
    }
    if (n_skipped < 2 || n_skipped + 2 > t->n_steps) return PS_FAIL(PS_ESTATE, "%d steps were skipped", n_skipped);
    return PS_OK;
}

static void test_overflow_on_one_rank(void **state)
{
    (void)state;
    for (int n = 2; n <= 3; n++)
        for (int deferred = 0; deferred < 2; deferred++) {
            const rank_task *t = run_ranks(
                n, 20, overflow_on_one,
                CHANGES("fp16.enabled=true", "fp16.initial_scale_power=26", "fp16.max_loss_scale=1e12",
                        "fp16.hysteresis=1", deferred ? "memory.defer_updates=true" : "memory.defer_updates=false"));
            for (int i = 1; i < n; i++)
                assert_true(t[i].result.last_step.loss_scale == t[0].result.last_step.loss_scale);
        }
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Accumulated gradients of single chunks: what one micro-batch has summed is there in the next. */
static void test_accumulation_of_single_chunks(void **state)
{
    (void)state;
    for (int n = 2; n <= 3; n++)
        for (int f32 = 0; f32 < 2; f32++) {
            const char *const dtype = f32 ? "bf16.enabled=false" : "bf16.enabled=true";
            const char *const three = "gradient_accumulation_steps=3";
            /* of one chunk size: it says whose a gradient is, and so in which order sums over micro-batches and ranks
             * are made */
            const uint64_t want = RANKS(n, 4, three, dtype, "default_chunk_size=4096")->result.hash;
            assert_true(RANKS(n, 4, three, dtype, MSC, "default_chunk_size=4096")->result.hash == want);
            assert_true(RANKS(n, 4, three, dtype, MSC, TIGHT, "memory.device=720KB")->result.hash == want);
            assert_true(RANKS(n, 4, three, dtype, NOTHING, TIGHT, "memory.device=720KB")->result.hash == want);
        }
}

/* The embedding is read again, in the recomputation of its block, when the head it is tied to has begun its
 * gradient. */
static ps_status tied_in_a_block(ps_builder *b, void *user)
{
    (void)user;
    ps_begin_block(b, "h", 1);
    ps_value x = ps_token_embedding(b, "wte", TINY_VOCABULARY, 48);
    x = ps_add(b, x, ps_gelu(b, ps_linear(b, x, "up", 48, 1), PS_ACTIVATION_GELU_TANH));
    x = ps_add(b, x, ps_gelu(b, ps_linear(b, x, "down", 48, 1), PS_ACTIVATION_GELU_TANH));
    ps_end_block(b);
    ps_cross_entropy(b, ps_layer_norm(b, x, "norm", 1e-5f), "h.wte.weight", NULL, TINY_VOCABULARY, NULL);
    return PS_OK;
}

static ps_status train_mixed(ps_engine *e, ps_config *c, rank_task *t)
{
    const ps_exec_plan *b = e->exec_plan;
    bool is_mixed = false;
    for (int32_t i = 0; i < b->layout->n_chunks; i++)
        for (int32_t k = b->pieces.first[i]; b->uses_grad_list[i] && k < b->pieces.first[i + 1]; k++)
            is_mixed |= b->code->grad_overwrites_param[b->pieces.all[k].tensor];
    if (!is_mixed) return PS_FAIL(PS_ESTATE, "no chunk has both kinds of gradients");
    return rank_train(e, c, t);
}

/* Such an embedding keeps its gradients in a list of their own; what is next to it in a chunk does not. */
static void test_both_kinds_of_gradients(void **state)
{
    (void)state;
    static const char *const sizes[] = {"default_chunk_size=8192", "default_chunk_size=9216",
                                        "default_chunk_size=16384"};
    const char *const recomputes = "activation_checkpointing.enabled=true";
    for (int n = 2; n <= 3; n++) {
        char accumulation[64];
        snprintf(accumulation, sizeof accumulation, "gradient_accumulation_steps=%d", n);
        const rank_result one =
            run_ranks_of(tied_in_a_block, 1, STEPS, rank_train, CHANGES(accumulation, recomputes))->result;
        uint64_t want = 0;
        for (size_t i = 0; i < PS_ARRAY_LEN(sizes); i++)
            for (int msc = 0; msc < 2; msc++) {
                const rank_task *t = run_ranks_of(tied_in_a_block, n, STEPS, train_mixed,
                                                  CHANGES(sizes[i], msc ? MSC : NOTHING, recomputes));
                assert_near(&t->result, &one, 1e-6, sizes[i]);
                assert_int_equal(t->result.sent_bytes, t->result.forecast.moved_bytes[PS_LINK_COLLECTIVES]);
                if (want == 0) want = t->result.hash;
                assert_true(t->result.hash == want);
            }
    }
}

/* ---- between the steps ------------------------------------------------------------------------------------------- */

/* With an evaluation after every micro-batch, those inside of a step too. */
static ps_status train_and_evaluate(ps_engine *e, ps_config *c, rank_task *t)
{
    (void)c;
    int32_t tokens[32], targets[32];
    int64_t K;
    float loss, again;
    ps_engine_get_shape(e, NULL, NULL, &K, NULL);
    for (int64_t micro = 0; micro < t->n_steps * K; micro++) {
        fill_batch(tokens, targets, 2, 16, TINY_VOCABULARY, micro * ps_comm_size(t->comm) + ps_comm_rank(t->comm));
        const ps_batch batch = {.struct_size = sizeof batch, .tokens = tokens, .targets = targets};
        PS_TRY(ps_evaluate(e, &batch, &loss));
        PS_TRY(ps_evaluate(e, &batch, &again));
        if (memcmp(&loss, &again, sizeof loss) != 0) return PS_FAIL(PS_ESTATE, "%g is not %g", loss, again);
        PS_TRY(ps_forward(e, &batch, NULL));
        PS_TRY(ps_backward(e));
        PS_TRY(ps_step(e));
        if ((micro + 1) % K == 0) rank_take(e, &t->result, micro / K);
    }
    return PS_OK;
}

static void test_evaluation_between(void **state)
{
    (void)state;
    for (int n = 2; n <= 3; n++)
        for (int accumulates = 0; accumulates < 2; accumulates++) {
            const char *const K = accumulates ? "gradient_accumulation_steps=3" : "gradient_accumulation_steps=1";
            const uint64_t want = RANKS(n, 4, "bf16.enabled=true", K, DROPOUT, "default_chunk_size=4096")->result.hash;
#define EVALUATED(...)                                                                                                 \
    run_ranks(n, 4, train_and_evaluate, CHANGES("bf16.enabled=true", K, DROPOUT, __VA_ARGS__))->result.hash
            assert_true(EVALUATED("default_chunk_size=4096") == want);
            assert_true(EVALUATED(TIGHT) == want);
            assert_true(EVALUATED(MSC, TIGHT) == want);
            assert_true(EVALUATED("memory.defer_updates=false", TIGHT) == want);
        }
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

static const int64_t walk[][2] = {{2, 16}, {2, 8}, {4, 16}, {3, 5}, {2, 8}, {1, 1}, {2, 16}};

static ps_status walk_shapes(ps_engine *e, ps_config *c, rank_task *t)
{
    for (size_t i = 0; i < PS_ARRAY_LEN(walk); i++) {
        PS_TRY(ps_engine_set_shape(e, ps_model_from_config, c, walk[i][0], walk[i][1]));
        PS_TRY(rank_step(e, t, (int64_t)i));
        rank_take(e, &t->result, (int64_t)i);
    }
    return PS_OK;
}

static void test_shapes(void **state)
{
    (void)state;
#define WALK(n, ...) run_ranks(n, 0, walk_shapes, CHANGES("bf16.enabled=true", DROPOUT, __VA_ARGS__))->result.hash
    for (int n = 2; n <= 3; n++) {
        const uint64_t want = WALK(n, NOTHING);
        assert_true(WALK(n, MSC) == want);
        assert_true(WALK(n, TIGHT, "memory.device=800KB") == want);
        assert_true(WALK(n, MSC, TIGHT, "memory.device=800KB") == want);
        assert_true(WALK(n, "memory.defer_updates=false", "default_chunk_size=8192") == want);
    }
}

/* Device and host full, no disk: each change is tried from where chunks are, which is elsewhere on each rank. A refusal
 * is on all ranks. */
static ps_status walk_where_it_fits(ps_engine *e, ps_config *c, rank_task *t)
{
    for (size_t i = 0; i < 3 * PS_ARRAY_LEN(walk); i++) {
        const int64_t *to = walk[i % PS_ARRAY_LEN(walk)];
        const ps_status st = ps_engine_set_shape(e, ps_model_from_config, c, to[0], to[1]);
        if (st != PS_OK && st != PS_EBUDGET) return st;
        if (st == PS_EBUDGET && strstr(ps_last_error(), "rank ") == NULL) return PS_FAIL(PS_ESTATE, "who refuses?");
        t->result.norms[MAX_STEPS - 1] += st == PS_EBUDGET; /* compared over the ranks, as all of them */
        PS_TRY(rank_step(e, t, (int64_t)i));
        rank_take(e, &t->result, (int64_t)i);
    }
    return PS_OK;
}

static void test_tight_shapes(void **state)
{
    (void)state;
    int n_fit = 0;
    for (int host_kb = 400; host_kb <= 700; host_kb += 20) {
        char host[32];
        snprintf(host, sizeof host, "memory.host=%dKB", host_kb);
        const char *const *changes =
            CHANGES("bf16.enabled=true", "memory.device=500KB", host, "default_chunk_size=8192");
        const rank_task *t = try_ranks(ps_model_from_config, 2, 0, walk_where_it_fits, changes);
        assert_int_equal(t[0].result.st, t[1].result.st);
        if (t[0].result.st == PS_EBUDGET) continue;
        (void)run_ranks(2, 0, walk_where_it_fits, changes);
        n_fit++;
    }
    assert_true(n_fit > 1);
}

/* ---- refusal ----------------------------------------------------------------------------------------------------- */

/* Each rank says what cannot be had with others, and the way out; which is one. */
static void test_no_embedding_on_host(void **state)
{
    (void)state;
    const rank_task *t =
        try_ranks(ps_model_from_config, 2, 0, rank_train, CHANGES("memory.host=4MB", "use_cpu_embedding=true"));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(t[i].result.st, PS_EINVAL);
        assert_non_null(strstr(t[i].result.error, "use_cpu_embedding is for one rank: 2 ranks"));
        assert_non_null(strstr(t[i].result.error, "set use_cpu_embedding = false"));
    }
    (void)RANKS(2, 1, "memory.host=4MB", "use_cpu_embedding=false");
}

/* ---- profile ----------------------------------------------------------------------------------------------------- */

static void test_profile(void **state)
{
    (void)state;
    const temp_folder f = temp_folder_make();
    const temp_path path = temp_folder_file(&f, "p");
    char option[sizeof path.text + 16], name[sizeof path.text + 32];
    static char text[1 << 20];
    snprintf(option, sizeof option, "profile.path=%s", path.text);
    (void)RANKS(2, 3, option, "profile.steps=1,2");
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%s.rank-%d", path.text, i);
        FILE *file = fopen(name, "r");
        assert_non_null(file);
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        assert_int_equal(fclose(file), 0);
        char rank[64];
        snprintf(rank, sizeof rank, "\"rank\":%d,\"n_ranks\":2,", i);
        assert_non_null(strstr(text, rank));
    }
    temp_folder_remove(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_fp32_reduction),
        cmocka_unit_test(test_predivide),
        cmocka_unit_test(test_fp16),
        cmocka_unit_test(test_overflow_on_one_rank),
        cmocka_unit_test(test_accumulation_of_single_chunks),
        cmocka_unit_test(test_both_kinds_of_gradients),
        cmocka_unit_test(test_evaluation_between),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_tight_shapes),
        cmocka_unit_test(test_no_embedding_on_host),
        cmocka_unit_test(test_profile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
