/* What there is only over the fake GPU: a wait that is missing, or a device that dies, ends a step with an error that says
 * so. */
#define TEST_OVER_ASYNC
#include "engine/engine_fixture.h"

#include <signal.h>

enum { T = 16 };

static ps_status step_once(ps_engine *e, int64_t index)
{
    int32_t tokens[2 * T], targets[2 * T];
    fill_batch(tokens, targets, 2, T, TINY_VOCABULARY, index);
    PS_TRY(ps_forward(e, &(ps_batch){.tokens = tokens, .targets = targets}, NULL));
    PS_TRY(ps_backward(e));
    return ps_step(e);
}

static void assert_message(const char *text)
{
    if (strstr(ps_last_error(), text) == NULL) fail_msg("not \"%s\": %s", text, ps_last_error());
}

/* With a wait switched off, a step does what no event orders. That it still has the right bits is luck; the checker
 * finds it whatever the luck. */
static void test_missing_wait(void **state)
{
    (void)state;
    for (int skips = 0; skips < 2; skips++) {
        ps_config *c = TINY("bf16.enabled=true", "memory.device=400KB", "memory.host=2MB", "default_chunk_size=4096");
        ps_engine *e = engine_of(c);
        if (skips) ps_order_skip(e->order, PS_WAIT_ARRIVAL);
        ps_status st = PS_OK;
        for (int step = 0; step < 3 && st == PS_OK; step++) st = step_once(e, step);
        assert_int_equal(st, skips ? PS_EDEVICE : PS_OK);
        if (skips) assert_message("cpu_async.check_order: ");
        if (skips) assert_int_equal(step_once(e, 9), PS_ESTATE);
        ps_engine_destroy(e);
        ps_config_destroy(c);
    }
    assert_int_equal(ps_mem_live_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing_wait),
    };
    return RUN_ON_BACKENDS(tests);
}
