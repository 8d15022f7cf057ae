#include "data/regex.h"

#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/base.h"
#include "base/mem.h"
#include "data/text_buffer.h"

/* Replacements of escapes inside [...]. Ranges where possible, as PCRE2 tests them by a bitmap. */
#define SPACE "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"

#define PATTERN_BYTES_MAX 16384

/* Limits of one match. Patterns of tokenizers need almost none of this for any text, as they repeat single characters.
 * A malicious pattern could need gigabytes, or years. */
#define MATCH_HEAP_KIB (64 * 1024)
#define MATCH_STEPS_MAX 10000000

struct ps_regex {
    pcre2_general_context *memory;
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *limits;
    bool has_jit;
};

static void *allocate(size_t n, void *unused)
{
    (void)unused;
    void *p = NULL;
    return ps_mem_alloc(n, 1, &p) == PS_OK ? p : NULL;
}

static void release(void *p, void *unused)
{
    (void)unused;
    ps_mem_free(p);
}

/* ---- Oniguruma's syntax to PCRE2's ---- */

typedef struct translation {
    const char *pattern, *where;
    size_t at;
    bool in_class;
    ps_text_buffer out;
} translation;

static ps_status translation_refuse(const translation *t, size_t n, const char *what)
{
    return PS_FAIL(PS_EFORMAT, "%s: regex, column %zu: \"%.*s\": %s", t->where, t->at + 1, (int)n, t->pattern + t->at,
                   what);
}

static ps_status translation_put(translation *t, const char *s)
{
    return ps_text_append(&t->out, s, (int64_t)strlen(s));
}

/* \p{Name}, \P{Name}, \p{^Name}: PCRE2 reads a script's name as its extensions, Oniguruma as the script. */
static ps_status translate_property(translation *t)
{
    static const char *const scripts[] = {"Arabic",   "Armenian", "Bengali", "Cyrillic", "Devanagari",
                                          "Georgian", "Greek",    "Han",     "Hangul",   "Hebrew",
                                          "Hiragana", "Katakana", "Latin",   "Thai"};
    static const char categories[] =
        " L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp C Cc Cf Co Cs ";
    const char *p = t->pattern + t->at, *close = strchr(p, '}');
    if (p[2] != '{' || close == NULL) return translation_refuse(t, 2, "expected {name} after it");
    const bool is_not = p[3] == '^';
    const char *name = p + 3 + is_not;
    const size_t n = (size_t)(close - name);
    char padded[8] = " ";
    const char *prefix = NULL;
    if (n >= 1 && n <= 2) {
        memcpy(padded + 1, name, n);
        padded[n + 1] = ' ';
        if (strstr(categories, padded) != NULL) prefix = "";
    }
    for (size_t i = 0; i < PS_ARRAY_LEN(scripts) && prefix == NULL; i++)
        if (strlen(scripts[i]) == n && memcmp(scripts[i], name, n) == 0) prefix = "sc:";
    if (n == 10 && memcmp(name, "Alphabetic", n) == 0) prefix = "";
    if (prefix == NULL) return translation_refuse(t, (size_t)(close + 1 - p), "this property is not supported");
    PS_TRY(ps_text_append(&t->out, p, 3 + is_not));
    PS_TRY(translation_put(t, prefix));
    PS_TRY(ps_text_append(&t->out, name, (int64_t)n + 1));
    t->at += (size_t)(close + 1 - p);
    return PS_OK;
}

/* A code point in hexadecimal: \x41, \x{1F600}, \u00e9. */
static ps_status translate_number(translation *t)
{
    const char *p = t->pattern + t->at, *digits = p + 2;
    size_t n = p[1] == 'u' ? 4 : 2, skip = n + 2;
    if (digits[0] == '{' && p[1] == 'x') {
        n = strspn(++digits, "0123456789abcdefABCDEF");
        skip = n + 4;
        if (n == 0 || digits[n] != '}') return translation_refuse(t, 3, "expected \\x{hexadecimal}");
    } else if (strspn(digits, "0123456789abcdefABCDEF") < n) {
        return translation_refuse(t, 2, "expected hexadecimal digits after it");
    }
    PS_TRY(translation_put(t, "\\x{"));
    PS_TRY(ps_text_append(&t->out, digits, (int64_t)n));
    PS_TRY(translation_put(t, "}"));
    t->at += skip;
    return PS_OK;
}

static ps_status translate_escape(translation *t)
{
    const char c = t->pattern[t->at + 1];
    if (c == 'p' || c == 'P') return translate_property(t);
    if (c == 'x' || c == 'u') return translate_number(t);
    const char *spelled = NULL;
    if (c == 's') spelled = t->in_class ? SPACE : "[" SPACE "]";
    if (c == 'S') spelled = t->in_class ? "\\P{White_Space}" : "[^" SPACE "]";
    if (c == 'w') spelled = t->in_class ? WORD : "[" WORD "]";
    if (c == 'W' && !t->in_class) spelled = "[^" WORD "]";
    if (c == 'd') spelled = "\\p{Nd}";
    if (c == 'D') spelled = "\\P{Nd}";
    if (c == 'A' && !t->in_class) spelled = "\\A";
    if (c == 'z' && !t->in_class) spelled = "\\z";
    const bool is_plain = c == 'n' || c == 'r' || c == 't' || c == 'f' || (c > ' ' && c < '0') ||
                          (c > '9' && c < 'A') || (c > 'Z' && c < 'a' && c != 0) || (c > 'z' && c < 0x7F) || c == ' ';
    if (spelled == NULL && !is_plain) return translation_refuse(t, c != '\0' ? 2 : 1, "this escape is not supported");
    if (spelled != NULL)
        PS_TRY(translation_put(t, spelled));
    else
        PS_TRY(ps_text_append(&t->out, t->pattern + t->at, 2));
    t->at += 2;
    return PS_OK;
}

/* A character that is not an escape: groups, quantifiers and classes that differ are refused, the rest is copied. */
static ps_status translate_plain(translation *t)
{
    static const char *const groups[] = {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    const char *p = t->pattern + t->at;
    size_t n = 1;
    if (t->in_class) {
        if (*p == '[') return translation_refuse(t, 1, "a class within a class is not supported");
        if (*p == '&' && p[1] == '&') return translation_refuse(t, 2, "the intersection of classes is not supported");
        if (*p == ']') t->in_class = false;
    } else if (*p == '[') {
        t->in_class = true;
        n += p[1] == '^';
        if (p[n] == ']') return translation_refuse(t, n + 1, "write \\] for a bracket in a class");
    } else if (*p == '(' && p[1] == '?') {
        n = 0;
        for (size_t i = 0; i < PS_ARRAY_LEN(groups) && n == 0; i++)
            if (strncmp(p, groups[i], strlen(groups[i])) == 0) n = strlen(groups[i]);
        if (n == 0 && t->at == 0 && strncmp(p, "(?i)", 4) == 0) n = 4;
        if (n == 0) return translation_refuse(t, strnlen(p, 3), "this group is not supported");
    } else if (*p == '(' && p[1] == '*') {
        return translation_refuse(t, 2, "verbs are not supported");
    } else if (*p == '{' && p[1] == ',') {
        return translation_refuse(t, 2, "write {0,n}");
    } else if (*p == '}' && p[1] == '+') {
        return translation_refuse(t, 2, "a quantifier of a quantifier is not supported");
    }
    PS_TRY(ps_text_append(&t->out, p, (int64_t)n));
    t->at += n;
    return PS_OK;
}

static ps_status translate(const char *pattern, const char *where, ps_text_buffer *out)
{
    translation t = {.pattern = pattern, .where = where};
    ps_status st = PS_OK;
    while (pattern[t.at] != '\0' && st == PS_OK)
        st = pattern[t.at] == '\\' ? translate_escape(&t) : translate_plain(&t);
    *out = t.out;
    return st;
}

/* ---- create ---- */

static ps_status compile_pattern(ps_regex *r, const char *pattern, size_t n, uint32_t options, const char *where)
{
    int code = 0;
    PCRE2_SIZE at = 0;
    PCRE2_UCHAR text[128] = "out of memory";
    r->memory = pcre2_general_context_create(allocate, release, NULL);
    if (r->memory == NULL) return PS_ENOMEM_HOST; /* the allocation has left its message */
    pcre2_compile_context *context = pcre2_compile_context_create(r->memory);
    if (context == NULL) return PS_ENOMEM_HOST;
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    r->code = pcre2_compile((PCRE2_SPTR)pattern, n, options, &code, &at, context);
    pcre2_compile_context_free(context);
    if (r->code == NULL) {
        if (code == PCRE2_ERROR_HEAP_FAILED) return PS_ENOMEM_HOST;
        pcre2_get_error_message(code, text, sizeof text);
        return PS_FAIL(PS_EFORMAT, "%s: regex, at \"%.32s\": %s", where, pattern + (at < n ? at : n),
                       (const char *)text);
    }
    /* Fails where executable memory is forbidden; matching is then interpreted, three times slower, with the same
     * result. */
    r->has_jit = pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE) == 0;
    r->match = pcre2_match_data_create(1, r->memory);
    r->limits = pcre2_match_context_create(r->memory);
    if (r->match == NULL || r->limits == NULL) return PS_ENOMEM_HOST;
    pcre2_set_heap_limit(r->limits, MATCH_HEAP_KIB);
    pcre2_set_match_limit(r->limits, MATCH_STEPS_MAX);
    pcre2_set_depth_limit(r->limits, MATCH_STEPS_MAX);
    return PS_OK;
}

ps_status ps_regex_create(const char *pattern, bool literal, const char *where, ps_regex **out)
{
    *out = NULL;
    if (strlen(pattern) > PATTERN_BYTES_MAX)
        return PS_FAIL(PS_EFORMAT, "%s: a regex of %zu bytes, expected at most %d", where, strlen(pattern),
                       PATTERN_BYTES_MAX);
    ps_status st;
    ps_text_buffer translated = {0};
    ps_regex *r = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *r, &r));
    PS_TRY_GOTO(literal ? ps_text_append(&translated, pattern, (int64_t)strlen(pattern))
                        : translate(pattern, where, &translated));
    PS_TRY_GOTO(ps_text_append(&translated, "", 1)); /* a zero byte, for messages */
    const uint32_t options =
        literal ? PCRE2_LITERAL | PCRE2_UTF : PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    PS_TRY_GOTO(compile_pattern(r, translated.bytes, (size_t)translated.n - 1, options, where));
    *out = r;
    r = NULL;
out:
    ps_mem_free(translated.bytes);
    ps_regex_destroy(r);
    return st;
}

void ps_regex_destroy(ps_regex *r)
{
    if (r == NULL) return;
    pcre2_match_context_free(r->limits);
    pcre2_match_data_free(r->match);
    pcre2_code_free(r->code);
    pcre2_general_context_free(r->memory);
    ps_mem_free(r);
}

/* ---- find ---- */

static ps_status find_refuse(int rc, int64_t from)
{
    PCRE2_UCHAR reason[128] = "";
    if (rc == PCRE2_ERROR_HEAPLIMIT)
        return PS_FAIL(
            PS_EINVAL,
            "splitting text into words, byte %lld: the tokenizer's regex wants more than %d MiB for it; a shorter "
            "text needs less, and published tokenizers next to none",
            (long long)from, MATCH_HEAP_KIB / 1024);
    if (rc == PCRE2_ERROR_MATCHLIMIT || rc == PCRE2_ERROR_DEPTHLIMIT)
        return PS_FAIL(
            PS_EINVAL,
            "splitting text into words, byte %lld: the tokenizer's regex has not found a word in %d steps; a "
            "shorter text needs fewer, and published tokenizers a handful",
            (long long)from, MATCH_STEPS_MAX);
    pcre2_get_error_message(rc, reason, sizeof reason);
    return PS_FAIL(rc == PCRE2_ERROR_NOMEMORY ? PS_ENOMEM_HOST : PS_EINVAL, "splitting text into words, byte %lld: %s",
                   (long long)from, (const char *)reason);
}

ps_status ps_regex_find(ps_regex *r, const char *text, int64_t n, int64_t from, int64_t *begin, int64_t *end)
{
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (r->has_jit)
        rc = pcre2_jit_match(r->code, (PCRE2_SPTR)text, (PCRE2_SIZE)n, (PCRE2_SIZE)from, PCRE2_NO_UTF_CHECK, r->match,
                             r->limits);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) /* just-in-time code has 32 KiB of stack, the interpreter the heap */
        rc = pcre2_match(r->code, (PCRE2_SPTR)text, (PCRE2_SIZE)n, (PCRE2_SIZE)from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         r->match, r->limits);
    if (rc == PCRE2_ERROR_NOMATCH) {
        *begin = *end = n + 1;
        return PS_OK;
    }
    if (rc < 0) return find_refuse(rc, from);
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(r->match);
    *begin = (int64_t)at[0];
    *end = (int64_t)at[1];
    return PS_OK;
}
