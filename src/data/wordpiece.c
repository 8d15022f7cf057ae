#include "data/wordpiece.h"

#include "base/utf8.h"

ps_status ps_wordpiece_init(ps_wordpiece *w, const ps_vocab *vocab, int32_t unknown, const char *prefix,
                            int64_t characters_max)
{
    memset(w, 0, sizeof *w);
    w->vocab = vocab;
    w->unknown = unknown;
    w->characters_max = characters_max;
    w->prefix_bytes = (int64_t)strlen(prefix);
    for (int32_t id = 0; id < vocab->n_ids; id++)
        w->token_bytes_max = ps_max_i64(w->token_bytes_max, vocab->offset[id + 1] - vocab->offset[id]);
    return ps_text_append(&w->part, prefix, w->prefix_bytes);
}

void ps_wordpiece_deinit(ps_wordpiece *w)
{
    ps_mem_free(w->part.bytes);
    memset(w, 0, sizeof *w);
}

/* The longest token at word + at, which ends at *end. -1: none. */
static ps_status longest_token(ps_wordpiece *w, const char *word, int64_t n, int64_t at, int32_t *id, int64_t *end)
{
    const char *text = word + at;
    const int64_t prefix = at > 0 ? w->prefix_bytes : 0;
    *end = ps_min_i64(n, at + ps_max_i64(0, w->token_bytes_max - prefix));
    while (*end<n && * end> at && ((unsigned char)word[*end] & 0xC0) == 0x80) --*end;
    if (at > 0) {
        w->part.n = w->prefix_bytes;
        PS_TRY(ps_text_append(&w->part, text, *end - at));
        text = w->part.bytes;
    }
    *id = -1;
    while (*end > at) {
        *id = ps_vocab_find(w->vocab, text, prefix + *end - at);
        if (*id >= 0) break;
        *end -= ps_utf8_length_before(word + *end);
    }
    return PS_OK;
}

ps_status ps_wordpiece_encode_word(ps_wordpiece *w, const char *word, int64_t n, ps_id_list *out)
{
    int64_t n_characters = 0;
    for (int64_t i = 0; i < n; i++) n_characters += ((unsigned char)word[i] & 0xC0) != 0x80;
    if (n_characters > w->characters_max) return ps_ids_append(out, w->unknown);
    const int64_t begin = out->n;
    for (int64_t at = 0, end; at < n; at = end) {
        int32_t id;
        PS_TRY(longest_token(w, word, n, at, &id, &end));
        if (id < 0) {
            out->n = begin;
            return ps_ids_append(out, w->unknown);
        }
        PS_TRY(ps_ids_append(out, id));
    }
    return PS_OK;
}

/* ---- decode ---- */

/* Replace every `from` after `begin` by `to`, which is not longer. */
static void text_replace(ps_text_buffer *b, int64_t begin, const char *from, const char *to)
{
    const int64_t n_from = (int64_t)strlen(from), n_to = (int64_t)strlen(to);
    int64_t kept = begin;
    for (int64_t i = begin; i < b->n;) {
        if (b->n - i >= n_from && memcmp(b->bytes + i, from, (size_t)n_from) == 0) {
            memcpy(b->bytes + kept, to, (size_t)n_to);
            kept += n_to;
            i += n_from;
        } else {
            b->bytes[kept++] = b->bytes[i++];
        }
    }
    b->n = kept;
}

ps_status ps_wordpiece_decode_token(const char *token, int64_t n, bool is_first, const char *prefix, bool cleanup,
                                    ps_text_buffer *out)
{
    /* in this order: huggingface/tokenizers, decoders/wordpiece.rs */
    static const char *const replacements[][2] = {
        {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},    {" n't", "n't"},
        {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    const int64_t n_prefix = (int64_t)strlen(prefix), begin = out->n;
    const bool is_inside = !is_first && n >= n_prefix && memcmp(token, prefix, (size_t)n_prefix) == 0;
    if (!is_first && !is_inside) PS_TRY(ps_text_append(out, " ", 1));
    PS_TRY(is_inside ? ps_text_append(out, token + n_prefix, n - n_prefix) : ps_text_append(out, token, n));
    for (size_t i = 0; cleanup && i < PS_ARRAY_LEN(replacements); i++)
        text_replace(out, begin, replacements[i][0], replacements[i][1]);
    return PS_OK;
}
