#include "config/json_locate.h"

#include <stdint.h>
#include <string.h>

/* A reading position; `at` never passes `n`. */
typedef struct cursor {
    const char *text;
    size_t n, at;
} cursor;

/* The present byte, or NUL at the end (accepted text has no NUL). */
static char peek(const cursor *c)
{
    return c->at < c->n ? c->text[c->at] : '\0';
}

static void skip_space(cursor *c)
{
    while (peek(c) == ' ' || peek(c) == '\t' || peek(c) == '\n' || peek(c) == '\r') c->at++;
}

static void skip_string(cursor *c)
{
    c->at++;
    while (c->at < c->n && peek(c) != '"') c->at += peek(c) == '\\' && c->at + 1 < c->n ? 2 : 1;
    if (c->at < c->n) c->at++;
}

/* Skip a value: brackets are counted, not recursed into, so that depth costs no stack. */
static void skip_value(cursor *c)
{
    size_t depth = 0;
    do {
        skip_space(c);
        switch (peek(c)) {
        case '"': skip_string(c); break;
        case '{':
        case '[': depth++, c->at++; break;
        case '}':
        case ']':
            if (depth == 0) return;
            depth--, c->at++;
            break;
        case ',':
        case ':':
            if (depth == 0) return;
            c->at++;
            break;
        default:
            c->at += c->at < c->n;
            while (c->at < c->n && strchr(" \t\r\n,:{}[]\"", peek(c)) == NULL) c->at++;
        }
    } while (depth > 0 && c->at < c->n);
}

/* Four hexadecimal digits after \u. */
static uint32_t read_hex4(cursor *c)
{
    uint32_t code = 0;
    for (int i = 0; i < 4 && c->at < c->n; i++, c->at++) {
        const char digit = peek(c);
        const int value = digit <= '9' ? digit - '0' : (digit | 0x20) - 'a' + 10;
        code = code << 4 | ((uint32_t)value & 15u);
    }
    return code;
}

/* The escape at the backslash, as UTF-8; returns its length. A surrogate pair (two \u) is one character. */
static size_t read_escape(cursor *c, char utf8[4])
{
    c->at++;
    const char letter = peek(c);
    c->at += c->at < c->n;
    if (letter != 'u') {
        const char *from = "bfnrt", *hit = letter != '\0' ? strchr(from, letter) : NULL;
        utf8[0] = hit != NULL ? "\b\f\n\r\t"[hit - from] : letter;
        return 1;
    }
    uint32_t code = read_hex4(c);
    if (code >= 0xD800 && code < 0xDC00 && c->n - c->at >= 6 && c->text[c->at] == '\\') {
        c->at += 2;
        code = 0x10000 + ((code - 0xD800) << 10) + ((read_hex4(c) - 0xDC00) & 0x3FF);
    }
    if (code < 0x80) {
        utf8[0] = (char)code;
        return 1;
    }
    const size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, code >>= 6) utf8[i] = (char)(0x80 | (code & 0x3F));
    utf8[0] = (char)((0xF00u >> n & 0xF0u) | code);
    return n;
}

/* Read a string, and return whether it equals key after decoding its escapes. */
static bool read_key_equals(cursor *c, const char *key)
{
    const size_t n_key = strlen(key);
    size_t matched = 0;
    bool equal = true;
    c->at++;
    while (c->at < c->n && peek(c) != '"') {
        char utf8[4] = {peek(c)};
        size_t n = 1;
        if (utf8[0] == '\\')
            n = read_escape(c, utf8);
        else
            c->at++;
        equal = equal && n <= n_key - matched && memcmp(key + matched, utf8, n) == 0;
        if (equal) matched += n;
    }
    c->at += c->at < c->n;
    return equal && matched == n_key;
}

/* Move from the start of a container to its member or element; false when there is none. */
static bool enter(cursor *c, const ps_json_path *step, ps_json_position *position)
{
    const bool in_object = step->key != NULL;
    if (peek(c) != (in_object ? '{' : '[')) return false;
    size_t index = 0;
    do {
        c->at++;
        skip_space(c);
        if (c->at >= c->n || peek(c) == '}' || peek(c) == ']') return false;
        position->key_offset = c->at;
        bool found = !in_object && index == step->index;
        if (in_object) {
            if (peek(c) != '"') return false;
            found = read_key_equals(c, step->key);
            skip_space(c);
            if (peek(c) != ':') return false;
            c->at++;
            skip_space(c);
        }
        position->value_offset = c->at;
        if (found) return c->at < c->n;
        skip_value(c);
        skip_space(c);
        index++;
    } while (peek(c) == ',');
    return false;
}

static bool locate(cursor *c, const ps_json_path *path, ps_json_position *position)
{
    if (path != NULL) return locate(c, path->parent, position) && enter(c, path, position);
    skip_space(c);
    *position = (ps_json_position){c->at, c->at};
    return c->at < c->n;
}

bool ps_json_locate(const char *text, size_t n_bytes, const ps_json_path *path, ps_json_position *position)
{
    cursor c = {.text = text, .n = n_bytes};
    if (locate(&c, path, position)) return true;
    *position = (ps_json_position){0};
    return false;
}

void ps_json_line_column(const char *text, size_t offset, int *line, int *column)
{
    *line = 1;
    *column = 1;
    for (size_t i = 0; i < offset; i++) {
        if (text[i] == '\n') {
            (*line)++;
            *column = 1;
        } else if (((unsigned char)text[i] & 0xC0) != 0x80) { /* not a continuation byte */
            (*column)++;
        }
    }
}
