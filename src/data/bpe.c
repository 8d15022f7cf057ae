#include "data/bpe.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/base.h"
#include "base/file.h"
#include "base/mem.h"
#include "data/vocab.h"

/* GPT-2's split (openai/gpt-2, src/encoder.py), with \s spelled out as Unicode's White_Space, which PCRE2's \s is not
 * quite (it has U+180E). The quantifiers that never give back are possessive. */
#define SPACE "\\p{Z}\\x09-\\x0d\\x{85}"
static const char split_regex[] = "'(?:[stmd]|re|ve|ll)| ?\\p{L}++| ?\\p{N}++| ?[^" SPACE "\\p{L}\\p{N}]++"
                                  "|[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+";

#define CACHE_WORDS (1 << 15)
#define FILE_BYTES_MAX (256 * PS_MIB)
#define KEPT_PIECE_BYTES 4096 /* working memory for longer pieces is given back after each text */

/* One remembered piece; n_bytes == 0: free. A cache line. Longer pieces are rare, and merged each time. */
typedef struct cached_word {
    uint64_t hash;
    uint8_t n_bytes, n_ids;
    char bytes[22];
    int32_t ids[8];
} cached_word;

/* A pair of neighbours that can merge. Stale when `node` or its neighbour have changed since. */
typedef struct merge_candidate {
    const ps_merge *merge;
    int32_t node;
} merge_candidate;

typedef struct merge_node {
    int32_t id;             /* -1: merged into the node before */
    int32_t previous, next; /* -1: none */
} merge_node;

typedef struct merge_work {
    int64_t capacity;      /* bytes of a piece there is room for */
    merge_node *nodes;     /* [capacity] */
    merge_candidate *heap; /* [3 capacity]: each pair once, and two new ones for each merge */
    int64_t n_heap;
} merge_work;

typedef struct id_list {
    int32_t *ids;
    int64_t n, capacity;
} id_list;

struct ps_tokenizer {
    ps_vocab vocab;
    pcre2_general_context *pcre_memory;
    pcre2_code *split;
    pcre2_match_data *match;
    cached_word *cache; /* [CACHE_WORDS], place by hash, the newer word stays */
    merge_work work;
};

/* ---- open and close ---- */

static void *bpe_pcre_malloc(size_t n, void *unused)
{
    (void)unused;
    void *p = NULL;
    return ps_mem_alloc(n, 1, &p) == PS_OK ? p : NULL;
}

static void bpe_pcre_free(void *p, void *unused)
{
    (void)unused;
    ps_mem_free(p);
}

static ps_status bpe_compile_split(ps_tokenizer *t)
{
    int code = 0;
    PCRE2_SIZE at = 0;
    PCRE2_UCHAR text[128] = "out of memory";
    t->pcre_memory = pcre2_general_context_create(bpe_pcre_malloc, bpe_pcre_free, NULL);
    if (t->pcre_memory == NULL) return PS_ENOMEM_HOST; /* the allocation has left its message */
    pcre2_compile_context *context = pcre2_compile_context_create(t->pcre_memory);
    if (context == NULL) return PS_ENOMEM_HOST;
    t->split = pcre2_compile((PCRE2_SPTR)split_regex, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED,
                             &code, &at, context);
    pcre2_compile_context_free(context);
    if (t->split == NULL) {
        pcre2_get_error_message(code, text, sizeof text);
        return PS_FAIL(code == PCRE2_ERROR_HEAP_FAILED ? PS_ENOMEM_HOST : PS_ENOSYS, "split regex, column %zu: %s", at,
                       (const char *)text);
    }
    /* Where executable memory is forbidden this fails, and matching is interpreted: three times slower, same result. */
    (void)pcre2_jit_compile(t->split, PCRE2_JIT_COMPLETE);
    t->match = pcre2_match_data_create(1, t->pcre_memory);
    return t->match != NULL ? PS_OK : PS_ENOMEM_HOST;
}

ps_status ps_tokenizer_create(const char *vocab_name, const char *vocab_json, int64_t vocab_bytes,
                              const char *merges_name, const char *merges_text, int64_t merges_bytes,
                              ps_tokenizer **out)
{
    *out = NULL;
    ps_status st;
    ps_tokenizer *t = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *t, &t));
    PS_TRY_GOTO(ps_vocab_init(&t->vocab, vocab_name, vocab_json, vocab_bytes, merges_name, merges_text, merges_bytes));
    PS_TRY_GOTO(bpe_compile_split(t));
    PS_TRY_GOTO(ps_mem_alloc(CACHE_WORDS, sizeof *t->cache, &t->cache));
    *out = t;
    t = NULL;
out:
    ps_tokenizer_close(t);
    return st;
}

ps_status ps_tokenizer_open(const char *folder, ps_tokenizer **out)
{
    *out = NULL;
    ps_status st;
    char *names[2] = {NULL, NULL}, *data[2] = {NULL, NULL};
    int64_t n_bytes[2];
    static const char *const files[2] = {"vocab.json", "merges.txt"};
    for (int i = 0; i < 2; i++) {
        const size_t name_bytes = strlen(folder) + 16;
        PS_TRY_GOTO(ps_mem_alloc(name_bytes, 1, &names[i]));
        snprintf(names[i], name_bytes, "%s/%s", folder, files[i]);
        PS_TRY_GOTO(ps_file_read_all(names[i], FILE_BYTES_MAX, &data[i], &n_bytes[i]));
    }
    PS_TRY_GOTO(ps_tokenizer_create(names[0], data[0], n_bytes[0], names[1], data[1], n_bytes[1], out));
out:
    for (int i = 0; i < 2; i++) {
        ps_mem_free(names[i]);
        ps_mem_free(data[i]);
    }
    return st;
}

static void merge_work_free(merge_work *w)
{
    ps_mem_free(w->nodes);
    ps_mem_free(w->heap);
    memset(w, 0, sizeof *w);
}

void ps_tokenizer_close(ps_tokenizer *t)
{
    if (t == NULL) return;
    pcre2_match_data_free(t->match);
    pcre2_code_free(t->split);
    pcre2_general_context_free(t->pcre_memory);
    ps_vocab_deinit(&t->vocab);
    ps_mem_free(t->cache);
    merge_work_free(&t->work);
    ps_mem_free(t);
}

/* ---- merging one piece ---- */

static bool candidate_is_before(const merge_candidate *a, const merge_candidate *b)
{
    return a->merge->rank != b->merge->rank ? a->merge->rank < b->merge->rank : a->node < b->node;
}

static void heap_push(merge_work *w, merge_candidate c)
{
    int64_t i = w->n_heap++;
    while (i > 0 && candidate_is_before(&c, &w->heap[(i - 1) / 2])) {
        w->heap[i] = w->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    w->heap[i] = c;
}

static merge_candidate heap_pop(merge_work *w)
{
    const merge_candidate top = w->heap[0], last = w->heap[--w->n_heap];
    int64_t i = 0;
    for (int64_t child; (child = 2 * i + 1) < w->n_heap; i = child) {
        if (child + 1 < w->n_heap && candidate_is_before(&w->heap[child + 1], &w->heap[child])) child++;
        if (!candidate_is_before(&w->heap[child], &last)) break;
        w->heap[i] = w->heap[child];
    }
    w->heap[i] = last;
    return top;
}

/* Remember that `left` can merge with the node after it, if it can. */
static void merge_consider(const ps_vocab *v, merge_work *w, int32_t left)
{
    if (left < 0 || w->nodes[left].next < 0) return;
    const ps_merge *m = ps_vocab_find_merge(v, w->nodes[left].id, w->nodes[w->nodes[left].next].id);
    if (m != NULL) heap_push(w, (merge_candidate){m, left});
}

static ps_status merge_reserve(merge_work *w, int64_t n)
{
    if (n <= w->capacity) return PS_OK;
    if (n > INT32_MAX)
        return PS_FAIL(PS_EINVAL, "%lld bytes of text without a place to split them, expected at most %d", (long long)n,
                       INT32_MAX);
    merge_work_free(w);
    const int64_t capacity = ps_max_i64(n, KEPT_PIECE_BYTES);
    PS_TRY(ps_mem_alloc((size_t)capacity, sizeof *w->nodes, &w->nodes));
    PS_TRY(ps_mem_alloc((size_t)capacity, 3 * sizeof *w->heap, &w->heap));
    w->capacity = capacity;
    return PS_OK;
}

/* The tokens of one piece, into w->nodes: a list from node 0 on. A heap of pairs makes it O(n log n) in the length of
 * the piece, so that a text of one endless word is no trap; which merge is next (lowest rank, then leftmost) is as in
 * GPT-2's encoder, which scans all pairs for each. */
static ps_status merge_piece(const ps_vocab *v, merge_work *w, const char *piece, int64_t n)
{
    PS_TRY(merge_reserve(w, n));
    w->n_heap = 0;
    for (int32_t i = 0; i < (int32_t)n; i++)
        w->nodes[i] = (merge_node){v->id_of_byte[(unsigned char)piece[i]], i - 1, i + 1 < n ? i + 1 : -1};
    for (int32_t i = 0; i < (int32_t)n; i++) merge_consider(v, w, i);
    while (w->n_heap > 0) {
        const merge_candidate c = heap_pop(w);
        merge_node *left = &w->nodes[c.node];
        if (left->id != c.merge->left || left->next < 0) continue;
        merge_node *right = &w->nodes[left->next];
        if (right->id != c.merge->right) continue;
        left->id = c.merge->merged;
        left->next = right->next;
        right->id = -1;
        if (left->next >= 0) w->nodes[left->next].previous = c.node;
        merge_consider(v, w, left->previous);
        merge_consider(v, w, c.node);
    }
    return PS_OK;
}

/* ---- encode ---- */

static ps_status id_list_reserve(id_list *list, int64_t n_more)
{
    if (list->n + n_more <= list->capacity) return PS_OK;
    const int64_t capacity = ps_max_i64(2 * list->capacity, list->n + n_more);
    PS_TRY(ps_mem_grow(&list->ids, (size_t)list->n, (size_t)capacity, sizeof *list->ids));
    list->capacity = capacity;
    return PS_OK;
}

static ps_status bpe_encode_piece(ps_tokenizer *t, const char *piece, int64_t n, id_list *list)
{
    const uint64_t hash = XXH3_64bits(piece, (size_t)n);
    cached_word *word = &t->cache[hash % CACHE_WORDS];
    if (word->hash == hash && word->n_bytes == n && memcmp(word->bytes, piece, (size_t)n) == 0) {
        PS_TRY(id_list_reserve(list, word->n_ids));
        for (int i = 0; i < word->n_ids; i++) list->ids[list->n++] = word->ids[i];
        return PS_OK;
    }
    PS_TRY(merge_piece(&t->vocab, &t->work, piece, n));
    const int64_t begin = list->n;
    for (int32_t node = 0; node >= 0; node = t->work.nodes[node].next) {
        PS_TRY(id_list_reserve(list, 1));
        list->ids[list->n++] = t->work.nodes[node].id;
    }
    const int64_t n_ids = list->n - begin;
    if (n <= (int64_t)sizeof word->bytes && n_ids <= (int64_t)PS_ARRAY_LEN(word->ids)) {
        word->hash = hash;
        word->n_bytes = (uint8_t)n;
        word->n_ids = (uint8_t)n_ids;
        memcpy(word->bytes, piece, (size_t)n);
        memcpy(word->ids, list->ids + begin, (size_t)n_ids * sizeof *word->ids);
    }
    return PS_OK;
}

static ps_status bpe_encode_utf8(ps_tokenizer *t, const char *text, int64_t n, id_list *list)
{
    for (int64_t at = 0; at < n;) {
        const int rc =
            pcre2_match(t->split, (PCRE2_SPTR)text, (PCRE2_SIZE)n, (PCRE2_SIZE)at, PCRE2_NO_UTF_CHECK, t->match, NULL);
        if (rc < 0) { /* the alternatives cover every character, so "no match" cannot be */
            PCRE2_UCHAR reason[128] = "";
            pcre2_get_error_message(rc, reason, sizeof reason);
            return PS_FAIL(rc == PCRE2_ERROR_NOMEMORY ? PS_ENOMEM_HOST : PS_EINVAL,
                           "splitting text into words, byte %lld: %s", (long long)at, (const char *)reason);
        }
        const int64_t end = (int64_t)pcre2_get_ovector_pointer(t->match)[1];
        PS_TRY(bpe_encode_piece(t, text + at, end - at, list));
        at = end;
    }
    return PS_OK;
}

/* Length of the well-formed UTF-8 character (Unicode standard, table 3-7) at p, 0 when there is none. n >= 1. */
static int utf8_character_bytes(const unsigned char *p, int64_t n)
{
    if (p[0] < 0x80) return 1;
    const int length = p[0] < 0xC2 ? 0 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : p[0] < 0xF5 ? 4 : 0;
    if (length == 0 || length > n) return 0;
    /* no overlong forms, no surrogates, nothing above U+10FFFF */
    const unsigned char least = p[0] == 0xE0 ? 0xA0 : p[0] == 0xF0 ? 0x90 : 0x80;
    const unsigned char most = p[0] == 0xED ? 0x9F : p[0] == 0xF4 ? 0x8F : 0xBF;
    if (p[1] < least || p[1] > most) return 0;
    for (int i = 2; i < length; i++)
        if ((p[i] & 0xC0) != 0x80) return 0;
    return length;
}

ps_status ps_tokenizer_encode(ps_tokenizer *t, const void *text, int64_t n_bytes, int32_t **out_ids, int64_t *out_n_ids)
{
    PS_ASSERT(n_bytes >= 0);
    *out_ids = NULL;
    *out_n_ids = 0;
    const char *bytes = text;
    ps_status st;
    id_list list = {NULL, 0, 0};
    PS_TRY(id_list_reserve(&list, n_bytes / 4 + 16)); /* English has some 4.4 bytes a token */
    for (int64_t at = 0; at < n_bytes;) {
        int64_t end = at;
        for (int length; end < n_bytes; end += length) {
            length = utf8_character_bytes((const unsigned char *)bytes + end, n_bytes - end);
            if (length == 0) break;
        }
        PS_TRY_GOTO(bpe_encode_utf8(t, bytes + at, end - at, &list));
        at = end;
        while (end < n_bytes && utf8_character_bytes((const unsigned char *)bytes + end, n_bytes - end) == 0) end++;
        if (end > at) PS_TRY_GOTO(bpe_encode_piece(t, bytes + at, end - at, &list));
        at = end;
    }
    *out_ids = list.ids;
    *out_n_ids = list.n;
    list.ids = NULL;
    st = PS_OK;
out:
    ps_mem_free(list.ids);
    if (t->work.capacity > KEPT_PIECE_BYTES) merge_work_free(&t->work);
    return st;
}

/* ---- decode and the rest ---- */

ps_status ps_tokenizer_decode(const ps_tokenizer *t, const int32_t *ids, int64_t n_ids, char **out_text,
                              int64_t *out_n_bytes)
{
    PS_ASSERT(n_ids >= 0);
    *out_text = NULL;
    *out_n_bytes = 0;
    const ps_vocab *v = &t->vocab;
    int64_t n_bytes = 0;
    for (int64_t i = 0; i < n_ids; i++) {
        if (ids[i] < 0 || ids[i] >= v->n_tokens)
            return PS_FAIL(PS_EINVAL, "token %lld has id %d, expected 0 to %d", (long long)i, ids[i], v->n_tokens - 1);
        n_bytes += v->offset[ids[i] + 1] - v->offset[ids[i]];
    }
    char *text = NULL;
    PS_TRY(ps_mem_alloc((size_t)n_bytes + 1, 1, &text));
    *out_text = text;
    *out_n_bytes = n_bytes;
    for (int64_t i = 0; i < n_ids; i++) {
        const int64_t begin = v->offset[ids[i]], n = v->offset[ids[i] + 1] - begin;
        memcpy(text, v->bytes + begin, (size_t)n);
        text += n;
    }
    return PS_OK;
}

int32_t ps_tokenizer_vocab_size(const ps_tokenizer *t)
{
    return t->vocab.n_tokens;
}

int32_t ps_tokenizer_eot(const ps_tokenizer *t)
{
    return t->vocab.eot;
}

uint64_t ps_tokenizer_fingerprint(const ps_tokenizer *t)
{
    return t->vocab.fingerprint;
}
