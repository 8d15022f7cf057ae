/* tokenizer_json_text.c - reads the components before the model: normalizers and pre-tokenizers. */
#include <limits.h>
#include <stdio.h>

#include "data/tokenizer_json.h"

/* \w of Rust's regular expressions, which Whitespace uses; Oniguruma's differs. */
#define RUST_WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}"

/* ---- normalizers ---- */

/* `text` is kept; NULL: none. */
static ps_status normalizer_add_with(ps_normalizer *z, const char *file, ps_normalizer_kind kind, const char *text,
                                     ps_normalizer_step **out)
{
    *out = ps_normalizer_add(z, kind);
    if (*out == NULL) return PS_FAIL(PS_EFORMAT, "%s: more than %d normalizers", file, PS_NORMALIZER_STEPS_MAX);
    return text != NULL ? ps_mem_strdup(text, &(*out)->text) : PS_OK;
}

static ps_status normalizer_add(ps_normalizer *z, const char *file, ps_normalizer_kind kind)
{
    ps_normalizer_step *step;
    return normalizer_add_with(z, file, kind, NULL, &step);
}

static ps_status normalizer_read_bert(ps_normalizer *z, const ps_json_where *at, json_t *component)
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

static ps_status normalizer_read_prepend(ps_normalizer *z, const char *file, json_t *component)
{
    const ps_json_where at = {file, "normalizer Prepend"};
    const char *text;
    ps_normalizer_step *step;
    PS_TRY(ps_json_check_keys(&at, component, "type prepend"));
    PS_TRY(ps_json_get_string(&at, component, "prepend", &text));
    return normalizer_add_with(z, file, PS_NORMALIZE_PREPEND, text, &step);
}

static ps_status normalizer_read_replace(ps_normalizer *z, const char *file, json_t *component)
{
    const ps_json_where at = {file, "normalizer Replace"};
    const char *content, *regex, *literal;
    ps_normalizer_step *step;
    PS_TRY(ps_json_check_keys(&at, component, "type pattern content"));
    PS_TRY(ps_json_get_string(&at, component, "content", &content));
    PS_TRY(ps_json_get_pattern(&at, component, &regex, &literal));
    PS_TRY(normalizer_add_with(z, file, PS_NORMALIZE_REPLACE, content, &step));
    return literal != NULL ? ps_mem_strdup(literal, &step->literal) : ps_regex_create(regex, false, file, &step->regex);
}

static ps_status normalizer_read_strip(ps_normalizer *z, const char *file, json_t *component)
{
    const ps_json_where at = {file, "normalizer Strip"};
    bool left = true, right = true;
    PS_TRY(ps_json_check_keys(&at, component, "type strip_left strip_right"));
    PS_TRY(ps_json_get_bool(&at, component, "strip_left", &left));
    PS_TRY(ps_json_get_bool(&at, component, "strip_right", &right));
    if (left) PS_TRY(normalizer_add(z, file, PS_NORMALIZE_STRIP_LEFT));
    return right ? normalizer_add(z, file, PS_NORMALIZE_STRIP_RIGHT) : PS_OK;
}

static ps_status normalizer_read(ps_normalizer *z, const char *file, json_t *component, int depth)
{
    static const struct {
        const char *type;
        ps_normalizer_kind kind;
    } plain[] = {{"NFC", PS_NORMALIZE_NFC},
                 {"NFD", PS_NORMALIZE_NFD},
                 {"NFKC", PS_NORMALIZE_NFKC},
                 {"NFKD", PS_NORMALIZE_NFKD},
                 {"Lowercase", PS_NORMALIZE_LOWERCASE},
                 {"StripAccents", PS_NORMALIZE_STRIP_MARKS}};
    const ps_json_where at = {file, "normalizer"};
    const char *type;
    PS_TRY(ps_json_get_type(&at, component, &type));
    if (ps_json_type_is(type, "BertNormalizer")) return normalizer_read_bert(z, &at, component);
    if (ps_json_type_is(type, "Prepend")) return normalizer_read_prepend(z, file, component);
    if (ps_json_type_is(type, "Replace")) return normalizer_read_replace(z, file, component);
    if (ps_json_type_is(type, "Strip")) return normalizer_read_strip(z, file, component);
    if (ps_json_type_is(type, "Sequence")) {
        json_t *items, *item;
        size_t i;
        PS_TRY(ps_json_get_sequence(&at, component, "normalizers", depth, &items));
        json_array_foreach(items, i, item) PS_TRY(normalizer_read(z, file, item, depth + 1));
        return PS_OK;
    }
    for (size_t i = 0; i < PS_ARRAY_LEN(plain); i++)
        if (ps_json_type_is(type, plain[i].type)) {
            PS_TRY(ps_json_check_keys(&at, component, "type"));
            return normalizer_add(z, file, plain[i].kind);
        }
    return ps_json_refuse(file, "normalizer", type);
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

static ps_status split_read_behavior(const ps_json_where *at, json_t *component, ps_split_behavior *behavior)
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
    const ps_json_where at = {file, "pre_tokenizer Split"};
    const char *regex, *literal;
    ps_pretokenizer_step *step = NULL;
    PS_TRY(ps_json_check_keys(&at, component, "type pattern behavior invert"));
    PS_TRY(ps_json_get_pattern(&at, component, &regex, &literal));
    PS_TRY(pretokenizer_add(t, file, PS_PRETOKENIZE_REGEX, &step));
    PS_TRY(split_read_behavior(&at, component, &step->behavior));
    PS_TRY(ps_json_get_bool(&at, component, "invert", &step->invert));
    return ps_regex_create(literal != NULL ? literal : regex, literal != NULL, file, &step->regex);
}

static ps_status byte_level_read(ps_tokenizer *t, const char *file, json_t *component)
{
    const ps_json_where at = {file, "pre_tokenizer ByteLevel"};
    bool prefix_space = true, use_regex = true;
    ps_pretokenizer_step *step = NULL;
    PS_TRY(ps_json_check_keys(&at, component, "type add_prefix_space trim_offsets use_regex"));
    PS_TRY(ps_json_get_bool(&at, component, "add_prefix_space", &prefix_space));
    PS_TRY(ps_json_get_bool(&at, component, "use_regex", &use_regex));
    if (prefix_space) PS_TRY(pretokenizer_add(t, file, PS_PRETOKENIZE_PREFIX_SPACE, &step));
    return use_regex ? ps_tokenizer_add_gpt2_split(t, false) : PS_OK;
}

static ps_status metaspace_read(ps_tokenizer *t, const char *file, json_t *component)
{
    const ps_json_where at = {file, "pre_tokenizer Metaspace"};
    ps_pretokenizer_step *step = NULL;
    for (int i = 0; i < t->pretokenizer.n_steps; i++)
        if (t->pretokenizer.steps[i].kind == PS_PRETOKENIZE_METASPACE)
            return PS_FAIL(PS_EFORMAT, "%s: a second pre_tokenizer Metaspace is not supported", file);
    PS_TRY(pretokenizer_add(t, file, PS_PRETOKENIZE_METASPACE, &step));
    return ps_json_get_metaspace(&at, component, step->mark, &step->prefix, &step->splits);
}

static ps_status digits_read(ps_tokenizer *t, const char *file, json_t *component)
{
    const ps_json_where at = {file, "pre_tokenizer Digits"};
    bool individual = false;
    ps_pretokenizer_step *step = NULL;
    PS_TRY(ps_json_check_keys(&at, component, "type individual_digits"));
    PS_TRY(ps_json_get_bool(&at, component, "individual_digits", &individual));
    PS_TRY(pretokenizer_add(t, file, PS_PRETOKENIZE_DIGITS, &step));
    step->behavior = individual ? PS_SPLIT_ISOLATED : PS_SPLIT_CONTIGUOUS;
    return PS_OK;
}

static ps_status pretokenizer_read(ps_tokenizer *t, const char *file, json_t *component, int depth)
{
    const ps_json_where at = {file, "pre_tokenizer"};
    const char *type;
    ps_pretokenizer_step *step = NULL;
    PS_TRY(ps_json_get_type(&at, component, &type));
    if (ps_json_type_is(type, "Sequence")) {
        json_t *items, *item;
        size_t i;
        PS_TRY(ps_json_get_sequence(&at, component, "pretokenizers", depth, &items));
        json_array_foreach(items, i, item) PS_TRY(pretokenizer_read(t, file, item, depth + 1));
        return PS_OK;
    }
    if (t->is_byte_level) /* pieces there are characters of the byte alphabet, here they are not */
        return PS_FAIL(PS_EFORMAT, "%s: pre_tokenizer %.64s after ByteLevel is not supported", file, type);
    t->is_byte_level = ps_json_type_is(type, "ByteLevel");
    if (t->is_byte_level) return byte_level_read(t, file, component);
    if (ps_json_type_is(type, "Split")) return split_read(t, file, component);
    if (ps_json_type_is(type, "Metaspace")) return metaspace_read(t, file, component);
    if (ps_json_type_is(type, "Digits")) return digits_read(t, file, component);
    if (ps_json_type_is(type, "Punctuation")) {
        PS_TRY(ps_json_check_keys(&at, component, "type behavior"));
        PS_TRY(pretokenizer_add(t, file, PS_PRETOKENIZE_PUNCTUATION, &step));
        return split_read_behavior(&at, component, &step->behavior);
    }
    const bool is_bert = ps_json_type_is(type, "BertPreTokenizer"), is_words = ps_json_type_is(type, "Whitespace");
    if (!is_bert && !is_words && !ps_json_type_is(type, "WhitespaceSplit"))
        return ps_json_refuse(file, "pre_tokenizer", type);
    PS_TRY(ps_json_check_keys(&at, component, "type"));
    if (is_bert) return pretokenizer_add(t, file, PS_PRETOKENIZE_BERT, &step);
    PS_TRY(pretokenizer_add(t, file, PS_PRETOKENIZE_WHITE_SPACE, &step));
    if (!is_words) return PS_OK;
    PS_TRY(pretokenizer_add(t, file, PS_PRETOKENIZE_REGEX, &step));
    return ps_regex_create("[" RUST_WORD "]+|[^" RUST_WORD "\\s]+", false, file, &step->regex);
}

ps_status ps_json_read_pretokenizer(ps_tokenizer *t, const char *file, json_t *component)
{
    t->is_byte_level = false;
    return component == NULL || json_is_null(component) ? PS_OK : pretokenizer_read(t, file, component, 0);
}
