#include "data/token_offsets.h"

#include <string.h>

#include "base/base.h"
#include "base/mem.h"

enum {
    WINDOW = 64,        /* characters after the last cut that are searched in addition to those of the tokens, and
                           spaces in a row */
    WINDOW_MAX = 512,   /* with those of the tokens */
    STRETCH_BYTES = 128 /* approximate maximum that is encoded repeatedly */
};

typedef struct finder {
    ps_token_offsets *out;
    ps_tokenizer *tokenizer;
    ps_encode_options options;
    const char *text;
    int64_t n_bytes;
} finder;

/* An anchor: a position of the text from which encoding gives n_other tokens, then those from `first` on. The other
 * tokens are those of the beginning of a text (SentencePiece's U+2581) and tokens that the anchor splits. */
typedef struct anchor {
    int64_t at, n_other, first;
} anchor;

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static bool begins_character(char c)
{
    return ((unsigned char)c & 0xC0) != 0x80;
}

/* End of the white space, or of the other characters, at `at`, up to `end`. */
static int64_t skip(const char *text, int64_t at, int64_t end, bool space)
{
    while (at < end && is_space(text[at]) == space) at++;
    return at;
}

static ps_status encode(const finder *f, int64_t begin, int64_t end, ps_encoding *e)
{
    f->out->encoded_bytes += end - begin;
    return ps_tokenizer_encode_sequence(f->tokenizer, &f->options, f->text + begin, end - begin, NULL, 0, e);
}

static bool are_same(const int32_t *a, const int32_t *b, int64_t n)
{
    return n == 0 || memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

typedef enum { BEFORE_CUT, AT_CUT, AFTER_CUT } side;

/* Whether the encoding of the bytes up to `at` is exactly the tokens before `next`. AFTER_CUT: it is these and
 * `next`. */
static ps_status look(const finder *f, const anchor *a, int64_t at, int64_t next, side *out)
{
    ps_encoding e = {0};
    PS_TRY(encode(f, a->at, at, &e));
    const int64_t n = a->n_other + next - a->first;
    const int32_t *const ids = e.ids + a->n_other, *const whole = f->out->ids + a->first;
    *out = BEFORE_CUT;
    if (e.n == n && are_same(ids, whole, next - a->first)) *out = AT_CUT;
    if (e.n > n && are_same(ids, whole, next - a->first + 1)) *out = AFTER_CUT;
    ps_encoding_deinit(&e);
    return PS_OK;
}

/* Number of characters after the cut before token `first` in which the end of the token before `next` is searched. */
static int64_t window_of(const finder *f, int64_t first, int64_t next)
{
    int64_t n = WINDOW;
    for (int64_t i = first; i < next && n < WINDOW_MAX; i++) {
        int64_t n_bytes;
        (void)ps_tokenizer_token(f->tokenizer, f->out->ids[i], &n_bytes);
        n += n_bytes;
    }
    return ps_min_i64(n, WINDOW_MAX);
}

/* End of the token before `next`: the last position that separates both; -1: they share a character. Searched from the
 * last cut, `from`, which is before token `first`. */
static ps_status find_cut(const finder *f, const anchor *a, int64_t first, int64_t next, int64_t from, int64_t end,
                          int64_t *cut)
{
    int64_t left = window_of(f, first, next), n_spaces = 0;
    side s = BEFORE_CUT;
    *cut = -1;
    for (int64_t at = from + 1; at < end && left > 0; at++) {
        if (!begins_character(f->text[at])) continue;
        n_spaces = is_space(f->text[at - 1]) ? n_spaces + 1 : 0;
        if (n_spaces == 0) left--;
        if (n_spaces > WINDOW) at = ps_max_i64(at, skip(f->text, at, end, true) - 1);
        PS_TRY(look(f, a, at, next, &s));
        if (s == AFTER_CUT || (s == BEFORE_CUT && *cut >= 0)) return PS_OK;
        if (s == AT_CUT) *cut = at;
    }
    return PS_OK;
}

/* Move the anchor to `at`, a cut before token `first`, if encoding from there gives the same tokens before `next`,
 * whose cut is at `end`. The first tokens may differ, but fewer than half of them. */
static ps_status move_anchor(const finder *f, anchor *a, int64_t at, int64_t first, int64_t next, int64_t end)
{
    ps_encoding e = {0};
    int64_t n_same = 0;
    PS_TRY(encode(f, at, end, &e));
    while (n_same < ps_min_i64(e.n, next - first) && e.ids[e.n - 1 - n_same] == f->out->ids[next - 1 - n_same])
        n_same++;
    if (n_same > 0 && n_same * 2 >= next - first)
        *a = (anchor){.at = at, .n_other = e.n - n_same, .first = next - n_same};
    ps_encoding_deinit(&e);
    return PS_OK;
}

static int64_t next_character(const finder *f, int64_t at, int64_t end)
{
    do at++;
    while (at < end && !begins_character(f->text[at]));
    return ps_min_i64(at, end);
}

/* Offsets of the n tokens from number `first` on, which are those of the bytes [begin, end). */
static ps_status place(const finder *f, int64_t first, int64_t n, int64_t begin, int64_t end)
{
    anchor a = {.at = begin, .first = first};
    int64_t from = begin, from_token = first; /* after the last cut */
    int64_t next_at = -1, next_token = 0;     /* a cut that may be the next anchor */
    for (int64_t i = first; i < first + n; i++) {
        int64_t cut = end;
        if (i + 1 < first + n) PS_TRY(find_cut(f, &a, from_token, i + 1, from, end, &cut));
        const int64_t own = skip(f->text, from, end, true);
        int64_t to = cut >= 0 ? cut : next_character(f, own, end);
        while (to > own && is_space(f->text[to - 1])) to--;
        f->out->begin[i] = own;
        f->out->end[i] = ps_max_i64(to, own);
        if (cut < 0) continue;
        from = cut;
        from_token = i + 1;
        if (next_at < 0 && from - a.at >= STRETCH_BYTES / 2) next_at = from, next_token = from_token;
        if (next_at < 0 || from - next_at < STRETCH_BYTES / 2) continue;
        PS_TRY(move_anchor(f, &a, next_at, next_token, from_token, from));
        next_at = -1;
    }
    return PS_OK;
}

/* Encode words one by one, with or without the preceding white space. *is_done false: their tokens differ from those of
 * the text. */
static ps_status place_words(const finder *f, bool with_space, bool *is_done)
{
    int64_t n = 0;
    *is_done = false;
    for (int64_t at = 0; skip(f->text, at, f->n_bytes, true) < f->n_bytes;) {
        const int64_t word = skip(f->text, at, f->n_bytes, true), end = skip(f->text, word, f->n_bytes, false);
        const int64_t begin = with_space ? at : word;
        ps_encoding e = {0};
        PS_TRY(encode(f, begin, end, &e));
        const int64_t n_word = e.n;
        const bool fits = n + n_word <= f->out->n && are_same(e.ids, f->out->ids + n, n_word);
        ps_encoding_deinit(&e);
        if (!fits) return PS_OK;
        PS_TRY(place(f, n, n_word, begin, end));
        n += n_word;
        at = end;
    }
    *is_done = n == f->out->n;
    return PS_OK;
}

static ps_status find(const finder *f)
{
    bool is_done = false;
    for (int with_space = 1; with_space >= 0 && !is_done; with_space--)
        PS_TRY(place_words(f, with_space != 0, &is_done));
    return is_done ? PS_OK : place(f, 0, f->out->n, 0, f->n_bytes);
}

ps_status ps_token_offsets_init(ps_token_offsets *out, ps_tokenizer *t, bool added_tokens, const char *text,
                                int64_t n_bytes)
{
    const finder f = {.out = out,
                      .tokenizer = t,
                      .options = {.added_tokens = added_tokens, .bare = true},
                      .text = text,
                      .n_bytes = n_bytes};
    ps_encoding e = {0};
    ps_status st;
    *out = (ps_token_offsets){0};
    PS_TRY_GOTO(encode(&f, 0, n_bytes, &e));
    out->ids = e.ids;
    out->n = e.n;
    e.ids = NULL;
    PS_TRY_GOTO(ps_mem_alloc((size_t)out->n, sizeof *out->begin, &out->begin));
    PS_TRY_GOTO(ps_mem_alloc((size_t)out->n, sizeof *out->end, &out->end));
    PS_TRY_GOTO(find(&f));
out:
    ps_encoding_deinit(&e);
    if (st != PS_OK) ps_token_offsets_deinit(out);
    return st;
}

void ps_token_offsets_deinit(ps_token_offsets *o)
{
    ps_mem_free(o->ids);
    ps_mem_free(o->begin);
    ps_mem_free(o->end);
    *o = (ps_token_offsets){0};
}
