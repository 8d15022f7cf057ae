/* tokenizer_json.h - reads the parts of a tokenizer.json. tokenizer_json.c reads the model, tokenizer_json_text.c
 * normalizers and pre-tokenizers, tokenizer_json_post.c post-processors and decoders, tokenizer_json_field.c single
 * fields.
 *
 * Each component is an object with a "type". An unknown type, field or value is refused by name. */
#ifndef PS_DATA_TOKENIZER_JSON_H
#define PS_DATA_TOKENIZER_JSON_H

#include <jansson.h>

#include "data/tokenizer_impl.h"

/* The file and part that are read, for messages, which begin with "file: part". */
typedef struct ps_json_where {
    const char *file, *part;
} ps_json_where;

/* PS_EFORMAT when `object` is not an object, or has a key that is not in `keys` (separated by spaces). */
PS_NODISCARD ps_status ps_json_check_keys(const ps_json_where *at, json_t *object, const char *keys);

/* A boolean field; when it is absent or null, *value is unchanged. */
PS_NODISCARD ps_status ps_json_get_bool(const ps_json_where *at, json_t *object, const char *key, bool *value);

/* A required string field; valid as long as the object. */
PS_NODISCARD ps_status ps_json_get_string(const ps_json_where *at, json_t *object, const char *key, const char **value);

/* The "type" of a component. */
PS_NODISCARD ps_status ps_json_get_type(const ps_json_where *at, json_t *component, const char **type);

/* A string field of exactly one character, copied to `to` with a zero byte. */
PS_NODISCARD ps_status ps_json_get_character(const ps_json_where *at, json_t *object, const char *key, char to[8]);

/* The "pattern" of a component: one of the two, the other NULL. A literal is not empty. */
PS_NODISCARD ps_status ps_json_get_pattern(const ps_json_where *at, json_t *component, const char **regex,
                                           const char **literal);

/* A Metaspace, as pre_tokenizer or decoder. */
PS_NODISCARD ps_status ps_json_get_metaspace(const ps_json_where *at, json_t *component, char mark[8],
                                             ps_metaspace_prefix *prefix, bool *splits);

/* The array of a component of type Sequence at nesting depth `depth`; too deep is PS_EFORMAT. */
PS_NODISCARD ps_status ps_json_get_sequence(const ps_json_where *at, json_t *component, const char *key, int depth,
                                            json_t **items);

/* PS_EFORMAT: this type is not supported. */
PS_NODISCARD ps_status ps_json_refuse(const char *file, const char *what, const char *type);

static inline bool ps_json_type_is(const char *type, const char *name)
{
    return strcmp(type, name) == 0;
}

/* Read components of tokenizer.json into the parts of t; NULL and null mean no component. The vocabulary must be read
 * before the post-processor and the decoder. */
PS_NODISCARD ps_status ps_json_read_normalizer(ps_tokenizer *t, const char *file, json_t *component);
PS_NODISCARD ps_status ps_json_read_pretokenizer(ps_tokenizer *t, const char *file, json_t *component);
PS_NODISCARD ps_status ps_json_read_post_processor(ps_tokenizer *t, const char *file, json_t *component);
PS_NODISCARD ps_status ps_json_read_decoder(ps_tokenizer *t, const char *file, json_t *component);

#endif
