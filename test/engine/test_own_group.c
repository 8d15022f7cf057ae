/* Ranks over a collective of the program's own (ps_process_group), here among threads that meet in a hall: the same bits as
 * over the library's messages, whatever the order in which ranks begin theirs; messages larger than a round; and what
 * becomes of a rank that fails, and of a collective that does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>

#include "base/fault.h"
#include "comm/comm.h"
#include "comm/hall.h"
#include "comm/rounds.h"
#include "engine/engine_fixture.h"

enum { RANKS = 3, STEPS = 3 };

/* ---- ranks ---- */

typedef struct member {
    visitor visitor;
    ps_comm *comm; /* NULL: meets by its collective */
    const char *changes[4];
    bool gives_up;
    ps_status st;
    ps_failure failure;
    char error[512];
    uint64_t hash;
    pthread_t thread;
} member;

static ps_status train_member(member *m, ps_comm *comm, ps_config *c)
{
    ps_engine *e = NULL;
    const ps_engine_options options = {.struct_size = sizeof options, .comm = comm, .purpose = PS_FOR_TRAINING};
    PS_TRY(ps_initialize_engine_with(ps_model_from_config, c, c, &options, &e));
    int32_t tokens[64], targets[64];
    int64_t B, T, K;
    ps_status st = PS_OK;
    ps_engine_get_shape(e, &B, &T, &K, NULL);
    for (int64_t i = 0; i < STEPS * K && st == PS_OK; i++) {
        fill_batch(tokens, targets, B, T, TINY_VOCABULARY, i * RANKS + ps_comm_rank(comm));
        st = ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, NULL);
        if (st == PS_OK) st = ps_backward(e);
        if (st == PS_OK) st = ps_step(e);
        if (st == PS_OK && m->gives_up) {
            ps_comm_fail(comm, "had enough");
            st = PS_FAIL(PS_ESTATE, "had enough");
        }
    }
    if (st == PS_OK) st = ps_engine_get_weights_xxh3(e, &m->hash);
    if (st != PS_OK) snprintf(m->error, sizeof m->error, "%s", ps_last_error());
    ps_get_last_failure(&m->failure);
    ps_engine_destroy(e);
    return st;
}

static void *member_main(void *arg)
{
    member *m = arg;
    ps_config *c = TINY(m->changes[0], m->changes[1], m->changes[2], m->changes[3], "train.threads=1",
                        "memory.host=8MB", "comm.timeout_s=20");
    ps_comm *comm = m->comm;
    const ps_process_group own = group_of(&m->visitor);
    m->failure.struct_size = sizeof m->failure;
    m->st = comm == NULL ? ps_comm_meet_by_process_group(c, &own, &comm) : PS_OK;
    if (m->st == PS_OK) m->st = train_member(m, comm, c);
    if (m->st != PS_OK && m->error[0] == '\0') snprintf(m->error, sizeof m->error, "%s", ps_last_error());
    ps_comm_close(comm);
    ps_config_destroy(c);
    return NULL;
}

static void run_members(member *m)
{
    for (int r = 0; r < RANKS; r++) assert_int_equal(pthread_create(&m[r].thread, NULL, member_main, &m[r]), 0);
    for (int r = 0; r < RANKS; r++) pthread_join(m[r].thread, NULL);
}

#define NOTHING "train.seed=7"

static const char *const ways[][4] = {
    {NOTHING, NOTHING, NOTHING, NOTHING},
    {"memory.device=900KB", "memory.disk=20MB", "default_chunk_size=4096", "gradient_accumulation_steps=2"},
    {"memory.device=900KB", "client.opts.with_mem_saving_comm=true", "bf16.enabled=true", "default_chunk_size=2048"}};

static void test_same_bits(void **state)
{
    (void)state;
    for (size_t w = 0; w < PS_ARRAY_LEN(ways); w++) {
        hall h;
        member own[RANKS], library[RANKS];
        ps_comm *comms[RANKS];
        hall_init(&h, RANKS, 0);
        const ps_comm_options o = {.timeout_s = 30, .staging_bytes = 1 << 16};
        assert_int_equal(ps_comm_open_threads(&o, RANKS, comms), PS_OK);
        for (int r = 0; r < RANKS; r++) {
            own[r] = (member){.visitor = {.hall = &h, .rank = r}};
            memcpy(own[r].changes, ways[w], sizeof own[r].changes);
            library[r] = own[r];
            library[r].comm = comms[r];
        }
        run_members(own);
        run_members(library);
        for (int r = 0; r < RANKS; r++) {
            assert_string_equal(own[r].error, "");
            assert_string_equal(library[r].error, "");
            assert_true(own[r].hash == library[r].hash && own[r].hash != 0);
            assert_int_equal(own[r].visitor.n_closed, 1);
            assert_int_equal(own[r].visitor.was_orderly, 1);
            assert_int_equal(own[r].visitor.n_calls, own[0].visitor.n_calls);
            assert_true(own[r].visitor.n_bytes > 100000);
        }
        hall_deinit(&h);
    }
}

/* Who gives up is named to all, and nobody is left in a round. */
static void test_a_rank_fails(void **state)
{
    (void)state;
    hall h;
    member m[RANKS];
    hall_init(&h, RANKS, 0);
    for (int r = 0; r < RANKS; r++) {
        m[r] = (member){.visitor = {.hall = &h, .rank = r}, .gives_up = r == 1};
        memcpy(m[r].changes, ways[0], sizeof m[r].changes);
    }
    run_members(m);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(m[r].st, r == 1 ? PS_ESTATE : PS_ECOMM);
        assert_int_equal(m[r].visitor.n_closed, 1);
        assert_int_equal(m[r].visitor.was_orderly, 0);
        assert_non_null(strstr(m[r].error, "had enough"));
        if (r != 1) assert_int_equal(m[r].failure.rank, 1);
    }
    hall_deinit(&h);
}

static void test_a_collective_fails(void **state)
{
    (void)state;
    const int at[] = {1, 2, 3, 7, 30, 61};
    for (size_t k = 0; k < PS_ARRAY_LEN(at); k++) {
        hall h;
        member m[RANKS];
        hall_init(&h, RANKS, 0);
        for (int r = 0; r < RANKS; r++) {
            m[r] = (member){.visitor = {.hall = &h, .rank = r, .fails_at = r == 2 ? at[k] : 0}};
            memcpy(m[r].changes, ways[0], sizeof m[r].changes);
        }
        run_members(m);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(m[r].st, PS_ECOMM);
            assert_int_equal(m[r].visitor.n_closed, 1);
            assert_int_equal(m[r].visitor.was_orderly, 0);
            if (strstr(m[r].error, r == 2 ? "the roof falls in" : "all_to_all failed with 8") == NULL)
                fail_msg("call %d, rank %d: %s", at[k], r, m[r].error);
        }
        hall_deinit(&h);
    }
}

/* ---- messages, without a communicator ---- */

enum { N_LETTERS = 9 };

static const int64_t letter_bytes[N_LETTERS] = {1, 16, 4095, 5000000, 4096, 7, 1398085, 100000, 9000001};

static char byte_of(int from, int to, int letter, int64_t i)
{
    return (char)(from * 31 + to * 17 + letter * 7 + i % 251);
}

/* All letters to all, of both channels: begun in another order on each rank, and asked for from the last to the first. */
static void *exchange_main(void *arg)
{
    visitor *v = arg;
    ps_messages m;
    const ps_process_group own = group_of(v);
    char error[PS_MESSAGE_ERROR_BYTES] = "", *data[2][RANKS][N_LETTERS];
    uint64_t request[2][RANKS][N_LETTERS];
    bool is_done[2][RANKS][N_LETTERS] = {0};
    int n_left = 0;
    v->n_bytes = -1;
    if (ps_rounds_make(&own, &m) != PS_OK) return NULL;
    for (int turn = 0; turn < 2; turn++) {
        const bool sends = (turn == 0) == (v->rank != 1);
        for (int k = 0; k < RANKS; k++) {
            const int peer = (v->rank + k) % RANKS;
            for (int i = 0; i < N_LETTERS && peer != v->rank; i++) {
                char *d = data[sends][peer][i] = malloc((size_t)letter_bytes[i]);
                for (int64_t b = 0; sends && b < letter_bytes[i]; b++) d[b] = byte_of(v->rank, peer, i, b);
                const int rc =
                    sends ? m.send_begin(m.user, peer, i % 2, d, letter_bytes[i], &request[sends][peer][i], error)
                          : m.receive_begin(m.user, peer, i % 2, d, letter_bytes[i], &request[sends][peer][i], error);
                if (rc != 0) return NULL;
                n_left++;
            }
        }
    }
    int n_wrong = 0;
    while (n_left > 0)
        for (int s = 0; s < 2; s++)
            for (int peer = 0; peer < RANKS; peer++)
                for (int i = N_LETTERS - 1; i >= 0 && peer != v->rank; i--) {
                    int32_t done = 0;
                    if (is_done[s][peer][i]) continue;
                    if (m.test(m.user, &request[s][peer][i], s ? 0 : letter_bytes[i], &done, error) != 0) return NULL;
                    if (!done) continue;
                    is_done[s][peer][i] = true;
                    n_left--;
                    for (int64_t b = 0; !s && b < letter_bytes[i]; b++)
                        n_wrong += data[s][peer][i][b] != byte_of(peer, v->rank, i, b);
                    free(data[s][peer][i]);
                }
    m.close(m.user, true);
    v->n_bytes = n_wrong;
    return NULL;
}

static void test_messages(void **state)
{
    (void)state;
    hall h;
    visitor v[RANKS];
    pthread_t threads[RANKS];
    const int64_t live = ps_mem_live_bytes();
    hall_init(&h, RANKS, 0);
    for (int r = 0; r < RANKS; r++) v[r] = (visitor){.hall = &h, .rank = r};
    for (int r = 0; r < RANKS; r++) assert_int_equal(pthread_create(&threads[r], NULL, exchange_main, &v[r]), 0);
    for (int r = 0; r < RANKS; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(v[r].n_bytes, 0); /* that were wrong */
        assert_int_equal(v[r].was_orderly, 1);
        assert_int_equal(v[r].n_calls, v[0].n_calls);
    }
    assert_int_equal(ps_mem_live_bytes(), live);
    hall_deinit(&h);
}

/* Calls that do not meet are found: the sizes of another call, and parts that are not what was sent. */
typedef struct liar {
    int n_calls, n_closed;
    int64_t part_bytes;
    unsigned char filling;
} liar;

static int lie(void *user, const void *send, const int64_t *send_bytes, void *receive, const int64_t *receive_bytes,
               char *error)
{
    liar *l = user;
    const int32_t flags[2] = {1, 1};
    (void)send, (void)send_bytes, (void)error;
    memset(receive, l->filling, (size_t)receive_bytes[0]);
    if (l->n_calls++ > 0) return 0;
    assert_int_equal(receive_bytes[0], sizeof l->part_bytes + sizeof flags);
    memcpy(receive, &l->part_bytes, sizeof l->part_bytes);
    memcpy((char *)receive + sizeof l->part_bytes, flags, sizeof flags);
    return 0;
}

static void close_liar(void *user, int32_t is_orderly)
{
    liar *l = user;
    assert_int_equal(is_orderly, 0);
    l->n_closed++;
}

static void test_lies(void **state)
{
    (void)state;
    static const struct {
        int64_t part_bytes;
        unsigned char filling;
        const char *want;
    } cases[] = {{-1, 0, "calls do not meet"},         {(4 << 20) + 1, 0, "calls do not meet"},
                 {15, 0, "within the head"},           {16, 0, "begins with no message"},
                 {64, 0xFF, "begins with no message"}, {64, 0x7F, "begins with no message"}};
    const int64_t live = ps_mem_live_bytes();
    for (size_t k = 0; k < PS_ARRAY_LEN(cases); k++) {
        liar l = {.part_bytes = cases[k].part_bytes, .filling = cases[k].filling};
        ps_messages m;
        const ps_process_group c = {
            .struct_size = sizeof c, .user = &l, .size = 1, .all_to_all = lie, .close = close_liar};
        char error[PS_MESSAGE_ERROR_BYTES] = "", letter[8];
        uint64_t request;
        int32_t is_done;
        assert_ok(ps_rounds_make(&c, &m));
        assert_int_equal(m.receive_begin(m.user, 0, 0, letter, sizeof letter, &request, error), 0);
        assert_int_not_equal(m.test(m.user, &request, sizeof letter, &is_done, error), 0);
        if (strstr(error, cases[k].want) == NULL) fail_msg("case %zu: %s", k, error);
        m.close(m.user, true);
        assert_int_equal(l.n_closed, 1);
    }
    assert_int_equal(ps_mem_live_bytes(), live);
}

static void test_groups_that_are_none(void **state)
{
    (void)state;
    hall h;
    hall_init(&h, RANKS, 0);
    for (int k = 0; k < 7; k++) {
        visitor v = {.hall = &h};
        ps_comm *comm = NULL;
        ps_process_group c = group_of(&v);
        if (k == 0) c.rank = RANKS;
        if (k == 1) c.rank = -1;
        if (k == 2) c.size = 0;
        if (k == 3) c.all_to_all = NULL;
        if (k == 4) c.trouble = "the hall is shut";
        if (k == 5) c.close = NULL;
        if (k == 6) c.struct_size = 0;
        assert_int_equal(ps_comm_meet_by_process_group(NULL, &c, &comm), PS_EINVAL);
        assert_null(comm);
        assert_int_equal(v.n_closed, k < 5);
        if (k == 4) assert_non_null(strstr(ps_last_error(), "the hall is shut"));
    }
    hall_deinit(&h);
}

/* A group of one; and whatever memory it lacks, it is closed once. */
static void test_one_rank(void **state)
{
    (void)state;
    ps_config *c = TINY("train.threads=1");
    const int64_t live = ps_mem_live_bytes();
    bool done = false;
    for (long n = 0; !done; n++) {
        hall h;
        hall_init(&h, RANKS, 0);
        h.size = 1;
        visitor v = {.hall = &h};
        ps_comm *comm = NULL;
        double sum = 3;
        const ps_process_group own = group_of(&v);
        ps_fault_arm(PS_FAULT_ALLOC, n, false);
        const ps_status st = ps_comm_meet_by_process_group(c, &own, &comm);
        done = !ps_fault_has_struck(PS_FAULT_ALLOC);
        ps_fault_arm(PS_FAULT_ALLOC, -1, false);
        assert_true(done ? st == PS_OK : st != PS_OK && comm == NULL);
        if (done) assert_ok(ps_comm_all_reduce(comm, &sum, 1, PS_COMM_SUM));
        assert_true(sum == 3);
        ps_comm_close(comm);
        assert_int_equal(v.n_closed, 1);
        assert_int_equal(ps_mem_live_bytes(), live);
        hall_deinit(&h);
    }
    ps_config_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_lies),
        cmocka_unit_test(test_groups_that_are_none),
        cmocka_unit_test(test_one_rank),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_a_rank_fails),
        cmocka_unit_test(test_a_collective_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
