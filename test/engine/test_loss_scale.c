/* Overflow, loss scale and everything else a step does besides moving chunks: schedule, clipping, decay, dropout. */
#include "engine/engine_fixture.h"

#include <math.h>

enum { B = 2, T = 16, V = 131 };

static int32_t tokens[B * T], targets[B * T];

static float forward(ps_engine *e, int64_t index)
{
    float loss = 0;
    fill_batch(tokens, targets, B, T, V, index);
    assert_ok(ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, &loss));
    return loss;
}

static float evaluate(ps_engine *e, int64_t index)
{
    float loss = 0;
    fill_batch(tokens, targets, B, T, V, index);
    assert_ok(
        ps_evaluate(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, &loss));
    return loss;
}

/* A step of K micro-batches. */
static ps_step_info step(ps_engine *e, int64_t index)
{
    int64_t K;
    ps_step_info info = {.struct_size = sizeof info};
    ps_engine_get_shape(e, NULL, NULL, &K, NULL);
    for (int64_t k = 0; k < K; k++) {
        forward(e, index * K + k);
        assert_ok(ps_backward(e));
        assert_ok(ps_step(e));
    }
    ps_engine_get_step_info(e, &info);
    return info;
}

static uint64_t hash_of(ps_engine *e)
{
    uint64_t hash;
    assert_ok(ps_engine_get_weights_xxh3(e, &hash));
    return hash;
}

/* Starts at 2^26: overflows until the scale is small enough, by hysteresis 2 and then halves; then it learns. */
static void overflow_and_recover(const char *accumulation, const char *device, const char *disk)
{
    ps_config *c =
        TINY("train.threads=1", "fp16.enabled=true", "fp16.initial_scale_power=26", "fp16.max_loss_scale=2e12",
             "fp16.loss_scale_window=3", "fp16.hysteresis=2", accumulation, device, disk);
    ps_engine *e = engine_of(c);
    const uint64_t hash = hash_of(e);
    const float before = evaluate(e, 0), first = evaluate(e, 77);
    double scale = 0x1p26;
    int is_skipped = 0;
    ps_step_info info = {.struct_size = sizeof info};
    for (int i = 0; i < 40; i++) {
        info = step(e, i);
        assert_true(info.loss_scale == scale);
        if (!info.is_skipped) break;
        is_skipped++;
        assert_true(isinf(info.grad_norm));
        assert_int_equal(info.step, 0);
        assert_true(hash_of(e) == hash);
        const float again = evaluate(e, 0); /* the 16-bit parameters are back, to the bit */
        assert_memory_equal(&again, &before, sizeof again);
        if (is_skipped >= 2) scale /= 2; /* the first is forgiven */
    }
    assert_false(info.is_skipped);
    assert_true(is_skipped >= 3);
    assert_int_equal(info.step, 1);
    assert_true(isfinite(info.grad_norm) && info.grad_norm > 0);
    assert_true(hash_of(e) != hash);
    /* training continues; a window of three clean steps doubles the scale, an overflow then is forgiven once again */
    int clean = 1, grew = 0, hysteresis = 1;
    for (int i = 1; i < 25; i++) {
        info = step(e, 100 + i % 4);
        assert_true(info.loss_scale == scale);
        if (info.is_skipped) {
            if (hysteresis > 1)
                hysteresis--;
            else
                scale /= 2;
            clean = 0;
        } else if (++clean == 3) {
            scale *= 2, clean = 0, hysteresis = 2, grew++;
        }
    }
    assert_true(grew > 0);
    assert_true(evaluate(e, 77) < first);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

static void test_overflow(void **state)
{
    (void)state;
    overflow_and_recover("gradient_accumulation_steps=1", "memory.device=64MB", "memory.disk=0");
    overflow_and_recover("gradient_accumulation_steps=1", "memory.device=800KB", "memory.disk=20MB");
    overflow_and_recover("gradient_accumulation_steps=2", "memory.device=64MB", "memory.disk=0");
}

/* A static scale overflows for ever and never moves; min_loss_scale is the floor of a dynamic one. */
static void test_static_and_min(void **state)
{
    (void)state;
    ps_config *c = TINY("train.threads=1", "fp16.enabled=true", "fp16.loss_scale=1e12");
    ps_engine *e = engine_of(c);
    const uint64_t hash = hash_of(e);
    for (int i = 0; i < 4; i++) {
        const ps_step_info info = step(e, i);
        assert_int_equal(info.is_skipped, 1);
        assert_true(fabs(info.loss_scale / 1e12 - 1) < 1e-6);
    }
    assert_true(hash_of(e) == hash);
    ps_engine_destroy(e);
    ps_config_destroy(c);

    c = TINY("train.threads=1", "fp16.enabled=true", "fp16.initial_scale_power=40", "fp16.min_loss_scale=274877906944",
             "fp16.max_loss_scale=2e12", "fp16.hysteresis=1");
    e = engine_of(c);
    static const double scales[] = {0x1p40, 0x1p39, 0x1p38, 0x1p38, 0x1p38};
    for (size_t i = 0; i < PS_ARRAY_LEN(scales); i++) {
        const ps_step_info info = step(e, (int64_t)i);
        assert_int_equal(info.is_skipped, 1);
        assert_true(info.loss_scale == scales[i]);
    }
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

/* The scale of the loss is a matter of range: gradients unscaled are the same. */
static void test_scale_does_not_matter(void **state)
{
    (void)state;
    double norm[2];
    for (int i = 0; i < 2; i++) {
        ps_config *c =
            TINY("train.threads=1", "fp16.enabled=true", i ? "fp16.loss_scale=4096" : "fp16.loss_scale=1024");
        ps_engine *e = engine_of(c);
        norm[i] = step(e, 0).grad_norm;
        ps_engine_destroy(e);
        ps_config_destroy(c);
    }
    assert_true(fabs(norm[0] / norm[1] - 1) < 1e-3);
}

static void test_learning_rate(void **state)
{
    (void)state;
    ps_config *c = TINY("train.threads=1", "scheduler.type=\"WarmupLR\"", "scheduler.params.warmup_min_lr=0",
                        "scheduler.params.warmup_max_lr=0.004", "scheduler.params.warmup_num_steps=4",
                        "scheduler.params.warmup_type=\"linear\"");
    ps_engine *e = engine_of(c);
    double last = -1;
    uint64_t hash = hash_of(e);
    for (int i = 0; i < 8; i++) {
        const ps_step_info info = step(e, i);
        assert_true(i < 4 ? info.learning_rate > last : info.learning_rate == last || i == 4);
        last = info.learning_rate;
        if (last == 0) assert_true(hash_of(e) == hash); /* nothing moves at rate 0 */
        if (last > 0) assert_true(hash_of(e) != hash);
        hash = hash_of(e);
    }
    assert_true(fabs(last - 0.004) < 1e-9);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

static float *read_all(ps_engine *e, int64_t tensor, int64_t *n, int *n_dims)
{
    const char *name;
    int64_t shape[2];
    assert_ok(get_tensor(e, tensor, &name, n_dims, shape));
    *n = shape[0] * (*n_dims == 2 ? shape[1] : 1);
    float *values = calloc((size_t)*n, sizeof *values);
    assert_ok(ps_engine_read_tensor(e, tensor, 0, *n, values));
    return values;
}

/* Plain first steps of Adam: g / (|g| + eps'), so clipping shows where eps is large against the gradient. */
static void test_clipping(void **state)
{
    (void)state;
    double norm[2], moved[2] = {0};
    for (int i = 0; i < 2; i++) {
        ps_config *c = TINY("train.threads=1", i ? "gradient_clipping=0.01" : "gradient_clipping=0",
                            "optimizer.params.eps=1.0", "optimizer.params.weight_decay=0");
        ps_engine *e = engine_of(c);
        int64_t n;
        int n_dims;
        float *before = read_all(e, 0, &n, &n_dims);
        norm[i] = step(e, 0).grad_norm;
        float *after = read_all(e, 0, &n, &n_dims);
        for (int64_t k = 0; k < n; k++) moved[i] += fabs((double)after[k] - (double)before[k]);
        free(before);
        free(after);
        ps_engine_destroy(e);
        ps_config_destroy(c);
    }
    assert_true(norm[0] == norm[1] && norm[0] > 0.1); /* the norm is that before clipping */
    const double ratio = moved[1] / moved[0] / (0.01 / norm[0]);
    assert_true(ratio > 0.9 && ratio < 1.2);
}

/* With and without decay: after one step matrices differ by lr * decay * w, norms and biases not at all. */
static void test_weight_decay(void **state)
{
    (void)state;
    ps_config *c[2] = {TINY("train.threads=1", "optimizer.params.weight_decay=0"),
                       TINY("train.threads=1", "optimizer.params.weight_decay=0.5")};
    ps_engine *e[2];
    for (int i = 0; i < 2; i++) e[i] = engine_of(c[i]);
    const int64_t n_tensors = ps_engine_get_tensor_count(e[0]);
    for (int64_t t = 0; t < n_tensors; t++) { /* nothing is zero, so that a decay would show */
        int64_t n;
        int n_dims;
        float *w = read_all(e[0], t, &n, &n_dims);
        for (int64_t k = 0; k < n; k++) w[k] += 0.25f;
        for (int i = 0; i < 2; i++) assert_ok(ps_engine_write_tensor(e[i], t, 0, n, w));
        free(w);
    }
    for (int i = 0; i < 2; i++) assert_true(fabs(step(e[i], 0).learning_rate - 1e-3) < 1e-12);
    int n_decayed = 0;
    for (int64_t t = 0; t < n_tensors; t++) {
        int64_t n;
        int n_dims;
        float *without = read_all(e[0], t, &n, &n_dims), *with = read_all(e[1], t, &n, &n_dims);
        for (int64_t k = 0; k < n; k++) {
            const float want = n_dims == 1 ? 0 : 1e-3f * 0.5f * without[k];
            const float got = without[k] - with[k];
            if (fabsf(got - want) > 2e-6f) fail_msg("tensor %d: %g, not %g", (int)t, (double)got, (double)want);
        }
        n_decayed += n_dims == 2;
        free(without);
        free(with);
    }
    assert_true(n_decayed > 0 && n_decayed < n_tensors);
    for (int i = 0; i < 2; i++) ps_engine_destroy(e[i]), ps_config_destroy(c[i]);
}

static void test_dropout(void **state)
{
    (void)state;
    static const char *const where[] = {"model.embd_pdrop=0.3", "model.resid_pdrop=0.3", "model.attn_pdrop=0.3"};
    ps_config *c = TINY("train.threads=1", "train.seed=7");
    ps_engine *e = engine_of(c);
    const float plain = evaluate(e, 0);
    assert_true(forward(e, 0) == plain);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    for (size_t i = 0; i < PS_ARRAY_LEN(where); i++) {
        c = TINY("train.threads=1", where[i]);
        e = engine_of(c);
        assert_true(evaluate(e, 0) == plain);
        const float first = forward(e, 0);
        assert_true(first != plain);
        ps_engine_destroy(e);
        /* another step, another mask: rate 0 keeps the parameters */
        assert_ok(ps_config_set(c, "optimizer.params.lr", "0"));
        e = engine_of(c);
        step(e, 0);
        assert_true(evaluate(e, 0) == plain);
        assert_true(forward(e, 0) != first);
        ps_engine_destroy(e);
        ps_config_destroy(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overflow),      cmocka_unit_test(test_static_and_min),
        cmocka_unit_test(test_learning_rate), cmocka_unit_test(test_scale_does_not_matter),
        cmocka_unit_test(test_clipping),      cmocka_unit_test(test_weight_decay),
        cmocka_unit_test(test_dropout),
    };
    return RUN_ON_BACKENDS(tests);
}
