#include "text_stream.h"

#include <errno.h>
#include <string.h>

#include "client.h"

static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */

/* Length of the well-formed character (Unicode standard, table 3-7) at the beginning of the n >= 1 bytes, 0 when there
 * is none. */
static int character_length(const char *text, int64_t n)
{
    static const struct {
        unsigned char first, last, least, most; /* the first byte's range, and the second's */
        int length;
    } rows[] = {{0x00, 0x7F, 0x00, 0xFF, 1}, {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3},
                {0xE1, 0xEC, 0x80, 0xBF, 3}, {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3},
                {0xF0, 0xF0, 0x90, 0xBF, 4}, {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4}};
    const unsigned char *p = (const unsigned char *)text;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const int length = rows[i].length;
        if (p[0] < rows[i].first || p[0] > rows[i].last) continue;
        if (length == 1) return 1;
        if (length > n || p[1] < rows[i].least || p[1] > rows[i].most) return 0;
        for (int k = 2; k < length; k++)
            if (p[k] < 0x80 || p[k] > 0xBF) return 0;
        return length;
    }
    return 0;
}

/* Whether more bytes could complete a character at the end. */
static bool is_unfinished(const char *text, int64_t n)
{
    /* continuation bytes of most first bytes; F0 needs 90 or more; E0 needs A0 or more */
    static const char *const rest[] = {"\x80\x80\x80", "\x90\x80\x80", "\xA0\x80\x80"};
    char whole[8];
    if (n == 0 || n > 3) return false;
    for (size_t i = 0; i < sizeof rest / sizeof rest[0]; i++) {
        memcpy(whole, text, (size_t)n);
        memcpy(whole + n, n == 1 ? rest[i] : rest[0], 3);
        if (character_length(whole, n + 3) > n) return true;
    }
    return false;
}

/* A tokenizer with byte fallback decodes an incomplete character as U+FFFD, which may change with the next token. */
static bool is_preliminary(const char *text, int64_t n)
{
    if (n % 3 != 0 || n > 9) return false;
    for (int64_t i = 0; i < n; i += 3)
        if (memcmp(text + i, replacement, 3) != 0) return false;
    return true;
}

static void show(text_stream *s, const char *text, int64_t n, bool is_last)
{
    for (int length; s->n_shown < n; s->n_shown += length) {
        const char *at = text + s->n_shown;
        const int64_t left = n - s->n_shown;
        if (!is_last && (is_unfinished(at, left) || is_preliminary(at, left))) return;
        length = character_length(at, left);
        if (length > 0) {
            fwrite(at, 1, (size_t)length, s->out);
        } else {
            fputs(replacement, s->out);
            length = 1;
            /* one U+FFFD for all bytes of a truncated character */
            while (length < left && is_unfinished(at, length + 1)) length++;
        }
    }
}

ps_status text_stream_show(text_stream *s, const int32_t *ids, int64_t n, bool is_last)
{
    char *text = NULL;
    int64_t n_bytes = 0;
    TRY(ps_tokenizer_decode_plain(s->tokenizer, ids, n, &text, &n_bytes));
    show(s, text, n_bytes, is_last);
    ps_free(text);
    if (fflush(s->out) == 0 && !ferror(s->out)) return PS_OK;
    return client_fail(PS_EIO, "cannot write the text: %s", strerror(errno));
}
