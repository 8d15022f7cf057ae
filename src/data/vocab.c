#include "data/vocab.h"

#include <jansson.h>
#include <limits.h>
#include <string.h>
#include <xxhash.h>

#include "base/base.h"
#include "base/mem.h"

#define EOT_TEXT "<|endoftext|>"
#define N_CHARACTERS (256 + 68) /* the characters that stand for bytes are below U+0144 */

/* While loading: which byte a character stands for, and which token has these bytes. */
typedef struct vocab_loader {
    ps_vocab *v;
    const char *vocab_name, *merges_name;
    int16_t byte_of_character[N_CHARACTERS]; /* -1: stands for none */
    int32_t *id_of_text;                     /* open addressing over token bytes; -1: free slot */
    uint64_t text_mask;
} vocab_loader;

static void vocab_fill_byte_map(vocab_loader *l)
{
    for (int c = 0; c < N_CHARACTERS; c++) l->byte_of_character[c] = -1;
    int n_moved = 0;
    for (int b = 0; b < 256; b++) {
        const bool is_printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        l->byte_of_character[is_printable ? b : 256 + n_moved++] = (int16_t)b;
    }
}

/* Characters (UTF-8, all below U+0800) to the bytes they stand for. Returns the number of bytes, or -1 when some
 * character stands for none. dst has room for n. */
static int64_t vocab_text_to_bytes(const vocab_loader *l, const char *text, size_t n, char *dst)
{
    int64_t n_bytes = 0;
    for (size_t i = 0; i < n;) {
        const unsigned char first = (unsigned char)text[i++];
        unsigned character = first;
        if (first >= 0x80) {
            if ((first & 0xE0) != 0xC0 || i == n || ((unsigned char)text[i] & 0xC0) != 0x80) return -1;
            character = (first & 0x1Fu) << 6 | ((unsigned char)text[i++] & 0x3Fu);
        }
        if (character >= N_CHARACTERS || l->byte_of_character[character] < 0) return -1;
        dst[n_bytes++] = (char)l->byte_of_character[character];
    }
    return n_bytes;
}

/* ---- token bytes -> id ---- */

/* The slot which holds these bytes, or the free one where they belong. */
static int32_t *vocab_text_slot(const vocab_loader *l, const char *bytes, size_t n)
{
    const ps_vocab *v = l->v;
    for (uint64_t slot = XXH3_64bits(bytes, n) & l->text_mask;; slot = (slot + 1) & l->text_mask) {
        int32_t *id = &l->id_of_text[slot];
        if (*id < 0) return id;
        if ((size_t)(v->offset[*id + 1] - v->offset[*id]) == n && memcmp(v->bytes + v->offset[*id], bytes, n) == 0)
            return id;
    }
}

static uint64_t vocab_table_slots(size_t n_entries) /* at most half of the slots are in use */
{
    uint64_t slots = 16;
    while (slots < 2 * n_entries) slots *= 2;
    return slots;
}

/* ---- vocab.json ---- */

/* text_of_id[i]: the key whose value is i; all ids from 0 to n-1 must be there once. */
static ps_status vocab_collect_ids(const vocab_loader *l, json_t *root, const char **text_of_id, int64_t *out_bytes)
{
    const json_int_t n = (json_int_t)json_object_size(root);
    const char *key;
    json_t *value;
    *out_bytes = 0;
    json_object_foreach(root, key, value)
    {
        if (!json_is_integer(value))
            return PS_FAIL(PS_EFORMAT, "%s: token \"%.64s\": its id is not an integer", l->vocab_name, key);
        const json_int_t id = json_integer_value(value);
        if (id < 0 || id >= n)
            return PS_FAIL(PS_EFORMAT, "%s: token \"%.64s\" has id %lld, expected 0 to %lld as there are %lld tokens",
                           l->vocab_name, key, (long long)id, (long long)n - 1, (long long)n);
        if (text_of_id[id] != NULL)
            return PS_FAIL(PS_EFORMAT, "%s: tokens \"%.64s\" and \"%.64s\" both have id %lld", l->vocab_name,
                           text_of_id[id], key, (long long)id);
        text_of_id[id] = key;
        *out_bytes += (int64_t)strlen(key);
    }
    return PS_OK;
}

static ps_status vocab_store_tokens(vocab_loader *l, const char *const *text_of_id)
{
    ps_vocab *v = l->v;
    int64_t end = 0;
    for (int32_t id = 0; id < v->n_tokens; id++) {
        const char *text = text_of_id[id];
        const int64_t n = vocab_text_to_bytes(l, text, strlen(text), v->bytes + end);
        if (n <= 0)
            return PS_FAIL(PS_EFORMAT, "%s: token %d, \"%.64s\", %s", l->vocab_name, id, text,
                           n == 0 ? "is empty" : "has a character outside of GPT-2's byte alphabet");
        v->offset[id + 1] = end + n;
        int32_t *slot = vocab_text_slot(l, v->bytes + end, (size_t)n);
        PS_ASSERT(*slot < 0); /* keys differ, and so do their bytes: the map is one to one */
        *slot = id;
        end += n;
    }
    for (int b = 0; b < 256; b++) {
        const char byte = (char)b;
        v->id_of_byte[b] = *vocab_text_slot(l, &byte, 1);
        if (v->id_of_byte[b] < 0)
            return PS_FAIL(PS_EFORMAT, "%s: no token for the single byte 0x%02X; all 256 are needed", l->vocab_name, b);
    }
    v->eot = *vocab_text_slot(l, EOT_TEXT, strlen(EOT_TEXT));
    return PS_OK;
}

static ps_status vocab_load_tokens(vocab_loader *l, const char *json, int64_t json_bytes)
{
    ps_vocab *v = l->v;
    ps_status st;
    const char **text_of_id = NULL;
    int64_t text_bytes;
    json_error_t error;
    json_t *root = json_loadb(json, (size_t)json_bytes, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL)
        return PS_FAIL(PS_EFORMAT, "%s:%d: column %d: %s", l->vocab_name, error.line, error.column, error.text);
    const size_t n = json_object_size(root); /* 0 when it is no object */
    if (n < 256 || n > INT32_MAX / 4) {
        st = PS_FAIL(PS_EFORMAT, "%s: expected an object of at least 256 tokens, found %s of %zu", l->vocab_name,
                     json_is_object(root) ? "an object" : "something else", n);
        goto out;
    }
    v->n_tokens = (int32_t)n;
    PS_TRY_GOTO(ps_mem_alloc(n, sizeof *text_of_id, &text_of_id));
    PS_TRY_GOTO(vocab_collect_ids(l, root, text_of_id, &text_bytes));
    PS_TRY_GOTO(ps_mem_alloc(n + 1, sizeof *v->offset, &v->offset));
    PS_TRY_GOTO(ps_mem_alloc((size_t)text_bytes, 1, &v->bytes));
    const uint64_t slots = vocab_table_slots(n);
    PS_TRY_GOTO(ps_mem_alloc(slots, sizeof *l->id_of_text, &l->id_of_text));
    memset(l->id_of_text, 0xFF, slots * sizeof *l->id_of_text);
    l->text_mask = slots - 1;
    PS_TRY_GOTO(vocab_store_tokens(l, text_of_id));
out:
    ps_mem_free(text_of_id);
    json_decref(root);
    return st;
}

/* ---- merges.txt ---- */

/* One side of a merge: its bytes go to dst, its id is returned, -1 when it is no token. */
static int32_t vocab_merge_side(const vocab_loader *l, const char *text, size_t n, char *dst, int64_t *out_bytes)
{
    *out_bytes = vocab_text_to_bytes(l, text, n, dst);
    return *out_bytes <= 0 ? -1 : *vocab_text_slot(l, dst, (size_t)*out_bytes);
}

static ps_status vocab_add_merge(vocab_loader *l, int line_number, const char *line, size_t n, char *scratch)
{
    ps_vocab *v = l->v;
    const char *space = memchr(line, ' ', n);
    if (space == NULL || memchr(space + 1, ' ', n - (size_t)(space + 1 - line)) != NULL)
        return PS_FAIL(PS_EFORMAT, "%s:%d: expected two tokens with one space between, found \"%.*s\"", l->merges_name,
                       line_number, (int)ps_min_i64((int64_t)n, 64), line);
    const size_t n_left_text = (size_t)(space - line);
    int64_t n_left, n_right;
    ps_merge m;
    m.left = vocab_merge_side(l, line, n_left_text, scratch, &n_left);
    if (m.left < 0)
        return PS_FAIL(PS_EFORMAT, "%s:%d: the left side \"%.*s\" is no token of %s", l->merges_name, line_number,
                       (int)ps_min_i64((int64_t)n_left_text, 64), line, l->vocab_name);
    m.right = vocab_merge_side(l, space + 1, n - n_left_text - 1, scratch + n_left, &n_right);
    if (m.right < 0)
        return PS_FAIL(PS_EFORMAT, "%s:%d: the right side \"%.*s\" is no token of %s", l->merges_name, line_number,
                       (int)ps_min_i64((int64_t)(n - n_left_text - 1), 64), space + 1, l->vocab_name);
    m.merged = *vocab_text_slot(l, scratch, (size_t)(n_left + n_right));
    if (m.merged < 0)
        return PS_FAIL(PS_EFORMAT, "%s:%d: merging \"%.*s\" gives no token of %s", l->merges_name, line_number,
                       (int)ps_min_i64((int64_t)n, 64), line, l->vocab_name);
    m.rank = v->n_merges++;
    uint32_t slot = ps_merge_slot(v, m.left, m.right);
    while (v->merges[slot].left >= 0) {
        if (v->merges[slot].left == m.left && v->merges[slot].right == m.right)
            return PS_FAIL(PS_EFORMAT, "%s:%d: \"%.*s\" is there twice, first as merge %d", l->merges_name, line_number,
                           (int)ps_min_i64((int64_t)n, 64), line, v->merges[slot].rank + 1);
        slot = (slot + 1) & v->merge_mask;
    }
    v->merges[slot] = m;
    return PS_OK;
}

static ps_status vocab_load_merges(vocab_loader *l, const char *text, int64_t text_bytes)
{
    ps_vocab *v = l->v;
    ps_status st = PS_OK;
    char *scratch = NULL; /* a line's bytes: no more than its text has */
    size_t n_lines = 1, longest = 0;
    const char *end = text + text_bytes;
    for (const char *p = text, *eol; p < end; p = eol + 1, n_lines++) {
        eol = memchr(p, '\n', (size_t)(end - p));
        if (eol == NULL) eol = end;
        longest = (size_t)ps_max_i64((int64_t)longest, eol - p);
    }
    if (n_lines > INT_MAX / 4)
        return PS_FAIL(PS_EFORMAT, "%s: %zu lines, expected at most %d", l->merges_name, n_lines, INT_MAX / 4);
    const uint64_t slots = vocab_table_slots(n_lines);
    PS_TRY(ps_mem_alloc(slots, sizeof *v->merges, &v->merges));
    for (uint64_t i = 0; i < slots; i++) v->merges[i].left = -1;
    v->merge_mask = (uint32_t)(slots - 1);
    PS_TRY(ps_mem_alloc(longest, 1, &scratch));
    int line_number = 0;
    for (const char *p = text, *eol; p < end; p = eol + 1) {
        eol = memchr(p, '\n', (size_t)(end - p));
        if (eol == NULL) eol = end;
        line_number++;
        const size_t n = (size_t)(eol - p) - (eol > p && eol[-1] == '\r');
        const bool is_version = line_number == 1 && n >= 8 && memcmp(p, "#version", 8) == 0;
        if (n == 0 || is_version) continue;
        PS_TRY_GOTO(vocab_add_merge(l, line_number, p, n, scratch));
    }
out:
    ps_mem_free(scratch);
    return st;
}

ps_status ps_vocab_init(ps_vocab *v, const char *vocab_name, const char *vocab_json, int64_t vocab_bytes,
                        const char *merges_name, const char *merges_text, int64_t merges_bytes)
{
    memset(v, 0, sizeof *v);
    ps_status st;
    vocab_loader l = {.v = v, .vocab_name = vocab_name, .merges_name = merges_name};
    vocab_fill_byte_map(&l);
    PS_TRY_GOTO(vocab_load_tokens(&l, vocab_json, vocab_bytes));
    PS_TRY_GOTO(vocab_load_merges(&l, merges_text, merges_bytes));
    v->fingerprint =
        XXH3_64bits_withSeed(merges_text, (size_t)merges_bytes, XXH3_64bits(vocab_json, (size_t)vocab_bytes));
out:
    ps_mem_free(l.id_of_text);
    if (st != PS_OK) ps_vocab_deinit(v);
    return st;
}

void ps_vocab_deinit(ps_vocab *v)
{
    ps_mem_free(v->offset);
    ps_mem_free(v->bytes);
    ps_mem_free(v->merges);
    memset(v, 0, sizeof *v);
}
