#include "data/tokenizer.h"

#include "base/utf8.h"
#include "data/tokenizer_impl.h"

#define KEPT_TEXT_BYTES (64 * PS_KIB)

enum { SINK_IDS = 16384 };

/* ---- make and close ---- */

ps_status ps_tokenizer_new(ps_tokenizer **out)
{
    *out = NULL;
    ps_tokenizer *t = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *t, &t));
    for (int i = 0; i < PS_ROLE_COUNT; i++) t->role[i] = -1;
    ps_post_processor_init(&t->post);
    const ps_status st = ps_mem_alloc(PS_WORD_CACHE_WORDS, sizeof *t->cache, &t->cache);
    if (st != PS_OK) {
        ps_mem_free(t);
        return st;
    }
    *out = t;
    return PS_OK;
}

ps_status ps_tokenizer_add_token(ps_tokenizer *t, const ps_added_token *token)
{
    ps_added_token a = *token;
    ps_added_set *set = a.normalized ? &t->added_normalized : &t->added;
    if (a.normalized) { /* it is matched in normalized text, so its own text is normalized, too */
        const char *text;
        PS_TRY(ps_normalize(&t->normalizer, token->text, token->n_bytes, &text, &a.n_bytes));
        PS_TRY(ps_text_reserve(&t->repaired, a.n_bytes + 1));
        memcpy(t->repaired.bytes, text, (size_t)a.n_bytes);
        a.text = t->repaired.bytes;
    }
    return a.n_bytes > 0 ? ps_added_append(set, &a) : PS_OK;
}

ps_status ps_tokenizer_add_gpt2_split(ps_tokenizer *t, bool add_prefix_space)
{
    ps_pretokenizer *p = &t->pretokenizer;
    if (add_prefix_space) p->steps[p->n_steps++].kind = PS_PRETOKENIZE_PREFIX_SPACE;
    ps_pretokenizer_step *split = &p->steps[p->n_steps++];
    split->kind = PS_PRETOKENIZE_REGEX;
    split->behavior = PS_SPLIT_ISOLATED;
    return ps_regex_create(PS_GPT2_SPLIT, false, "GPT-2's split", &split->regex);
}

void ps_tokenizer_finish(ps_tokenizer *t)
{
    /* by role, most likely first; roles in the files have precedence */
    static const char *const customary[PS_ROLE_COUNT][4] = {
        [PS_ROLE_BOS] = {"<|begin_of_text|>", "<s>"},
        [PS_ROLE_EOS] = {"<|endoftext|>", "<|end_of_text|>", "</s>"},
        [PS_ROLE_PAD] = {"[PAD]", "<pad>", "<|endoftext|>"},
        [PS_ROLE_UNK] = {"[UNK]", "<unk>"},
        [PS_ROLE_CLS] = {"[CLS]"},
        [PS_ROLE_SEP] = {"[SEP]"},
        [PS_ROLE_MASK] = {"[MASK]", "<mask>"},
    };
    ps_added_sort(&t->added);
    ps_added_sort(&t->added_normalized);
    for (int role = 0; role < PS_ROLE_COUNT; role++)
        for (int i = 0; i < 4 && customary[role][i] != NULL && t->role[role] < 0; i++) {
            const int32_t id = ps_tokenizer_find(t, customary[role][i]);
            if (ps_tokenizer_is_special(t, id)) t->role[role] = id;
        }
}

void ps_tokenizer_close(ps_tokenizer *t)
{
    if (t == NULL) return;
    ps_bpe_deinit(&t->bpe);
    ps_wordpiece_deinit(&t->wordpiece);
    ps_vocab_deinit(&t->vocab);
    ps_added_deinit(&t->added);
    ps_added_deinit(&t->added_normalized);
    ps_normalizer_deinit(&t->normalizer);
    ps_pretokenizer_deinit(&t->pretokenizer);
    ps_mem_free(t->cache);
    ps_mem_free(t->repaired.bytes);
    ps_mem_free(t);
}

/* ---- encode: from the model up to the text ---- */

/* State of encoding a text. */
typedef struct encoder {
    ps_tokenizer *t;
    ps_id_list *ids;
    ps_ids_sink sink; /* NULL: all ids are kept */
    void *context;
} encoder;

static ps_status flush(encoder *e)
{
    const int64_t n = e->ids->n;
    e->ids->n = 0;
    return n > 0 ? e->sink(e->context, e->ids->ids, n) : PS_OK;
}

/* A part of a piece that can be encoded independently (ps_bpe_part_end). */
static ps_status encode_part(ps_tokenizer *t, const char *piece, int64_t n, ps_id_list *ids)
{
    bool is_there;
    ps_cached_word *word = ps_word_cache_find(t->cache, piece, n, &is_there);
    if (is_there) {
        PS_TRY(ps_ids_reserve(ids, word->n_ids));
        for (int i = 0; i < word->n_ids; i++) ids->ids[ids->n++] = word->ids[i];
        return PS_OK;
    }
    const int64_t begin = ids->n;
    PS_TRY(t->is_wordpiece ? ps_wordpiece_encode_word(&t->wordpiece, piece, n, ids)
                           : ps_bpe_encode_piece(&t->bpe, piece, n, ids));
    ps_word_cache_keep(word, piece, n, ids->ids + begin, ids->n - begin);
    return PS_OK;
}

static ps_status encode_piece(void *context, const char *piece, int64_t n)
{
    encoder *e = context;
    for (int64_t at = 0, end; at < n; at = end) {
        end = e->t->is_wordpiece ? n : ps_bpe_part_end(&e->t->bpe, piece, n, at);
        PS_TRY(encode_part(e->t, piece + at, end - at, e->ids));
        if (e->sink != NULL && e->ids->n >= SINK_IDS) PS_TRY(flush(e));
    }
    return PS_OK;
}

/* Well-formed text without added tokens of the first set. */
static ps_status encode_well_formed(encoder *e, const char *text, int64_t n, bool added, ps_text_start start)
{
    ps_tokenizer *t = e->t;
    PS_TRY(ps_normalize(&t->normalizer, text, n, &text, &n));
    for (int64_t at = 0, begin, end; at < n; at = end) {
        const ps_added_token *a = added ? ps_added_find(&t->added_normalized, text, n, at, &begin, &end) : NULL;
        if (a == NULL) begin = end = n;
        PS_TRY(ps_pretokenize(&t->pretokenizer, text + at, begin - at, at > 0 ? PS_TEXT_AFTER_ADDED_TOKEN : start,
                              encode_piece, e));
        if (a != NULL) PS_TRY(ps_ids_append(e->ids, a->id));
    }
    return PS_OK;
}

/* Byte-level BPE: well-formed ranges as text, malformed bytes as separate pieces. */
static ps_status encode_any_bytes(encoder *e, const char *text, int64_t n, bool added, ps_text_start start)
{
    for (int64_t at = 0; at < n;) {
        int64_t end = at;
        for (int length; end < n; end += length) {
            length = ps_utf8_length(text + end, n - end);
            if (length == 0) break;
        }
        if (end > at) PS_TRY(encode_well_formed(e, text + at, end - at, added, at == 0 ? start : PS_TEXT_GOES_ON));
        at = end;
        while (end < n && ps_utf8_length(text + end, n - end) == 0) end++;
        if (end > at) PS_TRY(encode_piece(e, text + at, end - at));
        at = end;
    }
    return PS_OK;
}

/* Other models encode characters only: consecutive malformed bytes become one U+FFFD. */
static ps_status encode_repaired(encoder *e, const char *text, int64_t n, bool added, ps_text_start start)
{
    ps_text_buffer *b = &e->t->repaired;
    int64_t good = 0;
    for (int length; good < n; good += length) {
        length = ps_utf8_length(text + good, n - good);
        if (length == 0) break;
    }
    if (good == n) return encode_well_formed(e, text, n, added, start);
    b->n = 0;
    PS_TRY(ps_text_append(b, text, good));
    for (int64_t i = good; i < n;) {
        const int length = ps_utf8_length(text + i, n - i);
        PS_TRY(length > 0 ? ps_text_append(b, text + i, length) : ps_text_append(b, "\xEF\xBF\xBD", 3));
        if (length == 0)
            while (i < n && ps_utf8_length(text + i, n - i) == 0) i++;
        i += length;
    }
    return encode_well_formed(e, b->bytes, b->n, added, start);
}

static ps_status encode_all(encoder *e, const char *text, int64_t n, bool added, ps_text_start start)
{
    ps_status st = PS_OK;
    ps_tokenizer *t = e->t;
    /* English has some 4.4 bytes a token */
    PS_TRY(ps_ids_reserve(e->ids, e->sink != NULL ? ps_min_i64(n / 4 + 16, SINK_IDS) : n / 4 + 16));
    for (int64_t at = 0, begin, end; at < n; at = end) {
        const ps_added_token *a = added ? ps_added_find(&t->added, text, n, at, &begin, &end) : NULL;
        if (a == NULL) begin = end = n;
        if (begin > at)
            PS_TRY_GOTO((t->is_byte_level ? encode_any_bytes : encode_repaired)(
                e, text + at, begin - at, added, at > 0 ? PS_TEXT_AFTER_ADDED_TOKEN : start));
        if (a != NULL) PS_TRY_GOTO(ps_ids_append(e->ids, a->id));
    }
    if (e->sink != NULL) st = flush(e);
out:
    ps_bpe_trim(&t->bpe);
    ps_normalizer_trim(&t->normalizer);
    ps_pretokenizer_trim(&t->pretokenizer);
    if (t->repaired.capacity > KEPT_TEXT_BYTES) {
        ps_mem_free(t->repaired.bytes);
        t->repaired = (ps_text_buffer){0};
    }
    return st;
}

ps_status ps_tokenizer_encode(ps_tokenizer *t, const void *text, int64_t n_bytes, int32_t **out_ids, int64_t *out_n_ids)
{
    PS_ASSERT(n_bytes >= 0);
    *out_ids = NULL;
    *out_n_ids = 0;
    ps_id_list ids = {0};
    const ps_status st = encode_all(&(encoder){.t = t, .ids = &ids}, text, n_bytes, false, PS_TEXT_BEGINS);
    if (st != PS_OK) {
        ps_mem_free(ids.ids);
        return st;
    }
    *out_ids = ids.ids;
    *out_n_ids = ids.n;
    return PS_OK;
}

ps_status ps_tokenizer_encode_into(ps_tokenizer *t, const void *text, int64_t n_bytes, bool added, ps_ids_sink sink,
                                   void *context)
{
    PS_ASSERT(n_bytes >= 0);
    ps_id_list ids = {0};
    encoder e = {.t = t, .ids = &ids, .sink = sink, .context = context};
    const ps_status st = encode_all(&e, text, n_bytes, added, PS_TEXT_BEGINS);
    ps_mem_free(ids.ids);
    return st;
}

/* ---- sequences with their special tokens ---- */

static void encoding_append(ps_encoding *e, const int32_t *ids, int64_t n, int32_t type_id)
{
    for (int64_t i = 0; i < n; i++) {
        e->ids[e->n] = ids[i];
        e->type_ids[e->n++] = type_id;
    }
}

static ps_status encoding_fill(const ps_template *form, const ps_encode_options *o, ps_id_list sequences[2],
                               ps_encoding *out)
{
    int64_t n_added = o->bare ? 0 : ps_template_token_count(form);
    if (o->max_length > 0 && o->max_length < n_added)
        return PS_FAIL(PS_EINVAL, "max_length = %lld, but %lld special tokens are put around the text",
                       (long long)o->max_length, (long long)n_added);
    if (o->max_length > 0) ps_truncate_longest_first(o->max_length - n_added, &sequences[0].n, &sequences[1].n);
    for (int i = 0; i < form->n; i++)
        if (form->parts[i].id < 0) n_added += sequences[form->parts[i].id == PS_PART_B].n;
    PS_TRY(ps_mem_alloc((size_t)n_added, sizeof *out->ids, &out->ids));
    PS_TRY(ps_mem_alloc((size_t)n_added, sizeof *out->type_ids, &out->type_ids));
    for (int i = 0; i < form->n; i++) {
        const ps_template_part *part = &form->parts[i];
        const ps_id_list *sequence = &sequences[part->id == PS_PART_B];
        if (part->id < 0)
            encoding_append(out, sequence->ids, sequence->n, part->type_id);
        else if (!o->bare)
            encoding_append(out, &part->id, 1, part->type_id);
    }
    return PS_OK;
}

ps_status ps_tokenizer_encode_sequence(ps_tokenizer *t, const ps_encode_options *options, const void *a,
                                       int64_t a_bytes, const void *b, int64_t b_bytes, ps_encoding *out)
{
    PS_ASSERT(a_bytes >= 0 && b_bytes >= 0 && options->max_length >= 0);
    *out = (ps_encoding){0};
    ps_status st;
    ps_id_list sequences[2] = {{0}, {0}};
    const ps_text_start start = options->after_token ? PS_TEXT_AFTER_ADDED_TOKEN : PS_TEXT_BEGINS;
    encoder e = {.t = t, .ids = &sequences[0]};
    PS_TRY_GOTO(encode_all(&e, a, a_bytes, options->added_tokens, start));
    e.ids = &sequences[1];
    if (b != NULL) PS_TRY_GOTO(encode_all(&e, b, b_bytes, options->added_tokens, start));
    PS_TRY_GOTO(encoding_fill(b != NULL ? &t->post.pair : &t->post.single, options, sequences, out));
out:
    ps_mem_free(sequences[0].ids);
    ps_mem_free(sequences[1].ids);
    if (st != PS_OK) ps_encoding_deinit(out);
    return st;
}

void ps_encoding_deinit(ps_encoding *e)
{
    ps_mem_free(e->ids);
    ps_mem_free(e->type_ids);
    *e = (ps_encoding){0};
}

/* ---- decode ---- */

ps_status ps_tokenizer_decode_next(const ps_tokenizer *t, ps_decoding *d, const int32_t *ids, int64_t n_ids,
                                   char **out_text, int64_t *out_n_bytes)
{
    PS_ASSERT(n_ids >= 0);
    *out_text = NULL;
    *out_n_bytes = 0;
    ps_status st = PS_OK;
    ps_text_buffer text = {0};
    ps_decoding next = *d;
    for (int64_t i = 0; i < n_ids; i++) {
        int64_t n;
        if (ids[i] < 0 || ids[i] >= t->vocab.n_ids) {
            st = PS_FAIL(PS_EINVAL, "token %lld has id %d, expected 0 to %d", (long long)i, ids[i], t->vocab.n_ids - 1);
            goto out;
        }
        const char *token = ps_tokenizer_token(t, ids[i], &n);
        if (token == NULL || (d->plain && ps_tokenizer_is_special(t, ids[i]))) continue;
        PS_TRY_GOTO(ps_decoder_add(&t->decoder, &next, token, n, &text));
    }
    PS_TRY_GOTO(ps_text_append(&text, "", 1));
    *d = next;
    *out_text = text.bytes;
    *out_n_bytes = text.n - 1;
    text.bytes = NULL;
out:
    ps_mem_free(text.bytes);
    return st;
}

ps_status ps_tokenizer_decode(const ps_tokenizer *t, const int32_t *ids, int64_t n_ids, char **out_text,
                              int64_t *out_n_bytes)
{
    return ps_tokenizer_decode_next(t, &(ps_decoding){0}, ids, n_ids, out_text, out_n_bytes);
}

ps_status ps_tokenizer_decode_plain(const ps_tokenizer *t, const int32_t *ids, int64_t n_ids, char **out_text,
                                    int64_t *out_n_bytes)
{
    PS_TRY(PS_NEED_FOR(out_text, "tokenizer ids out_text out_n_bytes", t, PS_NEED_IF(n_ids > 0, ids), out_text,
                       out_n_bytes));
    return ps_tokenizer_decode_next(t, &(ps_decoding){.plain = true}, ids, n_ids, out_text, out_n_bytes);
}

const char *ps_tokenizer_token(const ps_tokenizer *t, int32_t id, int64_t *out_n_bytes)
{
    *out_n_bytes = 0;
    if (id < 0 || id >= t->vocab.n_ids || (t->vocab.flags[id] & PS_TOKEN_IS_THERE) == 0) return NULL;
    *out_n_bytes = t->vocab.offset[id + 1] - t->vocab.offset[id];
    return t->vocab.bytes + t->vocab.offset[id];
}

/* ---- the vocabulary ---- */

int32_t ps_tokenizer_vocab_size(const ps_tokenizer *t)
{
    return t->vocab.n_ids;
}

static int32_t added_find_text(const ps_added_set *set, const char *text)
{
    const int64_t n = (int64_t)strlen(text);
    for (int64_t i = 0; i < set->n; i++)
        if (set->tokens[i].n_bytes == n && memcmp(set->tokens[i].text, text, (size_t)n) == 0) return set->tokens[i].id;
    return -1;
}

int32_t ps_tokenizer_find_added(const ps_tokenizer *t, const char *text)
{
    const int32_t id = added_find_text(&t->added, text);
    return id >= 0 ? id : added_find_text(&t->added_normalized, text);
}

bool ps_tokenizer_strips_space(const ps_tokenizer *t, int32_t id)
{
    const ps_added_set *const sets[] = {&t->added, &t->added_normalized};
    for (size_t k = 0; k < PS_ARRAY_LEN(sets); k++)
        for (int64_t i = 0; i < sets[k]->n; i++)
            if (sets[k]->tokens[i].id == id) return sets[k]->tokens[i].lstrip || sets[k]->tokens[i].rstrip;
    return false;
}

int32_t ps_tokenizer_find(const ps_tokenizer *t, const char *text)
{
    const int32_t id = ps_tokenizer_find_added(t, text);
    return id >= 0 ? id : ps_vocab_find(&t->vocab, text, (int64_t)strlen(text));
}

int32_t ps_tokenizer_role(const ps_tokenizer *t, ps_token_role role)
{
    return t->role[role];
}

bool ps_tokenizer_is_special(const ps_tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->vocab.n_ids && (t->vocab.flags[id] & PS_TOKEN_IS_SPECIAL) != 0;
}

int32_t ps_tokenizer_eot(const ps_tokenizer *t)
{
    int32_t id = ps_tokenizer_find(t, "<|endoftext|>");
    if (id < 0) id = ps_tokenizer_find(t, "<|end_of_text|>");
    return id >= 0 ? id : t->role[PS_ROLE_EOS];
}

uint64_t ps_tokenizer_fingerprint(const ps_tokenizer *t)
{
    return t->fingerprint;
}
