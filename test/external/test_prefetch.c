/* test_prefetch.c - groups that are prefetched, as the recorded step has them: the bits are those of a program whose
 * groups are gathered when they are asked for, also where a step goes another way, on all ranks; where one rank does,
 * all get the error. Over messages that take no time, and ones that take longer than what a step computes.
 *
 *   PS_TEST_SEED   of the first random program; 1
 *   PS_TEST_SEEDS  how many times as many of them; 1 */
#include <pthread.h>
#include <unistd.h>
#include <xxhash.h>

#include "chunk/comm/comm.h"
#include "comm/fake_process_group.h"
#include "external/client_fixture.h"

/* ---- programs ---- */

enum { RANKS_MAX = 3, TENSORS = 14, LARGEST = 9000, ACTS_MAX = 128, STEPS = 7, WHOLE = 8 };

/* A run of three chunks, many in one chunk, exactly one. */
static const int64_t sizes[TENSORS] = {4000, 2000, 2000, 4000, 9000, 4000, 1000,
                                       3000, 4096, 500,  3500, 4000, 2500, 4000};

typedef enum act_kind {
    FORWARD, /* a moment of that pass begins */
    BACKWARD,
    OUTSIDE_STEP,
    USE,          /* the parameter is read in its place */
    GRADIENT,     /* follows from the parameter, if that was used right before */
    READ,         /* by ps_client_read_state */
    WRITE,        /* by ps_client_write_state */
    WRITE_IN_USE, /* by the program, in its place */
    HOLD,         /* a place that can be written to, from now on */
    WRITE_HELD,
    WRITE_FP32, /* the fp32 value, in its place */
    LET_GO,
    DROP,    /* its gradient; of tensor -1, all */
    BARRIER, /* a barrier of the program's own */
    PAUSE,
    LEAVE,
} act_kind;

typedef struct act {
    act_kind kind;
    int32_t tensor;
    unsigned ranks;           /* that do it, as bits; 0: all */
    int64_t bytes[RANKS_MAX]; /* of a moment: what the framework has in use, on each rank */
} act;

typedef struct course {
    int n;
    act acts[ACTS_MAX];
} course;

/* What one rank does. */
typedef struct program {
    course steps[STEPS];
} program;

static void insert(course *c, int at, act a)
{
    assert_true(c->n < ACTS_MAX && at <= c->n);
    memmove(c->acts + at + 1, c->acts + at, (size_t)(c->n++ - at) * sizeof a);
    c->acts[at] = a;
}

static void add(course *c, act_kind kind, int32_t tensor)
{
    insert(c, c->n, (act){.kind = kind, .tensor = tensor});
}

static void take_out(course *c, int at)
{
    memmove(c->acts + at, c->acts + at + 1, (size_t)(--c->n - at) * sizeof *c->acts);
}

/* ---- ranks ---- */

typedef struct member {
    ps_comm *comm; /* NULL: by the fake's process group */
    fake_rank fake;
    fake_process_group *barrier;
    const program *program;
    const char *changes;
    int share; /* of what acts say, in parts of WHOLE, is what the framework has in use */
    int rank;
    ps_client *client;
    ps_client_step_info steps[STEPS];
    ps_client_place held;
    int32_t gradient_of; /* -1: of no tensor that was used right before */
    float gradient[LARGEST], values[LARGEST];
    uint64_t seen; /* hash of parameters as they were used, and at the end */
    ps_status st;
    char error[1024];
    pthread_t thread;
} member;

static void see(member *m, const void *bytes, int64_t n)
{
    m->seen = XXH3_64bits_withSeed(bytes, (size_t)n, m->seen);
}

static ps_status use(member *m, int32_t t)
{
    char raw[LARGEST * sizeof(float)];
    ps_client_place place = {.struct_size = sizeof place};
    PS_TRY(ps_client_pin(m->client, t, PS_CLIENT_PARAM, PS_CLIENT_READ, &place));
    get_bytes(m->client, &place, 0, raw, sizes[t] * (int64_t)ps_dtype_bytes(place.dtype));
    ps_client_unpin(m->client, t, PS_CLIENT_PARAM);
    see(m, raw, sizes[t] * (int64_t)ps_dtype_bytes(place.dtype));
    ps_to_floats(place.dtype, raw, 0, sizes[t], m->gradient);
    for (int64_t i = 0; i < sizes[t]; i++) m->gradient[i] = m->gradient[i] * 0.5f + 0.001f * (float)(i % 7 + m->rank);
    m->gradient_of = t;
    return PS_OK;
}

static ps_status give(member *m, int32_t t)
{
    if (m->gradient_of != t)
        for (int64_t i = 0; i < sizes[t]; i++) m->gradient[i] = 0.01f * (float)(i % 5 - 2 * m->rank);
    if (!OVER_DISCRETE) return ps_client_give_gradient(m->client, t, m->gradient, PS_DTYPE_F32, 0);
    give_gradient(m->client, t, m->gradient, sizes[t], 0);
    return PS_OK;
}

static ps_status write_in_use(member *m, int32_t t)
{
    ps_client_place place = {.struct_size = sizeof place};
    PS_TRY(ps_client_pin(m->client, t, PS_CLIENT_PARAM, PS_CLIENT_WRITE, &place));
    for (int i = 0; i < 3; i++) put_value(m->client, &place, i, 0.25f);
    ps_client_unpin(m->client, t, PS_CLIENT_PARAM);
    return PS_OK;
}

static ps_status write_fp32(member *m, int32_t t)
{
    ps_client_place place = {.struct_size = sizeof place};
    PS_TRY(ps_client_pin(m->client, t, PS_CLIENT_MASTER, PS_CLIENT_WRITE, &place));
    put_value(m->client, &place, 0, 0.75f);
    ps_client_unpin(m->client, t, PS_CLIENT_MASTER);
    return PS_OK;
}

static ps_status begin_moment(member *m, const act *a)
{
    static const ps_client_phase phases[] = {
        [FORWARD] = PS_CLIENT_FORWARD, [BACKWARD] = PS_CLIENT_BACKWARD, [OUTSIDE_STEP] = PS_CLIENT_OUTSIDE_STEP};
    char label[32];
    snprintf(label, sizeof label, "module %d", (int)a->tensor);
    return ps_client_moment(m->client, phases[a->kind], label, a->bytes[m->rank] * m->share / WHOLE);
}

/* All come, or the wait times out. */
static ps_status barrier_all(member *m)
{
    return fake_barrier_within(m->barrier, 20) ? PS_OK : PS_FAIL(PS_ESTATE, "a wait in the barrier timed out");
}

static ps_status do_act(member *m, const act *a)
{
    static const float some[3] = {1, 1, 1};
    const int32_t t = a->tensor;
    switch (a->kind) {
    case FORWARD:
    case BACKWARD:
    case OUTSIDE_STEP: return begin_moment(m, a);
    case USE: return use(m, t);
    case GRADIENT: return give(m, t);
    case READ: PS_TRY(ps_client_read_state(m->client, t, NULL, 0, 3, m->values)); break;
    case WRITE: return ps_client_write_state(m->client, t, NULL, 0, 3, some);
    case WRITE_IN_USE: return write_in_use(m, t);
    case HOLD: return ps_client_pin(m->client, t, PS_CLIENT_PARAM, PS_CLIENT_WRITE, &m->held);
    case WRITE_HELD: put_value(m->client, &m->held, a->bytes[0], 0.5f); return PS_OK;
    case WRITE_FP32: return write_fp32(m, t);
    case LET_GO: ps_client_unpin(m->client, t, PS_CLIENT_PARAM); return PS_OK;
    case DROP: return ps_client_drop_gradients(m->client, t);
    case BARRIER: return barrier_all(m);
    case PAUSE: usleep(20000); return PS_OK;
    case LEAVE: return PS_FAIL(PS_ESTATE, "that was all");
    }
    see(m, m->values, 3 * sizeof *m->values);
    return PS_OK;
}

/* Which act failed; number n: the step itself. */
static ps_status told(const member *m, int step, int i, ps_status st)
{
    const course *c = &m->program->steps[step];
    const act *a = &c->acts[i];
    if (st == PS_OK) return PS_OK;
    if (i == c->n) return PS_FAIL(st, "step %d: %s", step, ps_last_error());
    return PS_FAIL(st, "step %d, act %d of %d (%d, tensor %d): %s", step, i, c->n, (int)a->kind, (int)a->tensor,
                   ps_last_error());
}

static ps_status train(member *m)
{
    for (int s = 0; s < STEPS; s++) {
        const course *c = &m->program->steps[s];
        for (int i = 0; i < c->n; i++) {
            if (c->acts[i].kind != GRADIENT && c->acts[i].kind != USE) m->gradient_of = -1;
            if (c->acts[i].ranks == 0 || (c->acts[i].ranks >> m->rank & 1) != 0)
                PS_TRY(told(m, s, i, do_act(m, &c->acts[i])));
        }
        m->steps[s].struct_size = sizeof m->steps[s];
        PS_TRY(told(m, s, c->n, ps_client_step(m->client, &m->steps[s])));
    }
    for (int32_t t = 0; t < TENSORS; t++) {
        PS_TRY(ps_client_read_state(m->client, t, NULL, 0, sizes[t], m->values));
        see(m, m->values, sizes[t] * (int64_t)sizeof *m->values);
    }
    return PS_OK;
}

static ps_status live(member *m)
{
    int32_t number;
    for (int32_t t = 0; t < TENSORS; t++) {
        char name[32];
        snprintf(name, sizeof name, "module.%d", (int)t);
        PS_TRY(add_tensor(m->client, name, sizes[t], PS_DTYPE_F32, 0, 0, &number));
    }
    if (OVER_DISCRETE) PS_TRY(add_tensor(m->client, "gradients", LARGEST, PS_DTYPE_F32, 0, 1, &gradients_at));
    PS_TRY(ps_client_begin(m->client));
    return train(m);
}

static void *member_main(void *arg)
{
    member *m = arg;
    const ps_process_group group = process_group_of(&m->fake);
    ps_config *config = config_of("comm.staging=65536");
    if (m->comm == NULL) assert_ok(ps_comm_init_process_group(config, &group, &m->comm));
    ps_config_destroy(config);
    m->client = client_of_rank(m->changes, m->comm);
    m->st = live(m);
    snprintf(m->error, sizeof m->error, "%s", m->st == PS_OK ? "" : ps_last_error());
    ps_client_destroy(m->client);
    ps_comm_close(m->comm);
    return NULL;
}

/* What the last runs have come to. */
static member at_once[RANKS_MAX], prefetching[RANKS_MAX];

/* delay_ns: that messages take; 0: threads' own, which take none. */
static void run_each(int n, const char *changes, const program *const of[], int share, int64_t delay_ns,
                     member m[RANKS_MAX])
{
    fake_process_group g, barrier;
    ps_comm *comms[RANKS_MAX] = {NULL};
    const ps_comm_options o = {.timeout_s = 30, .staging_bytes = 1 << 16};
    fake_process_group_init(&g, n, delay_ns);
    fake_process_group_init(&barrier, n, 0);
    if (delay_ns == 0) assert_ok(ps_comm_open_threads(&o, n, comms));
    for (int r = 0; r < n; r++) {
        m[r] = (member){.comm = comms[r],
                        .fake = {.group = &g, .rank = r},
                        .barrier = &barrier,
                        .program = of[r],
                        .share = share,
                        .rank = r,
                        .changes = changes,
                        .held = {.struct_size = sizeof m[r].held}};
        assert_int_equal(pthread_create(&m[r].thread, NULL, member_main, &m[r]), 0);
    }
    for (int r = 0; r < n; r++) assert_int_equal(pthread_join(m[r].thread, NULL), 0);
    fake_process_group_deinit(&g);
    fake_process_group_deinit(&barrier);
    expect_nothing_left();
}

static void run(int n, const char *changes, const program *p, int64_t delay_ns, member m[RANKS_MAX])
{
    run_each(n, changes, (const program *const[]){p, p, p}, WHOLE, delay_ns, m);
}

/* ---- tests ---- */

enum { late_ns = 500000 };

#define ROOMY "memory.device=4MB memory.host=300KB memory.disk=0 "
#define TIGHT "memory.device=230KB memory.host=100KB memory.disk=4MB "
#define AT_ONCE "memory.prefetch=0 "

static bool has_failed(int n, const member *m)
{
    for (int r = 0; r < n; r++)
        if (m[r].st != PS_OK) return true;
    return false;
}

static void expect_well(int n, const member *m, const char *what)
{
    for (int r = 0; r < n; r++)
        if (m[r].st != PS_OK) fail_msg("%s, rank %d: %s", what, r, m[r].error);
}

/* Each rank sees the same as at once, and all gather the same. */
static void expect_same(int n, const char *what)
{
    expect_well(n, prefetching, what);
    for (int r = 0; r < n; r++) {
        if (at_once[r].seen != prefetching[r].seen) fail_msg("%s, rank %d: other values", what, r);
        for (int s = 0; s < STEPS; s++) {
            const ps_client_step_info *i = &prefetching[r].steps[s], *first = &prefetching[0].steps[s];
            assert_true(i->n_gathered_ahead <= i->n_gathered);
            assert_int_equal(at_once[r].steps[s].n_gathered_ahead, 0);
            if (i->n_gathered != first->n_gathered || i->n_gathered_ahead != first->n_gathered_ahead)
                fail_msg("%s, step %d, rank %d: gathers %d groups, prefetches %d; rank 0 %d, %d", what, s, r,
                         (int)i->n_gathered, (int)i->n_gathered_ahead, (int)first->n_gathered,
                         (int)first->n_gathered_ahead);
        }
    }
}

/* ---- steps as recorded ---- */

enum { WITHOUT_USE = 2, ODD_STEP = 4 };

/* Each module in turn, and back. The gradient of one, the last of a group that is not there, comes without its use. */
static program plain(void)
{
    program p;
    course *c = &p.steps[0];
    c->n = 0;
    for (int32_t t = 0; t < TENSORS; t++) {
        add(c, FORWARD, t);
        add(c, USE, t);
    }
    for (int32_t t = TENSORS - 1; t >= 0; t--) {
        add(c, BACKWARD, t);
        if (t != WITHOUT_USE) add(c, USE, t);
        add(c, GRADIENT, t);
    }
    for (int s = 1; s < STEPS; s++) p.steps[s] = *c;
    return p;
}

static int find(const course *c, act_kind kind, int32_t tensor)
{
    int i = 0;
    while (c->acts[i].kind != kind || c->acts[i].tensor != tensor) assert_true(++i < c->n);
    return i;
}

/* All groups but the first are prefetched, also before a gradient that would have to make way. */
static void test_recorded(void **state)
{
    (void)state;
    static const char *const formats[] = {"", "bf16.enabled=true ", "client.opts.with_mem_saving_comm=true "};
    const program p = plain();
    char changes[256];
    for (size_t f = 0; f < PS_ARRAY_LEN(formats); f++) {
        const int n = f == 1 ? 3 : 2;
        snprintf(changes, sizeof changes, AT_ONCE ROOMY "%s", formats[f]);
        run(n, changes, &p, 0, at_once);
        expect_well(n, at_once, changes);
        snprintf(changes, sizeof changes, ROOMY "%s", formats[f]);
        run(n, changes, &p, 0, prefetching);
        expect_same(n, changes);
        const ps_client_step_info *last = &prefetching[0].steps[STEPS - 1];
        assert_true(last->n_gathered > 5);
        assert_int_equal(last->n_gathered_ahead, last->n_gathered - (f == 2 ? 4 : 1)); /* three are one tensor's */
        assert_int_equal(last->n_separate, 0);
        if (n == 2) assert_true(at_once[0].steps[STEPS - 1].n_separate > 0);
    }
}

/* Where a rank has no room in a moment before a group is used, no rank begins with it. */
static void test_no_room_in_record(void **state)
{
    (void)state;
    program p = plain();
    for (int s = 0; s < STEPS; s++) {
        course *c = &p.steps[s];
        insert(c, find(c, USE, 3) + 1, (act){.kind = FORWARD, .tensor = 50, .bytes = {0, 200 << 10}});
    }
    run(2, ROOMY AT_ONCE, &p, 0, at_once);
    run(2, TIGHT, &p, 0, prefetching);
    expect_same(2, "no room on rank 1");
    const program other = plain();
    const int64_t n_ahead = prefetching[0].steps[STEPS - 1].n_gathered_ahead;
    run(2, TIGHT, &other, 0, prefetching);
    assert_true(n_ahead < prefetching[0].steps[STEPS - 1].n_gathered_ahead);
}

/* Ranks give two gradients in another order, before either group is complete: nothing is exchanged that differs, and
 * there is no order that all have recorded. */
static void test_other_records(void **state)
{
    (void)state;
    program p = plain();
    for (int s = 0; s < STEPS; s++) {
        course *c = &p.steps[s];
        const int at = find(c, BACKWARD, TENSORS - 1);
        take_out(c, find(c, GRADIENT, 5));
        take_out(c, find(c, GRADIENT, WITHOUT_USE));
        insert(c, at, (act){.kind = GRADIENT, .tensor = WITHOUT_USE, .ranks = 2});
        insert(c, at, (act){.kind = GRADIENT, .tensor = 5});
        insert(c, at, (act){.kind = GRADIENT, .tensor = WITHOUT_USE, .ranks = 1});
    }
    run(2, ROOMY AT_ONCE, &p, 0, at_once);
    run(2, ROOMY, &p, 0, prefetching);
    expect_same(2, "gradients in another order");
    assert_int_equal(prefetching[0].steps[STEPS - 1].n_gathered_ahead, 0);
}

/* ---- a step that goes another way ---- */

static void expect_same_as_at_once(const char *budget, const program *p, int64_t delay_ns)
{
    run(2, ROOMY AT_ONCE, p, 0, at_once);
    run(2, budget, p, delay_ns, prefetching);
    expect_same(2, budget);
}

/* Rank 1 has no room to begin with the next group, and rank 0, which has begun, runs out of it in the moment after
 * that; then all meet in a barrier of the program's own. No rank waits there for one that waits for a group. */
static void test_barrier(void **state)
{
    (void)state;
    program p = plain();
    course *c = &p.steps[ODD_STEP];
    const int at = find(c, FORWARD, 3);
    c->acts[at].bytes[1] = 180 << 10;
    insert(c, at + 2, (act){.kind = BARRIER});
    insert(c, at + 2, (act){.kind = FORWARD, .tensor = 50, .bytes = {200 << 10, 180 << 10}});
    expect_same_as_at_once(TIGHT, &p, 0);
    const ps_client_step_info *before = &prefetching[0].steps[ODD_STEP - 1], *odd = &prefetching[0].steps[ODD_STEP];
    assert_true(odd->n_gathered_ahead < before->n_gathered_ahead);
}

/* A prefetch is under way. It would be next to the three chunks of another tensor while a place is in use, or next to
 * what the framework takes: within the step, or aside. */
static void test_makes_way(void **state)
{
    (void)state;
    static const act_kind passes[] = {FORWARD, OUTSIDE_STEP};
    program p = plain();
    course *c = &p.steps[ODD_STEP];
    const int at = find(c, FORWARD, 5);
    c->acts[at].bytes[0] = c->acts[at].bytes[1] = 136 << 10;
    insert(c, at + 1, (act){.kind = LET_GO, .tensor = 5});
    insert(c, at + 1, (act){.kind = USE, .tensor = 4});
    insert(c, at + 1, (act){.kind = HOLD, .tensor = 5});
    expect_same_as_at_once(TIGHT, &p, 0);
    for (size_t i = 0; i < PS_ARRAY_LEN(passes); i++) {
        p = plain();
        insert(c, 2, (act){.kind = passes[i], .tensor = 50, .bytes = {205 << 10, 205 << 10}});
        expect_same_as_at_once(TIGHT, &p, 0);
    }
}

/* Group 0 is prefetched again, while it is one of the last that were gathered; that is complete, as the framework wants
 * its room, when two others are gathered. It is ready when it is used. */
static void test_comes_again(void **state)
{
    (void)state;
    program p = plain();
    for (int s = 0; s < STEPS; s++) {
        course *c = &p.steps[s];
        static const act again[] = {{.kind = FORWARD, .tensor = 50}, {.kind = USE, .tensor = 3},
                                    {.kind = USE, .tensor = 0},      {.kind = GRADIENT, .tensor = 1},
                                    {.kind = DROP, .tensor = 1},     {.kind = USE, .tensor = 3},
                                    {.kind = FORWARD, .tensor = 51}, {.kind = USE, .tensor = 8},
                                    {.kind = USE, .tensor = 11},     {.kind = USE, .tensor = 0}};
        for (int i = (int)PS_ARRAY_LEN(again) - 1; i >= 0; i--) {
            const bool is_odd_only = again[i].tensor == 8 || again[i].tensor == 11 || again[i].tensor == 51;
            if (s == ODD_STEP || !is_odd_only) insert(c, 0, again[i]);
        }
        if (s == ODD_STEP) c->acts[6].bytes[0] = c->acts[6].bytes[1] = 205 << 10;
        if (s == ODD_STEP) insert(c, 7, (act){.kind = FORWARD, .tensor = 52});
    }
    expect_same_as_at_once(TIGHT, &p, 0);
}

/* A place of the program's, which is written to while its group may be prefetched. */
static void test_held(void **state)
{
    (void)state;
    program p = plain();
    course *c = &p.steps[ODD_STEP];
    for (int k = 2 * TENSORS - 2, i = c->n - 1; i > 0; i--)
        if (c->acts[i].kind <= BACKWARD) insert(c, i + 1, (act){.kind = WRITE_HELD, .bytes = {k--}});
    /* rank 0, whose chunk it is, writes when the group would have come, rank 1 before */
    const int at = find(c, GRADIENT, 4);
    insert(c, at, (act){.kind = WRITE_HELD, .bytes = {60}});
    insert(c, at, (act){.kind = PAUSE, .ranks = 1});
    insert(c, 1, (act){.kind = HOLD});
    add(c, LET_GO, 0);
    expect_same_as_at_once(ROOMY, &p, 0);
    expect_same_as_at_once(ROOMY, &p, late_ns);
}

/* What was begun and is not used counts as gathered by no rank. */
static void test_dropped(void **state)
{
    (void)state;
    program p = plain();
    course *c = &p.steps[ODD_STEP];
    insert(c, find(c, USE, 0) + 1, (act){.kind = WRITE, .tensor = 3});
    expect_same_as_at_once(ROOMY, &p, 0);
    assert_int_equal(prefetching[0].steps[ODD_STEP].n_gathered_ahead, 0);
}

/* In the recorded step the group of a gradient is gathered with it. Where there is no room it is not gathered before it
 * is used, as at once. */
static void test_no_room_at_gradient(void **state)
{
    (void)state;
    program p = plain();
    course *c = &p.steps[ODD_STEP];
    for (int r = 0; r < 2; r++) {
        c->acts[find(c, BACKWARD, 4)].bytes[r] = c->acts[find(c, BACKWARD, 3)].bytes[r] = 160 << 10;
        c->acts[find(c, BACKWARD, WITHOUT_USE)].bytes[r] = 200 << 10;
    }
    expect_same_as_at_once(TIGHT, &p, 0);
    assert_true(prefetching[0].steps[ODD_STEP].n_separate > 0);
}

/* The recorded step uses a parameter after its gradient, this one does not: the gradient need not make way. */
static void test_no_use_after_gradient(void **state)
{
    (void)state;
    program p = plain();
    for (int s = 0; s < STEPS; s++) {
        add(&p.steps[s], BACKWARD, 50);
        add(&p.steps[s], USE, 8);
        if (s != ODD_STEP) add(&p.steps[s], USE, 0);
    }
    expect_same_as_at_once(ROOMY, &p, 0);
    for (int r = 0; r < 2; r++)
        assert_true(prefetching[r].steps[ODD_STEP].n_separate < at_once[r].steps[ODD_STEP].n_separate);
}

/* The program ends within a step, while a prefetch is under way. */
static void test_leaves(void **state)
{
    (void)state;
    program p = plain();
    course *c = &p.steps[ODD_STEP];
    insert(c, find(c, USE, 0) + 1, (act){.kind = LEAVE});
    run(2, ROOMY, &p, 4 * late_ns, prefetching);
    for (int r = 0; r < 2; r++)
        if (prefetching[r].st != PS_ESTATE || strstr(prefetching[r].error, "that was all") == NULL)
            fail_msg("%s", prefetching[r].error);
}

/* It ends where a group has been asked for that no host has waited for: queues of a device that works later have. */
static void test_leaves_at_use(void **state)
{
    (void)state;
    program p = plain();
    course *c = &p.steps[ODD_STEP];
    const int at = find(c, USE, 4);
    c->acts[at].kind = HOLD;
    insert(c, at + 1, (act){.kind = LEAVE});
    run(2, ROOMY AT_ONCE, &p, 4 * late_ns, prefetching);
    for (int r = 0; r < 2; r++)
        if (prefetching[r].st != PS_ESTATE || strstr(prefetching[r].error, "that was all") == NULL)
            fail_msg("%s", prefetching[r].error);
}

/* The owner writes an fp32 value between steps. After an evaluation other ranks have the parameter: it is refused. */
static void test_fp32_value_written(void **state)
{
    (void)state;
    for (int has_evaluation = 0; has_evaluation < 2; has_evaluation++) {
        program p = plain();
        course *c = &p.steps[ODD_STEP];
        insert(c, 0, (act){.kind = WRITE_FP32, .tensor = 0, .ranks = 1});
        if (has_evaluation) insert(c, 0, (act){.kind = USE, .tensor = 0});
        if (has_evaluation) insert(c, 0, (act){.kind = OUTSIDE_STEP, .tensor = 0});
        run(2, ROOMY, &p, 0, prefetching);
        if (!has_evaluation) expect_well(2, prefetching, "an fp32 value is written");
        if (has_evaluation)
            if (prefetching[0].st != PS_ESTATE || strstr(prefetching[0].error, "ps_client_write_state") == NULL)
                fail_msg("%s", prefetching[0].error);
    }
}

/* Without room below, what is prefetched must find it with all that cannot leave the device: the least that is enough
 * at once is enough with prefetching, too. */
static void test_full_tiers(void **state)
{
    (void)state;
    static const char *const below[] = {"memory.host=0 memory.disk=0", "memory.host=300KB memory.disk=0",
                                        "memory.host=0 memory.disk=100KB"};
    enum { MODULE = 7, PEAK = 200 << 10 };
    program p = plain();
    for (int s = 0; s < STEPS; s++)
        insert(&p.steps[s], find(&p.steps[s], USE, MODULE) + 1,
               (act){.kind = FORWARD, .tensor = 50, .bytes = {PEAK, PEAK}});
    for (size_t i = 0; i < PS_ARRAY_LEN(below); i++) {
        char changes[256];
        int too_little = 100, enough = 3000;
        while (enough - too_little > 1) {
            const int kb = (too_little + enough) / 2;
            snprintf(changes, sizeof changes, AT_ONCE "memory.device=%dKB %s", kb, below[i]);
            run(2, changes, &p, 0, at_once);
            *(has_failed(2, at_once) ? &too_little : &enough) = kb;
        }
        snprintf(changes, sizeof changes, "memory.device=%dKB %s", enough, below[i]);
        run(2, changes, &p, 0, prefetching);
        expect_well(2, prefetching, changes);
    }
}

/* All ranks have issued the next prefetch; one of them does not use it. */
static void test_one_rank_leaves(void **state)
{
    (void)state;
    enum { CASES = 4 };
    const program as_recorded = plain();
    for (int i = 0; i < CASES; i++)
        for (int k = 0; k < 4; k++) {
            program other = as_recorded;
            course *c = &other.steps[ODD_STEP];
            const program *of[] = {&as_recorded, &as_recorded};
            const int rank = k / 2, at = find(c, FORWARD, 4);
            if (i == 0) c->acts[at + 1].tensor = 10; /* another order */
            if (i == 1) insert(c, at, (act){.kind = OUTSIDE_STEP, .tensor = 1});
            if (i == 2) insert(c, at, (act){.kind = READ, .tensor = 8});
            if (i == 3) take_out(c, at + 1);
            of[rank] = &other;
            run_each(2, ROOMY, of, WHOLE, k % 2 == 0 ? 0 : late_ns, prefetching);
            for (int r = 0; r < 2; r++)
                if (prefetching[r].st != PS_EINVAL || strstr(prefetching[r].error, "ranks diverged: ") == NULL)
                    fail_msg("case %d of rank %d, rank %d: %d, %s", i, rank, r, (int)prefetching[r].st,
                             prefetching[r].error);
        }
}

/* ---- random programs ---- */

typedef struct dice {
    ps_rng_key key;
    uint64_t n;
} dice;

static int roll(dice *d, int sides)
{
    return (int)(ps_rng_u32(d->key, d->n++) % (uint32_t)sides);
}

/* What the framework has in use: on one rank, or the same on all. */
static void draw_bytes(dice *d, act *a, int most_kb)
{
    const int kb = roll(d, most_kb), rank = roll(d, 2 * RANKS_MAX);
    for (int r = 0; r < RANKS_MAX; r++)
        if (rank >= RANKS_MAX || rank == r) a->bytes[r] = (int64_t)kb << 10;
}

static void add_module(dice *d, course *c, act_kind pass, int32_t t)
{
    add(c, pass, t);
    draw_bytes(d, &c->acts[c->n - 1], roll(d, 4) == 0 ? 100 : 8);
    if (pass == FORWARD || roll(d, 6) > 0) add(c, USE, t);
    if (pass == FORWARD && roll(d, 8) == 0) add(c, USE, roll(d, TENSORS)); /* shared with another module */
    if (pass == BACKWARD && roll(d, 16) > 0) add(c, GRADIENT, t);
    if (pass == BACKWARD && roll(d, 12) == 0) add(c, USE, t);
    if (pass == BACKWARD && roll(d, 12) == 0) add(c, GRADIENT, t);
}

static void draw_base(dice *d, course *c)
{
    int32_t order[TENSORS];
    for (int32_t i = 0; i < TENSORS; i++) {
        const int k = roll(d, i + 1);
        order[i] = order[k];
        order[k] = i;
    }
    c->n = 0;
    for (int i = 0; i < TENSORS; i++) add_module(d, c, FORWARD, order[i]);
    for (int i = TENSORS - 1; i >= 0; i--) add_module(d, c, BACKWARD, order[i]);
}

/* The next act that begins a moment, from there on; the last act where there is none. */
static int next_moment(const course *c, int at)
{
    while (at < c->n - 1 && c->acts[at].kind > OUTSIDE_STEP) at++;
    return at;
}

/* A place is in use from there on; ranks let it go at times of their own, after which no rank writes to it. */
static void hold(dice *d, course *c, int at, int32_t t)
{
    int end = at;
    insert(c, at, (act){.kind = HOLD, .tensor = t});
    for (int i = roll(d, 4); i > 0; i--) {
        end += 1 + roll(d, c->n - end);
        insert(c, end, (act){.kind = WRITE_HELD, .tensor = t, .bytes = {i}});
    }
    for (int r = 0; r < RANKS_MAX; r++)
        insert(c, end + 1 + roll(d, c->n - end), (act){.kind = LET_GO, .tensor = t, .ranks = 1u << r});
}

/* Something is other than in the recorded step. */
static void deviate(dice *d, course *c)
{
    static const act_kind more[] = {GRADIENT, READ, WRITE, WRITE_IN_USE, USE, BARRIER, DROP};
    const int at = roll(d, c->n), end = at + 1 + roll(d, 12), what = roll(d, 13);
    const int32_t t = roll(d, TENSORS);
    if (what < (int)PS_ARRAY_LEN(more)) {
        insert(c, at, (act){.kind = more[what], .tensor = more[what] == DROP && roll(d, 2) == 0 ? -1 : t});
    } else if (what == 7) {
        hold(d, c, at, t);
    } else if (what == 8) {
        const int k = next_moment(c, at);
        insert(c, k, (act){.kind = USE, .tensor = t});
        insert(c, k, (act){.kind = OUTSIDE_STEP, .tensor = t});
        draw_bytes(d, &c->acts[k], 100);
    } else if (what == 9) { /* another order */
        for (int k = at; k < c->n; k++)
            if (c->acts[k].kind == USE) c->acts[k].tensor = (c->acts[k].tensor + t) % TENSORS;
    } else if (what == 10) {
        if (c->acts[at].kind > OUTSIDE_STEP) take_out(c, at);
    } else {
        for (int k = at; k < end && k < c->n; k++)
            if (c->acts[k].kind <= BACKWARD) draw_bytes(d, &c->acts[k], 110);
    }
}

static void draw(uint64_t seed, program *p)
{
    dice d = {.key = {.seed = seed, .stream = 9}};
    course base;
    draw_base(&d, &base);
    for (int s = 0; s < STEPS; s++) {
        p->steps[s] = base;
        for (int i = s < 2 || roll(&d, 2) == 0 ? 0 : 1 + roll(&d, 2); i > 0; i--) deviate(&d, &p->steps[s]);
    }
}

static uint64_t number_of(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

/* As much of the framework's as fits at once fits with prefetching, given the room of a group more: gradients make way
 * at other times, and updates may have to come where they could be deferred. */
static void expect_to_fit(int n, int device_kb, const char *others, const program *p, uint64_t seed)
{
    enum { MORE_KB = 50 };
    const program *const of[RANKS_MAX] = {p, p, p};
    static member tight[RANKS_MAX];
    char changes[256], what[320];
    int most = 0, too_much = 2 * WHOLE;
    snprintf(changes, sizeof changes, AT_ONCE "memory.device=%dKB %s", device_kb, others);
    while (too_much - most > 1) {
        const int share = (most + too_much) / 2;
        run_each(n, changes, of, share, 0, tight);
        *(has_failed(n, tight) ? &too_much : &most) = share;
    }
    snprintf(changes, sizeof changes, "memory.device=%dKB %s", device_kb + MORE_KB, others);
    snprintf(what, sizeof what, "seed %d, %d ranks, %s, share %d", (int)seed, n, changes, most);
    run_each(n, changes, of, most, seed % 2 == 0 ? late_ns : 0, prefetching);
    expect_same(n, what);
}

static void test_random_program(uint64_t seed)
{
    static const char *const formats[] = {"", "bf16.enabled=true ", "client.opts.with_mem_saving_comm=true "};
    static program p;
    const char *format = formats[seed % 3];
    const int n = 2 + (int)(seed / 3 % 2);
    char changes[256];
    draw(seed, &p);
    snprintf(changes, sizeof changes, AT_ONCE ROOMY "%s", format);
    run(n, changes, &p, 0, at_once);
    expect_well(n, at_once, changes);
    snprintf(changes, sizeof changes, ROOMY "%s", format);
    run(n, changes, &p, seed % 2 == 0 ? 0 : late_ns, prefetching);
    expect_same(n, changes);
    snprintf(changes, sizeof changes, "memory.host=100KB memory.disk=4MB %s", format);
    expect_to_fit(n, 230, changes, &p, seed);
    snprintf(changes, sizeof changes, "memory.host=0 memory.disk=4MB %s", format);
    expect_to_fit(n, 190, changes, &p, seed);
}

static void test_random_programs(void **state)
{
    enum { SEEDS = 6 }; /* each format, with two and three ranks */
    (void)state;
    const uint64_t first = number_of("PS_TEST_SEED", 1), n = SEEDS * number_of("PS_TEST_SEEDS", 1);
    for (uint64_t seed = first; seed < first + n; seed++) test_random_program(seed);
}

int main(void)
{
    const struct CMUnitTest everywhere[] = {
        cmocka_unit_test_setup(test_recorded, note_live),
        cmocka_unit_test_setup(test_other_records, note_live),
        cmocka_unit_test_setup(test_held, note_live),
        cmocka_unit_test_setup(test_dropped, note_live),
        cmocka_unit_test_setup(test_no_use_after_gradient, note_live),
        cmocka_unit_test_setup(test_leaves, note_live),
        cmocka_unit_test_setup(test_leaves_at_use, note_live),
        cmocka_unit_test_setup(test_fp32_value_written, note_live),
        cmocka_unit_test_setup(test_one_rank_leaves, note_live),
    };
    /* with budgets that only RAM is counted by: a device of its own needs room for what goes through the host */
    const struct CMUnitTest on_ram[] = {
        cmocka_unit_test_setup(test_no_room_in_record, note_live),
        cmocka_unit_test_setup(test_barrier, note_live),
        cmocka_unit_test_setup(test_makes_way, note_live),
        cmocka_unit_test_setup(test_comes_again, note_live),
        cmocka_unit_test_setup(test_no_room_at_gradient, note_live),
        cmocka_unit_test_setup(test_full_tiers, note_live),
        cmocka_unit_test_setup(test_random_programs, note_live),
    };
    const int n_failed = RUN_ON_BACKENDS_IN(everywhere, make_folder, remove_folder);
    return OVER_DISCRETE ? n_failed : n_failed + cmocka_run_group_tests(on_ram, make_folder, remove_folder);
}
