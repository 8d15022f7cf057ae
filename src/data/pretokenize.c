#include "data/pretokenize.h"

#include "base/utf8.h"
#include "data/unicode_class.h"

#define KEPT_BYTES (64 * PS_KIB)

/* State of one text in the steps. */
typedef struct splitting {
    ps_pretokenizer *p;
    const char *text;
    ps_text_start start;
    ps_piece_sink sink;
    void *context;
} splitting;

static ps_status run_steps(const splitting *s, int step, const char *text, int64_t n);

void ps_pretokenizer_deinit(ps_pretokenizer *p)
{
    for (int i = 0; i < p->n_steps; i++) {
        ps_regex_destroy(p->steps[i].regex);
        ps_mem_free(p->steps[i].prefixed.bytes);
    }
    memset(p, 0, sizeof *p);
}

/* ---- handling of a match ---- */

/* The pending piece, to which the next range may be added. */
typedef struct pending {
    const splitting *s;
    int next_step;
    const char *text;
    ps_split_behavior behavior;
    int64_t begin, end; /* empty: none */
    bool is_match;      /* of the last range seen */
} pending;

static ps_status pending_flush(pending *p)
{
    const int64_t begin = p->begin, end = p->end;
    p->begin = p->end;
    return end > begin ? run_steps(p->s, p->next_step, p->text + begin, end - begin) : PS_OK;
}

/* The next range; ranges are adjacent and cover the text. */
static ps_status pending_add(pending *p, int64_t begin, int64_t end, bool is_match)
{
    const bool was_match = p->is_match, has_last = p->end > p->begin;
    p->is_match = is_match;
    bool joins = false;
    switch (p->behavior) {
    case PS_SPLIT_REMOVED:
        if (!is_match) break;
        PS_TRY(pending_flush(p));
        p->begin = p->end = end;
        return PS_OK;
    case PS_SPLIT_ISOLATED: break;
    case PS_SPLIT_MERGED_WITH_PREVIOUS: joins = is_match && !was_match; break;
    case PS_SPLIT_MERGED_WITH_NEXT: joins = !is_match && was_match; break;
    case PS_SPLIT_CONTIGUOUS: joins = is_match == was_match; break;
    }
    if (joins && has_last) {
        p->end = end;
        return PS_OK;
    }
    PS_TRY(pending_flush(p));
    p->begin = begin;
    p->end = end;
    return PS_OK;
}

/* ---- steps ---- */

static ps_status split_regex(const splitting *s, int step, const char *text, int64_t n)
{
    ps_pretokenizer_step *r = &s->p->steps[step];
    pending p = {.s = s, .next_step = step + 1, .text = text, .behavior = r->behavior};
    int64_t done = 0; /* the ranges up to here were added */
    for (int64_t from = 0; from <= n;) {
        int64_t begin, end;
        PS_TRY(ps_regex_find(r->regex, text, n, from, &begin, &end));
        if (begin > n) break;
        if (begin > done) PS_TRY(pending_add(&p, done, begin, r->invert));
        PS_TRY(pending_add(&p, begin, end, !r->invert));
        done = end;
        from = end;
        if (end > begin) continue;
        if (end == n) break;
        from += ps_utf8_length(text + end, n - end); /* past an empty match */
    }
    if (done < n) PS_TRY(pending_add(&p, done, n, r->invert));
    return pending_flush(&p);
}

static ps_status split_prefix_space(const splitting *s, int step, const char *text, int64_t n)
{
    if (s->start == PS_TEXT_GOES_ON || text[0] == ' ') return run_steps(s, step + 1, text, n);
    ps_text_buffer *b = &s->p->steps[step].prefixed;
    b->n = 0;
    PS_TRY(ps_text_append(b, " ", 1));
    PS_TRY(ps_text_append(b, text, n));
    return run_steps(s, step + 1, b->bytes, b->n);
}

/* A piece begins at each mark; text before the first mark is a piece, too. */
static ps_status split_at_marks(const splitting *s, int step, const char *text, int64_t n, const char *mark)
{
    const size_t n_mark = strlen(mark);
    for (int64_t begin = 0, end; begin < n; begin = end) {
        const char *next = n - begin > 1 ? memmem(text + begin + 1, (size_t)(n - begin - 1), mark, n_mark) : NULL;
        end = next != NULL ? next - text : n;
        PS_TRY(run_steps(s, step + 1, text + begin, end - begin));
    }
    return PS_OK;
}

static ps_status split_metaspace(const splitting *s, int step, const char *text, int64_t n)
{
    ps_pretokenizer_step *m = &s->p->steps[step];
    const int64_t n_mark = (int64_t)strlen(m->mark);
    ps_text_buffer *b = &m->prefixed;
    const bool is_first = s->start == PS_TEXT_BEGINS && text == s->text;
    const bool has_mark = text[0] == ' ' || (n >= n_mark && memcmp(text, m->mark, (size_t)n_mark) == 0);
    b->n = 0;
    if (!has_mark && (m->prefix == PS_METASPACE_ALWAYS || (m->prefix == PS_METASPACE_FIRST && is_first)))
        PS_TRY(ps_text_append(b, m->mark, n_mark));
    for (int64_t at = 0, end; at < n; at = end) {
        const char *space = memchr(text + at, ' ', (size_t)(n - at));
        end = space != NULL ? space - text : n;
        PS_TRY(ps_text_append(b, text + at, end - at));
        if (space == NULL) break;
        PS_TRY(ps_text_append(b, m->mark, n_mark));
        end++;
    }
    return m->splits ? split_at_marks(s, step, b->bytes, b->n, m->mark) : run_steps(s, step + 1, b->bytes, b->n);
}

/* Drops white space; with `by_punctuation` each punctuation character is a piece. */
static ps_status split_words(const splitting *s, int step, const char *text, int64_t n, bool by_punctuation)
{
    int64_t begin = 0;
    for (int64_t i = 0; i < n;) {
        int length;
        const int32_t c = ps_utf8_get(text + i, &length);
        const bool is_space = ps_is_white_space(c), is_isolated = by_punctuation && !is_space && ps_is_punctuation(c);
        if (is_space || is_isolated) {
            if (i > begin) PS_TRY(run_steps(s, step + 1, text + begin, i - begin));
            begin = i + length;
        }
        if (is_isolated) PS_TRY(run_steps(s, step + 1, text + i, length));
        i += length;
    }
    return n > begin ? run_steps(s, step + 1, text + begin, n - begin) : PS_OK;
}

/* Every character of a class is a match. */
static ps_status split_characters(const splitting *s, int step, const char *text, int64_t n, bool (*is_match)(int32_t))
{
    pending p = {.s = s, .next_step = step + 1, .text = text, .behavior = s->p->steps[step].behavior};
    int64_t done = 0;
    for (int64_t i = 0; i < n;) {
        int length;
        const int32_t c = ps_utf8_get(text + i, &length);
        if (is_match(c)) {
            if (i > done) PS_TRY(pending_add(&p, done, i, false));
            PS_TRY(pending_add(&p, i, i + length, true));
            done = i + length;
        }
        i += length;
    }
    if (done < n) PS_TRY(pending_add(&p, done, n, false));
    return pending_flush(&p);
}

static ps_status run_steps(const splitting *s, int step, const char *text, int64_t n)
{
    if (step == s->p->n_steps) return s->sink(s->context, text, n);
    switch (s->p->steps[step].kind) {
    case PS_PRETOKENIZE_REGEX: return split_regex(s, step, text, n);
    case PS_PRETOKENIZE_PREFIX_SPACE: return split_prefix_space(s, step, text, n);
    case PS_PRETOKENIZE_METASPACE: return split_metaspace(s, step, text, n);
    case PS_PRETOKENIZE_BERT: return split_words(s, step, text, n, true);
    case PS_PRETOKENIZE_WHITE_SPACE: return split_words(s, step, text, n, false);
    case PS_PRETOKENIZE_DIGITS: return split_characters(s, step, text, n, ps_is_number);
    case PS_PRETOKENIZE_PUNCTUATION: return split_characters(s, step, text, n, ps_is_punctuation);
    }
    return PS_OK;
}

ps_status ps_pretokenize(ps_pretokenizer *p, const char *text, int64_t n, ps_text_start start, ps_piece_sink sink,
                         void *context)
{
    const splitting s = {p, text, start, sink, context};
    return n > 0 ? run_steps(&s, 0, text, n) : PS_OK;
}

void ps_pretokenizer_trim(ps_pretokenizer *p)
{
    for (int i = 0; i < p->n_steps; i++) {
        ps_text_buffer *b = &p->steps[i].prefixed;
        if (b->capacity <= KEPT_BYTES) continue;
        ps_mem_free(b->bytes);
        *b = (ps_text_buffer){0};
    }
}
