/* Saved by p ranks, loaded by q: the same weights and moments, whatever p, q and the chunk sizes are.
 *
 * A rank here is a thread with an engine that was made for one rank and then becomes one of several: it
 * keeps the chunks that it owns, and what others own is overwritten, so that no rank can find it there. */
#include "checkpoint/checkpoint_fixture.h"

#include <pthread.h>

#include "api/engine/engine.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/split.h"
#include "weights/tensor_piece.h"
#include "weights/weight_copy.h"

#define RANKS_MAX 4
#define WRONG 777.0f
#define STEP "step-000005"

typedef struct team team;

typedef struct member {
    team *team;
    int rank;
    ps_comm *comm;
    ps_engine *engine;
    ps_config *config;
    ps_status status;
    char message[1024];
    uint64_t hash;
    ps_checkpoint_info info;
    pthread_t thread;
} member;

typedef void (*member_func)(member *m);

struct team {
    int n;
    char folder[256], path[256];
    member_func work;
    member members[RANKS_MAX];
};

static work_folder work;

#define STATE_FORMAT(f) "optimizer.params.state_format=" f
static const char *state_format = STATE_FORMAT("fp32");

#define MEMBER_TRY(m, expr)                                                                                            \
    do {                                                                                                               \
        (m)->status = (expr);                                                                                          \
        snprintf((m)->message, sizeof(m)->message, "%s", (m)->status != PS_OK ? ps_last_error() : "");                 \
        if ((m)->status != PS_OK) return;                                                                              \
    } while (0)

/* ---- what the tensors are ---- */

static float value_of(int list, int64_t tensor, int64_t i)
{
    return (float)(list * 1000 + (int)tensor) + (float)(i % 997) * 0x1p-10f;
}

static void fill(ps_engine *e, bool right)
{
    for (ps_list list = PS_LIST_MASTER; list < ps_lists_grad(&e->exec_plan->lists); list++)
        for (int32_t t = 0; t < e->program->n_params; t++) {
            const int64_t n = e->program->params[t].elements;
            float *values = malloc((size_t)n * sizeof *values);
            for (int64_t i = 0; i < n; i++) values[i] = right ? value_of(list, t, i) : WRONG;
            /* parameters may be the masters */
            const ps_list to = ps_lists_exists(&e->exec_plan->lists, list) ? list : PS_LIST_PARAM16;
            assert_ok(ps_engine_put_values(e, to, t, 0, n, values));
            free(values);
        }
    ps_runner_resume(e->runner, right ? 5 : 0);
    e->n_updates = right ? 4 : 0;
}

/* By the bytes of a group where states are compact, or by the halves of masters that are stored. */
static int count_wrong_of(const ps_engine *e, ps_list list, const ps_piece *p, bool is_own, const char *payload)
{
    const int32_t k = list - PS_LIST_STATES;
    const ps_format format = k < 0 ? PS_FORMAT_F32 : ps_optimizer_state_format(&e->settings.optimizer, k);
    const bool is_split = list == PS_LIST_MASTER && e->settings.optimizer.is_split;
    const ps_item item = is_split ? (ps_item){2, 1} : ps_format_item(format);
    int n_wrong = 0;
    for (int64_t i = 0; i < p->n; i += item.elements) {
        const int64_t n = ps_min_i64(item.elements, p->n - i);
        float values[PS_FORMAT_GROUP];
        ps_compact_group want;
        for (int64_t j = 0; j < n; j++)
            values[j] = is_own ? value_of(list, p->tensor, p->tensor_offset + i + j) : WRONG;
        const uint16_t low = ps_split_low(values[0]);
        if (is_split)
            memcpy(&want, &low, sizeof low);
        else
            ps_format_encode(format, &want, values, n);
        n_wrong += memcmp(payload + ps_item_offset(item, p->chunk_offset + i), &want, (size_t)item.bytes) != 0;
    }
    return n_wrong;
}

/* Elements of the rank's own chunks that are not as they should be, and of others' that have been touched. */
static int count_wrong(ps_engine *e)
{
    int n_wrong = 0;
    const ps_exec_plan *b = e->exec_plan;
    for (ps_list list = PS_LIST_MASTER; list < ps_lists_grad(&e->exec_plan->lists); list++)
        for (int32_t c = 0; c < b->layout->n_chunks && ps_exec_plan_has_chunk(b, list, c); c++) {
            const ps_chunk_id id = ps_store_chunk(b->layout, list, c);
            const char *payload = NULL;
            assert_ok(ps_store_pin(e->tiers.store, id, b->update_tier[c], PS_ACCESS_READ, (void *)&payload));
            for (int32_t k = b->pieces.first[c]; k < b->pieces.first[c + 1]; k++)
                n_wrong += count_wrong_of(e, list, &b->pieces.all[k], ps_exec_plan_owns(b, c), payload);
            ps_store_unpin(e->tiers.store, id);
        }
    return n_wrong;
}

/* ---- ranks ---- */

static void own_only(ps_engine *e, int rank, int n, ps_comm *comm)
{
    ps_exec_plan *b = e->shape->exec_plan;
    e->settings.ranks = (ps_ranks){.rank = rank, .n = n};
    e->settings.ranks.comm = comm;
    int32_t n_own = 0;
    for (int32_t i = 0; i < b->n_ordered; i++)
        if (ps_exec_plan_owns(b, b->update_order[i])) b->update_order[n_own++] = b->update_order[i];
    b->n_ordered = n_own;
}

static void make_member(member *m, const char *chunk_size, bool right)
{
    char accumulation[64];
    snprintf(accumulation, sizeof accumulation, "gradient_accumulation_steps=%d", 12 / m->team->n);
    m->config = TINY("bf16.enabled=true", "memory.defer_updates=false", "train.keep_last=2", accumulation, chunk_size,
                     state_format);
    m->engine = engine_of(m->config);
    fill(m->engine, false);
    if (!right) own_only(m->engine, m->rank, m->team->n, m->comm);
    if (right && m->team->n > 1) {
        /* what others own stays wrong */
        own_only(m->engine, m->rank, m->team->n, m->comm);
    }
    if (right) fill(m->engine, true);
}

static team *make_team(int n, const char *chunk_size, bool right)
{
    const ps_comm_options o = {.timeout_s = 20, .staging_bytes = 1 << 20};
    ps_comm *comms[RANKS_MAX] = {NULL};
    team *t = calloc(1, sizeof *t);
    t->n = n;
    if (n > 1) assert_ok(ps_comm_open_threads(&o, n, comms));
    for (int r = 0; r < n; r++) {
        t->members[r] = (member){.team = t, .rank = r, .comm = comms[r]};
        make_member(&t->members[r], chunk_size, right);
    }
    snprintf(t->folder, sizeof t->folder, "%s/of-%d", work.path, n);
    return t;
}

static void *member_main(void *arg)
{
    member *m = arg;
    m->team->work(m);
    return NULL;
}

static void together(team *t, member_func f)
{
    t->work = f;
    for (int r = 0; r < t->n; r++)
        assert_int_equal(pthread_create(&t->members[r].thread, NULL, member_main, &t->members[r]), 0);
    for (int r = 0; r < t->n; r++) pthread_join(t->members[r].thread, NULL);
}

static void together_ok(team *t, member_func f)
{
    together(t, f);
    for (int r = 0; r < t->n; r++)
        if (t->members[r].status != PS_OK)
            fail_msg("rank %d of %d: %s: %s", r, t->n, ps_status_name(t->members[r].status), t->members[r].message);
}

static void leave(member *m)
{
    ps_engine_destroy(m->engine);
    ps_config_destroy(m->config);
    ps_comm_close(m->comm);
}

static void end_team(team *t)
{
    together(t, leave);
    free(t);
}

static void save(member *m)
{
    m->info.struct_size = sizeof m->info;
    MEMBER_TRY(m, ps_engine_save_checkpoint(m->engine, m->team->folder, "{\"note\": 5}", &m->info));
}

static void load(member *m)
{
    char *note = NULL;
    MEMBER_TRY(m, ps_engine_load_checkpoint(m->engine, m->team->folder, &note));
    if (note == NULL || strstr(note, "5") == NULL) m->status = PS_EFORMAT;
    ps_free(note);
}

static void take_hash(member *m)
{
    MEMBER_TRY(m, ps_engine_get_weights_xxh3(m->engine, &m->hash));
}

static void save_weights(member *m)
{
    MEMBER_TRY(m, ps_engine_save_weights(m->engine, m->team->path));
}

static void load_weights(member *m)
{
    MEMBER_TRY(m, ps_engine_load_pretrained(m->engine, m->team->path, NULL, NULL));
}

/* ---- tests ---- */

static bool same_files(const char *a, const char *b)
{
    char *x = NULL, *y = NULL;
    int64_t n_x, n_y;
    assert_ok(ps_file_read_all(a, 1 << 24, &x, &n_x));
    assert_ok(ps_file_read_all(b, 1 << 24, &y, &n_y));
    const bool same = n_x == n_y && memcmp(x, y, (size_t)n_x) == 0;
    ps_mem_free(x);
    ps_mem_free(y);
    return same;
}

/* Saves under work/of-<n>; gives the hash, the same on all ranks. Leaves work/weights-<n> and work/merged-<n>. */
static uint64_t save_all(int n, const char *chunk_size)
{
    char merged[256];
    team *t = make_team(n, chunk_size, true);
    together_ok(t, save);
    together_ok(t, take_hash);
    for (int r = 0; r < n; r++) {
        assert_true(t->members[r].hash == t->members[0].hash);
        assert_int_equal(t->members[r].info.step, 5);
        assert_true(t->members[r].info.bytes == t->members[0].info.bytes);
        assert_string_equal(t->members[r].info.name, STEP);
    }
    snprintf(t->path, sizeof t->path, "%s/weights-%d.safetensors", work.path, n);
    together_ok(t, save_weights);
    const uint64_t hash = t->members[0].hash;
    ps_weight_source *s = NULL;
    assert_ok(ps_weight_source_open(work_file(t->folder, STEP).text, &s));
    snprintf(merged, sizeof merged, "%s/merged-%d.safetensors", work.path, n);
    assert_ok(ps_weight_merge(s, merged));
    ps_weight_source_close(s);
    assert_int_equal(work_count(work_file(t->folder, STEP).text), 2 * n + 1);
    assert_int_equal(work_count(t->folder), 2); /* and latest */
    end_team(t);
    return hash;
}

static void load_any_to_any(const char *format)
{
    state_format = format;
    static const char *const sizes[] = {"default_chunk_size=2048", "default_chunk_size=4096",
                                        "default_chunk_size=10240", "default_chunk_size=2048"};
    uint64_t hash[RANKS_MAX + 1] = {0};
    for (int n = 1; n <= RANKS_MAX; n++) {
        char name[2][64];
        hash[n] = save_all(n, sizes[n - 1]);
        assert_true(hash[n] == hash[1]);
        for (int kind = 0; kind < 2; kind++) {
            snprintf(name[0], sizeof name[0], "%s-1.safetensors", kind ? "merged" : "weights");
            snprintf(name[1], sizeof name[1], "%s-%d.safetensors", kind ? "merged" : "weights", n);
            assert_true(same_files(work_file(work.path, name[0]).text, work_file(work.path, name[1]).text));
        }
    }
    for (int from = 1; from <= RANKS_MAX; from++)
        for (int to = 1; to <= RANKS_MAX; to++) {
            team *t = make_team(to, sizes[from % 4], false);
            snprintf(t->folder, sizeof t->folder, "%s/of-%d", work.path, from);
            together_ok(t, load);
            for (int r = 0; r < to; r++) {
                assert_int_equal(ps_runner_steps(t->members[r].engine->runner), 5);
                assert_int_equal(t->members[r].engine->n_updates, 4);
                const int n_wrong = count_wrong(t->members[r].engine);
                if (n_wrong != 0) fail_msg("from %d to %d: %d wrong at rank %d", from, to, n_wrong, r);
            }
            together_ok(t, take_hash);
            for (int r = 0; r < to; r++) assert_true(t->members[r].hash == hash[1]);
            end_team(t);
        }
}

static void test_any_to_any(void **state)
{
    (void)state;
    load_any_to_any(STATE_FORMAT("fp32"));
}

static void test_any_to_any_compact(void **state)
{
    (void)state;
    load_any_to_any(STATE_FORMAT("compact"));
    load_any_to_any(STATE_FORMAT("compact_split"));
    load_any_to_any(STATE_FORMAT("bf16_stochastic"));
    state_format = STATE_FORMAT("fp32");
}

/* Weights alone, from a checkpoint in pieces and from one file. */
static void test_weights(void **state)
{
    (void)state;
    const uint64_t hash = save_all(3, "default_chunk_size=2048");
    static const char *const from[] = {("of-3/" STEP), "weights-3.safetensors", "merged-3.safetensors"};
    for (size_t i = 0; i < PS_ARRAY_LEN(from); i++)
        for (int to = 1; to <= RANKS_MAX; to++) {
            team *t = make_team(to, "default_chunk_size=4096", false);
            snprintf(t->path, sizeof t->path, "%s/%s", work.path, from[i]);
            together_ok(t, load_weights);
            together_ok(t, take_hash);
            for (int r = 0; r < to; r++) assert_true(t->members[r].hash == hash);
            end_team(t);
        }
}

/* A write that fails on any rank: no rank has a new checkpoint, the earlier one stays, and the message names the
 * rank. */
static void test_failing_save(void **state)
{
    (void)state;
    int n_failures = 0;
    team *t = make_team(3, "default_chunk_size=4096", true);
    together_ok(t, save);
    for (bool struck = true; struck; n_failures += struck) {
        for (int r = 0; r < 3; r++) ps_runner_resume(t->members[r].engine->runner, 6);
        ps_fault_arm(PS_FAULT_WRITE, n_failures, false);
        together(t, save);
        struck = ps_fault_has_struck(PS_FAULT_WRITE);
        ps_fault_arm(PS_FAULT_WRITE, -1, false);
        for (int r = 0; r < 3; r++) {
            assert_int_equal(t->members[r].status, struck ? PS_EIO : PS_OK);
            assert_string_equal(t->members[r].message, t->members[0].message);
            if (struck && strncmp(t->members[r].message, "rank ", 5) != 0) fail_msg("%s", t->members[r].message);
        }
        assert_true(work_has(t->folder, STEP) && work_has(t->folder, "latest"));
        if (struck && strstr(t->members[0].message, "cannot be removed") == NULL && n_failures < 10)
            assert_false(work_has(t->folder, "step-000006"));
        if (work_has(t->folder, "step-000006")) work_remove(work_file(t->folder, "step-000006").text);
    }
    assert_true(n_failures > 10);
    printf("%d failing writes\n", n_failures);
    end_team(t);
}

static void save_elsewhere(member *m)
{
    if (m->rank == 1) snprintf(m->team->path, sizeof m->team->path, "/nowhere/else");
    MEMBER_TRY(m, ps_engine_save_checkpoint(m->engine, m->rank == 1 ? "/nowhere/else" : m->team->folder, NULL, NULL));
}

/* Ranks that do not see rank 0's file system. */
static void test_other_file_system(void **state)
{
    (void)state;
    team *t = make_team(2, "default_chunk_size=4096", true);
    together(t, save_elsewhere);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(t->members[r].status, PS_EIO);
        assert_non_null(strstr(t->members[r].message, "rank 1"));
        assert_non_null(strstr(t->members[r].message, "one file system"));
    }
    assert_int_equal(work_count(t->folder), 0);
    together_ok(t, save); /* and can continue */
    end_team(t);
}

/* A flipped bit is found by the rank that reads the file, and all ranks refuse; so do they when a file is gone, or
 * cut. */
static void test_damage(void **state)
{
    (void)state;
    (void)save_all(3, "default_chunk_size=2048");
    for (int rank = 0; rank < 3; rank++) {
        char name[64];
        snprintf(name, sizeof name, "of-3/" STEP "/optimizer-%d-of-3.safetensors", rank);
        FILE *f = fopen(work_file(work.path, name).text, "r+b");
        fseek(f, -9, SEEK_END);
        const int was = fgetc(f);
        fseek(f, -9, SEEK_END);
        fputc(was ^ 4, f);
        fclose(f);
        team *t = make_team(2, "default_chunk_size=4096", false);
        snprintf(t->folder, sizeof t->folder, "%s/of-3", work.path);
        together(t, load);
        for (int r = 0; r < 2; r++) {
            if (t->members[r].status != PS_EFORMAT || strstr(t->members[r].message, strrchr(name, '/') + 1) == NULL)
                fail_msg("rank %d: %s: %s", r, ps_status_name(t->members[r].status), t->members[r].message);
        }
        end_team(t);
        f = fopen(work_file(work.path, name).text, "r+b");
        fseek(f, -9, SEEK_END);
        fputc(was, f);
        fclose(f);
    }
}

/* Another number of micro-batches a step cannot continue with the same samples. */
static void test_other_accumulation(void **state)
{
    (void)state;
    (void)save_all(2, "default_chunk_size=2048");
    team *t = make_team(3, "default_chunk_size=2048", false);
    snprintf(t->folder, sizeof t->folder, "%s/of-2", work.path);
    for (int r = 0; r < 3; r++) t->members[r].engine->settings.accumulation = 5;
    together(t, load);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(t->members[r].status, PS_EINVAL);
        assert_non_null(strstr(t->members[r].message, "12 micro-batches"));
        assert_non_null(strstr(t->members[r].message, "have 15"));
    }
    end_team(t);
}

static void test_piece_names(void **state)
{
    (void)state;
    char name[PS_TENSOR_PIECE_NAME_MAX], longest[400];
    assert_ok(ps_tensor_piece_name("wte.weight", 4096, 2048, name));
    assert_string_equal(name, "wte.weight[4096:6144]");
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(ps_tensor_piece_name(longest, 0, 1, name), PS_EINVAL);
    assert_int_equal(ps_tensor_piece_key(longest, name), PS_EINVAL);
    static const struct {
        const char *name, *shape;
        ps_status st;
        bool is_piece;
    } cases[] = {
        {"w[0:4]", "2,4", PS_OK, true},
        {"w[4:8]", "2,4", PS_OK, true},
        {"w[0:4]", NULL, PS_OK, false},
        {"w[0:4]x", "8", PS_OK, false},
        {"w[:4]", "8", PS_OK, false},
        {"w[-4:0]", "8", PS_OK, false},
        {"w[6:10]", "2,4", PS_EFORMAT, true},
        {"w[0:4]", "2,", PS_EFORMAT, true},
        {"w[0:4]", "", PS_EFORMAT, true},
        {"w[0:5]", "8", PS_EFORMAT, true},
        {"w[0:4]", "-1,-8", PS_EFORMAT, true},
        {"w[4:0]", "8", PS_EFORMAT, true},
        {"w[0:4]", "4611686018427387904,8", PS_EFORMAT, true},
    };
    const work_path path = work_file(work.path, "pieces.safetensors");
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        const ps_safetensor t = {.name = cases[i].name, .dtype = PS_SAFETENSORS_F32, .n_dims = 1, .shape = {4}};
        const ps_safetensors_metadata m = {"shape:w", cases[i].shape};
        const float four[4] = {1, 2, 3, 4};
        ps_safetensors_writer *w = NULL;
        ps_safetensors *s = NULL;
        ps_tensor_piece piece;
        bool is_piece;
        assert_ok(ps_safetensors_writer_open(path.text, &t, 1, &m, cases[i].shape != NULL, &w));
        assert_ok(ps_safetensors_writer_append(w, 0, four, sizeof four));
        assert_ok(ps_safetensors_writer_commit(w));
        assert_ok(ps_safetensors_open(path.text, &s));
        assert_int_equal(ps_tensor_piece_read(path.text, s, 0, &piece, &is_piece), cases[i].st);
        if (is_piece != cases[i].is_piece) fail_msg("case %zu", i);
        if (is_piece && cases[i].st == PS_OK) {
            assert_string_equal(piece.name, "w");
            assert_int_equal(piece.elements, 8);
            assert_int_equal(piece.n, 4);
        }
        ps_safetensors_close(s);
    }
}

/* A row of 36 bytes is a group of 32 elements, which is never in two pieces. */
static void test_pieces_of_compact_states(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        ps_status st;
    } cases[] = {{"w[0:32]", PS_OK},      {"w[64:96]", PS_OK},       {"w[96:100]", PS_OK},   {"w[0:20]", PS_EFORMAT},
                 {"w[5:37]", PS_EFORMAT}, {"w[80:100]", PS_EFORMAT}, {"w[0:64]", PS_EFORMAT}};
    const work_path path = work_file(work.path, "groups.safetensors");
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        const ps_safetensor t = {.name = cases[i].name, .dtype = PS_SAFETENSORS_U8, .n_dims = 2, .shape = {1, 36}};
        const ps_compact_group group = {.scale = 1};
        ps_safetensors_writer *w = NULL;
        ps_safetensors *s = NULL;
        ps_tensor_piece piece;
        bool is_piece;
        assert_ok(ps_safetensors_writer_open(path.text, &t, 1, &(ps_safetensors_metadata){"shape:w", "100"}, 1, &w));
        assert_ok(ps_safetensors_writer_append(w, 0, &group, sizeof group));
        assert_ok(ps_safetensors_writer_commit(w));
        assert_ok(ps_safetensors_open(path.text, &s));
        const ps_status st = ps_tensor_piece_read(path.text, s, 0, &piece, &is_piece);
        if (st != cases[i].st) fail_msg("%s: %s", cases[i].name, ps_status_name(st));
        ps_safetensors_close(s);
    }
}

static int make_work(void **state)
{
    (void)state;
    work = work_make();
    return 0;
}

static int remove_work(void **state)
{
    (void)state;
    work_remove(work.path);
    return 0;
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, make_work, remove_work)
    const struct CMUnitTest tests[] = {
        TEST(test_piece_names),
        TEST(test_pieces_of_compact_states),
        TEST(test_any_to_any),
        TEST(test_any_to_any_compact),
        TEST(test_weights),
        TEST(test_failing_save),
        TEST(test_damage),
        TEST(test_other_accumulation),
        TEST(test_other_file_system),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
