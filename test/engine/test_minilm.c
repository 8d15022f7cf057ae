/* A published model: all-MiniLM-L6-v2 as BERT gives the hidden states of Hugging Face's BertModel
 * (golden/make_minilm_golden.py) within 1e-4 in f32, and the same bits in little memory. Its folder, 91 MB, is not in
 * the repository: `make test-data` fetches it to build/minilm; without it this is skipped. */
#include <math.h>

#include <unistd.h>

#include "engine/engine_fixture.h"
#include "weights/safetensors.h"

enum { B = 4, T = 40, C = 384 };

static const char *model_folder(void)
{
    const char *given = getenv("PS_MINILM");
    return given != NULL ? given : "build/minilm";
}

static void read_golden(const char *name, void *out, int64_t bytes)
{
    ps_safetensors *file = NULL;
    assert_ok(ps_safetensors_open("test/golden/minilm_hidden.safetensors", &file));
    const ps_safetensor *t = ps_safetensors_find(file, name);
    assert_non_null(t);
    assert_int_equal(t->n_bytes, bytes);
    assert_ok(ps_safetensors_read(file, t, 0, out, bytes));
    ps_safetensors_close(file);
}

static int32_t tokens[B * T], mask[B * T], types[B * T];
static float hidden[B * T * C];

static int set_up(void **state)
{
    (void)state;
    read_golden("tokens", tokens, sizeof tokens);
    read_golden("attention_mask", mask, sizeof mask);
    read_golden("token_type_ids", types, sizeof types);
    read_golden("hidden", hidden, sizeof hidden);
    return 0;
}

static void infer(const char *memory, float *out)
{
    char text[512];
    ps_config *c = NULL;
    ps_engine *e = NULL;
    snprintf(text, sizeof text,
             "{\"train_micro_batch_size_per_gpu\": %d, \"data\": {\"sequence_length\": %d}, "
             "\"model\": {\"from_pretrained\": \"%.200s\", \"head\": \"none\"}, \"memory\": {%s}}",
             B, T, model_folder(), memory);
    assert_ok(ps_config_parse(text, "minilm", &c));
    assert_ok(ps_initialize_inference_engine(ps_model_from_config, c, 0, c, &e)); /* its pooler is left out */
    assert_ok(ps_infer(
        e,
        &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .attention_mask = mask, .token_type_ids = types},
        PS_ALL_ROWS, out));
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

static void test_hidden_states(void **state)
{
    (void)state;
    static float ours[B * T * C], small[B * T * C];
    if (access(model_folder(), R_OK) != 0) skip();
    infer("\"device\": \"200MB\"", ours);
    double worst = 0;
    for (int64_t i = 0; i < (int64_t)B * T * C; i++)
        if (mask[i / C]) worst = fmax(worst, fabs((double)ours[i] - (double)hidden[i]));
    printf("largest distance from transformers: %.2g\n", worst);
    assert_true(worst < 1e-4);
    /* the largest table, 47 MB, and little more */
    infer("\"device\": \"54MB\", \"host\": 0, \"disk\": \"200MB\"", small);
    assert_memory_equal(ours, small, sizeof ours);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_hidden_states)};
    return cmocka_run_group_tests(tests, set_up, NULL);
}
