#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/base.h"
#include "base/fault.h"
#include "base/mem.h"
#include "data/chat_message.h"

static ps_status read_text(const char *text, ps_chat *chat)
{
    json_t *list = json_loads(text, 0, NULL);
    assert_non_null(list);
    const ps_status st = ps_chat_append(chat, list, "messages", false, "a.jsonl: line 3, offset 7");
    json_decref(list);
    return st;
}

static void test_messages(void **state)
{
    (void)state;
    ps_chat c = {0};
    json_t *list =
        json_loads("[{\"role\": \"system\", \"content\": \"S\", \"name\": 5},"
                   " {\"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": \"text\", \"text\": \"\"},"
                   " {\"text\": \"b\\u0000c\", \"type\": \"text\"}], \"role\": \"user\", \"tool_calls\": null},"
                   " {\"role\": \"assistant\", \"content\": [], \"tool_calls\": []}]",
                   JSON_ALLOW_NUL, NULL);
    assert_int_equal(ps_chat_append(&c, list, "prompt", true, "w"), PS_OK);
    assert_int_equal(ps_chat_append(&c, list, "completion", false, "w"), PS_OK);
    assert_int_equal(c.n, 6);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(c.messages[i].role, i % 3);
        assert_int_equal(c.messages[i].is_given, i < 3);
    }
    assert_string_equal(c.messages[0].content, "S");
    assert_int_equal(c.messages[4].n_bytes, 4);
    assert_memory_equal(c.messages[4].content, "ab\0c", 5);
    assert_int_equal(c.messages[5].n_bytes, 0);
    ps_chat_clear(&c);
    assert_int_equal(c.n, 0);
    assert_int_equal(ps_chat_append(&c, list, "prompt", true, "w"), PS_OK);
    json_decref(list);
    ps_chat_deinit(&c);
}

static void test_what_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"{}", "a.jsonl: line 3, offset 7: \"messages\" is an object, expected a list of messages"},
        {"[1]", "line 3, offset 7: messages[0] is an integer, expected an object"},
        {"[{\"role\": \"user\", \"content\": \"\"}, {\"content\": \"\"}]", "messages[1].role is missing"},
        {"[{\"role\": \"tool\", \"content\": \"\"}]", "messages[0]: role \"tool\" is not supported"},
        {"[{\"role\": \"user\"}]", "messages[0].content is missing, expected a string or a list"},
        {"[{\"role\": \"user\", \"content\": null}]", "messages[0].content is null"},
        {"[{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{}]}]",
         "messages[0].tool_calls: calls of tools"},
        {"[{\"role\": \"assistant\", \"content\": \"\", \"function_call\": {}}]", "messages[0].function_call"},
        {"[{\"role\": \"user\", \"content\": [{\"type\": \"image\"}]}]", "messages[0].content[0] has type \"image\""},
        {"[{\"role\": \"user\", \"content\": [\"a\"]}]", "messages[0].content[0] has type \"\""},
        {"[{\"role\": \"user\", \"content\": [{\"type\": \"text\"}]}]", "messages[0].content[0].text is missing"},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        ps_chat c = {0};
        assert_int_equal(read_text(cases[i].text, &c), PS_EFORMAT);
        if (strstr(ps_last_error(), cases[i].message) == NULL)
            fail_msg("case %zu: \"%s\" lacks \"%s\"", i, ps_last_error(), cases[i].message);
        ps_chat_deinit(&c);
    }
}

static void test_faults(void **state)
{
    (void)state;
    int n_failures = 0;
    for (bool has_struck = true; has_struck; n_failures += has_struck) {
        ps_chat c = {0};
        ps_fault_arm(PS_FAULT_ALLOC, n_failures, false);
        const ps_status st =
            read_text("[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}]}]", &c);
        has_struck = ps_fault_has_struck(PS_FAULT_ALLOC);
        ps_fault_arm(PS_FAULT_ALLOC, -1, false);
        assert_int_equal(st, has_struck ? PS_ENOMEM_HOST : PS_OK);
        ps_chat_deinit(&c);
        assert_int_equal(ps_mem_live_bytes(), 0);
    }
    assert_int_equal(n_failures, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
