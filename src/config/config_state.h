/* config_state.h - inside a ps_config; used by the files of config/ only. */
#ifndef PS_CONFIG_CONFIG_STATE_H
#define PS_CONFIG_CONFIG_STATE_H

#include "config/option.h"

/* Where the user gave an option. */
typedef struct ps_config_origin {
    bool given;
    int line, column; /* of the value, from 1; 0 when it was given with ps_config_set */
} ps_config_origin;

struct ps_config {
    ps_options options;
    ps_config_origin origin[PS_OPTION_COUNT];
    char *text[PS_OPTION_COUNT]; /* owned copies of STRING values that were given, else NULL */
    char *name;                  /* of the file, for messages */
};

/* Take over a value that was read for option `id`; strings are copied. Options that were not given then get their
 * default, or the preset's. On failure config is as before. */
PS_NODISCARD ps_status ps_config_put(ps_config *config, ps_option_id id, ps_option_value value,
                                     ps_config_origin origin);

/* Read JSON text (n_bytes, then a NUL) into config; unspecified on failure. */
PS_NODISCARD ps_status ps_config_read_json(ps_config *config, const char *text, size_t n_bytes);

/* A key of DeepSpeed, PatrickStar or Hugging Face that has no counterpart here. */
typedef struct ps_unsupported {
    const char *key;
    enum { PS_ACCEPT_NEVER, PS_ACCEPT_FALSE, PS_ACCEPT_TRUE } accept; /* the value that asks for nothing we lack */
    const char *reason;                                               /* "not supported; use ..." */
} ps_unsupported;

/* The entry for key, or for a section that key is in; NULL when there is none. */
const ps_unsupported *ps_unsupported_find(const char *key);

/* The i-th entry; NULL past the last. */
const ps_unsupported *ps_unsupported_at(size_t i);

/* Whether this value of it changes nothing: false, true, or an object whose "enabled" is false. */
bool ps_unsupported_is_harmless(const ps_unsupported *entry, const json_t *json);

#endif
