#include "data/decoder.h"

#include "data/wordpiece.h"

/* The byte that "<0x0A>" stands for, -1 for other tokens. */
static int byte_of_token(const char *token, int64_t n)
{
    int byte = 0;
    if (n != 6 || memcmp(token, "<0x", 3) != 0 || token[5] != '>') return -1;
    for (int i = 3; i < 5; i++) {
        const char c = token[i];
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                                 : -1;
        if (digit < 0) return -1;
        byte = 16 * byte + digit;
    }
    return byte;
}

/* Replace every `from` after `begin`, in place; tokens are short. */
static ps_status replace_all(const ps_replacement *r, bool is_first, int64_t begin, ps_text_buffer *out)
{
    const int64_t n_from = (int64_t)strlen(r->from), n_to = is_first && r->drops_first ? 0 : (int64_t)strlen(r->to);
    for (int64_t at = begin; out->n - at >= n_from;) {
        const char *found = memmem(out->bytes + at, (size_t)(out->n - at), r->from, (size_t)n_from);
        if (found == NULL) break;
        at = found - out->bytes;
        PS_TRY(ps_text_reserve(out, n_to));
        char *match = out->bytes + at;
        memmove(match + n_to, match + n_from, (size_t)(out->n - at - n_from));
        memcpy(match, r->to, (size_t)n_to);
        out->n += n_to - n_from;
        at += n_to;
    }
    return PS_OK;
}

/* Strip the rest of the leading characters from this part of the text, after `begin`. */
static void strip_beginning(const ps_decoder *d, ps_decoding *where, int64_t begin, ps_text_buffer *out)
{
    const int64_t n_strip = (int64_t)strlen(d->strip);
    int64_t at = begin;
    while (!where->has_text && where->n_stripped < d->n_strip && out->n - at >= n_strip &&
           memcmp(out->bytes + at, d->strip, (size_t)n_strip) == 0) {
        where->n_stripped++;
        at += n_strip;
    }
    where->has_text |= out->n > at || where->n_stripped == d->n_strip;
    memmove(out->bytes + begin, out->bytes + at, (size_t)(out->n - at));
    out->n -= at - begin;
}

static ps_status add_part(const ps_decoder *d, ps_decoding *where, const char *token, int64_t n, ps_text_buffer *out)
{
    const int64_t begin = out->n;
    const int byte = d->has_bytes ? byte_of_token(token, n) : -1;
    PS_TRY(byte >= 0 ? ps_text_append(out, &(char){(char)byte}, 1) : ps_text_append(out, token, n));
    for (int i = 0; i < d->n_replacements && byte < 0; i++)
        PS_TRY(replace_all(&d->replacements[i], !where->has_begun, begin, out));
    strip_beginning(d, where, begin, out);
    return PS_OK;
}

ps_status ps_decoder_add(const ps_decoder *d, ps_decoding *where, const char *token, int64_t n, ps_text_buffer *out)
{
    switch (d->kind) {
    case PS_DECODE_BYTES: PS_TRY(ps_text_append(out, token, n)); break;
    case PS_DECODE_WORDPIECE:
        PS_TRY(ps_wordpiece_decode_token(token, n, !where->has_begun, d->prefix, d->cleanup, out));
        break;
    case PS_DECODE_PARTS: PS_TRY(add_part(d, where, token, n, out)); break;
    }
    where->has_begun = true;
    return PS_OK;
}
