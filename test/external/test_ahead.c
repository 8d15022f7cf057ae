/* test_ahead.c - groups that are gathered ahead, as the recorded step has them: the bits are those of a program whose
 * groups come when they are asked for, also where a step goes another way, on all ranks; where one rank does, all are
 * told so. Over messages that take no time, and ones that take longer than what a step computes. */
#include <pthread.h>

#include "comm/comm.h"
#include "comm/hall.h"
#include "external/client_fixture.h"

enum { RANKS_MAX = 3, TENSORS = 12, ELEMENTS = 4000, STEPS = 7, ODD_STEP = 4, WITHOUT_USE = 7 };

/* What a step does other than the recorded one. */
typedef enum oddity {
    NOTHING,
    OTHER_ORDER,    /* of modules */
    EARLY_GRADIENT, /* a gradient comes whose parameter the recorded step uses next */
    EVALUATION,     /* between two modules */
    DROPPED,        /* gradients, between two modules */
    WRITTEN,        /* ps_client_write of the parameter that comes next */
    WRITTEN_IN_USE, /* the same by the program itself */
    READ,           /* ps_client_read of it */
    MORE_MEMORY,    /* the framework takes so much that nothing can stay on the device that is not in use */
    HELD,           /* a place, which is written to while its group may come */
    LEFT_OUT,       /* a module */
    ODDITIES
} oddity;

typedef struct member {
    ps_comm *comm; /* NULL: by way of the visitor's hall */
    visitor visitor;
    const char *changes;
    oddity odd;
    int odd_rank; /* -1: all */
    int rank;
    ps_client *client;
    int64_t n_ahead, n_at_end, n_ahead_at_end, n_beside_at_end;
    ps_client_place held;
    float seen; /* sum of parameters as they were used */
    float values[TENSORS];
    ps_status st;
    char error[1024];
    pthread_t thread;
} member;

static ps_status use(member *m, int32_t t, float *gradient)
{
    ps_client_place place = {.struct_size = sizeof place};
    PS_TRY(ps_client_pin(m->client, t, PS_CLIENT_PARAM, PS_CLIENT_READ, &place));
    for (int64_t i = 0; i < ELEMENTS; i++) {
        float value;
        ps_to_floats(place.dtype, place.address, i, 1, &value);
        m->seen += value;
        if (gradient != NULL) gradient[i] = value * 0.5f + 0.001f * (float)(i % 7 + m->rank);
    }
    ps_client_unpin(m->client, t, PS_CLIENT_PARAM);
    return PS_OK;
}

static ps_status begin_module(member *m, ps_client_phase phase, int32_t t, int64_t bytes)
{
    char label[32];
    snprintf(label, sizeof label, "module %d", (int)t);
    return ps_client_moment(m->client, phase, label, bytes);
}

static ps_status give_some(member *m, int32_t t)
{
    float gradient[ELEMENTS];
    for (int i = 0; i < ELEMENTS; i++) gradient[i] = (float)(m->rank + 1);
    return ps_client_give_gradient(m->client, t, gradient, PS_DTYPE_F32, 0);
}

/* Between module t and the next one, which is of the next group. */
static ps_status be_odd(member *m, int32_t t)
{
    static const float ones[ELEMENTS] = {1, 1, 1};
    ps_client_place place = {.struct_size = sizeof place};
    float value;
    const int32_t next = t + RANKS_MAX;
    switch (m->odd) {
    case EARLY_GRADIENT: return give_some(m, next);
    case EVALUATION: PS_TRY(begin_module(m, PS_CLIENT_ASIDE, 1, 0)); return use(m, 1, NULL);
    case DROPPED: return ps_client_drop_gradients(m->client, -1);
    case WRITTEN: return ps_client_write(m->client, next, NULL, 0, ELEMENTS, ones);
    case WRITTEN_IN_USE:
        PS_TRY(ps_client_pin(m->client, next, PS_CLIENT_PARAM, PS_CLIENT_WRITE, &place));
        ps_from_floats(place.dtype, place.address, 0, ELEMENTS, ones);
        ps_client_unpin(m->client, next, PS_CLIENT_PARAM);
        return PS_OK;
    case READ: return ps_client_read(m->client, next, NULL, 0, 1, &value);
    case HELD:
    case NOTHING:
    case OTHER_ORDER:
    case MORE_MEMORY:
    case LEFT_OUT:
    case ODDITIES: break;
    }
    return PS_OK;
}

/* From the first module on the place stays in use; it is written to before its own use in the backward pass. */
static ps_status write_held(member *m, int32_t k)
{
    const float value = (float)k;
    if (k == 0) PS_TRY(ps_client_pin(m->client, 0, PS_CLIENT_PARAM, PS_CLIENT_WRITE, &m->held));
    if (k < 2 * TENSORS - 1) ps_from_floats(m->held.dtype, m->held.address, k, 1, &value);
    return PS_OK;
}

static ps_status step(member *m, bool is_odd, int64_t more_bytes)
{
    float gradient[ELEMENTS];
    const oddity odd = is_odd ? m->odd : NOTHING;
    ps_client_step_info info = {.struct_size = sizeof info};
    for (int32_t k = 0; k < 2 * TENSORS; k++) {
        const bool is_backward = k >= TENSORS;
        int32_t t = is_backward ? 2 * TENSORS - 1 - k : k;
        if (odd == OTHER_ORDER) t = (t + 5) % TENSORS;
        if (odd == LEFT_OUT && t == 4) continue;
        const int64_t bytes = odd == MORE_MEMORY && k % 3 == 1 ? more_bytes : 0;
        PS_TRY(begin_module(m, is_backward ? PS_CLIENT_BACKWARD : PS_CLIENT_FORWARD, t, bytes));
        if (odd == HELD) PS_TRY(write_held(m, k));
        if (is_backward && t == WITHOUT_USE)
            memset(gradient, 0, sizeof gradient);
        else
            PS_TRY(use(m, t, gradient));
        if (is_odd && (k == 2 || (k == TENSORS + 3 && odd != DROPPED))) PS_TRY(be_odd(m, is_backward ? t - 5 : t));
        if (is_backward) PS_TRY(ps_client_give_gradient(m->client, t, gradient, PS_DTYPE_F32, 0));
    }
    if (odd == HELD) ps_client_unpin(m->client, 0, PS_CLIENT_PARAM);
    PS_TRY(ps_client_step(m->client, &info));
    assert_true(info.n_gathered_ahead <= info.n_gathered);
    m->n_at_end = info.n_gathered;
    m->n_beside_at_end = info.n_beside;
    m->n_ahead_at_end = info.n_gathered_ahead;
    m->n_ahead += info.n_gathered_ahead;
    return PS_OK;
}

static ps_status train(member *m)
{
    for (int s = 0; s < STEPS; s++) {
        const bool is_odd = s == ODD_STEP && (m->odd_rank < 0 || m->odd_rank == m->rank);
        /* 16 KiB chunks, and 64 KiB for messages where there is no host tier */
        PS_TRY(step(m, is_odd, (int64_t)(strstr(m->changes, "memory.host=0") != NULL ? 32 : 120) << 10));
    }
    for (int32_t t = 0; t < TENSORS; t++) PS_TRY(ps_client_read(m->client, t, NULL, 3, 1, &m->values[t]));
    return PS_OK;
}

static void *member_main(void *arg)
{
    member *m = arg;
    int32_t number;
    const ps_process_group group = group_of(&m->visitor);
    ps_config *config = config_of("comm.staging=65536");
    if (m->comm == NULL) assert_ok(ps_comm_meet_by_process_group(config, &group, &m->comm));
    ps_config_destroy(config);
    m->client = client_of_rank(m->changes, m->comm);
    for (int32_t t = 0; t < TENSORS; t++) {
        char name[32];
        snprintf(name, sizeof name, "module.%d", (int)t);
        assert_ok(add_tensor(m->client, name, ELEMENTS, PS_DTYPE_F32, 0, 0, &number));
    }
    assert_ok(ps_client_begin(m->client));
    m->st = train(m);
    snprintf(m->error, sizeof m->error, "%s", m->st == PS_OK ? "" : ps_last_error());
    ps_client_destroy(m->client);
    ps_comm_close(m->comm);
    return NULL;
}

/* delay_ns: that messages take; 0: threads' own, which take none. */
static void run(int n, const char *changes, oddity odd, int odd_rank, int64_t delay_ns, member m[RANKS_MAX])
{
    hall h;
    ps_comm *comms[RANKS_MAX] = {NULL};
    const ps_comm_options o = {.timeout_s = 30, .staging_bytes = 1 << 16};
    hall_init(&h, n, delay_ns);
    if (delay_ns == 0) assert_ok(ps_comm_open_threads(&o, n, comms));
    for (int r = 0; r < n; r++) {
        m[r] = (member){.comm = comms[r],
                        .visitor = {.hall = &h, .rank = r},
                        .rank = r,
                        .changes = changes,
                        .held = {.struct_size = sizeof m[r].held},
                        .odd = odd,
                        .odd_rank = odd_rank};
        assert_int_equal(pthread_create(&m[r].thread, NULL, member_main, &m[r]), 0);
    }
    for (int r = 0; r < n; r++) assert_int_equal(pthread_join(m[r].thread, NULL), 0);
    hall_deinit(&h);
    expect_nothing_left();
}

/* ---- tests ---- */

enum { late_ns = 500000 };

#define ROOMY "memory.device=2MB memory.host=300KB memory.disk=0 "
#define TIGHT "memory.device=220KB memory.host=100KB memory.disk=4MB "
#define TIGHTEST "memory.device=150KB memory.host=0 memory.disk=4MB "
#define AT_ONCE "client.opts.with_async_move=false "

static void expect_same(int n, const member *a, const member *b, const char *what, oddity odd)
{
    for (int r = 0; r < n; r++) {
        if (a[r].st != PS_OK || b[r].st != PS_OK) fail_msg("%s, oddity %d: %s%s", what, odd, a[r].error, b[r].error);
        if (a[r].seen != b[r].seen) fail_msg("%s, oddity %d, rank %d: other parameters are seen", what, odd, r);
        assert_memory_equal(a[r].values, b[r].values, sizeof a[r].values);
    }
}

static void test_same_bits(void **state)
{
    (void)state;
    static const char *const formats[] = {"", "bf16.enabled=true ", "client.opts.with_mem_saving_comm=true "};
    static const char *const budgets[] = {ROOMY, TIGHT, TIGHTEST};
    member at_once[RANKS_MAX], ahead[RANKS_MAX];
    for (size_t f = 0; f < PS_ARRAY_LEN(formats); f++)
        for (oddity odd = NOTHING; odd < ODDITIES; odd++) {
            const int n = 2 + (int)((f + (size_t)odd) % 2);
            char changes[256];
            snprintf(changes, sizeof changes, AT_ONCE ROOMY "%s", formats[f]);
            run(n, changes, odd, -1, 0, at_once);
            assert_int_equal(at_once[0].n_ahead, 0);
            /* of module WITHOUT_USE, where its group is gathered for the next one later */
            if (odd == NOTHING) assert_int_equal(at_once[0].n_beside_at_end > 0, n == 2 && f < 2);
            for (size_t b = 0; b < PS_ARRAY_LEN(budgets); b++) {
                snprintf(changes, sizeof changes, "%s%s", budgets[b], formats[f]);
                run(n, changes, odd, -1, 0, ahead);
                expect_same(n, at_once, ahead, changes, odd);
                if (b == 0 && ahead[0].n_ahead_at_end < ahead[0].n_at_end - 1)
                    fail_msg("%s, oddity %d: %d of %d groups were gathered ahead", changes, odd,
                             (int)ahead[0].n_ahead_at_end, (int)ahead[0].n_at_end);
                if (b == 0 && odd == NOTHING)
                    assert_int_equal(ahead[0].n_beside_at_end, 0); /* its group came with it */
            }
            if (f > 0) continue;
            run(n, ROOMY, odd, -1, late_ns, ahead);
            expect_same(n, at_once, ahead, "late messages", odd);
        }
}

/* On one rank activations take so much that no other group can come: it begins with that when it has to. */
static void test_one_rank_has_less_room(void **state)
{
    (void)state;
    static const char *const budgets[] = {TIGHT, TIGHTEST, ROOMY "memory.device=420KB "};
    member at_once[RANKS_MAX], ahead[RANKS_MAX];
    run(2, ROOMY AT_ONCE, NOTHING, -1, 0, at_once);
    for (size_t b = 0; b < PS_ARRAY_LEN(budgets); b++)
        for (int rank = 0; rank < 2; rank++) {
            run(2, budgets[b], MORE_MEMORY, rank, 0, ahead);
            expect_same(2, at_once, ahead, budgets[b], MORE_MEMORY);
        }
}

/* All ranks have begun what comes next; one of them does not use it. */
static void test_one_rank_leaves(void **state)
{
    (void)state;
    static const oddity cases[] = {OTHER_ORDER, EVALUATION, READ, LEFT_OUT};
    static const int64_t delays[] = {0, late_ns};
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++)
        for (int k = 0; k < 4; k++) {
            const int rank = k / 2, d = k % 2;
            member m[RANKS_MAX];
            run(2, ROOMY, cases[i], rank, delays[d], m);
            for (int r = 0; r < 2; r++)
                if (m[r].st != PS_EINVAL || strstr(m[r].error, "ranks have gone different ways: ") == NULL)
                    fail_msg("oddity %d of rank %d, rank %d: %d, %s", cases[i], rank, r, (int)m[r].st, m[r].error);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_same_bits, note_live),
        cmocka_unit_test_setup(test_one_rank_has_less_room, note_live),
        cmocka_unit_test_setup(test_one_rank_leaves, note_live),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
