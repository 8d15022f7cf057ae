/* named_bytes.h - the size that a message gives an option: "... One of: memory.host=113MB, memory.device=133MB." */
#ifndef PS_TEST_NAMED_BYTES_H
#define PS_TEST_NAMED_BYTES_H

#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/bytes.h"

/* option: "memory.device=". */
static inline int64_t named_bytes(const char *message, const char *option)
{
    const char *at = strstr(message, option);
    char size[32];
    int64_t bytes;
    if (at == NULL) fail_msg("no %s in: %s", option, message);
    snprintf(size, sizeof size, "%.*s", (int)strcspn(at + strlen(option), " ,;:)"), at + strlen(option));
    if (size[0] != '\0' && size[strlen(size) - 1] == '.') size[strlen(size) - 1] = '\0'; /* of the sentence */
    if (ps_bytes_parse(size, &bytes) != PS_OK) fail_msg("no size after %s: %s", option, message);
    return bytes;
}

/* Less than the smallest size that such a message rounds up: three digits are kept, and budgets count in pages. */
static inline int64_t below_named(int64_t bytes)
{
    return bytes * 100 / 101 - 4096;
}

#endif
