/* test_dlpack.c - places as tensors of DLPack: released by any thread at any time, after the client too; and calls
 * from several threads. */
#include <pthread.h>

#include "external/client_fixture.h"

/* dlpack.h of DLPack 0.8, github.com/dmlc/dlpack: what other frameworks see. */
enum { DLPACK_CPU = 1, DLPACK_FLOAT = 2, DLPACK_BFLOAT = 4 };

typedef struct dl_tensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
    dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *self);
} dl_managed;

enum { TENSORS = 12, ELEMENTS = 3000 };
#define MEMORY "memory.device=120KB memory.host=60KB memory.disk=4MB"

static ps_client *begun(const char *changes)
{
    ps_client *c = client_of(changes);
    int32_t n;
    for (int32_t t = 0; t < TENSORS; t++) assert_ok(add_tensor(c, NULL, ELEMENTS, PS_DTYPE_F32, 0, 0, &n));
    assert_ok(ps_client_begin(c));
    return c;
}

static dl_managed *exported(ps_client *c, int32_t t, ps_client_what what, ps_client_mode mode)
{
    void *managed = NULL;
    assert_ok(ps_client_export_dlpack(c, t, what, mode, &managed));
    assert_non_null(managed);
    return managed;
}

static void give_back(dl_managed *m)
{
    m->deleter(m);
}

static float gradient[ELEMENTS];

static void test_what_is_exported(void **state)
{
    (void)state;
    static const char *const formats[] = {MEMORY, MEMORY " bf16.enabled=true", MEMORY " fp16.enabled=true"};
    static const int codes[] = {DLPACK_FLOAT, DLPACK_BFLOAT, DLPACK_FLOAT}, bits[] = {32, 16, 16};
    for (size_t f = 0; f < PS_ARRAY_LEN(formats); f++) {
        ps_client *c = client_of(formats[f]);
        const int64_t shape[3] = {5, 3, 7};
        const ps_client_tensor tensor = {.struct_size = sizeof tensor, .name = "x", .shape = shape, .n_dims = 3};
        const ps_client_tensor scalar = {.struct_size = sizeof scalar, .name = "y"};
        int32_t x, y;
        void *values;
        assert_ok(ps_client_add(c, &tensor, &x, &values));
        ((float *)values)[104] = 0.5f;
        assert_ok(ps_client_add(c, &scalar, &y, &values));
        assert_ok(ps_client_begin(c));
        dl_managed *m = exported(c, x, PS_CLIENT_PARAM, PS_CLIENT_READ),
                   *again = exported(c, x, PS_CLIENT_PARAM, PS_CLIENT_READ);
        assert_ptr_equal(m->tensor.data, again->tensor.data);
        assert_int_equal(ps_client_get_pin_counts(c)[x], 2);
        give_back(again);
        assert_int_equal(ps_client_get_pin_counts(c)[x], 1);
        assert_int_equal(m->tensor.device.type, DLPACK_CPU);
        assert_int_equal(m->tensor.device.id, 0);
        assert_int_equal(m->tensor.ndim, 3);
        assert_memory_equal(m->tensor.shape, shape, sizeof shape);
        if (m->tensor.strides != NULL)
            assert_true(m->tensor.strides[0] == 21 && m->tensor.strides[1] == 7 && m->tensor.strides[2] == 1);
        assert_int_equal(m->tensor.dtype.code, codes[f]);
        assert_int_equal(m->tensor.dtype.bits, bits[f]);
        assert_int_equal(m->tensor.dtype.lanes, 1);
        float last;
        ps_to_floats(info_of(c).dtype, (char *)m->tensor.data + m->tensor.byte_offset, 104, 1, &last);
        assert_true(last == 0.5f);
        give_back(m);
        m = exported(c, y, PS_CLIENT_MASTER, PS_CLIENT_WRITE);
        assert_int_equal(m->tensor.ndim, 0);
        assert_int_equal(m->tensor.dtype.bits, 32);
        *(float *)m->tensor.data = 3;
        give_back(m);
        assert_ok(ps_client_read_state(c, y, NULL, 0, 1, &last));
        assert_true(last == 3);
        void *none = c;
        assert_int_equal(ps_client_export_dlpack(c, x, PS_CLIENT_GRADIENT, PS_CLIENT_READ, &none), PS_ESTATE);
        assert_null(none);
        assert_int_equal(ps_client_export_dlpack(c, 2, PS_CLIENT_PARAM, PS_CLIENT_READ, &none), PS_EINVAL);
        assert_null(none);
        ps_client_destroy(c);
        expect_nothing_left();
    }
}

/* What is out keeps its place, and its content, while all others are driven through memory. */
static void test_exported_while_others_move(void **state)
{
    (void)state;
    ps_client *c = begun(MEMORY);
    dl_managed *m = exported(c, 4, PS_CLIENT_PARAM, PS_CLIENT_READ);
    for (int round = 0; round < 3; round++)
        for (int32_t t = 0; t < TENSORS; t++) {
            assert_ok(ps_client_moment(c, PS_CLIENT_FORWARD, "pass", 0));
            const ps_client_place p = pinned(c, t, PS_CLIENT_PARAM, PS_CLIENT_READ);
            for (int64_t i = 0; i < ELEMENTS; i++) {
                assert_true(((const float *)p.address)[i] == drawn((uint64_t)t, i));
                assert_true(((const float *)m->tensor.data)[i] == drawn(4, i));
            }
            ps_client_unpin(c, t, PS_CLIENT_PARAM);
        }
    assert_true(info_of(c).moved_bytes[2] > 0);
    give_back(m);
    ps_client_destroy(c);
    expect_nothing_left();
}

/* A step while tensors are exported: the program sees new values where it looked at the old ones, and nowhere NaN. */
static void test_step_with_exported_tensors(void **state)
{
    (void)state;
    ps_client *c = begun("memory.device=300KB memory.host=0 memory.disk=4MB");
    for (int64_t i = 0; i < ELEMENTS; i++) gradient[i] = 1;
    assert_ok(ps_client_give_gradient(c, 3, gradient, PS_DTYPE_F32, 0));
    dl_managed *m = exported(c, 3, PS_CLIENT_PARAM, PS_CLIENT_READ); /* the gradient makes way */
    for (int64_t i = 0; i < ELEMENTS; i++) assert_true(((const float *)m->tensor.data)[i] == drawn(3, i));
    assert_int_equal(stepped(c).n_separate, 1);
    float value[ELEMENTS];
    assert_ok(ps_client_read_state(c, 3, NULL, 0, ELEMENTS, value));
    for (int64_t i = 0; i < ELEMENTS; i++) {
        assert_true(fabs((double)value[i] - (double)drawn(3, i) + 0.01) < 1e-6);
        assert_true(((const float *)m->tensor.data)[i] == value[i]);
    }
    give_back(m);
    ps_client_destroy(c);
    expect_nothing_left();
}

static void test_given_back_after_the_client(void **state)
{
    (void)state;
    for (int order = 0; order < 2; order++) {
        ps_client *c = begun(MEMORY);
        dl_managed *a = exported(c, 1, PS_CLIENT_PARAM, PS_CLIENT_READ),
                   *b = exported(c, 2, PS_CLIENT_MASTER, PS_CLIENT_WRITE);
        ps_client_destroy(c);
        for (int64_t i = 0; i < ELEMENTS; i++) {
            assert_true(((const float *)a->tensor.data)[i] == drawn(1, i));
            assert_true(((const float *)b->tensor.data)[i] == drawn(2, i));
        }
        ((float *)b->tensor.data)[0] = 5; /* it will not be read, but it is there */
        give_back(order == 0 ? a : b);
        assert_true(ps_mem_live_bytes() > 0);
        give_back(order == 0 ? b : a);
        expect_nothing_left();
    }
}

/* ---- threads ---- */

enum { THREADS = 3, TURNS = 400 };

typedef struct worker {
    ps_client *client;
    int number;
    bool failed;
} worker;

/* Each has tensors of its own, so that it knows what they hold; all others move through the same memory. */
static void *work(void *self)
{
    worker *w = self;
    for (int i = 0; i < TURNS && !w->failed; i++) {
        const int32_t t = (w->number + THREADS * i) % TENSORS;
        ps_client_place p = {.struct_size = sizeof p};
        void *managed = NULL;
        float value;
        if (i % 3 == 0) {
            w->failed |= ps_client_export_dlpack(w->client, t, PS_CLIENT_PARAM, PS_CLIENT_READ, &managed) != PS_OK;
            if (w->failed) break;
            p.address = ((dl_managed *)managed)->tensor.data;
        } else {
            w->failed |= ps_client_pin(w->client, t, PS_CLIENT_PARAM, PS_CLIENT_READ, &p) != PS_OK;
            if (w->failed) break;
        }
        for (int64_t k = 0; k < ELEMENTS; k += 7) w->failed |= ((const float *)p.address)[k] != drawn((uint64_t)t, k);
        if (managed != NULL)
            give_back(managed);
        else
            ps_client_unpin(w->client, t, PS_CLIENT_PARAM);
        if (i % 5 == 0)
            w->failed |=
                ps_client_read_state(w->client, t, NULL, 9, 1, &value) != PS_OK || value != drawn((uint64_t)t, 9);
        if (i % 7 == 0) w->failed |= ps_client_moment(w->client, PS_CLIENT_OUTSIDE_STEP, "thread", 0) != PS_OK;
        (void)ps_client_get_pin_counts(w->client)[t];
    }
    if (w->failed) fprintf(stderr, "thread %d: %s\n", w->number, ps_last_error());
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    worker workers[THREADS];
    ps_client *c = begun(MEMORY);
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.client = c, .number = i};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_false(workers[i].failed);
    }
    for (int32_t t = 0; t < TENSORS; t++) assert_int_equal(ps_client_get_pin_counts(c)[t], 0);
    ps_client_destroy(c);
    expect_nothing_left();
}

static void *give_back_later(void *managed)
{
    give_back(managed);
    return NULL;
}

/* As a framework's autograd threads and garbage collection do: others release while this one runs, and ends. */
static void test_others_give_back(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        pthread_t threads[4];
        ps_client *c = begun("memory.device=300KB memory.host=60KB memory.disk=4MB");
        for (int i = 0; i < 4; i++) {
            dl_managed *m = exported(c, i, PS_CLIENT_PARAM, PS_CLIENT_READ);
            assert_int_equal(pthread_create(&threads[i], NULL, give_back_later, m), 0);
        }
        for (int64_t i = 0; i < ELEMENTS; i++) gradient[i] = 1;
        for (int32_t t = 4; t < 8; t++) assert_ok(ps_client_give_gradient(c, t, gradient, PS_DTYPE_F32, 0));
        if (round % 2 == 0) (void)stepped(c);
        ps_client_destroy(c);
        for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
        expect_nothing_left();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_what_is_exported, note_live),
        cmocka_unit_test_setup(test_exported_while_others_move, note_live),
        cmocka_unit_test_setup(test_step_with_exported_tensors, note_live),
        cmocka_unit_test_setup(test_given_back_after_the_client, note_live),
        cmocka_unit_test_setup(test_threads, note_live),
        cmocka_unit_test_setup(test_others_give_back, note_live),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
