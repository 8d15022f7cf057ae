#include "data/vocab.h"

#include <string.h>
#include <xxhash.h>

#include "base/base.h"
#include "base/mem.h"

/* ---- the byte alphabet ---- */

/* The byte of a character, -1 for none. The 68 moved ones are 0x00 to 0x20, 0x7F to 0xA0 and 0xAD. */
static int byte_of_character(unsigned c)
{
    if ((c >= '!' && c <= '~') || (c >= 0xA1 && c <= 0xAC) || (c >= 0xAE && c <= 0xFF)) return (int)c;
    if (c < 256 || c >= 256 + 68) return -1;
    const int moved = (int)c - 256;
    return moved <= 0x20 ? moved : moved < 0x21 + 34 ? 0x7F + moved - 0x21 : 0xAD;
}

int64_t ps_vocab_text_to_bytes(const char *text, int64_t n, char *dst)
{
    int64_t n_bytes = 0;
    for (int64_t i = 0; i < n;) {
        const unsigned char first = (unsigned char)text[i++];
        unsigned character = first;
        if (first >= 0x80) { /* all these characters are below U+0800 */
            if ((first & 0xE0) != 0xC0 || i == n || ((unsigned char)text[i] & 0xC0) != 0x80) return -1;
            character = (first & 0x1Fu) << 6 | ((unsigned char)text[i++] & 0x3Fu);
        }
        const int byte = byte_of_character(character);
        if (byte < 0) return -1;
        dst[n_bytes++] = (char)byte;
    }
    return n_bytes;
}

/* ---- bytes -> id ---- */

/* The slot which holds these bytes, or the free one where they belong. */
static int32_t *slot_of(const ps_vocab *v, const char *bytes, int64_t n)
{
    for (uint64_t slot = XXH3_64bits(bytes, (size_t)n) & v->slot_mask;; slot = (slot + 1) & v->slot_mask) {
        int32_t *id = &v->slots[slot];
        if (*id < 0) return id;
        const int64_t begin = v->offset[*id];
        if (v->offset[*id + 1] - begin == n && memcmp(v->bytes + begin, bytes, (size_t)n) == 0) return id;
    }
}

int32_t ps_vocab_find(const ps_vocab *v, const char *bytes, int64_t n)
{
    return *slot_of(v, bytes, n);
}

/* ---- build ---- */

static ps_status store(ps_vocab *v, int32_t id, const ps_vocab_entry *e, bool byte_level, bool strict, const char *name)
{
    const int64_t begin = v->offset[id];
    const int cut = (int)ps_min_i64(e->n_bytes, 64); /* for messages: the text has no terminating zero byte */
    v->offset[id + 1] = begin;
    if (e->text == NULL) return PS_OK;
    const bool is_written_in_bytes = byte_level && (e->flags & PS_TOKEN_IS_ADDED) == 0;
    int64_t n = is_written_in_bytes ? ps_vocab_text_to_bytes(e->text, e->n_bytes, v->bytes + begin) : -1;
    v->flags[id] = (uint8_t)(e->flags | PS_TOKEN_IS_THERE);
    if (n < 0) {
        if (strict)
            return PS_FAIL(PS_EFORMAT, "%s: token %d, \"%.*s\", has a character outside of GPT-2's byte alphabet", name,
                           id, cut, e->text);
        memcpy(v->bytes + begin, e->text, (size_t)e->n_bytes);
        n = e->n_bytes;
        if (byte_level) v->flags[id] |= PS_TOKEN_IS_RAW;
    }
    if (n == 0) return PS_FAIL(PS_EFORMAT, "%s: token %d, \"%.*s\", is empty", name, id, cut, e->text);
    v->offset[id + 1] = begin + n;
    if ((v->flags[id] & (PS_TOKEN_IS_RAW | PS_TOKEN_IS_ADDED)) != 0) return PS_OK;
    int32_t *slot = slot_of(v, v->bytes + begin, n);
    if (*slot >= 0)
        return PS_FAIL(PS_EFORMAT, "%s: token \"%.*s\" is there twice, as %d and %d", name, cut, e->text, *slot, id);
    *slot = id;
    return PS_OK;
}

ps_status ps_vocab_init(ps_vocab *v, const ps_vocab_entry *entries, int32_t n_ids, bool byte_level, bool strict,
                        const char *name)
{
    memset(v, 0, sizeof *v);
    ps_status st;
    int64_t n_bytes = 0;
    uint64_t n_slots = 16;
    while (n_slots < 2 * (uint64_t)n_ids) n_slots *= 2; /* at most half of the slots are in use */
    for (int32_t id = 0; id < n_ids; id++) n_bytes += entries[id].text != NULL ? entries[id].n_bytes : 0;
    v->n_ids = n_ids;
    v->slot_mask = n_slots - 1;
    PS_TRY_GOTO(ps_mem_alloc((size_t)n_ids + 1, sizeof *v->offset, &v->offset));
    PS_TRY_GOTO(ps_mem_alloc((size_t)n_bytes, 1, &v->bytes));
    PS_TRY_GOTO(ps_mem_alloc((size_t)n_ids, 1, &v->flags));
    PS_TRY_GOTO(ps_mem_alloc(n_slots, sizeof *v->slots, &v->slots));
    memset(v->slots, 0xFF, n_slots * sizeof *v->slots);
    for (int32_t id = 0; id < n_ids; id++) PS_TRY_GOTO(store(v, id, &entries[id], byte_level, strict, name));
out:
    if (st != PS_OK) ps_vocab_deinit(v);
    return st;
}

void ps_vocab_deinit(ps_vocab *v)
{
    ps_mem_free(v->offset);
    ps_mem_free(v->bytes);
    ps_mem_free(v->flags);
    ps_mem_free(v->slots);
    memset(v, 0, sizeof *v);
}
