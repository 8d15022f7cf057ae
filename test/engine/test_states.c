/* States of the optimizer by tensor: what Adam makes of a gradient; an engine that takes over weights, states and count
 * resumes with the other's bits, whatever the budgets; all ranks see the same; a checkpoint has the values of before. */
#include <math.h>

#include "engine/engine_fixture.h"

#include "api/engine/engine.h"
#include "engine/ranks_fixture.h"
#include "temp_folder.h"

static int64_t elements_of(const ps_engine *e, int64_t tensor)
{
    const char *name;
    int n_dims;
    int64_t shape[2];
    assert_ok(get_tensor(e, tensor, &name, &n_dims, shape));
    return shape[0] * shape[1];
}

static uint64_t hash_of(ps_engine *e)
{
    uint64_t hash;
    assert_ok(ps_engine_get_weights_xxh3(e, &hash));
    return hash;
}

static void step_of(ps_engine *e, int index)
{
    static int32_t tokens[32], targets[32];
    fill_batch(tokens, targets, 2, 16, TINY_VOCABULARY, index);
    assert_ok(ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, NULL));
    assert_ok(ps_backward(e));
    assert_ok(ps_step(e));
}

static void expect_fails(ps_status st, ps_status wanted, const char *message)
{
    if (st != wanted || strstr(ps_last_error(), message) == NULL)
        fail_msg("%s: \"%s\" lacks \"%s\"", ps_status_name(st), ps_last_error(), message);
}

/* After one step m = (1 - beta1) g and v = (1 - beta2) g^2, which two or three roundings come to. */
static void test_adam_of_a_gradient(void **state)
{
    (void)state;
    ps_config *c = TINY("train.threads=1", "gradient_clipping=0", "memory.update_in_backward=never");
    ps_engine *e = engine_of(c);
    static int32_t tokens[32], targets[32];
    static _Thread_local float g[8][48], m[48], v[48];
    assert_string_equal(ps_engine_get_state_name(e, 0), "exp_avg");
    assert_string_equal(ps_engine_get_state_name(e, 1), "exp_avg_sq");
    assert_null(ps_engine_get_state_name(e, 2));
    assert_null(ps_engine_get_state_name(e, -1));
    fill_batch(tokens, targets, 2, 16, TINY_VOCABULARY, 1);
    assert_ok(ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, NULL));
    assert_ok(ps_backward(e));
    for (int64_t t = 0; t < 8; t++) assert_ok(ps_engine_read_gradient(e, t, 0, 48, g[t]));
    assert_int_equal(ps_engine_get_update_count(e), 0);
    assert_ok(ps_step(e));
    assert_int_equal(ps_engine_get_update_count(e), 1);
    int n_nonzero = 0;
    for (int64_t t = 0; t < 8; t++) {
        assert_ok(ps_engine_read_state(e, t, "exp_avg", 0, 48, m));
        assert_ok(ps_engine_read_state(e, t, "exp_avg_sq", 0, 48, v));
        for (int i = 0; i < 48; i++) {
            const double x = (double)g[t][i];
            n_nonzero += x != 0;
            assert_true(fabs((double)m[i] - 0.1 * x) <= 1e-6 * fabs(x));
            assert_true(fabs((double)v[i] - 0.05 * x * x) <= 1e-6 * x * x);
        }
    }
    assert_true(n_nonzero > 8 * 24);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* Weights, states and count from one engine to another, in pieces that no chunk has; of whole groups where states are
 * compact. */
static void take_over(ps_engine *from, ps_engine *to)
{
    enum { MOST = 800 };
    static _Thread_local float values[MOST];
    const int64_t piece = to->settings.optimizer.is_compact ? MOST : 777;
    for (int64_t t = 0; t < ps_engine_get_tensor_count(from); t++)
        for (int64_t n = elements_of(from, t), first = 0; first < n; first += piece) {
            const int64_t here = ps_min_i64(piece, n - first);
            assert_ok(ps_engine_read_tensor(from, t, first, here, values));
            assert_ok(ps_engine_write_tensor(to, t, first, here, values));
            for (int32_t i = 0; ps_engine_get_state_name(from, i) != NULL; i++) {
                assert_ok(ps_engine_read_state(from, t, ps_engine_get_state_name(from, i), first, here, values));
                assert_ok(ps_engine_write_state(to, t, ps_engine_get_state_name(from, i), first, here, values));
            }
        }
    assert_ok(ps_engine_set_update_count(to, ps_engine_get_update_count(from)));
}

#define PLAIN_SGD "optimizer.type=SGD", "optimizer.params.betas=[0.9, 0.999]"
#define SGD PLAIN_SGD, "optimizer.params.momentum=0.9", "optimizer.params.dampening=0.25"
#define LION "optimizer.type=Lion", "optimizer.params.lr=1e-4", "optimizer.params.weight_decay=0.1"
#define COMPACT "optimizer.params.state_format=compact", "bf16.enabled=true"
#define SPLIT "optimizer.params.state_format=compact_split", "bf16.enabled=true"
#define STOCHASTIC "optimizer.params.state_format=bf16_stochastic", "bf16.enabled=true"
#define COSINE "scheduler.type=cosine", "scheduler.params.warmup_num_steps=2", "scheduler.params.total_num_steps=8"
#define SMALL "default_chunk_size=2048"

static void expect_taken_over(ps_config *a, ps_config *b)
{
    ps_engine *from = engine_of(a), *to = engine_of(b);
    for (int i = 0; i < 3; i++) step_of(from, i);
    take_over(from, to);
    for (int i = 3; i < 6; i++) {
        step_of(from, i);
        step_of(to, i);
        ps_step_info x = {.struct_size = sizeof x}, y = {.struct_size = sizeof y};
        ps_engine_get_step_info(from, &x);
        ps_engine_get_step_info(to, &y);
        assert_memory_equal(&x.loss, &y.loss, sizeof x.loss);
        assert_memory_equal(&x.learning_rate, &y.learning_rate, sizeof x.learning_rate);
        assert_int_equal(x.step, y.step);
    }
    assert_true(hash_of(from) == hash_of(to));
    ps_engine_destroy(from), ps_engine_destroy(to);
    ps_config_destroy(a), ps_config_destroy(b);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void test_taken_over(void **state)
{
    (void)state;
    expect_taken_over(TINY("train.threads=1", COSINE), TINY("train.threads=1", COSINE, "train.seed=8"));
    expect_taken_over(
        TINY("train.threads=1", COSINE, "bf16.enabled=true"),
        TINY("train.threads=1", COSINE, "bf16.enabled=true", SMALL, "memory.device=700KB", "memory.disk=20MB"));
    expect_taken_over(TINY("train.threads=1", COSINE, SMALL, "memory.device=1200KB", "memory.disk=20MB",
                           "memory.update_in_backward=never"),
                      TINY("train.threads=1", COSINE, SMALL, "memory.device=1200KB", "memory.disk=20MB",
                           "memory.defer_updates=false"));
    expect_taken_over(TINY("train.threads=1", SGD), TINY("train.threads=1", SGD, SMALL, "train.seed=8"));
    expect_taken_over(TINY("train.threads=1", COMPACT),
                      TINY("train.threads=1", COMPACT, SMALL, "memory.device=700KB", "memory.disk=20MB"));
    expect_taken_over(TINY("train.threads=1", SPLIT),
                      TINY("train.threads=1", SPLIT, SMALL, "memory.device=700KB", "memory.disk=20MB"));
    expect_taken_over(TINY("train.threads=1", STOCHASTIC), /* of one seed, by which is rounded */
                      TINY("train.threads=1", STOCHASTIC, SMALL, "memory.device=700KB", "memory.disk=20MB"));
    expect_taken_over(TINY("train.threads=1", LION, COMPACT), TINY("train.threads=1", LION, COMPACT, SMALL));
    expect_taken_over(TINY("train.threads=1", LION), TINY("train.threads=1", LION, SMALL, "train.seed=8"));
}

/* The states that a checkpoint has which was begun before they were written. */
static void test_written_during_a_checkpoint(void **state)
{
    (void)state;
    temp_folder folder = temp_folder_make();
    ps_config *c = TINY("train.threads=1");
    ps_engine *e = engine_of(c), *other = engine_of(c);
    static _Thread_local float before[48], after[48], zeros[48];
    step_of(e, 0);
    assert_ok(ps_engine_read_state(e, 0, "exp_avg", 0, 48, before));
    assert_ok(ps_engine_set_update_count(e, 1000)); /* more than the steps begun */
    assert_ok(ps_engine_begin_checkpoint(e, folder.path, NULL));
    assert_ok(ps_engine_write_state(e, 0, "exp_avg", 0, 48, zeros));
    assert_ok(ps_engine_set_update_count(e, 7));
    assert_ok(ps_engine_finish_checkpoint(e, NULL));
    assert_ok(ps_engine_load_checkpoint(other, folder.path, NULL));
    assert_int_equal(ps_engine_get_update_count(other), 1000);
    assert_ok(ps_engine_read_state(other, 0, "exp_avg", 0, 48, after));
    assert_memory_equal(before, after, sizeof before);
    assert_memory_not_equal(before, zeros, sizeof before);
    assert_ok(ps_engine_read_state(e, 0, "exp_avg", 0, 48, after));
    assert_memory_equal(after, zeros, sizeof zeros);
    ps_engine_destroy(e), ps_engine_destroy(other);
    ps_config_destroy(c);
    temp_folder_remove(&folder);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* A write in the middle of a group changes the rest of the group by its rounding only, and a tensor is read as it was
 * written to within rounding, from any element on. */
static void test_compact_parts(void **state)
{
    (void)state;
    enum { N = 200 };
    ps_config *c = TINY("train.threads=1", COMPACT);
    ps_engine *e = engine_of(c);
    float in[N], out[N], part[N];
    for (int i = 0; i < N; i++) in[i] = sinf((float)(i + 1));
    assert_ok(ps_engine_write_state(e, 0, "exp_avg", 0, N, in));
    assert_ok(ps_engine_read_state(e, 0, "exp_avg", 0, N, out));
    for (int i = 0; i < N; i++) assert_true(fabsf(in[i] - out[i]) <= 1.0f / 127);
    assert_memory_not_equal(in, out, sizeof in);
    for (int first = 1; first < 70; first += 13) {
        assert_ok(ps_engine_read_state(e, 0, "exp_avg", first, 77, part));
        assert_memory_equal(part, out + first, 77 * sizeof *part);
    }
    for (int i = 0; i < 50; i++) in[37 + i] = 0.5f;
    assert_ok(ps_engine_write_state(e, 0, "exp_avg", 37, 50, in + 37));
    assert_ok(ps_engine_read_state(e, 0, "exp_avg", 0, N, part));
    for (int i = 0; i < N; i++) assert_true(fabsf(in[i] - part[i]) <= 2.0f / 127);
    assert_memory_equal(part, out, 32 * sizeof *part);
    assert_memory_equal(part + 96, out + 96, (N - 96) * sizeof *part);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

/* Each rank reads all, in pieces; writes something else; and reads that. */
static ps_status rank_rewrite(ps_engine *e, ps_config *c, rank_task *t)
{
    enum { PIECE = 1000 };
    float values[PIECE], again[PIECE];
    double sum = 0;
    PS_TRY(rank_train(e, c, t));
    for (int64_t k = 0; k < ps_engine_get_tensor_count(e); k++)
        for (int64_t n = elements_of(e, k), first = 0; first < n; first += PIECE) {
            const int64_t here = ps_min_i64(PIECE, n - first);
            PS_TRY(ps_engine_read_state(e, k, "exp_avg_sq", first, here, values));
            for (int64_t i = 0; i < here; i++) {
                sum += (double)values[i];
                values[i] = 2 * values[i] + 1;
            }
            PS_TRY(ps_engine_write_state(e, k, "exp_avg_sq", first, here, values));
            PS_TRY(ps_engine_read_state(e, k, "exp_avg_sq", first, here, again));
            if (memcmp(values, again, (size_t)here * sizeof *values) != 0)
                return PS_FAIL(PS_ENUMERIC, "tensor %d is not what was written", (int)k);
        }
    t->result.losses[t->n_steps] = sum;
    if (!(sum > 0)) return PS_FAIL(PS_ENUMERIC, "all states are 0");
    PS_TRY(ps_engine_set_update_count(e, 9));
    PS_TRY(rank_step(e, t, t->n_steps));
    return ps_engine_get_update_count(e) == 10 ? PS_OK : PS_FAIL(PS_ENUMERIC, "updates are not counted from 9 on");
}

static void test_ranks(void **state)
{
    (void)state;
    const rank_task *two = run_ranks(2, 2, rank_rewrite, CHANGES(NOTHING));
    const uint64_t hash = two[0].result.hash;
    const rank_task *small = run_ranks(2, 2, rank_rewrite, CHANGES(SMALL, "memory.device=1MB", "memory.disk=20MB"));
    assert_true(small[0].result.hash == hash);
    (void)run_ranks(3, 2, rank_rewrite, CHANGES(SMALL));
}

/* What one rank asks wrongly, or otherwise than the others, is refused on all, and all continue. */
static ps_status rank_differ(ps_engine *e, ps_config *c, rank_task *t)
{
    const int64_t rank = ps_comm_rank(e->settings.ranks.comm);
    float values[8] = {0};
    PS_TRY(rank_train(e, c, t));
    const ps_status refused[] = {
        ps_engine_read_tensor(e, rank == 1 ? 999 : 0, 0, 4, values),
        ps_engine_read_tensor(e, rank, 0, 4, values),
        ps_engine_read_tensor(e, 0, 0, 4 + rank, values),
        ps_engine_write_tensor(e, 0, rank, 4, values),
        ps_engine_read_state(e, 0, rank == 0 ? "exp_avg" : "none", 0, 4, values),
        ps_engine_write_state(e, rank, "exp_avg", 0, 4, values),
        ps_engine_set_update_count(e, rank),
        ps_engine_set_shape(e, ps_model_from_config, c, 1 + rank, 16),
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(refused); i++)
        if (refused[i] != PS_EINVAL) return PS_FAIL(PS_ENUMERIC, "call %d: %s", (int)i, ps_status_name(refused[i]));
    PS_TRY(ps_engine_read_tensor(e, 1, 0, 4, values));
    return rank_step(e, t, t->n_steps);
}

/* Between backward and an update that may be early values cannot be read; asking for them ends nothing. */
static ps_status rank_ask_early(ps_engine *e, ps_config *c, rank_task *t)
{
    static _Thread_local int32_t tokens[32], targets[32];
    float values[4];
    (void)c, (void)t;
    fill_batch(tokens, targets, 2, 16, TINY_VOCABULARY, 1);
    PS_TRY(ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, NULL));
    PS_TRY(ps_backward(e));
    const ps_status read = ps_engine_read_tensor(e, 0, 0, 4, values);
    if (read != PS_ESTATE) return PS_FAIL(PS_ENUMERIC, "read: %s", ps_status_name(read));
    return ps_step(e);
}

static void test_refused_on_ranks(void **state)
{
    (void)state;
    (void)run_ranks(2, 2, rank_differ, CHANGES(SMALL));
    (void)run_ranks(
        2, 1, rank_ask_early,
        CHANGES(SMALL, "gradient_clipping=0", "train.max_nonfinite_steps=1", "memory.update_in_backward=always"));
}

/* A gradient that may not be written leaves the step as it is. */
static void test_refused_gradient(void **state)
{
    (void)state;
    ps_config *c = TINY("train.threads=1", "gradient_clipping=0", "train.max_nonfinite_steps=1",
                        "memory.update_in_backward=always");
    double norms[2];
    for (int asks = 0; asks < 2; asks++) {
        ps_engine *e = engine_of(c);
        static int32_t tokens[32], targets[32];
        const float value = 1e9f;
        ps_step_info info = {.struct_size = sizeof info};
        fill_batch(tokens, targets, 2, 16, TINY_VOCABULARY, 1);
        assert_ok(
            ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, NULL));
        assert_ok(ps_backward(e));
        if (asks) assert_int_equal(ps_engine_write_gradient(e, 0, 0, 1, &value), PS_ESTATE);
        assert_ok(ps_step(e));
        ps_engine_get_step_info(e, &info);
        norms[asks] = info.grad_norm;
        ps_engine_destroy(e);
    }
    assert_true(norms[0] == norms[1]);
    ps_config_destroy(c);
}

/* Parameters without values are not saved, and values begin once. */
static void test_began_empty(void **state)
{
    (void)state;
    temp_folder folder = temp_folder_make();
    const temp_path weights = temp_folder_file(&folder, "model.safetensors");
    ps_config *c = TINY("train.threads=1");
    const ps_engine_options o = {.struct_size = sizeof o, .purpose = PS_FOR_TRAINING, .is_empty = 1};
    ps_engine *e = NULL;
    assert_ok(ps_initialize_engine_with(ps_model_from_config, c, c, &o, &e));
    assert_int_equal(ps_engine_save_weights(e, weights.text), PS_ESTATE);
    assert_int_equal(ps_engine_save_checkpoint(e, folder.path, NULL, NULL), PS_ESTATE);
    assert_ok(ps_engine_begin_weights(e, c, c, NULL));
    expect_fails(ps_engine_begin_weights(e, c, c, NULL), PS_ESTATE, "have values already");
    assert_ok(ps_engine_save_weights(e, weights.text));
    ps_engine_destroy(e);
    ps_config_destroy(c);
    temp_folder_remove(&folder);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void test_wrong_calls(void **state)
{
    (void)state;
    ps_config *c = TINY("train.threads=1", "gradient_accumulation_steps=2"), *sgd = TINY("train.threads=1", PLAIN_SGD);
    ps_engine *e = engine_of(c), *inference = NULL, *plain = engine_of(sgd);
    float values[4] = {0};
    assert_ok(ps_initialize_inference_engine(ps_model_from_config, c, 0, c, &inference));
    expect_fails(ps_engine_read_state(e, 0, "momentum_buffer", 0, 4, values), PS_EINVAL,
                 "which keeps exp_avg, exp_avg_sq");
    expect_fails(ps_engine_read_state(e, 0, NULL, 0, 4, values), PS_EINVAL, "ps_engine_read_state: state is NULL");
    expect_fails(ps_engine_write_state(e, 0, "exp", 0, 4, values), PS_EINVAL, "\"exp\" is no state");
    expect_fails(ps_engine_read_state(e, 999, "exp_avg", 0, 4, values), PS_EINVAL, "tensor 999 of");
    expect_fails(ps_engine_write_state(e, 0, "exp_avg", 131 * 48 - 3, 4, values), PS_EINVAL, "4 elements from 6285");
    expect_fails(ps_engine_set_update_count(e, -1), PS_EINVAL, "-1 updates");
    expect_fails(ps_engine_set_update_count(e, INT64_MAX), PS_EINVAL, "expected 0 to 1099511627776");
    expect_fails(ps_engine_read_state(plain, 0, "exp_avg", 0, 4, values), PS_EINVAL,
                 "SGD with these options, which "
                 "keeps nothing");
    assert_null(ps_engine_get_state_name(plain, 0));
    assert_null(ps_engine_get_state_name(inference, 0));
    assert_int_equal(ps_engine_get_update_count(inference), 0);
    expect_fails(ps_engine_read_state(inference, 0, "exp_avg", 0, 4, values), PS_ESTATE, "an inference engine");
    expect_fails(ps_engine_write_state(inference, 0, "exp_avg", 0, 4, values), PS_ESTATE, "an inference engine");
    expect_fails(ps_engine_set_update_count(inference, 1), PS_ESTATE, "an inference engine");
    step_of(e, 0); /* the first micro-batch of two */
    expect_fails(ps_engine_set_update_count(e, 1), PS_ESTATE, "finish the current step");
    assert_ok(ps_engine_write_state(e, 0, "exp_avg", 0, 4, values));
    ps_engine_destroy(e), ps_engine_destroy(inference), ps_engine_destroy(plain);
    ps_config_destroy(c), ps_config_destroy(sgd);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adam_of_a_gradient), cmocka_unit_test(test_refused_on_ranks),
        cmocka_unit_test(test_refused_gradient),   cmocka_unit_test(test_began_empty),
        cmocka_unit_test(test_taken_over),         cmocka_unit_test(test_written_during_a_checkpoint),
        cmocka_unit_test(test_compact_parts),      cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_wrong_calls),
    };
    return RUN_ON_BACKENDS(tests);
}
