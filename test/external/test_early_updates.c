/* test_early_updates.c - updates within the backward pass: when they come, what is refused between them and the step, and
 * what becomes of a step whose gradients are not finite. That bits are the same test_client_walk.c shows. */
#include <dirent.h>
#include <pthread.h>

#include "base/folder.h"
#include "external/client_fixture.h"

/* Each has a chunk of its own. */
enum { A, B, C, TENSORS, ELEMENTS = 4096 };

#define EARLY                                                                                                          \
    "memory.device=4MB memory.host=0 memory.disk=0 gradient_clipping=0 train.max_nonfinite_steps=1 "                   \
    "memory.update_in_backward="

static ps_client *begun_with(const char *changes, ps_comm *comm)
{
    ps_client *c = client_of_rank(changes, comm);
    int32_t number;
    for (int32_t t = 0; t < TENSORS; t++)
        assert_ok(add_tensor(c, (const char *[]){"a", "b", "c"}[t], ELEMENTS, PS_DTYPE_F32, 0, 0, &number));
    assert_ok(ps_client_begin(c));
    return c;
}

static void begin_moment(ps_client *c, ps_client_phase phase, const char *name)
{
    assert_ok(ps_client_moment(c, phase, name, 0));
}

static ps_status use(ps_client *c, int32_t t)
{
    ps_client_place p = {.struct_size = sizeof p};
    const ps_status st = ps_client_pin(c, t, PS_CLIENT_PARAM, PS_CLIENT_READ, &p);
    if (st == PS_OK) ps_client_unpin(c, t, PS_CLIENT_PARAM);
    return st;
}

static ps_status give(ps_client *c, int32_t t, float value)
{
    float gradient[ELEMENTS];
    for (int i = 0; i < ELEMENTS; i++) gradient[i] = value;
    return ps_client_give_gradient(c, t, gradient, PS_DTYPE_F32, 0);
}

/* Up to the step; the backward pass begins at C. */
static void pass(ps_client *c, float value)
{
    static const char *const names[] = {"use of a", "use of b", "use of c"};
    for (int32_t t = A; t < TENSORS; t++) {
        begin_moment(c, PS_CLIENT_FORWARD, names[t]);
        assert_ok(use(c, t));
    }
    assert_ok(ps_client_begin_last_backward(c));
    for (int32_t t = C; t >= A; t--) {
        begin_moment(c, PS_CLIENT_BACKWARD, names[t]);
        assert_ok(use(c, t));
        assert_ok(give(c, t, t == A ? value : 0.5f));
    }
}

static float value_of(ps_client *c, int32_t t)
{
    float value;
    assert_ok(ps_client_read_state(c, t, NULL, 7, 1, &value));
    return value;
}

static void expect_refused(ps_status st, const char *what)
{
    assert_int_equal(st, PS_ESTATE);
    if (strstr(ps_last_error(), what) == NULL || strstr(ps_last_error(), "memory.update_in_backward = auto") == NULL)
        fail_msg("%s: \"%s\"", what, ps_last_error());
}

/* The first step is recorded. The tensor that backward comes to last has no moment after it. */
static void test_when(void **state)
{
    (void)state;
    static const char *const ways[] = {"auto", "never", "always"};
    float seen[3][TENSORS];
    char changes[256];
    for (int way = 0; way < 3; way++) {
        snprintf(changes, sizeof changes, EARLY "%s", ways[way]);
        ps_client *c = begun_with(changes, NULL);
        for (int step = 0; step < 4; step++) {
            pass(c, 0.25f);
            const ps_client_step_info info = stepped(c);
            assert_int_equal(info.n_early, way == 2 && step > 0 ? 2 : 0);
            assert_int_equal(info.is_recorded, step == 0);
            assert_true(fabs(info.grad_norm - sqrt(ELEMENTS * (0.25 * 0.25 + 2 * 0.5 * 0.5))) < 1e-4);
            for (int32_t t = A; t < TENSORS; t++) assert_int_equal(ps_client_get_update_count(c, t), step + 1);
        }
        for (int32_t t = A; t < TENSORS; t++) {
            seen[way][t] = value_of(c, t);
            assert_true(seen[way][t] == seen[0][t]);
        }
        ps_client_destroy(c);
    }
    expect_nothing_left();
}

/* Each leaves the step as it was. */
static void test_refusals(void **state)
{
    (void)state;
    ps_client *c = begun_with(EARLY "always", NULL), *late = begun_with(EARLY "auto", NULL);
    ps_client_place p = {.struct_size = sizeof p};
    ps_client_step_info info = {.struct_size = sizeof info};
    ps_client_group g = {.struct_size = sizeof g};
    float value = 1;
    for (int step = 0; step < 2; step++) {
        pass(c, 0.25f);
        (void)stepped(c);
        pass(late, 0.25f);
        (void)stepped(late);
    }
    pass(late, 0.25f);
    pass(c, 0.25f);
    expect_refused(use(c, C), "c: its value is asked for in use of a, but it has been updated");
    expect_refused(ps_client_pin(c, C, PS_CLIENT_MASTER, PS_CLIENT_WRITE, &p), "c: its value is asked for");
    expect_refused(ps_client_pin(c, A, PS_CLIENT_GRADIENT, PS_CLIENT_READ, &p), "p.grad");
    expect_refused(give(c, C, 1), "c: another gradient has come");
    expect_refused(ps_client_read_state(c, B, "exp_avg", 0, 1, &value), "b: its value or a state is read");
    expect_refused(ps_client_write_state(c, B, NULL, 0, 1, &value), "b: its value or a state is written");
    expect_refused(ps_client_set_update_count(c, B, 7), "b: its count of updates is set");
    expect_refused(ps_client_join_group(c, B, 1), "b: it joins another group");
    expect_refused(ps_client_drop_gradients(c, -1), "zero_grad");
    expect_refused(ps_client_drop_gradients(c, A), "zero_grad");
    expect_refused(ps_client_begin_last_backward(c), "has begun already");
    expect_refused(ps_client_set_scaler(c, "{}"), "ps_client_set_scaler is not allowed between");
    assert_true(ps_client_has_gradient(c, C));
    assert_ok(ps_client_get_group(c, 0, &g));
    const double rate = g.learning_rate;
    g.learning_rate = rate * 2;
    assert_ok(ps_client_set_group(c, 0, &g));
    expect_refused(ps_client_step(c, &info), "numbers of group 0");
    g.learning_rate = rate;
    g.beta2 = 0.5;
    assert_ok(ps_client_set_group(c, 0, &g));
    expect_refused(ps_client_step(c, &info), "numbers of group 0");
    g.beta2 = 0.999;
    assert_ok(ps_client_set_group(c, 0, &g));
    assert_int_equal(stepped(c).n_early, 2);
    (void)stepped(late);
    for (int32_t t = A; t < TENSORS; t++) {
        assert_true(value_of(c, t) == value_of(late, t));
        assert_int_equal(ps_client_get_update_count(c, t), 3);
        assert_false(ps_client_has_gradient(c, t));
    }
    ps_client_destroy(c);
    ps_client_destroy(late);
    expect_nothing_left();
}

/* A step that goes another way is updated at its end from there on. */
static void test_another_way(void **state)
{
    (void)state;
    ps_client *c = begun_with(EARLY "always", NULL);
    for (int step = 0; step < 2; step++) {
        pass(c, 0.25f);
        (void)stepped(c);
    }
    begin_moment(c, PS_CLIENT_FORWARD, "something else");
    pass(c, 0.25f);
    assert_ok(use(c, C));
    assert_ok(give(c, C, 1));
    const ps_client_step_info info = stepped(c);
    assert_int_equal(info.n_early, 0);
    assert_int_equal(info.is_recorded, 1);
    ps_client_destroy(c);
    expect_nothing_left();
}

static void test_configurations(void **state)
{
    (void)state;
    static const char *const wrong[] = {EARLY "always gradient_clipping=1", EARLY "always fp16.enabled=true",
                                        EARLY "always train.max_nonfinite_steps=2"};
    for (size_t i = 0; i < PS_ARRAY_LEN(wrong); i++) {
        ps_client *c;
        ps_config *config = config_of(wrong[i]);
        assert_int_equal(ps_client_create(config, NULL, &c), PS_EINVAL);
        assert_non_null(strstr(ps_last_error(), "memory.update_in_backward = always"));
        ps_config_destroy(config);
    }
}

static void remove_folders(const char *path)
{
    DIR *d = opendir(path);
    for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.') assert_true(ps_folder_remove(dirfd(d), e->d_name));
    if (d != NULL) closedir(d);
    assert_int_equal(rmdir(path), 0);
}

/* After two steps a checkpoint begins, at `path`, of the values `saved`. */
static ps_client *begun_to_save(char path[512], float saved[TENSORS])
{
    ps_client *c = begun_with(EARLY "always", NULL);
    for (int step = 0; step < 2; step++) {
        pass(c, 0.25f);
        (void)stepped(c);
    }
    snprintf(path, 512, "%s/checkpoints", folder.path);
    for (int32_t t = A; t < TENSORS; t++) saved[t] = value_of(c, t);
    assert_ok(ps_client_begin_checkpoint(c, path, NULL));
    return c;
}

/* The checkpoint is of the state at its beginning, and makes a client whole whose weights have changed in part. */
static void test_checkpoint_and_nonfinite(void **state)
{
    (void)state;
    ps_client_step_info info = {.struct_size = sizeof info};
    char path[512];
    float saved[TENSORS], after[TENSORS];
    ps_client *c = begun_to_save(path, saved);
    pass(c, 0.25f);
    assert_int_equal(stepped(c).n_early, 2);
    assert_ok(ps_client_finish_checkpoint(c, NULL));
    for (int32_t t = A; t < TENSORS; t++) after[t] = value_of(c, t);

    pass(c, INFINITY);
    assert_int_equal(ps_client_step(c, &info), PS_ENUMERIC);
    assert_non_null(strstr(ps_last_error(), "the gradient of a. Updates run within the backward pass here"));
    assert_int_equal(info.is_skipped, 0);
    assert_int_equal(info.n_early, 2);
    assert_true(isinf(info.grad_norm));
    assert_int_equal(use(c, A), PS_ESTATE);

    assert_ok(ps_client_load_checkpoint(c, path, NULL));
    for (int32_t t = A; t < TENSORS; t++) assert_true(value_of(c, t) == saved[t]);
    pass(c, 0.25f);
    (void)stepped(c);
    for (int32_t t = A; t < TENSORS; t++) assert_true(value_of(c, t) == after[t]);
    ps_client_destroy(c);

    c = begun_with(EARLY "auto", NULL);
    pass(c, INFINITY);
    assert_int_equal(ps_client_step(c, &info), PS_ENUMERIC);
    assert_int_equal(info.is_skipped, 1);
    assert_ok(use(c, A));
    ps_client_destroy(c);
    remove_folders(path);
    expect_nothing_left();
}

/* ---- ranks ---- */

typedef struct member {
    ps_comm *comm;
    bool is_nonfinite;
    ps_status use_again, step;
    int64_t n_early;
} member;

static void *member_main(void *arg)
{
    member *m = arg;
    ps_client *c = begun_with(EARLY "always memory.host=70KB", m->comm);
    ps_client_step_info info = {.struct_size = sizeof info};
    for (int step = 0; step < 3; step++) {
        pass(c, 0.25f);
        info = stepped(c);
    }
    m->n_early = info.n_early;
    pass(c, m->is_nonfinite && ps_comm_rank(m->comm) == 1 ? INFINITY : 0.25f);
    m->use_again = m->is_nonfinite ? PS_OK : use(c, C);
    m->step = ps_client_step(c, &info);
    ps_client_destroy(c);
    ps_comm_close(m->comm);
    return NULL;
}

static void run_ranks(bool is_nonfinite, member m[2])
{
    ps_comm *comms[2];
    pthread_t threads[2];
    const ps_comm_options o = {.timeout_s = 60, .staging_bytes = 1 << 16};
    assert_ok(ps_comm_open_threads(&o, 2, comms));
    for (int r = 0; r < 2; r++) {
        m[r] = (member){.comm = comms[r], .is_nonfinite = is_nonfinite};
        assert_int_equal(pthread_create(&threads[r], NULL, member_main, &m[r]), 0);
    }
    for (int r = 0; r < 2; r++) assert_int_equal(pthread_join(threads[r], NULL), 0);
    expect_nothing_left();
}

static void test_ranks(void **state)
{
    (void)state;
    member m[2];
    run_ranks(false, m); /* c is with rank 0, which informs rank 1 */
    assert_true(m[0].n_early + m[1].n_early > 0);
    for (int r = 0; r < 2; r++) {
        assert_true(m[r].use_again != PS_OK);
        assert_true(m[r].step != PS_OK);
    }
    run_ranks(true, m);
    for (int r = 0; r < 2; r++) assert_int_equal(m[r].step, PS_ENUMERIC);
}

/* Weights change in part while a checkpoint is being saved: it has them as they were before, and can be finished. */
static void test_incomplete_while_saving(void **state)
{
    (void)state;
    ps_client_step_info info = {.struct_size = sizeof info};
    char path[512];
    float saved[TENSORS];
    ps_client *c = begun_to_save(path, saved);
    pass(c, INFINITY);
    assert_int_equal(ps_client_step(c, &info), PS_ENUMERIC);
    assert_ok(ps_client_finish_checkpoint(c, NULL));
    assert_int_equal(ps_client_step(c, &info), PS_ESTATE); /* values are still those of half a step */
    assert_ok(ps_client_load_checkpoint(c, path, NULL));
    for (int32_t t = A; t < TENSORS; t++) assert_true(value_of(c, t) == saved[t]);
    ps_client_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_incomplete_while_saving, note_live),
        cmocka_unit_test_setup(test_when, note_live),
        cmocka_unit_test_setup(test_refusals, note_live),
        cmocka_unit_test_setup(test_another_way, note_live),
        cmocka_unit_test_setup(test_configurations, note_live),
        cmocka_unit_test_setup(test_checkpoint_and_nonfinite, note_live),
        cmocka_unit_test_setup(test_ranks, note_live),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
