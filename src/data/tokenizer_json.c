#include "data/tokenizer_json.h"

#include <stdio.h>
#include <xxhash.h>

#include "config/json_tolerant.h"

/* ---- the vocabulary, with the added tokens ---- */

/* Ids may have holes, but an id far above the number of tokens is an error, as memory is proportional to the largest
 * id. */
static int64_t id_limit(int64_t n_tokens)
{
    return 4 * n_tokens + 4096;
}

static ps_status entries_put(const ps_json_where *at, ps_vocab_entry *entries, int64_t limit, json_t *id,
                             const char *text, uint8_t flags)
{
    const json_int_t i = json_integer_value(id);
    if (!json_is_integer(id) || i < 0 || i >= limit)
        return PS_FAIL(PS_EFORMAT, "%s: %s: token \"%.64s\" has no id from 0 to %lld", at->file, at->part, text,
                       (long long)limit - 1);
    ps_vocab_entry *e = &entries[i];
    if (e->text != NULL && strcmp(e->text, text) != 0)
        return PS_FAIL(PS_EFORMAT, "%s: %s: tokens \"%.64s\" and \"%.64s\" both have id %lld", at->file, at->part,
                       e->text, text, (long long)i);
    e->flags |= flags;
    e->text = text;
    e->n_bytes = (int64_t)strlen(text);
    return PS_OK;
}

/* The added tokens of the file; those of the model's vocabulary keep its ids. */
static ps_status entries_put_added(const ps_json_where *at, ps_vocab_entry *entries, int64_t limit, json_t *vocab,
                                   json_t *added)
{
    size_t i;
    json_t *token;
    json_array_foreach(added, i, token)
    {
        const char *text;
        bool is_special = false;
        PS_TRY(ps_json_check_keys(at, token, "id content single_word lstrip rstrip normalized special"));
        PS_TRY(ps_json_get_string(at, token, "content", &text));
        PS_TRY(ps_json_get_bool(at, token, "special", &is_special));
        json_t *id = json_object_get(token, "id"), *model_id = json_object_get(vocab, text);
        if (model_id != NULL && json_integer_value(model_id) != json_integer_value(id))
            return PS_FAIL(PS_EFORMAT, "%s: %s: token \"%.64s\" has id %lld, but %lld in the model's vocabulary",
                           at->file, at->part, text, (long long)json_integer_value(id),
                           (long long)json_integer_value(model_id));
        const int flags = (model_id == NULL ? PS_TOKEN_IS_ADDED : 0) | (is_special ? PS_TOKEN_IS_SPECIAL : 0);
        PS_TRY(entries_put(at, entries, limit, id, text, (uint8_t)flags));
    }
    return PS_OK;
}

static ps_status read_vocab(ps_tokenizer *t, const char *file, json_t *vocab, json_t *added)
{
    const ps_json_where at_vocab = {file, "model.vocab"}, at_added = {file, "added_tokens"};
    ps_status st;
    ps_vocab_entry *entries = NULL;
    const char *text;
    json_t *id;
    if (!json_is_object(vocab)) return PS_FAIL(PS_EFORMAT, "%s: model.vocab: expected an object", file);
    if (added != NULL && !json_is_null(added) && !json_is_array(added))
        return PS_FAIL(PS_EFORMAT, "%s: added_tokens: expected an array", file);
    const int64_t n = (int64_t)(json_object_size(vocab) + json_array_size(added)), limit = id_limit(n);
    if (limit > INT32_MAX) return PS_FAIL(PS_EFORMAT, "%s: %lld tokens are too many", file, (long long)n);
    PS_TRY(ps_mem_alloc((size_t)limit, sizeof *entries, &entries));
    json_object_foreach(vocab, text, id) PS_TRY_GOTO(entries_put(&at_vocab, entries, limit, id, text, 0));
    PS_TRY_GOTO(entries_put_added(&at_added, entries, limit, vocab, added));
    int64_t n_ids = limit;
    while (n_ids > 0 && entries[n_ids - 1].text == NULL) n_ids--;
    PS_TRY_GOTO(ps_vocab_init(&t->vocab, entries, (int32_t)n_ids, t->is_byte_level, false, file));
out:
    ps_mem_free(entries);
    return st;
}

/* Add the same tokens to the sets that are matched in texts. */
static ps_status read_added(ps_tokenizer *t, const char *file, json_t *added)
{
    const ps_json_where at = {file, "added_tokens"};
    size_t i;
    json_t *token;
    json_array_foreach(added, i, token)
    {
        ps_added_token a = {.id = (int32_t)json_integer_value(json_object_get(token, "id"))};
        const char *text;
        PS_TRY(ps_json_get_string(&at, token, "content", &text));
        PS_TRY(ps_json_get_bool(&at, token, "single_word", &a.single_word));
        PS_TRY(ps_json_get_bool(&at, token, "lstrip", &a.lstrip));
        PS_TRY(ps_json_get_bool(&at, token, "rstrip", &a.rstrip));
        PS_TRY(ps_json_get_bool(&at, token, "normalized", &a.normalized));
        PS_TRY(ps_mem_strdup(text, &a.text)); /* the set copies it: json's strings are const */
        a.n_bytes = (int64_t)strlen(text);
        const ps_status st = ps_tokenizer_add_token(t, &a);
        ps_mem_free(a.text);
        PS_TRY(st);
    }
    return PS_OK;
}

/* ---- models ---- */

/* "a b", or ["a", "b"] in files since 2024. */
static ps_status bpe_read_merge(ps_bpe *b, const char *where, const json_t *merge)
{
    const char *left = json_string_value(json_array_get(merge, 0)),
               *right = json_string_value(json_array_get(merge, 1));
    if (json_is_string(merge)) {
        left = json_string_value(merge);
        right = strchr(left, ' ');
        if (right == NULL || strchr(right + 1, ' ') != NULL)
            return PS_FAIL(PS_EFORMAT, "%s: expected two tokens with one space between, found \"%.64s\"", where, left);
        return ps_bpe_add_merge(b, left, right - left, right + 1, (int64_t)strlen(right + 1), where);
    }
    if (json_array_size(merge) != 2 || left == NULL || right == NULL)
        return PS_FAIL(PS_EFORMAT, "%s: expected \"left right\" or [\"left\", \"right\"]", where);
    return ps_bpe_add_merge(b, left, (int64_t)strlen(left), right, (int64_t)strlen(right), where);
}

/* Options of BPE of characters: tokens for unknown characters. */
static ps_status bpe_read_unknown(ps_tokenizer *t, const ps_json_where *at, json_t *model)
{
    bool byte_fallback = false;
    const char *unknown = json_string_value(json_object_get(model, "unk_token"));
    PS_TRY(ps_json_get_bool(at, model, "byte_fallback", &byte_fallback));
    PS_TRY(ps_json_get_bool(at, model, "fuse_unk", &t->bpe.fuses_unknown));
    if (byte_fallback && t->is_byte_level)
        return PS_FAIL(PS_EFORMAT, "%s: %s: \"byte_fallback\" after ByteLevel is not supported", at->file, at->part);
    if (byte_fallback) ps_bpe_use_byte_fallback(&t->bpe);
    if (unknown == NULL || t->is_byte_level) return PS_OK;
    t->bpe.unknown = ps_vocab_find(&t->vocab, unknown, (int64_t)strlen(unknown));
    return t->bpe.unknown >= 0
               ? PS_OK
               : PS_FAIL(PS_EFORMAT, "%s: %s: unk_token \"%.64s\" is no token", at->file, at->part, unknown);
}

static ps_status bpe_read(ps_tokenizer *t, const char *file, json_t *model)
{
    const ps_json_where at = {file, "model BPE"};
    json_t *merges = json_object_get(model, "merges"), *merge;
    PS_TRY(ps_json_check_keys(&at, model,
                              "type dropout unk_token continuing_subword_prefix end_of_word_suffix fuse_unk "
                              "byte_fallback ignore_merges vocab merges"));
    static const char *const refused[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < PS_ARRAY_LEN(refused); i++) {
        const json_t *value = json_object_get(model, refused[i]);
        if (value != NULL && !json_is_null(value) && !(json_is_string(value) && json_string_length(value) == 0))
            return PS_FAIL(PS_EFORMAT, "%s: model BPE: \"%s\" is not supported", file, refused[i]);
    }
    if (!json_is_array(merges)) return PS_FAIL(PS_EFORMAT, "%s: model.merges: expected an array", file);
    const int64_t n_merges = (int64_t)json_array_size(merges);
    PS_TRY(t->is_byte_level ? ps_bpe_init(&t->bpe, &t->vocab, n_merges)
                            : ps_bpe_init_characters(&t->bpe, &t->vocab, n_merges));
    PS_TRY(ps_json_get_bool(&at, model, "ignore_merges", &t->bpe.ignore_merges));
    PS_TRY(bpe_read_unknown(t, &at, model));
    const size_t where_bytes = strlen(file) + 64;
    char *where;
    PS_TRY(ps_mem_alloc(where_bytes, 1, &where));
    ps_status st = PS_OK;
    size_t i;
    json_array_foreach(merges, i, merge)
    {
        snprintf(where, where_bytes, "%s: merge %zu", file, i + 1);
        PS_TRY_GOTO(bpe_read_merge(&t->bpe, where, merge));
    }
out:
    ps_mem_free(where);
    return st;
}

static ps_status wordpiece_read(ps_tokenizer *t, const char *file, json_t *model)
{
    const ps_json_where at = {file, "model WordPiece"};
    const char *unknown, *prefix;
    const json_t *characters = json_object_get(model, "max_input_chars_per_word");
    PS_TRY(ps_json_check_keys(&at, model, "type unk_token continuing_subword_prefix max_input_chars_per_word vocab"));
    PS_TRY(ps_json_get_string(&at, model, "unk_token", &unknown));
    PS_TRY(ps_json_get_string(&at, model, "continuing_subword_prefix", &prefix));
    if (characters != NULL && !json_is_integer(characters))
        return PS_FAIL(PS_EFORMAT, "%s: model WordPiece: \"max_input_chars_per_word\" is no whole number", file);
    const int32_t id = ps_vocab_find(&t->vocab, unknown, (int64_t)strlen(unknown));
    if (id < 0) return PS_FAIL(PS_EFORMAT, "%s: model WordPiece: unk_token \"%.64s\" is no token", file, unknown);
    return ps_wordpiece_init(&t->wordpiece, &t->vocab, id, prefix,
                             characters != NULL ? json_integer_value(characters) : 100);
}

/* ---- the whole file ---- */

/* Files before 2020 have no model.type; then merges make it BPE. */
static ps_status read_model_type(ps_tokenizer *t, const char *file, json_t *model)
{
    if (!json_is_object(model)) return PS_FAIL(PS_EFORMAT, "%s: model: expected an object", file);
    const char *type = json_string_value(json_object_get(model, "type"));
    if (type == NULL) type = json_object_get(model, "merges") != NULL ? "BPE" : "of no type";
    t->is_wordpiece = strcmp(type, "WordPiece") == 0;
    return t->is_wordpiece || strcmp(type, "BPE") == 0
               ? PS_OK
               : PS_FAIL(PS_EFORMAT, "%s: model %.64s is not supported; known are BPE and WordPiece", file, type);
}

static ps_status read_parts(ps_tokenizer *t, const char *file, json_t *root)
{
    const ps_json_where at = {file, "the file"};
    json_t *model = json_object_get(root, "model"), *added = json_object_get(root, "added_tokens");
    PS_TRY(ps_json_check_keys(&at, root,
                              "version truncation padding added_tokens normalizer pre_tokenizer post_processor decoder "
                              "model"));
    PS_TRY(read_model_type(t, file, model));
    PS_TRY(ps_json_read_normalizer(t, file, json_object_get(root, "normalizer")));
    PS_TRY(ps_json_read_pretokenizer(t, file, json_object_get(root, "pre_tokenizer")));
    if (t->is_byte_level && t->is_wordpiece)
        return PS_FAIL(PS_EFORMAT, "%s: WordPiece after a ByteLevel pre_tokenizer is not supported", file);
    PS_TRY(read_vocab(t, file, json_object_get(model, "vocab"), added));
    PS_TRY(t->is_wordpiece ? wordpiece_read(t, file, model) : bpe_read(t, file, model));
    PS_TRY(read_added(t, file, added));
    PS_TRY(ps_json_read_post_processor(t, file, json_object_get(root, "post_processor")));
    return ps_json_read_decoder(t, file, json_object_get(root, "decoder"));
}

ps_status ps_tokenizer_create_json(const char *name, const char *json, int64_t n_bytes, ps_tokenizer **out)
{
    *out = NULL;
    ps_status st;
    ps_tokenizer *t = NULL;
    json_error_t error;
    json_t *root;
    PS_TRY(ps_json_load_tolerant(json, (size_t)n_bytes, JSON_REJECT_DUPLICATES, &root, &error));
    if (root == NULL) return PS_FAIL(PS_EFORMAT, "%s:%d: column %d: %s", name, error.line, error.column, error.text);
    PS_TRY_GOTO(ps_tokenizer_new(&t));
    PS_TRY_GOTO(read_parts(t, name, root));
    t->fingerprint = XXH3_64bits(json, (size_t)n_bytes);
    ps_tokenizer_finish(t);
    *out = t;
    t = NULL;
out:
    ps_tokenizer_close(t);
    json_decref(root);
    return st;
}
