#include "data/added_tokens.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "data/unicode_class.h"

ps_status ps_added_append(ps_added_set *s, const ps_added_token *token)
{
    PS_TRY(ps_mem_reserve(&s->tokens, (size_t)s->n + 1, sizeof *s->tokens));
    ps_added_token copy = *token;
    PS_TRY(ps_mem_alloc((size_t)token->n_bytes + 1, 1, &copy.text));
    memcpy(copy.text, token->text, (size_t)token->n_bytes);
    s->tokens[s->n++] = copy;
    return PS_OK;
}

static int compare_tokens(const void *a, const void *b)
{
    const ps_added_token *x = a, *y = b;
    const int by_byte = (unsigned char)x->text[0] - (unsigned char)y->text[0];
    if (by_byte != 0) return by_byte;
    if (x->n_bytes != y->n_bytes) return x->n_bytes > y->n_bytes ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

void ps_added_sort(ps_added_set *s)
{
    if (s->n > 0) qsort(s->tokens, (size_t)s->n, sizeof *s->tokens, compare_tokens);
    int32_t i = 0;
    for (int b = 0; b <= 256; b++) {
        while (i < s->n && (unsigned char)s->tokens[i].text[0] < b) i++;
        s->first[b] = i;
    }
}

void ps_added_deinit(ps_added_set *s)
{
    for (int64_t i = 0; i < s->n; i++) ps_mem_free(s->tokens[i].text);
    ps_mem_free(s->tokens);
    memset(s, 0, sizeof *s);
}

/* The character that ends, or begins, at text + at; -1 at a border of the text or for malformed bytes. */
static int32_t character_before(const char *text, int64_t at, int *length)
{
    for (*length = 1; *length <= 4 && *length <= at; ++*length)
        if (ps_utf8_length(text + at - *length, *length) == *length) {
            int same;
            return ps_utf8_get(text + at - *length, &same);
        }
    return -1;
}

static int32_t character_at(const char *text, int64_t n, int64_t at, int *length)
{
    *length = at < n ? ps_utf8_length(text + at, n - at) : 0;
    return *length > 0 ? ps_utf8_get(text + at, length) : -1;
}

static bool is_single_word(const char *text, int64_t n, int64_t begin, int64_t end)
{
    int length;
    const int32_t before = character_before(text, begin, &length), after = character_at(text, n, end, &length);
    return (before < 0 || !ps_is_word(before)) && (after < 0 || !ps_is_word(after));
}

static const ps_added_token *token_at(const ps_added_set *s, const char *text, int64_t n, int64_t at)
{
    const int first = (unsigned char)text[at];
    for (int32_t i = s->first[first]; i < s->first[first + 1]; i++) {
        const ps_added_token *a = &s->tokens[i];
        if (a->n_bytes <= n - at && memcmp(a->text, text + at, (size_t)a->n_bytes) == 0) return a;
    }
    return NULL;
}

const ps_added_token *ps_added_find(const ps_added_set *s, const char *text, int64_t n, int64_t from, int64_t *begin,
                                    int64_t *end)
{
    for (int64_t at = from; at < n && s->n > 0;) {
        const ps_added_token *a = token_at(s, text, n, at);
        if (a == NULL) {
            at++;
            continue;
        }
        *begin = at;
        at = *end = at + a->n_bytes;
        if (a->single_word && !is_single_word(text, n, *begin, *end)) continue;
        int length;
        while (a->lstrip && *begin > from && ps_is_white_space(character_before(text, *begin, &length)))
            *begin = ps_max_i64(from, *begin - length);
        while (a->rstrip && ps_is_white_space(character_at(text, n, *end, &length))) *end += length;
        return a;
    }
    return NULL;
}
