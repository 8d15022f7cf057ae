/* An engine begins with the weights that its configuration names, however the model was made. */
#include "engine/engine_fixture.h"

#include "api/engine/initialize.h"
#include "base/file.h"
#include "config/hf_config.h"
#include "engine/ranks_fixture.h"
#include "temp_folder.h"

static temp_folder folder;
static temp_path weights;
static uint64_t hash; /* of the weights in the folder */

static uint64_t hash_of(ps_engine *e)
{
    uint64_t h;
    assert_ok(ps_engine_get_weights_xxh3(e, &h));
    return h;
}

/* A tiny model of another seed, in the folder as Hugging Face has them. */
static int make_folder(void **state)
{
    (void)state;
    ps_config *c = TINY("train.threads=1", "train.seed=17");
    ps_engine *e = engine_of(c);
    char *json = NULL;
    folder = temp_folder_make();
    weights = temp_folder_file(&folder, "model.safetensors");
    hash = hash_of(e);
    assert_ok(ps_engine_save_weights(e, weights.text));
    assert_ok(ps_hf_config_write(c, "float32", -1, &json));
    assert_ok(ps_file_write_all(temp_folder_file(&folder, "config.json").text, json, (int64_t)strlen(json)));
    ps_free(json);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    temp_folder_remove(&folder);
    return 0;
}

static char setting[256];

static const char *named(const char *key, const char *path)
{
    snprintf(setting, sizeof setting, "%s=%s", key, path);
    return setting;
}

static void test_from_pretrained(void **state)
{
    (void)state;
    ps_config *c = TINY("train.threads=1", named("model.from_pretrained", folder.path));
    ps_engine *e = engine_of(c), *inference = NULL;
    assert_true(hash_of(e) == hash);
    assert_ok(ps_initialize_inference_engine(ps_model_from_config, c, 0, c, &inference));
    static int32_t tokens[32], targets[32];
    float losses[2];
    fill_batch(tokens, targets, 2, 16, TINY_VOCABULARY, 1);
    const ps_batch batch = {.struct_size = sizeof batch, .tokens = tokens, .targets = targets};
    assert_ok(ps_evaluate(e, &batch, &losses[0]));
    assert_ok(ps_evaluate(inference, &batch, &losses[1]));
    assert_memory_equal(&losses[0], &losses[1], sizeof losses[0]);
    ps_engine_destroy(e);
    ps_engine_destroy(inference);
    ps_config_destroy(c);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* The model is that of the configuration that the function gets. */
static void test_from_pretrained_of_the_model(void **state)
{
    (void)state;
    ps_config *model = TINY("train.threads=1", named("model.from_pretrained", folder.path)),
              *run = TINY("train.threads=1");
    ps_engine *e = NULL;
    assert_ok(ps_initialize_engine(ps_model_from_config, model, 0, run, &e));
    assert_true(hash_of(e) == hash);
    ps_engine_destroy(e);
    ps_config_destroy(model);
    ps_config_destroy(run);
}

static void test_new_head(void **state)
{
    (void)state;
    ps_config *c = TINY("train.threads=1", named("model.from_pretrained", folder.path),
                        "model.head=sequence_classification", "model.num_labels=3", "train.save=true");
    ps_engine *e = NULL;
    assert_int_equal(ps_initialize_engine(ps_model_from_config, c, 0, c, &e), PS_EFORMAT);
    assert_non_null(strstr(ps_last_error(), "score.weight is missing; with model.new_head"));
    assert_null(e);
    assert_ok(ps_config_set(c, "model.new_head", "true"));
    e = engine_of(c);
    float ours[48], theirs[48];
    ps_config *plain = TINY("train.threads=1", named("train.init_from", weights.text));
    ps_engine *lm = engine_of(plain);
    assert_true(hash_of(lm) == hash);
    assert_ok(ps_engine_read_tensor(e, 0, 0, 48, ours));
    assert_ok(ps_engine_read_tensor(lm, 0, 0, 48, theirs));
    assert_memory_equal(ours, theirs, sizeof ours);
    ps_engine_destroy(e);
    ps_engine_destroy(lm);
    ps_config_destroy(c);
    ps_config_destroy(plain);
}

static void test_init_from(void **state)
{
    (void)state;
    ps_config *c = TINY("train.threads=1", named("train.init_from", weights.text));
    ps_engine *e = engine_of(c);
    assert_true(hash_of(e) == hash);
    ps_engine_destroy(e);
    assert_ok(ps_config_set(c, "train.init_from", "/proc/nonexistent.safetensors"));
    assert_int_equal(ps_initialize_engine(ps_model_from_config, c, 0, c, &e), PS_EIO);
    assert_null(e);
    ps_config_destroy(c);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* A function of one's own, whose names are those of the file, or not. */
static ps_status own_model(ps_builder *b, void *user)
{
    const ps_value x = ps_token_embedding(b, user, TINY_VOCABULARY, 48);
    char tied[64];
    snprintf(tied, sizeof tied, "%s.weight", (const char *)user);
    ps_cross_entropy(b, ps_layer_norm(b, x, "ln_f", 1e-5f), tied, NULL, TINY_VOCABULARY, NULL);
    return PS_OK;
}

static void test_own_functions_load_by_names(void **state)
{
    (void)state;
    ps_config *c = TINY("train.threads=1");
    ps_engine *e = NULL;
    char name[] = "wte", other[] = "table";
    assert_ok(ps_initialize_engine(own_model, name, 0, c, &e));
    const uint64_t own = hash_of(e);
    const temp_path file = temp_folder_file(&folder, "own.safetensors");
    assert_ok(ps_engine_save_weights(e, file.text));
    ps_engine_destroy(e);
    assert_ok(ps_config_set(c, "train.seed", "99"));
    assert_ok(ps_config_set(c, "train.init_from", file.text));
    assert_ok(ps_initialize_engine(own_model, name, 0, c, &e));
    assert_true(hash_of(e) == own);
    ps_engine_destroy(e);
    assert_int_equal(ps_initialize_engine(own_model, other, 0, c, &e), PS_EFORMAT);
    assert_null(e);
    assert_ok(ps_config_set(c, "train.init_from", ""));
    assert_ok(ps_config_set(c, "model.from_pretrained", folder.path));
    assert_int_equal(ps_initialize_engine(own_model, name, 0, c, &e), PS_EFORMAT); /* blocks that the function lacks */
    assert_non_null(strstr(ps_last_error(), "is not one of the model's"));
    ps_config_destroy(c);
}

/* More tokens than the folder has: its rows as they are, the others as those of a new model; the same wherever chunks
 * lie. */
static void test_more_tokens(void **state)
{
    (void)state;
    enum { V = 150, C = 48 };
    static float begun[V * C], file[TINY_VOCABULARY * C], fresh[V * C];
    static const char *const memories[] = {"memory.device=64MB", "memory.device=700KB"};
    ps_config *plain = TINY("train.threads=1", named("train.init_from", weights.text));
    ps_config *new_model = TINY("train.threads=1", "model.vocab_size=150");
    ps_engine *e = engine_of(plain), *f = engine_of(new_model);
    assert_ok(ps_engine_read_tensor(e, 0, 0, TINY_VOCABULARY * C, file));
    assert_ok(ps_engine_read_tensor(f, 0, 0, V * C, fresh));
    ps_engine_destroy(e);
    ps_engine_destroy(f);
    for (size_t i = 0; i < PS_ARRAY_LEN(memories); i++) {
        ps_config *c = TINY("train.threads=1", "model.vocab_size=150", named("model.from_pretrained", folder.path),
                            "memory.disk=20MB", "default_chunk_size=2048", memories[i]);
        assert_int_equal(ps_initialize_engine(ps_model_from_config, c, 0, c, &e), PS_EFORMAT);
        assert_non_null(strstr(ps_last_error(), "[131, 48]"));
        assert_non_null(strstr(ps_last_error(), "model.resize_token_embeddings"));
        assert_ok(ps_config_set(c, "model.resize_token_embeddings", "true"));
        e = engine_of(c);
        assert_ok(ps_engine_read_tensor(e, 0, 0, V * C, begun));
        assert_memory_equal(begun, file, sizeof file);
        assert_memory_equal(begun + TINY_VOCABULARY * C, fresh + TINY_VOCABULARY * C, sizeof fresh - sizeof file);
        ps_engine_destroy(e);
        assert_ok(ps_config_set(c, "model.vocab_size", "100")); /* fewer */
        assert_int_equal(ps_initialize_engine(ps_model_from_config, c, 0, c, &e), PS_EFORMAT);
        ps_config_destroy(c);
    }
    ps_config_destroy(plain);
    ps_config_destroy(new_model);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* Rows for a tokenizer whose tokens were not counted: an error, not the rows of the folder. */
static void test_tokens_not_counted(void **state)
{
    (void)state;
    ps_engine *e = NULL;
    ps_config *c = NULL;
    char text[300];
    snprintf(text, sizeof text, "{\"model\": {\"from_pretrained\": \"%s\", \"resize_token_embeddings\": true}}",
             folder.path);
    assert_ok(ps_config_parse(text, "c.json", &c));
    assert_int_equal(ps_initialize_engine(ps_model_from_config, c, 0, c, &e), PS_EINVAL);
    assert_null(e);
    assert_non_null(strstr(ps_last_error(), "call ps_config_resize_vocabulary first"));
    ps_config_destroy(c);
}

/* Over the values that the engine of a rank has drawn. */
static ps_status load_rank(ps_engine *e, ps_config *c, rank_task *t)
{
    (void)c, (void)t;
    const ps_load_options options = {.struct_size = sizeof options, .allow_new_rows = 1};
    return ps_engine_load_pretrained(e, folder.path, &options, NULL);
}

/* Each rank reads what it owns, of a table too that the file has less of. */
static void test_more_tokens_on_ranks(void **state)
{
    (void)state;
    const char *const changes[] = {"train.threads=1",
                                   "model.vocab_size=150",
                                   "model.resize_token_embeddings=true",
                                   "default_chunk_size=2048",
                                   named("model.from_pretrained", folder.path),
                                   NULL};
    ps_config *c = tiny_with(changes);
    ps_engine *e = engine_of(c);
    const uint64_t alone = hash_of(e);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    for (int32_t n = 2; n <= RANKS_MAX; n++) {
        const rank_task *tasks = try_ranks(ps_model_from_config, n, 0, load_rank, changes);
        for (int32_t i = 0; i < n; i++) {
            if (tasks[i].result.st != PS_OK) fail_msg("%d ranks, rank %d: %s", n, i, tasks[i].result.error);
            assert_true(tasks[i].result.hash == alone);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_from_pretrained),
        cmocka_unit_test(test_from_pretrained_of_the_model),
        cmocka_unit_test(test_new_head),
        cmocka_unit_test(test_init_from),
        cmocka_unit_test(test_own_functions_load_by_names),
        cmocka_unit_test(test_more_tokens),
        cmocka_unit_test(test_tokens_not_counted),
        cmocka_unit_test(test_more_tokens_on_ranks),
    };
    return RUN_ON_BACKENDS_IN(tests, make_folder, remove_folder);
}
