#include "train/text_stream.h"

#include <errno.h>
#include <string.h>

#include "base/base.h"
#include "base/mem.h"
#include "base/utf8.h"

static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */

/* Could more bytes make a character of these last ones? */
static bool is_unfinished(const char *text, int64_t n)
{
    /* what may follow most first bytes; F0, which needs 90 or more; E0, which needs A0 or more */
    static const char *const rest[] = {"\x80\x80\x80", "\x90\x80\x80", "\xA0\x80\x80"};
    char whole[8];
    if (n == 0 || n > 3) return false;
    for (size_t i = 0; i < PS_ARRAY_LEN(rest); i++) {
        memcpy(whole, text, (size_t)n);
        memcpy(whole + n, n == 1 ? rest[i] : rest[0], 3);
        if (ps_utf8_length(whole, n + 3) > n) return true;
    }
    return false;
}

/* A tokenizer with bytes as a fallback decodes an unfinished character as U+FFFD: that may change too. */
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
        length = ps_utf8_length(at, left);
        if (length > 0) {
            fwrite(at, 1, (size_t)length, s->out);
        } else {
            fputs(replacement, s->out);
            length = 1;
            /* one sign for all bytes of a character that is cut */
            while (length < left && is_unfinished(at, length + 1)) length++;
        }
    }
}

ps_status text_stream_show(text_stream *s, const int32_t *ids, int64_t n, bool is_last)
{
    char *text = NULL;
    int64_t n_bytes = 0;
    PS_TRY(ps_tokenizer_decode_plain(s->tokenizer, ids, n, &text, &n_bytes));
    show(s, text, n_bytes, is_last);
    ps_mem_free(text);
    if (fflush(s->out) == 0 && !ferror(s->out)) return PS_OK;
    return PS_FAIL(PS_EIO, "cannot write the text: %s", strerror(errno));
}
