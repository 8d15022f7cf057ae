/* Micro-batches of a thousand rows and more, where products that add to a gradient want more scratch than those that
 * overwrite it. The same micro-batch several times has the gradient of one. */
#include "engine/engine_fixture.h"

#include <math.h>

enum { C_WIDE = 256, VOCABULARY = 96 };

typedef struct run {
    double norm;
    float loss;
} run;

static run run_step(int64_t B_, int64_t T_, int accumulation, int threads, const char *dtype)
{
    char text[1024];
    snprintf(text, sizeof text,
             "{\"train_micro_batch_size_per_gpu\": %lld, \"gradient_accumulation_steps\": %d, \"gradient_clipping\": 1,"
             " \"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 1e-3}}, \"bf16\": {\"enabled\": %s},"
             " \"model\": {\"vocab_size\": %d, \"n_positions\": %lld, \"n_embd\": %d, \"n_layer\": 1, \"n_head\": 4,"
             " \"embd_pdrop\": 0, \"resid_pdrop\": 0, \"attn_pdrop\": 0}, \"data\": {\"sequence_length\": %lld},"
             " \"memory\": {\"device\": \"256MB\", \"host\": 0, \"disk\": 0}, \"train\": {\"threads\": %d}}",
             (long long)B_, accumulation, dtype, VOCABULARY, (long long)T_, C_WIDE, (long long)T_, threads);
    ps_config *c = NULL;
    ps_engine *e = NULL;
    int32_t tokens[2048], targets[2048];
    assert_true(B_ * T_ <= 2048);
    for (int i = 0; i < B_ * T_; i++) tokens[i] = i * 31 % VOCABULARY, targets[i] = i * 17 % VOCABULARY;
    const ps_batch batch = {.struct_size = sizeof batch, .tokens = tokens, .targets = targets};
    run r;
    ps_step_info info = {.struct_size = sizeof info};
    assert_ok(ps_config_parse(text, "accumulation", &c));
    over_backend(c);
    assert_ok(ps_initialize_engine(ps_model_from_config, c, 0, c, &e));
    for (int i = 0; i < accumulation; i++) {
        assert_ok(ps_forward(e, &batch, &r.loss));
        assert_ok(ps_backward(e));
        assert_ok(ps_step(e));
    }
    ps_engine_get_step_info(e, &info);
    r.norm = info.grad_norm;
    ps_engine_destroy(e);
    ps_config_destroy(c);
    return r;
}

/* Sums in another order, and gradients of bf16 rounded once more: far less than what a neighbour's overwritten sums
 * make. */
static void check(int64_t B_, int64_t T_, const char *bf16, double tolerance)
{
    for (int threads = 1; threads <= 2; threads++) {
        const run one = run_step(B_, T_, 1, threads, bf16);
        assert_true(isfinite(one.norm) && one.norm > 0);
        for (int n = 2; n <= 3; n++) {
            const run many = run_step(B_, T_, n, threads, bf16);
            assert_true(many.loss == one.loss);
            if (!(fabs(many.norm - one.norm) <= tolerance * one.norm))
                fail_msg("%lld x %lld, %d threads, %d micro-batches: norm %.9g, once %.9g", (long long)B_,
                         (long long)T_, threads, n, many.norm, one.norm);
        }
    }
}

static void a_thousand_rows_f32(void **state)
{
    (void)state;
    check(8, 128, "false", 1e-5);
    check(11, 101, "false", 1e-5);
}

static void a_thousand_rows_bf16(void **state)
{
    (void)state;
    check(8, 128, "true", 4e-3);
    check(11, 101, "true", 4e-3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thousand_rows_f32),
        cmocka_unit_test(a_thousand_rows_bf16),
    };
    return RUN_ON_BACKENDS(tests);
}
