#include "data/token_offsets.h"

#include <string.h>

#include "base/base.h"
#include "base/mem.h"

typedef struct finder {
    ps_token_offsets *out;
    ps_tokenizer *tokenizer;
    ps_encode_options options;
    const char *text;
    int64_t n_bytes;
} finder;

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static bool begins_character(char c)
{
    return ((unsigned char)c & 0xC0) != 0x80;
}

/* Behind the white space at `at`, or behind what is not, as far as `end`. */
static int64_t skip(const char *text, int64_t at, int64_t end, bool space)
{
    while (at < end && is_space(text[at]) == space) at++;
    return at;
}

static ps_status encode(const finder *f, int64_t begin, int64_t end, ps_encoding *e)
{
    return ps_tokenizer_encode_sequence(f->tokenizer, &f->options, f->text + begin, end - begin, NULL, 0, e);
}

static bool are_same(const int32_t *a, const int32_t *b, int64_t n)
{
    return n == 0 || memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

/* *is_cut: do the bytes [begin, at) have just the first n of the ids? */
static ps_status cuts(const finder *f, int64_t begin, int64_t at, const int32_t *ids, int64_t n, bool *is_cut)
{
    ps_encoding e = {0};
    PS_TRY(encode(f, begin, at, &e));
    *is_cut = e.n == n && are_same(e.ids, ids, n);
    ps_encoding_deinit(&e);
    return PS_OK;
}

/* Where the first i of the tokens of [begin, end) end: the last place that cuts them from the next; -1: they share a
 * character. Looked for from `from` on. */
static ps_status find_cut(const finder *f, const int32_t *ids, int64_t i, int64_t begin, int64_t from, int64_t end,
                          int64_t *cut)
{
    *cut = -1;
    for (int64_t at = from; at < end; at++) {
        bool is_cut = false;
        if (!begins_character(f->text[at])) continue;
        PS_TRY(cuts(f, begin, at, ids, i, &is_cut));
        if (!is_cut && *cut >= 0) return PS_OK;
        if (is_cut) *cut = at;
    }
    return PS_OK;
}

static int64_t next_character(const finder *f, int64_t at, int64_t end)
{
    do at++;
    while (at < end && !begins_character(f->text[at]));
    return ps_min_i64(at, end);
}

/* The n tokens from number `first` on, which are those of the bytes [begin, end). */
static ps_status place(const finder *f, int64_t first, int64_t n, int64_t begin, int64_t end)
{
    int64_t from = begin; /* behind the last cut */
    for (int64_t i = 0; i < n; i++) {
        int64_t cut = end;
        if (i + 1 < n) PS_TRY(find_cut(f, f->out->ids + first, i + 1, begin, from + 1, end, &cut));
        const int64_t own = skip(f->text, from, end, true);
        int64_t to = cut >= 0 ? cut : next_character(f, own, end);
        while (to > own && is_space(f->text[to - 1])) to--;
        f->out->begin[first + i] = own;
        f->out->end[first + i] = ps_max_i64(to, own);
        if (cut >= 0) from = cut;
    }
    return PS_OK;
}

/* Words one by one, with the white space in front of them or without. *is_done false: their tokens are not those of the
 * text. */
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
