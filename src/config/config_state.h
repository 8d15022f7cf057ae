/* config_state.h - inside a ps_config; used by the files of config/ only. */
#ifndef PS_CONFIG_CONFIG_STATE_H
#define PS_CONFIG_CONFIG_STATE_H

#include "config/config.h"
#include "config/label_list.h"
#include "option/option.h"

/* Where the user gave an option. */
typedef struct ps_config_origin {
    bool given;
    int line, column;             /* of the value, from 1; 0 when it was given with ps_config_set */
    bool replaces;                /* given before the file is read: what the file says of the option is not looked at */
    const ps_option_alias *alias; /* the name that it was given under; NULL: its own */
} ps_config_origin;

/* What the config.json of model.from_pretrained says of an option. */
typedef struct ps_config_adopted {
    bool is_set;
    ps_option_value value; /* never of a STRING option */
} ps_config_adopted;

/* What that file says of a classifier beside options. Zero: nothing. */
typedef struct ps_config_classes {
    ps_label_list list; /* id2label, else label2id, else LABEL_0, LABEL_1, ... */
    char *text;         /* the list as in data.labels, owned; NULL: no file was read */
    bool are_named;     /* some name is another than LABEL_i */
} ps_config_classes;

struct ps_config {
    ps_options options;
    ps_config_origin origin[PS_OPTION_COUNT];
    ps_config_adopted adopted[PS_OPTION_COUNT];
    ps_config_classes classes;
    char *text[PS_OPTION_COUNT]; /* owned copies of STRING values that were given, else NULL */
    char *name;                  /* of the file, for messages */
    bool knows_machine;          /* which is: */
    ps_hardware machine;
    char *cache_folder; /* NULL: none is known */
    char *disk_folder;  /* NULL: the usual one */
};

/* Give every option that was not given its value: its default, or what preset, type and config.json say. */
void ps_config_settle(ps_config *config);

/* Take over a value that was read for option `id`; strings are copied. Options that were not given then get their
 * default, or what preset, type and config.json say. On failure config is as before. */
PS_NODISCARD ps_status ps_config_put(ps_config *config, ps_option_id id, ps_option_value value,
                                     ps_config_origin origin);

/* Give the options of the model that were not given what preset, type and config.json say. */
void ps_config_settle_model(ps_config *config);

/* What an earlier version dumped for an option that was not given, where the default is another now; nothing uses the
 * value. */
void ps_config_forget_old_defaults(ps_config *config);

/* Forget what a config.json said. */
void ps_config_forget_adopted(ps_config *config);

/* Read the config.json of model.from_pretrained, or forget it when there is none or nothing is left open;
 * hf_config.c. */
PS_NODISCARD ps_status ps_config_adopt(ps_config *config);

/* The same from the text of a config.json; `name` is for messages. Options get their values when the next one is
 * put. */
PS_NODISCARD ps_status ps_hf_config_read(ps_config *config, const char *text, int64_t n_bytes, const char *name);

/* The rules between options of the model. */
PS_NODISCARD ps_status ps_config_check_model(const ps_config *config);

/* PS_EINVAL, "file:line:column: message" when `id` was given in a file, else the message alone. */
__attribute__((format(printf, 3, 4))) ps_status ps_config_fail_for(const ps_config *config, ps_option_id id,
                                                                   const char *format, ...);

/* The key that the option was given under, for messages; its own where it was not given. */
const char *ps_config_key(const ps_config *config, ps_option_id id);

/* Does the optimizer have this option? Of others than those of optimizer.params it is not asked. */
bool ps_config_optimizer_uses(ps_config_optimizer type, ps_option_id id);

/* Whether the option has the value of its table entry. */
bool ps_config_has_default(const ps_config *config, ps_option_id id);

/* Read JSON text (n_bytes, then a NUL) into config; unspecified on failure. */
PS_NODISCARD ps_status ps_config_read_json(ps_config *config, const char *text, size_t n_bytes);

/* A key of DeepSpeed, PatrickStar or Hugging Face that has no counterpart here. */
typedef struct ps_unsupported {
    const char *key;
    enum {
        PS_ACCEPT_NEVER,
        PS_ACCEPT_FALSE,
        PS_ACCEPT_TRUE,
        PS_ACCEPT_EITHER
    } accept;           /* the value that asks for nothing we lack */
    const char *reason; /* "not supported; use ..." */
} ps_unsupported;

/* The entry for key, or for a section that key is in; NULL when there is none. */
const ps_unsupported *ps_unsupported_find(const char *key);

/* The i-th entry; NULL past the last. */
const ps_unsupported *ps_unsupported_at(size_t i);

/* Whether this value of it changes nothing: false, true, or an object whose "enabled" is false. */
bool ps_unsupported_is_harmless(const ps_unsupported *entry, const json_t *json);

#endif
