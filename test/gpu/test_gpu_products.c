/* test_gpu_products.c - the choice of algorithms for matrix products by the engine on CUDA: measured before the first step
 * and never in one, kept in a file, the same on all ranks, stored in checkpoints. Over the fake driver only, whose
 * library's algorithms differ in their bits: who computes with another than was chosen is found out by the weights. */
#include "base/fault.h"
#include "base/file.h"
#include "checkpoint/checkpoint_fixture.h"
#include "engine/ranks_fixture.h"

enum { STEPS = 2, AT = 1 };

/* In f32 other sums are other bits at once. */
#define SMALL "bf16.enabled=false", "model.n_layer=1", "model.n_embd=12"
#define MEASURED "train.product_algorithms=measured"
#define FIRST "train.product_algorithms=first"

static work_folder cache, saved;

/* ---- what algorithms are said to take ---- */

static double third_is_fastest(int ordinal, uint64_t what, int algorithm)
{
    (void)ordinal, (void)what;
    return algorithm == 3 ? 50 : 100 + algorithm;
}

static double fifth_is_fastest(int ordinal, uint64_t what, int algorithm)
{
    (void)ordinal, (void)what;
    return algorithm == 5 ? 50 : 100 + algorithm;
}

/* 1 % faster than the first: not worth it. */
static double third_is_hardly_faster(int ordinal, uint64_t what, int algorithm)
{
    (void)ordinal, (void)what;
    return algorithm == 3 ? 99 : 100;
}

static double each_gpu_has_another(int ordinal, uint64_t what, int algorithm)
{
    (void)what;
    return algorithm == 3 + 2 * ordinal ? 50 : 100;
}

static double each_product_has_another(int ordinal, uint64_t what, int algorithm)
{
    (void)ordinal;
    return (uint64_t)algorithm == ((what * 0x9e3779b97f4a7c15) >> 40) % FAKE_CUBLASLT_ALGORITHMS ? 50 : 100;
}

static void begin_with(fake_options o, fake_cublaslt_seconds seconds)
{
    assert_true(stand_in_end());
    o.page_bytes = ASYNC_PAGE_BYTES;
    o.seed = (uint64_t)over.seed;
    o.total_bytes = 4 * PS_GIB;
    stand_in_begin(&o);
    fake_cublaslt_offer(FAKE_CUBLASLT_ALGORITHMS, seconds);
}

static void begin(fake_cublaslt_seconds seconds)
{
    begin_with((fake_options){0}, seconds);
}

/* ---- runs ---- */

static ps_config *remembering(ps_config *c)
{
    assert_ok(ps_config_set_cache_folder(c, cache.path));
    return c;
}

static void forget(void)
{
    work_remove(cache.path);
    assert_int_equal(mkdir(cache.path, 0700), 0);
}

/* The weights after STEPS steps, `from` of which a checkpoint has. *seen: all but the table. */
static uint64_t run(ps_config *c, int from, ps_products *seen)
{
    float losses[STEPS];
    ps_memory_info m = {.struct_size = sizeof m};
    ps_engine *e = engine_of(c);
    if (from > 0) assert_ok(ps_engine_load_checkpoint(e, saved.path, NULL));
    const int chosen = fake_cublaslt_calls("choose");
    train_steps(e, from, STEPS, losses);
    const bool is_whole = e->products.table.n > 0 && strstr(e->products.trouble, "first algorithms") == NULL;
    if (is_whole) assert_int_equal(fake_cublaslt_calls("choose"), chosen); /* nothing is new in a step */
    const uint64_t hash = hash_of(e);
    ps_engine_get_memory_info(e, &m);
    assert_int_equal(m.device_peak_bytes, m.planned_device_peak_bytes);
    *seen = e->products;
    seen->table.choices = NULL;
    ps_engine_destroy(e);
    ps_config_destroy(c);
    return hash;
}

static uint64_t hash_with(ps_config *c)
{
    ps_products seen;
    return run(c, 0, &seen);
}

/* After AT steps a checkpoint is made; STEPS in all. */
static uint64_t run_saving(ps_config *c)
{
    float losses[STEPS];
    ps_engine *e = engine_of(c);
    work_remove(saved.path);
    assert_int_equal(mkdir(saved.path, 0700), 0);
    train_steps(e, 0, AT, losses);
    assert_ok(ps_engine_save_checkpoint(e, saved.path, NULL, NULL));
    train_steps(e, AT, STEPS, losses);
    const uint64_t hash = hash_of(e);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    return hash;
}

/* ---- which products ---- */

/* All passes of training and evaluation find what they want in the table. */
static void test_nothing_is_new_in_a_step(void **state)
{
    (void)state;
    static const char *const models[][2] = {{"model.type=gpt2", "model.tie_word_embeddings=false"},
                                            {"model.type=llama", "model.intermediate_size=20"},
                                            {"model.type=bert", "model.intermediate_size=20"}};
    static const char *const ways[] = {"gradient_accumulation_steps=2",
                                       "activation_checkpointing.enabled=true",
                                       "bf16.enabled=true",
                                       "memory.keep_logits=always",
                                       "memory.keep_logits=never",
                                       "use_cpu_embedding=true"};
    begin(third_is_fastest);
    for (size_t m = 0; m < PS_ARRAY_LEN(models); m++)
        for (size_t w = m; w < PS_ARRAY_LEN(ways); w += PS_ARRAY_LEN(models)) {
            float losses[STEPS];
            int32_t tokens[2 * 16], targets[2 * 16];
            ps_config *c = TINY(SMALL, "memory.host=64MB", models[m][0], models[m][1], ways[w], MEASURED);
            ps_engine *e = engine_of(c);
            const int n = fake_cublaslt_calls("choose");
            assert_true(e->products.table.n >= 6 && e->products.n_measured == (int)e->products.table.n);
            for (size_t i = 0; i < e->products.table.n; i++) assert_int_equal(e->products.table.choices[i].place, 3);
            train_steps(e, 0, 1, losses);
            fill_batch(tokens, targets, 2, 16, TINY_VOCABULARY, 0);
            assert_ok(ps_evaluate(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets},
                                  NULL));
            if (fake_cublaslt_calls("choose") != n) fail_msg("%s, %s: a product is new", models[m][0], ways[w]);
            ps_engine_destroy(e);
            ps_config_destroy(c);
        }
}

/* ---- the choice ---- */

static void test_the_fastest_is_taken(void **state)
{
    (void)state;
    begin(third_is_fastest);
    const uint64_t measured = hash_with(TINY(SMALL, MEASURED)), first = hash_with(TINY(SMALL, FIRST));
    assert_true(measured != first);
    assert_true(hash_with(TINY(SMALL)) == first); /* auto, and nowhere to keep it */
    begin(fifth_is_fastest);
    const uint64_t fifth = hash_with(TINY(SMALL, MEASURED));
    assert_true(fifth != first && fifth != measured);
    begin(third_is_hardly_faster);
    assert_true(hash_with(TINY(SMALL, MEASURED)) == first);
    /* and a library that has only one */
    begin(third_is_fastest);
    fake_cublaslt_offer(1, third_is_fastest);
    assert_true(hash_with(TINY(SMALL, MEASURED)) == first);
}

static void test_what_is_refused_is_not_taken(void **state)
{
    (void)state;
    ps_products seen;
    begin(third_is_fastest);
    const uint64_t want = run(TINY(SMALL, MEASURED), 0, &seen);
    fake_cublaslt_fail("multiply", 0, PS_LT_NOT_SUPPORTED); /* the first of the first product */
    assert_true(run(TINY(SMALL, MEASURED), 0, &seen) == want);
    fake_cublaslt_fail("multiply", 6, PS_LT_NOT_SUPPORTED); /* its fourth, which would be the fastest */
    assert_true(run(TINY(SMALL, MEASURED), 0, &seen) != want);
}

/* The bits of all budgets, and those with kept logits, of more than one slice of the vocabulary. */
static void test_same_bits(void **state)
{
    (void)state;
    begin(each_product_has_another);
    const uint64_t want = hash_with(remembering(TINY(SMALL, "memory.host=64MB")));
    assert_true(want != hash_with(TINY(SMALL, FIRST)));
    assert_true(hash_with(remembering(
                    TINY(SMALL, "memory.device=200KB", "memory.host=2MB", "default_chunk_size=4096"))) == want);
    forget(); /* and when each measures for itself */
    assert_true(hash_with(TINY(SMALL, MEASURED, "memory.device=200KB", "memory.host=2MB", "default_chunk_size=4096")) ==
                want);
    assert_true(hash_with(TINY(SMALL, MEASURED, "activation_checkpointing.enabled=true")) == want);
}

static void test_kept_logits(void **state)
{
    (void)state;
#define WIDE SMALL, MEASURED, "model.vocab_size=4250", "model.n_positions=4", "train_micro_batch_size_per_gpu=1"
    begin(each_product_has_another);
    assert_true(hash_with(TINY(WIDE, "memory.keep_logits=always")) ==
                hash_with(TINY(WIDE, "memory.keep_logits=never")));
#undef WIDE
}

/* ---- what follows a product ---- */

static void begin_without(fake_cublaslt_lack lack)
{
    begin(each_product_has_another);
    fake_cublaslt_without(lack);
}

/* Additions and gelu's derivative are the product's or kernels', by what the library has: seen in bits, and the same in
 * each run of a model, however it is run; all of its products are timed before the first step. */
static void test_what_follows(void **state)
{
    (void)state;
#define HALF "bf16.enabled=true", "model.n_layer=2", "model.n_embd=24", "memory.host=64MB"
    static const fake_cublaslt_lack lacks[] = {FAKE_CUBLASLT_NOTHING, FAKE_CUBLASLT_DGELU, FAKE_CUBLASLT_ADDEND_LATE};
    static const char *const ways[] = {"activation_checkpointing.enabled=true", "memory.device=300KB",
                                       "default_chunk_size=4096", "memory.prefetch=0"};
    uint64_t hash[PS_ARRAY_LEN(lacks)];
    ps_products seen;
    for (size_t i = 0; i < PS_ARRAY_LEN(lacks); i++) {
        begin_without(lacks[i]);
        hash[i] = run(TINY(HALF, FIRST), 0, &seen);
        for (size_t w = 0; w < PS_ARRAY_LEN(ways); w++)
            if (hash_with(TINY(HALF, FIRST, ways[w])) != hash[i]) fail_msg("lack %d: %s", lacks[i], ways[w]);
        const uint64_t measured = run(TINY(HALF, MEASURED), 0, &seen);
        assert_true(seen.n_measured > 0);
        assert_true(hash_with(TINY(HALF, MEASURED, ways[0])) == measured);
        for (size_t k = 0; k < i; k++) assert_true(hash[k] != hash[i]);
    }
    /* nor are they a GPU's from before */
    begin_with((fake_options){.capability = 80}, each_product_has_another);
    assert_true(hash_with(TINY(HALF, FIRST)) == hash[1]);
#undef HALF
}

/* ---- the file ---- */

static void test_the_file(void **state)
{
    (void)state;
    ps_products seen;
    forget();
    begin(third_is_fastest);
    const uint64_t want = run(remembering(TINY(SMALL)), 0, &seen);
    assert_true(seen.n_measured > 0);
    assert_string_equal(seen.trouble, "");
    begin(fifth_is_fastest);
    const int timed = fake_calls("event_elapsed");
    assert_true(run(remembering(TINY(SMALL)), 0, &seen) == want);
    assert_int_equal(seen.n_measured, 0);
    assert_int_equal(fake_calls("event_elapsed"), timed);
    /* what another configuration wants more is measured, and kept too */
    (void)run(remembering(TINY(SMALL, "train_micro_batch_size_per_gpu=1")), 0, &seen);
    assert_true(seen.n_measured > 0);
    begin(third_is_fastest);
    (void)run(remembering(TINY(SMALL, "train_micro_batch_size_per_gpu=1")), 0, &seen);
    assert_int_equal(seen.n_measured, 0);
    assert_true(run(remembering(TINY(SMALL)), 0, &seen) == want);
    /* another driver: another file */
    begin_with((fake_options){.version = 13010}, fifth_is_fastest);
    assert_true(run(remembering(TINY(SMALL)), 0, &seen) != want);
    assert_true(seen.n_measured > 0);
    assert_string_equal(seen.trouble, "");
}

/* The one table in the cache. */
static work_path file_in_cache(void)
{
    char command[320], name[200] = "";
    snprintf(command, sizeof command, "ls '%s' | grep 'json$'", cache.path);
    FILE *f = popen(command, "r");
    if (f == NULL || fscanf(f, "%199s", name) != 1) fail_msg("no file in %s", cache.path);
    pclose(f);
    work_path p;
    snprintf(p.text, sizeof p.text, "%.60s/%.190s", cache.path, name);
    return p;
}

static void change_file(const char *script)
{
    char command[600];
    snprintf(command, sizeof command, "sed -i '%s' '%s'", script, file_in_cache().text);
    assert_int_equal(system(command), 0);
}

/* In the place of each algorithm words that the library does not know. */
#define REFUSED "s/\"algorithm\": \"..../\"algorithm\": \"ffff/"
#define FIRST_REFUSED "0,/\"algorithm\": \"..../s//\"algorithm\": \"ffff/"

static void test_a_file_that_is_none(void **state)
{
    (void)state;
    static const char *const scripts[] = {
        "1s/{/[/",                                   /* no JSON */
        "s/\"version\": 2/\"version\": 3/",          /* of a later program */
        "s/\"gpu\": \"Fake/\"gpu\": \"Other/",       /* of another GPU than its name says */
        "s/\"driver\": 13000/\"driver\": 13001/",    /* of another driver */
        REFUSED,                                     /* words that the library does not know */
        "s/\"algorithm\": \".../\"algorithm\": \"/", /* too few digits */
    };
    ps_products seen;
    forget();
    begin(third_is_fastest);
    const uint64_t want = run(remembering(TINY(SMALL)), 0, &seen);
    for (size_t i = 0; i < PS_ARRAY_LEN(scripts); i++) {
        change_file(scripts[i]);
        assert_true(run(remembering(TINY(SMALL)), 0, &seen) == want);
        if (seen.n_measured == 0) fail_msg("%s: nothing was measured", scripts[i]);
        if (strstr(seen.trouble, "can be used: ") == NULL && strstr(seen.trouble, "cannot be used: ") == NULL)
            fail_msg("%s: %s", scripts[i], seen.trouble);
        if (strstr(seen.trouble, cache.path) == NULL) fail_msg("%s: %s", scripts[i], seen.trouble);
        if (strstr(scripts[i], "driver") != NULL)
            assert_non_null(strstr(seen.trouble, "driver 13001, cuBLASLt 130100"));
        assert_true(run(remembering(TINY(SMALL)), 0, &seen) == want); /* it is whole again */
        assert_int_equal(seen.n_measured, 0);
        assert_string_equal(seen.trouble, "");
    }
}

/* A command of the shell on the table of the cache. */
static void do_with_file(const char *script)
{
    char command[700];
    const work_path file = file_in_cache();
    snprintf(command, sizeof command, "f='%s'; %s", file.text, script);
    assert_int_equal(system(command), 0);
}

/* Of one entry that is refused the others stay, and so do those of another configuration. */
static void test_one_entry_is_refused(void **state)
{
    (void)state;
    ps_products seen;
    forget();
    begin(third_is_fastest);
    const uint64_t want = run(remembering(TINY(SMALL)), 0, &seen);
    (void)run(remembering(TINY(SMALL, "train_micro_batch_size_per_gpu=1")), 0, &seen);
    change_file(FIRST_REFUSED);
    assert_true(run(remembering(TINY(SMALL)), 0, &seen) == want);
    assert_int_equal(seen.n_measured, 1);
    assert_non_null(strstr(seen.trouble, "not all that is kept can be used: "));
    (void)run(remembering(TINY(SMALL, "train_micro_batch_size_per_gpu=1")), 0, &seen);
    assert_int_equal(seen.n_measured, 0);
    assert_string_equal(seen.trouble, "");
    /* and where the file cannot be written, training goes on; nothing is written without the lock */
    change_file(FIRST_REFUSED);
    do_with_file("rm \"$f.lock\" && mkdir \"$f.lock\" && cp \"$f\" \"$f.before\"");
    assert_true(run(remembering(TINY(SMALL, MEASURED)), 0, &seen) == want);
    assert_int_equal(seen.n_measured, 1);
    assert_non_null(strstr(seen.trouble, "is for this run only: "));
    const uint64_t without = run(remembering(TINY(SMALL)), 0, &seen);
    assert_int_equal(seen.n_measured, 0);
    assert_non_null(strstr(seen.trouble, "; 1 matrix products are computed by cuBLASLt's first algorithms"));
    begin(fifth_is_fastest);
    assert_true(run(remembering(TINY(SMALL)), 0, &seen) == without);
    do_with_file("cmp \"$f\" \"$f.before\"");
}

/* A file that another process puts there while this one measures. */
static work_path bad_file, its_place;

static double third_while_a_file_comes(int ordinal, uint64_t what, int algorithm)
{
    (void)rename(bad_file.text, its_place.text);
    return third_is_fastest(ordinal, what, algorithm);
}

static void test_a_bad_file_comes(void **state)
{
    (void)state;
    ps_products seen;
    forget();
    begin(third_is_fastest);
    const uint64_t want = run(remembering(TINY(SMALL)), 0, &seen);
    change_file(REFUSED);
    its_place = file_in_cache();
    snprintf(bad_file.text, sizeof bad_file.text, "%.200s/bad", cache.path);
    assert_int_equal(rename(its_place.text, bad_file.text), 0);
    begin(third_while_a_file_comes);
    assert_true(run(remembering(TINY(SMALL)), 0, &seen) == want);
    assert_false(ps_file_exists(bad_file.text));
    assert_true(run(remembering(TINY(SMALL)), 0, &seen) == want);
    assert_int_equal(seen.n_measured, 0);
    assert_string_equal(seen.trouble, "");
}

/* Whatever its clock says, auto computes as `first`, with a word; who asks for what is timed gets it, with another. */
static void check_nothing_is_kept(ps_config *(*known)(ps_config *), const char *why, uint64_t first)
{
    static const fake_cublaslt_seconds clocks[] = {third_is_fastest, fifth_is_fastest};
    ps_products seen;
    for (size_t i = 0; i < PS_ARRAY_LEN(clocks); i++) {
        begin(clocks[i]);
        if (run(known(TINY(SMALL)), 0, &seen) != first) fail_msg("%s: other bits", why);
        assert_int_equal(seen.n_measured, 0);
        if (strstr(seen.trouble, why) == NULL || strstr(seen.trouble, "XDG_CACHE_HOME") == NULL)
            fail_msg("%s: %s", why, seen.trouble);
        if (run(known(TINY(SMALL, MEASURED)), 0, &seen) == first) fail_msg("%s: not measured", why);
        assert_true(seen.n_measured > 0);
        if (strstr(seen.trouble, "is for this run only: ") == NULL || strstr(seen.trouble, why) == NULL)
            fail_msg("%s: %s", why, seen.trouble);
    }
}

static ps_config *knowing_nothing(ps_config *c)
{
    return c;
}

static ps_config *knowing_no_folder(ps_config *c)
{
    assert_ok(ps_config_set_cache_folder(c, "/proc/nonexistent/folder"));
    return c;
}

static void test_nothing_can_be_kept(void **state)
{
    (void)state;
    static const struct {
        const char *command, *why;
    } places[] = {
        {"rm \"$f\" && mkdir \"$f\"", "not a regular file"},
        {"rmdir \"$f\" && mkfifo \"$f\"", "not a regular file"},
        {"rm \"$f\" \"$f.lock\" && mkdir \"$f.lock\" && cp /dev/null \"$f\"", "lock: cannot open: Is a directory"},
    };
    forget();
    begin(third_is_fastest);
    const uint64_t first = hash_with(TINY(SMALL, FIRST));
    assert_true(hash_with(remembering(TINY(SMALL))) != first);
    check_nothing_is_kept(knowing_nothing, "there is no cache folder", first);
    check_nothing_is_kept(knowing_no_folder, "/proc/nonexistent/folder: the folder cannot be written: No such file",
                          first);
    for (size_t i = 0; i < PS_ARRAY_LEN(places); i++) {
        do_with_file(places[i].command);
        check_nothing_is_kept(remembering, places[i].why, first);
    }
}

/* Found out when the time is spent: a disk that is full. */
static void test_writing_fails(void **state)
{
    (void)state;
    ps_products seen;
    begin(third_is_fastest);
    const uint64_t first = hash_with(TINY(SMALL, FIRST));
    for (int nth = 0; nth < 4; nth++) { /* create, write, sync, rename */
        forget();
        ps_fault_arm(PS_FAULT_WRITE, nth, false);
        assert_true(run(remembering(TINY(SMALL)), 0, &seen) == first);
        assert_true(ps_fault_has_struck(PS_FAULT_WRITE));
        assert_int_equal(seen.n_measured, 0);
        assert_non_null(strstr(seen.trouble, "cannot be kept: "));
    }
    ps_fault_arm(PS_FAULT_WRITE, -1, false);
}

/* A file that cannot be read for a moment is not overwritten. */
static void test_reading_fails(void **state)
{
    (void)state;
    ps_products seen;
    forget();
    begin(third_is_fastest);
    (void)run(remembering(TINY(SMALL)), 0, &seen);
    const uint64_t first = hash_with(TINY(SMALL, FIRST, "train_micro_batch_size_per_gpu=1"));
    do_with_file("cp \"$f\" \"$f.before\"");
    for (int nth = 0; nth < 4; nth++) { /* open and read, before measuring and after */
        ps_fault_arm(PS_FAULT_READ, nth, false);
        assert_true(run(remembering(TINY(SMALL, "train_micro_batch_size_per_gpu=1")), 0, &seen) == first);
        assert_true(ps_fault_has_struck(PS_FAULT_READ));
        assert_non_null(strstr(seen.trouble, "cannot be kept: "));
        do_with_file("cmp \"$f\" \"$f.before\"");
    }
    ps_fault_arm(PS_FAULT_READ, -1, false);
}

/* ---- checkpoints ---- */

static void test_resuming(void **state)
{
    (void)state;
    ps_products seen;
    forget();
    begin(third_is_fastest);
    const uint64_t want = run_saving(remembering(TINY(SMALL)));
    assert_true(run(remembering(TINY(SMALL)), AT, &seen) == want);
    assert_true(seen.is_given);
    /* the file is gone, and the clock says otherwise */
    forget();
    begin(fifth_is_fastest);
    assert_true(run(remembering(TINY(SMALL)), AT, &seen) == want);
    assert_true(seen.n_measured > 0);
    assert_string_equal(seen.trouble, "");
    /* now there is a file that says otherwise */
    assert_true(run(remembering(TINY(SMALL)), AT, &seen) == want);
    assert_int_equal(seen.n_measured, 0);
    /* nobody measures */
    assert_true(run(TINY(SMALL), AT, &seen) == want);
    /* who asks for the first gets them, and a word */
    assert_true(run(TINY(SMALL, FIRST), AT, &seen) != want);
    assert_non_null(strstr(seen.trouble, "train.product_algorithms = first, but "));
    /* another driver: what was chosen there stays */
    begin_with((fake_options){.version = 13010}, fifth_is_fastest);
    assert_true(run(TINY(SMALL, MEASURED), AT, &seen) != want);
    assert_false(seen.is_given);
    assert_non_null(strstr(seen.trouble, "driver 13000"));
}

/* Saved by who did not measure, it goes on without. */
static void test_resuming_without(void **state)
{
    (void)state;
    ps_products seen;
    begin(third_is_fastest);
    const uint64_t want = run_saving(TINY(SMALL, FIRST));
    assert_true(run(TINY(SMALL, MEASURED), AT, &seen) == want);
    assert_true(run(TINY(SMALL, FIRST), AT, &seen) == want);
    assert_string_equal(seen.trouble, "");
}

/* Evaluation of a checkpoint computes as training did. */
static void test_evaluating(void **state)
{
    (void)state;
    int32_t tokens[2 * 16], targets[2 * 16];
    float want, got;
    begin(third_is_fastest);
    ps_config *c = TINY(SMALL, MEASURED);
    const ps_batch batch = {.struct_size = sizeof batch, .tokens = tokens, .targets = targets};
    fill_batch(tokens, targets, 2, 16, TINY_VOCABULARY, 0);
    (void)run_saving(TINY(SMALL, MEASURED));
    ps_engine *e = engine_of(c);
    assert_ok(ps_engine_load_checkpoint(e, saved.path, NULL));
    assert_ok(ps_evaluate(e, &batch, &want));
    ps_engine_destroy(e);
    assert_ok(ps_initialize_inference_engine(ps_model_from_config, c, 0, c, &e));
    assert_ok(ps_engine_load_checkpoint(e, saved.path, NULL));
    assert_ok(ps_evaluate(e, &batch, &got));
    assert_memory_equal(&want, &got, sizeof want);
    assert_int_equal(e->products.n_measured, 0);
    assert_true(e->products.is_given && e->products.table.n > 0);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

/* ---- ranks ---- */

/* Training by what the third algorithm makes of every product, on this rank too. */
static ps_status rank_train_by_third(ps_engine *e, ps_config *c, rank_task *t)
{
    const ps_cuda_product_table *table = &e->products.table;
    for (size_t i = 0; i < table->n; i++)
        if (table->choices[i].place != 3) return PS_FAIL(PS_ESTATE, "place %d", table->choices[i].place);
    return table->n > 0 ? rank_train(e, c, t) : PS_FAIL(PS_ESTATE, "no table");
}

static uint64_t hash_of_ranks(fake_cublaslt_seconds seconds, bool are_alike, const char *algorithms)
{
    begin_with((fake_options){.n_devices = 2, .are_alike = are_alike}, seconds);
    const bool is_third = are_alike && strcmp(algorithms, MEASURED) == 0;
    return run_ranks(2, 2, is_third ? rank_train_by_third : rank_train, CHANGES(SMALL, algorithms))->result.hash;
}

static void test_ranks_agree(void **state)
{
    (void)state;
    const uint64_t third = hash_of_ranks(third_is_fastest, true, MEASURED),
                   first = hash_of_ranks(third_is_fastest, true, FIRST);
    assert_true(third != first);
    assert_true(hash_of_ranks(each_gpu_has_another, true, MEASURED) == third);
    /* of GPUs that differ nobody knows what is fast on both */
    assert_true(hash_of_ranks(third_is_fastest, false, MEASURED) == first);
}

/* ---- failures ---- */

static void test_failures(void **state)
{
    (void)state;
    static const struct {
        const char *call;
        int n;
    } calls[] = {{"choose", 1}, {"multiply", 30}, {"algorithm_check", 1}, {"product_create", 2}, {"layout_create", 1}};
    begin(third_is_fastest);
    const int64_t live_bytes = ps_mem_live_bytes();
    for (size_t i = 0; i < PS_ARRAY_LEN(calls); i++)
        for (int nth = 0; nth < calls[i].n; nth = 4 * nth + 1) {
            ps_engine *e = NULL;
            begin(third_is_fastest);
            ps_config *c = TINY(SMALL, MEASURED);
            e = engine_of(c); /* what is loaded once in a process is there */
            ps_engine_destroy(e);
            fake_cublaslt_fail(calls[i].call, nth + 3, PS_LT_INTERNAL_ERROR);
            const ps_status st = ps_initialize_engine(ps_model_from_config, c, 0, c, &e);
            if (st == PS_OK && strcmp(calls[i].call, "algorithm_check") != 0)
                fail_msg("%s, %d: no failure", calls[i].call, nth);
            ps_engine_destroy(e);
            ps_config_destroy(c);
        }
    begin(NULL);
    assert_int_equal(ps_mem_live_bytes(), live_bytes);
}

static int set_up(void **state)
{
    (void)state;
    cache = work_make();
    saved = work_make();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    work_remove(cache.path);
    work_remove(saved.path);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_new_in_a_step),
        cmocka_unit_test(test_the_fastest_is_taken),
        cmocka_unit_test(test_what_is_refused_is_not_taken),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_kept_logits),
        cmocka_unit_test(test_what_follows),
        cmocka_unit_test(test_the_file),
        cmocka_unit_test(test_a_file_that_is_none),
        cmocka_unit_test(test_one_entry_is_refused),
        cmocka_unit_test(test_a_bad_file_comes),
        cmocka_unit_test(test_nothing_can_be_kept),
        cmocka_unit_test(test_writing_fails),
        cmocka_unit_test(test_reading_fails),
        cmocka_unit_test(test_resuming),
        cmocka_unit_test(test_resuming_without),
        cmocka_unit_test(test_evaluating),
        cmocka_unit_test(test_ranks_agree),
        cmocka_unit_test(test_failures),
    };
    if (!stand_in_is_hardware()) return RUN_ON_BACKENDS_IN(tests, set_up, tear_down);
    printf("not tried: algorithms whose bits are known to differ are those of the fake library\n");
    return 0;
}
