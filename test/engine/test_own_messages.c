/* Ranks over messages of the program's own (ps_messages), here from thread to thread: the same bits as over the
 * library's, groups side by side, and what becomes of messages that fail. Made of public calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/fault.h"
#include "base/file.h"
#include "comm/comm.h"
#include "engine/engine_fixture.h"
#include "engine/sameness.h"
#include "temp_folder.h"

enum { GROUPS = 2, RANKS = 2, STEPS = 3 };

/* ---- messages: one at a time from each rank to each other on each channel, in a list ---- */

typedef struct letter {
    struct letter *next;
    int64_t bytes;
    char content[];
} letter;

typedef struct post_office {
    pthread_mutex_t lock;
    letter *box[RANKS][RANKS][2]; /* from, to, channel: the oldest first */
} post_office;

typedef struct receive {
    void *data;
    int32_t from, channel;
    struct receive *next; /* begun after this one */
} receive;

typedef struct counter {
    post_office *office;
    int32_t rank;
    int n_sends, fails_at; /* fails_at 0: never */
    int n_closed, was_orderly;
    receive *begun[RANKS][2]; /* the oldest first: each gets the next letter */
} counter;

static int send_begin(void *user, int32_t peer, int32_t channel, const void *data, int64_t bytes, uint64_t *request,
                      char *error)
{
    counter *c = user;
    if (++c->n_sends == c->fails_at) {
        snprintf(error, PS_MESSAGE_ERROR_BYTES, "the post office burns");
        return 7;
    }
    letter *l = malloc(sizeof *l + (size_t)bytes), **last;
    l->next = NULL;
    l->bytes = bytes;
    memcpy(l->content, data, (size_t)bytes);
    pthread_mutex_lock(&c->office->lock);
    for (last = &c->office->box[c->rank][peer][channel]; *last != NULL; last = &(*last)->next) {
    }
    *last = l;
    pthread_mutex_unlock(&c->office->lock);
    *request = 0;
    return 0;
}

static int receive_begin(void *user, int32_t peer, int32_t channel, void *data, int64_t bytes, uint64_t *request,
                         char *error)
{
    counter *c = user;
    receive *r = malloc(sizeof *r), **last;
    (void)bytes, (void)error;
    *r = (receive){.data = data, .from = peer, .channel = channel};
    for (last = &c->begun[peer][channel]; *last != NULL; last = &(*last)->next) {
    }
    *last = r;
    *request = (uint64_t)(uintptr_t)r;
    return 0;
}

static int test_message(void *user, uint64_t *request, int64_t bytes, int32_t *is_done, char *error)
{
    counter *c = user;
    receive *r = (receive *)(uintptr_t)*request;
    *is_done = bytes == 0;
    if (bytes == 0 || c->begun[r->from][r->channel] != r) return 0;
    pthread_mutex_lock(&c->office->lock);
    letter **box = &c->office->box[r->from][c->rank][r->channel], *l = *box;
    if (l != NULL) *box = l->next;
    pthread_mutex_unlock(&c->office->lock);
    if (l == NULL) return 0;
    const int fits = l->bytes == bytes;
    if (fits) memcpy(r->data, l->content, (size_t)bytes);
    c->begun[r->from][r->channel] = r->next;
    free(l);
    free(r);
    *is_done = 1;
    if (!fits) snprintf(error, PS_MESSAGE_ERROR_BYTES, "another size");
    return !fits;
}

static void close_counter(void *user, int32_t is_orderly)
{
    counter *c = user;
    c->n_closed++;
    c->was_orderly = is_orderly;
    for (int p = 0; p < RANKS; p++)
        for (int k = 0; k < 2; k++)
            while (c->begun[p][k] != NULL) {
                receive *r = c->begun[p][k];
                c->begun[p][k] = r->next;
                free(r);
            }
}

static void office_deinit(post_office *o)
{
    for (int i = 0; i < RANKS; i++)
        for (int j = 0; j < RANKS; j++)
            for (int k = 0; k < 2; k++)
                while (o->box[i][j][k] != NULL) {
                    letter *l = o->box[i][j][k];
                    o->box[i][j][k] = l->next;
                    free(l);
                }
    pthread_mutex_destroy(&o->lock);
}

static ps_messages messages_of(counter *c)
{
    return (ps_messages){.struct_size = sizeof(ps_messages),
                         .user = c,
                         .rank = c->rank,
                         .size = RANKS,
                         .name = "post",
                         .send_begin = send_begin,
                         .receive_begin = receive_begin,
                         .test = test_message,
                         .close = close_counter};
}

/* ---- a rank ---- */

typedef struct member {
    counter messages;
    ps_comm *comm; /* NULL: meets by its messages */
    const char *seed;
    ps_status st;
    ps_failure failure;
    char error[512];
    uint64_t hash;
    pthread_t thread;
} member;

static ps_status train_member(ps_comm *comm, ps_config *c, uint64_t *hash)
{
    ps_engine *e = NULL;
    const ps_engine_options options = {.struct_size = sizeof options, .comm = comm, .purpose = PS_FOR_TRAINING};
    PS_TRY(ps_initialize_engine_with(ps_model_from_config, c, c, &options, &e));
    int32_t tokens[64], targets[64], rank = -1, size = -1;
    int64_t B, T;
    ps_engine_get_shape(e, &B, &T, NULL, NULL);
    ps_engine_get_ranks(e, &rank, &size);
    ps_status st = rank == ps_comm_rank(comm) && size == RANKS ? PS_OK : PS_FAIL(PS_EINVAL, "ranks of the engine");
    for (int step = 0; step < STEPS && st == PS_OK; step++) {
        fill_batch(tokens, targets, B, T, TINY_VOCABULARY, step * RANKS + rank);
        st = ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, NULL);
        if (st == PS_OK) st = ps_backward(e);
        if (st == PS_OK) st = ps_step(e);
    }
    if (st == PS_OK) st = ps_engine_get_weights_xxh3(e, hash);
    ps_engine_destroy(e);
    return st;
}

static void *member_main(void *arg)
{
    member *m = arg;
    ps_config *c = TINY(m->seed, "memory.device=900KB", "memory.host=8MB", "train.threads=1");
    ps_comm *comm = m->comm;
    const ps_messages messages = messages_of(&m->messages);
    m->st = comm == NULL ? ps_comm_meet_by(c, &messages, &comm) : PS_OK;
    if (m->st == PS_OK) m->st = train_member(comm, c, &m->hash);
    m->failure.struct_size = sizeof m->failure;
    ps_get_last_failure(&m->failure);
    snprintf(m->error, sizeof m->error, "%s", m->st == PS_OK ? "" : ps_last_error());
    ps_comm_close(comm);
    ps_config_destroy(c);
    return NULL;
}

static void run_members(member *m, int n)
{
    for (int i = 0; i < n; i++) assert_int_equal(pthread_create(&m[i].thread, NULL, member_main, &m[i]), 0);
    for (int i = 0; i < n; i++) pthread_join(m[i].thread, NULL);
}

static const char *const seeds[GROUPS] = {"train.seed=1", "train.seed=2"};

static void test_two_groups(void **state)
{
    (void)state;
    post_office offices[GROUPS] = {0};
    member m[GROUPS * RANKS] = {0}, library[RANKS];
    for (int i = 0; i < GROUPS * RANKS; i++)
        m[i] = (member){.messages = {.office = &offices[i % GROUPS], .rank = i / GROUPS}, .seed = seeds[i % GROUPS]};
    for (int g = 0; g < GROUPS; g++) pthread_mutex_init(&offices[g].lock, NULL);
    run_members(m, GROUPS * RANKS);
    for (int g = 0; g < GROUPS; g++) {
        const ps_comm_options o = {.timeout_s = 30, .staging_bytes = 1 << 16};
        ps_comm *comms[RANKS];
        assert_int_equal(ps_comm_open_threads(&o, RANKS, comms), PS_OK);
        for (int r = 0; r < RANKS; r++) library[r] = (member){.comm = comms[r], .seed = seeds[g]};
        run_members(library, RANKS);
        for (int r = 0; r < RANKS; r++) {
            const member *own = &m[r * GROUPS + g];
            assert_string_equal(own->error, "");
            assert_string_equal(library[r].error, "");
            assert_true(own->hash == library[r].hash);
            assert_int_equal(own->messages.n_closed, 1);
            assert_int_equal(own->messages.was_orderly, 1);
            assert_true(own->messages.n_sends > 0);
        }
        office_deinit(&offices[g]);
    }
    assert_true(m[0].hash != m[1].hash);
}

/* Whoever cannot send is named to all, here and there. */
static void test_messages_that_fail(void **state)
{
    (void)state;
    const int at[] = {1, 2, 5, 20, 40};
    for (size_t k = 0; k < sizeof at / sizeof at[0]; k++) {
        post_office office = {0};
        pthread_mutex_init(&office.lock, NULL);
        member m[RANKS];
        for (int r = 0; r < RANKS; r++)
            m[r] =
                (member){.messages = {.office = &office, .rank = r, .fails_at = r == 1 ? at[k] : 0}, .seed = seeds[0]};
        run_members(m, RANKS);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(m[r].st, PS_ECOMM);
            assert_int_equal(m[r].messages.n_closed, 1);
            assert_int_equal(m[r].messages.was_orderly, 0);
        }
        assert_non_null(strstr(m[1].error, "post: the post office burns"));
        if (at[k] > 2) { /* before they have met nobody knows who it is */
            assert_int_equal(m[1].failure.rank, 1);
            assert_int_equal(m[1].failure.is_remote, 0);
            assert_int_equal(m[0].failure.status, PS_ECOMM);
            assert_int_equal(m[0].failure.rank, 1);
            assert_int_equal(m[0].failure.is_remote, 1);
            assert_int_equal(m[0].failure.is_shared, 0);
            assert_true(m[0].failure.host[0] != '\0');
        }
        office_deinit(&office);
    }
}

/* The same configuration everywhere, or nobody begins. */
static void test_other_configuration(void **state)
{
    (void)state;
    post_office office = {0};
    pthread_mutex_init(&office.lock, NULL);
    member m[RANKS];
    for (int r = 0; r < RANKS; r++) m[r] = (member){.messages = {.office = &office, .rank = r}, .seed = seeds[r]};
    run_members(m, RANKS);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(m[r].st, PS_EINVAL);
        assert_non_null(strstr(m[r].error, "has another configuration than rank 0"));
        assert_int_equal(m[r].failure.rank, 1);
        assert_int_equal(m[r].failure.is_shared, 1);
        assert_int_equal(m[r].failure.is_remote, r == 0);
        assert_int_equal(m[r].messages.was_orderly, 1);
    }
    office_deinit(&office);
}

static void test_messages_that_are_none(void **state)
{
    (void)state;
    counter c = {.rank = 0};
    ps_comm *comm = NULL;
    for (int k = 0; k < 7; k++) {
        ps_messages m = messages_of(&c);
        c.n_closed = 0;
        if (k == 0) m.rank = RANKS;
        if (k == 1) m.rank = -1;
        if (k == 2) m.size = 0;
        if (k == 3) m.test = NULL;
        if (k == 4) m.trouble = "no ship goes there";
        if (k == 5) m.close = NULL;
        if (k == 6) m.struct_size = 0;
        assert_int_equal(ps_comm_meet_by(NULL, &m, &comm), PS_EINVAL);
        assert_null(comm);
        assert_int_equal(c.n_closed, k < 5); /* without a function, or a structure, there is none to call */
        if (k == 4) assert_non_null(strstr(ps_last_error(), "no ship goes there"));
    }
}

/* A group of one; and whatever memory it lacks, the messages are closed once. */
static void test_one_rank(void **state)
{
    (void)state;
    ps_config *c = TINY("train.threads=1");
    const int64_t live = ps_mem_live_bytes();
    bool done = false;
    for (long n = 0; !done; n++) {
        counter own = {.rank = 0};
        ps_messages m = messages_of(&own);
        ps_comm *comm = NULL;
        double sum = 3;
        m.size = 1;
        ps_fault_arm(PS_FAULT_ALLOC, n, false);
        ps_status st = ps_comm_meet_by(c, &m, &comm);
        done = !ps_fault_has_struck(PS_FAULT_ALLOC);
        ps_fault_arm(PS_FAULT_ALLOC, -1, false);
        assert_true(done ? st == PS_OK : st != PS_OK && comm == NULL);
        if (done) assert_ok(ps_comm_all_reduce(comm, &sum, 1, PS_COMM_SUM));
        assert_true(sum == 3);
        assert_int_equal(own.n_closed, !done);
        ps_comm_close(comm);
        assert_int_equal(own.n_closed, 1);
        assert_int_equal(ps_mem_live_bytes(), live);
    }
    ps_config_destroy(c);
}

/* Without a launcher: one rank, and engines over it. */
static void test_meet_alone(void **state)
{
    (void)state;
    ps_config *c = TINY("train.threads=1");
    ps_comm *comm = NULL;
    assert_ok(ps_comm_meet(c, &comm));
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
        cmocka_unit_test(test_two_groups),
        cmocka_unit_test(test_messages_that_fail),
        cmocka_unit_test(test_other_configuration),
        cmocka_unit_test(test_messages_that_are_none),
        cmocka_unit_test(test_one_rank),
        cmocka_unit_test(test_meet_alone),
        cmocka_unit_test(test_hash_of_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
