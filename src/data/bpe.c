#include "data/bpe.h"

#include <stdio.h>

#include "base/utf8.h"

#define KEPT_PIECE_BYTES 4096 /* working memory for longer pieces is freed after each text */

/* A pair of neighbours that can merge. Stale when `node` or its neighbour have changed since. */
struct ps_merge_candidate {
    const ps_merge *merge;
    int32_t node;
};

struct ps_merge_node {
    int32_t id;             /* -1: merged into the node before */
    int32_t previous, next; /* -1: none */
};

/* ---- the table of merges ---- */

static uint32_t merge_slot(const ps_bpe *b, int32_t left, int32_t right)
{
    const uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    return (uint32_t)(key * 0x9E3779B97F4A7C15u >> 32) & b->merge_mask; /* Fibonacci hashing: Knuth, TAOCP 3, 6.4 */
}

/* The merge of this pair, or the free slot where it belongs. */
static ps_merge *merge_find(const ps_bpe *b, int32_t left, int32_t right)
{
    for (uint32_t slot = merge_slot(b, left, right);; slot = (slot + 1) & b->merge_mask) {
        ps_merge *m = &b->merges[slot];
        if (m->left < 0 || (m->left == left && m->right == right)) return m;
    }
}

static ps_status init(ps_bpe *b, const ps_vocab *vocab, int64_t n_merges, bool is_byte_level)
{
    memset(b, 0, sizeof *b);
    if (n_merges > INT32_MAX / 4)
        return PS_FAIL(PS_EFORMAT, "%lld merges, expected at most %d", (long long)n_merges, INT32_MAX / 4);
    b->vocab = vocab;
    b->is_byte_level = is_byte_level;
    b->unknown = -1;
    for (int i = 0; i < 256; i++) {
        const char byte = (char)i;
        b->id_of_byte[i] = is_byte_level ? ps_vocab_find(vocab, &byte, 1) : -1;
    }
    uint64_t n_slots = 16; /* at most half of them in use */
    while (n_slots < 2 * (uint64_t)n_merges) n_slots *= 2;
    b->merge_mask = (uint32_t)(n_slots - 1);
    PS_TRY(ps_mem_alloc(n_slots, sizeof *b->merges, &b->merges));
    for (uint64_t i = 0; i < n_slots; i++) b->merges[i].left = -1;
    return is_byte_level ? PS_OK : ps_character_pairs_init(&b->joined_pairs, n_merges);
}

ps_status ps_bpe_init(ps_bpe *b, const ps_vocab *vocab, int64_t n_merges)
{
    return init(b, vocab, n_merges, true);
}

ps_status ps_bpe_init_characters(ps_bpe *b, const ps_vocab *vocab, int64_t n_merges)
{
    return init(b, vocab, n_merges, false);
}

void ps_bpe_use_byte_fallback(ps_bpe *b)
{
    for (int i = 0; i < 256; i++) {
        char name[8];
        b->id_of_byte[i] = ps_vocab_find(b->vocab, name, snprintf(name, sizeof name, "<0x%02X>", i));
    }
}

void ps_bpe_deinit(ps_bpe *b)
{
    ps_mem_free(b->merges);
    ps_mem_free(b->nodes);
    ps_mem_free(b->heap);
    ps_mem_free(b->joined.bytes);
    ps_character_pairs_deinit(&b->joined_pairs);
    memset(b, 0, sizeof *b);
}

static int cut(int64_t n) /* for "%.*s" */
{
    return (int)ps_min_i64(n, 64);
}

/* Append the bytes of one side of a merge to b->joined. Returns its id, -1 when it is not a token. */
static int32_t merge_side(ps_bpe *b, const char *text, int64_t n)
{
    char *bytes = b->joined.bytes + b->joined.n;
    int64_t n_bytes = n;
    if (b->is_byte_level)
        n_bytes = ps_vocab_text_to_bytes(text, n, bytes);
    else if (n > 0)
        memcpy(bytes, text, (size_t)n);
    if (n_bytes <= 0) return -1;
    b->joined.n += n_bytes;
    return ps_vocab_find(b->vocab, bytes, n_bytes);
}

ps_status ps_bpe_add_merge(ps_bpe *b, const char *left, int64_t n_left, const char *right, int64_t n_right,
                           const char *where)
{
    ps_merge m;
    b->joined.n = 0;
    PS_TRY(ps_text_reserve(&b->joined, n_left + n_right));
    m.left = merge_side(b, left, n_left);
    if (m.left < 0)
        return PS_FAIL(PS_EFORMAT, "%s: the left side \"%.*s\" is no token of the vocabulary", where, cut(n_left),
                       left);
    m.right = merge_side(b, right, n_right);
    if (m.right < 0)
        return PS_FAIL(PS_EFORMAT, "%s: the right side \"%.*s\" is no token of the vocabulary", where, cut(n_right),
                       right);
    m.merged = ps_vocab_find(b->vocab, b->joined.bytes, b->joined.n);
    if (m.merged < 0)
        return PS_FAIL(PS_EFORMAT, "%s: merging \"%.*s\" and \"%.*s\" gives no token of the vocabulary", where,
                       cut(n_left), left, cut(n_right), right);
    m.rank = b->n_merges;
    ps_merge *slot = merge_find(b, m.left, m.right);
    if (slot->left >= 0)
        return PS_FAIL(PS_EFORMAT, "%s: \"%.*s %.*s\" is there twice, first as merge %d", where, cut(n_left), left,
                       cut(n_right), right, slot->rank + 1);
    b->n_merges++;
    *slot = m;
    if (b->is_byte_level) return PS_OK;
    int length;
    ps_character_pairs_add(&b->joined_pairs, ps_utf8_get(left + n_left - ps_utf8_length_before(left + n_left), &length),
                           ps_utf8_get(right, &length));
    return PS_OK;
}

/* ---- a heap of candidates ---- */

static bool candidate_is_before(const ps_merge_candidate *a, const ps_merge_candidate *b)
{
    return a->merge->rank != b->merge->rank ? a->merge->rank < b->merge->rank : a->node < b->node;
}

static void heap_push(ps_bpe *b, ps_merge_candidate c)
{
    int64_t i = b->n_heap++;
    while (i > 0 && candidate_is_before(&c, &b->heap[(i - 1) / 2])) {
        b->heap[i] = b->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    b->heap[i] = c;
}

static ps_merge_candidate heap_pop(ps_bpe *b)
{
    const ps_merge_candidate top = b->heap[0], last = b->heap[--b->n_heap];
    int64_t i = 0;
    for (int64_t child; (child = 2 * i + 1) < b->n_heap; i = child) {
        if (child + 1 < b->n_heap && candidate_is_before(&b->heap[child + 1], &b->heap[child])) child++;
        if (!candidate_is_before(&b->heap[child], &last)) break;
        b->heap[i] = b->heap[child];
    }
    b->heap[i] = last;
    return top;
}

/* ---- merging one piece ---- */

/* Add a candidate if `left` can merge with the node after it. */
static void merge_consider(ps_bpe *b, int32_t left)
{
    if (left < 0 || b->nodes[left].next < 0) return;
    const ps_merge *m = merge_find(b, b->nodes[left].id, b->nodes[b->nodes[left].next].id);
    if (m->left >= 0) heap_push(b, (ps_merge_candidate){m, left});
}

static void merge_work_free(ps_bpe *b)
{
    ps_mem_free(b->nodes);
    ps_mem_free(b->heap);
    b->nodes = NULL;
    b->heap = NULL;
    b->capacity = 0;
}

static ps_status merge_reserve(ps_bpe *b, int64_t n)
{
    if (n <= b->capacity) return PS_OK;
    if (n > INT32_MAX)
        return PS_FAIL(PS_EINVAL, "%lld bytes of text without a place to split them, expected at most %d", (long long)n,
                       INT32_MAX);
    merge_work_free(b);
    const int64_t capacity = ps_max_i64(n, KEPT_PIECE_BYTES);
    PS_TRY(ps_mem_alloc((size_t)capacity, sizeof *b->nodes, &b->nodes));
    PS_TRY(ps_mem_alloc((size_t)capacity, 3 * sizeof *b->heap, &b->heap));
    b->capacity = capacity;
    return PS_OK;
}

/* ---- initial tokens of a piece ---- */

static void nodes_add(ps_bpe *b, int32_t *n_nodes, int32_t id)
{
    b->nodes[*n_nodes] = (ps_merge_node){id, *n_nodes - 1, *n_nodes + 1};
    ++*n_nodes;
}

static ps_status nodes_from_bytes(ps_bpe *b, const char *piece, int64_t n, int32_t *n_nodes)
{
    for (int64_t i = 0; i < n; i++) {
        const int byte = (unsigned char)piece[i];
        if (b->id_of_byte[byte] < 0)
            return PS_FAIL(PS_EINVAL, "the text has a byte 0x%02X, and the vocabulary no token for it", byte);
        nodes_add(b, n_nodes, b->id_of_byte[byte]);
    }
    return PS_OK;
}

/* The bytes of a character, when all of them have tokens. */
static bool nodes_fall_back(ps_bpe *b, const char *character, int length, int32_t *n_nodes)
{
    for (int i = 0; i < length; i++)
        if (b->id_of_byte[(unsigned char)character[i]] < 0) return false;
    for (int i = 0; i < length; i++) nodes_add(b, n_nodes, b->id_of_byte[(unsigned char)character[i]]);
    return true;
}

/* An unknown character is held back to be joined with later ones, while bytes are emitted before it, as in Hugging
 * Face's merge_word (huggingface/tokenizers, models/bpe/model.rs). */
static ps_status nodes_from_characters(ps_bpe *b, const char *piece, int64_t n, int32_t *n_nodes)
{
    bool is_waiting = false;
    int length;
    for (int64_t i = 0; i < n; i += length) {
        const int32_t c = ps_utf8_get(piece + i, &length), id = ps_vocab_find(b->vocab, piece + i, length);
        if (id < 0 && nodes_fall_back(b, piece + i, length, n_nodes)) continue;
        if (id < 0 && b->unknown < 0)
            return PS_FAIL(PS_EINVAL, "the text has a character U+%04X, and the vocabulary no token for it",
                           (unsigned)c);
        if (is_waiting && (id >= 0 || !b->fuses_unknown)) nodes_add(b, n_nodes, b->unknown);
        is_waiting = id < 0;
        if (id >= 0) nodes_add(b, n_nodes, id);
    }
    if (is_waiting) nodes_add(b, n_nodes, b->unknown);
    return PS_OK;
}

/* ---- one piece ---- */

/* The tokens of one piece, into b->nodes: a list from node 0 on. A heap of pairs makes it O(n log n) in the length of
 * the piece, also for a text of one long word. The order of merges (lowest rank, then leftmost) is that of GPT-2's
 * encoder, which scans all pairs for each merge. */
static ps_status merge_piece(ps_bpe *b, const char *piece, int64_t n)
{
    int32_t n_nodes = 0;
    PS_TRY(merge_reserve(b, n));
    PS_TRY(b->is_byte_level ? nodes_from_bytes(b, piece, n, &n_nodes) : nodes_from_characters(b, piece, n, &n_nodes));
    b->nodes[n_nodes - 1].next = -1;
    b->n_heap = 0;
    for (int32_t i = 0; i < n_nodes; i++) merge_consider(b, i);
    while (b->n_heap > 0) {
        const ps_merge_candidate c = heap_pop(b);
        ps_merge_node *left = &b->nodes[c.node];
        if (left->id != c.merge->left || left->next < 0) continue;
        ps_merge_node *right = &b->nodes[left->next];
        if (right->id != c.merge->right) continue;
        left->id = c.merge->merged;
        left->next = right->next;
        right->id = -1;
        if (left->next >= 0) b->nodes[left->next].previous = c.node;
        merge_consider(b, left->previous);
        merge_consider(b, c.node);
    }
    return PS_OK;
}

/* Both characters are tokens, so neither is held back as an unknown character. */
static bool is_border(const ps_bpe *b, const char *piece, int64_t left, int64_t right, int32_t c, int32_t next)
{
    int length;
    if (ps_character_pairs_have(&b->joined_pairs, c, next)) return false;
    (void)ps_utf8_get(piece + right, &length);
    return ps_vocab_find(b->vocab, piece + left, right - left) >= 0 &&
           ps_vocab_find(b->vocab, piece + right, length) >= 0;
}

int64_t ps_bpe_part_end(const ps_bpe *b, const char *piece, int64_t n, int64_t from)
{
    if (b->is_byte_level || b->ignore_merges) return n;
    int length;
    int32_t c = ps_utf8_get(piece + from, &length);
    for (int64_t left = from, right = from + length; right < n; left = right, right += length) {
        const int32_t next = ps_utf8_get(piece + right, &length);
        if (is_border(b, piece, left, right, c, next)) return right;
        c = next;
    }
    return n;
}

ps_status ps_bpe_encode_piece(ps_bpe *b, const char *piece, int64_t n, ps_id_list *out)
{
    if (b->ignore_merges) {
        const int32_t whole = ps_vocab_find(b->vocab, piece, n);
        if (whole >= 0) return ps_ids_append(out, whole);
    }
    PS_TRY(merge_piece(b, piece, n));
    for (int32_t node = 0; node >= 0; node = b->nodes[node].next) PS_TRY(ps_ids_append(out, b->nodes[node].id));
    return PS_OK;
}

void ps_bpe_trim(ps_bpe *b)
{
    if (b->capacity > KEPT_PIECE_BYTES) merge_work_free(b);
}
