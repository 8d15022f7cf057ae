/* test_update_room.c - a step while tensors are in use: in any budget that ps_client_begin accepts it runs, or is
 * refused before anything has changed, and runs when they are let go. The bits are those of a step without any in
 * use. */
#include <xxhash.h>

#include "external/client_fixture.h"

enum { A, LONG, B, TENSORS, CHUNK = 4096, LARGEST = 9000, PAGE = 4096, STEPS = 2 };

static const int64_t shapes[][TENSORS] = {{700, LARGEST, 300}, {CHUNK, CHUNK, CHUNK}};
static const int64_t *sizes;
static float buffer[LARGEST];

static ps_status begin(const char *changes, int64_t device, ps_client **out)
{
    char all[256];
    int32_t number;
    snprintf(all, sizeof all, "%s memory.device=%lld", changes, (long long)device);
    ps_client *c = client_of(all);
    for (int32_t t = 0; t < TENSORS; t++) assert_ok(add_tensor(c, NULL, sizes[t], PS_DTYPE_F32, 0, 0, &number));
    const ps_status st = ps_client_begin(c);
    *out = st == PS_OK ? c : NULL;
    if (st != PS_OK) ps_client_destroy(c);
    return st;
}

static int64_t least_device(const char *changes)
{
    for (int64_t device = PAGE; device < 1000 * PAGE; device += PAGE) {
        ps_client *c;
        const ps_status st = begin(changes, device, &c);
        ps_client_destroy(c);
        if (st == PS_OK) return device;
        assert_int_equal(st, PS_EBUDGET);
    }
    fail_msg("%s: nothing is accepted", changes);
    return 0;
}

static void run_operators(ps_client *c, int step, int is_read_again)
{
    assert_ok(ps_client_moment(c, PS_CLIENT_FORWARD, "forward", 0));
    for (int32_t t = 0; t < TENSORS; t++) {
        (void)pinned(c, t, PS_CLIENT_PARAM, PS_CLIENT_READ);
        ps_client_unpin(c, t, PS_CLIENT_PARAM);
    }
    assert_ok(ps_client_moment(c, PS_CLIENT_BACKWARD, "backward", 0));
    for (int32_t t = 0; t < TENSORS; t++) {
        for (int64_t i = 0; i < sizes[t]; i++) buffer[i] = (float)((i + step) % 11) / 8;
        assert_ok(ps_client_give_gradient(c, t, buffer, PS_DTYPE_F32, is_read_again));
    }
}

static uint64_t hash_values(ps_client *c)
{
    static const char *const states[] = {NULL, "exp_avg", "exp_avg_sq"};
    uint64_t hash = 1;
    for (int32_t t = 0; t < TENSORS; t++)
        for (size_t s = 0; s < PS_ARRAY_LEN(states); s++) {
            assert_ok(ps_client_read_state(c, t, states[s], 0, sizes[t], buffer));
            hash = XXH3_64bits_withSeed(buffer, (size_t)sizes[t] * sizeof *buffer, hash);
        }
    return hash;
}

typedef struct in_use {
    int32_t tensor;
    ps_client_what what;
    ps_client_mode mode;
} in_use;

static int n_refused, n_run;

/* NULL: nothing is in use. */
static uint64_t train(const char *changes, int64_t device, const in_use *u, int is_read_again)
{
    ps_client *c;
    ps_client_step_info info = {.struct_size = sizeof info};
    ps_client_place place = {.struct_size = sizeof place};
    assert_ok(begin(changes, device, &c));
    for (int step = 0; step < STEPS; step++) {
        run_operators(c, step, is_read_again);
        const bool is_in_use = u != NULL && ps_client_pin(c, u->tensor, u->what, u->mode, &place) == PS_OK;
        const ps_status st = ps_client_step(c, &info);
        if (st != PS_OK && !is_in_use) fail_msg("%s, %lld: %s", changes, (long long)device, ps_last_error());
        if (st != PS_OK) {
            assert_int_equal(st, PS_EBUDGET);
            assert_non_null(strstr(ps_last_error(), "ps_client_step: tensors that are in use (tensor "));
        }
        if (is_in_use) ps_client_unpin(c, u->tensor, u->what);
        if (st != PS_OK) (void)stepped(c);
        n_refused += is_in_use && st != PS_OK;
        n_run += is_in_use && st == PS_OK;
    }
    const uint64_t hash = hash_values(c);
    ps_client_destroy(c);
    expect_nothing_left();
    return hash;
}

static void train_in_all(const char *changes, uint64_t want, int is_read_again)
{
    const int64_t least = least_device(changes);
    for (int64_t pages = 0; pages < 12; pages += 2 + pages)
        for (int32_t t = 0; t < TENSORS; t++)
            for (int i = 0; i < 3; i++) {
                const in_use u = {.tensor = t,
                                  .what = i == 2 ? PS_CLIENT_MASTER : PS_CLIENT_PARAM,
                                  .mode = i == 0 ? PS_CLIENT_READ : PS_CLIENT_WRITE};
                if (train(changes, least + pages * PAGE, &u, is_read_again) != want)
                    fail_msg("%s, device = %lld, tensor %d, use %d: other bits", changes,
                             (long long)(least + pages * PAGE), t, i);
            }
}

static void test_runs_or_is_refused_before(void **state)
{
    (void)state;
    static const char *const formats[] = {"", "bf16.enabled=true"};
    static const char *const others[] = {"memory.host=0 memory.disk=4MB", "memory.host=4MB memory.disk=0",
                                         "memory.host=100KB memory.disk=4MB"};
    char changes[160];
    for (size_t i = 0; i < PS_ARRAY_LEN(shapes) * PS_ARRAY_LEN(formats) * 2; i++) {
        const char *format = formats[i / 2 % 2];
        const int is_read_again = i % 2;
        sizes = shapes[i / 4];
        snprintf(changes, sizeof changes, "%s memory.host=0 memory.disk=0", format);
        const uint64_t want = train(changes, 4 << 20, NULL, is_read_again);
        for (size_t k = 0; k < PS_ARRAY_LEN(others); k++) {
            snprintf(changes, sizeof changes, "%s %s", format, others[k]);
            train_in_all(changes, want, is_read_again);
        }
    }
    assert_true(n_refused > 0 && n_run > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_runs_or_is_refused_before, note_live),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
