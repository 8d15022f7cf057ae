/* test_client_pairs.c - each call after each other one, in the smallest budgets that ps_client_begin accepts: none
 * fails, and the bits are those in plenty of memory. What is in use at a time is one tensor; of one that is larger than
 * a chunk it is never the fp32 value or gradient, for which the smallest budgets have no room. */
#include <xxhash.h>

#include "external/client_fixture.h"

enum { A, LONG, FROZEN, UNMANAGED, TENSORS, CHUNK = 4096, LARGEST = 9000 };

/* The largest takes three chunks, whose room others have too; or one. */
static const int64_t shapes[][TENSORS] = {{700, LARGEST, 300, 40}, {700, CHUNK, 300, 40}, {CHUNK, CHUNK, CHUNK, 40}};
static const int64_t *sizes;

typedef struct run {
    ps_client *client;
    uint64_t seen;
    int n_calls;
    bool is_recording;
} run;

static float buffer[LARGEST];

static void see(run *r, const void *bytes, size_t n)
{
    r->seen = XXH3_64bits_withSeed(bytes, (size_t)n, r->seen);
}

static int32_t next_tensor(const run *r)
{
    return r->n_calls % TENSORS;
}

/* In more than one? */
static bool spans_chunks(int32_t t)
{
    return sizes[t] > CHUNK;
}

static void look(run *r, int32_t t, ps_client_what what, ps_client_mode mode)
{
    const ps_client_place p = pinned(r->client, t, what, mode);
    see(r, p.address, (size_t)sizes[t] * ps_dtype_bytes(p.dtype));
    if (mode == PS_CLIENT_WRITE) {
        const float value = (float)(r->n_calls % 7);
        ps_from_floats(p.dtype, p.address, sizes[t] - 1, 1, &value);
    }
    ps_client_unpin(r->client, t, what);
}

static void call_forward(run *r)
{
    assert_ok(ps_client_moment(r->client, PS_CLIENT_FORWARD, "forward", 0));
    for (int32_t t = 0; t < TENSORS; t++) look(r, t, PS_CLIENT_PARAM, PS_CLIENT_READ);
}

static void call_outside_step(run *r)
{
    assert_ok(ps_client_moment(r->client, PS_CLIENT_OUTSIDE_STEP, "aside", 0));
    look(r, LONG, PS_CLIENT_PARAM, PS_CLIENT_READ);
}

static void give(run *r, int is_read_again)
{
    assert_ok(ps_client_moment(r->client, PS_CLIENT_BACKWARD, "backward", 0));
    for (int32_t t = 0; t < TENSORS; t++) {
        if (t == FROZEN && r->n_calls < 60) continue;
        for (int64_t i = 0; i < sizes[t]; i++) buffer[i] = (float)((i + r->n_calls) % 11) / 8;
        assert_ok(ps_client_give_gradient(r->client, t, buffer, PS_DTYPE_F32, is_read_again));
    }
}

static void call_give(run *r)
{
    give(r, 0);
}

static void call_give_first(run *r)
{
    give(r, 1);
}

static void call_step(run *r)
{
    const ps_client_step_info info = stepped(r->client);
    see(r, &info.grad_norm, sizeof info.grad_norm);
}

static void call_write_param(run *r)
{
    look(r, next_tensor(r), PS_CLIENT_PARAM, PS_CLIENT_WRITE);
}

static void call_write_master(run *r)
{
    const int32_t t = next_tensor(r);
    look(r, spans_chunks(t) ? A : t, PS_CLIENT_MASTER, PS_CLIENT_WRITE);
}

static void call_gradients(run *r)
{
    for (int32_t t = 0; t < TENSORS; t++)
        if (!spans_chunks(t) && ps_client_has_gradient(r->client, t)) look(r, t, PS_CLIENT_GRADIENT, PS_CLIENT_WRITE);
}

static void call_drop(run *r)
{
    assert_ok(ps_client_drop_gradients(r->client, next_tensor(r)));
}

static void call_drop_all(run *r)
{
    assert_ok(ps_client_drop_gradients(r->client, -1));
}

static void call_read(run *r)
{
    static const char *const states[] = {NULL, "exp_avg", "exp_avg_sq"};
    for (int32_t t = 0; t < TENSORS; t++)
        for (size_t s = 0; s < PS_ARRAY_LEN(states); s++) {
            assert_ok(ps_client_read_state(r->client, t, states[s], 0, sizes[t], buffer));
            see(r, buffer, (size_t)sizes[t] * sizeof *buffer);
        }
}

static void call_write(run *r)
{
    const int32_t t = next_tensor(r);
    for (int64_t i = 0; i < sizes[t]; i++) buffer[i] = (float)((i * 5 + r->n_calls) % 13) / 16;
    assert_ok(ps_client_write_state(r->client, t, NULL, 0, sizes[t], buffer));
    assert_ok(ps_client_write_state(r->client, A, "exp_avg", 0, 9, buffer));
}

static void call_join(run *r)
{
    assert_ok(ps_client_join_group(r->client, next_tensor(r), r->n_calls % 2));
}

static void call_record(run *r)
{
    assert_ok(r->is_recording ? ps_client_stop_profile(r->client) : ps_client_start_profile(r->client));
    r->is_recording = !r->is_recording;
}

typedef void call(run *r);

static call *const calls[] = {call_forward,     call_outside_step, call_give,      call_give_first, call_step,
                              call_write_param, call_write_master, call_gradients, call_drop,       call_drop_all,
                              call_read,        call_write,        call_join,      call_record};
enum { CALLS = (int)PS_ARRAY_LEN(calls) };

/* Every pair of calls, one after the other: from each call the next one that did not follow it yet. */
static void walk(run *r)
{
    bool was[CALLS][CALLS] = {{false}};
    int at = 0;
    for (int left = CALLS * CALLS; left > 0;) {
        int next = 0;
        while (next < CALLS && was[at][next]) next++;
        if (next == CALLS) /* all have followed: to one where some have not */
            for (next = 0; memchr(was[next], false, CALLS) == NULL;) next++;
        left -= !was[at][next];
        was[at][next] = true;
        at = next;
        calls[at](r);
        r->n_calls++;
    }
}

static ps_status begin(const char *changes, ps_client **out)
{
    ps_client *c = client_of(changes);
    for (int32_t t = 0; t < TENSORS; t++) {
        int32_t n;
        assert_ok(add_tensor(c, NULL, sizes[t], PS_DTYPE_F32, t == FROZEN, t == UNMANAGED, &n));
    }
    const ps_status st = ps_client_begin(c);
    if (st == PS_OK)
        *out = c;
    else
        ps_client_destroy(c);
    return st;
}

static uint64_t walked(const char *changes)
{
    run r = {.seen = 1};
    assert_ok(begin(changes, &r.client));
    walk(&r);
    assert_true(r.n_calls >= CALLS * CALLS);
    const ps_client_info info = info_of(r.client);
    for (int tier = 0; tier < 3; tier++) assert_true(info.peak_bytes[tier] <= info.budget_bytes[tier]);
    ps_client_destroy(r.client);
    expect_nothing_left();
    return r.seen;
}

/* With these changes before it: the fewest pages of memory.device that are accepted. */
static int64_t least_device(const char *changes)
{
    for (int64_t pages = 1; pages < 1000; pages++) {
        char all[320];
        ps_client *c;
        snprintf(all, sizeof all, "%s memory.device=%lld", changes, (long long)(pages * 4096));
        const ps_status st = begin(all, &c);
        if (st == PS_OK) {
            ps_client_destroy(c);
            return pages * 4096;
        }
        assert_int_equal(st, PS_EBUDGET);
    }
    fail_msg("%s: nothing is accepted", changes);
    return 0;
}

static void walk_formats(void)
{
    static const char *const formats[] = {"", "bf16.enabled=true", "fp16.enabled=true fp16.initial_scale_power=2"};
    static const char *const others[] = {"memory.host=0 memory.disk=4MB", "memory.host=4MB memory.disk=0",
                                         "memory.host=100KB memory.disk=4MB"};
    for (size_t f = 0; f < PS_ARRAY_LEN(formats); f++) {
        char changes[256];
        snprintf(changes, sizeof changes, "%s memory.device=4MB memory.host=0 memory.disk=0", formats[f]);
        const uint64_t want = walked(changes);
        for (size_t i = 0; i < PS_ARRAY_LEN(others); i++) {
            snprintf(changes, sizeof changes, "%s %s", formats[f], others[i]);
            const int64_t least = least_device(changes);
            snprintf(changes, sizeof changes, "%s %s memory.device=%lld", formats[f], others[i], (long long)least);
            if (walked(changes) != want) fail_msg("%s: other bits", changes);
        }
    }
}

static void test_pairs(void **state)
{
    (void)state;
    for (size_t i = 0; i < PS_ARRAY_LEN(shapes); i++) {
        sizes = shapes[i];
        walk_formats();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_pairs, note_live),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
