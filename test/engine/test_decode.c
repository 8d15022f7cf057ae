/* Generating with kept keys and values: the same as without them, in any budget. */
#include <math.h>

#include "engine/engine_fixture.h"

/* Kept tokens; and how far the texts go. */
enum { ROOM = 160, PROMPT = 11, TEXT = 140 };

/* Weights far from zero, so that what a token attends to matters; 131 tokens, 2 blocks. */
#define WIDE "model.n_positions=160", "model.initializer_range=0.3", "train_micro_batch_size_per_gpu=1"
#define LLAMA_LIKE WIDE, "model.intermediate_size=100", "model.tie_word_embeddings=false"

static const char *const *const families[] = {
    (const char *const[]){WIDE, NULL},
    (const char *const[]){WIDE, "model.hidden_act=gelu", "model.tie_word_embeddings=false", NULL},
    (const char *const[]){LLAMA_LIKE, "model.type=llama", "model.num_key_value_heads=1", "model.n_head=2", NULL},
    (const char *const[]){LLAMA_LIKE, "model.type=llama", "model.n_head=4", "model.rope_scaling.rope_type=linear",
                          "model.rope_scaling.factor=4", NULL},
    (const char *const[]){LLAMA_LIKE, "model.type=mistral", "model.sliding_window=23", "model.n_head=4",
                          "model.num_key_value_heads=2", NULL},
    (const char *const[]){LLAMA_LIKE, "model.type=qwen2", "model.sliding_window=9", "model.max_window_layers=1",
                          "model.n_head=2", NULL},
    (const char *const[]){LLAMA_LIKE, "model.type=qwen3", "model.head_dim=16", "model.n_head=4",
                          "model.num_key_value_heads=2", NULL},
};

static ps_config *config_of(const char *const *family, const char *const *changes)
{
    const char *all[32];
    int n = 0;
    for (; *family != NULL; family++) all[n++] = *family;
    for (; changes != NULL && *changes != NULL; changes++) all[n++] = *changes;
    all[n] = NULL;
    return tiny_with(all);
}

static ps_engine *generation_engine_of(ps_config *c)
{
    ps_engine *e = NULL;
    assert_ok(ps_initialize_generation_engine(ps_model_from_config, c, 0, c, &e));
    ps_config_destroy(c);
    return e;
}

static ps_engine *generation_engine(const char *const *family, const char *const *changes)
{
    return generation_engine_of(config_of(family, changes));
}

static ps_engine *plain_engine(const char *const *family, const char *const *changes)
{
    ps_config *c = config_of(family, changes);
    ps_engine *e = NULL;
    assert_ok(ps_initialize_inference_engine(ps_model_from_config, c, 0, c, &e));
    ps_config_destroy(c);
    return e;
}

static int32_t best(const float *logits)
{
    int32_t at = 0;
    for (int32_t v = 1; v < TINY_VOCABULARY; v++)
        if (logits[v] > logits[at]) at = v;
    return at;
}

static void begin_text(int32_t *text)
{
    int32_t unused[PROMPT];
    fill_batch(text, unused, 1, PROMPT, TINY_VOCABULARY, 3);
}

/* Largest difference relative to the largest logit. */
static double distance(const float *a, const float *b)
{
    double most = 0, norm = 0;
    for (int v = 0; v < TINY_VOCABULARY; v++) {
        most = fmax(most, fabs((double)a[v] - (double)b[v]));
        norm = fmax(norm, fabs((double)b[v]));
    }
    return most / norm;
}

/* The likeliest token again and again; then all logits by one pass over the whole text, and with them the same
 * choices. */
static void test_same_as_without(void **state)
{
    (void)state;
    static float kept[ROOM][TINY_VOCABULARY], plain[ROOM][TINY_VOCABULARY];
    for (size_t f = 0; f < PS_ARRAY_LEN(families); f++) {
        int32_t text[ROOM] = {0};
        int n_different = 0;
        begin_text(text);
        ps_engine *e = generation_engine(families[f], NULL);
        for (int known = 0, n = PROMPT; n < TEXT; known = n++) {
            assert_ok(ps_decode(e, text + known, n - known, kept[n - 1]));
            text[n] = best(kept[n - 1]);
            n_different += text[n] != text[n - 1];
        }
        ps_engine_destroy(e);
        assert_true(n_different > 0);
        e = plain_engine(families[f], NULL);
        assert_ok(ps_infer(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = text}, PS_ALL_ROWS, plain[0]));
        ps_engine_destroy(e);
        for (int i = PROMPT - 1; i < TEXT - 1; i++) {
            if (!(distance(kept[i], plain[i]) < 1e-5))
                fail_msg("family %zu, %d: %g", f, i, distance(kept[i], plain[i]));
            assert_int_equal(best(kept[i]), best(plain[i]));
        }
    }
}

/* Generates `n` tokens after the prompt; logits of each step follow each other in *all. */
static void generate(ps_engine *e, int n, float *all)
{
    int32_t text[ROOM];
    begin_text(text);
    assert_ok(ps_decode(e, text, PROMPT, all));
    for (int i = 1; i < n; i++) {
        const int32_t token = best(all + (size_t)(i - 1) * TINY_VOCABULARY);
        assert_ok(ps_decode(e, &token, 1, all + (size_t)i * TINY_VOCABULARY));
    }
}

#define SHORT 30

static void check_budget(const char *const *family, const char *const *changes, const float *want)
{
    static float got[SHORT * TINY_VOCABULARY];
    ps_engine *e = generation_engine(family, changes);
    generate(e, SHORT, got);
    assert_memory_equal(got, want, sizeof got);
    ps_memory_info m = {.struct_size = sizeof m};
    ps_engine_get_memory_info(e, &m);
    assert_true(m.device_peak_bytes <= m.device_budget_bytes && m.host_peak_bytes <= m.host_budget_bytes);
    assert_int_equal(m.device_peak_bytes, m.planned_device_peak_bytes);
    ps_engine_destroy(e);
}

/* The least device budget that is accepted, as the refusal of a page says. */
static int64_t least_device(const char *const *family, const char *const *changes)
{
    ps_config *c = config_of(family, changes);
    ps_engine *e = NULL;
    assert_ok(ps_config_set(c, "memory.device", "4096"));
    assert_int_equal(ps_initialize_generation_engine(ps_model_from_config, c, 0, c, &e), PS_EBUDGET);
    ps_config_destroy(c);
    return named_bytes(ps_last_error(), "memory.device=");
}

static void test_same_bits_in_any_budget(void **state)
{
    (void)state;
    static float want[SHORT * TINY_VOCABULARY];
    static const char *const types[] = {"bf16.enabled=false", "bf16.enabled=true"};
    for (size_t f = 0; f < PS_ARRAY_LEN(families); f++) {
#define WITH(...) ((const char *const[]){types[f % 2], "default_chunk_size=12576", __VA_ARGS__, NULL})
        ps_engine *e = generation_engine_of(on_cpu(config_of(families[f], WITH("memory.device=64MB"))));
        generate(e, SHORT, want);
        ps_engine_destroy(e);
        char device[64];
        const char *const *on_disk = WITH("memory.disk=30MB");
        snprintf(device, sizeof device, "memory.device=%lld", (long long)least_device(families[f], on_disk));
        check_budget(families[f], WITH("memory.disk=30MB", device), want);
        check_budget(families[f], WITH("memory.host=30MB", device), want);
        check_budget(families[f], WITH("memory.device=3MB", "memory.host=300KB", "memory.disk=30MB"), want);
#undef WITH
    }
}

/* The cache is counted: a text twice as long needs that much more, and the refusal names it. */
static void test_cache_is_in_the_budget(void **state)
{
    (void)state;
    const int64_t half =
        least_device(families[0], (const char *const[]){"memory.disk=30MB", "generation.max_length=80", NULL});
    const int64_t whole = least_device(families[0], (const char *const[]){"memory.disk=30MB", NULL});
    const int64_t values = 2 * 2 * 80 * 48;                  /* blocks, keys and values, positions, columns */
    const int64_t rows = 200 * 48 * 4 * 4, pages = 2 * 4096; /* of activations; both budgets are whole pages */
    const int64_t rounded = whole / 100;                     /* to three digits */
    assert_in_range(whole - half, values * 4 - rounded, values * 4 + rows + pages + rounded);
    char text[64];
    ps_config *c = config_of(families[0], (const char *const[]){"memory.disk=30MB", NULL});
    ps_engine *e = NULL;
    snprintf(text, sizeof text, "%lld", (long long)below_named(whole));
    assert_ok(ps_config_set(c, "memory.device", text));
    assert_int_equal(ps_initialize_generation_engine(ps_model_from_config, c, 0, c, &e), PS_EBUDGET);
    assert_null(e);
    assert_non_null(strstr(ps_last_error(), "keys and values"));
    assert_int_equal(named_bytes(ps_last_error(), "memory.device="), whole);
    ps_config_destroy(c);
}

/* However a text is cut into calls, its logits are the same within rounding. */
static void test_parts(void **state)
{
    (void)state;
    for (size_t f = 0; f < PS_ARRAY_LEN(families); f += 2) {
        ps_engine *e = generation_engine(families[f], NULL);
        int32_t text[ROOM], unused[ROOM];
        float want[TINY_VOCABULARY], got[TINY_VOCABULARY];
        fill_batch(text, unused, 1, ROOM, TINY_VOCABULARY, 5);
        assert_ok(ps_decode(e, text, ROOM, want));
        for (int n = 5; n <= 65; n *= 13) { /* one row at a time, and several */
            assert_ok(ps_decode_rewind(e, 0));
            for (int at = 0; at < ROOM; at += n) assert_ok(ps_decode(e, text + at, n < ROOM - at ? n : ROOM - at, got));
            assert_true(distance(got, want) < 1e-5);
        }
        ps_engine_destroy(e);
    }
}

static void test_rewind(void **state)
{
    (void)state;
    ps_engine *e = generation_engine(families[0], NULL);
    static float first[SHORT * TINY_VOCABULARY], again[SHORT * TINY_VOCABULARY];
    int64_t length, most;
    generate(e, SHORT, first);
    ps_decode_get_length(e, &length, &most);
    assert_int_equal(length, PROMPT + SHORT - 1);
    assert_int_equal(most, ROOM);
    assert_ok(ps_decode_rewind(e, 0));
    generate(e, SHORT, again);
    assert_memory_equal(first, again, sizeof first);
    /* from the middle: the same token again gives the same */
    const int32_t token = best(first + 3 * TINY_VOCABULARY);
    assert_ok(ps_decode_rewind(e, PROMPT + 3));
    assert_ok(ps_decode(e, &token, 1, again));
    assert_memory_equal(again, first + 4 * TINY_VOCABULARY, TINY_VOCABULARY * sizeof *again);
    assert_int_equal(ps_decode_rewind(e, PROMPT + 5), PS_EINVAL);
    assert_int_equal(ps_decode_rewind(e, -1), PS_EINVAL);
    /* other parameters: the text is forgotten */
    const float one = 1;
    assert_ok(ps_engine_write_tensor(e, 0, 0, 1, &one));
    ps_decode_get_length(e, &length, NULL);
    assert_int_equal(length, 0);
    ps_engine_destroy(e);
}

static void test_wrong_calls(void **state)
{
    (void)state;
    float logits[ROOM * TINY_VOCABULARY];
    int32_t text[ROOM + 1] = {0};
    int64_t length;
    ps_engine *e = generation_engine(families[0], NULL);
    assert_ok(ps_decode(e, text, 2, logits));
    assert_int_equal(ps_decode(e, text, ROOM - 1, logits), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "generation.max_length"));
    assert_int_equal(ps_decode(e, text, 0, logits), PS_EINVAL);
    assert_int_equal(ps_decode(e, NULL, 1, logits), PS_EINVAL);
    assert_int_equal(ps_decode(e, text, 1, NULL), PS_EINVAL);
    text[1] = TINY_VOCABULARY;
    assert_int_equal(ps_decode(e, text, 2, logits), PS_EINVAL);
    text[1] = -1;
    assert_int_equal(ps_decode(e, text, 2, logits), PS_EINVAL);
    ps_decode_get_length(e, &length, NULL);
    assert_int_equal(length, 2);
    text[1] = 0;
    assert_ok(ps_decode(e, text, ROOM - 2, logits)); /* to the last place */
    assert_int_equal(ps_decode(e, text, 1, logits), PS_EINVAL);
    assert_int_equal(ps_infer(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = text}, 0, logits), PS_ESTATE);
    assert_int_equal(ps_infer(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = text}, PS_ALL_ROWS, logits),
                     PS_ESTATE);
    assert_int_equal(
        ps_evaluate(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = text, .targets = text}, logits),
        PS_ESTATE);
    assert_int_equal(ps_engine_set_shape(e, ps_model_from_config, NULL, 1, 4), PS_ESTATE);
    ps_engine_destroy(e);
    e = plain_engine(families[0], NULL);
    assert_int_equal(ps_decode(e, text, 1, logits), PS_ESTATE);
    assert_int_equal(ps_decode_rewind(e, 0), PS_ESTATE);
    ps_decode_get_length(e, &length, NULL);
    assert_int_equal(length, 0);
    ps_engine_destroy(e);
}

/* A short position table: the configuration's rule does not hold for models of one's own. */
static ps_status short_table(ps_builder *b, void *user)
{
    (void)user;
    ps_value x = ps_token_embedding(b, "wte", 16, 8);
    x = ps_position_embedding(b, x, "wpe", 64);
    ps_cross_entropy(b, ps_attention(b, ps_linear(b, x, "qkv", 24, 0), 2, 1, 0), "wte.weight", NULL, 16, NULL);
    return PS_OK;
}

static void test_models_that_cannot(void **state)
{
    (void)state;
    static const struct {
        const char *changes[5], *message;
    } cases[] = {
        {{"model.type=bert", "model.head=masked_lm", "model.hidden_act=gelu", NULL}, "later tokens"},
        {{"model.head=sequence_classification", NULL}, "one row"},
    };
    ps_engine *e = NULL;
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        ps_config *c = tiny_with(cases[i].changes);
        assert_int_equal(ps_initialize_generation_engine(ps_model_from_config, c, 0, c, &e), PS_EINVAL);
        if (strstr(ps_last_error(), cases[i].message) == NULL) fail_msg("%s", ps_last_error());
        ps_config_destroy(c);
    }
    ps_config *c = TINY("model.n_positions=100", "generation.max_length=65");
    assert_int_equal(ps_initialize_generation_engine(short_table, NULL, 0, c, &e), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "64"));
    assert_ok(ps_config_set(c, "generation.max_length", "64"));
    assert_ok(ps_initialize_generation_engine(short_table, NULL, 0, c, &e));
    ps_engine_destroy(e);
    ps_config_destroy(c);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_without),
        cmocka_unit_test(test_same_bits_in_any_budget),
        cmocka_unit_test(test_cache_is_in_the_budget),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_rewind),
        cmocka_unit_test(test_wrong_calls),
        cmocka_unit_test(test_models_that_cannot),
    };
    return RUN_ON_BACKENDS(tests);
}
