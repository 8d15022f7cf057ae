/* The program's own files: they are not in the library. */
#include "../../cli/train/client.c"
#include "../../cli/train/text_stream.c"

#include "data/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

/* Bytes of `text` as tokens, shown one after the other; what stands in out[i] after i + 1 of them, the last with
 * is_last. */
static void check(const char *text, const char *const after[])
{
    static ps_tokenizer *t;
    if (t == NULL && ps_tokenizer_open("data/gpt2", &t) != PS_OK) fail_msg("%s", ps_last_error());
    char *shown = NULL;
    size_t n_shown = 0;
    int32_t ids[64];
    text_stream s = {.tokenizer = t, .out = open_memstream(&shown, &n_shown)};
    const int64_t n = (int64_t)strlen(text);
    for (int64_t i = 0; i < n; i++) {
        ids[i] = -1;
        for (int32_t id = 0; id < 256 && ids[i] < 0; id++) { /* GPT-2's first tokens are the bytes */
            int64_t length;
            const char *token = ps_tokenizer_token(t, id, &length);
            if (length == 1 && token[0] == text[i]) ids[i] = id;
        }
        assert_int_not_equal(ids[i], -1);
        assert_int_equal(text_stream_show(&s, ids, i + 1, i + 1 == n), PS_OK);
        assert_string_equal(shown, after[i]);
    }
    fclose(s.out);
    free(shown);
}

static void bytes_wait_for_their_character(void **state)
{
    (void)state;
    check("a\xE2\x82\xAC!", (const char *[]){"a", "a", "a", "a\xE2\x82\xAC", "a\xE2\x82\xAC!"});
    check("\xF0\x9F\x98\x80", (const char *[]){"", "", "", "\xF0\x9F\x98\x80"});
    check("\xED\x95\x9C\xC3\xA9", (const char *[]){"", "", "\xED\x95\x9C", "\xED\x95\x9C", "\xED\x95\x9C\xC3\xA9"});
}

static void what_is_no_character_is_replaced(void **state)
{
    (void)state;
    check("\xFFx", (const char *[]){"\xEF\xBF\xBD", "\xEF\xBF\xBDx"});
    check("\xE2\x82x", (const char *[]){"", "", "\xEF\xBF\xBDx"}); /* cut: one sign */
    check("x\xE2", (const char *[]){"x", "x\xEF\xBF\xBD"});        /* at the end */
    check("\xED\xA0\x80.", (const char *[]){"", "\xEF\xBF\xBD\xEF\xBF\xBD", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD",
                                            "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD."}); /* a surrogate */
}

/* As tokenizers with bytes as a fallback decode them: U+FFFD for each byte of a character that is not finished. */
static void preliminary_signs_wait(void **state)
{
    (void)state;
    check("\xEF\xBF\xBDx", (const char *[]){"", "", "", "\xEF\xBF\xBDx"});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_wait_for_their_character),
        cmocka_unit_test(what_is_no_character_is_replaced),
        cmocka_unit_test(preliminary_signs_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
