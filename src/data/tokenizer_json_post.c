/* tokenizer_json_post.c - reads the components after the model: post-processors and decoders. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "data/tokenizer_json.h"

/* ---- post-processors ---- */

/* ["[SEP]", 102] */
static ps_status token_pair_read(const ps_tokenizer *t, const ps_json_where *at, json_t *component, const char *key,
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
    const ps_json_where at = {file, is_roberta ? "post_processor RobertaProcessing" : "post_processor BertProcessing"};
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

/* The ids of a name in the table of a TemplateProcessing. */
static ps_status template_add_special(ps_tokenizer *t, const ps_json_where *at, json_t *table, const char *name,
                                      int32_t type_id, ps_template *form)
{
    const json_t *ids = json_object_get(json_object_get(table, name), "ids"), *id;
    size_t i;
    if (json_array_size(ids) == 0)
        return PS_FAIL(PS_EFORMAT, "%s: %s: special_tokens has no ids for \"%.64s\"", at->file, at->part, name);
    json_array_foreach(ids, i, id)
    {
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= t->vocab.n_ids)
            return PS_FAIL(PS_EFORMAT, "%s: %s: \"%.64s\" has no id below %d", at->file, at->part, name,
                           t->vocab.n_ids);
        PS_TRY(ps_template_add(form, (int32_t)json_integer_value(id), type_id, at->file));
    }
    return PS_OK;
}

static ps_status template_read(ps_tokenizer *t, const ps_json_where *at, json_t *component, const char *key,
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
        if (!ps_json_type_is(name, "A") && !ps_json_type_is(name, "B"))
            return PS_FAIL(PS_EFORMAT, "%s: %s: sequence \"%.64s\", expected A or B", at->file, at->part, name);
        n_sequences[name[0] == 'B']++;
        PS_TRY(ps_template_add(form, name[0] == 'A' ? PS_PART_A : PS_PART_B, (int32_t)type, at->file));
    }
    if (n_sequences[0] != 1 || n_sequences[1] != (form == &t->post.pair))
        return PS_FAIL(PS_EFORMAT, "%s: %s: \"%s\" must have each sequence once", at->file, at->part, key);
    return PS_OK;
}

/* adds: a component has added tokens to the templates already; two such components are refused. */
static ps_status post_read(ps_tokenizer *t, const char *file, json_t *component, int depth, bool *adds)
{
    const ps_json_where at = {file, "post_processor"};
    const char *type;
    PS_TRY(ps_json_get_type(&at, component, &type));
    if (ps_json_type_is(type, "Sequence")) {
        json_t *items, *item;
        size_t i;
        PS_TRY(ps_json_get_sequence(&at, component, "processors", depth, &items));
        json_array_foreach(items, i, item) PS_TRY(post_read(t, file, item, depth + 1, adds));
        return PS_OK;
    }
    if (ps_json_type_is(type, "ByteLevel")) /* changes offsets only */
        return ps_json_check_keys(&at, component, "type add_prefix_space trim_offsets use_regex");
    if (*adds) return PS_FAIL(PS_EFORMAT, "%s: a second post_processor, %.64s, is not supported", file, type);
    *adds = true;
    if (ps_json_type_is(type, "BertProcessing")) return post_read_bert(t, file, component, false);
    if (ps_json_type_is(type, "RobertaProcessing")) return post_read_bert(t, file, component, true);
    if (!ps_json_type_is(type, "TemplateProcessing")) return ps_json_refuse(file, "post_processor", type);
    const ps_json_where at_template = {file, "post_processor TemplateProcessing"};
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

static ps_status decoder_read_wordpiece(ps_tokenizer *t, const char *file, json_t *component)
{
    const ps_json_where at = {file, "decoder WordPiece"};
    const char *prefix;
    t->decoder = (ps_decoder){.kind = PS_DECODE_WORDPIECE, .cleanup = true};
    PS_TRY(ps_json_check_keys(&at, component, "type prefix cleanup"));
    PS_TRY(ps_json_get_string(&at, component, "prefix", &prefix));
    PS_TRY(ps_json_get_bool(&at, component, "cleanup", &t->decoder.cleanup));
    if (strlen(prefix) >= sizeof t->decoder.prefix)
        return PS_FAIL(PS_EFORMAT, "%s: decoder WordPiece: a prefix of %zu bytes, expected at most %zu", file,
                       strlen(prefix), sizeof t->decoder.prefix - 1);
    snprintf(t->decoder.prefix, sizeof t->decoder.prefix, "%s", prefix);
    return PS_OK;
}

/* The stages of a decoder of parts, in their required order. */
typedef enum decoder_stage { STAGE_REPLACE, STAGE_BYTES, STAGE_FUSE, STAGE_STRIP } decoder_stage;

static ps_status replacement_set(const ps_json_where *at, ps_decoder *d, const char *from, const char *to,
                                 bool drops_first)
{
    ps_replacement *r = &d->replacements[d->n_replacements];
    if (d->n_replacements == PS_DECODER_REPLACEMENTS_MAX)
        return PS_FAIL(PS_EFORMAT, "%s: %s: more than %d of them", at->file, at->part, PS_DECODER_REPLACEMENTS_MAX);
    if (strlen(from) >= sizeof r->from || strlen(to) >= sizeof r->to)
        return PS_FAIL(PS_EFORMAT, "%s: %s: a text of %zu bytes, expected at most %zu", at->file, at->part,
                       strlen(from) > strlen(to) ? strlen(from) : strlen(to), sizeof r->from - 1);
    snprintf(r->from, sizeof r->from, "%s", from);
    snprintf(r->to, sizeof r->to, "%s", to);
    r->drops_first = drops_first;
    d->n_replacements++;
    return PS_OK;
}

static ps_status replacement_read(ps_decoder *d, const char *file, json_t *component)
{
    const ps_json_where at = {file, "decoder Replace"};
    const char *content, *regex, *literal;
    PS_TRY(ps_json_check_keys(&at, component, "type pattern content"));
    PS_TRY(ps_json_get_string(&at, component, "content", &content));
    PS_TRY(ps_json_get_pattern(&at, component, &regex, &literal));
    if (literal == NULL) return PS_FAIL(PS_EFORMAT, "%s: decoder Replace: a \"Regex\" is not supported", file);
    return replacement_set(&at, d, literal, content, false);
}

static ps_status decoder_metaspace_read(ps_decoder *d, const char *file, json_t *component)
{
    const ps_json_where at = {file, "decoder Metaspace"};
    char mark[8];
    ps_metaspace_prefix prefix = PS_METASPACE_ALWAYS;
    bool splits;
    PS_TRY(ps_json_get_metaspace(&at, component, mark, &prefix, &splits));
    return replacement_set(&at, d, mark, " ", prefix != PS_METASPACE_NEVER);
}

static ps_status strip_read(ps_decoder *d, const char *file, json_t *component, bool is_fused)
{
    const ps_json_where at = {file, "decoder Strip"};
    const json_t *start = json_object_get(component, "start"), *stop = json_object_get(component, "stop");
    PS_TRY(ps_json_check_keys(&at, component, "type content start stop"));
    PS_TRY(ps_json_get_character(&at, component, "content", d->strip));
    if (!json_is_integer(start) || json_integer_value(start) < 0 || json_integer_value(start) > INT_MAX ||
        !json_is_integer(stop) || json_integer_value(stop) != 0)
        return PS_FAIL(PS_EFORMAT, "%s: decoder Strip: expected \"start\": a whole number, \"stop\": 0", file);
    d->n_strip = (int)json_integer_value(start);
    return is_fused ? PS_OK : PS_FAIL(PS_EFORMAT, "%s: decoder Strip is supported only after Fuse", file);
}

/* Joins the texts of tokens. Each stage processes the output of the previous one, so the order matters. */
static ps_status decoder_read_part(ps_decoder *d, const char *file, json_t *component, int depth, decoder_stage *stage)
{
    static const char *const types[] = {"Replace", "Metaspace", "ByteFallback", "Fuse", "Strip"};
    static const decoder_stage stages[] = {STAGE_REPLACE, STAGE_REPLACE, STAGE_BYTES, STAGE_FUSE, STAGE_STRIP};
    const ps_json_where at = {file, "decoder"};
    const char *type;
    size_t i = 0;
    PS_TRY(ps_json_get_type(&at, component, &type));
    if (ps_json_type_is(type, "Sequence")) {
        json_t *items, *item;
        PS_TRY(ps_json_get_sequence(&at, component, "decoders", depth, &items));
        json_array_foreach(items, i, item) PS_TRY(decoder_read_part(d, file, item, depth + 1, stage));
        return PS_OK;
    }
    while (i < PS_ARRAY_LEN(types) && !ps_json_type_is(type, types[i])) i++;
    if (i == PS_ARRAY_LEN(types)) return ps_json_refuse(file, "decoder", type);
    const decoder_stage last = *stage;
    *stage = stages[i];
    if (*stage < last || (*stage == last && last == STAGE_STRIP))
        return PS_FAIL(PS_EFORMAT, "%s: decoder %s after %s is not supported", file, type,
                       (const char *[]){"Replace", "ByteFallback", "Fuse", "Strip"}[last]);
    switch (i) {
    case 0: return replacement_read(d, file, component);
    case 1: return decoder_metaspace_read(d, file, component);
    case 4: return strip_read(d, file, component, last == STAGE_FUSE);
    default: d->has_bytes |= *stage == STAGE_BYTES; return ps_json_check_keys(&at, component, "type");
    }
}

ps_status ps_json_read_decoder(ps_tokenizer *t, const char *file, json_t *component)
{
    const ps_json_where at = {file, "decoder"};
    const char *type;
    decoder_stage stage = STAGE_REPLACE;
    if (component == NULL || json_is_null(component)) return ps_json_refuse(file, "a file without", "decoder");
    PS_TRY(ps_json_get_type(&at, component, &type));
    const bool is_bytes = ps_json_type_is(type, "ByteLevel"), is_wordpiece = ps_json_type_is(type, "WordPiece");
    if (is_bytes != t->is_byte_level || is_wordpiece != t->is_wordpiece) return ps_json_refuse(file, "decoder", type);
    if (is_wordpiece) return decoder_read_wordpiece(t, file, component);
    t->decoder.kind = is_bytes ? PS_DECODE_BYTES : PS_DECODE_PARTS;
    return is_bytes ? ps_json_check_keys(&at, component, "type add_prefix_space trim_offsets use_regex")
                    : decoder_read_part(&t->decoder, file, component, 0, &stage);
}
