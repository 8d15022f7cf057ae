#include "data/answer_score.h"

#include <ctype.h>
#include <string.h>

#include "base/base.h"
#include "base/mem.h"
#include "data/token_offsets.h"

enum { ANSWER_TOKENS_MAX = 30 };

void ps_answer_span_take(ps_answer_span *best, const ps_task_sample *sample, const float *z)
{
    const double none = (double)z[0] + (double)z[1];
    if (none < best->none_score) best->none_score = none;
    for (int64_t i = sample->context; i < sample->context_end; i++)
        for (int64_t k = i; k < sample->context_end && k < i + ANSWER_TOKENS_MAX; k++) {
            const double score = (double)z[i * 2] + (double)z[k * 2 + 1];
            if (!(score > best->score)) continue;
            best->score = score;
            best->first = sample->context_first + i - sample->context;
            best->last = sample->context_first + k - sample->context;
        }
}

static bool is_article(const char *word, int64_t n)
{
    static const char *const articles[] = {"a", "an", "the"};
    for (size_t i = 0; i < PS_ARRAY_LEN(articles); i++)
        if ((int64_t)strlen(articles[i]) == n && memcmp(word, articles[i], (size_t)n) == 0) return true;
    return false;
}

/* Lower case, without punctuation and articles, one space between words; out has room for n + 1 bytes. ASCII only, as
 * punctuation is in the official script. */
static int64_t normalize(const char *text, int64_t n, char *out)
{
    int64_t n_out = 0, word = 0;
    for (int64_t i = 0; i <= n; i++) {
        const unsigned char c = i < n ? (unsigned char)text[i] : ' ';
        if (c < 0x80 && ispunct(c)) continue;
        if (!(c < 0x80 && isspace(c))) {
            out[n_out++] = c < 0x80 ? (char)tolower(c) : (char)c;
            continue;
        }
        if (is_article(out + word, n_out - word)) n_out = word;
        if (n_out > word) out[n_out++] = ' ';
        word = n_out;
    }
    if (n_out > 0) n_out--; /* the space after the last word */
    out[n_out] = '\0';
    return n_out;
}

/* The next word of a normalized text, from *at on; 0 bytes at its end. */
static int64_t next_word(const char *text, int64_t n, int64_t *at)
{
    const int64_t begin = *at;
    while (*at < n && text[*at] != ' ') ++*at;
    const int64_t bytes = *at - begin;
    if (*at < n) ++*at;
    return bytes;
}

static int64_t count_words(const char *text, int64_t n)
{
    int64_t words = 0;
    for (int64_t at = 0; at < n; words++) (void)next_word(text, n, &at);
    return words;
}

/* Number of common words of a and b, with multiplicity; used has an element for each word of b. */
static int64_t count_common(const char *a, int64_t n_a, const char *b, int64_t n_b, bool *used)
{
    int64_t common = 0;
    memset(used, 0, (size_t)count_words(b, n_b) * sizeof *used);
    for (int64_t at_a = 0; at_a < n_a;) {
        const char *const word = a + at_a;
        const int64_t bytes = next_word(a, n_a, &at_a);
        for (int64_t at_b = 0, i = 0; at_b < n_b; i++) {
            const char *const other = b + at_b;
            const int64_t other_bytes = next_word(b, n_b, &at_b);
            if (used[i] || other_bytes != bytes || memcmp(word, other, (size_t)bytes) != 0) continue;
            used[i] = true;
            common++;
            break;
        }
    }
    return common;
}

static ps_answer_score compare(const char *a, int64_t n_a, const char *b, int64_t n_b, bool *used)
{
    const bool is_same = n_a == n_b && memcmp(a, b, (size_t)n_a) == 0;
    if (n_a == 0 || n_b == 0) return (ps_answer_score){is_same, is_same};
    const double common = (double)count_common(a, n_a, b, n_b, used);
    const double words = (double)(count_words(a, n_a) + count_words(b, n_b));
    return (ps_answer_score){is_same, 2 * common / words};
}

static ps_status best_of(const char *text, int64_t n, const ps_task_question *q, ps_answer_score *out)
{
    char *said = NULL, *right = NULL;
    bool *used = NULL;
    ps_status st;
    PS_TRY_GOTO(ps_mem_alloc((size_t)n + 2, 1, &said));
    const int64_t n_said = normalize(text, n, said);
    *out = (ps_answer_score){n_said == 0 && q->n_answers == 0, n_said == 0 && q->n_answers == 0};
    for (int64_t i = 0; i < q->n_answers; i++) {
        const int64_t bytes = (int64_t)strlen(q->answers[i]);
        PS_TRY_GOTO(ps_mem_reserve(&right, (size_t)bytes + 2, 1));
        PS_TRY_GOTO(ps_mem_reserve(&used, (size_t)bytes + 1, sizeof *used));
        const ps_answer_score s = compare(said, n_said, right, normalize(q->answers[i], bytes, right), used);
        out->exact_match = fmax(out->exact_match, s.exact_match);
        out->f1 = fmax(out->f1, s.f1);
    }
out:
    ps_mem_free(said);
    ps_mem_free(right);
    ps_mem_free(used);
    return st;
}

ps_status ps_answer_score_of(ps_tokenizer *t, bool added_tokens, const ps_task_question *q, const ps_answer_span *span,
                             bool may_have_none, ps_answer_score *out)
{
    const bool has_none = span->first < 0 || (may_have_none && span->none_score > span->score);
    ps_token_offsets tokens = {0};
    *out = (ps_answer_score){0};
    if (has_none) return best_of("", 0, q, out);
    PS_TRY(ps_token_offsets_init(&tokens, t, added_tokens, q->context, q->context_bytes));
    PS_ASSERT(span->last < tokens.n);
    const int64_t begin = tokens.begin[span->first], end = ps_max_i64(tokens.end[span->last], begin);
    const ps_status st = best_of(q->context + begin, end - begin, q, out);
    ps_token_offsets_deinit(&tokens);
    return st;
}
