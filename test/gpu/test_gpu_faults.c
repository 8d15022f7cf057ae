/* test_gpu_faults.c - a GPU that is lost, memory that another process takes, and calls of the driver that fail while an
 * engine works: one error that says what it was, nothing left, and a checkpoint that can be resumed. Over the fake driver
 * only, which is begun anew for each. */
#include "engine/engine_fixture.h"

#include "checkpoint/checkpoint_fixture.h"
#include "patrickstar_client.h"

enum { T = 16 };

#define TWO_TIERS                                                                                                      \
    "bf16.enabled=true", "model.n_layer=1", "memory.device=450KB", "memory.host=2MB", "default_chunk_size=4096"
#define THREE_TIERS                                                                                                    \
    "bf16.enabled=true", "model.n_layer=1", "memory.device=450KB", "memory.host=300KB", "memory.disk=20MB",            \
        "default_chunk_size=4096"

static void again(fake_options o)
{
    assert_true(mock_gpu_end());
    if (o.page_bytes == 0) o.page_bytes = ASYNC_PAGE_BYTES;
    mock_gpu_begin(&o);
}

static void assert_message(const char *text)
{
    if (strstr(ps_last_error(), text) == NULL) fail_msg("not \"%s\": %s", text, ps_last_error());
    if (strchr(ps_last_error(), '\n') != NULL) fail_msg("several lines: %s", ps_last_error());
}

static ps_status step_once(ps_engine *e, int64_t index)
{
    int32_t tokens[2 * T], targets[2 * T];
    fill_batch(tokens, targets, 2, T, TINY_VOCABULARY, index);
    PS_TRY(ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, NULL));
    PS_TRY(ps_backward(e));
    return ps_step(e);
}

/* ---- opening ---- */

static void expect_no_gpu(const char *text)
{
    ps_engine *e = NULL;
    ps_config *c = TINY("bf16.enabled=true");
    assert_int_equal(ps_initialize_engine(ps_model_from_config, c, 0, c, &e), PS_ENOSYS);
    assert_null(e);
    assert_message("train.backend = cuda: ");
    assert_message(text);
    assert_message("; or set train.backend = cpu");
    over_set(c, "train.backend", "auto"); /* continues without, and says so */
    e = engine_of(c);
    assert_int_equal(e->settings.backend_kind, PS_BACKEND_CPU);
    assert_non_null(strstr(e->settings.gpu.why_not, text));
    assert_ok(step_once(e, 0));
    ps_engine_destroy(e);
    ps_client *client;
    ps_client_info info = {.struct_size = sizeof info};
    assert_ok(ps_client_create(c, NULL, &client));
    assert_ok(ps_client_get_info(client, &info));
    assert_int_equal(info.gpu, -1);
    assert_non_null(strstr(info.why_not_gpu, text));
    ps_client_destroy(client);
    ps_config_destroy(c);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void test_no_gpu(void **state)
{
    (void)state;
    again((fake_options){.n_devices = -1});
    expect_no_gpu("finds no GPU");
    again((fake_options){.version = 12080});
    expect_no_gpu("13.0");
    again((fake_options){.capability = 75});
    expect_no_gpu("compute capability is 7.5");
    again((fake_options){.mode = PS_CU_MODE_PROHIBITED});
    expect_no_gpu("compute mode forbids");
    again((fake_options){.seed = 1});
}

/* train.attention, which the processor does not have: one remedy, which is right. */
static void test_no_cudnn(void **state)
{
    (void)state;
    ps_engine *e = NULL;
    ps_config *c = TINY("train.attention=cudnn");
    assert_int_equal(ps_initialize_engine(ps_model_from_config, c, 0, c, &e), PS_ENOSYS);
    assert_message("train.backend = cuda: train.attention = cudnn: ");
    assert_message("; or set train.attention = own");
    assert_null(strstr(ps_last_error(), "train.backend = cpu"));
    ps_config_destroy(c);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* ---- the device is lost ---- */

static void expect_lost(ps_engine *e, ps_status st, const char *text)
{
    float value;
    assert_int_equal(st, PS_EDEVICE);
    assert_message(text);
    assert_int_equal(step_once(e, 0), PS_ESTATE);
    assert_true(ps_engine_read_tensor(e, 0, 0, 1, &value) != PS_OK);
    ps_engine_destroy(e);
}

/* At any item of steps and saves: what is on disk can be resumed, on another backend too. */
static void test_lost_meanwhile(void **state)
{
    (void)state;
    static const struct {
        ps_cu_result r;
        const char *text;
    } ways[] = {{PS_CU_ILLEGAL_ADDRESS, "is lost: "}, {PS_CU_ECC_UNCORRECTABLE, "its memory is bad"}};
    const work_folder work = work_make();
    for (int i = 0; i < 6; i++) {
        again((fake_options){.seed = (uint64_t)i});
        ps_config *c = TINY(THREE_TIERS);
        ps_engine *e = engine_of(c);
        ps_status st = ps_engine_save_checkpoint(e, work.path, NULL, NULL);
        int64_t step = 0;
        assert_ok(st);
        fake_break(10 + 331 * i, ways[i % 2].r);
        for (; st == PS_OK && step < 20; step++) {
            st = step_once(e, step);
            if (st == PS_OK && step % 2 == 0) st = ps_engine_begin_checkpoint(e, work.path, NULL);
            if (st == PS_OK && step % 2 == 1) st = ps_engine_finish_checkpoint(e, NULL);
        }
        expect_lost(e, st, ways[i % 2].text);
        over_set(c, "train.backend", "cpu");
        e = engine_of(c);
        assert_ok(ps_engine_load_checkpoint(e, work.path, NULL));
        assert_ok(step_once(e, step));
        ps_engine_destroy(e);
        ps_config_destroy(c);
        assert_int_equal(ps_mem_live_bytes(), 0);
    }
    work_remove(work.path);
    again((fake_options){.seed = 1});
}

/* ---- memory ---- */

/* Another process has what is wanted next: an error says so, and after its end an engine works again. */
static void test_memory_taken(void **state)
{
    (void)state;
    ps_config *c = TINY(TWO_TIERS);
    ps_engine *e = engine_of(c);
    fake_take_memory(PS_GIB - 64 * PS_KIB);
    ps_status st = PS_OK;
    for (int step = 0; step < 3 && st == PS_OK; step++) st = step_once(e, step);
    assert_int_equal(st, PS_ENOMEM_DEV);
    assert_message("has no memory left");
    assert_message("belongs to other processes");
    ps_engine_destroy(e);
    fake_take_memory(-(PS_GIB - 64 * PS_KIB));
    e = engine_of(c);
    assert_ok(step_once(e, 0));
    ps_engine_destroy(e);
    ps_config_destroy(c);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* ---- calls that fail ---- */

static const char *const functions[] = {
#define XX(is_needed, name, symbol, params) #name,
#include "device/cuda/driver.def"
#undef XX
};

/* What it could not free is left. */
static bool gives_back(const char *function)
{
    static const char *const words[] = {"unmap", "free", "release", "destroy", "unregister", "unload"};
    for (size_t i = 0; i < PS_ARRAY_LEN(words); i++)
        if (strstr(function, words[i]) != NULL) return true;
    return false;
}

/* After which it is unknown what is still under way: drivers fail there only when all is lost. */
static bool is_wait(const char *function)
{
    return strcmp(function, "event_wait") == 0 || strcmp(function, "event_query") == 0;
}

/* Each call of the driver, at its first, third, ninth ... time: an error, or no effect; then all is released. */
static void test_each_call_fails(void **state)
{
    (void)state;
    int n_failed = 0;
    for (size_t f = 0; f < PS_ARRAY_LEN(functions); f++) {
        for (int nth = 0; nth < 2000; nth = 3 * nth + 1) {
            again((fake_options){.seed = (uint64_t)nth});
            ps_config *c = TINY(THREE_TIERS);
            ps_engine *e = NULL;
            fake_fail(functions[f], nth,
                      nth % 2 == 1 || is_wait(functions[f]) ? PS_CU_LAUNCH_FAILED : PS_CU_NOT_SUPPORTED);
            ps_status st = ps_initialize_engine(ps_model_from_config, c, 0, c, &e);
            if (st == PS_OK) st = step_once(e, 0);
            n_failed += st != PS_OK;
            if (st != PS_OK) assert_message("");
            const bool was_called = fake_calls(functions[f]) > nth;
            ps_engine_destroy(e);
            ps_config_destroy(c);
            if (ps_mem_live_bytes() != 0) fail_msg("%s, call %d: memory leaks", functions[f], nth);
            const bool is_clean = mock_gpu_end();
            mock_gpu_begin(&(fake_options){.seed = 1, .page_bytes = ASYNC_PAGE_BYTES});
            if (!is_clean && !gives_back(functions[f]))
                fail_msg("%s, call %d: something of the driver's is left", functions[f], nth);
            if (!was_called) break;
        }
    }
    assert_true(n_failed > 50);
}

/* ---- order ---- */

/* With a wait switched off, a step does what no event orders; the checker finds it whatever the luck. */
static void test_missing_wait(void **state)
{
    (void)state;
    for (int skips = 0; skips < 2; skips++) {
        ps_config *c = TINY(TWO_TIERS);
        ps_engine *e = engine_of(c);
        if (skips) ps_order_skip(e->order, PS_WAIT_ARRIVAL);
        ps_status st = PS_OK;
        for (int step = 0; step < 3 && st == PS_OK; step++) st = step_once(e, step);
        assert_int_equal(st, skips ? PS_EDEVICE : PS_OK);
        if (skips) assert_message("cuda.check_order: ");
        ps_engine_destroy(e);
        ps_config_destroy(c);
    }
    assert_int_equal(ps_mem_live_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_gpu),          cmocka_unit_test(test_no_cudnn),
        cmocka_unit_test(test_lost_meanwhile),  cmocka_unit_test(test_memory_taken),
        cmocka_unit_test(test_each_call_fails), cmocka_unit_test(test_missing_wait),
    };
    if (!mock_gpu_is_hardware()) return RUN_ON_BACKENDS(tests);
    printf("not tried: failures are those of the fake driver\n");
    return 0;
}
