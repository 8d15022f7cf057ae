/* Ranks over a collective of the program's own (ps_process_group), here a fake one among threads: the same bits as
 * over the library's messages, whatever the order in which ranks begin theirs; groups side by side; messages larger than
 * a round; and what becomes of a rank that fails, and of a collective that does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>

#include <unistd.h>
#include <xxhash.h>

#include "base/fault.h"
#include "base/file.h"
#include "chunk/comm/comm.h"
#include "chunk/comm/rounds.h"
#include "comm/fake_process_group.h"
#include "engine/engine_fixture.h"
#include "temp_folder.h"

enum { RANKS = 3, STEPS = 3 };

/* ---- ranks ---- */

typedef struct member {
    fake_rank fake;
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
    const ps_process_group own = process_group_of(&m->fake);
    m->failure.struct_size = sizeof m->failure;
    m->st = comm == NULL ? ps_comm_init_process_group(c, &own, &comm) : PS_OK;
    if (m->st == PS_OK) m->st = train_member(m, comm, c);
    if (m->st != PS_OK && m->error[0] == '\0') {
        snprintf(m->error, sizeof m->error, "%s", ps_last_error());
        ps_get_last_failure(&m->failure);
    }
    ps_comm_close(comm);
    ps_config_destroy(c);
    return NULL;
}

static void run_all(member *m, int n)
{
    for (int i = 0; i < n; i++) assert_int_equal(pthread_create(&m[i].thread, NULL, member_main, &m[i]), 0);
    for (int i = 0; i < n; i++) pthread_join(m[i].thread, NULL);
}

static void run_members(member *m)
{
    run_all(m, RANKS);
}

#define NOTHING "train.seed=7"
#define NOTHING_MORE "train.log_interval=1"

static const char *const ways[][4] = {
    {NOTHING, NOTHING, NOTHING, NOTHING},
    {"memory.device=900KB", "memory.disk=20MB", "default_chunk_size=4096", "gradient_accumulation_steps=2"},
    {"memory.device=900KB", "client.opts.with_mem_saving_comm=true", "bf16.enabled=true", "default_chunk_size=2048"}};

static void test_same_bits(void **state)
{
    (void)state;
    for (size_t w = 0; w < PS_ARRAY_LEN(ways); w++) {
        fake_process_group g;
        member own[RANKS], library[RANKS];
        ps_comm *comms[RANKS];
        fake_process_group_init(&g, RANKS, 0);
        const ps_comm_options o = {.timeout_s = 30, .staging_bytes = 1 << 16};
        assert_int_equal(ps_comm_open_threads(&o, RANKS, comms), PS_OK);
        for (int r = 0; r < RANKS; r++) {
            own[r] = (member){.fake = {.group = &g, .rank = r}};
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
            assert_int_equal(own[r].fake.n_closed, 1);
            assert_int_equal(own[r].fake.was_orderly, 1);
            assert_int_equal(own[r].fake.n_calls, own[0].fake.n_calls);
            assert_true(own[r].fake.n_bytes > 100000);
        }
        fake_process_group_deinit(&g);
    }
}

/* Each has the bits that it has when its ranks are all that there is. */
static void test_two_groups(void **state)
{
    (void)state;
    enum { GROUPS = 2 };
    static const char *const seeds[GROUPS] = {"train.seed=1", "train.seed=2"};
    fake_process_group g[GROUPS], single;
    member m[GROUPS * RANKS], alone[RANKS];
    for (int i = 0; i < GROUPS; i++) fake_process_group_init(&g[i], RANKS, 0);
    for (int i = 0; i < GROUPS * RANKS; i++)
        m[i] = (member){.fake = {.group = &g[i % GROUPS], .rank = i / GROUPS},
                        .changes = {seeds[i % GROUPS], NOTHING_MORE, NOTHING_MORE, NOTHING_MORE}};
    run_all(m, GROUPS * RANKS);
    fake_process_group_init(&single, RANKS, 0);
    for (int r = 0; r < RANKS; r++)
        alone[r] = (member){.fake = {.group = &single, .rank = r},
                            .changes = {seeds[1], NOTHING_MORE, NOTHING_MORE, NOTHING_MORE}};
    run_members(alone);
    for (int i = 0; i < GROUPS * RANKS; i++) {
        assert_string_equal(m[i].error, "");
        assert_true(m[i].hash == m[i % GROUPS].hash);
    }
    assert_true(m[1].hash == alone[0].hash && m[0].hash != m[1].hash);
    for (int i = 0; i < GROUPS; i++) fake_process_group_deinit(&g[i]);
    fake_process_group_deinit(&single);
}

/* The same configuration everywhere, or no rank begins. */
static void test_other_configuration(void **state)
{
    (void)state;
    fake_process_group g;
    member m[RANKS];
    fake_process_group_init(&g, RANKS, 0);
    for (int r = 0; r < RANKS; r++)
        m[r] =
            (member){.fake = {.group = &g, .rank = r},
                     .changes = {r == 1 ? "train.seed=2" : "train.seed=1", NOTHING_MORE, NOTHING_MORE, NOTHING_MORE}};
    run_members(m);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(m[r].st, PS_EINVAL);
        assert_non_null(strstr(m[r].error, "has another configuration than rank 0"));
        assert_int_equal(m[r].failure.rank, 1);
        assert_int_equal(m[r].failure.is_shared, 1);
        assert_int_equal(m[r].failure.is_remote, r != 1);
        assert_int_equal(m[r].fake.was_orderly, 1);
    }
    fake_process_group_deinit(&g);
}

/* A rank that gives up is named to all, and none is left in a round. */
static void test_a_rank_fails(void **state)
{
    (void)state;
    fake_process_group g;
    member m[RANKS];
    fake_process_group_init(&g, RANKS, 0);
    for (int r = 0; r < RANKS; r++) {
        m[r] = (member){.fake = {.group = &g, .rank = r}, .gives_up = r == 1};
        memcpy(m[r].changes, ways[0], sizeof m[r].changes);
    }
    run_members(m);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(m[r].st, r == 1 ? PS_ESTATE : PS_ECOMM);
        assert_int_equal(m[r].fake.n_closed, 1);
        assert_int_equal(m[r].fake.was_orderly, 0);
        assert_non_null(strstr(m[r].error, "had enough"));
        if (r == 1) continue;
        assert_int_equal(m[r].failure.status, PS_ECOMM);
        assert_int_equal(m[r].failure.rank, 1);
        assert_int_equal(m[r].failure.is_remote, 1);
        assert_int_equal(m[r].failure.is_shared, 0);
        assert_true(m[r].failure.host[0] != '\0');
    }
    fake_process_group_deinit(&g);
}

static void test_a_collective_fails(void **state)
{
    (void)state;
    const int at[] = {1, 2, 3, 7, 30, 61};
    for (size_t k = 0; k < PS_ARRAY_LEN(at); k++) {
        fake_process_group g;
        member m[RANKS];
        fake_process_group_init(&g, RANKS, 0);
        for (int r = 0; r < RANKS; r++) {
            m[r] = (member){.fake = {.group = &g, .rank = r, .fails_at = r == 2 ? at[k] : 0}};
            memcpy(m[r].changes, ways[0], sizeof m[r].changes);
        }
        run_members(m);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(m[r].st, PS_ECOMM);
            assert_int_equal(m[r].fake.n_closed, 1);
            assert_int_equal(m[r].fake.was_orderly, 0);
            if (strstr(m[r].error, r == 2 ? "the link is cut" : "all_to_all failed with 8") == NULL)
                fail_msg("call %d, rank %d: %s", at[k], r, m[r].error);
        }
        fake_process_group_deinit(&g);
    }
}

/* ---- messages, without a communicator ---- */

enum { N_LETTERS = 9 };

static const int64_t letter_bytes[N_LETTERS] = {1, 16, 4095, 5000000, 4096, 7, 1398085, 100000, 9000001};

static char byte_of(int from, int to, int letter, int64_t i)
{
    return (char)(from * 31 + to * 17 + letter * 7 + i % 251);
}

/* All letters to all, of both channels: begun in another order on each rank, and asked for from the last to the first.
 * */
static void *exchange_main(void *arg)
{
    fake_rank *v = arg;
    ps_transport t;
    const ps_process_group own = process_group_of(v);
    char *data[2][RANKS][N_LETTERS];
    ps_request request[2][RANKS][N_LETTERS];
    bool is_done[2][RANKS][N_LETTERS] = {0};
    int n_left = 0;
    v->n_bytes = -1;
    if (ps_rounds_make(&own, &t) != PS_OK) return NULL;
    const ps_transport made = t;
    for (int turn = 0; turn < 2; turn++) {
        const bool sends = (turn == 0) == (v->rank != 1);
        for (int k = 0; k < RANKS; k++) {
            const int peer = (v->rank + k) % RANKS;
            for (int i = 0; i < N_LETTERS && peer != v->rank; i++) {
                char *d = data[sends][peer][i] = malloc((size_t)letter_bytes[i]);
                for (int64_t b = 0; sends && b < letter_bytes[i]; b++) d[b] = byte_of(v->rank, peer, i, b);
                const ps_channel channel = i % 2 ? PS_CHANNEL_CONTROL : PS_CHANNEL_DATA;
                const bool has_begun =
                    sends ? t.ops->send_begin(&t, peer, channel, d, letter_bytes[i], &request[sends][peer][i])
                          : t.ops->recv_begin(&t, peer, channel, d, letter_bytes[i], &request[sends][peer][i]);
                if (!has_begun) return NULL;
                n_left++;
            }
        }
    }
    int n_wrong = 0;
    while (n_left > 0)
        for (int s = 0; s < 2; s++)
            for (int peer = 0; peer < RANKS; peer++)
                for (int i = N_LETTERS - 1; i >= 0 && peer != v->rank; i--) {
                    bool done;
                    if (is_done[s][peer][i]) continue;
                    if (!t.ops->test(&t, &request[s][peer][i], &done)) return NULL;
                    if (!done) continue;
                    is_done[s][peer][i] = true;
                    n_left--;
                    for (int64_t b = 0; !s && b < letter_bytes[i]; b++)
                        n_wrong += data[s][peer][i][b] != byte_of(peer, v->rank, i, b);
                    free(data[s][peer][i]);
                }
    t.ops->close(&t, true);
    ps_rounds_release(&made, false);
    v->n_bytes = n_wrong;
    return NULL;
}

static void test_messages(void **state)
{
    (void)state;
    fake_process_group g;
    fake_rank v[RANKS];
    pthread_t threads[RANKS];
    const int64_t live = ps_mem_live_bytes();
    fake_process_group_init(&g, RANKS, 0);
    for (int r = 0; r < RANKS; r++) v[r] = (fake_rank){.group = &g, .rank = r};
    for (int r = 0; r < RANKS; r++) assert_int_equal(pthread_create(&threads[r], NULL, exchange_main, &v[r]), 0);
    for (int r = 0; r < RANKS; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(v[r].n_bytes, 0); /* that were wrong */
        assert_int_equal(v[r].was_orderly, 1);
        assert_int_equal(v[r].n_calls, v[0].n_calls);
    }
    assert_int_equal(ps_mem_live_bytes(), live);
    fake_process_group_deinit(&g);
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
    } cases[] = {{-1, 0, "calls do not match"},        {(4 << 20) + 1, 0, "calls do not match"},
                 {15, 0, "within the head"},           {16, 0, "begins with no message"},
                 {64, 0xFF, "begins with no message"}, {64, 0x7F, "begins with no message"}};
    const int64_t live = ps_mem_live_bytes();
    for (size_t k = 0; k < PS_ARRAY_LEN(cases); k++) {
        liar l = {.part_bytes = cases[k].part_bytes, .filling = cases[k].filling};
        ps_transport t;
        const ps_process_group c = {
            .struct_size = sizeof c, .user = &l, .size = 1, .all_to_all = lie, .close = close_liar};
        char letter[8];
        ps_request request;
        bool is_done;
        assert_ok(ps_rounds_make(&c, &t));
        const ps_transport made = t;
        assert_true(t.ops->recv_begin(&t, 0, PS_CHANNEL_DATA, letter, sizeof letter, &request));
        assert_false(t.ops->test(&t, &request, &is_done));
        if (strstr(t.error, cases[k].want) == NULL) fail_msg("case %zu: %s", k, t.error);
        t.ops->close(&t, true);
        ps_rounds_release(&made, false);
        assert_int_equal(l.n_closed, 1);
    }
    assert_int_equal(ps_mem_live_bytes(), live);
}

static void test_groups_that_are_none(void **state)
{
    (void)state;
    fake_process_group g;
    fake_process_group_init(&g, RANKS, 0);
    for (int k = 0; k < 7; k++) {
        fake_rank v = {.group = &g};
        ps_comm *comm = NULL;
        ps_process_group c = process_group_of(&v);
        if (k == 0) c.rank = RANKS;
        if (k == 1) c.rank = -1;
        if (k == 2) c.size = 0;
        if (k == 3) c.all_to_all = NULL;
        if (k == 4) c.trouble = "the group is shut";
        if (k == 5) c.close = NULL;
        if (k == 6) c.struct_size = 0;
        assert_int_equal(ps_comm_init_process_group(NULL, &c, &comm), PS_EINVAL);
        assert_null(comm);
        assert_int_equal(v.n_closed, k < 5);
        if (k == 4) assert_non_null(strstr(ps_last_error(), "the group is shut"));
    }
    fake_process_group_deinit(&g);
}

/* A group of one; and whatever memory it lacks, it is closed once. */
static void test_one_rank(void **state)
{
    (void)state;
    ps_config *c = TINY("train.threads=1");
    const int64_t live = ps_mem_live_bytes();
    bool done = false;
    for (long n = 0; !done; n++) {
        fake_process_group g;
        fake_process_group_init(&g, RANKS, 0);
        g.size = 1;
        fake_rank v = {.group = &g};
        ps_comm *comm = NULL;
        double sum = 3;
        const ps_process_group own = process_group_of(&v);
        ps_fault_arm(PS_FAULT_ALLOC, n, false);
        const ps_status st = ps_comm_init_process_group(c, &own, &comm);
        done = !ps_fault_has_struck(PS_FAULT_ALLOC);
        ps_fault_arm(PS_FAULT_ALLOC, -1, false);
        assert_true(done ? st == PS_OK : st != PS_OK && comm == NULL);
        if (done) assert_ok(ps_comm_all_reduce(comm, &sum, 1, PS_COMM_SUM));
        assert_true(sum == 3);
        ps_comm_close(comm);
        assert_int_equal(v.n_closed, 1);
        assert_int_equal(ps_mem_live_bytes(), live);
        fake_process_group_deinit(&g);
    }
    ps_config_destroy(c);
}

/* Without a launcher: one rank, and engines over it. */
static void test_init_single_rank(void **state)
{
    (void)state;
    ps_config *c = TINY("train.threads=1");
    ps_comm *comm = NULL;
    assert_ok(ps_comm_init(c, &comm));
    assert_int_equal(ps_comm_rank(comm), 0);
    assert_int_equal(ps_comm_size(comm), 1);
    assert_ok(ps_comm_check_same(comm, c));
    ps_failure f = {.struct_size = sizeof f};
    assert_int_equal(ps_comm_agree(comm, PS_FAIL(PS_EIO, "mine")), PS_EIO);
    assert_ok(ps_get_last_failure(&f));
    assert_int_equal(f.status, PS_EIO);
    assert_int_equal(f.rank, -1);
    assert_string_equal(f.host, "");
    assert_int_equal(f.is_shared, 0);

    ps_engine *e = NULL;
    ps_engine_options o = {.struct_size = sizeof o, .comm = comm, .purpose = PS_FOR_TRAINING, .is_empty = 1};
    assert_ok(ps_initialize_engine_with(ps_model_from_config, c, c, &o, &e));
    float value;
    uint64_t empty, drawn;
    int32_t tokens[64] = {0};
    const ps_batch batch = {.struct_size = sizeof batch, .tokens = tokens, .targets = tokens};
    assert_int_equal(ps_forward(e, &batch, NULL), PS_ESTATE);
    assert_non_null(strstr(ps_last_error(), "ps_engine_begin_weights"));
    assert_int_equal(ps_evaluate(e, &batch, NULL), PS_ESTATE);
    assert_int_equal(ps_engine_read_tensor(e, 0, 0, 1, &value), PS_ESTATE);
    assert_int_equal(ps_engine_get_weights_xxh3(e, &empty), PS_ESTATE);
    ps_load_info info = {.struct_size = sizeof info, .n_loaded = 9};
    assert_ok(ps_engine_begin_weights(e, c, c, &info));
    assert_int_equal(info.n_loaded, 0);
    assert_ok(ps_engine_get_weights_xxh3(e, &empty));
    assert_ok(ps_forward(e, &batch, NULL));
    ps_engine_destroy(e);
    o.is_empty = 0;
    assert_ok(ps_initialize_engine_with(ps_model_from_config, c, c, &o, &e));
    assert_ok(ps_engine_get_weights_xxh3(e, &drawn));
    assert_true(empty == drawn);
    ps_engine_destroy(e);
    o.purpose = (ps_purpose)7;
    assert_int_equal(ps_initialize_engine_with(ps_model_from_config, c, c, &o, &e), PS_EINVAL);
    ps_comm_close(comm);
    ps_config_destroy(c);
}

/* A program may have more than a GiB: it is read in pieces. */
static void test_hash_of_files(void **state)
{
    (void)state;
    enum { N = (5 << 19) + 3 }; /* two pieces and a half */
    static char bytes[N];
    uint64_t hash, other;
    temp_folder folder = temp_folder_make();
    const temp_path program = temp_folder_file(&folder, "program");
    const char *const path = program.text;
    for (size_t i = 0; i < N; i++) bytes[i] = (char)(i * 2654435761u >> 13);
    assert_ok(ps_file_write_all(path, bytes, N));
    assert_ok(ps_file_xxh3(path, &hash));
    assert_true(hash == XXH3_64bits(bytes, N));
    assert_int_equal(truncate(path, (off_t)1 << 30), 0);
    assert_ok(ps_file_xxh3(path, &hash));
    assert_int_equal(truncate(path, ((off_t)1 << 30) + 1), 0);
    assert_ok(ps_file_xxh3(path, &other));
    assert_true(hash != other);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(ps_file_xxh3(path, &hash), PS_EIO);
    temp_folder_remove(&folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_lies),
        cmocka_unit_test(test_groups_that_are_none),
        cmocka_unit_test(test_one_rank),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_two_groups),
        cmocka_unit_test(test_other_configuration),
        cmocka_unit_test(test_a_rank_fails),
        cmocka_unit_test(test_a_collective_fails),
        cmocka_unit_test(test_init_single_rank),
        cmocka_unit_test(test_hash_of_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
