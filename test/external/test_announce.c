/* test_announce.c - ranks that diverge: what one of them does alone is refused on all, from the first time on,
 * with the tensor or the call that was different. */
#include <pthread.h>

#include "chunk/comm/comm.h"
#include "external/client_fixture.h"

enum { RANKS = 2, FIRST = 0, SECOND, UNMANAGED, TENSORS, ELEMENTS = 700 };

static const char *const names[TENSORS] = {"experts.0", "experts.1", "apart"};

typedef struct member member;
typedef ps_status act(member *m);

struct member {
    ps_comm *comm;
    int rank;
    act *what;
    ps_client *client;
    ps_status st;
    char error[1024];
    pthread_t thread;
};

static ps_status evaluate(ps_client *c)
{
    ps_client_place place = {.struct_size = sizeof place};
    for (int32_t t = 0; t < 2; t++) {
        PS_TRY(ps_client_moment(c, PS_CLIENT_OUTSIDE_STEP, names[t], 0));
        PS_TRY(ps_client_pin(c, t, PS_CLIENT_PARAM, PS_CLIENT_READ, &place));
        ps_client_unpin(c, t, PS_CLIENT_PARAM);
    }
    return PS_OK;
}

/* Gradients of the tensors whose bits are set. */
static ps_status pass(ps_client *c, unsigned with_gradient)
{
    static const float ones[ELEMENTS] = {1, 1};
    ps_client_place place = {.struct_size = sizeof place};
    PS_TRY(ps_client_moment(c, PS_CLIENT_FORWARD, "forward", 0));
    PS_TRY(ps_client_pin(c, FIRST, PS_CLIENT_PARAM, PS_CLIENT_READ, &place));
    ps_client_unpin(c, FIRST, PS_CLIENT_PARAM);
    PS_TRY(ps_client_moment(c, PS_CLIENT_BACKWARD, "backward", 0));
    for (int32_t t = 0; t < TENSORS; t++)
        if ((with_gradient >> t & 1) != 0) PS_TRY(ps_client_give_gradient(c, t, ones, PS_DTYPE_F32, 1));
    return PS_OK;
}

static ps_status train(ps_client *c, unsigned with_gradient)
{
    PS_TRY(pass(c, with_gradient));
    return ps_client_step(c, NULL);
}

static ps_status read_value(ps_client *c)
{
    float value;
    return ps_client_read_state(c, SECOND, NULL, 0, 1, &value);
}

/* ---- what the ranks do ---- */

static ps_status all_alike(member *m)
{
    for (int i = 0; i < 2; i++) {
        PS_TRY(train(m->client, 7));
        PS_TRY(evaluate(m->client));
        PS_TRY(evaluate(m->client));
        PS_TRY(read_value(m->client));
    }
    return train(m->client, m->rank == 0 ? 3 : 7); /* what is apart any rank may leave out */
}

static ps_status first_reads_alone(member *m)
{
    PS_TRY(train(m->client, 7));
    if (m->rank == 0) PS_TRY(read_value(m->client));
    return train(m->client, 7);
}

static ps_status first_reads_alone_at_the_end(member *m)
{
    PS_TRY(train(m->client, 7));
    return m->rank == 0 ? read_value(m->client) : PS_OK;
}

static ps_status first_evaluates_alone(member *m)
{
    PS_TRY(train(m->client, 7));
    if (m->rank == 0) PS_TRY(evaluate(m->client));
    return train(m->client, 7);
}

static ps_status first_evaluates_alone_at_the_end(member *m)
{
    PS_TRY(train(m->client, 7));
    PS_TRY(evaluate(m->client)); /* together: parameters are here after that */
    return m->rank == 0 ? evaluate(m->client) : PS_OK;
}

static ps_status first_saves_alone(member *m)
{
    PS_TRY(train(m->client, 7));
    if (m->rank == 0) PS_TRY(ps_client_save_checkpoint(m->client, "/no/such/folder", NULL, NULL));
    return train(m->client, 7);
}

static ps_status first_loads_alone(member *m)
{
    PS_TRY(train(m->client, 7));
    if (m->rank == 0) PS_TRY(ps_client_load_checkpoint(m->client, "/no/such/folder", NULL));
    return train(m->client, 7);
}

static ps_status second_makes_no_step(member *m)
{
    PS_TRY(train(m->client, 7));
    PS_TRY(m->rank == 0 ? train(m->client, 7) : pass(m->client, 7));
    return train(m->client, 7);
}

static ps_status first_has_more_batches(member *m)
{
    PS_TRY(train(m->client, 7));
    PS_TRY(evaluate(m->client));
    if (m->rank == 0) PS_TRY(evaluate(m->client));
    return train(m->client, 7);
}

/* A scheduler that steps on one rank only. */
static ps_status change_rate_alone(member *m)
{
    const ps_client_group numbers = {.struct_size = sizeof numbers,
                                     .learning_rate = m->rank == 0 ? 0.25 : 0.5,
                                     .weight_decay = NAN,
                                     .beta1 = -1,
                                     .beta2 = -1,
                                     .eps = -1};
    PS_TRY(train(m->client, 7));
    PS_TRY(ps_client_set_group(m->client, 0, &numbers));
    return train(m->client, 7);
}

/* max_norm of one rank. */
static ps_status change_clipping_alone(member *m)
{
    PS_TRY(train(m->client, 7));
    PS_TRY(ps_client_set_gradient_clipping(m->client, m->rank == 0 ? 1 : 0.5));
    return train(m->client, 7);
}

/* In one group; the other numbers are as they were. */
static ps_status change_eps(member *m, int32_t group)
{
    const ps_client_group numbers = {.struct_size = sizeof numbers,
                                     .learning_rate = -1,
                                     .weight_decay = NAN,
                                     .beta1 = -1,
                                     .beta2 = -1,
                                     .eps = m->rank == 0 ? 1e-3 : 1e-4};
    PS_TRY(ps_client_join_group(m->client, 0, 1));
    PS_TRY(ps_client_set_group(m->client, group, &numbers));
    return train(m->client, 7);
}

static ps_status change_eps_alone(member *m)
{
    return change_eps(m, 0);
}

static ps_status change_eps_of_another_group(member *m)
{
    return change_eps(m, 1);
}

static ps_status use_other_experts(member *m)
{
    return train(m->client, m->rank == 0 ? 5 : 6);
}

static void *member_main(void *arg)
{
    member *m = arg;
    int32_t number;
    m->client = client_of_rank("memory.device=1MB memory.host=300KB memory.disk=0", m->comm);
    for (int32_t t = 0; t < TENSORS; t++)
        assert_ok(add_tensor(m->client, names[t], ELEMENTS, PS_DTYPE_F32, 0, t == UNMANAGED, &number));
    assert_ok(ps_client_begin(m->client));
    m->st = m->what(m);
    snprintf(m->error, sizeof m->error, "%s", m->st == PS_OK ? "" : ps_last_error());
    ps_client_destroy(m->client);
    ps_comm_close(m->comm);
    return NULL;
}

static void run(act *what, member m[RANKS])
{
    ps_comm *comms[RANKS];
    const ps_comm_options o = {.timeout_s = 30, .staging_bytes = 1 << 16};
    assert_ok(ps_comm_open_threads(&o, RANKS, comms));
    for (int r = 0; r < RANKS; r++) {
        m[r] = (member){.comm = comms[r], .rank = r, .what = what};
        assert_int_equal(pthread_create(&m[r].thread, NULL, member_main, &m[r]), 0);
    }
    for (int r = 0; r < RANKS; r++) assert_int_equal(pthread_join(m[r].thread, NULL), 0);
    expect_nothing_left();
}

static void expect(const member *m, ps_status st, const char *said)
{
    if (m->st != st || strstr(m->error, said) == NULL) fail_msg("rank %d: %d, %s", m->rank, (int)m->st, m->error);
}

/* The second rank comes when the first has said that it waits. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t is_said;
    char text[1024];
} late = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, ""};

static void take_line(void *user, ps_log_level level, const char *line)
{
    (void)user;
    if (level != PS_LOG_WARNING || strstr(line, " has waited ") == NULL) return;
    pthread_mutex_lock(&late.lock);
    snprintf(late.text, sizeof late.text, "%s", line);
    pthread_cond_signal(&late.is_said);
    pthread_mutex_unlock(&late.lock);
}

static ps_status second_evaluates_late(member *m)
{
    PS_TRY(train(m->client, 7));
    m->client->report_after_ns = 1000;
    pthread_mutex_lock(&late.lock);
    while (m->rank == 1 && late.text[0] == '\0') pthread_cond_wait(&late.is_said, &late.lock);
    pthread_mutex_unlock(&late.lock);
    return evaluate(m->client);
}

/* ---- tests ---- */

static void test_the_same_calls(void **state)
{
    (void)state;
    member m[RANKS];
    run(all_alike, m);
    for (int r = 0; r < RANKS; r++) expect(&m[r], PS_OK, "");
}

static const char same_calls[] = "all ranks must make the same calls (state_dict, save, evaluate, generate), not one "
                                 "rank alone";

static void test_calls_of_one_rank(void **state)
{
    (void)state;
    static const struct {
        act *what;
        const char *said;
    } cases[] = {{first_reads_alone, "rank 0 reads the value of experts.1, rank 1 uses experts.0; "},
                 {first_evaluates_alone, "rank 0 evaluates or generates, rank 1 uses experts.0; "},
                 {first_saves_alone, "rank 0 saves a checkpoint, rank 1 uses experts.0; "},
                 {first_loads_alone, "rank 0 loads a checkpoint, rank 1 uses experts.0; "},
                 {first_has_more_batches, "rank 0 evaluates or generates, rank 1 "}};
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        member m[RANKS];
        run(cases[i].what, m);
        expect(&m[0], PS_EINVAL, cases[i].said);
        for (int r = 0; r < RANKS; r++) expect(&m[r], PS_EINVAL, same_calls);
    }
}

static void test_a_step_of_one_rank(void **state)
{
    (void)state;
    member m[RANKS];
    run(second_makes_no_step, m);
    expect(&m[0], PS_EINVAL, "rank 0 makes step 2, rank 1 uses experts.0; ");
    for (int r = 0; r < RANKS; r++) expect(&m[r], PS_EINVAL, "all ranks must call optimizer.step() after the same");
}

static void test_others_that_have_left(void **state)
{
    (void)state;
    static act *const cases[] = {first_reads_alone_at_the_end, first_evaluates_alone_at_the_end};
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        member m[RANKS];
        run(cases[i], m);
        expect(&m[0], PS_ECOMM, "it ended, or left before the others: ");
        expect(&m[0], PS_ECOMM, same_calls);
        expect(&m[1], PS_OK, "");
    }
}

static void test_waiting_for_long_is_said(void **state)
{
    (void)state;
    member m[RANKS];
    ps_set_log(take_line, NULL);
    run(second_evaluates_late, m);
    ps_set_log(NULL, NULL);
    for (int r = 0; r < RANKS; r++) expect(&m[r], PS_OK, "");
    assert_non_null(strstr(late.text, "rank 0 evaluates or generates, and has waited for the others for "));
    assert_non_null(strstr(late.text, same_calls));
}

/* In the step that shows it first, whichever chunks they lie in. */
static void test_other_tensors(void **state)
{
    (void)state;
    member m[RANKS];
    run(use_other_experts, m);
    for (int r = 0; r < RANKS; r++) {
        expect(&m[r], PS_EINVAL, "experts.0 has got a gradient on rank 0 in this step, and none on rank 1: ");
        expect(&m[r], PS_EINVAL, "with an input of no rows (x[:0])");
    }
}

/* Each owner would update its chunks with its own. */
static void test_other_numbers(void **state)
{
    (void)state;
    member m[RANKS];
    run(change_rate_alone, m);
    expect(&m[0], PS_EINVAL, "rank 0 makes step 2 with a learning rate of 0.25 in its first group, rank 1 with 0.5; ");
    expect(&m[1], PS_EINVAL, "rank 1 makes step 2 with a learning rate of 0.5 in its first group, rank 0 with 0.25; ");
    run(change_clipping_alone, m);
    expect(&m[0], PS_EINVAL, "with gradient clipping to a norm of 1 (0: none), rank 1 with 0.5; ");
    run(change_eps_alone, m);
    expect(&m[1], PS_EINVAL, "with an eps of 0.0001 in its first group, rank 0 with 0.001; ");
    run(change_eps_of_another_group, m);
    expect(&m[0], PS_EINVAL, "with other numbers than rank 1 in a group after the first, ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_the_same_calls, note_live),
        cmocka_unit_test_setup(test_calls_of_one_rank, note_live),
        cmocka_unit_test_setup(test_a_step_of_one_rank, note_live),
        cmocka_unit_test_setup(test_others_that_have_left, note_live),
        cmocka_unit_test_setup(test_waiting_for_long_is_said, note_live),
        cmocka_unit_test_setup(test_other_tensors, note_live),
        cmocka_unit_test_setup(test_other_numbers, note_live),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
