/* assert_status.h - what a call returned, and what it said. */
#ifndef TEST_ASSERT_STATUS_H
#define TEST_ASSERT_STATUS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"

#define assert_ok(expr)                                                                                                \
    do {                                                                                                               \
        if ((expr) != PS_OK) fail_msg("%s", ps_last_error());                                                          \
    } while (0)
#define assert_fails(expr, status, text)                                                                               \
    do {                                                                                                               \
        assert_int_equal((expr), (status));                                                                            \
        if (strstr(ps_last_error(), (text)) == NULL) fail_msg("%s", ps_last_error());                                  \
    } while (0)

#endif
