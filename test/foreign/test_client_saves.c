/* test_client_saves.c - programs of client_walk.h save while they train, write to what is being saved, and go back: in the
 * same client, or in a new one with other budgets and other chunks. What they see is what a program sees that never
 * saved. Then what a checkpoint holds beside tensors, and other numbers of ranks. */
#include <fcntl.h>

#include "base/file.h"
#include "base/folder.h"
#include "checkpoint/checkpoint_check.h"
#include "foreign/client_walk.h"

enum { REWINDS = 3 };

/* Saves of one program. */
typedef struct saves {
    ps_rng_key dice; /* other than the walk's, which must not notice */
    uint64_t thrown;
    const char *changes[3]; /* of clients that go on from a checkpoint, in turn */
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
        if (way == 0) assert_ok(ps_client_write(w->client, t, NULL, at, n, buffer));
        if (way == 1) assert_ok(ps_client_write(w->client, t, "exp_avg_sq", at, n, buffer));
        if (way < 2 || (way == 3 && w->n_ranks > 1)) continue;
        const ps_client_what what = way == 2 ? PS_CLIENT_PARAM : PS_CLIENT_MASTER;
        begin_moment(w, PS_CLIENT_ASIDE, t);
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
    for (int32_t t = 0; t < TENSORS; t++) assert_int_equal(ps_client_get_steps(client, t), arrays[t].steps);
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
        if (OVER_APART && !is_my_share()) continue;
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
    static const char *const budgets[] = {ALL, OVER_APART ? "memory.device=860KB " THIRD : "memory.device=180KB " THIRD,
                                          OVER_APART ? "memory.device=940KB memory.host=140KB memory.disk=2MB" BUFFERED
                                                     : SMALLER
                                              "memory.device=240KB memory.host=140KB memory.disk=2MB" BUFFERED};
    for (size_t f = 0; f < PS_ARRAY_LEN(formats); f++)
        for (uint64_t seed = 40; seed < 43; seed++) expect_same(1, formats[f], budgets, seed);
}

static void test_ranks_go_on_with_the_same_bits(void **state)
{
    (void)state;
    static const char *const budgets[] = {"memory.device=4MB memory.host=70KB memory.disk=0",
                                          OVER_APART ? "memory.device=900KB memory.host=400KB memory.disk=2MB"
                                                     : "memory.device=360KB memory.host=400KB memory.disk=2MB",
                                          OVER_APART
                                              ? "memory.device=900KB memory.host=160KB memory.disk=2MB" BUFFERED
                                              : "memory.device=360KB memory.host=160KB memory.disk=2MB" BUFFERED};
    for (int n = 2; n <= (OVER_APART ? 2 : RANKS_MAX); n++)
        for (size_t f = 0; f < 2; f++) expect_same(n, formats[f], budgets, 50);
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
    };
    return RUN_ON_BACKENDS_IN(tests, make_folders, remove_folder);
}
