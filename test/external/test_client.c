/* test_client.c - what patrickstar_client.h promises and refuses, call by call. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "chunk/comm/comm.h"
#include "chunk/store_stats.h"
#include "external/client_fixture.h"

enum { A, LONG, FROZEN, UNMANAGED, TENSORS };

static const int64_t sizes[TENSORS] = {700, 5000, 300, 40};
static const char *const names[TENSORS] = {"a", "long", "frozen", "apart"};

static ps_client *begun(const char *changes)
{
    ps_client *c = client_of(changes);
    for (int32_t t = 0; t < TENSORS; t++) {
        int32_t number;
        assert_ok(add_tensor(c, names[t], sizes[t], PS_DTYPE_F32, t == FROZEN, t == UNMANAGED, &number));
        assert_int_equal(number, t);
    }
    assert_ok(ps_client_begin(c));
    return c;
}

static void end(ps_client *c)
{
    ps_client_destroy(c);
    expect_nothing_left();
}

#define MEMORY "memory.device=300KB memory.host=300KB memory.disk=4MB"

static float buffer[5000], other[5000];

static void give(ps_client *c, int32_t t, float value, int is_read_again)
{
    for (int64_t i = 0; i < sizes[t]; i++) buffer[i] = value;
    assert_ok(ps_client_give_gradient(c, t, buffer, PS_DTYPE_F32, is_read_again));
}

/* ---- tensors before there are chunks ---- */

static ps_status add(ps_client *c, ps_client_tensor tensor, void **values)
{
    int32_t number = 5;
    tensor.struct_size = sizeof tensor;
    *values = buffer;
    const ps_status st = ps_client_add(c, &tensor, &number, values);
    if (st != PS_OK) assert_true(*values == NULL);
    return st;
}

static void test_tensors_are_refused(void **state)
{
    (void)state;
    ps_client *c = client_of(MEMORY);
    void *v;
    const int64_t ok[] = {2, 3}, zero[] = {2, 0}, below[] = {-1, 3};
    const int64_t huge[] = {INT64_MAX, 2}, wrapping[] = {(int64_t)1 << 32, (int64_t)1 << 32};
    const int64_t nine[] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    assert_int_equal(add(c, (ps_client_tensor){.name = "x", .shape = zero, .n_dims = 2}, &v), PS_EINVAL);
    assert_int_equal(add(c, (ps_client_tensor){.name = "x", .shape = below, .n_dims = 2}, &v), PS_EINVAL);
    assert_int_equal(add(c, (ps_client_tensor){.name = "x", .shape = huge, .n_dims = 2}, &v), PS_EINVAL);
    assert_int_equal(add(c, (ps_client_tensor){.name = "x", .shape = wrapping, .n_dims = 2}, &v), PS_EINVAL);
    assert_int_equal(add(c, (ps_client_tensor){.name = "x", .shape = nine, .n_dims = 9}, &v), PS_EINVAL);
    assert_int_equal(add(c, (ps_client_tensor){.name = "x", .shape = ok, .n_dims = -1}, &v), PS_EINVAL);
    assert_int_equal(add(c, (ps_client_tensor){.name = "x", .shape = NULL, .n_dims = 2}, &v), PS_EINVAL);
    assert_int_equal(add(c, (ps_client_tensor){.name = "x", .shape = ok, .n_dims = 2, .dtype = 77}, &v), PS_EINVAL);
    assert_int_equal(add(c, (ps_client_tensor){.name = "x", .shape = ok, .n_dims = 2, .dtype = (ps_dtype)-1}, &v),
                     PS_EINVAL);
    assert_int_equal(ps_client_get_tensor_count(c), 0);
    assert_ok(add(c, (ps_client_tensor){.name = "x", .shape = ok, .n_dims = 2}, &v));
    assert_fails(add(c, (ps_client_tensor){.name = "x", .shape = ok, .n_dims = 2}, &v), PS_EINVAL, "'x'");
    assert_ok(add(c, (ps_client_tensor){.shape = nine, .n_dims = 8}, &v)); /* "tensor 1" */
    assert_ok(add(c, (ps_client_tensor){.name = "scalar", .shape = NULL, .n_dims = 0}, &v));
    assert_int_equal(ps_client_get_tensor_count(c), 3);
    ps_client_tensor_info info = {.struct_size = sizeof info};
    assert_ok(ps_client_get_tensor_info(c, 1, &info));
    assert_string_equal(info.name, "tensor 1");
    assert_int_equal(info.n_dims, 8);
    assert_int_equal(info.elements, 1);
    assert_int_equal(info.chunk, -1);
    assert_int_equal(ps_client_get_tensor_info(c, 3, &info), PS_EINVAL);
    assert_int_equal(ps_client_get_tensor_info(c, -1, &info), PS_EINVAL);
    int32_t n;
    assert_ok(add_tensor(c, "known", 50, PS_DTYPE_F32, 0, 0, &n));
    assert_ok(ps_client_get_tensor_info(c, n, &info));
    for (int i = 0; i < 40; i++) assert_ok(add_tensor(c, NULL, 7, PS_DTYPE_F32, 0, 0, &n));
    assert_int_equal(info.shape[0], 50); /* it stays where it is */
    assert_string_equal(info.name, "known");
    ps_client_release(c, 77);
    ps_client_release(c, -1);
    end(c);
}

static void test_names_and_drops(void **state)
{
    (void)state;
    ps_client *c = client_of(MEMORY);
    int32_t n;
    for (int32_t t = 0; t < 4; t++) assert_ok(add_tensor(c, NULL, 50, PS_DTYPE_F32, 0, 0, &n));
    assert_ok(ps_client_name(c, 0, "first", 0));
    assert_ok(ps_client_name(c, 0, "first", 1)); /* its own */
    assert_int_equal(ps_client_name(c, 1, "first", 0), PS_EINVAL);
    assert_int_equal(ps_client_name(c, 4, "x", 0), PS_EINVAL);
    assert_ok(ps_client_drop(c, 1));
    assert_int_equal(ps_client_drop(c, 1), PS_EINVAL);
    assert_int_equal(ps_client_drop(c, 4), PS_EINVAL);
    assert_int_equal(ps_client_name(c, 1, "x", 0), PS_EINVAL);
    assert_ok(ps_client_name(c, 2, "tensor 1", 0)); /* the name that the dropped one had */
    assert_ok(add_tensor(c, "last", 50, PS_DTYPE_F32, 0, 0, &n));
    assert_int_equal(n, 4); /* 1 is not given again */
    assert_ok(ps_client_begin(c));
    assert_int_equal(ps_client_get_tensor_count(c), 5);
    ps_client_tensor_info info = {.struct_size = sizeof info};
    assert_ok(ps_client_get_tensor_info(c, 1, &info));
    assert_int_equal(info.is_dropped, 1);
    assert_int_equal(info.chunk, -1);
    assert_ok(ps_client_get_tensor_info(c, 0, &info));
    assert_int_equal(info.is_frozen, 1);
    ps_client_place place = {.struct_size = sizeof place};
    assert_int_equal(ps_client_pin(c, 1, PS_CLIENT_PARAM, PS_CLIENT_READ, &place), PS_EINVAL);
    assert_int_equal(ps_client_give_gradient(c, 1, buffer, PS_DTYPE_F32, 0), PS_EINVAL);
    assert_int_equal(ps_client_read_state(c, 1, NULL, 0, 1, buffer), PS_EINVAL);
    assert_int_equal(ps_client_drop(c, 2), PS_ESTATE);
    assert_int_equal(ps_client_name(c, 2, "x", 0), PS_ESTATE);
    assert_int_equal(add_tensor(c, "late", 50, PS_DTYPE_F32, 0, 0, &n), PS_ESTATE);
    assert_int_equal(ps_client_begin(c), PS_ESTATE);
    end(c);
}

static void test_many_tensors(void **state)
{
    (void)state;
    enum { MANY = 20000 };
    ps_client *c = client_of("memory.device=1MB memory.host=1MB memory.disk=0");
    for (int i = 0; i < MANY; i++) {
        char name[64];
        void *v;
        snprintf(name, sizeof name, "layers.%d.weight", i);
        assert_ok(add(c, (ps_client_tensor){.name = NULL}, &v));
        if (i % 2 == 1) assert_ok(ps_client_name(c, i, name, 0));
        if (i % 3 == 2) assert_ok(ps_client_drop(c, i));
        if (i > 0) assert_int_equal(add(c, (ps_client_tensor){.name = "layers.1.weight"}, &v), PS_EINVAL);
    }
    end(c);
}

static void test_before_and_after_begin(void **state)
{
    (void)state;
    int32_t n;
    ps_client_place place = {.struct_size = sizeof place};
    ps_client *c = client_of(MEMORY);
    assert_ok(add_tensor(c, "x", 50, PS_DTYPE_F32, 0, 0, &n));
    assert_int_equal(ps_client_pin(c, 0, PS_CLIENT_PARAM, PS_CLIENT_READ, &place), PS_ESTATE);
    assert_int_equal(ps_client_moment(c, PS_CLIENT_FORWARD, "x", 0), PS_ESTATE);
    assert_int_equal(ps_client_give_gradient(c, 0, buffer, PS_DTYPE_F32, 0), PS_ESTATE);
    assert_int_equal(ps_client_step(c, NULL), PS_ESTATE);
    assert_int_equal(ps_client_read_state(c, 0, NULL, 0, 1, buffer), PS_ESTATE);
    assert_int_equal(ps_client_write_state(c, 0, NULL, 0, 1, buffer), PS_ESTATE);
    end(c);
    c = client_of(MEMORY); /* without a tensor */
    assert_int_equal(ps_client_begin(c), PS_EINVAL);
    assert_int_not_equal(ps_client_begin(c), PS_OK);
    end(c);
    ps_client_destroy(NULL);
}

static char warning[2048];

static void note_warning(void *user, ps_log_level level, const char *line)
{
    (void)user;
    if (level == PS_LOG_WARNING) snprintf(warning, sizeof warning, "%s", line);
}

/* What only the program could carry out is refused by name; what has no effect is reported. */
static void test_options_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value;
    } not_here[] = {{"activation_checkpointing.enabled", "true"},
                    {"client.opts.with_activation_offload", "true"},
                    {"train.epochs", "2"},
                    {"train.log_to", "tensorboard"}};
    for (size_t i = 0; i < PS_ARRAY_LEN(not_here); i++) {
        ps_config *config = config_of(MEMORY);
        ps_client *c = (ps_client *)(uintptr_t)config;
        assert_ok(ps_config_set(config, not_here[i].key, not_here[i].value));
        assert_fails(ps_client_create(config, NULL, &c), PS_EINVAL, not_here[i].key);
        assert_null(c);
        ps_config_destroy(config);
    }
    warning[0] = '\0';
    ps_set_log(note_warning, NULL);
    ps_client *c = client_of(MEMORY " train.log_interval=7 train.loss_average=micro_batches");
    ps_set_log(NULL, NULL);
    assert_non_null(strstr(warning, "train.log_interval"));
    assert_non_null(strstr(warning, "train.loss_average"));
    assert_null(strstr(warning, "memory.device"));
    end(c);
}

/* ---- access ---- */

static void test_access_is_refused(void **state)
{
    (void)state;
    ps_client *c = begun(MEMORY);
    ps_client_place place = {.struct_size = sizeof place};
    assert_int_equal(ps_client_pin(c, TENSORS, PS_CLIENT_PARAM, PS_CLIENT_READ, &place), PS_EINVAL);
    assert_int_equal(ps_client_pin(c, -1, PS_CLIENT_PARAM, PS_CLIENT_READ, &place), PS_EINVAL);
    assert_int_equal(ps_client_pin(c, A, (ps_client_what)9, PS_CLIENT_READ, &place), PS_EINVAL);
    assert_int_equal(ps_client_pin(c, A, (ps_client_what)-1, PS_CLIENT_READ, &place), PS_EINVAL);
    assert_int_equal(ps_client_pin(c, A, PS_CLIENT_PARAM, (ps_client_mode)9, &place), PS_EINVAL);
    assert_int_equal(ps_client_pin(c, A, PS_CLIENT_GRADIENT, PS_CLIENT_READ, &place), PS_ESTATE);
    assert_int_equal(ps_client_moment(c, (ps_client_phase)9, "x", 0), PS_EINVAL);
    assert_int_equal(ps_client_moment(c, PS_CLIENT_FORWARD, "x", -2), PS_EINVAL);
    assert_int_equal(ps_client_give_gradient(c, TENSORS, buffer, PS_DTYPE_F32, 0), PS_EINVAL);
    assert_int_equal(ps_client_give_gradient(c, A, buffer, (ps_dtype)77, 0), PS_EINVAL);
    assert_int_equal(ps_client_drop_gradients(c, TENSORS), PS_EINVAL);
    assert_int_equal(ps_client_drop_gradients(c, -2), PS_EINVAL);
    assert_int_equal(ps_client_has_gradient(c, TENSORS), 0);
    assert_int_equal(ps_client_has_gradient(c, -1), 0);
    assert_int_equal(ps_client_has_gradient(NULL, 0), 0);
    end(c);
}

/* More than is there to be let go is let go without harm. */
static void test_unpin_without_pin(void **state)
{
    (void)state;
    ps_client *c = begun(MEMORY);
    ps_client_unpin(c, A, PS_CLIENT_PARAM);
    ps_client_unpin(c, TENSORS, PS_CLIENT_PARAM);
    ps_client_unpin(c, -1, PS_CLIENT_MASTER);
    ps_client_unpin(c, A, (ps_client_what)9);
    ps_client_unpin(NULL, A, PS_CLIENT_PARAM);
    assert_int_equal(ps_client_get_pin_counts(c)[A], 0);
    (void)pinned(c, A, PS_CLIENT_PARAM, PS_CLIENT_READ);
    (void)pinned(c, A, PS_CLIENT_PARAM, PS_CLIENT_READ);
    assert_int_equal(ps_client_get_pin_counts(c)[A], 2);
    ps_client_unpin(c, A, PS_CLIENT_PARAM);
    ps_client_unpin(c, A, PS_CLIENT_PARAM);
    ps_client_unpin(c, A, PS_CLIENT_PARAM);
    assert_int_equal(ps_client_get_pin_counts(c)[A], 0);
    give(c, A, 1, 0);
    (void)stepped(c);
    end(c);
}

static void test_written_places_follow(void **state)
{
    (void)state;
    static const char *const formats[] = {MEMORY, MEMORY " bf16.enabled=true", MEMORY " fp16.enabled=true"};
    for (size_t f = 0; f < PS_ARRAY_LEN(formats); f++) {
        ps_client *c = begun(formats[f]);
        for (int32_t t = 0; t < TENSORS; t++) {
            const float two = 2, third = 1.0f / 3;
            float value;
            ps_client_place p = pinned(c, t, PS_CLIENT_PARAM, PS_CLIENT_WRITE);
            ps_from_floats(p.dtype, p.address, 7, 1, &two);
            ps_client_unpin(c, t, PS_CLIENT_PARAM);
            assert_ok(ps_client_read_state(c, t, NULL, 7, 1, &value));
            assert_true(value == 2);
            assert_ok(ps_client_read_state(c, t, NULL, 8, 1, &value));
            p = pinned(c, t, PS_CLIENT_MASTER, PS_CLIENT_WRITE);
            assert_int_equal(p.dtype, PS_DTYPE_F32);
            if (t != FROZEN || f == 0) assert_true(((float *)p.address)[8] == value);
            ((float *)p.address)[7] = third;
            ps_client_unpin(c, t, PS_CLIENT_MASTER);
            p = pinned(c, t, PS_CLIENT_PARAM, PS_CLIENT_READ);
            char rounded[4];
            ps_from_floats(p.dtype, rounded, 0, 1, &third);
            const size_t item = p.dtype == PS_DTYPE_F32 ? 4 : 2;
            assert_memory_equal((char *)p.address + 7 * item, rounded, item);
            ps_client_unpin(c, t, PS_CLIENT_PARAM);
            assert_ok(ps_client_read_state(c, t, NULL, 7, 1, &value));
            assert_true(value == third);
        }
        end(c);
    }
}

/* What was written to a parameter is not lost when a gradient comes over it. */
static void test_written_before_a_gradient(void **state)
{
    (void)state;
    ps_client *c = begun(MEMORY " bf16.enabled=true");
    const float two = 2;
    float value;
    const ps_client_place p = pinned(c, A, PS_CLIENT_PARAM, PS_CLIENT_WRITE);
    ps_from_floats(p.dtype, p.address, 7, 1, &two);
    ps_client_unpin(c, A, PS_CLIENT_PARAM);
    give(c, A, 1, 0);
    assert_ok(ps_client_read_state(c, A, NULL, 7, 1, &value));
    assert_true(value == 2);
    (void)stepped(c);
    assert_ok(ps_client_read_state(c, A, NULL, 7, 1, &value));
    assert_true(fabs((double)value - 1.99) < 1e-6);
    end(c);
}

static void test_unmanaged_stays(void **state)
{
    (void)state;
    ps_client *c = begun(MEMORY " bf16.enabled=true");
    const void *address = pinned(c, UNMANAGED, PS_CLIENT_PARAM, PS_CLIENT_READ).address;
    ps_client_unpin(c, UNMANAGED, PS_CLIENT_PARAM);
    for (int i = 0; i < 3; i++) {
        for (int32_t t = 0; t < TENSORS; t++) {
            const ps_client_place p = pinned(c, t, PS_CLIENT_PARAM, PS_CLIENT_READ);
            assert_int_equal(p.dtype, t == UNMANAGED ? PS_DTYPE_F32 : PS_DTYPE_BF16);
            if (t == UNMANAGED) assert_ptr_equal(p.address, address);
            ps_client_unpin(c, t, PS_CLIENT_PARAM);
            if (t != FROZEN) give(c, t, 1, 0);
        }
        const float before = ((const float *)address)[3];
        (void)stepped(c);
        assert_true(((const float *)address)[3] < before);
    }
    end(c);
}

static void test_unmanaged_may_be_frozen(void **state)
{
    (void)state;
    enum { CHUNKED, BY_ADD, BY_NAME, BY_PATTERN, N };
    ps_client *c = client_of(MEMORY " bf16.enabled=true train.freeze=pattern");
    int32_t n;
    for (int32_t t = 0; t < N; t++)
        assert_ok(add_tensor(c, t == BY_PATTERN ? "pattern" : NULL, 40, PS_DTYPE_F32, t == BY_ADD, t != CHUNKED, &n));
    assert_ok(ps_client_name(c, BY_NAME, "name", 1));
    assert_ok(ps_client_begin(c));
    for (int32_t t = BY_ADD; t < N; t++) {
        ps_client_tensor_info info = {.struct_size = sizeof info};
        float before, after;
        assert_ok(ps_client_get_tensor_info(c, t, &info));
        assert_true(info.is_frozen && info.is_unmanaged);
        const ps_client_place p = pinned(c, t, PS_CLIENT_PARAM, PS_CLIENT_READ);
        assert_int_equal(p.dtype, PS_DTYPE_F32);
        ps_client_unpin(c, t, PS_CLIENT_PARAM);
        assert_ok(ps_client_read_state(c, t, NULL, 7, 1, &before));
        (void)stepped(c);
        assert_ok(ps_client_read_state(c, t, NULL, 7, 1, &after));
        assert_true(before == drawn((uint64_t)t, 7) && after == before);
        for (int64_t i = 0; i < 40; i++) buffer[i] = 1;
        give_gradient(c, t, buffer, 40, 0); /* it is trained from now on */
        (void)stepped(c);
        assert_ok(ps_client_read_state(c, t, NULL, 7, 1, &after));
        assert_true(after < before);
    }
    end(c);
}

/* ---- gradients and updates ---- */

static void test_gradients_add_up(void **state)
{
    (void)state;
    ps_client *c = begun(MEMORY " bf16.enabled=true");
    for (int again = 0; again < 2; again++) {
        give(c, A, 1.0f + 0x1p-12f, again); /* bf16 has no such number */
        give(c, A, 3, 0);
        ps_client_place p = pinned(c, A, PS_CLIENT_GRADIENT, PS_CLIENT_READ);
        float sum;
        ps_to_floats(p.dtype, p.address, sizes[A] - 1, 1, &sum);
        ps_client_unpin(c, A, PS_CLIENT_GRADIENT);
        assert_true(again ? sum == 4.0f + 0x1p-12f : fabsf(sum - 4) <= 0x1p-12f);
        assert_ok(ps_client_drop_gradients(c, A));
        assert_int_equal(ps_client_has_gradient(c, A), 0);
        assert_int_equal(ps_client_pin(c, A, PS_CLIENT_GRADIENT, PS_CLIENT_READ, &p), PS_ESTATE);
    }
    end(c);
}

static void test_a_parameter_comes_back(void **state)
{
    (void)state;
    ps_client *c = begun(MEMORY " bf16.enabled=true");
    static char before[2 * 5000], after[2 * 5000];
    ps_client_place p = pinned(c, LONG, PS_CLIENT_PARAM, PS_CLIENT_READ);
    memcpy(before, p.address, sizeof before);
    ps_client_unpin(c, LONG, PS_CLIENT_PARAM);
    for (int i = 0; i < 3; i++) {
        give(c, LONG, 0.5f, 0);
        if (i < 2) {
            p = pinned(c, LONG, PS_CLIENT_PARAM, PS_CLIENT_READ);
            memcpy(after, p.address, sizeof after);
            ps_client_unpin(c, LONG, PS_CLIENT_PARAM);
            if (i == 0) assert_memory_equal(before, after, sizeof before);
        }
        p = pinned(c, LONG, PS_CLIENT_GRADIENT, PS_CLIENT_READ);
        ps_to_floats(p.dtype, p.address, 0, sizes[LONG], other);
        ps_client_unpin(c, LONG, PS_CLIENT_GRADIENT);
        for (int64_t k = 0; k < sizes[LONG]; k++) assert_true(other[k] == 0.5f);
        const ps_client_step_info info = stepped(c);
        assert_int_equal(info.n_restored, i == 0); /* from then on the gradient comes next to it */
        assert_int_equal(info.n_separate, 1);
    }
    end(c);
}

static void test_frozen_gets_trained(void **state)
{
    (void)state;
    ps_client *c = begun(MEMORY " bf16.enabled=true");
    const int64_t without = info_of(c).model_data_bytes;
    float before[2], after[2];
    assert_ok(ps_client_read_state(c, FROZEN, NULL, 0, 2, before));
    assert_ok(ps_client_read_state(c, FROZEN, "exp_avg", 0, 2, after));
    assert_true(after[0] == 0 && after[1] == 0);
    give(c, A, 1, 0);
    (void)stepped(c);
    give(c, FROZEN, 1, 0);
    (void)stepped(c);
    assert_ok(ps_client_read_state(c, FROZEN, NULL, 0, 2, after));
    assert_true(fabs((double)(before[0] - after[0]) - 0.01) < 1e-6); /* the first step of Adam is the rate */
    assert_int_equal(ps_client_get_update_count(c, FROZEN), 1);
    assert_int_equal(ps_client_get_update_count(c, A), 1);
    assert_int_equal(ps_client_get_update_count(c, -1), 2);
    assert_true(info_of(c).model_data_bytes > without);
    end(c);
}

static void test_step_is_refused_while_in_use(void **state)
{
    (void)state;
    ps_client *c = begun(MEMORY);
    give(c, A, 1, 0);
    (void)pinned(c, A, PS_CLIENT_GRADIENT, PS_CLIENT_READ);
    assert_int_equal(ps_client_step(c, NULL), PS_ESTATE);
    ps_client_unpin(c, A, PS_CLIENT_GRADIENT);
    (void)pinned(c, A, PS_CLIENT_MASTER, PS_CLIENT_READ);                       /* may stay in use */
    const ps_client_place p = pinned(c, LONG, PS_CLIENT_PARAM, PS_CLIENT_READ); /* may stay in use */
    float before, after;
    ps_to_floats(p.dtype, p.address, 0, 1, &before);
    assert_ok(ps_client_step(c, NULL));
    ps_to_floats(p.dtype, p.address, 0, 1, &after);
    assert_true(before == after);
    ps_client_unpin(c, LONG, PS_CLIENT_PARAM);
    ps_client_unpin(c, A, PS_CLIENT_MASTER);
    end(c);
}

/* A call that is refused has made no step. */
static void test_wrong_sizes(void **state)
{
    (void)state;
    ps_client *c = begun(MEMORY);
    ps_client_step_info info = {.struct_size = 0};
    ps_client_place place = {.struct_size = 0};
    float before, after;
    assert_ok(ps_client_read_state(c, A, NULL, 0, 1, &before));
    give(c, A, 1, 0);
    assert_int_equal(ps_client_step(c, &info), PS_EINVAL);
    assert_int_equal(ps_client_has_gradient(c, A), 1);
    assert_ok(ps_client_read_state(c, A, NULL, 0, 1, &after));
    assert_true(before == after);
    assert_int_equal(ps_client_pin(c, A, PS_CLIENT_PARAM, PS_CLIENT_READ, &place), PS_EINVAL);
    assert_int_equal(ps_client_get_pin_counts(c)[A], 0);
    end(c);
}

static void test_overflow_skips(void **state)
{
    (void)state;
    ps_client *c = begun(MEMORY " fp16.enabled=true fp16.initial_scale_power=8 fp16.hysteresis=1");
    float before, after;
    assert_true(ps_client_get_loss_scale(c) == 256);
    assert_ok(ps_client_read_state(c, A, NULL, 0, 1, &before));
    give(c, LONG, 256, 0);
    give(c, A, INFINITY, 0);
    ps_client_step_info info = stepped(c);
    assert_int_equal(info.is_skipped, 1);
    assert_true(isinf(info.grad_norm));
    assert_ok(ps_client_read_state(c, A, NULL, 0, 1, &after));
    assert_true(before == after);
    assert_int_equal(ps_client_get_update_count(c, A), 0);
    assert_true(ps_client_get_loss_scale(c) < 256);
    give(c, A, (float)ps_client_get_loss_scale(c), 0);
    info = stepped(c);
    assert_int_equal(info.is_skipped, 0);
    assert_true(fabs(info.grad_norm - sqrt((double)sizes[A])) < 1e-6 * sqrt((double)sizes[A]));
    assert_ok(ps_client_read_state(c, A, NULL, 0, 1, &after));
    assert_true(fabs((double)(before - after) - 0.01) < 1e-6);
    end(c);
}

static void test_a_step_without_gradients(void **state)
{
    (void)state;
    ps_client *c = begun(MEMORY " fp16.enabled=true fp16.initial_scale_power=8 fp16.loss_scale_window=2");
    for (int i = 0; i < 5; i++) {
        const ps_client_step_info info = stepped(c);
        assert_int_equal(info.step, 0);
        assert_int_equal(info.is_skipped, 0);
        assert_true(info.grad_norm == 0);
    }
    assert_true(ps_client_get_loss_scale(c) == 256);
    assert_int_equal(ps_client_get_update_count(c, -1), 0);
    give(c, A, 256, 0);
    assert_int_equal(stepped(c).step, 1);
    assert_int_equal(stepped(c).step, 1);
    give(c, UNMANAGED, 256, 0);
    assert_int_equal(stepped(c).step, 2);
    end(c);
}

static void test_clipping(void **state)
{
    (void)state;
    ps_client *c = begun(MEMORY " optimizer.type=SGD gradient_clipping=1.0");
    float before, after;
    assert_ok(ps_client_read_state(c, A, NULL, 0, 1, &before));
    give(c, A, 2, 0);
    const ps_client_step_info info = stepped(c);
    const double norm = 2 * sqrt((double)sizes[A]);
    assert_true(fabs(info.grad_norm - norm) < 1e-6 * norm);
    assert_ok(ps_client_read_state(c, A, NULL, 0, 1, &after));
    assert_true(fabs((double)(before - after) - 0.01 * 2 / norm) < 1e-7);
    end(c);
}

/* The first step is clipped as configured, and each after it as set before. */
static void test_clipping_is_set(void **state)
{
    (void)state;
    static const double set[] = {0, 4, -1}, clips_by[] = {1, 0, 4, 1};
    ps_client *c = begun(MEMORY " optimizer.type=SGD gradient_clipping=1.0");
    const double norm = 2 * sqrt((double)sizes[A]);
    for (size_t i = 0; i < PS_ARRAY_LEN(clips_by); i++) {
        float before, after;
        if (i > 0) assert_ok(ps_client_set_gradient_clipping(c, set[i - 1]));
        assert_ok(ps_client_read_state(c, A, NULL, 0, 1, &before));
        give(c, A, 2, 0);
        assert_true(fabs(stepped(c).grad_norm - norm) < 1e-6 * norm);
        assert_ok(ps_client_read_state(c, A, NULL, 0, 1, &after));
        const double factor = clips_by[i] > 0 ? fmin(1, clips_by[i] / norm) : 1;
        assert_true(fabs((double)(before - after) - 0.01 * 2 * factor) < 1e-6);
    }
    assert_int_equal(ps_client_set_gradient_clipping(c, NAN), PS_EINVAL);
    end(c);
    c = begun(MEMORY " memory.update_in_backward=always train.max_nonfinite_steps=1");
    assert_ok(ps_client_set_gradient_clipping(c, 0));
    assert_int_equal(ps_client_set_gradient_clipping(c, 1), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "memory.update_in_backward = auto"));
    end(c);
}

/* ---- values, states, groups ---- */

static void test_values_are_refused(void **state)
{
    (void)state;
    ps_client *c = begun(MEMORY);
    assert_int_equal(ps_client_read_state(c, A, NULL, -1, 1, buffer), PS_EINVAL);
    assert_int_equal(ps_client_read_state(c, A, NULL, 0, sizes[A] + 1, buffer), PS_EINVAL);
    assert_int_equal(ps_client_read_state(c, A, NULL, sizes[A], 1, buffer), PS_EINVAL);
    assert_int_equal(ps_client_read_state(c, A, NULL, 1, INT64_MAX, buffer), PS_EINVAL);
    assert_int_equal(ps_client_read_state(c, A, NULL, 0, -1, buffer), PS_EINVAL);
    assert_int_equal(ps_client_read_state(c, A, "momentum_buffer", 0, 1, buffer), PS_EINVAL);
    assert_int_equal(ps_client_read_state(c, A, "", 0, 1, buffer), PS_EINVAL);
    assert_int_equal(ps_client_write_state(c, A, NULL, INT64_MAX, 1, buffer), PS_EINVAL);
    assert_int_equal(ps_client_write_state(c, A, "exp", 0, 1, buffer), PS_EINVAL);
    assert_int_equal(ps_client_set_update_count(c, A, -1), PS_EINVAL);
    assert_int_equal(ps_client_set_update_count(c, TENSORS, 1), PS_EINVAL);
    assert_int_equal(ps_client_set_update_count(c, -2, 1), PS_EINVAL);
    assert_ok(ps_client_read_state(c, A, NULL, sizes[A], 0, buffer));
    end(c);
}

/* A run that is saved by tensor, or in a checkpoint, and resumes in another client ends with the same bits. */
static void save_and_load(const char *saved, const char *loaded)
{
    static float want[TENSORS][5000];
    temp_folder work = temp_folder_make();
    ps_client *c = begun(saved), *d = begun(loaded), *e = begun(loaded);
    for (int i = 0; i < 3; i++) {
        for (int32_t t = 0; t < TENSORS; t++)
            if (t != FROZEN && (t != LONG || i == 1)) give(c, t, (float)(i + t + 1), 0);
        (void)stepped(c);
    }
    for (int32_t t = 0; t < TENSORS; t++) {
        const char *name;
        assert_ok(ps_client_read_state(c, t, NULL, 0, sizes[t], buffer));
        assert_ok(ps_client_write_state(d, t, NULL, 0, sizes[t], buffer));
        for (int32_t s = 0; t != FROZEN && (name = ps_client_get_state_name(c, s)) != NULL; s++) {
            assert_ok(ps_client_read_state(c, t, name, 0, sizes[t], buffer));
            assert_ok(ps_client_write_state(d, t, name, 0, sizes[t], buffer));
        }
        assert_ok(ps_client_set_update_count(d, t, ps_client_get_update_count(c, t)));
    }
    assert_ok(ps_client_set_update_count(d, -1, ps_client_get_update_count(c, -1)));
    assert_ok(ps_client_save_checkpoint(c, work.path, NULL, NULL));
    assert_ok(ps_client_load_checkpoint(e, work.path, NULL));
    ps_client *all[] = {c, d, e};
    for (int32_t k = 0; k < 3; k++) {
        for (int32_t t = 0; t < TENSORS; t++)
            if (t != FROZEN) give(all[k], t, 0.25f, 0);
        assert_int_equal(stepped(all[k]).step, 4);
        for (int32_t t = 0; t < TENSORS; t++) {
            assert_ok(ps_client_read_state(all[k], t, NULL, 0, sizes[t], k == 0 ? want[t] : buffer));
            if (k > 0) assert_memory_equal(buffer, want[t], (size_t)sizes[t] * sizeof *buffer);
        }
    }
    ps_client_destroy(e);
    ps_client_destroy(d);
    temp_folder_remove(&work);
    end(c);
}

#define SAVED MEMORY " bf16.enabled=true"
#define LOADED "memory.device=4MB memory.host=0 bf16.enabled=true"

static void test_saved_and_loaded(void **state)
{
    (void)state;
    save_and_load(SAVED, LOADED);
    save_and_load(SAVED " optimizer.params.state_format=compact", LOADED " optimizer.params.state_format=compact");
}

static void test_groups(void **state)
{
    (void)state;
    ps_client *c = begun(MEMORY);
    ps_client_group g = {.struct_size = sizeof g};
    float before[2], after[2];
    assert_int_equal(ps_client_get_group_count(c), 1);
    assert_int_equal(ps_client_join_group(c, A, 2), PS_EINVAL);
    assert_int_equal(ps_client_join_group(c, A, -1), PS_EINVAL);
    assert_int_equal(ps_client_join_group(c, TENSORS, 0), PS_EINVAL);
    assert_int_equal(ps_client_get_group(c, 1, &g), PS_EINVAL);
    assert_int_equal(ps_client_set_group(c, -1, &g), PS_EINVAL);
    assert_ok(ps_client_join_group(c, A, 1));
    assert_int_equal(ps_client_get_group_count(c), 2);
    assert_ok(ps_client_get_group(c, 1, &g));
    assert_true(g.learning_rate == 0.01 && g.beta1 == 0.9 && g.beta2 == 0.999);
    ps_client_group wrong = g;
    wrong.beta1 = 1.5;
    assert_int_equal(ps_client_set_group(c, 1, &wrong), PS_EINVAL);
    wrong = g;
    wrong.learning_rate = NAN;
    assert_int_equal(ps_client_set_group(c, 1, &wrong), PS_EINVAL);
    g.learning_rate = 0.5;
    assert_ok(ps_client_set_group(c, 1, &g));
    assert_ok(ps_client_read_state(c, A, NULL, 0, 1, &before[0]));
    assert_ok(ps_client_read_state(c, LONG, NULL, 0, 1, &before[1]));
    give(c, A, 1, 0);
    give(c, LONG, 1, 0);
    (void)stepped(c);
    assert_ok(ps_client_read_state(c, A, NULL, 0, 1, &after[0]));
    assert_ok(ps_client_read_state(c, LONG, NULL, 0, 1, &after[1]));
    assert_true(fabs((double)(before[0] - after[0]) - 0.5) < 1e-5);
    assert_true(fabs((double)(before[1] - after[1]) - 0.01) < 1e-6);
    end(c);
}

/* As torch's AdamW: all tensors of a group decay, whatever their shape, and what has no gradient does not. */
static void test_decay(void **state)
{
    (void)state;
    ps_client *c = begun(MEMORY " optimizer.type=AdamW optimizer.params.weight_decay=0.5");
    static const int32_t trained[] = {A, UNMANAGED};
    for (size_t i = 0; i < PS_ARRAY_LEN(trained); i++) {
        const int32_t t = trained[i];
        const double before = (double)drawn((uint64_t)t, 5);
        float after;
        for (int64_t k = 0; k < sizes[t]; k++) buffer[k] = 0;
        assert_ok(ps_client_give_gradient(c, t, buffer, PS_DTYPE_F32, 0));
        (void)stepped(c);
        assert_ok(ps_client_read_state(c, t, NULL, 5, 1, &after));
        assert_true(fabs((double)after - before * (1 - 0.01 * 0.5)) < 1e-7);
        assert_ok(ps_client_read_state(c, LONG, NULL, 5, 1, &after));
        assert_true(after == drawn(LONG, 5));
    }
    end(c);
}

static double rate_of(const ps_client *c)
{
    ps_client_group g = {.struct_size = sizeof g};
    assert_ok(ps_client_get_group(c, 0, &g));
    return g.learning_rate;
}

/* What an update of a gradient that stays the same changes is its rate. */
static double changed_by_step(ps_client *c)
{
    float before, after;
    assert_ok(ps_client_read_state(c, A, NULL, 0, 1, &before));
    give(c, A, 1, 0);
    (void)stepped(c);
    assert_ok(ps_client_read_state(c, A, NULL, 0, 1, &after));
    return (double)before - (double)after;
}

static void test_throughput(void **state)
{
    (void)state;
    ps_client *c = begun(MEMORY " scheduler.type=WarmupLR scheduler.params.warmup_num_steps=8"
                                " scheduler.params.warmup_max_lr=0.25 scheduler.params.warmup_type=linear");
    double last = -1;
    for (int i = 0; i < 10; i++) {
        const double rate = rate_of(c);
        assert_true(i < 8 ? rate > last : rate == 0.25);
        assert_true(fabs(changed_by_step(c) - rate) < 1e-5);
        last = rate;
    }
    ps_client_group g = {
        .struct_size = sizeof g, .learning_rate = 0.125, .weight_decay = NAN, .beta1 = -1, .beta2 = -1, .eps = -1};
    assert_ok(ps_client_set_group(c, 0, &g));
    assert_true(rate_of(c) == 0.125);
    assert_true(fabs(changed_by_step(c) - 0.125) < 1e-5);
    g.eps = 3; /* of which little is left of an update by 1 */
    assert_ok(ps_client_set_group(c, 0, &g));
    assert_true(fabs(changed_by_step(c) - 0.125 / 4) < 1e-5);
    g.eps = -1;
    g.learning_rate = -1; /* by the scheduler again */
    assert_ok(ps_client_set_group(c, 0, &g));
    assert_true(rate_of(c) == 0.25);
    assert_ok(ps_client_get_group(c, 0, &g));
    assert_true(g.beta1 == 0.9 && g.beta2 == 0.999 && g.eps == 1e-8);
    assert_ok(ps_client_set_update_count(c, -1, 2)); /* of the schedule */
    assert_true(rate_of(c) < 0.25);
    end(c);
}

static void test_scaler(void **state)
{
    (void)state;
    static const char *const wrong[] = {"", "{", "[]", "{}", "{\"scale\":0}", "null", "{\"scale\":\"x\"}"};
    ps_client *c = begun(MEMORY " fp16.enabled=true fp16.initial_scale_power=8 fp16.hysteresis=1"),
              *d = begun(MEMORY " fp16.enabled=true fp16.initial_scale_power=16 fp16.hysteresis=1");
    char *text, *again;
    give(c, A, INFINITY, 0);
    assert_int_equal(stepped(c).is_skipped, 1);
    assert_ok(ps_client_get_scaler(c, &text));
    assert_ok(ps_client_set_scaler(d, text));
    assert_true(ps_client_get_loss_scale(d) == 128);
    assert_ok(ps_client_get_scaler(d, &again));
    assert_string_equal(text, again);
    for (size_t i = 0; i < PS_ARRAY_LEN(wrong); i++) {
        const ps_status st = ps_client_set_scaler(d, wrong[i]);
        if (st != PS_EINVAL && st != PS_EFORMAT) fail_msg("'%s': %s", wrong[i], ps_status_name(st));
        assert_true(ps_client_get_loss_scale(d) == 128);
    }
    ps_free(text);
    ps_free(again);
    ps_client_destroy(d);
    end(c);
}

static void test_sgd(void **state)
{
    (void)state;
    ps_client *c = begun(MEMORY " optimizer.type=SGD optimizer.params.momentum=0.5");
    float before, after, momentum;
    assert_string_equal(ps_client_get_state_name(c, 0), "momentum_buffer");
    assert_null(ps_client_get_state_name(c, 1));
    assert_null(ps_client_get_state_name(c, -1));
    assert_ok(ps_client_read_state(c, LONG, NULL, 4999, 1, &before));
    give(c, LONG, 1, 0);
    (void)stepped(c);
    give(c, LONG, 1, 0);
    (void)stepped(c);
    assert_ok(ps_client_read_state(c, LONG, NULL, 4999, 1, &after));
    assert_ok(ps_client_read_state(c, LONG, "momentum_buffer", 4999, 1, &momentum));
    assert_true(momentum == 1.5f);
    assert_true(fabs((double)(before - after) - 0.01 * 2.5) < 1e-7);
    end(c);
}

/* ---- budgets ---- */

static void test_too_little_memory(void **state)
{
    (void)state;
    static const char *const too_little[] = {"memory.device=8KB memory.host=300KB memory.disk=4MB",
                                             "memory.device=300KB memory.host=0 memory.disk=0",
                                             "memory.device=40KB memory.host=0 memory.disk=4MB"};
    static const char *const says[] = {"memory.device", "memory.disk", "memory.device"};
    for (size_t i = 0; i < PS_ARRAY_LEN(too_little); i++) {
        ps_client *c = client_of(too_little[i]);
        int32_t n;
        for (int32_t t = 0; t < 8; t++) assert_ok(add_tensor(c, NULL, 5000, PS_DTYPE_F32, 0, 0, &n));
        assert_fails(ps_client_begin(c), PS_EBUDGET, says[i]);
        assert_fails(ps_client_begin(c), PS_ESTATE, "not allowed after a failure");
        end(c);
    }
}

/* What is refused while others are in use works when they are not, and the message says which moment. */
static void test_no_room_for_more_than_what_is_in_use(void **state)
{
    (void)state;
    ps_client *c = client_of("memory.device=100KB memory.host=400KB memory.disk=4MB");
    ps_client_place place = {.struct_size = sizeof place};
    int32_t n, fitting = 0;
    for (int32_t t = 0; t < 8; t++) assert_ok(add_tensor(c, NULL, 4096, PS_DTYPE_F32, 0, 0, &n));
    assert_ok(ps_client_begin(c));
    assert_ok(ps_client_moment(c, PS_CLIENT_FORWARD, "greedy", 0));
    while (fitting < 8 && ps_client_pin(c, fitting, PS_CLIENT_PARAM, PS_CLIENT_READ, &place) == PS_OK) fitting++;
    assert_in_range(fitting, 4, 7); /* of 16 KB each, next to what the library needs itself */
    assert_fails(ps_client_pin(c, 7, PS_CLIENT_PARAM, PS_CLIENT_READ, &place), PS_EBUDGET, "greedy");
    assert_int_equal(ps_client_get_pin_counts(c)[7], 0);
    for (int32_t t = 0; t < fitting; t++) ps_client_unpin(c, t, PS_CLIENT_PARAM);
    assert_int_equal(ps_client_moment(c, PS_CLIENT_FORWARD, "huge", 1 << 20), PS_EBUDGET);
    assert_ok(ps_client_moment(c, PS_CLIENT_FORWARD, "modest", 0));
    for (int32_t t = 0; t < 8; t++) {
        const ps_client_place p = pinned(c, t, PS_CLIENT_PARAM, PS_CLIENT_READ);
        for (int64_t i = 0; i < 4096; i++) assert_true(((const float *)p.address)[i] == drawn((uint64_t)t, i));
        ps_client_unpin(c, t, PS_CLIENT_PARAM);
    }
    end(c);
}

/* Before anything of a tensor has changed a gradient without room is refused, and the client continues. */
static void test_no_room_for_a_gradient(void **state)
{
    (void)state;
    enum { CHUNK = 4096, N = 3, BUDGET = 1 << 20 };
    static const float ones[CHUNK] = {1};
    ps_client *c = client_of("bf16.enabled=true memory.device=1048576 memory.host=1MB memory.disk=0");
    int32_t number;
    for (int i = 0; i < N; i++) assert_ok(add_tensor(c, NULL, CHUNK, PS_DTYPE_F32, 0, 0, &number));
    assert_ok(ps_client_begin(c));
    /* room for parameters of one chunk with its fp32 values: two parameters leave too little for a gradient */
    assert_ok(ps_client_moment(c, PS_CLIENT_FORWARD, "full", BUDGET - ps_client_least_device_bytes(c)));
    pinned(c, 0, PS_CLIENT_PARAM, PS_CLIENT_READ);
    pinned(c, 1, PS_CLIENT_PARAM, PS_CLIENT_READ);
    assert_int_equal(ps_client_give_gradient(c, 2, ones, PS_DTYPE_F32, 1), PS_EBUDGET);
    assert_int_equal(ps_client_has_gradient(c, 2), 0);
    ps_client_unpin(c, 0, PS_CLIENT_PARAM);
    ps_client_unpin(c, 1, PS_CLIENT_PARAM);
    assert_ok(ps_client_give_gradient(c, 2, ones, PS_DTYPE_F32, 1));
    assert_int_equal(stepped(c).n_separate, 1);
    end(c);
}

/* What is let go before the next is pinned need not be there together, however few moments a program reports. */
static void test_many_in_one_moment(void **state)
{
    (void)state;
    ps_client *c = client_of("memory.device=100KB memory.host=400KB memory.disk=4MB");
    int32_t n;
    for (int32_t t = 0; t < 12; t++) assert_ok(add_tensor(c, NULL, 4096, PS_DTYPE_F32, 0, 0, &n));
    assert_ok(ps_client_begin(c));
    for (int i = 0; i < 4; i++) {
        assert_ok(ps_client_moment(c, PS_CLIENT_FORWARD, "all", 4096));
        for (int32_t t = 0; t < 12; t++) {
            const ps_client_place p = pinned(c, t, PS_CLIENT_PARAM, PS_CLIENT_READ);
            assert_true(((const float *)p.address)[5] == drawn((uint64_t)t, 5));
            ps_client_unpin(c, t, PS_CLIENT_PARAM);
        }
        assert_int_equal(stepped(c).is_recorded, i == 0);
    }
    end(c);
}

/* From the second step on chunks come before they are asked for. */
static void test_the_future_is_known(void **state)
{
    (void)state;
    static const char *const prefetch[] = {"memory.prefetch=4", "memory.prefetch=0"};
    for (int k = 0; k < 2; k++) {
        char changes[128];
        int32_t n;
        snprintf(changes, sizeof changes, "memory.device=100KB memory.host=0 memory.disk=4MB %s", prefetch[k]);
        ps_client *c = client_of(changes);
        for (int32_t t = 0; t < 12; t++) assert_ok(add_tensor(c, NULL, 4096, PS_DTYPE_F32, 0, 0, &n));
        assert_ok(ps_client_begin(c));
        int64_t before = 0;
        for (int i = 0; i < 4; i++) {
            for (int32_t t = 0; t < 12; t++) {
                assert_ok(ps_client_moment(c, PS_CLIENT_FORWARD, "one", 8192 * (t / 4)));
                (void)pinned(c, t, PS_CLIENT_PARAM, PS_CLIENT_READ);
                ps_client_unpin(c, t, PS_CLIENT_PARAM);
            }
            (void)stepped(c);
            const int64_t now = ps_store_get_stats(c->tiers.store).n_prefetched;
            if (i == 0 || k == 1) assert_int_equal(now, 0);
            if (i > 0 && k == 0) assert_true(now > before + 4);
            before = now;
        }
        end(c);
    }
}

/* What the program allocates and fills counts as its own, until it is freed. */
static void test_measured_memory(void **state)
{
    (void)state;
    enum { BYTES = 48 << 20 };
    ps_client *c = begun("memory.device=400MB memory.host=0 memory.disk=0");
    assert_ok(ps_client_moment(c, PS_CLIENT_FORWARD, "before", PS_CLIENT_MEASURE));
    const int64_t before = info_of(c).framework_bytes;
    char *memory = malloc(BYTES);
    assert_non_null(memory);
    for (size_t i = 0; i < BYTES; i += 512) memory[i] = (char)i;
    assert_ok(ps_client_moment(c, PS_CLIENT_FORWARD, "within", PS_CLIENT_MEASURE));
    const int64_t within = info_of(c).framework_bytes;
    assert_in_range(within - before, BYTES - (8 << 20), BYTES + (16 << 20));
    assert_true(info_of(c).used_bytes[0] >= within);
    assert_true(memory[1024] == 0);
    free(memory);
    assert_ok(ps_client_moment(c, PS_CLIENT_FORWARD, "after", PS_CLIENT_MEASURE));
    assert_true(info_of(c).framework_peak_bytes >= within);
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__ /* which keep what was freed */
    assert_true(info_of(c).framework_bytes < within - BYTES / 2);
#endif
    end(c);
}

enum { OUTSIDE_TENSORS = 12 };

static void expect_evaluation_in_budget(ps_client *c, int64_t bytes)
{
    assert_ok(ps_client_moment(c, PS_CLIENT_OUTSIDE_STEP, "aside", bytes));
    for (int32_t t = 0; t < OUTSIDE_TENSORS; t++) {
        (void)pinned(c, t, PS_CLIENT_PARAM, PS_CLIENT_READ);
        ps_client_unpin(c, t, PS_CLIENT_PARAM);
        const ps_client_info info = info_of(c);
        const ps_store_stats s = ps_store_get_stats(c->tiers.store);
        assert_int_equal(info.framework_bytes, bytes);
        assert_true(s.non_model_bytes >= bytes && info.used_bytes[0] >= s.non_model_bytes + s.chunk_bytes[0]);
        assert_true(info.used_bytes[0] <= info.budget_bytes[0]);
    }
}

/* Steps, and with_evaluation an evaluation within each and after it. Gives the sum of what was learnt. */
static double trained_with_evaluation(bool with_evaluation)
{
    static float value[4096];
    double sum = 0;
    ps_client *c = client_of("memory.device=100KB memory.host=400KB memory.disk=4MB");
    int32_t n;
    for (int32_t t = 0; t < OUTSIDE_TENSORS; t++) assert_ok(add_tensor(c, NULL, 4096, PS_DTYPE_F32, 0, 0, &n));
    assert_ok(ps_client_begin(c));
    for (int i = 0; i < 4; i++) {
        for (int32_t t = 0; t < 2 * OUTSIDE_TENSORS; t++) {
            const bool is_forward = t < OUTSIDE_TENSORS;
            const int32_t x = is_forward ? t : 2 * OUTSIDE_TENSORS - 1 - t;
            assert_ok(ps_client_moment(c, is_forward ? PS_CLIENT_FORWARD : PS_CLIENT_BACKWARD, "one", 8192));
            const ps_client_place p = pinned(c, x, PS_CLIENT_PARAM, PS_CLIENT_READ);
            memcpy(value, p.address, sizeof value);
            ps_client_unpin(c, x, PS_CLIENT_PARAM);
            if (!is_forward) assert_ok(ps_client_give_gradient(c, x, value, PS_DTYPE_F32, 0));
            if (with_evaluation && t == OUTSIDE_TENSORS - 1) expect_evaluation_in_budget(c, 50000);
        }
        ps_client_place place = {.struct_size = sizeof place};
        if (with_evaluation)
            assert_fails(ps_client_moment(c, PS_CLIENT_OUTSIDE_STEP, "huge", 400000), PS_EBUDGET, "; try ");
        assert_int_equal(stepped(c).is_recorded, i == 0);
        if (!with_evaluation) continue;
        expect_evaluation_in_budget(c, 60000);
        assert_ok(ps_client_moment(c, PS_CLIENT_OUTSIDE_STEP, "held", 0));
        for (int32_t t = 0; t < 3; t++) assert_ok(ps_client_pin(c, t, PS_CLIENT_PARAM, PS_CLIENT_READ, &place));
        assert_int_equal(ps_client_moment(c, PS_CLIENT_OUTSIDE_STEP, "beside what is held", 60000), PS_EBUDGET);
        for (int32_t t = 0; t < 3; t++) ps_client_unpin(c, t, PS_CLIENT_PARAM);
    }
    for (int32_t t = 0; t < OUTSIDE_TENSORS; t++) {
        assert_ok(ps_client_read_state(c, t, NULL, 0, 4096, value));
        for (int i = 0; i < 4096; i++) sum += (double)value[i] * (i % 17 + t);
    }
    end(c);
    return sum;
}

/* What the program has in use outside of its steps counts, and steps run as they were predicted. */
static void test_memory_outside_step(void **state)
{
    (void)state;
    assert_true(trained_with_evaluation(true) == trained_with_evaluation(false));
}

/* What was freed and is still in the heap is returned where chunks may need it, and left alone where they all have room
 * next to it. */
static void test_freed_memory(void **state)
{
    (void)state;
    enum { BLOCKS = 768, BLOCK_BYTES = 64 << 10 }; /* too small to be mapped by themselves */
    static char *block[BLOCKS + 1];
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    const int first = 1; /* what was freed never goes, and has no room in little */
#else
    const int first = 0;
#endif
    for (int has_room = first; has_room < 2; has_room++) {
        char changes[64];
        snprintf(changes, sizeof changes, "memory.device=%dMB memory.host=0 memory.disk=0", has_room ? 400 : 40);
        ps_client *c = begun(changes);
        assert_ok(ps_client_moment(c, PS_CLIENT_FORWARD, "first", PS_CLIENT_MEASURE));
        give(c, 0, 1, 0);
        (void)stepped(c);
        const int64_t before = info_of(c).framework_bytes;
        for (int i = 0; i <= BLOCKS; i++) {
            block[i] = malloc(BLOCK_BYTES);
            assert_non_null(block[i]);
            memset(block[i], i, BLOCK_BYTES);
        }
        for (int i = 0; i < BLOCKS; i++) free(block[i]); /* the last one keeps the heap's end where it is */
        assert_ok(ps_client_moment(c, PS_CLIENT_FORWARD, "first", PS_CLIENT_MEASURE));
        const int64_t more = info_of(c).framework_bytes - before;
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__ && defined __GLIBC__
        assert_int_equal(more > BLOCKS * BLOCK_BYTES / 2, has_room);
#endif
        (void)more;
        for (int i = 0; i < BLOCKS; i++) {
            block[i] = malloc(BLOCK_BYTES);
            assert_non_null(block[i]);
            memset(block[i], i, BLOCK_BYTES);
        }
        if (!has_room)
            assert_int_equal(ps_client_moment(c, PS_CLIENT_OUTSIDE_STEP, "too much", PS_CLIENT_MEASURE), PS_EBUDGET);
        for (int i = 0; i < BLOCKS; i++) free(block[i]);
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__ && defined __GLIBC__
        assert_ok(ps_client_moment(c, PS_CLIENT_OUTSIDE_STEP, "aside", PS_CLIENT_MEASURE));
#endif
        free(block[BLOCKS]);
        end(c);
    }
}

/* ---- ranks ---- */

typedef struct start {
    ps_comm *comm;
    int rank, fault; /* fault: what rank 1 does otherwise */
    float first, unmanaged;
    ps_status begun;
    char error[512];
} start;

enum { FAULT_VALUES, FAULT_SHAPE, FAULT_COUNT, FAULTS };

static void *start_main(void *argument)
{
    start *s = argument;
    const bool is_second = s->rank == 1;
    ps_client *c = client_of_rank(MEMORY, s->comm);
    int32_t n[4] = {0};
    assert_ok(add_tensor(c, "dropped", 64, PS_DTYPE_F32, 0, 0, &n[0]));
    assert_ok(ps_client_drop(c, n[0]));
    assert_ok(add_tensor(c, "a", 5000, PS_DTYPE_BF16, 0, 0, &n[1]));
    assert_ok(add_tensor(c, "apart", 64, PS_DTYPE_F32, 0, 1, &n[2]));
    assert_ok(add_tensor(c, "b", s->fault == FAULT_SHAPE && is_second ? 65 : 64, PS_DTYPE_F32, 0, 0, &n[3]));
    if (s->fault == FAULT_COUNT && is_second) assert_ok(add_tensor(c, "c", 64, PS_DTYPE_F32, 0, 0, &n[0]));
    if (s->fault == FAULT_VALUES && is_second) {
        float *values = (float *)c->tensors[n[3]].given.address, *unmanaged = (float *)c->tensors[n[2]].given.address;
        values[63] = unmanaged[5] = 77;
    }
    s->begun = ps_client_begin(c);
    snprintf(s->error, sizeof s->error, "%s", s->begun == PS_OK ? "" : ps_last_error());
    if (s->begun == PS_OK) {
        assert_ok(ps_client_read_state(c, n[3], NULL, 63, 1, &s->first));
        assert_ok(ps_client_read_state(c, n[2], NULL, 5, 1, &s->unmanaged));
    }
    ps_client_destroy(c);
    ps_comm_close(s->comm);
    return NULL;
}

/* All begin with the first rank's values, or with none. */
static void test_ranks_begin_with_the_same_values(void **state)
{
    (void)state;
    static const char *const said[FAULTS] = {
        [FAULT_SHAPE] = "(b) has another name, shape or type", [FAULT_COUNT] = "rank 1 has 5 tensors, rank 0 has 4"};
    for (int fault = 0; fault < FAULTS; fault++) {
        ps_comm *comms[2];
        start s[2];
        pthread_t threads[2];
        const ps_comm_options o = {.timeout_s = 30, .staging_bytes = 1 << 16};
        assert_ok(ps_comm_open_threads(&o, 2, comms));
        for (int r = 0; r < 2; r++) {
            s[r] = (start){.comm = comms[r], .rank = r, .fault = fault};
            assert_int_equal(pthread_create(&threads[r], NULL, start_main, &s[r]), 0);
        }
        for (int r = 0; r < 2; r++) assert_int_equal(pthread_join(threads[r], NULL), 0);
        for (int r = 0; r < 2; r++) {
            assert_int_equal(s[r].begun, fault == FAULT_VALUES ? PS_OK : PS_EINVAL);
            if (fault != FAULT_VALUES && strstr(s[r].error, said[fault]) == NULL) fail_msg("%s", s[r].error);
        }
        if (fault != FAULT_VALUES) continue;
        assert_true(s[1].first == s[0].first && s[0].first == drawn(3, 63));
        assert_true(s[1].unmanaged == s[0].unmanaged && s[0].unmanaged == drawn(2, 5));
    }
}

/* ---- looking in ---- */

static void test_info(void **state)
{
    (void)state;
    ps_client *c = begun(MEMORY " bf16.enabled=true");
    for (int i = 0; i < 4; i++) {
        for (int32_t t = 0; t < TENSORS; t++) {
            assert_ok(ps_client_moment(c, PS_CLIENT_FORWARD, names[t], i == 3 ? 0 : 8192 * (t + 1)));
            (void)pinned(c, t, PS_CLIENT_PARAM, PS_CLIENT_READ);
            ps_client_unpin(c, t, PS_CLIENT_PARAM);
            if (t != FROZEN) give(c, t, 1, 0);
        }
        assert_int_equal(stepped(c).is_recorded, i < 2); /* the second has the updates of the first */
    }
    const ps_client_info info = info_of(c);
    assert_int_equal(info.dtype, PS_DTYPE_BF16);
    assert_int_equal(info.n_ranks, 1);
    assert_int_equal(info.parameters, sizes[A] + sizes[LONG] + sizes[FROZEN]);
    const int64_t least = 14 * (sizes[A] + sizes[LONG]) + 2 * sizes[FROZEN]; /* chunks are not full */
    assert_in_range(info.model_data_bytes, least, least + 14 * 3 * 4096);
    assert_int_equal(info.chunk_elements, 4096);
    assert_int_equal(info.framework_peak_bytes, 8192 * TENSORS);
    assert_int_equal(info.n_steps, 4);
    assert_int_equal(info.n_recorded_steps, 2);
    assert_int_equal(info.n_moments >= TENSORS, 1);
    int64_t sum[3] = {0};
    ps_memory_use use = {.struct_size = sizeof use};
    int n = 0;
    for (; ps_client_get_memory_use(c, n, &use) == PS_OK; n++)
        sum[0] += use.device_bytes, sum[1] += use.host_bytes, sum[2] += use.disk_bytes;
    assert_true(n > 4);
    assert_int_equal(ps_client_get_memory_use(c, -1, &use), PS_EINVAL);
    assert_int_equal(ps_client_get_memory_use(c, n, &use), PS_EINVAL);
    for (int tier = 0; tier < 3; tier++) assert_int_equal(sum[tier], info.used_bytes[tier]);
    end(c);
}

/* ---- processes ---- */

/* A child that leaves by the usual way (a DataLoader's worker) neither waits nor frees what is not its own. */
static void test_forked_child(void **state)
{
    (void)state;
    ps_client *c = begun(MEMORY);
    (void)pinned(c, A, PS_CLIENT_PARAM, PS_CLIENT_READ);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        ps_client_place place = {.struct_size = sizeof place};
        ps_client_unpin(c, A, PS_CLIENT_PARAM);
        const bool good = ps_client_pin(c, A, PS_CLIENT_PARAM, PS_CLIENT_READ, &place) == PS_ESTATE &&
                          ps_client_step(c, NULL) == PS_ESTATE &&
                          ps_client_read_state(c, A, NULL, 0, 1, buffer) == PS_ESTATE &&
                          ps_client_get_pin_counts(c) == NULL && ps_client_get_state_name(c, 0) == NULL;
        ps_client_destroy(c);
        _exit(good ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ps_client_unpin(c, A, PS_CLIENT_PARAM);
    give(c, A, 1, 0);
    (void)stepped(c);
    end(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_tensors_are_refused, note_live),
        cmocka_unit_test_setup(test_names_and_drops, note_live),
        cmocka_unit_test_setup(test_many_tensors, note_live),
        cmocka_unit_test_setup(test_before_and_after_begin, note_live),
        cmocka_unit_test_setup(test_options_are_refused, note_live),
        cmocka_unit_test_setup(test_access_is_refused, note_live),
        cmocka_unit_test_setup(test_unpin_without_pin, note_live),
        cmocka_unit_test_setup(test_written_places_follow, note_live),
        cmocka_unit_test_setup(test_written_before_a_gradient, note_live),
        cmocka_unit_test_setup(test_unmanaged_stays, note_live),
        cmocka_unit_test_setup(test_unmanaged_may_be_frozen, note_live),
        cmocka_unit_test_setup(test_gradients_add_up, note_live),
        cmocka_unit_test_setup(test_a_parameter_comes_back, note_live),
        cmocka_unit_test_setup(test_frozen_gets_trained, note_live),
        cmocka_unit_test_setup(test_step_is_refused_while_in_use, note_live),
        cmocka_unit_test_setup(test_wrong_sizes, note_live),
        cmocka_unit_test_setup(test_overflow_skips, note_live),
        cmocka_unit_test_setup(test_a_step_without_gradients, note_live),
        cmocka_unit_test_setup(test_clipping, note_live),
        cmocka_unit_test_setup(test_clipping_is_set, note_live),
        cmocka_unit_test_setup(test_values_are_refused, note_live),
        cmocka_unit_test_setup(test_saved_and_loaded, note_live),
        cmocka_unit_test_setup(test_groups, note_live),
        cmocka_unit_test_setup(test_decay, note_live),
        cmocka_unit_test_setup(test_throughput, note_live),
        cmocka_unit_test_setup(test_scaler, note_live),
        cmocka_unit_test_setup(test_sgd, note_live),
        cmocka_unit_test_setup(test_too_little_memory, note_live),
        cmocka_unit_test_setup(test_no_room_for_more_than_what_is_in_use, note_live),
        cmocka_unit_test_setup(test_no_room_for_a_gradient, note_live),
        cmocka_unit_test_setup(test_many_in_one_moment, note_live),
        cmocka_unit_test_setup(test_the_future_is_known, note_live),
        cmocka_unit_test_setup(test_measured_memory, note_live),
        cmocka_unit_test_setup(test_memory_outside_step, note_live),
        cmocka_unit_test_setup(test_freed_memory, note_live),
        cmocka_unit_test_setup(test_ranks_begin_with_the_same_values, note_live),
        cmocka_unit_test_setup(test_info, note_live),
        cmocka_unit_test_setup(test_forked_child, note_live),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
