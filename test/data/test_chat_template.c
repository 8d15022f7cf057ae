/* Templates known by their hash; test/cli/test_chat_transformers.sh renders them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/base.h"
#include "base/file.h"
#include "base/mem.h"
#include "data/chat_template.h"
#include "temp_folder.h"

static temp_folder folder;

/* ChatML as JSON has it: the backslash of the template is one of Jinja's. */
#define CHATML                                                                                                         \
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\\\n' + message['content'] + '<|im_end|>' + " \
    "'\\\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\\\n' }}{% endif %}"

static void write_file(const char *name, const char *text)
{
    const temp_path p = temp_folder_file(&folder, name);
    assert_int_equal(ps_file_write_all(p.text, text, (int64_t)strlen(text)), PS_OK);
}

static void expect_refused(const char *path, ps_status expected, const char *message)
{
    ps_chat_template t;
    assert_int_equal(ps_chat_template_of(path, &t), expected);
    if (strstr(ps_last_error(), message) == NULL) fail_msg("\"%s\" lacks \"%s\"", ps_last_error(), message);
}

static void test_where_a_template_is(void **state)
{
    (void)state;
    ps_chat_template t;
    const temp_path file = temp_folder_file(&folder, "tokenizer.json");
    expect_refused(folder.path, PS_EINVAL, "the tokenizer has no chat template; set data.chat_format");
    write_file("tokenizer.json", "");
    write_file("tokenizer_config.json", "{\"model_max_length\": 1000000000000000019884624838656}");
    expect_refused(file.text, PS_EINVAL, "the tokenizer has no chat template");
    write_file("tokenizer_config.json", "{\"chat_template\": \"" CHATML "\"}");
    assert_int_equal(ps_chat_template_of(folder.path, &t), PS_OK);
    assert_int_equal(t.format, PS_CONFIG_CHAT_FORMAT_CHATML);
    assert_null(t.default_system);
    assert_int_equal(ps_chat_template_of(file.text, &t), PS_OK);
    assert_int_equal(t.format, PS_CONFIG_CHAT_FORMAT_CHATML);
    write_file("tokenizer_config.json", "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"x\"},"
                                        " {\"name\": \"default\", \"template\": \"" CHATML "\"}]}");
    assert_int_equal(ps_chat_template_of(folder.path, &t), PS_OK);
    assert_int_equal(t.format, PS_CONFIG_CHAT_FORMAT_CHATML);
    write_file("tokenizer_config.json", "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"x\"}]}");
    expect_refused(folder.path, PS_EINVAL, "the tokenizer has no chat template");
    write_file("tokenizer_config.json", "{\"chat_template\": [{\"name\": \"default\"}]}");
    expect_refused(folder.path, PS_EINVAL, "the tokenizer has no chat template");
    write_file("tokenizer_config.json", "{\"chat_template\": \" " CHATML "\"}");
    expect_refused(folder.path, PS_EINVAL, "tokenizer_config.json: the chat template (xxh3 ");
    expect_refused(folder.path, PS_EINVAL,
                   "it looks like ChatML: set data.chat_format=chatml, and compare by pstar tokenize");
    write_file("tokenizer_config.json", "{");
    expect_refused(folder.path, PS_EFORMAT, "tokenizer_config.json:1:");
    write_file("tokenizer_config.json", "{\"chat_template\": \"" CHATML "\"}");
    write_file("chat_template.jinja", "other");
    expect_refused(folder.path, PS_EINVAL, "chat_template.jinja: the chat template (xxh3 ");
    expect_refused(folder.path, PS_EINVAL,
                   "set data.chat_format to the form that it has: chatml, llama2, llama3, mistral or alpaca");
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"{{ '<|start_header_id|>' }}", "looks like Llama 3's: set data.chat_format=llama3"},
        {"[INST] <<SYS>>", "looks like Llama 2's: set data.chat_format=llama2"},
        {"[INST]", "looks like Mistral's: set data.chat_format=mistral"},
        {"### Instruction:", "looks like Alpaca's: set data.chat_format=alpaca"},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        write_file("chat_template.jinja", cases[i].text);
        expect_refused(folder.path, PS_EINVAL, cases[i].says);
    }
    for (ps_config_chat_format f = PS_CONFIG_CHAT_FORMAT_CHATML; f <= PS_CONFIG_CHAT_FORMAT_ALPACA; f++) {
        write_file("chat_template.jinja", ps_chat_template_text(f, f % 2 != 0));
        assert_int_equal(ps_chat_template_of(folder.path, &t), PS_OK);
        assert_int_equal(t.format, f);
        assert_null(t.default_system);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_where_a_template_is)};
    folder = temp_folder_make();
    const int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    temp_folder_remove(&folder);
    return n_failed;
}
