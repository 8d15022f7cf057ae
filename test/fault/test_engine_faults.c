/* The n-th fallible call fails, for n = 0, 1, 2, ... until a whole run gets through: each time an error of the right
 * kind, nothing leaks, nothing crashes. */
#include "engine/engine_fixture.h"

#include <limits.h>

#include "api/engine/engine.h"
#include "base/fault.h"
#include "device/disk.h"
#include "temp_folder.h"

enum { T = 16, MOST_TOKENS = 4 * T };

typedef enum stage { IN_INIT, IN_STEP, DONE } stage;

static ps_status step_once(ps_engine *e, int64_t index)
{
    int32_t tokens[MOST_TOKENS], targets[MOST_TOKENS];
    int64_t B, length;
    float loss;
    ps_engine_get_shape(e, &B, &length, NULL, NULL);
    assert_true(B * length <= MOST_TOKENS);
    fill_batch(tokens, targets, B, length, 131, index);
    PS_TRY(ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, &loss));
    PS_TRY(ps_backward(e));
    return ps_step(e);
}

/* Nothing goes any more. */
static void assert_failed(ps_engine *e)
{
    int32_t tokens[2 * T] = {0}, targets[2 * T] = {0};
    uint64_t hash;
    float value;
    assert_int_equal(
        ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, NULL),
        PS_ESTATE);
    assert_non_null(strstr(ps_last_error(), "a failure inside a step"));
    assert_int_equal(ps_backward(e), PS_ESTATE);
    assert_int_equal(ps_step(e), PS_ESTATE);
    assert_int_equal(
        ps_evaluate(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, &value),
        PS_ESTATE);
    assert_int_equal(ps_engine_write_tensor(e, 0, 0, 1, &value), PS_ESTATE);
    assert_int_equal(ps_engine_read_tensor(e, 0, 0, 1, &value), PS_ESTATE);
    assert_int_equal(ps_engine_get_weights_xxh3(e, &hash), PS_ESTATE);
}

/* What is done with an engine. */
typedef ps_status engine_run(ps_engine *e, void *model);

static ps_status two_steps(ps_engine *e, void *model)
{
    (void)model;
    for (int step = 0; step < 2; step++) PS_TRY(step_once(e, step));
    return PS_OK;
}

static ps_status two_steps_offloading(ps_engine *e, void *model)
{
    return two_steps(e, model);
}

/* Two steps of a model that is partly frozen, with groups of parameters; and the second one's gradients are changed. */
static ps_status two_steps_partly(ps_engine *e, void *model)
{
    int32_t tokens[2 * T], targets[2 * T];
    float values[48];
    (void)model;
    PS_TRY(step_once(e, 0));
    fill_batch(tokens, targets, 2, T, 131, 1);
    PS_TRY(ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, NULL));
    PS_TRY(ps_backward(e));
    for (int64_t t = 0; t < ps_engine_get_tensor_count(e); t++) {
        if (e->program->params[t].is_frozen) continue;
        PS_TRY(ps_engine_read_gradient(e, t, 0, 48, values));
        PS_TRY(ps_engine_write_gradient(e, t, 0, 48, values));
    }
    PS_TRY(ps_engine_set_learning_rate(e, 1, 2e-4));
    return ps_step(e);
}

/* Another shape and back. After a change that is refused the engine continues as it was. */
static ps_status two_shapes(ps_engine *e, void *model)
{
    static const int64_t shapes[][2] = {{1, 8}, {2, T}};
    PS_TRY(step_once(e, 0));
    for (int i = 0; i < 2; i++) {
        int64_t before, B;
        ps_engine_get_shape(e, &before, NULL, NULL, NULL);
        const ps_status st = ps_engine_set_shape(e, ps_model_from_config, model, shapes[i][0], shapes[i][1]);
        ps_engine_get_shape(e, &B, NULL, NULL, NULL);
        assert_int_equal(B, st == PS_OK ? shapes[i][0] : before);
        PS_TRY(e->state == PS_ENGINE_FAILED ? st : step_once(e, 1 + i));
        PS_TRY(st);
    }
    return PS_OK;
}

/* Initialise, run, destroy, with the call number `nth` failing. Where it failed, and with what; how many calls
 * initialisation had. */
static stage run_engine(const ps_config *c, void *model, engine_run *run, ps_fault_kind kind, long nth, bool persistent,
                        ps_status *st, long *in_init)
{
    ps_engine *e = (ps_engine *)(void *)&e;
    ps_fault_arm(kind, nth, persistent);
    *st = ps_initialize_engine(ps_model_from_config, model, 0, c, &e);
    *in_init = ps_fault_calls(kind);
    if (*st != PS_OK) {
        assert_null(e);
        return IN_INIT;
    }
    *st = run(e, model);
    if (e->state == PS_ENGINE_FAILED) assert_failed(e);
    if (*st != PS_OK && run == two_steps) assert_true(e->state == PS_ENGINE_FAILED);
    ps_engine_destroy(e);
    return *st == PS_OK ? DONE : IN_STEP;
}

static bool right_status(ps_fault_kind kind, ps_status st)
{
    switch (kind) {
    case PS_FAULT_ALLOC: return st == PS_ENOMEM_HOST || st == PS_ENOMEM_DEV;
    case PS_FAULT_COPY: return st == PS_EDEVICE || st == PS_EIO;
    case PS_FAULT_READ:
    case PS_FAULT_WRITE: return st == PS_EIO;
    case PS_FAULT_DEVICE:
    case PS_FAULT_LOST: return st == PS_EDEVICE;
    case PS_FAULT_COUNT: break;
    }
    return false;
}

static const char *const names[] = {"alloc", "copy", "read", "write", "device", "lost"};

/* Initialisation makes the same few calls in trial after trial, so of its calls and of those of steps so many, evenly
 * spread, are enough; with PS_TEST_LONG one in `stride` at least. Over the fake GPU each seed has its own. */
enum { OF_INIT = OVER_DISCRETE ? 60 : 200, OF_STEPS = OVER_DISCRETE ? 60 : 200 };

typedef struct walk {
    long all_below; /* each call before this one */
    long in_init, init_stride, step_stride;
} walk;

static walk walk_of(long all_below, long stride, long in_init, long in_steps)
{
    walk w = {all_below, in_init, 1 + in_init / OF_INIT, 1 + in_steps / OF_STEPS};
    if (OVER_DISCRETE) {
        w.all_below /= 15;
        w.init_stride += (long)over.seed - 1;
    } else if (getenv("PS_TEST_LONG") != NULL) {
        w.init_stride = stride;
        if (w.step_stride > stride) w.step_stride = stride;
    }
    return w;
}

static long walk_next(const walk *w, long n)
{
    if (n < w->all_below) return n + 1;
    if (n >= w->in_init) return n + w->step_stride;
    n += w->init_stride;
    return n < w->in_init ? n : w->in_init + (OVER_DISCRETE ? (long)over.seed % w->step_stride : 0);
}

static void walk_faults(ps_fault_kind kind, engine_run *run, const char *disk_backend, const char *profile_path,
                        long all_below, long stride)
{
    for (int persistent = 0; persistent < 2; persistent++) {
        if (!is_my_share_of(6)) continue;
        ps_config *c = TINY("bf16.enabled=true", "model.n_layer=1", "memory.device=450KB", "memory.host=128KB",
                            "memory.disk=20MB", "default_chunk_size=4096", "memory.prefetch=2", "train.threads=1");
        assert_ok(ps_config_set(c, "memory.disk_backend", disk_backend));
        if (OVER_DISCRETE)
            assert_ok(ps_config_set(c, "memory.host", "150KB")); /* as little, next to what the disk needs */
        if (run == two_steps_offloading) {
            assert_ok(ps_config_set(c, "activation_checkpointing.enabled", "true"));
            assert_ok(ps_config_set(c, "client.opts.with_activation_offload", "true"));
        }
        if (run == two_steps_partly) {
            assert_ok(ps_config_set(c, "train.freeze", "*.wpe.weight,*.h.0.attn.*"));
            assert_ok(ps_config_set(c, "optimizer.param_groups", "[{\"params\": \"*.h.0.*\", \"lr\": 1e-4}]"));
        }
        if (run == two_shapes) { /* no room for all chunks anywhere: changes are tried first */
            assert_ok(ps_config_set(c, "memory.host", "700KB"));
            assert_ok(ps_config_set(c, "memory.disk", "0"));
        }
        const bool is_disk = kind == PS_FAULT_READ || kind == PS_FAULT_WRITE;
        if (persistent && is_disk && !OVER_DISCRETE) /* failures come when all has ended on the timeline */
            assert_ok(ps_config_set(c, "hardware", "test/engine/endless_disk.json"));
        assert_ok(ps_config_set(c, "profile.path", profile_path));
        if (profile_path[0] != '\0') assert_ok(ps_config_set(c, "profile.steps", "1,2"));
        const int64_t live = ps_mem_live_bytes();
        stage reached = IN_INIT;
        ps_status st;
        long in_init, unused, n = 0, failures[2] = {0};
        assert_int_equal(run_engine(c, c, run, kind, LONG_MAX, false, &st, &in_init), DONE);
        const walk w = walk_of(all_below, stride, in_init, ps_fault_calls(kind) - in_init);
        for (; reached != DONE; n = walk_next(&w, n)) {
            reached = run_engine(c, c, run, kind, n, persistent, &st, &unused);
            const bool struck = ps_fault_has_struck(kind);
            ps_fault_arm(kind, -1, false);
            if (ps_mem_live_bytes() != live)
                fail_msg("%s %ld: %lld bytes leak", names[kind], n, (long long)(ps_mem_live_bytes() - live));
            if (reached == DONE) {
                if (struck) reached = IN_STEP; /* it struck what was no longer waited for: on to the next */
                continue;
            }
            failures[reached]++;
            if (!struck || !right_status(kind, st))
                fail_msg("%s %ld: %s: %s", names[kind], n, ps_status_name(st), ps_last_error());
        }
        printf("%s, %s, %s: %ld calls, %ld failures in initialisation, %ld in steps\n", names[kind], disk_backend,
               persistent ? "from then on" : "once", n, failures[IN_INIT], failures[IN_STEP]);
        assert_true(failures[IN_STEP] > 0);
        if (kind == PS_FAULT_ALLOC || kind == PS_FAULT_WRITE) assert_true(failures[IN_INIT] > 0);
        ps_config_destroy(c);
        assert_int_equal(ps_mem_live_bytes(), 0);
    }
}

static void test_alloc(void **state)
{
    (void)state;
    walk_faults(PS_FAULT_ALLOC, two_steps, "threads", "", 300, 7);
    walk_faults(PS_FAULT_ALLOC, two_steps_partly, "threads", "", 300, 11);
}

static void test_copy(void **state)
{
    (void)state;
    walk_faults(PS_FAULT_COPY, two_steps, "threads", "", 300, 7);
    walk_faults(PS_FAULT_COPY, two_steps_offloading, "threads", "", 300, 7);
}

static void test_shapes(void **state)
{
    (void)state;
    walk_faults(PS_FAULT_ALLOC, two_shapes, "threads", "", 300, 23);
    walk_faults(PS_FAULT_COPY, two_shapes, "threads", "", 300, 7);
}

/* A larger shape than any before wants other addresses for its activations. Refused at each allocation of the change,
 * the engine continues with those that it has. */
static void test_growing_shape(void **state)
{
    (void)state;
    ps_config *c = TINY("bf16.enabled=true", "model.n_layer=1");
    ps_engine *e = engine_of(c);
    const ps_shape *planned; /* kept, so that the calls that fail are those of the change itself */
    assert_ok(step_once(e, 0));
    assert_ok(ps_shapes_get(&e->shapes, &e->settings, ps_model_from_config, c, 4, T, e->shape, false, &planned));
    assert_true(planned->code->non_model_bytes > e->shape->code->non_model_bytes);
    ps_status st = PS_ENOMEM_HOST;
    long n = 0;
    for (; st != PS_OK; n++) {
        ps_fault_arm(PS_FAULT_ALLOC, n, false);
        st = ps_engine_set_shape(e, ps_model_from_config, c, 4, T);
        ps_fault_arm(PS_FAULT_ALLOC, -1, false);
        assert_true(st == PS_OK || right_status(PS_FAULT_ALLOC, st));
        assert_ok(step_once(e, 1 + n));
    }
    assert_true(n > 1);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void test_disk_threads(void **state)
{
    (void)state;
    walk_faults(PS_FAULT_READ, two_steps, "threads", "", 300, 7);
    walk_faults(PS_FAULT_WRITE, two_steps, "threads", "", 300, 7);
    walk_faults(PS_FAULT_READ, two_steps_partly, "threads", "", 100, 7);
}

static void test_disk_uring(void **state)
{
    (void)state;
    ps_disk *d = NULL; /* where the kernel refuses it there is nothing to test */
    const ps_status st = ps_disk_open("/tmp", PS_DISK_URING, 2, &d);
    ps_disk_close(d);
    if (st == PS_ENOSYS) skip();
    assert_ok(st);
    walk_faults(PS_FAULT_READ, two_steps, "io_uring", "", 300, 7);
    walk_faults(PS_FAULT_WRITE, two_steps, "io_uring", "", 300, 7);
}

/* A profile that cannot be written fails no step, and leaves nothing. */
static void test_profile(void **state)
{
    (void)state;
    const temp_folder f = temp_folder_make();
    const temp_path path = temp_folder_file(&f, "profile.json");
    walk_faults(PS_FAULT_ALLOC, two_steps, "threads", path.text, 100, 13);
    walk_faults(PS_FAULT_COPY, two_steps, "threads", path.text, 100, 13);
    walk_faults(PS_FAULT_WRITE, two_steps, "threads", path.text, 100, 7);
    assert_int_equal(temp_folder_entries(&f, 0), 1);
    temp_folder_remove(&f);
}

/* ---- updates of whole matrices ---- */

static ps_engine *muon_at(ps_config *c, const temp_folder *saved)
{
    ps_engine *e = engine_of(c);
    assert_ok(ps_engine_load_checkpoint(e, saved->path, NULL));
    return e;
}

/* The second step with the call number `nth` failing: of the disk's those of its updates, else of all. The weights after
 * it, if it gets through. */
static ps_status update_once(ps_engine *e, ps_fault_kind kind, long nth, uint64_t *hash)
{
    int32_t tokens[2 * T], targets[2 * T];
    fill_batch(tokens, targets, 2, T, 131, 1);
    if (kind == PS_FAULT_ALLOC) ps_fault_arm(kind, nth, false);
    ps_status st =
        ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, NULL);
    if (st == PS_OK) st = ps_backward(e);
    if (kind != PS_FAULT_ALLOC) ps_fault_arm(kind, nth, false);
    if (st == PS_OK) st = ps_step(e);
    const bool struck = ps_fault_has_struck(kind);
    ps_fault_arm(kind, -1, false);
    if (st == PS_OK && !struck) assert_ok(ps_engine_get_weights_xxh3(e, hash));
    if (st != PS_OK && !(struck && right_status(kind, st)))
        fail_msg("%s %ld: %s: %s", names[kind], nth, ps_status_name(st), ps_last_error());
    return st;
}

/* Matrices of several chunks, and of one. Whatever update fails, the checkpoint before it resumes to the bits of a run
 * without failures. */
static void test_whole_matrices(void **state)
{
    (void)state;
    static const ps_fault_kind kinds[] = {PS_FAULT_ALLOC, PS_FAULT_READ, PS_FAULT_WRITE};
    static const char *const chunks[] = {"default_chunk_size=4096", "default_chunk_size=10240"};
    for (size_t i = 0; i < PS_ARRAY_LEN(chunks); i++) {
        if (!is_my_share()) continue;
        const temp_folder f = temp_folder_make();
        ps_config *c = TINY("bf16.enabled=true", "model.n_layer=1", "optimizer.type=Muon", "memory.device=450KB",
                            "memory.host=150KB", "memory.disk=20MB", "memory.defer_updates=false", chunks[i]);
        uint64_t want = 0;
        ps_engine *e = engine_of(c);
        assert_ok(step_once(e, 0));
        assert_ok(ps_engine_save_checkpoint(e, f.path, NULL, NULL));
        assert_ok(update_once(e, PS_FAULT_READ, LONG_MAX, &want));
        ps_engine_destroy(e);
        const int64_t live = ps_mem_live_bytes();
        for (size_t k = 0; k < PS_ARRAY_LEN(kinds); k++) {
            long n_failed = 0, n = 0;
            for (ps_status st = PS_EIO;; n += 1 + n / 8) {
                uint64_t hash = 0;
                e = muon_at(c, &f);
                st = update_once(e, kinds[k], n, &hash);
                if (e->state == PS_ENGINE_FAILED) assert_failed(e);
                assert_true(st == PS_OK || e->state == PS_ENGINE_FAILED);
                ps_engine_destroy(e);
                assert_int_equal(ps_mem_live_bytes(), live);
                if (hash != 0) { /* no call failed */
                    assert_true(hash == want);
                    break;
                }
                n_failed += st != PS_OK;
                e = muon_at(c, &f);
                assert_ok(update_once(e, kinds[k], LONG_MAX, &hash));
                assert_true(hash == want);
                ps_engine_destroy(e);
            }
            printf("%s, %s: %ld calls, %ld updates failed\n", chunks[i], names[kinds[k]], n, n_failed);
            assert_true(n_failed > 0);
        }
        ps_config_destroy(c);
        temp_folder_remove(&f);
        assert_int_equal(ps_mem_live_bytes(), 0);
    }
}

/* Calls into the device fail, or it is lost: at a copy, a kernel, what is put there or got, memory freed. */
static void test_device(void **state)
{
    (void)state;
    if (!OVER_DISCRETE) skip();
    for (ps_fault_kind kind = PS_FAULT_DEVICE; kind <= PS_FAULT_LOST; kind++) {
        walk_faults(kind, two_steps, "threads", "", 300, 7);
        walk_faults(kind, two_steps, "io_uring", "", 300, 7);
        walk_faults(kind, two_shapes, "threads", "", 300, 7);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alloc),          cmocka_unit_test(test_copy),
        cmocka_unit_test(test_shapes),         cmocka_unit_test(test_growing_shape),
        cmocka_unit_test(test_disk_threads),   cmocka_unit_test(test_disk_uring),
        cmocka_unit_test(test_profile),        cmocka_unit_test(test_device),
        cmocka_unit_test(test_whole_matrices),
    };
    over.checks_order = false; /* without memory it gives up, and says so */
    return RUN_ON_BACKENDS(tests);
}
