#include "data/normalize.h"

#include <utf8proc.h>

#include "base/utf8.h"
#include "data/unicode_class.h"

#define KEPT_BYTES (64 * PS_KIB)

ps_normalizer_step *ps_normalizer_add(ps_normalizer *z, ps_normalizer_kind kind)
{
    if (z->n_steps == PS_NORMALIZER_STEPS_MAX) return NULL;
    z->steps[z->n_steps] = (ps_normalizer_step){.kind = kind};
    return &z->steps[z->n_steps++];
}

void ps_normalizer_deinit(ps_normalizer *z)
{
    for (int i = 0; i < z->n_steps; i++) {
        ps_mem_free(z->steps[i].text);
        ps_mem_free(z->steps[i].literal);
        ps_regex_destroy(z->steps[i].regex);
    }
    ps_mem_free(z->out[0].bytes);
    ps_mem_free(z->out[1].bytes);
    ps_mem_free(z->characters);
    memset(z, 0, sizeof *z);
}

void ps_normalizer_trim(ps_normalizer *z)
{
    for (int i = 0; i < 2; i++)
        if (z->out[i].capacity > KEPT_BYTES) {
            ps_mem_free(z->out[i].bytes);
            z->out[i] = (ps_text_buffer){0};
        }
    if (z->capacity <= KEPT_BYTES / 4) return;
    ps_mem_free(z->characters);
    z->characters = NULL;
    z->capacity = 0;
}

/* ---- normalization forms ---- */

static ps_status characters_reserve(ps_normalizer *z, int64_t n)
{
    if (n <= z->capacity) return PS_OK;
    PS_TRY(ps_mem_reserve(&z->characters, (size_t)n, sizeof *z->characters));
    z->capacity = (int64_t)(ps_mem_bytes(z->characters) / sizeof *z->characters);
    return PS_OK;
}

/* Canonical order of n characters whose combining class is not 0: stable, by class. Long runs use counting sort, as a
 * text of marks only must not need quadratic time. `spare` has room for n. */
static void order_marks(int32_t *c, int64_t n, int32_t *spare)
{
    if (n <= 16) {
        for (int64_t i = 1; i < n; i++) {
            const int32_t moved = c[i];
            const int class = utf8proc_get_property(moved)->combining_class;
            int64_t j = i;
            for (; j > 0 && utf8proc_get_property(c[j - 1])->combining_class > class; j--) c[j] = c[j - 1];
            c[j] = moved;
        }
        return;
    }
    int64_t begin[257] = {0};
    for (int64_t i = 0; i < n; i++) begin[utf8proc_get_property(c[i])->combining_class + 1]++;
    for (int k = 0; k < 256; k++) begin[k + 1] += begin[k];
    for (int64_t i = 0; i < n; i++) spare[begin[utf8proc_get_property(c[i])->combining_class]++] = c[i];
    memcpy(c, spare, (size_t)n * sizeof *c);
}

/* Append the normalized characters of one range of text to `out`. */
static ps_status normalize_range(ps_normalizer *z, const char *text, int64_t n, bool compose, bool compatible,
                                 ps_text_buffer *out)
{
    enum { EXPANSION_MAX = 18 }; /* U+FDFA under NFKD; a character */
    const utf8proc_option_t decompose =
        (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));
    int64_t n_characters = 0;
    for (int64_t i = 0; i < n;) {
        int length, last_class = 0;
        const int32_t c = ps_utf8_get(text + i, &length);
        PS_TRY(characters_reserve(z, n_characters + EXPANSION_MAX));
        n_characters += utf8proc_decompose_char(c, z->characters + n_characters, EXPANSION_MAX, decompose, &last_class);
        i += length;
    }
    PS_TRY(characters_reserve(z, 2 * n_characters));
    for (int64_t i = 0, end; i < n_characters; i = end) {
        end = i + 1;
        if (utf8proc_get_property(z->characters[i])->combining_class == 0) continue;
        while (end < n_characters && utf8proc_get_property(z->characters[end])->combining_class != 0) end++;
        order_marks(z->characters + i, end - i, z->characters + n_characters);
    }
    if (compose)
        n_characters = utf8proc_normalize_utf32(z->characters, n_characters, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    PS_TRY(ps_text_reserve(out, 4 * n_characters));
    for (int64_t i = 0; i < n_characters; i++) out->n += ps_utf8_put(z->characters[i], out->bytes + out->n);
    return PS_OK;
}

/* Most text is normalized already. Characters below U+0300 (for NFC; U+0080 for the others) are unchanged, unless the
 * next character composes with them, so only ranges above, each with one preceding character, are processed. */
static ps_status step_form(ps_normalizer *z, ps_normalizer_kind step, const char *text, int64_t n, ps_text_buffer *out)
{
    const bool compose = step == PS_NORMALIZE_NFC || step == PS_NORMALIZE_NFKC;
    const bool compatible = step == PS_NORMALIZE_NFKC || step == PS_NORMALIZE_NFKD;
    const unsigned char least = step == PS_NORMALIZE_NFC ? 0xCC : 0x80; /* first byte of the first such character */
    for (int64_t i = 0, end; i < n; i = end) {
        int64_t begin = i;
        while (begin < n && (unsigned char)text[begin] < least) begin++; /* bytes 0x80 to 0xBF follow a lower one */
        if (begin < n && begin > i) begin -= ps_utf8_length_before(text + begin);
        PS_TRY(ps_text_append(out, text + i, begin - i));
        end = begin;
        if (end < n && (unsigned char)text[end] < least) end += ps_utf8_length(text + end, n - end);
        while (end < n && (unsigned char)text[end] >= least) end += ps_utf8_length(text + end, n - end);
        if (end > begin) PS_TRY(normalize_range(z, text + begin, end - begin, compose, compatible, out));
    }
    return PS_OK;
}

static bool step_form_is_needed(ps_normalizer_kind step, const char *text, int64_t n)
{
    const unsigned char least = step == PS_NORMALIZE_NFC ? 0xCC : 0x80;
    for (int64_t i = 0; i < n; i++)
        if ((unsigned char)text[i] >= least) return true;
    return false;
}

/* ---- character by character ---- */

/* CJK ideographs in the ranges that BertNormalizer has (huggingface/tokenizers, normalizers/bert.rs). */
static bool is_cjk(int32_t c)
{
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
           (c >= 0x2A700 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) ||
           (c >= 0x2F800 && c <= 0x2FA1F);
}

static int clean(int32_t c, int32_t to[3])
{
    if (c == '\t' || c == '\n' || c == '\r') {
        to[0] = ' ';
        return 1;
    }
    const utf8proc_category_t category = utf8proc_category(c);
    if (c == 0 || c == 0xFFFD || category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
        category == UTF8PROC_CATEGORY_CO)
        return 0;
    to[0] = ps_is_white_space(c) ? ' ' : c;
    return 1;
}

/* Replacement of one character: 0 to 3 characters. */
static int step_character(ps_normalizer_kind step, int32_t c, int32_t to[3])
{
    to[0] = c;
    switch ((int)step) {
    case PS_NORMALIZE_LOWERCASE:
        to[0] = utf8proc_tolower(c);
        if (c != 0x130) return 1;
        to[0] = 'i'; /* the only one that becomes two: SpecialCasing.txt */
        to[1] = 0x307;
        return 2;
    case PS_NORMALIZE_STRIP_MARKS: return !ps_is_mark(c);
    case PS_NORMALIZE_BERT_ACCENTS: return utf8proc_category(c) != UTF8PROC_CATEGORY_MN;
    case PS_NORMALIZE_BERT_CLEAN: return clean(c, to);
    case PS_NORMALIZE_BERT_CJK:
        if (!is_cjk(c)) return 1;
        to[0] = to[2] = ' ';
        to[1] = c;
        return 3;
    default: return 1;
    }
}

static ps_status step_characters(ps_normalizer_kind step, const char *text, int64_t n, ps_text_buffer *out)
{
    for (int64_t i = 0; i < n;) {
        int32_t to[3];
        PS_TRY(ps_text_reserve(out, 12));
        if ((unsigned char)text[i] < 0x80 && text[i] >= ' ' && text[i] != 0x7F) { /* ASCII: only case changes */
            const char c = text[i++];
            out->bytes[out->n++] = step == PS_NORMALIZE_LOWERCASE && c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
            continue;
        }
        int length;
        const int32_t c = ps_utf8_get(text + i, &length);
        const int n_to = step_character(step, c, to);
        for (int k = 0; k < n_to; k++) out->n += ps_utf8_put(to[k], out->bytes + out->n);
        i += length;
    }
    return PS_OK;
}

/* ---- inserted texts ---- */

/* The next match at or after `from`; *begin = n + 1 when there is none. An empty match right after a match does not
 * count. */
static ps_status replace_find(const ps_normalizer_step *r, const char *text, int64_t n, int64_t from, int64_t done,
                              int64_t *begin, int64_t *end)
{
    if (r->regex == NULL) {
        const size_t n_literal = strlen(r->literal);
        const char *at = from < n ? memmem(text + from, (size_t)(n - from), r->literal, n_literal) : NULL;
        *begin = at != NULL ? at - text : n + 1;
        *end = *begin + (int64_t)n_literal;
        return PS_OK;
    }
    PS_TRY(ps_regex_find(r->regex, text, n, from, begin, end));
    if (*begin > n || *end > *begin || *begin != done || done == 0) return PS_OK;
    if (from == n) {
        *begin = n + 1;
        return PS_OK;
    }
    return ps_regex_find(r->regex, text, n, from + ps_utf8_length(text + from, n - from), begin, end);
}

static ps_status step_replace(const ps_normalizer_step *r, const char *text, int64_t n, ps_text_buffer *out)
{
    const int64_t n_text = (int64_t)strlen(r->text);
    int64_t done = 0; /* written up to here */
    for (int64_t from = 0; from <= n;) {
        int64_t begin, end;
        PS_TRY(replace_find(r, text, n, from, done, &begin, &end));
        if (begin > n) break;
        PS_TRY(ps_text_append(out, text + done, begin - done));
        PS_TRY(ps_text_append(out, r->text, n_text));
        done = from = end;
        if (end == begin) from += end < n ? ps_utf8_length(text + end, n - end) : 1; /* past an empty match */
    }
    return ps_text_append(out, text + done, n - done);
}

static void step_strip(ps_normalizer_kind kind, const char **text, int64_t *n)
{
    while (*n > 0) {
        const bool is_left = kind == PS_NORMALIZE_STRIP_LEFT;
        int length = is_left ? 0 : ps_utf8_length_before(*text + *n);
        if (!ps_is_white_space(ps_utf8_get(is_left ? *text : *text + *n - length, &length))) return;
        *n -= length;
        if (is_left) *text += length;
    }
}

/* ---- all steps ---- */

static ps_status run_step(ps_normalizer *z, const ps_normalizer_step *step, const char **text, int64_t *n)
{
    ps_text_buffer *out = &z->out[z->next_out];
    if (step->kind == PS_NORMALIZE_STRIP_LEFT || step->kind == PS_NORMALIZE_STRIP_RIGHT) {
        step_strip(step->kind, text, n);
        return PS_OK;
    }
    if (step->kind <= PS_NORMALIZE_NFKD && !step_form_is_needed(step->kind, *text, *n)) return PS_OK;
    out->n = 0;
    PS_TRY(ps_text_reserve(out, *n + 1));
    if (step->kind <= PS_NORMALIZE_NFKD) {
        PS_TRY(step_form(z, step->kind, *text, *n, out));
    } else if (step->kind == PS_NORMALIZE_PREPEND) {
        if (*n > 0) PS_TRY(ps_text_append(out, step->text, (int64_t)strlen(step->text)));
        PS_TRY(ps_text_append(out, *text, *n));
    } else if (step->kind == PS_NORMALIZE_REPLACE) {
        PS_TRY(step_replace(step, *text, *n, out));
    } else {
        PS_TRY(step_characters(step->kind, *text, *n, out));
    }
    z->next_out = !z->next_out;
    *text = out->bytes;
    *n = out->n;
    return PS_OK;
}

ps_status ps_normalize(ps_normalizer *z, const char *text, int64_t n, const char **out, int64_t *out_n)
{
    static const ps_normalizer_step decompose = {.kind = PS_NORMALIZE_NFD};
    *out = text;
    *out_n = n;
    for (int i = 0; i < z->n_steps; i++) {
        if (z->steps[i].kind == PS_NORMALIZE_BERT_ACCENTS) PS_TRY(run_step(z, &decompose, out, out_n));
        PS_TRY(run_step(z, &z->steps[i], out, out_n));
    }
    return PS_OK;
}
