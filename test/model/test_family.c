/* What is true of every family of models: its object does not contradict itself, what it writes as a config.json it
 * reads again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "config/hf_config.h"
#include "config/model/model.h"
#include "temp_folder.h"
#include "weights/weight_names.h"

static temp_folder work;

static bool is_of_model(ps_option_id id)
{
    return strncmp(ps_option_table[id].key, "model.", 6) == 0;
}

static void test_objects(void **state)
{
    (void)state;
    const ps_family *f;
    int n;
    for (n = 0; (f = ps_family_at(n)) != NULL; n++) {
        ps_config_model type;
        assert_ptr_equal(ps_family_find(ps_config_model_names[n], &type), f);
        assert_int_equal(type, n);
        assert_non_null(f->class_name);
        assert_in_range(strlen(f->base), 1, 15);
        assert_non_null(f->class_ends[PS_CONFIG_HEAD_NONE]);
        for (const ps_traits *t = &f->traits; t != NULL; t = t->more) {
            for (const ps_option_id *id = t->uses; id != NULL && *id != 0; id++) assert_true(is_of_model(*id));
            for (const ps_family_default *d = t->defaults; d != NULL && d->id != 0; d++)
                if (!is_of_model(d->id) || !ps_family_uses(f, d->id))
                    fail_msg("%s has a default for %s", f->class_name, ps_option_table[d->id].key);
            for (const ps_family_key *k = t->keys; k != NULL && k->key != NULL; k++)
                if (!is_of_model(k->id) || !ps_family_uses(f, k->id))
                    fail_msg("%s reads %s, which it does not use", f->class_name, k->key);
        }
    }
    assert_int_equal(n, ps_family_count());
    assert_null(ps_family_at(-1));
}

static void test_uses(void **state)
{
    (void)state;
    ps_config_model type;
    const ps_family *gpt2 = ps_family_find("gpt2", &type), *bert = ps_family_find("bert", &type);
    assert_null(ps_family_find("t5", &type));
    assert_true(ps_family_uses(gpt2, PS_OPTION_model_hidden_size));
    assert_false(ps_family_uses(gpt2, PS_OPTION_model_rope_theta));
    assert_false(ps_family_uses(gpt2, PS_OPTION_model_type_vocab_size));
    assert_true(ps_family_uses(bert, PS_OPTION_model_type_vocab_size));
    assert_true(ps_family_uses(bert, PS_OPTION_train_seed));
}

static ps_config *parse(const char *text)
{
    ps_config *c = NULL;
    if (ps_config_parse(text, "text", &c) != PS_OK) fail_msg("%s: %s", text, ps_last_error());
    return c;
}

/* All values of the model, but where it came from. */
static void assert_same_model(const ps_options *a, const ps_options *b, const char *what)
{
    for (int i = 0; i < PS_OPTION_COUNT; i++) {
        const ps_option *option = &ps_option_table[i];
        if (!is_of_model((ps_option_id)i) || i == PS_OPTION_model_from_pretrained) continue;
        if (!ps_option_is_equal(option, ps_option_load(option, a), ps_option_load(option, b)))
            fail_msg("%s: %s is another after it was written", what, option->key);
    }
}

/* Every head of every family, sizes given: what 0 stands for is written as a number. */
static void test_written_and_read(void **state)
{
    (void)state;
    const ps_family *f;
    for (int i = 0; (f = ps_family_at(i)) != NULL; i++)
        for (int head = 0; head <= PS_CONFIG_HEAD_NONE; head++) {
            char text[512], *json = NULL;
            if (f->class_ends[head] == NULL) continue;
            const bool groups = ps_family_uses(f, PS_OPTION_model_num_key_value_heads);
            snprintf(text, sizeof text,
                     "{\"model\": {\"type\": \"%s\", \"head\": \"%s\", \"num_hidden_layers\": 3, \"hidden_size\": 48, "
                     "\"num_attention_heads\": 4, \"intermediate_size\": 20%s}}",
                     ps_config_model_names[i], ps_config_head_names[head],
                     groups ? ", \"num_key_value_heads\": 2, \"head_dim\": 10, \"rope_theta\": 7" : "");
            ps_config *c = parse(text);
            assert_int_equal(ps_hf_config_write(c, "float32", -1, &json), PS_OK);
            assert_int_equal(
                ps_file_write_all(temp_folder_file(&work, "config.json").text, json, (int64_t)strlen(json)), PS_OK);
            ps_free(json);
            snprintf(text, sizeof text, "{\"model\": {\"from_pretrained\": \"%s\"}}", work.path);
            ps_config *again = parse(text);
            assert_same_model(ps_config_options(c), ps_config_options(again), f->class_name);
            ps_config_destroy(c);
            ps_config_destroy(again);
        }
}

/* An output layer that is tied is no tensor of its own; both are of the vocabulary. */
static void test_ties(void **state)
{
    (void)state;
    for (int i = 0; ps_family_at(i) != NULL; i++)
        for (const ps_traits *t = &ps_family_at(i)->traits; t != NULL; t = t->more)
            for (const ps_family_tie *tie = t->ties; tie != NULL && tie->name != NULL; tie++) {
                char full[PS_WEIGHT_NAME_MAX];
                assert_true(ps_weight_is_head(tie->name));
                assert_true(ps_weight_is_vocabulary(ps_weight_class_name(ps_config_model_names[i], tie->to, full)));
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_objects),
        cmocka_unit_test(test_uses),
        cmocka_unit_test(test_written_and_read),
        cmocka_unit_test(test_ties),
    };
    work = temp_folder_make();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    temp_folder_remove(&work);
    return failed;
}
