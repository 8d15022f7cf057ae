/* test_saved_average.c - a run keeps to the rule of train.loss_average that it was saved with, whatever is configured
 * when it is resumed; checkpoints that do not say it, from before there was a choice, continue with micro_batches. */
#include <string.h>

#include "api/checkpoint/checkpoint_state.h"
#include "base/file.h"
#include "checkpoint/checkpoint_fixture.h"

enum { AT = 2, STEPS = 4 };

#define TARGETS "train.loss_average=targets"
#define MICRO_BATCHES "train.loss_average=micro_batches"
#define ACCUMULATED "gradient_accumulation_steps=2"

static work_folder work;

/* Micro-batches that have 1 and 17 targets in turn: the rules differ. */
static void train_unevenly(ps_engine *e, int from, int to)
{
    int32_t tokens[32], targets[32];
    for (int i = 2 * from; i < 2 * to; i++) {
        fill_batch(tokens, targets, 2, 16, TINY_VOCABULARY, i);
        for (int t = i % 2 == 0 ? 1 : 17; t < 32; t++) targets[t] = PS_IGNORE_INDEX;
        const ps_batch batch = {.struct_size = sizeof batch, .tokens = tokens, .targets = targets};
        assert_ok(ps_forward(e, &batch, NULL));
        assert_ok(ps_backward(e));
        assert_ok(ps_step(e));
    }
}

/* STEPS steps, saved after AT of them. */
static uint64_t run_saved(const char *rule)
{
    ps_config *c = TINY(ACCUMULATED, rule);
    ps_engine *e = engine_of(c);
    train_unevenly(e, 0, AT);
    assert_ok(ps_engine_save_checkpoint(e, work.path, NULL, NULL));
    train_unevenly(e, AT, STEPS);
    const uint64_t hash = hash_of(e);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    return hash;
}

/* The same from there on. notice: a part of what is said; NULL: nothing is. */
static uint64_t run_resumed(const char *rule, const char *notice)
{
    ps_config *c = TINY(ACCUMULATED, rule);
    ps_engine *e = engine_of(c);
    assert_ok(ps_engine_load_checkpoint(e, work.path, NULL));
    const char *const said = ps_engine_get_notices(e);
    if (notice == NULL ? said[0] != '\0' : strstr(said, notice) == NULL) fail_msg("said: \"%s\"", said);
    train_unevenly(e, AT, STEPS);
    const uint64_t hash = hash_of(e);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    return hash;
}

static work_path state_path(void)
{
    return work_file(work.path, "step-000002/state.json");
}

/* Puts `text` in the place of the line of state.json that has the rule, and seals it again. */
static void replace_rule(const char *text)
{
    char *state = NULL, *sealed = NULL;
    int64_t n, n_sealed;
    assert_ok(ps_file_read_all(state_path().text, 1 << 24, &state, &n));
    char *const line = strstr(state, "  \"loss_average\": "), *const end = strchr(line, '\n') + 1;
    char *const seal = strstr(state, ",\n  \"state_xxh3\": ");
    assert_true(line != NULL && seal != NULL && line < seal);
    char *body = malloc((size_t)n + strlen(text) + 1);
    sprintf(body, "%.*s%s%.*s", (int)(line - state), state, text, (int)(seal - end), end);
    assert_ok(ps_checkpoint_state_seal(body, (int64_t)strlen(body), &sealed, &n_sealed));
    assert_ok(ps_file_write_all(state_path().text, sealed, n_sealed));
    free(body);
    ps_mem_free(sealed);
    ps_mem_free(state);
}

static void test_kept(void **state)
{
    (void)state;
    const uint64_t targets = run_saved(TARGETS);
    assert_true(run_resumed(TARGETS, NULL) == targets);
    assert_true(
        run_resumed(MICRO_BATCHES, "the checkpoint's train.loss_average = targets, not the configured micro_batches") ==
        targets);
    const uint64_t micro_batches = run_saved(MICRO_BATCHES);
    assert_true(micro_batches != targets);
    assert_true(run_resumed(MICRO_BATCHES, NULL) == micro_batches);
    assert_true(run_resumed("train.seed=7", "train.loss_average = micro_batches, not the configured targets") ==
                micro_batches);
}

/* A run that went on so is saved so. */
static void test_saved_again(void **state)
{
    (void)state;
    const uint64_t micro_batches = run_saved(MICRO_BATCHES);
    ps_config *c = TINY(ACCUMULATED);
    ps_engine *e = engine_of(c);
    assert_ok(ps_engine_load_checkpoint(e, work.path, NULL));
    assert_ok(ps_engine_save_checkpoint(e, work.path, NULL, NULL));
    ps_engine_destroy(e);
    ps_config_destroy(c);
    assert_true(run_resumed(TARGETS, "not the configured targets") == micro_batches);
}

/* An engine may load one checkpoint after another: the rule of each is compared with the configured one. */
static void test_loaded_twice(void **state)
{
    (void)state;
    ps_config *c = TINY(ACCUMULATED, TARGETS);
    ps_engine *e = engine_of(c);
    (void)run_saved(MICRO_BATCHES);
    assert_ok(ps_engine_load_checkpoint(e, work.path, NULL));
    assert_non_null(strstr(ps_engine_get_notices(e), "= micro_batches, not the configured targets"));
    const uint64_t targets = run_saved(TARGETS);
    assert_ok(ps_engine_load_checkpoint(e, work.path, NULL));
    assert_null(strstr(ps_engine_get_notices(e), "the configured micro_batches"));
    train_unevenly(e, AT, STEPS);
    assert_true(hash_of(e) == targets);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

static void test_checkpoint_without_loss_average(void **state)
{
    (void)state;
    const uint64_t micro_batches = run_saved(MICRO_BATCHES);
    replace_rule("");
    assert_true(run_resumed(TARGETS, "before train.loss_average") == micro_batches);
    assert_true(run_resumed(MICRO_BATCHES, "before train.loss_average") == micro_batches);
}

static void test_damaged(void **state)
{
    (void)state;
    static const char *const wrong[] = {"  \"loss_average\": \"tokens\",\n", "  \"loss_average\": 1,\n",
                                        "  \"loss_average\": null,\n"};
    ps_config *c = TINY(ACCUMULATED);
    ps_engine *e = engine_of(c);
    (void)run_saved(TARGETS);
    for (size_t i = 0; i < PS_ARRAY_LEN(wrong); i++) {
        replace_rule(wrong[i]);
        assert_int_equal(ps_engine_load_checkpoint(e, work.path, NULL), PS_EFORMAT);
        assert_non_null(strstr(ps_last_error(), "\"loss_average\" is missing or not \"targets\" or \"micro_batches\""));
    }
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

/* Nothing is learned by an engine for inference, whatever the rule was. */
static void test_inference(void **state)
{
    (void)state;
    (void)run_saved(MICRO_BATCHES);
    ps_config *c = TINY(TARGETS);
    ps_engine *e = NULL;
    assert_ok(ps_initialize_inference_engine(ps_model_from_config, c, 0, c, &e));
    assert_ok(ps_engine_load_checkpoint(e, work.path, NULL));
    assert_string_equal(ps_engine_get_notices(e), "");
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept),         cmocka_unit_test(test_saved_again),
        cmocka_unit_test(test_loaded_twice), cmocka_unit_test(test_checkpoint_without_loss_average),
        cmocka_unit_test(test_damaged),      cmocka_unit_test(test_inference),
    };
    work = work_make();
    const int failed = RUN_ON_BACKENDS(tests);
    work_remove(work.path);
    return failed;
}
