#include "base/printable.h"

#include <stdint.h>
#include <string.h>

#include "base/utf8.h"

bool ps_is_control(const char *character, int length)
{
    const unsigned char c = (unsigned char)character[0], next = (unsigned char)character[1];
    return length == 1 ? c < 0x20 || c == 0x7F : c == 0xC2 && next < 0xA0; /* U+0080 to U+009F */
}

char *ps_printable(char *text)
{
    const int64_t n = (int64_t)strlen(text);
    char *to = text;
    for (int64_t i = 0, length; i < n; i += length) {
        length = ps_utf8_length(text + i, n - i);
        if (length > 0 && !ps_is_control(text + i, (int)length)) {
            memmove(to, text + i, (size_t)length);
            to += length;
            continue;
        }
        *to++ = '?';
        if (length > 0) continue;
        length = 1; /* with its continuation bytes */
        while (i + length < n && ((unsigned char)text[i + length] & 0xC0) == 0x80) length++;
    }
    *to = '\0';
    return text;
}

const char *ps_printable_copy(const char *text, char *out, size_t out_bytes)
{
    size_t n = strlen(text);
    const bool cut = n >= out_bytes;
    if (cut) {
        n = out_bytes - 4;
        while (n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80) n--; /* do not cut a character */
    }
    memcpy(out, text, n);
    out[n] = '\0';
    ps_printable(out);
    return cut ? strcat(out, "...") : out;
}
