#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <pthread.h>

#include <cmocka.h>

#include "base/printable.h"
#include "base/status.h"

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(ps_status_name(PS_OK), "OK");
    assert_string_equal(ps_status_name(PS_EINVAL), "EINVAL");
    assert_string_equal(ps_status_text(PS_EINVAL), "invalid argument or configuration");
    assert_string_equal(ps_status_name((ps_status)-99), "UNKNOWN");
    assert_string_equal(ps_status_text((ps_status)-99), "unknown status");
}

/* Values are part of the ABI. */
static void test_values(void **state)
{
    (void)state;
    assert_int_equal(PS_OK, 0);
    assert_int_equal(PS_EINVAL, -1);
    assert_int_equal(PS_ESTATE, -10);
    assert_int_equal(PS_ECOMM, -11);
}

static void test_message(void **state)
{
    (void)state;
    assert_int_equal(PS_FAIL(PS_EIO, "chunk %d: %s", 12, "no room"), PS_EIO);
    assert_memory_equal(ps_last_error(), "chunk 12: no room", strlen("chunk 12: no room"));
    /* a caller adds context to the message it got */
    assert_int_equal(PS_FAIL(PS_EIO, "saving: %s", ps_last_error()), PS_EIO);
    assert_memory_equal(ps_last_error(), "saving: chunk 12: no room", strlen("saving: chunk 12: no room"));
}

static void test_long_message_is_cut(void **state)
{
    (void)state;
    char text[3000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    assert_int_equal(PS_FAIL(PS_EINVAL, "%s", text), PS_EINVAL);
    assert_int_equal(strlen(ps_last_error()), 1023);
}

/* A message may quote files of others. */
#define ASSERT_SAID(text) assert_memory_equal(ps_last_error(), text, strlen(text))

static void test_message_is_printable(void **state)
{
    (void)state;
    (void)PS_FAIL(PS_EFORMAT, "role \"\x1b[31mevil\x1b]0;title\a\", \xC3\xA9\xE2\x82\xAC \xC2\x9B"
                              "2J\n");
    ASSERT_SAID("role \"?[31mevil?]0;title?\", \xC3\xA9\xE2\x82\xAC ?2J?");
    (void)PS_FAIL(PS_EFORMAT, "%.3s!, %.2s, \xFF\xFE", "a\xE2\x82\xAC", "\xE2\x82\xAC");
    ASSERT_SAID("a?!, ?, ??");
    char out[8];
    assert_string_equal(ps_printable_copy("\x1b[1m", out, sizeof out), "?[1m");
    assert_string_equal(ps_printable_copy("abc\xE2\x82\xAC"
                                          "def",
                                          out, sizeof out),
                        "abc...");
}

static int released;

static ps_status forwards(ps_status st)
{
    PS_TRY(st);
    return PS_ESTATE; /* reached only on success */
}

static ps_status releases(ps_status given)
{
    ps_status st = PS_OK;
    PS_TRY_GOTO(given);
    st = PS_ESTATE;
out:
    released++;
    return st;
}

static void test_try(void **state)
{
    (void)state;
    assert_int_equal(forwards(PS_EIO), PS_EIO);
    assert_int_equal(forwards(PS_OK), PS_ESTATE);
    released = 0;
    assert_int_equal(releases(PS_EIO), PS_EIO);
    assert_int_equal(releases(PS_OK), PS_ESTATE);
    assert_int_equal(released, 2);
}

static void *fail_elsewhere(void *arg)
{
    (void)arg;
    (void)PS_FAIL(PS_EINVAL, "from another thread");
    return NULL;
}

static void test_threads_have_errors_of_their_own(void **state)
{
    (void)state;
    (void)PS_FAIL(PS_EIO, "from this thread");
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_memory_equal(ps_last_error(), "from this thread", strlen("from this thread"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_message),
        cmocka_unit_test(test_long_message_is_cut),
        cmocka_unit_test(test_message_is_printable),
        cmocka_unit_test(test_try),
        cmocka_unit_test(test_threads_have_errors_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
