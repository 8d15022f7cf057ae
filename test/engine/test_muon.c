/* Muon in the engine: the same bits whatever the memory, when updates run, and on any number of ranks' chunks; a run
 * that is saved and resumed; which tensors have which states, in memory, in files and in plans. */
#include "checkpoint/checkpoint_fixture.h"
#include "engine/ranks_fixture.h"

enum { STEPS = 4 };

#define BF16 "bf16.enabled=true"
#define DROPOUT "model.embd_pdrop=0.1", "model.resid_pdrop=0.1", "model.attn_pdrop=0.1"
#define MUON "optimizer.type=Muon", "optimizer.params.lr=0.01"
#define LEGAL "gradient_clipping=0", "train.max_nonfinite_steps=1"

static void assert_same(const char *what, const run_result *a, const run_result *b)
{
    for (int s = 0; s < STEPS; s++)
        if (memcmp(&a->losses[s], &b->losses[s], sizeof a->losses[s]) != 0)
            fail_msg("%s: loss of step %d is %.9g, not %.9g", what, s, (double)b->losses[s], (double)a->losses[s]);
    if (a->hash != b->hash) fail_msg("%s: other weights", what);
}

static void expect_fails(ps_status st, ps_status wanted, const char *message)
{
    if (st != wanted || strstr(ps_last_error(), message) == NULL)
        fail_msg("%s: \"%s\" lacks \"%s\"", ps_status_name(st), ps_last_error(), message);
}

static run_result train_at(const char *const *changes, int64_t device_bytes)
{
    ps_config *c = tiny_with(changes);
    over_set_number(c, "memory.device", device_bytes);
    return train(c, STEPS);
}

/* ---- same bits --------------------------------------------------------------------------------------------------- */

static void vary(const char *format, const char *more, const char *other)
{
    const run_result base = train(on_cpu(TINY(MUON, format, more, other, DROPOUT)), STEPS);
    assert_true(base.losses[STEPS - 1] < base.losses[0] + 0.5f && base.losses[0] > 1);
#define SAME(what, ...)                                                                                                \
    do {                                                                                                               \
        if (!is_my_share()) break;                                                                                     \
        const run_result r_ = train(TINY(MUON, format, more, other, DROPOUT, __VA_ARGS__), STEPS);                     \
        assert_same(what, &base, &r_);                                                                                 \
    } while (0)
    SAME("again", "train.seed=7");
    SAME("one thread", "train.threads=1");
    SAME("small chunks", "default_chunk_size=10240");
    SAME("chunks of less than a matrix", "default_chunk_size=2048");
    SAME("the same on disk", "default_chunk_size=4096", "memory.device=1500KB", "memory.disk=20MB");
    SAME("the same on host", "default_chunk_size=2048", "memory.device=1500KB", "memory.host=4MB");
    SAME("the same at once", "default_chunk_size=4096", "memory.device=1500KB", "memory.host=700KB", "memory.disk=20MB",
         "memory.defer_updates=false");
    SAME("odd chunks", "default_chunk_size=14336");
    SAME("large chunks", "default_chunk_size=262144");
    SAME("checkpointing", "activation_checkpointing.enabled=true");
    SAME("host tier", "memory.device=1500KB", "memory.host=4MB", "default_chunk_size=10240");
    SAME("disk tier", "memory.device=1500KB", "memory.disk=20MB", "default_chunk_size=10240");
    SAME("three tiers", "memory.device=1500KB", "memory.host=700KB", "memory.disk=20MB", "default_chunk_size=10240");
    SAME("no prefetch", "memory.device=1500KB", "memory.host=700KB", "memory.disk=20MB", "memory.prefetch=0");
    SAME("a slow disk", "memory.device=1500KB", "memory.disk=20MB", "hardware=test/engine/endless_disk.json");
    SAME("updates on host", "memory.host=4MB", "optimizer.params.use_hybrid_adam=false");
    SAME("updates at once", "memory.device=1500KB", "memory.disk=20MB", "memory.defer_updates=false");
#undef SAME
    const char *const *changes = CHANGES(MUON, format, more, other, DROPOUT, "memory.disk=20MB");
    const int64_t least = smallest_device(changes);
    const run_result r = train_at(changes, least);
    assert_same("smallest budget", &base, &r);
    assert_true(r.memory.device_peak_bytes <= least);
}

static void test_same_bits(void **state)
{
    (void)state;
    vary("bf16.enabled=false", "optimizer.params.ns_gemms=fp32", NOTHING);
    vary(BF16, "gradient_accumulation_steps=3", NOTHING);
    vary("fp16.enabled=true", "fp16.initial_scale_power=24", NOTHING); /* the first steps are skipped */
    vary(BF16, "optimizer.params.adjust_lr_fn=match_rms_adamw", "train.freeze=*.h.0.*");
    vary(BF16, "optimizer.param_groups=[{\"params\": \"*.h.1.*\", \"lr\": 0.003, \"momentum\": 0.8, \"ns_steps\": 3}]",
         "zero.reuse_fp16_shard=false");
}

/* Scratch and runs are in the plan: peaks are those that it names. */
static void test_peaks_as_planned(void **state)
{
    (void)state;
    static const char *const chunks[] = {"default_chunk_size=2048", "default_chunk_size=10240"};
    for (int i = 0; i < 2; i++) {
        const run_result r = train(TINY(MUON, BF16, chunks[i], "memory.device=1500KB", "memory.disk=20MB"), MAX_STEPS);
        assert_int_equal(r.memory.device_peak_bytes, r.memory.planned_device_peak_bytes);
        assert_int_equal(r.memory.host_peak_bytes, r.memory.planned_host_peak_bytes);
    }
}

/* An option of a group that none of its parameters has is refused; those for all, and those of optimizer.params, are
 * not. */
static void test_groups(void **state)
{
    (void)state;
    static const struct {
        const char *group, *message; /* NULL: accepted */
    } all[] = {
        {"\"*.ln_1.*\", \"lr\": 0.001, \"momentum\": 0.9",
         "group 1 ('*.ln_1.*') has momentum, which is for matrices that Muon updates as a whole, but of the group's 4"},
        {"\"*.ln_1.*\", \"ns_steps\": 3", "has ns_steps, which"},
        {"\"*wte*\", \"adjust_lr_fn\": \"match_rms_adamw\"", "has adjust_lr_fn, which"},
        {"\"*.c_fc.weight\", \"betas\": [0.8, 0.9]", "('*.c_fc.weight') has betas, which is for what Muon leaves to "
                                                     "AdamW, but of the group's 2 parameters none is"},
        {"\"*.c_fc.weight\", \"eps\": 1e-6", "has eps, which"},
        {"\"*.c_fc.weight\", \"nesterov\": false, \"ns_eps\": 1e-6, \"lr\": 0.01, \"weight_decay\": 0.1", NULL},
        {"\"*.ln_1.*\", \"betas\": [0.8, 0.9], \"eps\": 1e-6, \"lr\": 0.001", NULL},
        {"\"*.c_fc.*\", \"betas\": [0.8, 0.9], \"momentum\": 0.9", NULL},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(all); i++) {
        char groups[256];
        snprintf(groups, sizeof groups, "optimizer.param_groups=[{\"params\": %s}]", all[i].group);
        ps_config *c = TINY(MUON, "optimizer.params.momentum=0.8", "optimizer.params.eps=1e-7", groups);
        ps_engine *e = NULL;
        const ps_status st = ps_engine_create(ps_model_from_config, c, c, PS_FOR_TRAINING, NULL, &e);
        if (all[i].message == NULL)
            assert_ok(st);
        else
            expect_fails(st, PS_EINVAL, all[i].message);
        ps_engine_destroy(e);
        ps_config_destroy(c);
    }
}

/* A refusal says what the update of a matrix takes beside chunks and activations, and of which matrix. Without the
 * scratch the budget has room for the operator that needs most. */
static void test_refusal(void **state)
{
    (void)state;
    const char *const *changes = CHANGES(MUON, BF16, "default_chunk_size=10240", "memory.disk=20MB");
    ps_config *c = tiny_with(changes);
    over_set_number(c, "memory.device", smallest_device(changes) - 64 * 1024);
    ps_engine *e = NULL;
    expect_fails(ps_engine_create(ps_model_from_config, c, c, PS_FOR_TRAINING, NULL, &e), PS_EBUDGET,
                 "scratch for Muon of transformer.h.0.mlp.c_fc.weight, a whole matrix");
    assert_null(e);
    ps_config_destroy(c);
}

/* Early, and such as may be taken back: of steps that are clipped, they are. */
static void test_same_bits_early(void **state)
{
    (void)state;
    const char *const early[][3] = {{LEGAL, "memory.update_in_backward=always"},
                                    {"gradient_clipping=100", "memory.update_in_backward=speculate", NOTHING},
                                    {"gradient_clipping=0.1", "memory.update_in_backward=speculate", NOTHING}};
    for (size_t i = 0; i < PS_ARRAY_LEN(early); i++) {
        const char *clipping = early[i][0], *more = i == 0 ? "train.max_nonfinite_steps=1" : NOTHING;
        const char *when = i == 0 ? "memory.update_in_backward=always" : early[i][1];
        const run_result base =
            train(on_cpu(TINY(MUON, BF16, clipping, more, "memory.update_in_backward=never")), STEPS);
        const run_result disk = train(TINY(MUON, BF16, clipping, more, when, "memory.device=1500KB", "memory.disk=20MB",
                                           "default_chunk_size=10240"),
                                      STEPS);
        const run_result runs = train(TINY(MUON, BF16, clipping, more, when, "memory.device=1500KB", "memory.disk=20MB",
                                           "default_chunk_size=4096"),
                                      STEPS);
        assert_same(when, &base, &runs);
        const run_result host =
            train(TINY(MUON, BF16, clipping, more, when, "memory.device=1500KB", "memory.host=4MB", "memory.disk=20MB"),
                  STEPS);
        assert_same(when, &base, &disk);
        assert_same(when, &base, &host);
    }
}

/* Each matrix in a chunk, and so of one rank. */
static void test_ranks(void **state)
{
    (void)state;
    for (int32_t n = 2; n <= 3; n++) {
        const uint64_t want = RANKS(n, STEPS, FOR_BITS, MUON, BF16)[0].result.hash;
        assert_true(RANKS(n, STEPS, MUON, BF16, "default_chunk_size=10240")[0].result.hash == want);
        assert_true(RANKS(n, STEPS, MUON, BF16, "memory.device=1500KB", "memory.host=2MB", MSC)[0].result.hash == want);
        const rank_result *small =
            &try_ranks(ps_model_from_config, n, 1, rank_train, CHANGES(MUON, BF16, "default_chunk_size=2048"))->result;
        assert_int_equal(small->st, PS_EINVAL);
        assert_non_null(strstr(small->error, "with several ranks set default_chunk_size to at least 9216"));
        assert_true(RANKS(n, STEPS, MUON, BF16, "memory.device=1500KB", "memory.disk=20MB")[0].result.hash == want);
    }
}

/* ---- states ------------------------------------------------------------------------------------------------------ */

static int64_t find_tensor(const ps_engine *e, const char *end, int64_t *n)
{
    for (int64_t t = 0; t < ps_engine_get_tensor_count(e); t++) {
        const char *name;
        int n_dims;
        int64_t shape[2];
        assert_ok(get_tensor(e, t, &name, &n_dims, shape));
        *n = n_dims == 2 ? shape[0] * shape[1] : shape[0];
        if (strlen(name) >= strlen(end) && strcmp(name + strlen(name) - strlen(end), end) == 0) return t;
    }
    fail_msg("no tensor %s", end);
    return -1;
}

/* After one step buffer = (1 - momentum) g, and of other tensors AdamW's mean is (1 - beta1) g. */
static void test_states(void **state)
{
    (void)state;
    enum { N = 48 };
    static const char *const matrices[] = {"h.0.attn.c_attn.weight", "h.1.mlp.c_proj.weight"};
    static const char *const others[] = {"wte.weight", "wpe.weight", "h.0.ln_1.weight", "h.1.mlp.c_fc.bias"};
    ps_engine *e;
    ps_config *c = TINY(MUON, "gradient_clipping=0", "memory.update_in_backward=never");
    float g[8][N], values[N];
    int64_t n;
    e = engine_of(c);
    int32_t tokens[32], targets[32];
    fill_batch(tokens, targets, 2, 16, TINY_VOCABULARY, 1);
    assert_ok(ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, NULL));
    assert_ok(ps_backward(e));
    for (int i = 0; i < 2; i++) assert_ok(ps_engine_read_gradient(e, find_tensor(e, matrices[i], &n), 0, N, g[i]));
    for (int i = 0; i < 4; i++) assert_ok(ps_engine_read_gradient(e, find_tensor(e, others[i], &n), 0, N, g[2 + i]));
    assert_ok(ps_step(e));
    for (int i = 0; i < 2; i++) {
        const int64_t t = find_tensor(e, matrices[i], &n);
        assert_ok(ps_engine_read_state(e, t, "momentum_buffer", 0, N, values));
        for (int k = 0; k < N; k++)
            assert_true(fabs((double)values[k] - 0.05 * (double)g[i][k]) <= 1e-6 * fabs((double)g[i][k]));
        expect_fails(ps_engine_read_state(e, t, "exp_avg", 0, N, values), PS_EINVAL,
                     "has no exp_avg: optimizer.type = Muon updates it as a whole matrix");
    }
    for (int i = 0; i < 4; i++) {
        const int64_t t = find_tensor(e, others[i], &n);
        assert_ok(ps_engine_read_state(e, t, "exp_avg", 0, N, values));
        for (int k = 0; k < N; k++)
            assert_true(fabs((double)values[k] - 0.1 * (double)g[2 + i][k]) <= 1e-6 * fabs((double)g[2 + i][k]));
        assert_ok(ps_engine_read_state(e, t, "exp_avg_sq", 0, N, values));
        expect_fails(ps_engine_write_state(e, t, "momentum_buffer", 0, N, values), PS_EINVAL,
                     "has no momentum_buffer: optimizer.type = Muon updates it by elements, as AdamW");
    }
    expect_fails(ps_engine_load_optimizer(e, "optimizer.pt"), PS_ENOSYS, "optimizer.type = Muon");
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

/* A matrix has 4 bytes of states an element, others have 8; and no more is stored, but in the one chunk with both. */
static void test_bytes(void **state)
{
    (void)state;
    ps_config *c = TINY(MUON, BF16, "default_chunk_size=10240"), *named;
    ps_engine *e = engine_of(c);
    const ps_exec_plan *b = e->exec_plan;
    int64_t whole = 0, all = 0, n_lists[3] = {0};
    for (int32_t t = 0; t < b->program->n_params; t++) {
        all += b->program->params[t].elements;
        if (b->program->params[t].is_whole) whole += b->program->params[t].elements;
    }
    assert_int_equal(whole, 2 * (48 * 144 + 48 * 48 + 2 * 48 * 192));
    ps_memory_info m = {.struct_size = sizeof m};
    assert_ok(ps_engine_get_memory_info(e, &m));
    assert_int_equal(m.checkpoint_bytes, 8 * whole + 12 * (all - whole));
    for (int i = 0; i < 3; i++)
        for (int32_t chunk = 0; chunk < b->layout->n_chunks; chunk++)
            n_lists[i] += ps_exec_plan_has_chunk(b, PS_LIST_STATES + i, chunk);
    assert_int_equal(n_lists[1], n_lists[2]);
    assert_in_range(n_lists[0] + n_lists[1], b->layout->n_chunks, b->layout->n_chunks + 1);
    assert_in_range(n_lists[1], 1, 2);
    ps_engine_destroy(e);
    named = TINY(MUON, BF16, "optimizer.params.adamw_names=*wte*,*wpe*,*.mlp.*");
    e = engine_of(named);
    whole = 0;
    for (int32_t t = 0; t < e->program->n_params; t++)
        if (e->program->params[t].is_whole) whole += e->program->params[t].elements;
    assert_int_equal(whole, 2 * (48 * 144 + 48 * 48));
    ps_engine_destroy(e);
    ps_config_destroy(named);
    ps_config_destroy(c);
    c = TINY(MUON, BF16, "optimizer.params.adamw_names=*wte*,*mpl*");
    e = NULL;
    expect_fails(ps_engine_create(ps_model_from_config, c, c, PS_FOR_TRAINING, NULL, &e), PS_EINVAL,
                 "optimizer.params.adamw_names: '*mpl*' matches none of the model's");
    assert_null(e);
    ps_config_destroy(c);
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

static ps_engine *resumed(const char *const *changes, const char *folder, ps_config **c)
{
    *c = tiny_with(changes);
    ps_engine *e = engine_of(*c);
    assert_ok(ps_engine_load_checkpoint(e, folder, NULL));
    return e;
}

static void test_resume(void **state)
{
    (void)state;
    float losses[2 * STEPS], again[2 * STEPS];
    work_folder w = work_make();
    ps_config *c = TINY(MUON, BF16, "memory.host=4MB"), *other;
    ps_engine *e = engine_of(c), *next;
    train_steps(e, 0, STEPS, losses);
    const work_path path = work_file(w.path, "saved");
    assert_ok(ps_engine_save_checkpoint(e, path.text, NULL, NULL));
    train_steps(e, STEPS, 2 * STEPS, losses);
    static const char *const memories[][3] = {{"memory.host=4MB", NOTHING, NOTHING},
                                              {"memory.device=1500KB", "memory.disk=20MB", "default_chunk_size=14336"},
                                              {"memory.device=1500KB", "memory.disk=20MB", "default_chunk_size=2048"}};
    for (int i = 0; i < 3; i++) {
        next = resumed(CHANGES(MUON, BF16, memories[i][0], memories[i][1], memories[i][2]), path.text, &other);
        train_steps(next, STEPS, 2 * STEPS, again);
        assert_memory_equal(&again[STEPS], &losses[STEPS], STEPS * sizeof *again);
        assert_true(hash_of(next) == hash_of(e));
        ps_engine_destroy(next);
        ps_config_destroy(other);
    }
    static const char *const others[][2] = {
        {"optimizer.type=AdamW", NOTHING}, {"optimizer.type=Muon", "optimizer.params.adamw_names=*wte*,*wpe*,*.mlp.*"}};
    for (int i = 0; i < 2; i++) {
        other = TINY(BF16, "memory.host=4MB", others[i][0], others[i][1]);
        next = engine_of(other);
        expect_fails(ps_engine_load_checkpoint(next, path.text, NULL), PS_EINVAL, "optimizer");
        ps_engine_destroy(next);
        ps_config_destroy(other);
    }
    ps_engine_destroy(e);
    ps_config_destroy(c);
    work_remove(w.path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states),           cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_same_bits),        cmocka_unit_test(test_same_bits_early),
        cmocka_unit_test(test_peaks_as_planned), cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_resume),           cmocka_unit_test(test_refusal),
        cmocka_unit_test(test_groups),
    };
    return RUN_ON_BACKENDS(tests);
}
