#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "chat_tokenizer.h"
#include "data/instruct_set.h"
#include "temp_folder.h"

#define MESSAGES PS_CONFIG_JSONL_FORM_MESSAGES
#define PAIRS PS_CONFIG_JSONL_FORM_PROMPT_COMPLETION
#define ALPACA PS_CONFIG_JSONL_FORM_ALPACA
#define SHAREGPT PS_CONFIG_JSONL_FORM_SHAREGPT
#define BOS "<|begin_of_text|>"
#define EOS "<|end_of_text|>"

static temp_folder folder;
static ps_tokenizer *tokenizer;

static int set_up(void **state)
{
    (void)state;
    static const char *const added[] = {"<|im_start|>", "<|im_end|>", NULL};
    tokenizer = chat_tokenizer(added, 0);
    return tokenizer == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    ps_tokenizer_close(tokenizer);
    return ps_mem_live_bytes() != 0;
}

static ps_instruct_options options(ps_config_jsonl_form form, int64_t T)
{
    return (ps_instruct_options){.form = form,
                                 .text_key = "text",
                                 .messages_key = "messages",
                                 .prompt_key = "prompt",
                                 .completion_key = "completion",
                                 .chat_format = PS_CONFIG_CHAT_FORMAT_CHATML,
                                 .tokenizer_path = folder.path,
                                 .tokenizer = tokenizer,
                                 .T = T};
}

static temp_path write_text(const char *text)
{
    const temp_path p = temp_folder_file(&folder, "lines.jsonl");
    assert_int_equal(ps_file_write_all(p.text, text, (int64_t)strlen(text)), PS_OK);
    return p;
}

static ps_instruct_set *open_text(const char *text, const ps_instruct_options *o)
{
    ps_instruct_set *s;
    const temp_path p = write_text(text);
    if (ps_instruct_set_open(p.text, o, &s) != PS_OK) fail_msg("%s", ps_last_error());
    return s;
}

static void expect_sample(const ps_instruct_set *s, int64_t i, int64_t line, const char *expected)
{
    const ps_instruct_sample sample = ps_instruct_set_get(s, i);
    assert_string_equal(chat_text(tokenizer, sample.entries, sample.n), expected);
    assert_int_equal(sample.line, line);
}

static void test_prompts_and_completions(void **state)
{
    (void)state;
    const ps_instruct_options o = options(PAIRS, 100);
    ps_instruct_set *s = open_text(
        "{\"prompt\": \"The sky is\", \"completion\": \" blue.\", \"messages\": 1}\n\n"
        "{\"prompt\": \"\", \"completion\": \"<|end_of_text|>\"}\n"
        "{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"},"
        " {\"role\": \"user\", \"content\": \"c\"}],"
        " \"completion\": [{\"role\": \"assistant\", \"content\": \"d\"}]}\n",
        &o);
    assert_int_equal(ps_instruct_set_count(s), 3);
    expect_sample(s, 0, 1, BOS "The sky is{ blue." EOS "}");
    expect_sample(s, 1, 3, BOS "{<|end_of_text|>" EOS "}");
    expect_sample(s, 2, 4,
                  "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n"
                  "<|im_start|>assistant\n{d<|im_end|>}\n");
    const ps_instruct_sample written = ps_instruct_set_get(s, 1);
    assert_true(written.n > 3); /* what reads like the eos token is text */
    ps_instruct_set_close(s);
    ps_instruct_set_close(NULL);
    /* unless it is asked for */
    ps_instruct_options asked = o;
    asked.added_tokens = true;
    s = open_text("{\"prompt\": \"<|im_start|>a\", \"completion\": \"<|im_end|>\"}\n", &asked);
    expect_sample(s, 0, 1, BOS "<|im_start|>a{<|im_end|>" EOS "}");
    assert_int_equal(ps_instruct_set_get(s, 0).n, 5);
    ps_instruct_set_close(s);
    asked.form = MESSAGES;
    const temp_path p = write_text("{\"messages\": [{\"role\": \"assistant\", \"content\": \"b\"}]}");
    assert_int_equal(ps_instruct_set_open(p.text, &asked, &s), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "with messages data.added_tokens has no effect"));
}

/* The texts are those of Stanford's train.py. */
static void test_alpaca(void **state)
{
    (void)state;
    static const char lines[] =
        "{\"instruction\": \"Add.\", \"input\": \"1 and 2\", \"output\": \"3\", \"text\": \"whole\"}\n"
        "{\"instruction\": \"Greet.\", \"input\": \"\", \"output\": \"Hi.\"}\n"
        "{\"instruction\": \"Go on.\", \"input\": null, \"output\": \"b\", \"system\": \"Be brief.\","
        " \"history\": [[\"Begin.\", \"a\"]]}\n";
    ps_instruct_options o = options(ALPACA, 500);
    ps_instruct_set *s = open_text(lines, &o);
    expect_sample(s, 0, 1, "<|im_start|>user\nAdd.\n1 and 2<|im_end|>\n<|im_start|>assistant\n{3<|im_end|>}\n");
    expect_sample(s, 1, 2, "<|im_start|>user\nGreet.<|im_end|>\n<|im_start|>assistant\n{Hi.<|im_end|>}\n");
    expect_sample(s, 2, 3,
                  "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nBegin.<|im_end|>\n<|im_start|>assistant\n"
                  "{a<|im_end|>}\n<|im_start|>user\nGo on.<|im_end|>\n<|im_start|>assistant\n{b<|im_end|>}\n");
    ps_instruct_set_close(s);
    /* where the tokenizer has no template */
    o.chat_format = PS_CONFIG_CHAT_FORMAT_AUTO;
    s = open_text(lines, &o);
    assert_int_equal(ps_instruct_set_info(s).chat_format, PS_CONFIG_CHAT_FORMAT_ALPACA);
    expect_sample(s, 0, 1,
                  BOS
                  "Below is an instruction that describes a task, paired with an input that provides further context."
                  " Write a response that appropriately completes the request.\n\n### Instruction:\nAdd.\n\n"
                  "### Input:\n1 and 2\n\n### Response:\n{3" EOS "}");
    expect_sample(s, 1, 2,
                  BOS
                  "Below is an instruction that describes a task. Write a response that appropriately completes the "
                  "request.\n\n### Instruction:\nGreet.\n\n### Response:\n{Hi." EOS "}");
    expect_sample(s, 2, 3,
                  BOS "Be brief.\n\n### Instruction:\nBegin.\n\n### Response:\n{a" EOS "}\n\n### Instruction:\nGo on."
                      "\n\n### Response:\n{b" EOS "}");
    ps_instruct_set_close(s);
}

static void test_sharegpt(void **state)
{
    (void)state;
    const ps_instruct_options o = options(SHAREGPT, 100);
    ps_instruct_set *s = open_text(
        "{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": \"gpt\", \"value\": \"b\"}], "
        "\"system\": \"s\", \"tools\": \"\"}\n"
        "{\"conversations\": [{\"from\": \"system\", \"value\": \"t\"}, {\"from\": \"user\", \"value\": \"c\"}, "
        "{\"role\": \"assistant\", \"content\": \"d\"}], \"system\": \"\"}\n",
        &o);
    expect_sample(s, 0, 1,
                  "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
                  "{b<|im_end|>}\n");
    expect_sample(s, 1, 2,
                  "<|im_start|>system\nt<|im_end|>\n<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n"
                  "{d<|im_end|>}\n");
    ps_instruct_set_close(s);
}

/* The first T + 1 tokens stay; what then has nothing to predict is left out and counted. */
static void test_long_lines_are_cut(void **state)
{
    (void)state;
    static const char text[] = "{\"prompt\": \"aaaaaaaa\", \"completion\": \"b\"}\n"
                               "{\"prompt\": \"1\", \"completion\": \"1.1.1.1.1\"}\n"
                               "{\"prompt\": \"1\", \"completion\": \"\"}\n";
    ps_instruct_options o = options(PAIRS, 4);
    ps_instruct_set *s = open_text(text, &o);
    ps_instruct_info info = ps_instruct_set_info(s);
    assert_int_equal(ps_instruct_set_count(s), 2);
    expect_sample(s, 0, 2, BOS "1{1.1}");
    expect_sample(s, 1, 3, BOS "1{" EOS "}");
    assert_int_equal(info.n_lines, 3);
    assert_int_equal(info.n_cut, 2);
    assert_int_equal(info.n_left_out, 1);
    assert_int_equal(info.n_tokens, 8);
    assert_int_equal(info.n_targets, 4);
    assert_int_equal(info.chat_format, PS_CONFIG_CHAT_FORMAT_AUTO);
    ps_instruct_set_close(s);
    /* a conversation without an answer */
    o = options(MESSAGES, 100);
    s = open_text("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n"
                  "{\"messages\": [{\"role\": \"assistant\", \"content\": \"b\"}]}\n",
                  &o);
    info = ps_instruct_set_info(s);
    expect_sample(s, 0, 2, "<|im_start|>assistant\n{b<|im_end|>}\n");
    assert_int_equal(ps_instruct_set_count(s), 1);
    assert_int_equal(info.n_left_out, 1);
    assert_int_equal(info.n_cut, 0);
    assert_int_equal(info.chat_format, PS_CONFIG_CHAT_FORMAT_CHATML);
    ps_instruct_set_close(s);
    ps_instruct_set *none;
    const temp_path p = write_text("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n");
    assert_int_equal(ps_instruct_set_open(p.text, &o, &none), PS_EFORMAT);
    assert_null(none);
    assert_non_null(strstr(ps_last_error(), "none of the 1 lines has anything to predict within 101 tokens"));
}

static void test_form_by_the_first_line(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        ps_config_jsonl_form expected;
    } cases[] = {
        {"{\"text\": \"a\", \"messages\": [], \"prompt\": 1, \"completion\": 1}", PS_CONFIG_JSONL_FORM_TEXT},
        {"{\"messages\": [], \"prompt\": \"a\"}\n{\"text\": \"\"}", MESSAGES},
        {"\n{\"prompt\": \"a\", \"completion\": \"b\"}", PAIRS},
        {"{\"conversations\": [], \"id\": 1}", SHAREGPT},
        {"{\"instruction\": \"a\", \"output\": \"b\"}", ALPACA},
        {"{\"instruction\": \"a\", \"output\": \"b\", \"text\": \"whole\"}", ALPACA},
        {"{\"instruction\": \"a\", \"text\": \"whole\"}", PS_CONFIG_JSONL_FORM_TEXT},
    };
    ps_instruct_options o = options(PS_CONFIG_JSONL_FORM_AUTO, 10);
    ps_config_jsonl_form form;
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        const temp_path p = write_text(cases[i].text);
        assert_int_equal(ps_instruct_form(p.text, &o, &form), PS_OK);
        assert_int_equal(form, cases[i].expected);
    }
    const temp_path p = write_text("\n{\"prompt\": \"a\", \"content\": \"b\"}");
    assert_int_equal(ps_instruct_form(p.text, &o, &form), PS_EFORMAT);
    assert_non_null(
        strstr(ps_last_error(), "lines.jsonl: line 2, offset 1: expected the key \"text\", or \"messages\""));
    assert_non_null(strstr(ps_last_error(), "found \"prompt\", \"content\"."));
    o.form = MESSAGES;
    assert_int_equal(ps_instruct_form(p.text, &o, &form), PS_OK);
    assert_int_equal(form, MESSAGES);
    o.form = PS_CONFIG_JSONL_FORM_AUTO;
    o.completion_key = "content";
    assert_int_equal(ps_instruct_form(p.text, &o, &form), PS_OK);
    assert_int_equal(form, PAIRS);
    assert_int_equal(ps_instruct_form("/proc/nonexistent.jsonl", &o, &form), PS_EIO);
}

static void test_bad_lines_are_errors_with_their_place(void **state)
{
    (void)state;
#define GOOD "{\"prompt\": \"a\", \"completion\": \"b\"}\n"                      /* 35 bytes */
#define TALK "{\"messages\": [{\"role\": \"assistant\", \"content\": \"b\"}]}\n" /* 54 bytes */
    static const struct {
        ps_config_jsonl_form form;
        const char *text, *message;
    } cases[] = {
        {PAIRS, GOOD "{\"prompt\": \"a\"}",
         "line 2, offset 35: \"completion\" is missing, expected a string, as the prompt"},
        {PAIRS, GOOD "{\"completion\": \"a\"}", "\"prompt\" is missing, expected a string or a list of messages"},
        {PAIRS, GOOD "{\"prompt\": [], \"completion\": \"a\"}",
         "\"completion\" is a string, expected a list of messages"},
        {PAIRS, GOOD "{\"prompt\": \"a\", \"completion\": []}", "\"completion\" is an array, expected a string"},
        {PAIRS, GOOD "{\"prompt\": [], \"completion\": []}", "line 2, offset 35: a conversation without any message"},
        {PAIRS, GOOD "{\"prompt\": [1], \"completion\": []}", "line 2, offset 35: prompt[0] is an integer"},
        {PAIRS, GOOD "{", "line 2, offset"},
        {MESSAGES, TALK "{\"messages\": \"a\"}", "line 2, offset 54: \"messages\" is a string, expected a list"},
        {MESSAGES, TALK "{\"text\": \"a\"}", "line 2, offset 54: \"messages\" is missing"},
        {MESSAGES, TALK "\n{\"messages\": [{\"role\": \"tool\"}]}", "line 3, offset 55: messages[0]: role \"tool\""},
        {MESSAGES, TALK "{\"messages\": [], \"tools\": [{}]}", "line 2, offset 54: \"tools\" are not supported"},
        {ALPACA, "{\"instruction\": \"a\", \"response\": \"b\"}",
         "line 1, offset 0: \"output\" is missing, expected a "
         "string; lines of Alpaca's form have"},
        {ALPACA, "{\"instruction\": \"a\", \"input\": 1, \"output\": \"b\"}",
         "\"input\" is an integer, expected a string "
         "or nothing"},
        {ALPACA, "{\"instruction\": \"a\", \"output\": \"b\", \"history\": [[\"a\"]]}", "\"history\"[0] is no pair"},
        {ALPACA, "{\"instruction\": \"a\", \"output\": \"b\", \"history\": 1}", "\"history\" is an integer"},
        {SHAREGPT, "{\"conversations\": [{\"from\": \"observation\", \"value\": \"b\"}]}",
         "conversations[0]: role \"observation\" is not supported; the roles are system, human (user) and gpt"},
        {SHAREGPT, "{\"conversations\": [{\"from\": \"gpt\", \"content\": \"b\"}]}",
         "conversations[0].value is missing"},
        {SHAREGPT, "{\"conversations\": [], \"system\": 1}", "\"system\" is an integer"},
        {SHAREGPT, "{\"conversations\": [], \"tools\": \"[{}]\"}", "\"tools\" are not supported"},
        {MESSAGES, "", "line 1, offset 0: the file ends without any JSON object"},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        ps_instruct_set *s;
        const ps_instruct_options o = options(cases[i].form, 50);
        const temp_path p = write_text(cases[i].text);
        assert_int_equal(ps_instruct_set_open(p.text, &o, &s), PS_EFORMAT);
        assert_null(s);
        if (strstr(ps_last_error(), cases[i].message) == NULL || strstr(ps_last_error(), "lines.jsonl: line") == NULL)
            fail_msg("case %zu: \"%s\" lacks \"%s\"", i, ps_last_error(), cases[i].message);
    }
    /* no template with the tokenizer, and no form given */
    ps_instruct_options o = options(MESSAGES, 50);
    ps_instruct_set *s;
    o.chat_format = PS_CONFIG_CHAT_FORMAT_AUTO;
    const temp_path p = write_text(TALK);
    assert_int_equal(ps_instruct_set_open(p.text, &o, &s), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "the tokenizer has no chat template; set data.chat_format"));
}

/* Every allocation fails once. */
static void fail_in_turn(ps_instruct_options o, const temp_path *p)
{
    const int64_t live_bytes = ps_mem_live_bytes();
    int n_failures = 0;
    for (bool has_struck = true; has_struck; n_failures += has_struck) {
        ps_instruct_set *s;
        ps_fault_arm(PS_FAULT_ALLOC, n_failures, false);
        const ps_status st = ps_instruct_set_open(p->text, &o, &s);
        has_struck = ps_fault_has_struck(PS_FAULT_ALLOC);
        ps_fault_arm(PS_FAULT_ALLOC, -1, false);
        assert_int_equal(st, has_struck ? PS_ENOMEM_HOST : PS_OK);
        ps_instruct_set_close(s);
        assert_int_equal(ps_mem_live_bytes(), live_bytes);
    }
    assert_true(n_failures >= 10);
}

static void test_faults(void **state)
{
    (void)state;
    temp_path p = write_text(
        "{\"prompt\": \"y\", \"completion\": \"z\"}\n"
        "{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}],"
        " \"completion\": [{\"role\": \"assistant\", \"content\": [{\"type\": \"text\", \"text\": \"b\"}]}]}");
    fail_in_turn(options(PAIRS, 50), &p);
    p = write_text("{\"instruction\": \"a\", \"input\": \"b\", \"output\": \"c\"}");
    ps_instruct_options o = options(ALPACA, 500);
    o.chat_format = PS_CONFIG_CHAT_FORMAT_AUTO;
    fail_in_turn(o, &p);
    const temp_path template = temp_folder_file(&folder, "tokenizer_config.json");
    assert_int_equal(ps_file_write_all(template.text, "{\"eos_token\": \"a\"}", 18), PS_OK);
    fail_in_turn(o, &p);
    p = write_text("{\"conversations\": [{\"from\": \"gpt\", \"value\": \"b\"}], \"system\": \"s\"}");
    fail_in_turn(options(SHAREGPT, 50), &p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompts_and_completions),
        cmocka_unit_test(test_alpaca),
        cmocka_unit_test(test_sharegpt),
        cmocka_unit_test(test_long_lines_are_cut),
        cmocka_unit_test(test_form_by_the_first_line),
        cmocka_unit_test(test_bad_lines_are_errors_with_their_place),
        cmocka_unit_test(test_faults),
    };
    folder = temp_folder_make();
    const int n_failed = cmocka_run_group_tests(tests, set_up, tear_down);
    temp_folder_remove(&folder);
    return n_failed;
}
