/* Every public call that looks at parameters, after every other one, in the smallest budgets that are accepted: none
 * fails, and training continues with the same bits as in plenty of memory. */
#include "checkpoint/checkpoint_fixture.h"
#include "device/device.h"

#define BF16 "bf16.enabled=true"
#define CHANGES(...) ((const char *const[]){__VA_ARGS__, NULL})

enum { CALLS_MAX = 16, WALK_MAX = CALLS_MAX * CALLS_MAX + 1, MOST_TOKENS = 4 * 64, MOST_CLASSES = 203 };

/* ---- the calls ---- */

typedef struct run {
    ps_engine *e;
    ps_config *c;
    work_folder folder;
    int64_t n_batches; /* given so far */
    uint64_t sum;      /* of all that calls gave */
    bool was_refused;  /* a change of shape */
    bool is_saving;    /* a checkpoint is under way */
    const char *call;  /* for messages */
} run;

static void add_to_sum(run *r, const void *values, size_t bytes)
{
    const unsigned char *b = values;
    for (size_t i = 0; i < bytes; i++) r->sum = (r->sum ^ b[i]) * 1099511628211u;
}

static void check(const run *r, ps_status st)
{
    if (st != PS_OK) fail_msg("%s: %s: %s", r->call, ps_status_name(st), ps_last_error());
}

typedef struct batch {
    int32_t tokens[MOST_TOKENS], targets[MOST_TOKENS];
    ps_batch b;
} batch;

static void next_batch(run *r, batch *b)
{
    int64_t B, T;
    ps_engine_get_shape(r->e, &B, &T, NULL, NULL);
    fill_batch(b->tokens, b->targets, B, T, TINY_VOCABULARY, r->n_batches++);
    b->b = (ps_batch){.struct_size = sizeof(ps_batch), .tokens = b->tokens, .targets = b->targets};
}

static void call_read(run *r)
{
    float values[700];
    for (int64_t t = 0; t < ps_engine_get_tensor_count(r->e); t++) {
        const char *name;
        int n_dims;
        int64_t shape[2];
        check(r, get_tensor(r->e, t, &name, &n_dims, shape));
        const int64_t all = shape[0] * (n_dims == 2 ? shape[1] : 1), n = all < 700 ? all : 700;
        check(r, ps_engine_read_tensor(r->e, t, all - n, n, values));
        add_to_sum(r, values, (size_t)n * sizeof *values);
    }
}

static void call_write(run *r)
{
    float values[40];
    for (int i = 0; i < 40; i++) values[i] = (float)(i - 20) / 1000;
    for (int64_t t = 0; t < ps_engine_get_tensor_count(r->e); t += 2)
        check(r, ps_engine_write_tensor(r->e, t, 3, 40, values));
}

static void call_hash(run *r)
{
    uint64_t hash;
    check(r, ps_engine_get_weights_xxh3(r->e, &hash));
    add_to_sum(r, &hash, sizeof hash);
}

static void call_read_gradient(run *r)
{
    float values[40];
    for (int64_t t = 0; t < ps_engine_get_tensor_count(r->e); t++)
        if (!r->e->program->params[t].is_frozen) check(r, ps_engine_read_gradient(r->e, t, 0, 40, values));
    add_to_sum(r, values, sizeof values);
}

static void call_save_weights(run *r)
{
    check(r, ps_engine_save_weights(r->e, work_file(r->folder.path, "weights.safetensors").text));
}

static void call_load_weights(run *r)
{
    check(r, ps_engine_load_pretrained(r->e, work_file(r->folder.path, "first.safetensors").text, NULL, NULL));
}

static void call_dump(run *r)
{
    char *text;
    ps_memory_info info = {.struct_size = sizeof info};
    check(r, ps_engine_dump_memory(r->e, &text));
    ps_free(text);
    ps_engine_get_memory_info(r->e, &info);
    assert_true(info.device_peak_bytes <= info.device_budget_bytes);
    assert_true(info.host_peak_bytes <= info.host_budget_bytes);
    assert_true(info.disk_peak_bytes <= info.disk_budget_bytes);
}

static void take_steps(run *r, void (*after_forward)(run *), void (*after_backward)(run *))
{
    int64_t K;
    ps_engine_get_shape(r->e, NULL, NULL, &K, NULL);
    for (int64_t k = 0; k < K; k++) {
        batch b;
        float loss;
        next_batch(r, &b);
        check(r, ps_forward(r->e, &b.b, &loss));
        add_to_sum(r, &loss, sizeof loss);
        if (after_forward != NULL) after_forward(r);
        check(r, ps_backward(r->e));
        if (after_backward != NULL) after_backward(r);
        check(r, ps_step(r->e));
    }
}

static void call_step(run *r)
{
    take_steps(r, NULL, NULL);
}

static void look_around(run *r)
{
    const char *call = r->call;
    r->call = "reading after ps_forward";
    call_read(r);
    r->call = "hashing after ps_forward";
    call_hash(r);
    r->call = "saving weights after ps_forward";
    call_save_weights(r);
    r->call = call;
}

static void look_at_gradients(run *r)
{
    const char *call = r->call;
    r->call = "reading gradients";
    call_read_gradient(r);
    r->call = "reading after ps_backward";
    call_read(r);
    r->call = "hashing after ps_backward";
    call_hash(r);
    r->call = call;
}

static void call_step_looked_at(run *r)
{
    take_steps(r, look_around, look_at_gradients);
}

static void change_gradients(run *r)
{
    float values[40];
    for (int i = 0; i < 40; i++) values[i] = (float)(i - 10) / 100;
    for (int64_t t = 0; t < ps_engine_get_tensor_count(r->e); t += 3)
        if (!r->e->program->params[t].is_frozen) check(r, ps_engine_write_gradient(r->e, t, 5, 40, values));
    check(r, ps_engine_set_learning_rate(r->e, 0, 1e-3 / (double)(1 + r->n_batches)));
}

static void call_step_changed(run *r)
{
    ps_step_info info = {.struct_size = sizeof info};
    take_steps(r, NULL, change_gradients);
    ps_engine_get_step_info(r->e, &info);
    add_to_sum(r, &info.grad_norm, sizeof info.grad_norm);
}

static void call_evaluate(run *r)
{
    batch b;
    float loss;
    next_batch(r, &b);
    check(r, ps_evaluate(r->e, &b.b, &loss));
    add_to_sum(r, &loss, sizeof loss);
}

static void finish_saving(run *r)
{
    if (r->is_saving) check(r, ps_engine_finish_checkpoint(r->e, NULL));
    r->is_saving = false;
}

static void call_save(run *r)
{
    finish_saving(r);
    check(r, ps_engine_save_checkpoint(r->e, work_file(r->folder.path, "now").text, NULL, NULL));
}

static void call_begin(run *r)
{
    finish_saving(r);
    check(r, ps_engine_begin_checkpoint(r->e, work_file(r->folder.path, "now").text, NULL));
    r->is_saving = true;
}

static void call_finish(run *r)
{
    finish_saving(r);
}

static void call_load(run *r)
{
    finish_saving(r);
    check(r, ps_engine_load_checkpoint(r->e, work_file(r->folder.path, "first").text, NULL));
}

/* In memory that is full to the last chunk a change may be refused; then what follows is of other sizes than
 * elsewhere. */
static void call_shape(run *r)
{
    int64_t B, T;
    ps_engine_get_shape(r->e, &B, &T, NULL, NULL);
    const ps_status st =
        ps_engine_set_shape(r->e, ps_model_from_config, r->c, B, T % 16 == 0 ? T / 2 + 1 : (T - 1) * 2);
    if (st != PS_EBUDGET) check(r, st);
    r->was_refused |= st == PS_EBUDGET;
}

static void call_logits(run *r)
{
    batch b;
    float logits[MOST_CLASSES] = {0};
    next_batch(r, &b);
    check(r, ps_infer(r->e, &b.b, 5, logits));
    add_to_sum(r, logits, sizeof logits);
}

static void call_infer(run *r)
{
    batch b;
    static float output[MOST_TOKENS * MOST_CLASSES];
    next_batch(r, &b);
    check(r, ps_infer(r->e, &b.b, PS_ALL_ROWS, output));
    add_to_sum(r, output, 1000 * sizeof *output);
}

typedef struct call {
    const char *name;
    void (*run)(run *);
} call;

static const call training_calls[] = {
    {"a step", call_step},
    {"a step that is looked at", call_step_looked_at},
    {"a step whose gradients are changed", call_step_changed},
    {"ps_evaluate", call_evaluate},
    {"ps_engine_read_tensor", call_read},
    {"ps_engine_write_tensor", call_write},
    {"ps_engine_get_weights_xxh3", call_hash},
    {"ps_engine_save_checkpoint", call_save},
    {"ps_engine_begin_checkpoint", call_begin},
    {"ps_engine_finish_checkpoint", call_finish},
    {"ps_engine_load_checkpoint", call_load},
    {"ps_engine_save_weights", call_save_weights},
    {"ps_engine_load_pretrained", call_load_weights},
    {"ps_engine_dump_memory", call_dump},
    {"ps_engine_set_shape", call_shape},
};
static const call inference_calls[] = {
    {"ps_infer of a row", call_logits},
    {"ps_infer", call_infer},
    {"ps_evaluate", call_evaluate},
    {"ps_engine_read_tensor", call_read},
    {"ps_engine_write_tensor", call_write},
    {"ps_engine_load_checkpoint", call_load},
    {"ps_engine_save_weights", call_save_weights},
    {"ps_engine_load_pretrained", call_load_weights},
    {"ps_engine_dump_memory", call_dump},
    {"ps_engine_set_shape", call_shape},
};

/* ---- all pairs in one walk ---- */

/* Each ordered pair of n calls, a call after itself included, as neighbours: a closed walk over the n^2 edges of the
 * complete graph. For each call the edge to itself first, then those to later calls and back. */
static int all_pairs(int n, int *walk)
{
    int length = 0;
    for (int a = 0; a < n; a++) {
        walk[length++] = a;
        for (int b = a + 1; b < n; b++) {
            walk[length++] = a;
            walk[length++] = b;
        }
    }
    walk[length++] = 0;
    return length;
}

static void test_walk_has_all_pairs(void **state)
{
    (void)state;
    int walk[WALK_MAX];
    bool seen[CALLS_MAX][CALLS_MAX] = {{false}};
    const int length = all_pairs(CALLS_MAX, walk);
    assert_in_range(length, 1, WALK_MAX);
    for (int i = 1; i < length; i++) seen[walk[i - 1]][walk[i]] = true;
    for (int a = 0; a < CALLS_MAX; a++)
        for (int b = 0; b < CALLS_MAX; b++) assert_true(seen[a][b]);
}

/* ---- runs ---- */

/* Logits of 203 classes are more than all else in a block of 48 columns. */
#define LARGE_LOSS "train_micro_batch_size_per_gpu=4", "model.n_positions=64", "model.vocab_size=203"

static ps_status create(ps_config *c, bool training, ps_engine **e)
{
    return training ? ps_initialize_engine(ps_model_from_config, c, 0, c, e)
                    : ps_initialize_inference_engine(ps_model_from_config, c, 0, c, e);
}

/* What the walk leads to: a sum of all that came out. */
static run walk_calls(const work_folder *folder, ps_config *c, const call *calls, int n, bool training)
{
    int walk[WALK_MAX];
    char name[128];
    run r = {.c = c, .folder = *folder, .call = "initialisation"};
    assert_ok(ps_config_set(c, "train.threads", "1")); /* little is computed */
    check(&r, create(c, training, &r.e));
    const int length = all_pairs(n, walk);
    for (int i = 0; i < length; i++) {
        snprintf(name, sizeof name, "%s after %s", calls[walk[i]].name,
                 i > 0 ? calls[walk[i - 1]].name : "initialisation");
        r.call = name;
        calls[walk[i]].run(&r);
    }
    r.call = "the end";
    finish_saving(&r);
    call_read(&r);
    ps_engine_destroy(r.e);
    ps_config_destroy(c);
    return r;
}

/* A checkpoint and weights that walks load. */
static void prepare(const work_folder *folder, const char *const *changes)
{
    run r = {.c = on_cpu(tiny_with(changes)), .folder = *folder, .call = "preparing"};
    r.e = engine_of(r.c);
    call_step(&r);
    check(&r, ps_engine_save_checkpoint(r.e, work_file(folder->path, "first").text, NULL, NULL));
    check(&r, ps_engine_save_weights(r.e, work_file(folder->path, "first.safetensors").text));
    ps_engine_destroy(r.e);
    ps_config_destroy(r.c);
}

static void set_bytes(ps_config *c, const char *key, int64_t bytes)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)bytes);
    assert_ok(ps_config_set(c, key, text));
}

/* The least of a budget that is accepted, to the page. */
static int64_t least_budget(const char *const *changes, bool training, const char *key, int64_t enough)
{
    int64_t too_few = -1, fits = enough / PS_PAGE_BYTES;
    while (fits - too_few > 1) {
        const int64_t try = too_few + (fits - too_few) / 2;
        ps_config *c = tiny_with(changes);
        ps_engine *e = NULL;
        assert_ok(ps_config_set(c, "train.threads", "1"));
        set_bytes(c, key, ps_max_i64(try * PS_PAGE_BYTES, 0));
        const ps_status st = create(c, training, &e);
        if (st == PS_OK)
            fits = try;
        else if (st == PS_EBUDGET)
            too_few = try;
        else
            fail_msg("%s", ps_last_error());
        ps_engine_destroy(e);
        ps_config_destroy(c);
    }
    return fits * PS_PAGE_BYTES;
}

/* The same walk in plenty of memory and in the least that is accepted of one budget, the others as in `tight`. */
static void compare(const char *const *changes, const char *const *tight, bool training, const char *key)
{
    const work_folder folder = work_make();
    prepare(&folder, changes);
    const call *calls = training ? training_calls : inference_calls;
    const int n = training ? (int)PS_ARRAY_LEN(training_calls) : (int)PS_ARRAY_LEN(inference_calls);
    const run plenty = walk_calls(&folder, on_cpu(tiny_with(changes)), calls, n, training);
    ps_config *c = tiny_with(tight);
    set_bytes(c, key, least_budget(tight, training, key, 8 << 20));
    const run least = walk_calls(&folder, c, calls, n, training);
    assert_false(plenty.was_refused);
    if (!least.was_refused && least.sum != plenty.sum) fail_msg("%s, least %s: other results", tight[0], key);
    work_remove(folder.path);
}

/* Each budget at its least, next to others that are about what is needed. */
static void vary_budgets(const char *format, const char *more, bool training)
{
    const char *const *plenty = CHANGES(format, more);
#define LEAST(key, ...)                                                                                                \
    if (is_my_share_of(9)) compare(plenty, CHANGES(format, more, __VA_ARGS__), training, key)
    LEAST("memory.device", "memory.disk=20MB");
    LEAST("memory.device", "memory.host=8MB");
    LEAST("memory.device", "memory.host=500KB", "default_chunk_size=6400");
    LEAST("memory.device", "default_chunk_size=4096");
    LEAST("memory.host", "memory.device=400KB", "default_chunk_size=2048");
    LEAST("memory.disk", "memory.device=400KB", "memory.disk=8MB", "default_chunk_size=4096");
    LEAST("memory.disk", "memory.device=370KB", "memory.host=200KB", "memory.disk=8MB", "default_chunk_size=2048");
#undef LEAST
}

static void test_training_f32(void **state)
{
    (void)state;
    vary_budgets("bf16.enabled=false", "gradient_accumulation_steps=1", true);
}

static void test_training_bf16(void **state)
{
    (void)state;
    vary_budgets("bf16.enabled=true", "gradient_accumulation_steps=1", true);
}

static void test_training_accumulated(void **state)
{
    (void)state;
    vary_budgets("bf16.enabled=true", "gradient_accumulation_steps=2", true);
}

static void test_training_checkpointed(void **state)
{
    (void)state;
    vary_budgets("bf16.enabled=true", "activation_checkpointing.enabled=true", true);
}

static void test_training_at_once(void **state)
{
    (void)state;
    vary_budgets("bf16.enabled=true", "memory.defer_updates=false", true);
}

static void test_training_frozen(void **state)
{
    (void)state;
    vary_budgets("bf16.enabled=true", "train.freeze=*.w?e.weight,*.h.0.*,*.h.1.ln_2.*", true);
}

/* Where the loss takes most of the memory, what it took must be there again for the next call. */
static void test_large_loss(void **state)
{
    (void)state;
    const char *const *plenty = CHANGES("bf16.enabled=true", LARGE_LOSS);
    for (int training = 0; training <= 1; training++)
        compare(plenty, CHANGES("bf16.enabled=true", LARGE_LOSS, "memory.disk=20MB", "default_chunk_size=10240"),
                training, "memory.device");
}

static void test_inference(void **state)
{
    (void)state;
    vary_budgets("bf16.enabled=true", "gradient_accumulation_steps=1", false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_walk_has_all_pairs),
        cmocka_unit_test(test_training_f32),
        cmocka_unit_test(test_training_bf16),
        cmocka_unit_test(test_training_accumulated),
        cmocka_unit_test(test_training_checkpointed),
        cmocka_unit_test(test_training_at_once),
        cmocka_unit_test(test_training_frozen),
        cmocka_unit_test(test_large_loss),
        cmocka_unit_test(test_inference),
    };
    return RUN_ON_BACKENDS(tests);
}
