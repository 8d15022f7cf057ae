#include <limits.h>
#include <stdio.h>

#include "data/tokenizer_json.h"

/* \w of Rust's regular expressions, which Whitespace is made of; that of Oniguruma differs. */
#define RUST_WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}"

enum { DEPTH_MAX = 8 }; /* of Sequences in Sequences */

static ps_status refuse(const char *file, const char *what, const char *type)
{
    return PS_FAIL(PS_EFORMAT, "%s: %s %.64s is not supported", file, what, type);
}

static bool type_is(const char *type, const char *name)
{
    return strcmp(type, name) == 0;
}

/* The array of a Sequence. */
static ps_status sequence_items(const ps_json_place *at, json_t *component, const char *key, int depth, json_t **items)
{
    char keys[64];
    snprintf(keys, sizeof keys, "type %s", key);
    PS_TRY(ps_json_check_keys(at, component, keys));
    *items = json_object_get(component, key);
    if (!json_is_array(*items) || depth == DEPTH_MAX)
        return PS_FAIL(PS_EFORMAT, "%s: %s Sequence: expected an array \"%s\", at most %d deep", at->file, at->part,
                       key, DEPTH_MAX);
    return PS_OK;
}

/* ---- normalizers ---- */

static ps_status normalizer_add(ps_normalizer *z, const char *file, ps_normalizer_step step)
{
    if (z->n_steps == PS_NORMALIZER_STEPS_MAX)
        return PS_FAIL(PS_EFORMAT, "%s: more than %d normalizers", file, PS_NORMALIZER_STEPS_MAX);
    z->steps[z->n_steps++] = step;
    return PS_OK;
}

static ps_status normalizer_read_bert(ps_normalizer *z, const ps_json_place *at, json_t *component)
{
    bool clean = true, cjk = true, lowercase = true;
    PS_TRY(ps_json_check_keys(at, component, "type clean_text handle_chinese_chars strip_accents lowercase"));
    PS_TRY(ps_json_get_bool(at, component, "clean_text", &clean));
    PS_TRY(ps_json_get_bool(at, component, "handle_chinese_chars", &cjk));
    PS_TRY(ps_json_get_bool(at, component, "lowercase", &lowercase));
    bool strip = lowercase; /* where it is null */
    PS_TRY(ps_json_get_bool(at, component, "strip_accents", &strip));
    if (clean) PS_TRY(normalizer_add(z, at->file, PS_NORMALIZE_BERT_CLEAN));
    if (cjk) PS_TRY(normalizer_add(z, at->file, PS_NORMALIZE_BERT_CJK));
    if (strip) PS_TRY(normalizer_add(z, at->file, PS_NORMALIZE_BERT_ACCENTS));
    return lowercase ? normalizer_add(z, at->file, PS_NORMALIZE_LOWERCASE) : PS_OK;
}

static ps_status normalizer_read(ps_normalizer *z, const char *file, json_t *component, int depth)
{
    static const struct {
        const char *type;
        ps_normalizer_step step;
    } plain[] = {{"NFC", PS_NORMALIZE_NFC},
                 {"NFD", PS_NORMALIZE_NFD},
                 {"NFKC", PS_NORMALIZE_NFKC},
                 {"NFKD", PS_NORMALIZE_NFKD},
                 {"Lowercase", PS_NORMALIZE_LOWERCASE},
                 {"StripAccents", PS_NORMALIZE_STRIP_MARKS}};
    const ps_json_place at = {file, "normalizer"};
    const char *type;
    PS_TRY(ps_json_get_type(&at, component, &type));
    if (type_is(type, "BertNormalizer")) return normalizer_read_bert(z, &at, component);
    if (type_is(type, "Sequence")) {
        json_t *items, *item;
        size_t i;
        PS_TRY(sequence_items(&at, component, "normalizers", depth, &items));
        json_array_foreach(items, i, item) PS_TRY(normalizer_read(z, file, item, depth + 1));
        return PS_OK;
    }
    for (size_t i = 0; i < PS_ARRAY_LEN(plain); i++)
        if (type_is(type, plain[i].type)) {
            PS_TRY(ps_json_check_keys(&at, component, "type"));
            return normalizer_add(z, file, plain[i].step);
        }
    return refuse(file, "normalizer", type);
}

ps_status ps_json_read_normalizer(ps_tokenizer *t, const char *file, json_t *component)
{
    return component == NULL || json_is_null(component) ? PS_OK : normalizer_read(&t->normalizer, file, component, 0);
}

/* ---- pre-tokenizers ---- */

static ps_status pretokenizer_add(ps_tokenizer *t, const char *file, ps_pretokenizer_kind kind,
                                  ps_pretokenizer_step **out)
{
    ps_pretokenizer *p = &t->pretokenizer;
    if (p->n_steps + 2 > PS_PRETOKENIZER_STEPS_MAX) /* room for the two of ByteLevel */
        return PS_FAIL(PS_EFORMAT, "%s: more than %d pre_tokenizers", file, PS_PRETOKENIZER_STEPS_MAX - 2);
    *out = &p->steps[p->n_steps++];
    (*out)->kind = kind;
    (*out)->behavior = PS_SPLIT_ISOLATED;
    return PS_OK;
}

static ps_status split_read_behavior(const ps_json_place *at, json_t *component, ps_split_behavior *behavior)
{
    static const char *const names[] = {
        [PS_SPLIT_REMOVED] = "Removed",
        [PS_SPLIT_ISOLATED] = "Isolated",
        [PS_SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
        [PS_SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
        [PS_SPLIT_CONTIGUOUS] = "Contiguous",
    };
    const char *name;
    PS_TRY(ps_json_get_string(at, component, "behavior", &name));
    for (size_t i = 0; i < PS_ARRAY_LEN(names); i++)
        if (strcmp(name, names[i]) == 0) {
            *behavior = (ps_split_behavior)i;
            return PS_OK;
        }
    return PS_FAIL(PS_EFORMAT, "%s: %s: behavior %.64s is not supported", at->file, at->part, name);
}

static ps_status split_read(ps_tokenizer *t, const char *file, json_t *component)
{
    const ps_json_place at = {file, "pre_tokenizer Split"};
    json_t *pattern = json_object_get(component, "pattern");
    ps_pretokenizer_step *step = NULL;
    PS_TRY(ps_json_check_keys(&at, component, "type pattern behavior invert"));
    PS_TRY(ps_json_check_keys(&at, pattern, "Regex String"));
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));
    const char *literal = json_string_value(json_object_get(pattern, "String"));
    if ((regex == NULL) == (literal == NULL) || (literal != NULL && literal[0] == '\0'))
        return PS_FAIL(PS_EFORMAT, "%s: pre_tokenizer Split: expected a pattern \"Regex\" or \"String\"", file);
    PS_TRY(pretokenizer_add(t, file, PS_PRETOKENIZE_REGEX, &step));
    PS_TRY(split_read_behavior(&at, component, &step->behavior));
    PS_TRY(ps_json_get_bool(&at, component, "invert", &step->invert));
    return ps_regex_create(literal != NULL ? literal : regex, literal != NULL, file, &step->regex);
}

static ps_status byte_level_read(ps_tokenizer *t, const char *file, json_t *component)
{
    const ps_json_place at = {file, "pre_tokenizer ByteLevel"};
    bool prefix_space = true, use_regex = true;
    ps_pretokenizer_step *step = NULL;
    PS_TRY(ps_json_check_keys(&at, component, "type add_prefix_space trim_offsets use_regex"));
    PS_TRY(ps_json_get_bool(&at, component, "add_prefix_space", &prefix_space));
    PS_TRY(ps_json_get_bool(&at, component, "use_regex", &use_regex));
    if (prefix_space) PS_TRY(pretokenizer_add(t, file, PS_PRETOKENIZE_PREFIX_SPACE, &step));
    return use_regex ? ps_tokenizer_add_gpt2_split(t, false) : PS_OK;
}

static ps_status digits_read(ps_tokenizer *t, const char *file, json_t *component)
{
    const ps_json_place at = {file, "pre_tokenizer Digits"};
    bool individual = false;
    ps_pretokenizer_step *step = NULL;
    PS_TRY(ps_json_check_keys(&at, component, "type individual_digits"));
    PS_TRY(ps_json_get_bool(&at, component, "individual_digits", &individual));
    PS_TRY(pretokenizer_add(t, file, PS_PRETOKENIZE_DIGITS, &step));
    step->behavior = individual ? PS_SPLIT_ISOLATED : PS_SPLIT_CONTIGUOUS;
    return PS_OK;
}

static ps_status pretokenizer_read(ps_tokenizer *t, const char *file, json_t *component, int depth, bool *is_byte_level)
{
    const ps_json_place at = {file, "pre_tokenizer"};
    const char *type;
    ps_pretokenizer_step *step = NULL;
    PS_TRY(ps_json_get_type(&at, component, &type));
    if (type_is(type, "Sequence")) {
        json_t *items, *item;
        size_t i;
        PS_TRY(sequence_items(&at, component, "pretokenizers", depth, &items));
        json_array_foreach(items, i, item) PS_TRY(pretokenizer_read(t, file, item, depth + 1, is_byte_level));
        return PS_OK;
    }
    if (*is_byte_level) /* its pieces are characters of the byte alphabet, which those here are not */
        return PS_FAIL(PS_EFORMAT, "%s: pre_tokenizer %.64s after ByteLevel is not supported", file, type);
    *is_byte_level = type_is(type, "ByteLevel");
    if (*is_byte_level) return byte_level_read(t, file, component);
    if (type_is(type, "Split")) return split_read(t, file, component);
    if (type_is(type, "Digits")) return digits_read(t, file, component);
    if (type_is(type, "Punctuation")) {
        PS_TRY(ps_json_check_keys(&at, component, "type behavior"));
        PS_TRY(pretokenizer_add(t, file, PS_PRETOKENIZE_PUNCTUATION, &step));
        return split_read_behavior(&at, component, &step->behavior);
    }
    const bool is_bert = type_is(type, "BertPreTokenizer"), is_words = type_is(type, "Whitespace");
    if (!is_bert && !is_words && !type_is(type, "WhitespaceSplit")) return refuse(file, "pre_tokenizer", type);
    PS_TRY(ps_json_check_keys(&at, component, "type"));
    if (is_bert) return pretokenizer_add(t, file, PS_PRETOKENIZE_BERT, &step);
    PS_TRY(pretokenizer_add(t, file, PS_PRETOKENIZE_WHITE_SPACE, &step));
    if (!is_words) return PS_OK;
    PS_TRY(pretokenizer_add(t, file, PS_PRETOKENIZE_REGEX, &step));
    return ps_regex_create("[" RUST_WORD "]+|[^" RUST_WORD "\\s]+", false, file, &step->regex);
}

ps_status ps_json_read_pretokenizer(ps_tokenizer *t, const char *file, json_t *component, bool *is_byte_level)
{
    *is_byte_level = false;
    if (component == NULL || json_is_null(component)) return PS_OK;
    return pretokenizer_read(t, file, component, 0, is_byte_level);
}

/* ---- post-processors ---- */

/* ["[SEP]", 102] */
static ps_status token_pair_read(const ps_tokenizer *t, const ps_json_place *at, json_t *component, const char *key,
                                 int32_t *id)
{
    const json_t *pair = json_object_get(component, key), *value = json_array_get(pair, 1);
    if (json_array_size(pair) != 2 || !json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) >= t->vocab.n_ids)
        return PS_FAIL(PS_EFORMAT, "%s: %s: expected \"%s\": [\"token\", id below %d]", at->file, at->part, key,
                       t->vocab.n_ids);
    *id = (int32_t)json_integer_value(value);
    return PS_OK;
}

/* BERT: cls A sep, B sep of type 1. RoBERTa: cls A sep, sep B sep, all of type 0. */
static ps_status post_read_bert(ps_tokenizer *t, const char *file, json_t *component, bool is_roberta)
{
    const ps_json_place at = {file, is_roberta ? "post_processor RobertaProcessing" : "post_processor BertProcessing"};
    int32_t cls, sep;
    PS_TRY(ps_json_check_keys(&at, component, "type sep cls trim_offsets add_prefix_space"));
    PS_TRY(token_pair_read(t, &at, component, "cls", &cls));
    PS_TRY(token_pair_read(t, &at, component, "sep", &sep));
    const ps_template single = {.parts = {{cls, 0}, {PS_PART_A, 0}, {sep, 0}}, .n = 3};
    t->post.single = single;
    t->post.pair = single;
    if (is_roberta) PS_TRY(ps_template_add(&t->post.pair, sep, 0, file));
    PS_TRY(ps_template_add(&t->post.pair, PS_PART_B, !is_roberta, file));
    return ps_template_add(&t->post.pair, sep, !is_roberta, file);
}

/* The ids that a name stands for in the table of a TemplateProcessing. */
static ps_status template_add_special(ps_tokenizer *t, const ps_json_place *at, json_t *table, const char *name,
                                      int32_t type_id, ps_template *form)
{
    const json_t *ids = json_object_get(json_object_get(table, name), "ids"), *id;
    size_t i;
    if (json_array_size(ids) == 0)
        return PS_FAIL(PS_EFORMAT, "%s: %s: special_tokens has no ids for \"%.64s\"", at->file, at->part, name);
    json_array_foreach(ids, i, id)
    {
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= t->vocab.n_ids)
            return PS_FAIL(PS_EFORMAT, "%s: %s: \"%.64s\" stands for no id below %d", at->file, at->part, name,
                           t->vocab.n_ids);
        PS_TRY(ps_template_add(form, (int32_t)json_integer_value(id), type_id, at->file));
    }
    return PS_OK;
}

static ps_status template_read(ps_tokenizer *t, const ps_json_place *at, json_t *component, const char *key,
                               ps_template *form)
{
    json_t *parts = json_object_get(component, key), *part;
    size_t i;
    int n_sequences[2] = {0, 0};
    form->n = 0;
    if (!json_is_array(parts)) return PS_FAIL(PS_EFORMAT, "%s: %s: expected an array \"%s\"", at->file, at->part, key);
    json_array_foreach(parts, i, part)
    {
        const char *name;
        json_t *special = json_object_get(part, "SpecialToken"), *sequence = json_object_get(part, "Sequence");
        json_t *inner = special != NULL ? special : sequence;
        PS_TRY(ps_json_check_keys(at, part, special != NULL ? "SpecialToken" : "Sequence"));
        PS_TRY(ps_json_check_keys(at, inner, "id type_id"));
        PS_TRY(ps_json_get_string(at, inner, "id", &name));
        const json_int_t type = json_integer_value(json_object_get(inner, "type_id"));
        if (type < 0 || type > INT_MAX)
            return PS_FAIL(PS_EFORMAT, "%s: %s: type_id %lld of \"%.64s\"", at->file, at->part, (long long)type, name);
        if (special != NULL) {
            PS_TRY(
                template_add_special(t, at, json_object_get(component, "special_tokens"), name, (int32_t)type, form));
            continue;
        }
        if (!type_is(name, "A") && !type_is(name, "B"))
            return PS_FAIL(PS_EFORMAT, "%s: %s: sequence \"%.64s\", expected A or B", at->file, at->part, name);
        n_sequences[name[0] == 'B']++;
        PS_TRY(ps_template_add(form, name[0] == 'A' ? PS_PART_A : PS_PART_B, (int32_t)type, at->file));
    }
    if (n_sequences[0] != 1 || n_sequences[1] != (form == &t->post.pair))
        return PS_FAIL(PS_EFORMAT, "%s: %s: \"%s\" must have each sequence once", at->file, at->part, key);
    return PS_OK;
}

/* adds: something has put tokens into the templates already; two that do cannot be joined. */
static ps_status post_read(ps_tokenizer *t, const char *file, json_t *component, int depth, bool *adds)
{
    const ps_json_place at = {file, "post_processor"};
    const char *type;
    PS_TRY(ps_json_get_type(&at, component, &type));
    if (type_is(type, "Sequence")) {
        json_t *items, *item;
        size_t i;
        PS_TRY(sequence_items(&at, component, "processors", depth, &items));
        json_array_foreach(items, i, item) PS_TRY(post_read(t, file, item, depth + 1, adds));
        return PS_OK;
    }
    if (type_is(type, "ByteLevel")) /* changes offsets only */
        return ps_json_check_keys(&at, component, "type add_prefix_space trim_offsets use_regex");
    if (*adds) return PS_FAIL(PS_EFORMAT, "%s: a second post_processor, %.64s, is not supported", file, type);
    *adds = true;
    if (type_is(type, "BertProcessing")) return post_read_bert(t, file, component, false);
    if (type_is(type, "RobertaProcessing")) return post_read_bert(t, file, component, true);
    if (!type_is(type, "TemplateProcessing")) return refuse(file, "post_processor", type);
    const ps_json_place at_template = {file, "post_processor TemplateProcessing"};
    PS_TRY(ps_json_check_keys(&at_template, component, "type single pair special_tokens"));
    PS_TRY(template_read(t, &at_template, component, "single", &t->post.single));
    return template_read(t, &at_template, component, "pair", &t->post.pair);
}

ps_status ps_json_read_post_processor(ps_tokenizer *t, const char *file, json_t *component)
{
    bool adds = false;
    return component == NULL || json_is_null(component) ? PS_OK : post_read(t, file, component, 0, &adds);
}

/* ---- decoders ---- */

ps_status ps_json_read_decoder(ps_tokenizer *t, const char *file, json_t *component)
{
    const ps_json_place at = {file, "decoder"};
    const char *type, *prefix;
    if (component == NULL || json_is_null(component)) return refuse(file, "a file without", "decoder");
    PS_TRY(ps_json_get_type(&at, component, &type));
    if (type_is(type, "ByteLevel") && !t->is_wordpiece) {
        t->decoder = PS_DECODE_BYTES;
        return ps_json_check_keys(&at, component, "type add_prefix_space trim_offsets use_regex");
    }
    if (!type_is(type, "WordPiece") || !t->is_wordpiece) return refuse(file, "decoder", type);
    t->decoder = PS_DECODE_WORDPIECE;
    t->decoder_cleanup = true;
    PS_TRY(ps_json_check_keys(&at, component, "type prefix cleanup"));
    PS_TRY(ps_json_get_string(&at, component, "prefix", &prefix));
    PS_TRY(ps_json_get_bool(&at, component, "cleanup", &t->decoder_cleanup));
    if (strlen(prefix) >= sizeof t->decoder_prefix)
        return PS_FAIL(PS_EFORMAT, "%s: decoder WordPiece: a prefix of %zu bytes, expected at most %zu", file,
                       strlen(prefix), sizeof t->decoder_prefix - 1);
    snprintf(t->decoder_prefix, sizeof t->decoder_prefix, "%s", prefix);
    return PS_OK;
}
