/* test_client_faults.c - the n-th fallible call fails, for n = 0, 1, 2, ... until a client's whole life gets through.
 * A call that failed is made once more: either it works then, and the life ends with the bits of one without a fault, or
 * the client says that it is of no more use. Nothing leaks, and no file is left. */
#include "external/client_fixture.h"

#include "base/fault.h"

enum { A, LONG, FROZEN, UNMANAGED, DROPPED, TENSORS };

static const int64_t sizes[TENSORS] = {700, 9000, 300, 40, 50};
static const char *const names[TENSORS] = {"a", "long", "frozen", "apart", "dropped"};

typedef struct managed {
    struct {
        void *data;
        int32_t device_type, device_id, ndim;
        uint32_t dtype;
        int64_t *shape, *strides;
        uint64_t byte_offset;
    } tensor;
    void *context;
    void (*deleter)(struct managed *self);
} managed;

typedef struct lifetime {
    ps_client *client;
    int n_failed;     /* calls that worked the second time */
    int n_kept;       /* tensors that had their first values when ps_client_begin had failed, */
    int n_moved;      /* and that had not */
    ps_status status; /* of the first that failed */
    uint64_t hash;    /* of what it ended with */
} lifetime;

static float buffer[9000];

/* st is that of the call made once; again: made once more. */
#define TWICE(l, call)                                                                                                 \
    do {                                                                                                               \
        ps_status st_ = (call);                                                                                        \
        if (st_ != PS_OK) {                                                                                            \
            note_failure(l, st_, #call);                                                                               \
            st_ = (call);                                                                                              \
            if (st_ != PS_OK) return st_;                                                                              \
            (l)->n_failed++;                                                                                           \
        }                                                                                                              \
    } while (0)

static void note_failure(lifetime *l, ps_status st, const char *call)
{
    if ((l)->status != PS_OK) fail_msg("%s failed for the second time: %s", call, ps_last_error());
    (l)->status = st;
}

static ps_status pass(lifetime *l, int step)
{
    static const int32_t order[] = {A, LONG, FROZEN, UNMANAGED};
    for (size_t i = 0; i < PS_ARRAY_LEN(order); i++) {
        ps_client_place p = {.struct_size = sizeof p};
        const int32_t t = order[step == 2 ? PS_ARRAY_LEN(order) - 1 - i : i]; /* the third step goes another way */
        TWICE(l, ps_client_moment(l->client, PS_CLIENT_BACKWARD, names[t], 4096 * (int64_t)i));
        TWICE(l, ps_client_pin(l->client, t, PS_CLIENT_PARAM, PS_CLIENT_READ, &p));
        ps_to_floats(p.dtype, p.address, 0, sizes[t], buffer);
        ps_client_unpin(l->client, t, PS_CLIENT_PARAM);
        if (t == FROZEN && step < 2) continue; /* gets its first gradient in the third */
        TWICE(l, ps_client_give_gradient(l->client, t, buffer, PS_DTYPE_F32, step == 1));
        if (t == LONG && step == 1) { /* asked for after its gradient; and a gradient more */
            TWICE(l, ps_client_pin(l->client, t, PS_CLIENT_PARAM, PS_CLIENT_READ, &p));
            ps_client_unpin(l->client, t, PS_CLIENT_PARAM);
            TWICE(l, ps_client_give_gradient(l->client, t, buffer, PS_DTYPE_F32, 0));
        }
    }
    return PS_OK;
}

static ps_status steps(lifetime *l)
{
    void *exported = NULL;
    for (int step = 0; step < 4; step++) {
        PS_TRY(pass(l, step));
        TWICE(l, ps_client_step(l->client, NULL));
    }
    PS_TRY(pass(l, 3));
    TWICE(l, ps_client_drop_gradients(l->client, -1));
    buffer[0] = 2;
    TWICE(l, ps_client_write_state(l->client, LONG, NULL, 4500, 1, buffer));
    TWICE(l, ps_client_export_dlpack(l->client, A, PS_CLIENT_MASTER, PS_CLIENT_WRITE, &exported));
    ((float *)((managed *)exported)->tensor.data)[3] = 1;
    ((managed *)exported)->deleter(exported);
    TWICE(l, ps_client_join_group(l->client, A, 1));
    PS_TRY(pass(l, 4));
    TWICE(l, ps_client_step(l->client, NULL));
    l->hash = 0xcbf29ce484222325u;
    for (int32_t t = 0; t < TENSORS; t++) {
        if (t == DROPPED) continue;
        for (int state = -1; state < 2; state++) {
            const char *name = state < 0 ? NULL : ps_client_get_state_name(l->client, state);
            TWICE(l, ps_client_read_state(l->client, t, name, 0, sizes[t], buffer));
            for (int64_t i = 0; i < sizes[t] * 4; i++)
                l->hash = (l->hash ^ ((unsigned char *)buffer)[i]) * 0x100000001b3u;
        }
    }
    return PS_OK;
}

/* After ps_client_begin failed: of the tensors that it does not call dropped. */
static void expect_first_values(const ps_client *c, lifetime *l)
{
    for (int32_t t = 0; t < TENSORS; t++) {
        ps_client_tensor_info info = {.struct_size = sizeof info};
        assert_ok(ps_client_get_tensor_info(c, t, &info));
        l->n_kept += !info.is_dropped;
        l->n_moved += info.is_dropped && t != DROPPED;
        for (int64_t i = 0; i < sizes[t] && !info.is_dropped; i++)
            assert_float_equal(((const float *)c->tensors[t].given.address)[i], drawn((uint64_t)t, i), 0);
    }
}

static ps_status begin(lifetime *l)
{
    const ps_status st = ps_client_begin(l->client);
    if (st == PS_OK) return st;
    note_failure(l, st, "ps_client_begin");
    expect_first_values(l->client, l);
    return ps_client_begin(l->client); /* which is not allowed */
}

static ps_status live(lifetime *l, const ps_config *config)
{
    TWICE(l, ps_client_create(config, NULL, &l->client));
    for (int32_t t = 0; t < TENSORS; t++) {
        int32_t n;
        TWICE(l, add_tensor(l->client, names[t], sizes[t], PS_DTYPE_F32, t == FROZEN, t == UNMANAGED, &n));
        assert_int_equal(n, t);
    }
    TWICE(l, ps_client_name(l->client, A, "another name", 0));
    TWICE(l, ps_client_drop(l->client, DROPPED));
    PS_TRY(begin(l));
    TWICE(l, ps_client_start_profile(l->client));
    PS_TRY(steps(l));
    TWICE(l, ps_client_stop_profile(l->client));
    const temp_path path = temp_folder_file(&folder, "profile.json");
    ps_status st = ps_client_save_profile(l->client, path.text);
    if (st == PS_OK) return st;
    note_failure(l, st, "ps_client_save_profile");
    st = ps_client_save_profile(l->client, path.text);
    l->n_failed += st == PS_OK;
    /* records that found no memory are lost for good */
    return st == PS_ENOMEM_HOST && strstr(ps_last_error(), "records of the profile") != NULL ? PS_OK : st;
}

static void expect_status(ps_fault_kind kind, ps_status st, long nth)
{
    const bool is_memory = st == PS_ENOMEM_HOST || st == PS_ENOMEM_DEV || st == PS_EBUDGET;
    const bool is_right = kind == PS_FAULT_ALLOC  ? is_memory
                          : kind == PS_FAULT_COPY ? st == PS_EDEVICE || st == PS_EIO
                                                  : st == PS_EIO;
    if (!is_right) fail_msg("fault %d, number %ld: %s: %s", (int)kind, nth, ps_status_name(st), ps_last_error());
}

static void walk(ps_fault_kind kind, const char *changes)
{
    ps_config *config = config_of(changes);
    const int64_t live_bytes = ps_mem_live_bytes();
    const temp_path path = temp_folder_file(&folder, "profile.json");
    lifetime whole = {0};
    int n_recovered = 0, n_broken = 0, n_kept = 0, n_moved = 0;
    assert_ok(live(&whole, config));
    ps_client_destroy(whole.client);
    for (long nth = 0;; nth++) {
        lifetime l = {0};
        ps_fault_arm(kind, nth, false);
        const ps_status st = live(&l, config);
        const bool has_struck = ps_fault_has_struck(kind);
        ps_fault_arm(kind, -1, false);
        if (l.status != PS_OK) expect_status(kind, l.status, nth);
        if (st == PS_OK && l.hash != whole.hash)
            fail_msg("fault %d, number %ld: other bits after %d calls that failed", (int)kind, nth, l.n_failed);
        if (st != PS_OK && l.client != NULL) {
            n_broken++;
            if (st != PS_ESTATE || strstr(ps_last_error(), "not allowed after a failure") == NULL)
                fail_msg("fault %d, number %ld: neither usable nor ended: %s: %s", (int)kind, nth, ps_status_name(st),
                         ps_last_error());
        }
        n_recovered += l.n_failed;
        n_kept += l.n_kept;
        n_moved += l.n_moved;
        ps_client_destroy(l.client);
        remove(path.text);
        if (ps_mem_live_bytes() != live_bytes)
            fail_msg("fault %d, number %ld: %lld bytes are lost", (int)kind, nth,
                     (long long)(ps_mem_live_bytes() - live_bytes));
        assert_int_equal(temp_folder_entries(&folder, 0), 0);
        if (!has_struck) break;
    }
    printf(
        "fault %d: %d calls worked the second time, %d clients ended; of these that had not begun %d tensors had their "
        "values, %d had not\n",
        (int)kind, n_recovered, n_broken, n_kept, n_moved);
    assert_true(n_recovered > 0);
    ps_config_destroy(config);
    expect_nothing_left();
}

/* A parameter was asked for, and only a part of its gradient made way: what is there can be read all the same. */
static void test_gradient_after_a_failed_restore(void **state)
{
    (void)state;
    int n_failed = 0;
    for (long nth = 0;; nth++) {
        ps_client *c = client_of("memory.device=400KB memory.host=0 memory.disk=4MB bf16.enabled=true");
        ps_client_place p = {.struct_size = sizeof p};
        int32_t n;
        assert_ok(add_tensor(c, "long", sizes[LONG], PS_DTYPE_F32, 0, 0, &n));
        assert_ok(ps_client_begin(c));
        for (int64_t i = 0; i < sizes[LONG]; i++) buffer[i] = (float)(i % 256);
        assert_ok(ps_client_give_gradient(c, 0, buffer, PS_DTYPE_F32, 0));
        ps_fault_arm(PS_FAULT_ALLOC, nth, false);
        const ps_status st = ps_client_pin(c, 0, PS_CLIENT_PARAM, PS_CLIENT_READ, &p);
        ps_fault_arm(PS_FAULT_ALLOC, -1, false);
        if (st == PS_OK) ps_client_unpin(c, 0, PS_CLIENT_PARAM);
        n_failed += st != PS_OK;
        const ps_status read = ps_client_pin(c, 0, PS_CLIENT_GRADIENT, PS_CLIENT_READ, &p);
        if (read == PS_OK) {
            ps_to_floats(p.dtype, p.address, 0, sizes[LONG], buffer);
            for (int64_t i = 0; i < sizes[LONG]; i++)
                if (buffer[i] != (float)(i % 256))
                    fail_msg("fault %ld, element %lld: %g", nth, (long long)i, (double)buffer[i]);
            ps_client_unpin(c, 0, PS_CLIENT_GRADIENT);
        }
        ps_client_destroy(c);
        if (st == PS_OK) break;
    }
    assert_true(n_failed > 1);
    expect_nothing_left();
}

#define LITTLE "memory.device=120KB memory.host=60KB memory.disk=4MB bf16.enabled=true"

static void test_no_memory(void **state)
{
    (void)state;
    walk(PS_FAULT_ALLOC, LITTLE);
}

static void test_disk_reads(void **state)
{
    (void)state;
    walk(PS_FAULT_READ, LITTLE);
}

static void test_disk_writes(void **state)
{
    (void)state;
    walk(PS_FAULT_WRITE, LITTLE);
}

static void test_copies(void **state)
{
    (void)state;
    walk(PS_FAULT_COPY, "memory.device=120KB memory.host=4MB memory.disk=0 bf16.enabled=true");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_no_memory, note_live),
        cmocka_unit_test_setup(test_disk_reads, note_live),
        cmocka_unit_test_setup(test_disk_writes, note_live),
        cmocka_unit_test_setup(test_copies, note_live),
        cmocka_unit_test_setup(test_gradient_after_a_failed_restore, note_live),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
