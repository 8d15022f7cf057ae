/* What a configuration names of a tokenizer: its path, and as many tokens for the model. */
#include <stdlib.h>
#include <string.h>

#include "assert_status.h"
#include "base/file.h"
#include "base/mem.h"
#include "config/config.h"
#include "patrickstar_data.h"
#include "temp_folder.h"

static temp_folder folder;

static void write_file(const char *name, const char *text)
{
    assert_ok(ps_file_write_all(temp_folder_file(&folder, name).text, text, (int64_t)strlen(text)));
}

/* A GPT-2 of 300 tokens, and a text; GPT-2's own tokenizer has 50257. */
static int make_folder(void **state)
{
    (void)state;
    static char line[] = "All this while the ship sailed on. ", text[40 * sizeof line];
    folder = temp_folder_make();
    write_file("config.json",
               "{\"architectures\": [\"GPT2LMHeadModel\"], \"model_type\": \"gpt2\", \"vocab_size\": 300, "
               "\"n_embd\": 16, \"n_layer\": 1, \"n_head\": 2, \"n_positions\": 32}");
    for (int i = 0; i < 40; i++) strcat(text, line);
    write_file("text.txt", text);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    temp_folder_remove(&folder);
    return 0;
}

static ps_config *load(const char *model, const char *tokenizer)
{
    char text[600];
    ps_config *c = NULL;
    snprintf(text, sizeof text,
             "{\"model\": {\"from_pretrained\": \"%s\"%s}, \"data\": {\"train\": \"%s\", \"sequence_length\": 8, "
             "\"tokenizer\": \"%s\"}}",
             folder.path, model, temp_folder_file(&folder, "text.txt").text, tokenizer);
    assert_ok(ps_config_parse(text, "c.json", &c));
    return c;
}

static int64_t vocabulary(const ps_config *c)
{
    return ps_config_options(c)->model_vocab_size;
}

static void data_loader_is_refused(const ps_config *c, const char *remedy)
{
    ps_data_loader *loader = NULL;
    assert_int_equal(ps_data_loader_from_config(c, NULL, &loader), PS_EINVAL);
    assert_null(loader);
    if (strstr(ps_last_error(), remedy) == NULL) fail_msg("'%s' does not say '%s'", ps_last_error(), remedy);
}

static void the_model_gets_as_many_tokens(void **state)
{
    (void)state;
    ps_config *c = load(", \"resize_token_embeddings\": true", "data/gpt2");
    ps_data_loader *loader = NULL;
    data_loader_is_refused(c, "; ps_config_resize_vocabulary");
    assert_int_equal(vocabulary(c), 300);
    for (int i = 0; i < 2; i++) {
        assert_ok(ps_config_resize_vocabulary(c));
        assert_int_equal(vocabulary(c), 50257);
    }
    assert_ok(ps_data_loader_from_config(c, NULL, &loader));
    ps_data_loader_close(loader);
    ps_config_destroy(c);

    c = load(", \"resize_token_embeddings\": true, \"pad_to_multiple_of\": 64", "data/gpt2");
    assert_ok(ps_config_resize_vocabulary(c));
    assert_int_equal(vocabulary(c), 50304); /* 786 times 64 */
    ps_config_destroy(c);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* 40 lines of 8 tokens or so; what counts is the number of samples, which the feed says. */
static void epochs_become_steps(void **state)
{
    (void)state;
    static const struct {
        const char *epochs, *micro_batch, *accumulation;
        int32_t n_ranks;
    } cases[] = {
        {"1", "1", "1", 1}, {"3", "2", "1", 1}, {"0.1", "1", "1", 1}, {"2.5", "3", "2", 4}, {"1e-9", "1", "1", 1}};
    ps_config *c = load(", \"resize_token_embeddings\": true", "data/gpt2");
    ps_data_loader *loader = NULL;
    assert_ok(ps_config_resize_vocabulary(c));
    assert_ok(ps_data_loader_from_config(c, NULL, &loader));
    const int64_t n = ps_data_loader_sample_count(loader, PS_SPLIT_TRAIN);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const ps_options *o = ps_config_options(c);
        assert_ok(ps_config_set(c, "train.epochs", cases[i].epochs));
        assert_ok(ps_config_set(c, "train_micro_batch_size_per_gpu", cases[i].micro_batch));
        assert_ok(ps_config_set(c, "gradient_accumulation_steps", cases[i].accumulation));
        const int64_t rows = atoll(cases[i].micro_batch) * atoll(cases[i].accumulation) * cases[i].n_ranks;
        const long double samples = strtold(cases[i].epochs, NULL) * (long double)n;
        int64_t steps = 1; /* the least that has all samples of these epochs, one at a time */
        while ((long double)(steps * rows) < samples - 1e-6L) steps++;
        assert_ok(ps_config_take_epochs(c, loader, cases[i].n_ranks));
        assert_int_equal(o->train_steps, steps);
        assert_true(o->train_epochs == 0);
    }
    assert_ok(ps_config_take_epochs(c, loader, 1)); /* none: steps stay */
    assert_ok(ps_config_set(c, "train.epochs", "1e6"));
    assert_int_equal(ps_config_take_epochs(c, loader, 0), PS_EINVAL);
    ps_data_loader_close(loader);
    ps_config_destroy(c);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void an_engine_refuses_epochs_that_are_no_steps(void **state)
{
    (void)state;
    ps_config *c = load("", "data/gpt2");
    ps_engine *engine = NULL;
    char *dumped = NULL;
    ps_config *again = NULL;
    assert_ok(ps_config_set(c, "train.epochs", "2"));
    assert_int_equal(ps_initialize_engine(ps_model_from_config, c, 0, c, &engine), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "ps_config_take_epochs"));
    /* what is dumped can be read again, though steps and epochs exclude each other */
    assert_ok(ps_config_dump_json(c, &dumped));
    assert_ok(ps_config_parse(dumped, "dumped", &again));
    assert_true(ps_config_options(again)->train_epochs == 2);
    ps_free(dumped);
    ps_config_destroy(again);
    ps_config_destroy(c);
}

static void a_size_that_is_given_stays(void **state)
{
    (void)state;
    ps_config *c = load(", \"resize_token_embeddings\": true, \"vocab_size\": 400", "data/gpt2");
    assert_ok(ps_config_resize_vocabulary(c));
    assert_int_equal(vocabulary(c), 400);
    data_loader_is_refused(c, "; without model.vocab_size, model.resize_token_embeddings");
    ps_config_destroy(c);
    c = load("", "data/gpt2");
    assert_ok(ps_config_resize_vocabulary(c));
    assert_int_equal(vocabulary(c), 300);
    data_loader_is_refused(c, "; model.resize_token_embeddings = true");
    ps_config_destroy(c);
}

static void tokens_that_cannot_be_counted_are_an_error(void **state)
{
    (void)state;
    ps_config *c = load(", \"resize_token_embeddings\": true", "");
    assert_string_equal(ps_config_get_tokenizer_path(c), "");
    assert_int_equal(ps_config_resize_vocabulary(c), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "no tokenizer to count tokens of"));
    ps_config_destroy(c);
    c = load(", \"resize_token_embeddings\": true", "/nowhere");
    assert_string_equal(ps_config_get_tokenizer_path(c), "/nowhere");
    assert_int_equal(ps_config_resize_vocabulary(c), PS_EIO);
    assert_int_equal(vocabulary(c), 300);
    ps_config_destroy(c);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_model_gets_as_many_tokens),
        cmocka_unit_test(a_size_that_is_given_stays),
        cmocka_unit_test(epochs_become_steps),
        cmocka_unit_test(an_engine_refuses_epochs_that_are_no_steps),
        cmocka_unit_test(tokens_that_cannot_be_counted_are_an_error),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
