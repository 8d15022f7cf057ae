/* Checkpoints that are damaged, of another model, of several ranks, in folders with leftovers; saves that fail. */
#include "checkpoint/checkpoint_fixture.h"

#include "api/checkpoint/checkpoint_check.h"
#include "api/checkpoint/checkpoint_names.h"
#include "api/checkpoint/checkpoint_state.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/leftover.h"
#include "weights/checkpoint_folder.h"
#include "weights/safetensors.h"

#include <xxhash.h>

#define SMALL_MODEL "model.n_layer=1", "model.n_embd=12", "train.save_interval=1", "train.keep_last=2"
#define STEP "step-000002"

static work_folder work;

static ps_engine *saved_engine(ps_config **c)
{
    float losses[MAX_STEPS];
    *c = TINY(SMALL_MODEL);
    ps_engine *e = engine_of(*c);
    train_steps(e, 0, 2, losses);
    assert_ok(ps_engine_save_checkpoint(e, work.path, NULL, NULL));
    return e;
}

/* ---- damage ---- */

static void flip(const char *path, long at, int bits)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, at, SEEK_SET);
    const int c = fgetc(f);
    fseek(f, at, SEEK_SET);
    fputc(c ^ bits, f);
    fclose(f);
}

static long size_of(const char *path)
{
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return (long)info.st_size;
}

/* The weights of a checkpoint, as a copy without an engine sees them. */
static ps_status check_copied(const char *folder)
{
    ps_weight_source *s = NULL;
    ps_status st = ps_weight_source_open(folder, &s);
    if (st == PS_OK) st = ps_checkpoint_check_source(s);
    ps_weight_source_close(s);
    return st;
}

static void assert_not_copied(const char *file, const char *what, long at)
{
    const ps_status st = check_copied(work_file(work.path, STEP).text);
    if ((st != PS_EFORMAT && st != PS_EIO) || strstr(ps_last_error(), file) == NULL)
        fail_msg("%s %s at %ld: %s: %s", file, what, at, ps_status_name(st), ps_last_error());
}

static void assert_found(const char *file, const char *what, long at)
{
    const ps_status st = ps_checkpoint_check(work_file(work.path, STEP).text);
    if ((st != PS_EFORMAT && st != PS_EIO) || strstr(ps_last_error(), file) == NULL)
        fail_msg("%s %s at %ld: %s: %s", file, what, at, ps_status_name(st), ps_last_error());
}

static void assert_refused(const ps_config *c, const char *file, const char *what, long at)
{
    ps_engine *e = NULL;
    assert_ok(ps_initialize_engine(ps_model_from_config, (void *)(uintptr_t)c, 0, c, &e));
    const ps_status st = ps_engine_load_checkpoint(e, work.path, NULL);
    if (st != PS_EFORMAT && st != PS_EIO && st != PS_EINVAL)
        fail_msg("%s %s at %ld: %s", file, what, at, ps_status_name(st));
    if (strstr(ps_last_error(), file) == NULL) fail_msg("%s %s at %ld: %s", file, what, at, ps_last_error());
    ps_engine_destroy(e);
}

/* One bit of any byte: everywhere in small files and in headers, at many places in the data. */
static void test_flipped_bytes(void **state)
{
    (void)state;
    ps_config *c;
    ps_engine *e = saved_engine(&c);
    ps_engine_destroy(e);
    static const char *const names[] = {STEP "/model-0-of-1.safetensors", STEP "/optimizer-0-of-1.safetensors",
                                        STEP "/state.json", "latest"};
    static const bool is_copied[] = {true, false, true, false}; /* or needed for it */
    int n_flips = 0;
    for (size_t i = 0; i < PS_ARRAY_LEN(names); i++) {
        const work_path path = work_file(work.path, names[i]);
        const long n = size_of(path.text);
        const long stride = n < 100 ? 1 : n / 97 + 1;
        for (long at = 0; at < n; at += at < 16 || at + 48 > n ? 1 : stride, n_flips++) {
            const int bits = 1 << (at * 7 % 8);
            flip(path.text, at, bits);
            const char *file = strrchr(names[i], '/') != NULL ? strrchr(names[i], '/') + 1 : names[i];
            assert_refused(c, file, "flipped", at);
            if (is_copied[i]) assert_not_copied(file, "flipped", at);
            if (i < 3) assert_found(file, "flipped", at);
            flip(path.text, at, bits);
        }
    }
    printf("%d flipped bits, each found and its file named\n", n_flips);
    assert_ok(check_copied(work_file(work.path, STEP).text));
    assert_ok(ps_checkpoint_check(work_file(work.path, STEP).text));
    e = engine_of(c);
    assert_ok(ps_engine_load_checkpoint(e, work.path, NULL));
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

static void test_cut_missing_exchanged(void **state)
{
    (void)state;
    ps_config *c;
    ps_engine *e = saved_engine(&c);
    ps_engine_destroy(e);
    static const char *const names[] = {"model-0-of-1.safetensors", "optimizer-0-of-1.safetensors", "state.json"};
    for (size_t i = 0; i < PS_ARRAY_LEN(names); i++) {
        char from[320], command[1024];
        snprintf(from, sizeof from, "%s/" STEP "/%s", work.path, names[i]);
        static const char *const damages[] = {"rm", "truncate -s -1", "truncate -s 20", "truncate -s 0", "tee -a"};
        for (size_t k = 0; k < PS_ARRAY_LEN(damages); k++) {
            snprintf(command, sizeof command, "cp %s %s/kept", from, work.path);
            assert_int_equal(system(command), 0);
            snprintf(command, sizeof command, "echo | %s %s >%s/out", damages[k], from, work.path);
            assert_int_equal(system(command), 0);
            assert_refused(c, i == 2 && k == 0 ? STEP : names[i], damages[k], 0);
            assert_found(names[i], damages[k], 0);
            if (i == 0 && k == 0)
                assert_not_copied("no weights in this folder", damages[k], 0);
            else if (i == 1 || k == 0) /* a state that is missing has no hash to compare with */
                assert_ok(check_copied(work_file(work.path, STEP).text));
            else
                assert_not_copied(names[i], damages[k], 0);
            snprintf(command, sizeof command, "mv %s/kept %s", work.path, from);
            assert_int_equal(system(command), 0);
        }
    }
    /* the model's file of another step, valid in itself and of the same size */
    char command[1024];
    float losses[MAX_STEPS];
    e = engine_of(c);
    assert_ok(ps_engine_load_checkpoint(e, work.path, NULL));
    train_steps(e, 2, 3, losses);
    assert_ok(ps_engine_save_checkpoint(e, work.path, NULL, NULL));
    ps_engine_destroy(e);
    snprintf(command, sizeof command, "cp %s/" STEP "/%s %s/step-000003/", work.path, names[0], work.path);
    assert_int_equal(system(command), 0);
    assert_refused(c, names[0], "of another step", 0);
    assert_non_null(strstr(ps_last_error(), "xxh3"));
    assert_int_equal(check_copied(work_file(work.path, "step-000003").text), PS_EFORMAT);
    assert_non_null(strstr(ps_last_error(), "xxh3"));
    ps_config_destroy(c);
}

/* Found before anything is replaced: the engine can be used. Found later: it is failed for good. */
static void test_after_refusal(void **state)
{
    (void)state;
    float losses[MAX_STEPS];
    ps_config *c;
    ps_engine *e = saved_engine(&c);
    const work_path model = work_file(work.path, STEP "/model-0-of-1.safetensors");
    const work_path json = work_file(work.path, STEP "/state.json");
    flip(json.text, 100, 1);
    assert_int_equal(ps_engine_load_checkpoint(e, work.path, NULL), PS_EFORMAT);
    train_steps(e, 2, 3, losses);
    flip(json.text, 100, 1);
    flip(model.text, size_of(model.text) - 2, 1);
    assert_int_equal(ps_engine_load_checkpoint(e, work.path, NULL), PS_EFORMAT);
    assert_int_equal(ps_engine_save_checkpoint(e, work.path, NULL, NULL), PS_ESTATE);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

/* ---- another run ---- */

static void test_other_run(void **state)
{
    (void)state;
    ps_config *c;
    ps_engine *e = saved_engine(&c);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    static const struct {
        const char *change, *says;
    } cases[] = {{"train.seed=8", "train.seed = 7"},
                 {"train_micro_batch_size_per_gpu=1", "train_micro_batch_size_per_gpu = 2"},
                 {"gradient_accumulation_steps=2", "gradient_accumulation_steps = 1"},
                 {"data.sequence_length=8", "data.sequence_length = 16"},
                 {"model.n_layer=2", "model.num_hidden_layers = 1"},
                 {"model.n_embd=24", "model.hidden_size = 12"},
                 {"model.n_head=2", "model.num_attention_heads = 3"},
                 {"model.activation_function=gelu", "model.hidden_act = \"gelu_new\""},
                 {"model.vocab_size=150", "model.vocab_size = 131"}};
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        c = TINY(SMALL_MODEL, cases[i].change);
        e = engine_of(c);
        assert_int_equal(ps_engine_load_checkpoint(e, work.path, NULL), PS_EINVAL);
        if (strstr(ps_last_error(), cases[i].says) == NULL) fail_msg("%s: %s", cases[i].change, ps_last_error());
        ps_engine_destroy(e);
        ps_config_destroy(c);
    }
    static const char *const allowed[] = {"model.attn_pdrop=0.5",  "train.steps=7",   "optimizer.params.lr=0.5",
                                          "scheduler.type=linear", "train.threads=1", "fp16.enabled=true"};
    for (size_t i = 0; i < PS_ARRAY_LEN(allowed); i++) {
        c = TINY(SMALL_MODEL, allowed[i]);
        e = engine_of(c);
        assert_ok(ps_engine_load_checkpoint(e, work.path, NULL));
        ps_engine_destroy(e);
        ps_config_destroy(c);
    }
    c = TINY(SMALL_MODEL);
    e = engine_of(c);
    assert_int_equal(ps_engine_load_checkpoint(e, "/tmp", NULL), PS_EIO);
    assert_non_null(strstr(ps_last_error(), "neither"));
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

/* ---- several ranks ---- */

/* The tensors of `from` whose place is `rank` modulo n, as a file of their own. */
static ps_checkpoint_file write_share(const char *from, const char *to, int rank, int n)
{
    ps_safetensors *in = NULL;
    ps_safetensors_writer *out = NULL;
    assert_ok(ps_safetensors_open(from, &in));
    ps_safetensor mine[64];
    int n_mine = 0;
    for (int i = rank; i < ps_safetensors_count(in); i += n) mine[n_mine++] = *ps_safetensors_get(in, i);
    assert_ok(ps_safetensors_writer_open(to, mine, n_mine, NULL, 0, &out));
    for (int i = 0; i < n_mine; i++) {
        char *data = malloc((size_t)mine[i].n_bytes);
        assert_ok(ps_safetensors_read(in, &mine[i], 0, data, mine[i].n_bytes));
        assert_ok(ps_safetensors_writer_put(out, i, 0, data, mine[i].n_bytes));
        free(data);
    }
    ps_checkpoint_file f;
    assert_ok(ps_safetensors_writer_xxh3(out, &f.xxh3, &f.n_bytes));
    assert_ok(ps_safetensors_writer_commit(out));
    ps_safetensors_close(in);
    char *all = NULL;
    int64_t n_all;
    assert_ok(ps_file_read_all(to, 1 << 24, &all, &n_all));
    assert_int_equal(n_all, f.n_bytes);
    assert_true(XXH3_64bits(all, (size_t)n_all) == f.xxh3);
    ps_mem_free(all);
    return f;
}

static void read_state(const char *path, ps_checkpoint_state *s)
{
    char *text = NULL;
    int64_t n;
    assert_ok(ps_file_read_all(path, 1 << 24, &text, &n));
    assert_ok(ps_checkpoint_state_parse(text, n, path, s));
    ps_mem_free(text);
}

static void write_state(const char *path, const ps_checkpoint_state *s)
{
    char *text = NULL;
    int64_t n;
    assert_ok(ps_checkpoint_state_render(s, &text, &n));
    assert_ok(ps_file_write_all(path, text, n));
    ps_mem_free(text);
}

/* What three ranks saved is the union of their files. */
static void test_union_of_ranks(void **state)
{
    (void)state;
    enum { RANKS = 3 };
    float losses[MAX_STEPS];
    ps_config *c = TINY(SMALL_MODEL, "gradient_accumulation_steps=3");
    ps_engine *e = engine_of(c);
    train_steps(e, 0, 2, losses);
    assert_ok(ps_engine_save_checkpoint(e, work.path, NULL, NULL));
    train_steps(e, 2, 4, losses);
    const uint64_t hash = hash_of(e);
    ps_engine_destroy(e);
    const work_path three = work_file(work.path, "three"), json = work_file(three.text, "state.json");
    assert_int_equal(mkdir(three.text, 0777), 0);
    ps_checkpoint_state s;
    read_state(work_file(work.path, STEP "/state.json").text, &s);
    ps_mem_free(s.files);
    ps_mem_free(s.extra);
    s.n_ranks = RANKS;
    s.accumulation = 1;
    s.micro_batches = s.steps;
    assert_ok(ps_mem_alloc(RANKS * PS_CHECKPOINT_PART_COUNT, sizeof *s.files, &s.files));
    assert_ok(ps_mem_alloc(RANKS, sizeof *s.extra, &s.extra));
    for (int rank = 0; rank < RANKS; rank++) s.extra[rank].n_bytes = -1;
    for (int rank = 0; rank < RANKS; rank++)
        for (int part = 0; part < PS_CHECKPOINT_PART_COUNT; part++) {
            char from[64] = STEP "/", name[PS_CHECKPOINT_FILE_NAME_MAX];
            strcat(from, ps_checkpoint_file_name((ps_checkpoint_part)part, 0, 1, name));
            s.files[rank * PS_CHECKPOINT_PART_COUNT + part] = write_share(
                work_file(work.path, from).text,
                work_file(three.text, ps_checkpoint_file_name((ps_checkpoint_part)part, rank, RANKS, name)).text, rank,
                RANKS);
        }
    write_state(json.text, &s);
    assert_ok(check_copied(three.text));
    const work_path last = work_file(three.text, "model-2-of-3.safetensors");
    flip(last.text, size_of(last.text) - 2, 1);
    assert_int_equal(check_copied(three.text), PS_EFORMAT);
    assert_non_null(strstr(ps_last_error(), "model-2-of-3.safetensors: damaged"));
    flip(last.text, size_of(last.text) - 2, 1);
    e = engine_of(c);
    assert_ok(ps_engine_load_checkpoint(e, three.text, NULL));
    train_steps(e, 2, 4, losses);
    assert_true(hash_of(e) == hash);
    ps_engine_destroy(e);
    /* rank 1's tensors twice, so rank 2's are missing */
    s.files[4] = write_share(work_file(work.path, STEP "/model-0-of-1.safetensors").text,
                             work_file(three.text, "model-2-of-3.safetensors").text, 1, RANKS);
    write_state(json.text, &s);
    e = engine_of(c);
    assert_int_equal(ps_engine_load_checkpoint(e, three.text, NULL), PS_EFORMAT);
    assert_non_null(strstr(ps_last_error(), "model-2-of-3.safetensors"));
    assert_non_null(strstr(ps_last_error(), "another rank already"));
    ps_engine_destroy(e);
    ps_checkpoint_state_deinit(&s);
    ps_config_destroy(c);
}

/* ---- the folder ---- */

static void test_keep_last(void **state)
{
    (void)state;
    float losses[MAX_STEPS];
    ps_config *c = TINY(SMALL_MODEL, "train.keep_last=2");
    ps_engine *e = engine_of(c);
    for (int step = 0; step < 5; step++) {
        train_steps(e, step, step + 1, losses);
        assert_ok(ps_engine_save_checkpoint(e, work.path, NULL, NULL));
    }
    assert_true(work_has(work.path, "step-000004") && work_has(work.path, "step-000005"));
    assert_int_equal(work_count(work.path), 3);
    /* taken back to step 4: what was saved of the abandoned step 5 goes first */
    assert_ok(ps_engine_load_checkpoint(e, work_file(work.path, "step-000004").text, NULL));
    assert_ok(ps_engine_save_checkpoint(e, work.path, NULL, NULL)); /* replaces itself */
    assert_int_equal(work_count(work.path), 3);
    train_steps(e, 4, 5, losses);
    assert_ok(ps_engine_save_checkpoint(e, work.path, NULL, NULL));
    train_steps(e, 5, 6, losses);
    assert_ok(ps_engine_save_checkpoint(e, work.path, NULL, NULL));
    assert_ok(ps_engine_load_checkpoint(e, work_file(work.path, "step-000005").text, NULL));
    train_steps(e, 5, 6, losses);
    assert_ok(ps_engine_save_checkpoint(e, work.path, NULL, NULL));
    assert_true(work_has(work.path, "step-000005") && work_has(work.path, "step-000006"));
    assert_int_equal(work_count(work.path), 3);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    /* a later step of an abandoned future counts as older than all */
    c = TINY(SMALL_MODEL, "train.keep_last=1");
    e = engine_of(c);
    assert_ok(ps_engine_load_checkpoint(e, work_file(work.path, "step-000005").text, NULL));
    assert_ok(ps_engine_save_checkpoint(e, work.path, NULL, NULL));
    assert_true(work_has(work.path, "step-000005"));
    assert_int_equal(work_count(work.path), 2);
    assert_ok(ps_engine_load_checkpoint(e, work.path, NULL));
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

/* Leftovers of dead processes go; those of living ones, and what is not ours, stay. */
static void test_leftovers(void **state)
{
    (void)state;
    static const char *const kept[] = {".tmp-save-0123456789abcdef-999999999-1-step-000009", /* of another machine */
                                       ".tmp-save-x-step-000009", ".tmp-savegame", "notes"};
    static const char *const prefixes[] = {".tmp-save-", ".tmp-delete-"};
    char gone[2][128], mark[PS_LEFTOVER_MARK_MAX];
    /* of this machine: another process than any */
    for (int i = 0; i < 2; i++)
        snprintf(gone[i], sizeof gone[i], "%s%.16s-999999999-1-step-000009", prefixes[i], ps_leftover_mark(mark));
    for (size_t i = 0; i < PS_ARRAY_LEN(gone); i++) {
        assert_int_equal(mkdir(work_file(work.path, gone[i]).text, 0777), 0);
        assert_ok(ps_file_write_all(work_file(work_file(work.path, gone[i]).text, "part").text, "x", 1));
    }
    for (size_t i = 0; i < PS_ARRAY_LEN(kept); i++)
        assert_int_equal(mkdir(work_file(work.path, kept[i]).text, 0777), 0);
    char latest[128];
    snprintf(latest, sizeof latest, "latest.tmp-%.16s-999999999-1-0", mark);
    assert_ok(ps_file_write_all(work_file(work.path, latest).text, "x", 1));
    ps_checkpoint_folder_clean(work.path);
    assert_int_equal(work_count(work.path), (int)PS_ARRAY_LEN(kept));
    for (size_t i = 0; i < PS_ARRAY_LEN(kept); i++) assert_true(work_has(work.path, kept[i]));
    ps_checkpoint_folder_clean("/nowhere/at/all");
    /* given up in the middle: nothing is left */
    float losses[MAX_STEPS];
    ps_config *c = TINY(SMALL_MODEL);
    ps_engine *e = engine_of(c);
    train_steps(e, 0, 1, losses);
    assert_ok(ps_engine_begin_checkpoint(e, work.path, NULL));
    ps_engine_destroy(e);
    ps_config_destroy(c);
    assert_int_equal(work_count(work.path), (int)PS_ARRAY_LEN(kept));
}

/* ---- failures of the system ---- */

static uint64_t load_fresh(ps_config *c)
{
    ps_engine *e = engine_of(c);
    assert_ok(ps_engine_load_checkpoint(e, work.path, NULL));
    const uint64_t hash = hash_of(e);
    ps_engine_destroy(e);
    return hash;
}

static bool is_of_device(ps_fault_kind kind)
{
    return kind == PS_FAULT_DEVICE || kind == PS_FAULT_LOST;
}

static ps_status status_of(ps_fault_kind kind)
{
    return kind == PS_FAULT_ALLOC ? PS_ENOMEM_HOST : is_of_device(kind) ? PS_EDEVICE : PS_EIO;
}

/* The n-th call of the kind fails while a save is under way: an error, the checkpoint of before stays, and, but after a
 * failure of the device, training continues and a later save succeeds. */
static void walk_save(ps_fault_kind kind, bool persistent, const char *buffer)
{
    long n = 0, failures = 0;
    for (bool done = false; !done; n++) {
        work_remove(work.path);
        assert_int_equal(mkdir(work.path, 0777), 0);
        float losses[MAX_STEPS];
        ps_config *c = TINY(SMALL_MODEL, "train.keep_last=1", buffer);
        const int64_t live = ps_mem_live_bytes();
        ps_engine *e = engine_of(c);
        train_steps(e, 0, 1, losses);
        const uint64_t before = hash_of(e);
        assert_ok(ps_engine_save_checkpoint(e, work.path, NULL, NULL));
        train_steps(e, 1, 2, losses);
        const uint64_t after = hash_of(e);
        ps_fault_arm(kind, n, persistent);
        const ps_status st = ps_engine_save_checkpoint(e, work.path, NULL, NULL);
        const bool struck = ps_fault_has_struck(kind);
        ps_fault_arm(kind, -1, false);
        done = !struck;
        failures += st != PS_OK;
        const bool complete = strstr(ps_last_error(), "is complete") != NULL;
        /* the device may be lost at what is not waited for */
        if (struck && st == PS_OK && !is_of_device(kind)) fail_msg("fault %ld of kind %d went unnoticed", n, (int)kind);
        if (st != PS_OK && st != status_of(kind)) fail_msg("fault %ld: %s: %s", n, ps_status_name(st), ps_last_error());
        const bool is_alive = done || !is_of_device(kind);
        if (!is_alive)
            ps_engine_destroy(e); /* a GPU that is lost is so to all engines of the process, as long as it is open */
        const uint64_t found = load_fresh(c);
        if (found != (st == PS_OK ? after : before) && !(found == after && (complete || n > 0)))
            fail_msg("fault %ld of kind %d: neither of the two checkpoints", n, (int)kind);
        if (is_alive) {
            assert_true(hash_of(e) == after);
            assert_ok(ps_engine_save_checkpoint(e, work.path, NULL, NULL));
            assert_true(load_fresh(c) == after);
            assert_int_equal(work_count(work.path), 2);
            ps_engine_destroy(e);
        }
        assert_int_equal(ps_mem_live_bytes(), live);
        ps_config_destroy(c);
    }
    printf("save, kind %d, %s, %s: %ld failures\n", (int)kind, persistent ? "from then on" : "once", buffer, failures);
    assert_true(failures > 0);
}

static void test_failing_saves(void **state)
{
    (void)state;
    static const char *const buffers[] = {"memory.save_buffer=0", "memory.save_buffer=auto"};
    for (size_t i = 0; i < PS_ARRAY_LEN(buffers); i++)
        for (int persistent = 0; persistent < 2; persistent++) {
            if (is_my_share_of(9)) walk_save(PS_FAULT_WRITE, persistent, buffers[i]);
            if (is_my_share_of(9)) walk_save(PS_FAULT_ALLOC, persistent, buffers[i]);
            if (OVER_DISCRETE && is_my_share_of(9)) walk_save(PS_FAULT_DEVICE, persistent, buffers[i]);
            if (OVER_DISCRETE && is_my_share_of(9)) walk_save(PS_FAULT_LOST, persistent, buffers[i]);
        }
}

static void walk_load(ps_fault_kind kind, bool persistent)
{
    long n = 0, failures = 0;
    ps_config *c;
    ps_engine *e = saved_engine(&c);
    const uint64_t hash = hash_of(e);
    ps_engine_destroy(e);
    for (bool done = false; !done; n++) {
        const int64_t live = ps_mem_live_bytes();
        e = engine_of(c);
        ps_fault_arm(kind, n, persistent);
        const ps_status st = ps_engine_load_checkpoint(e, work.path, NULL);
        done = !ps_fault_has_struck(kind);
        ps_fault_arm(kind, -1, false);
        failures += st != PS_OK;
        if (!done && st != status_of(kind) && !(st == PS_OK && is_of_device(kind)) &&
            !(kind == PS_FAULT_ALLOC && st == PS_ENOMEM_DEV))
            fail_msg("fault %ld: %s: %s", n, ps_status_name(st), ps_last_error());
        if (done) assert_true(st == PS_OK && hash_of(e) == hash);
        ps_engine_destroy(e);
        assert_int_equal(ps_mem_live_bytes(), live);
    }
    printf("load, kind %d, %s: %ld failures\n", (int)kind, persistent ? "from then on" : "once", failures);
    assert_true(failures > 0);
    ps_config_destroy(c);
}

static void test_failing_loads(void **state)
{
    (void)state;
    for (int persistent = 0; persistent < 2; persistent++) {
        if (is_my_share_of(9)) walk_load(PS_FAULT_READ, persistent);
        if (is_my_share_of(9)) walk_load(PS_FAULT_ALLOC, persistent);
        if (OVER_DISCRETE && is_my_share_of(9)) walk_load(PS_FAULT_DEVICE, persistent);
        if (OVER_DISCRETE && is_my_share_of(9)) walk_load(PS_FAULT_LOST, persistent);
    }
}

static void walk_copy(ps_fault_kind kind)
{
    ps_config *c;
    ps_engine_destroy(saved_engine(&c));
    const work_path folder = work_file(work.path, STEP);
    long n = 0;
    for (bool done = false; !done; n++) {
        const int64_t live = ps_mem_live_bytes();
        ps_fault_arm(kind, n, false);
        const ps_status st = check_copied(folder.text);
        done = !ps_fault_has_struck(kind);
        ps_fault_arm(kind, -1, false);
        if (st != (done ? PS_OK : status_of(kind)))
            fail_msg("fault %ld: %s: %s", n, ps_status_name(st), ps_last_error());
        assert_int_equal(ps_mem_live_bytes(), live);
    }
    assert_true(n > 5);
    ps_config_destroy(c);
}

static void test_failing_copies(void **state)
{
    (void)state;
    walk_copy(PS_FAULT_READ);
    walk_copy(PS_FAULT_ALLOC);
}

static int set_up(void **state)
{
    (void)state;
    work = work_make();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    work_remove(work.path);
    assert_int_equal(ps_mem_live_bytes(), 0);
    return 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest files[] = {
        TEST(test_flipped_bytes), TEST(test_cut_missing_exchanged), TEST(test_after_refusal),
        TEST(test_other_run),     TEST(test_union_of_ranks),        TEST(test_keep_last),
        TEST(test_leftovers),     TEST(test_failing_copies),
    };
    const struct CMUnitTest failures[] = {
        TEST(test_failing_saves),
        TEST(test_failing_loads),
    };
    over.checks_order = false; /* without memory it gives up, and says so */
    const int n_failed = OVER_DISCRETE ? 0 : cmocka_run_group_tests(files, NULL, NULL);
    return n_failed + RUN_ON_BACKENDS(failures);
}
