/* test_client_saves.c - programs of client_walk.h save while they train, write to what is being saved, and go back: in the
 * same client, or in a new one with other budgets and other chunks. What they see is what a program sees that never
 * saved. Then what a checkpoint holds in addition to tensors, and other numbers of ranks. */
#include <fcntl.h>

#include "api/checkpoint/checkpoint_check.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/folder.h"
#include "external/client_walk.h"

enum { REWINDS = 3 };

/* Saves of one program. */
typedef struct saves {
    ps_rng_key dice; /* other than the walk's, which must not notice */
    uint64_t thrown;
    const char *changes[3]; /* of clients that resume from a checkpoint, in turn */
    bool is_saving, goes_back;
    int until, n_saved, n_rewound;
    walk then;
    plain arrays_then[TENSORS];
} saves;

static char checkpoints[96];

static int throw_die(saves *s, int sides)
{
    return (int)(ps_rng_u32(s->dice, s->thrown++) % (uint32_t)sides);
}

static void remove_checkpoints(void)
{
    DIR *d = opendir(checkpoints);
    for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.') assert_true(ps_folder_remove(dirfd(d), e->d_name));
    if (d != NULL) closedir(d);
    (void)rmdir(checkpoints);
}

/* Between beginning and end of a save, in all ways that a program has. With several ranks only an owner has a master. */
static void write_everywhere(walk *w, saves *s)
{
    for (int i = 0; i < 12; i++) {
        const int32_t t = throw_die(s, TENSORS);
        const int64_t at = throw_die(s, (int)sizes[t]), n = 1 + throw_die(s, (int)(sizes[t] - at));
        const int way = throw_die(s, 4);
        for (int64_t k = 0; k < n; k++) buffer[k] = 3;
        if (way == 0) assert_ok(ps_client_write_state(w->client, t, NULL, at, n, buffer));
        if (way == 1) assert_ok(ps_client_write_state(w->client, t, "exp_avg_sq", at, n, buffer));
        if (way < 2 || (way == 3 && w->n_ranks > 1)) continue;
        const ps_client_what what = way == 2 ? PS_CLIENT_PARAM : PS_CLIENT_MASTER;
        begin_moment(w, PS_CLIENT_OUTSIDE_STEP, t);
        const ps_client_place p = pinned(w->client, t, what, PS_CLIENT_WRITE);
        put_value(w->client, &p, at, 3);
        ps_client_unpin(w->client, t, what);
    }
}

static void begin_save(walk *w, saves *s)
{
    const ps_client_checkpoint what = {.struct_size = sizeof what, .tag = s->n_saved % 2 == 0 ? NULL : "by-name"};
    assert_ok(ps_client_begin_checkpoint(w->client, checkpoints, &what));
    assert_int_equal(ps_client_begin_checkpoint(w->client, checkpoints, &what), PS_ESTATE);
    s->then = *w;
    memcpy(s->arrays_then, arrays, sizeof arrays);
    s->is_saving = true;
    s->until = w->step + throw_die(s, 3);
    s->n_saved++;
    s->goes_back = throw_die(s, 4) > 0;
    if (!s->goes_back) return;
    w->is_plain = false; /* until then */
    write_everywhere(w, s);
}

/* As if what came after the save had not been. */
static void go_back(walk *w, saves *s)
{
    ps_client *client = w->client;
    if (throw_die(s, 3) > 0) {
        ps_client_destroy(client);
        end_stream();
        assert_ok(create(w, s->changes[s->n_rewound % 3]));
        client = w->client;
    }
    ps_client_loaded found = {.struct_size = sizeof found};
    assert_ok(ps_client_load_checkpoint(client, checkpoints, &found));
    assert_int_equal(found.n_ranks, w->n_ranks);
    assert_null(found.caller_json);
    assert_null(found.extra_path);
    ps_free(found.path);
    *w = s->then;
    w->client = client;
    memcpy(arrays, s->arrays_then, sizeof arrays);
    for (int32_t t = 0; t < TENSORS; t++) assert_int_equal(ps_client_get_update_count(client, t), arrays[t].steps);
    s->n_rewound++;
}

static void save_now_and_then(walk *w)
{
    saves *s = (saves *)w->user + w->rank;
    if (!s->is_saving) {
        if (w->step + 4 < STEPS && s->n_rewound < REWINDS && throw_die(s, 2) == 0) begin_save(w, s);
        return;
    }
    if (w->step < s->until) return;
    ps_checkpoint_info info = {.struct_size = sizeof info};
    assert_ok(ps_client_finish_checkpoint(w->client, &info));
    assert_true(info.bytes > 0);
    s->is_saving = false;
    if (s->goes_back) go_back(w, s);
}

/* s: [n_ranks]; NULL: saves nothing. */
static uint64_t walk_of(int n_ranks, const char *changes, uint64_t seed, saves *s)
{
    walk w = {.dice = {.seed = seed, .stream = 5},
              .n_ranks = 1,
              .is_plain = strstr(changes, "enabled") == NULL,
              .after_step = s != NULL ? save_now_and_then : NULL,
              .user = s};
    if (n_ranks > 1) return walked_by(n_ranks, changes, &w);
    live(&w, changes);
    expect_nothing_left();
    return w.seen;
}

static saves of_ranks[RANKS_MAX];

static void expect_same(int n_ranks, const char *format, const char *const budgets[3], uint64_t seed)
{
    char changes[3][256], all[256];
    snprintf(all, sizeof all, "%s%s", format, budgets[0]);
    const uint64_t want = walk_of(n_ranks, all, seed, NULL);
    for (int i = 0; i < 3; i++) snprintf(changes[i], sizeof changes[i], "%s%s", format, budgets[i]);
    for (int i = 0; i < 3; i++) {
        if (!is_my_share()) continue;
        for (int r = 0; r < n_ranks; r++)
            of_ranks[r] = (saves){.dice = {.seed = seed + (uint64_t)i, .stream = 6},
                                  .changes = {changes[1], changes[2], changes[0]}};
        if (walk_of(n_ranks, changes[i], seed, of_ranks) != want)
            fail_msg("%d ranks, seed %d, %s: other bits", n_ranks, (int)seed, changes[i]);
        assert_true(of_ranks[0].n_rewound > 0);
        remove_checkpoints();
    }
}

static const char *const formats[] = {"", "bf16.enabled=true ", "fp16.enabled=true fp16.initial_scale_power=2 "};

/* Chunks of other sizes, so that tensors are in other pieces. */
#define SMALLER "default_chunk_size=2048 "
#define BUFFERED " train.save_interval=5 memory.save_buffer=32KB"

static void test_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    static const char *const budgets[] = {
        ALL, OVER_DISCRETE ? "memory.device=860KB " THIRD : "memory.device=180KB " THIRD,
        OVER_DISCRETE ? "memory.device=940KB memory.host=140KB memory.disk=2MB" BUFFERED
                      : SMALLER "memory.device=240KB memory.host=140KB memory.disk=2MB" BUFFERED};
    for (size_t f = 0; f < PS_ARRAY_LEN(formats); f++)
        for (uint64_t seed = 40; seed < 42; seed++) expect_same(1, formats[f], budgets, seed);
}

static void test_ranks_go_on_with_the_same_bits(void **state)
{
    (void)state;
    static const char *const budgets[] = {"memory.device=4MB memory.host=70KB memory.disk=0",
                                          OVER_DISCRETE ? "memory.device=900KB memory.host=400KB memory.disk=2MB"
                                                        : "memory.device=360KB memory.host=400KB memory.disk=2MB",
                                          OVER_DISCRETE
                                              ? "memory.device=900KB memory.host=160KB memory.disk=2MB" BUFFERED
                                              : "memory.device=360KB memory.host=160KB memory.disk=2MB" BUFFERED};
    for (int n = 2; n <= (OVER_DISCRETE ? 2 : RANKS_MAX); n++)
        for (size_t f = 0; f < 2; f++) expect_same(n, formats[f], budgets, 50);
}

/* ---- a small client, in full ---- */

enum { A, LONG, STILL, OUTSIDE_STEP, SMALL };

static const int64_t small_sizes[SMALL] = {700, 9000, 300, 40};
static const char *const small_names[SMALL] = {"a", "long", "still", "aside"};

static ps_client *small_client(const char *changes)
{
    ps_client *c = client_of(changes);
    int32_t n;
    for (int32_t t = 0; t < SMALL; t++)
        assert_ok(add_tensor(c, small_names[t], small_sizes[t], PS_DTYPE_F32, t == STILL, t == OUTSIDE_STEP, &n));
    if (OVER_DISCRETE) assert_ok(add_tensor(c, "gradients", LARGEST, PS_DTYPE_F32, 0, 1, &gradients_at));
    assert_ok(ps_client_begin(c));
    return c;
}

/* A forward pass, in which updates are carried out that wait, and gradients of all. */
static void give_all(ps_client *c, int step)
{
    for (int32_t t = 0; t < SMALL; t++) {
        assert_ok(ps_client_moment(c, PS_CLIENT_FORWARD, small_names[t], 0));
        (void)pinned(c, t, PS_CLIENT_PARAM, PS_CLIENT_READ);
        ps_client_unpin(c, t, PS_CLIENT_PARAM);
    }
    assert_ok(ps_client_moment(c, PS_CLIENT_BACKWARD, "loss", 0));
    for (int32_t t = 0; t < SMALL; t++) {
        if (t == STILL) continue;
        for (int64_t i = 0; i < small_sizes[t]; i++) gradient[i] = drawn((uint64_t)(900 + 10 * step + t), i);
        give_gradient(c, t, gradient, small_sizes[t], 0);
    }
}

static void train_small(ps_client *c, int first, int n)
{
    for (int step = first; step < first + n; step++) {
        give_all(c, step);
        (void)stepped(c);
    }
}

/* Of all values and states. */
static uint64_t hash_of_small(ps_client *c)
{
    uint64_t hash = 0;
    for (int32_t t = 0; t < SMALL; t++)
        for (int state = -1; state < 2; state++) {
            const char *name = state < 0 ? NULL : ps_client_get_state_name(c, state);
            assert_ok(ps_client_read_state(c, t, name, 0, small_sizes[t], buffer));
            hash = XXH3_64bits_withSeed(buffer, (size_t)small_sizes[t] * sizeof *buffer, hash);
        }
    return hash;
}

#define SMALL_BUDGETS                                                                                                  \
    (OVER_DISCRETE ? "memory.device=900KB memory.host=140KB memory.disk=4MB bf16.enabled=true"                         \
                   : "memory.device=120KB memory.host=60KB memory.disk=4MB bf16.enabled=true")

static void test_what_is_not_a_tensor(void **state)
{
    (void)state;
    static const char extra[] = "of this rank";
    ps_client *c = small_client(SMALL_BUDGETS);
    assert_ok(ps_client_join_group(c, A, 1));
    assert_ok(ps_client_set_group(c, 1, &(ps_client_group){sizeof(ps_client_group), 0.5, 0.25, 0.5, -1, -1}));
    train_small(c, 0, 3);
    const uint64_t hash = hash_of_small(c);
    const ps_client_checkpoint what = {.struct_size = sizeof what,
                                       .tag = "with.all_of-it",
                                       .config_json = "{\"model_type\": \"other\"}",
                                       .caller_json = "{\"at\": 7}",
                                       .extra = extra,
                                       .extra_bytes = sizeof extra};
    ps_checkpoint_info info = {.struct_size = sizeof info};
    assert_ok(ps_client_save_checkpoint(c, checkpoints, &what, &info));
    assert_string_equal(info.name, "with.all_of-it");
    assert_int_equal(info.step, 3);
    ps_client_destroy(c);

    c = small_client(SMALL_BUDGETS);
    assert_int_equal(ps_client_load_checkpoint(c, checkpoints, NULL), PS_EINVAL); /* another number of groups */
    assert_non_null(strstr(ps_last_error(), "2 groups of parameters"));
    assert_ok(ps_client_join_group(c, A, 1));
    ps_client_loaded found = {.struct_size = sizeof found};
    assert_ok(ps_client_load_checkpoint(c, checkpoints, &found));
    assert_true(hash_of_small(c) == hash);
    assert_int_equal(found.step, 3);
    assert_int_equal(info_of(c).n_steps, 3);
    assert_string_equal(found.caller_json, "{\n  \"at\": 7\n}");
    char *text;
    int64_t n;
    assert_ok(ps_file_read_all(found.extra_path, 100, &text, &n));
    assert_int_equal(n, sizeof extra);
    assert_memory_equal(text, extra, sizeof extra);
    ps_mem_free(text);
    ps_client_group group = {.struct_size = sizeof group};
    assert_ok(ps_client_get_group(c, 1, &group));
    assert_true(group.learning_rate == 0.5 && group.weight_decay == 0.25 && group.beta1 == 0.5);
    assert_true(group.beta2 == 0.999 && group.eps == 1e-8);
    ps_free(found.path);
    ps_free(found.caller_json);
    ps_free(found.extra_path);
    ps_client_destroy(c);
    remove_checkpoints();
    expect_nothing_left();
}

static void test_refused(void **state)
{
    (void)state;
    ps_client *c = small_client(SMALL_BUDGETS);
    ps_client_checkpoint what = {.struct_size = sizeof what};
    give_all(c, 0);
    assert_int_equal(ps_client_begin_checkpoint(c, checkpoints, NULL), PS_ESTATE);
    assert_int_equal(ps_client_load_checkpoint(c, checkpoints, NULL), PS_ESTATE);
    assert_ok(ps_client_drop_gradients(c, -1));
    assert_int_equal(ps_client_load_checkpoint(c, checkpoints, NULL), PS_EIO);
    assert_int_equal(ps_client_finish_checkpoint(c, NULL), PS_ESTATE);
    what.extra_bytes = -1;
    assert_int_equal(ps_client_begin_checkpoint(c, checkpoints, &what), PS_EINVAL);
    what.extra_bytes = 0;
    static const char *const tags[] = {
        "", ".hidden", "a/b", "latest", "-x", "twelve twelve", "a-name-of-thirty-two-characters--", "step-000500"};
    for (size_t i = 0; i < PS_ARRAY_LEN(tags); i++) {
        what.tag = tags[i];
        assert_int_equal(ps_client_begin_checkpoint(c, checkpoints, &what), PS_EINVAL);
    }
    what.tag = NULL;
    static const char *const texts[] = {"", "[]", "{", "{} {}"};
    for (size_t i = 0; i < PS_ARRAY_LEN(texts); i++) {
        what.config_json = texts[i];
        assert_int_equal(ps_client_begin_checkpoint(c, checkpoints, &what), PS_EINVAL);
        what.config_json = NULL;
        what.caller_json = texts[i];
        assert_int_equal(ps_client_begin_checkpoint(c, checkpoints, &what), PS_EINVAL);
        what.caller_json = NULL;
    }
    assert_int_equal(temp_folder_entries(&folder, 0), 0); /* no folder was made */
    ps_client_destroy(c);
    expect_nothing_left();
}

/* Destroyed during a save: there is no checkpoint of it, and nothing else of it. */
static void test_given_up(void **state)
{
    (void)state;
    for (int buffered = 0; buffered < 2; buffered++) {
        char changes[192];
        snprintf(changes, sizeof changes, "%s%s", SMALL_BUDGETS,
                 buffered ? " train.save_interval=1 memory.save_buffer=16KB" : "");
        ps_client *c = small_client(changes);
        train_small(c, 0, 1);
        assert_ok(ps_client_begin_checkpoint(c, checkpoints, NULL));
        assert_false(ps_client_checkpoint_is_done(c));
        ps_client_destroy(c);
        char *path;
        assert_ok(ps_checkpoint_find(checkpoints, &path, NULL));
        assert_null(path);
        assert_int_equal(rmdir(checkpoints), 0); /* it is empty */
    }
    expect_nothing_left();
}

/* In fp16, of a step that is skipped: updates that wait change nothing, and what comes after them is not saved. */
static void test_saved_after_a_skipped_step(void **state)
{
    (void)state;
    char changes[192];
    snprintf(changes, sizeof changes, "%s fp16.enabled=true bf16.enabled=false fp16.initial_scale_power=2",
             SMALL_BUDGETS);
    ps_client *c = small_client(changes);
    train_small(c, 0, 2);
    give_all(c, 2);
    gradient[5] = INFINITY;
    give_gradient(c, A, gradient, small_sizes[A], 0);
    const ps_client_step_info info = stepped(c);
    assert_true(info.is_skipped && (OVER_DISCRETE || info.n_deferred > 0));
    assert_ok(ps_client_begin_checkpoint(c, checkpoints, NULL));
    train_small(c, 3, 2);
    assert_ok(ps_client_finish_checkpoint(c, NULL));
    ps_client_destroy(c);

    c = small_client(changes);
    train_small(c, 0, 2);
    const uint64_t hash = hash_of_small(c);
    assert_ok(ps_client_load_checkpoint(c, checkpoints, NULL));
    assert_true(hash_of_small(c) == hash);
    ps_client_destroy(c);
    remove_checkpoints();
    expect_nothing_left();
}

/* All chunks are handed out when a save begins, and tensors that are apart too. */
static void test_saved_while_all_is_held(void **state)
{
    (void)state;
    for (int buffered = 0; buffered < 2; buffered++) {
        char changes[192];
        snprintf(changes, sizeof changes, "memory.device=8MB memory.host=1MB memory.disk=0%s",
                 buffered ? " train.save_interval=1 memory.save_buffer=16KB" : "");
        ps_client *c = small_client(changes);
        for (int32_t t = 0; t < OUTSIDE_STEP; t++) (void)pinned(c, t, PS_CLIENT_PARAM, PS_CLIENT_WRITE);
        const uint64_t hash = hash_of_small(c);
        assert_ok(ps_client_begin_checkpoint(c, checkpoints, NULL));
        for (int32_t t = 0; t < OUTSIDE_STEP; t++) ps_client_unpin(c, t, PS_CLIENT_PARAM);
        train_small(c, 0, 1);
        assert_ok(ps_client_finish_checkpoint(c, NULL));
        assert_ok(ps_client_load_checkpoint(c, checkpoints, NULL));
        assert_true(hash_of_small(c) == hash);
        ps_client_destroy(c);
        remove_checkpoints();
    }
    expect_nothing_left();
}

/* Updates that wait have the count of their step. */
static void test_counts_set_while_updates_wait(void **state)
{
    (void)state;
    uint64_t hashes[2];
    for (int reads_first = 0; reads_first < 2; reads_first++) {
        ps_client *c = small_client(SMALL_BUDGETS);
        train_small(c, 0, 2);
        give_all(c, 2);
        assert_true(OVER_DISCRETE || stepped(c).n_deferred > 0);
        if (reads_first) (void)hash_of_small(c);
        for (int32_t t = 0; t < SMALL; t++) assert_ok(ps_client_set_update_count(c, t, 1));
        hashes[reads_first] = hash_of_small(c);
        ps_client_destroy(c);
    }
    assert_true(hashes[0] == hashes[1]);
    expect_nothing_left();
}

/* ---- faults ---- */

static void expect_status(ps_fault_kind kind, ps_status st, long nth)
{
    const bool is_right =
        kind == PS_FAULT_ALLOC ? st == PS_ENOMEM_HOST || st == PS_ENOMEM_DEV || st == PS_EBUDGET : st == PS_EIO;
    if (!is_right) fail_msg("fault %d, number %ld: %s: %s", (int)kind, nth, ps_status_name(st), ps_last_error());
}

/* The n-th call in a save fails, then the n-th in loading it. What failed is tried again. */
static void walk_faults(ps_fault_kind kind)
{
    int n_saves = 0, n_loads = 0, n_ended = 0;
    bool has_struck = true;
    for (long nth = 0; has_struck; nth++) {
        ps_client *c = small_client(SMALL_BUDGETS);
        train_small(c, 0, 2);
        const uint64_t hash = hash_of_small(c);
        ps_fault_arm(kind, nth, false);
        ps_status st = ps_client_save_checkpoint(c, checkpoints, NULL, NULL);
        has_struck = ps_fault_has_struck(kind);
        ps_fault_arm(kind, -1, false);
        if (st != PS_OK) {
            expect_status(kind, st, nth);
            n_saves++;
            assert_true(hash_of_small(c) == hash);
            assert_ok(ps_client_save_checkpoint(c, checkpoints, NULL, NULL));
        }
        train_small(c, 2, 1);
        ps_fault_arm(kind, nth, false);
        st = ps_client_load_checkpoint(c, checkpoints, NULL);
        has_struck = has_struck || ps_fault_has_struck(kind);
        ps_fault_arm(kind, -1, false);
        if (st != PS_OK) {
            expect_status(kind, st, nth);
            n_loads++;
            n_ended += c->is_incomplete;
            if (c->is_incomplete) assert_int_equal(ps_client_moment(c, PS_CLIENT_FORWARD, "x", 0), PS_ESTATE);
            assert_ok(ps_client_load_checkpoint(c, checkpoints, NULL));
        }
        assert_true(hash_of_small(c) == hash);
        ps_client_destroy(c);
        remove_checkpoints();
    }
    printf("fault %d: %d saves failed; %d loads, %d of them when values had been replaced\n", (int)kind, n_saves,
           n_loads, n_ended);
    assert_true(kind == PS_FAULT_READ ? n_loads > 0 : n_saves > 0);
    expect_nothing_left();
}

static void test_faults(void **state)
{
    (void)state;
    static const ps_fault_kind kinds[] = {PS_FAULT_ALLOC, PS_FAULT_READ, PS_FAULT_WRITE};
    for (size_t i = 0; i < PS_ARRAY_LEN(kinds); i++)
        if (!OVER_DISCRETE || is_my_share()) walk_faults(kinds[i]);
}

static int make_folders(void **state)
{
    const int rc = make_folder(state);
    snprintf(checkpoints, sizeof checkpoints, "%s/checkpoints", folder.path);
    return rc;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_goes_on_with_the_same_bits, note_live),
        cmocka_unit_test_setup(test_ranks_go_on_with_the_same_bits, note_live),
        cmocka_unit_test_setup(test_what_is_not_a_tensor, note_live),
        cmocka_unit_test_setup(test_refused, note_live),
        cmocka_unit_test_setup(test_given_up, note_live),
        cmocka_unit_test_setup(test_saved_after_a_skipped_step, note_live),
        cmocka_unit_test_setup(test_saved_while_all_is_held, note_live),
        cmocka_unit_test_setup(test_counts_set_while_updates_wait, note_live),
        cmocka_unit_test_setup(test_faults, note_live),
    };
    return RUN_ON_BACKENDS_IN(tests, make_folders, remove_folder);
}
