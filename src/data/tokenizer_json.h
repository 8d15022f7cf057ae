/* tokenizer_json.h - reading the parts of a tokenizer.json; tokenizer_json.c has the model, tokenizer_json_text.c what
 * is done to the text before and after it.
 *
 * Each component is an object with a "type". A type, a field or a value that is not known here is refused by name. */
#ifndef PS_DATA_TOKENIZER_JSON_H
#define PS_DATA_TOKENIZER_JSON_H

#include <jansson.h>

#include "data/tokenizer_impl.h"

/* Where in which file: messages begin with "file: part". */
typedef struct ps_json_place {
    const char *file, *part;
} ps_json_place;

/* PS_EFORMAT when `object` is no object, or has a key which is not among `keys` (separated by spaces). */
PS_NODISCARD ps_status ps_json_check_keys(const ps_json_place *at, json_t *object, const char *keys);

/* A boolean field; absent or null: *value is left alone. */
PS_NODISCARD ps_status ps_json_get_bool(const ps_json_place *at, json_t *object, const char *key, bool *value);

/* A string field that must be there; valid as long as the object. */
PS_NODISCARD ps_status ps_json_get_string(const ps_json_place *at, json_t *object, const char *key, const char **value);

/* The "type" of a component. */
PS_NODISCARD ps_status ps_json_get_type(const ps_json_place *at, json_t *component, const char **type);

/* The components of tokenizer.json into the parts of t; NULL and null are nothing at all. The vocabulary is there when
 * the post-processor and the decoder are read. */
PS_NODISCARD ps_status ps_json_read_normalizer(ps_tokenizer *t, const char *file, json_t *component);
PS_NODISCARD ps_status ps_json_read_pretokenizer(ps_tokenizer *t, const char *file, json_t *component,
                                                 bool *is_byte_level);
PS_NODISCARD ps_status ps_json_read_post_processor(ps_tokenizer *t, const char *file, json_t *component);
PS_NODISCARD ps_status ps_json_read_decoder(ps_tokenizer *t, const char *file, json_t *component);

#endif
