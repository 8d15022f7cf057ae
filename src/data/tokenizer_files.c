/* tokenizer_files.c - reads GPT-2's two files and BERT's vocab.txt, and selects the files of a folder. */
#include <limits.h>
#include <stdio.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/folder.h"
#include "base/model_folder.h"
#include "config/json_tolerant.h"
#include "data/tokenizer_json.h"

#define FILE_BYTES_MAX (256 * PS_MIB)
#define EOT_TEXT "<|endoftext|>"

/* A special token of the model's own vocabulary, when it exists. */
static ps_status add_special(ps_tokenizer *t, const char *text)
{
    ps_added_token a = {.n_bytes = (int64_t)strlen(text), .id = ps_vocab_find(&t->vocab, text, (int64_t)strlen(text))};
    if (a.id < 0 || ps_tokenizer_is_special(t, a.id)) return PS_OK;
    PS_TRY(ps_mem_strdup(text, &a.text));
    t->vocab.flags[a.id] |= PS_TOKEN_IS_SPECIAL;
    const ps_status st = ps_tokenizer_add_token(t, &a);
    ps_mem_free(a.text);
    return st;
}

/* ---- vocab.json and merges.txt ---- */

/* Each id from 0 to n - 1 must occur once. */
static ps_status collect_ids(const char *name, json_t *root, ps_vocab_entry *entries)
{
    const json_int_t n = (json_int_t)json_object_size(root);
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value)
    {
        if (!json_is_integer(value))
            return PS_FAIL(PS_EFORMAT, "%s: token \"%.64s\": its id is not an integer", name, key);
        const json_int_t id = json_integer_value(value);
        if (id < 0 || id >= n)
            return PS_FAIL(PS_EFORMAT, "%s: token \"%.64s\" has id %lld, expected 0 to %lld as there are %lld tokens",
                           name, key, (long long)id, (long long)n - 1, (long long)n);
        if (entries[id].text != NULL)
            return PS_FAIL(PS_EFORMAT, "%s: tokens \"%.64s\" and \"%.64s\" both have id %lld", name, entries[id].text,
                           key, (long long)id);
        entries[id] = (ps_vocab_entry){.text = key, .n_bytes = (int64_t)strlen(key)};
    }
    return PS_OK;
}

static ps_status load_vocab_json(ps_tokenizer *t, const char *name, const char *json, int64_t n_bytes)
{
    ps_status st;
    ps_vocab_entry *entries = NULL;
    json_error_t error;
    json_t *root;
    PS_TRY(ps_json_load_tolerant(json, (size_t)n_bytes, JSON_REJECT_DUPLICATES, &root, &error));
    if (root == NULL) return PS_FAIL(PS_EFORMAT, "%s:%d: column %d: %s", name, error.line, error.column, error.text);
    const size_t n = json_object_size(root); /* 0 when it is no object */
    if (n < 256 || n > INT32_MAX / 4) {
        st = PS_FAIL(PS_EFORMAT, "%s: expected an object of at least 256 tokens, found %s of %zu", name,
                     json_is_object(root) ? "an object" : "something else", n);
        goto out;
    }
    PS_TRY_GOTO(ps_mem_alloc(n, sizeof *entries, &entries));
    PS_TRY_GOTO(collect_ids(name, root, entries));
    PS_TRY_GOTO(ps_vocab_init(&t->vocab, entries, (int32_t)n, true, true, name));
    for (int b = 0; b < 256; b++) {
        const char byte = (char)b;
        if (ps_vocab_find(&t->vocab, &byte, 1) >= 0) continue;
        st = PS_FAIL(PS_EFORMAT, "%s: no token for the single byte 0x%02X; all 256 are needed", name, b);
        goto out;
    }
out:
    ps_mem_free(entries);
    json_decref(root);
    return st;
}

static ps_status add_merge_line(ps_bpe *b, const char *line, int64_t n, const char *where)
{
    const char *space = memchr(line, ' ', (size_t)n);
    const int64_t n_left = space != NULL ? space - line : 0, n_right = n - n_left - 1;
    if (space == NULL || memchr(space + 1, ' ', (size_t)n_right) != NULL)
        return PS_FAIL(PS_EFORMAT, "%s: expected two tokens with one space between, found \"%.*s\"", where,
                       (int)ps_min_i64(n, 64), line);
    return ps_bpe_add_merge(b, line, n_left, space + 1, n_right, where);
}

/* A "#version" line, then one merge a line, "left right", best first. */
static ps_status load_merges(ps_tokenizer *t, const char *name, const char *text, int64_t n_bytes)
{
    ps_status st;
    char *where = NULL;
    int64_t n_lines = 1, line = 0;
    for (int64_t i = 0; i < n_bytes; i++) n_lines += text[i] == '\n';
    PS_TRY(ps_bpe_init(&t->bpe, &t->vocab, n_lines));
    const size_t where_bytes = strlen(name) + 32;
    PS_TRY_GOTO(ps_mem_alloc(where_bytes, 1, &where));
    const char *end = text + n_bytes;
    for (const char *p = text, *eol; p < end; p = eol + 1) {
        eol = memchr(p, '\n', (size_t)(end - p));
        if (eol == NULL) eol = end;
        line++;
        const int64_t n = eol - p - (eol > p && eol[-1] == '\r');
        const bool is_version = line == 1 && n >= 8 && memcmp(p, "#version", 8) == 0;
        if (n == 0 || is_version) continue;
        snprintf(where, where_bytes, "%s:%lld", name, (long long)line);
        PS_TRY_GOTO(add_merge_line(&t->bpe, p, n, where));
    }
out:
    ps_mem_free(where);
    return st;
}

static ps_status create_gpt2(const char *vocab_name, const char *vocab_json, int64_t vocab_bytes,
                             const char *merges_name, const char *merges_text, int64_t merges_bytes,
                             bool add_prefix_space, ps_tokenizer **out)
{
    *out = NULL;
    ps_status st;
    ps_tokenizer *t = NULL;
    PS_TRY(ps_tokenizer_new(&t));
    t->is_byte_level = true;
    PS_TRY_GOTO(load_vocab_json(t, vocab_name, vocab_json, vocab_bytes));
    PS_TRY_GOTO(load_merges(t, merges_name, merges_text, merges_bytes));
    PS_TRY_GOTO(ps_tokenizer_add_gpt2_split(t, add_prefix_space));
    PS_TRY_GOTO(add_special(t, EOT_TEXT));
    const uint64_t seed = XXH3_64bits(vocab_json, (size_t)vocab_bytes) + add_prefix_space;
    t->fingerprint = XXH3_64bits_withSeed(merges_text, (size_t)merges_bytes, seed);
    ps_tokenizer_finish(t);
    *out = t;
    t = NULL;
out:
    ps_tokenizer_close(t);
    return st;
}

ps_status ps_tokenizer_create(const char *vocab_name, const char *vocab_json, int64_t vocab_bytes,
                              const char *merges_name, const char *merges_text, int64_t merges_bytes,
                              ps_tokenizer **out)
{
    return create_gpt2(vocab_name, vocab_json, vocab_bytes, merges_name, merges_text, merges_bytes, false, out);
}

/* ---- vocab.txt ---- */

/* Its lines to entries, the id is the line's number from 0; an empty line is a hole. */
static ps_status load_vocab_txt(ps_tokenizer *t, const char *name, const char *text, int64_t n_bytes)
{
    ps_status st;
    ps_vocab_entry *entries = NULL;
    int64_t n_lines = 0, id = 0;
    for (int64_t i = 0; i < n_bytes; i++) n_lines += text[i] == '\n' || i + 1 == n_bytes;
    if (n_lines == 0 || n_lines > INT32_MAX / 4)
        return PS_FAIL(PS_EFORMAT, "%s: %lld lines, expected 1 to %d", name, (long long)n_lines, INT32_MAX / 4);
    PS_TRY(ps_mem_alloc((size_t)n_lines, sizeof *entries, &entries));
    const char *end = text + n_bytes;
    for (const char *p = text, *eol; p < end; p = eol + 1, id++) {
        eol = memchr(p, '\n', (size_t)(end - p));
        if (eol == NULL) eol = end;
        const int64_t n = eol - p - (eol > p && eol[-1] == '\r');
        if (n > 0) entries[id] = (ps_vocab_entry){.text = p, .n_bytes = n};
    }
    PS_TRY_GOTO(ps_vocab_init(&t->vocab, entries, (int32_t)n_lines, false, false, name));
out:
    ps_mem_free(entries);
    return st;
}

/* BERT's special tokens, and [CLS] A [SEP] B [SEP]. */
static ps_status set_up_bert(ps_tokenizer *t, const char *name)
{
    static const char *const special[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    int32_t id[PS_ARRAY_LEN(special)];
    for (size_t i = 0; i < PS_ARRAY_LEN(special); i++) {
        id[i] = ps_vocab_find(&t->vocab, special[i], (int64_t)strlen(special[i]));
        if (id[i] < 0 && i >= 1 && i <= 3)
            return PS_FAIL(PS_EFORMAT, "%s: no token %s, as BERT's vocabularies have", name, special[i]);
        PS_TRY(add_special(t, special[i]));
    }
    const int32_t cls = id[2], sep = id[3];
    t->post.single = (ps_template){.parts = {{cls, 0}, {PS_PART_A, 0}, {sep, 0}}, .n = 3};
    t->post.pair = (ps_template){.parts = {{cls, 0}, {PS_PART_A, 0}, {sep, 0}, {PS_PART_B, 1}, {sep, 1}}, .n = 5};
    t->decoder = (ps_decoder){.kind = PS_DECODE_WORDPIECE, .cleanup = true, .prefix = "##"};
    t->pretokenizer.steps[0].kind = PS_PRETOKENIZE_BERT;
    t->pretokenizer.n_steps = 1;
    return ps_wordpiece_init(&t->wordpiece, &t->vocab, id[1], "##", 100);
}

ps_status ps_tokenizer_create_wordpiece(const char *name, const char *vocab_text, int64_t n_bytes,
                                        const ps_wordpiece_options *options, ps_tokenizer **out)
{
    *out = NULL;
    ps_status st;
    ps_tokenizer *t = NULL;
    PS_TRY(ps_tokenizer_new(&t));
    t->is_wordpiece = true;
    PS_TRY_GOTO(load_vocab_txt(t, name, vocab_text, n_bytes));
    ps_normalizer *z = &t->normalizer;
    const bool strips = options->strip_accents || (!options->keep_case && !options->keep_accents);
    (void)ps_normalizer_add(z, PS_NORMALIZE_BERT_CLEAN);
    if (!options->keep_cjk) (void)ps_normalizer_add(z, PS_NORMALIZE_BERT_CJK);
    if (strips) (void)ps_normalizer_add(z, PS_NORMALIZE_BERT_ACCENTS);
    if (!options->keep_case) (void)ps_normalizer_add(z, PS_NORMALIZE_LOWERCASE);
    PS_TRY_GOTO(set_up_bert(t, name));
    const unsigned choices = (unsigned)options->keep_case << 2 | (unsigned)options->keep_cjk << 1 | (unsigned)strips;
    t->fingerprint = XXH3_64bits_withSeed(vocab_text, (size_t)n_bytes, choices);
    ps_tokenizer_finish(t);
    *out = t;
    t = NULL;
out:
    ps_tokenizer_close(t);
    return st;
}

/* ---- folders ---- */

enum { CONFIG, MAP, N_SETTINGS }; /* tokenizer_config.json, special_tokens_map.json */

typedef struct opening {
    char *path; /* room for the folder and the longest name */
    size_t path_bytes, n_folder;
    json_t *settings[N_SETTINGS]; /* NULL: there is no such file */
} opening;

static const char *opening_name(opening *o, const char *file)
{
    snprintf(o->path + o->n_folder, o->path_bytes - o->n_folder, "%s", file);
    return o->path;
}

static bool opening_has(opening *o, const char *file)
{
    return ps_file_exists(opening_name(o, file));
}

static ps_status read_settings(opening *o, const char *file, json_t **out)
{
    if (!opening_has(o, file)) return PS_OK;
    char *text;
    int64_t n;
    json_error_t error;
    PS_TRY(ps_file_read_all(o->path, FILE_BYTES_MAX, &text, &n));
    const ps_status st = ps_json_load_tolerant(text, (size_t)n, 0, out, &error);
    ps_mem_free(text);
    PS_TRY(st);
    if (*out == NULL) return PS_FAIL(PS_EFORMAT, "%s:%d: column %d: %s", o->path, error.line, error.column, error.text);
    return json_is_object(*out) ? PS_OK : PS_FAIL(PS_EFORMAT, "%s: expected an object", o->path);
}

static bool setting_is_true(const opening *o, const char *key)
{
    return json_is_true(json_object_get(o->settings[CONFIG], key));
}

/* Roles in the two files: "eos_token": "..." or {"content": "..."}; null is no such token. */
static ps_status apply_roles(const opening *o, ps_tokenizer *t)
{
    static const char *const keys[PS_ROLE_COUNT] = {
        [PS_ROLE_BOS] = "bos_token",  [PS_ROLE_EOS] = "eos_token", [PS_ROLE_PAD] = "pad_token",
        [PS_ROLE_UNK] = "unk_token",  [PS_ROLE_CLS] = "cls_token", [PS_ROLE_SEP] = "sep_token",
        [PS_ROLE_MASK] = "mask_token"};
    for (int file = 0; file < N_SETTINGS; file++)
        for (int role = 0; role < PS_ROLE_COUNT; role++) {
            const json_t *value = json_object_get(o->settings[file], keys[role]);
            if (value == NULL) continue;
            const char *text = json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
            t->role[role] = text != NULL ? ps_tokenizer_find(t, text) : -1;
            if (t->role[role] < 0 || ps_tokenizer_is_special(t, t->role[role])) continue;
            PS_TRY(add_special(t, text));
        }
    ps_added_sort(&t->added);
    return PS_OK;
}

/* add_bos_token, add_eos_token; used when the tokenizer's post-processor adds no tokens. */
static ps_status apply_borders(const opening *o, ps_tokenizer *t)
{
    const int32_t bos = setting_is_true(o, "add_bos_token") ? t->role[PS_ROLE_BOS] : -1;
    const int32_t eos = setting_is_true(o, "add_eos_token") ? t->role[PS_ROLE_EOS] : -1;
    if (ps_template_token_count(&t->post.single) > 0 || (bos < 0 && eos < 0)) return PS_OK;
    for (int pair = 0; pair <= 1; pair++) {
        ps_template *form = pair ? &t->post.pair : &t->post.single;
        form->n = 0;
        for (int part = 0; part <= pair; part++) {
            if (bos >= 0) PS_TRY(ps_template_add(form, bos, part, o->path));
            PS_TRY(ps_template_add(form, part ? PS_PART_B : PS_PART_A, part, o->path));
            if (eos >= 0) PS_TRY(ps_template_add(form, eos, part, o->path));
        }
    }
    return PS_OK;
}

/* Without a tokenizer.json the class in tokenizer_config.json determines the split. */
static ps_status check_class(opening *o, const char *known, const char *files)
{
    char padded[80];
    const char *class = json_string_value(json_object_get(o->settings[CONFIG], "tokenizer_class"));
    if (class == NULL) return PS_OK;
    const size_t n = strlen(class), n_fast = n > 4 && strcmp(class + n - 4, "Fast") == 0 ? 4 : 0;
    snprintf(padded, sizeof padded, " %.*s ", (int)ps_min_i64((int64_t)(n - n_fast), 64), class);
    if (strstr(known, padded) != NULL) return PS_OK;
    opening_name(o, "");
    return PS_FAIL(PS_EFORMAT, "%s: the %s of a %.64s are not supported without its tokenizer.json", o->path, files,
                   class);
}

static ps_status open_gpt2(opening *o, ps_tokenizer **out)
{
    ps_status st;
    char *names[2] = {NULL, NULL}, *data[2] = {NULL, NULL};
    int64_t n_bytes[2];
    static const char *const files[2] = {"vocab.json", "merges.txt"};
    PS_TRY(check_class(o, " GPT2Tokenizer RobertaTokenizer BartTokenizer ", "vocab.json and merges.txt"));
    for (int i = 0; i < 2; i++) {
        PS_TRY_GOTO(ps_mem_strdup(opening_name(o, files[i]), &names[i]));
        PS_TRY_GOTO(ps_file_read_all(names[i], FILE_BYTES_MAX, &data[i], &n_bytes[i]));
    }
    PS_TRY_GOTO(create_gpt2(names[0], data[0], n_bytes[0], names[1], data[1], n_bytes[1],
                            setting_is_true(o, "add_prefix_space"), out));
out:
    for (int i = 0; i < 2; i++) {
        ps_mem_free(names[i]);
        ps_mem_free(data[i]);
    }
    return st;
}

static ps_status open_vocab_txt(opening *o, ps_tokenizer **out)
{
    char *text;
    int64_t n;
    const json_t *config = o->settings[CONFIG], *strip = json_object_get(config, "strip_accents");
    const ps_wordpiece_options options = {
        .keep_case = json_is_false(json_object_get(config, "do_lower_case")),
        .keep_accents = json_is_false(strip),
        .strip_accents = json_is_true(strip),
        .keep_cjk = json_is_false(json_object_get(config, "tokenize_chinese_chars")),
    };
    PS_TRY(check_class(o, " BertTokenizer DistilBertTokenizer ElectraTokenizer MobileBertTokenizer ", "vocab.txt"));
    PS_TRY(ps_file_read_all(opening_name(o, "vocab.txt"), FILE_BYTES_MAX, &text, &n));
    const ps_status st = ps_tokenizer_create_wordpiece(o->path, text, n, &options, out);
    ps_mem_free(text);
    return st;
}

static ps_status open_json(opening *o, ps_tokenizer **out)
{
    char *text;
    int64_t n;
    PS_TRY(ps_file_read_all(o->path, FILE_BYTES_MAX, &text, &n));
    const ps_status st = ps_tokenizer_create_json(o->path, text, n, out);
    ps_mem_free(text);
    return st;
}

static bool ends_with(const char *path, const char *file)
{
    const size_t n = strlen(path), n_file = strlen(file);
    return n >= n_file && strcmp(path + n - n_file, file) == 0 && (n == n_file || path[n - n_file - 1] == '/');
}

static const char *const sentencepiece_models[] = {"tokenizer.model", "spiece.model", "sentencepiece.bpe.model"};

/* No readable file; the message depends on the other files of the folder. */
static ps_status fail_without_files(opening *o, const char *path)
{
    const size_t n = strlen(path);
    bool is_model = n > 6 && strcmp(path + n - 6, ".model") == 0 && ps_file_exists(path);
    if (is_model) snprintf(o->path, o->path_bytes, "%s", path);
    for (size_t i = 0; i < PS_ARRAY_LEN(sentencepiece_models) && !is_model; i++)
        is_model = opening_has(o, sentencepiece_models[i]);
    if (is_model)
        return PS_FAIL(PS_EFORMAT,
                       "%s: a binary model of SentencePiece, which is not read; transformers turns it into a "
                       "tokenizer.json: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)",
                       o->path);
    if (!ps_file_exists(path)) {
        char hint[PS_MODEL_FOLDER_HINT_BYTES];
        return PS_FAIL(PS_EIO, "%s: no such file or folder; expected a tokenizer%s", path,
                       ps_model_folder_hint(path, hint));
    }
    return PS_FAIL(PS_EIO,
                   "%s: no tokenizer is there; expected a folder with a tokenizer.json, vocab.json and merges.txt, or "
                   "vocab.txt, or one of these files",
                   path);
}

static ps_status open_one(opening *o, const char *path, ps_tokenizer **out)
{
    if (ends_with(path, "vocab.txt")) return open_vocab_txt(o, out);
    if (ends_with(path, "vocab.json") || ends_with(path, "merges.txt")) return open_gpt2(o, out);
    if (o->n_folder < strlen(path)) { /* a file with another name: "my-tokenizer.json" */
        snprintf(o->path, o->path_bytes, "%s", path);
        return open_json(o, out);
    }
    if (opening_has(o, "tokenizer.json")) return open_json(o, out);
    if (opening_has(o, "vocab.json")) return open_gpt2(o, out);
    return opening_has(o, "vocab.txt") ? open_vocab_txt(o, out) : fail_without_files(o, path);
}

static ps_status open_path(const char *path, ps_tokenizer **out)
{
    ps_status st;
    ps_tokenizer *t = NULL;
    opening o = {.path_bytes = strlen(path) + 64};
    PS_TRY(ps_mem_alloc(o.path_bytes, 1, &o.path));
    const bool is_file = ends_with(path, "vocab.txt") || ends_with(path, "vocab.json") ||
                         ends_with(path, "merges.txt") ||
                         (strlen(path) > 5 && strcmp(path + strlen(path) - 5, ".json") == 0);
    const char *slash = strrchr(path, '/');
    if (!is_file)
        o.n_folder = (size_t)snprintf(o.path, o.path_bytes, "%s/", path);
    else if (slash != NULL)
        o.n_folder = (size_t)snprintf(o.path, o.path_bytes, "%.*s/", (int)(slash - path), path);
    PS_TRY_GOTO(read_settings(&o, "tokenizer_config.json", &o.settings[CONFIG]));
    PS_TRY_GOTO(read_settings(&o, "special_tokens_map.json", &o.settings[MAP]));
    PS_TRY_GOTO(open_one(&o, path, &t));
    PS_TRY_GOTO(apply_roles(&o, t));
    PS_TRY_GOTO(apply_borders(&o, t));
    *out = t;
    t = NULL;
out:
    ps_tokenizer_close(t);
    for (int i = 0; i < N_SETTINGS; i++) json_decref(o.settings[i]);
    ps_mem_free(o.path);
    return st;
}

ps_status ps_tokenizer_open(const char *path, ps_tokenizer **out)
{
    PS_TRY(PS_NEED_FOR(out, "path out", path, out));
    char *snapshot = NULL;
    PS_TRY(ps_model_folder_find(path, &snapshot));
    const ps_status st = open_path(snapshot != NULL ? snapshot : path, out);
    ps_mem_free(snapshot);
    return st;
}

static bool has_file(const char *folder, const char *name)
{
    char *path = NULL;
    const bool yes = ps_folder_join(folder, name, &path) == PS_OK && ps_file_exists(path);
    ps_mem_free(path);
    return yes;
}

bool ps_tokenizer_is_in(const char *folder)
{
    static const char *const files[] = {"tokenizer.json", "vocab.json", "vocab.txt"};
    bool yes = false;
    for (size_t i = 0; i < PS_ARRAY_LEN(files) && !yes; i++) yes = has_file(folder, files[i]);
    for (size_t i = 0; i < PS_ARRAY_LEN(sentencepiece_models) && !yes; i++)
        yes = has_file(folder, sentencepiece_models[i]);
    return yes;
}
