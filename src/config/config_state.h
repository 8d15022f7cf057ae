/* config_state.h - the members of a ps_config; for the files of config/ only. */
#ifndef PS_CONFIG_CONFIG_STATE_H
#define PS_CONFIG_CONFIG_STATE_H

#include "config/config.h"
#include "config/label_list.h"
#include "config/option/option.h"

/* Where the user gave an option. */
typedef struct ps_config_origin {
    bool given;
    int line, column;             /* of the value, from 1; 0 when it was given with ps_config_set */
    bool replaces;                /* given before the file is read: the file's value of the option is ignored */
    const ps_option_alias *alias; /* the alias under which it was given; NULL: its own key */
} ps_config_origin;

/* The value of an option in the config.json of model.from_pretrained. */
typedef struct ps_config_adopted {
    bool is_set;
    ps_option_value value; /* never of a STRING option */
} ps_config_adopted;

/* Classes of a classifier in that file. Zeros: none. */
typedef struct ps_config_classes {
    ps_label_list list; /* id2label, else label2id, else LABEL_0, LABEL_1, ... */
    char *text;         /* the list as in data.labels, owned; NULL: no file was read */
    bool are_named;     /* some name is not LABEL_i */
} ps_config_classes;

/* The section lora in the adapter_config.json of lora.from_pretrained. */
typedef struct ps_config_adapter {
    bool is_set; /* false: no file was read */
    ps_option_value r, lora_alpha, lora_dropout, use_rslora;
    char *target_modules, *rank_pattern, *alpha_pattern, *modules_to_save; /* owned */
} ps_config_adapter;

#define PS_UNSUPPORTED_MAX 160

struct ps_config {
    ps_options options;
    ps_config_origin origin[PS_OPTION_COUNT];
    ps_config_adopted adopted[PS_OPTION_COUNT];
    ps_config_classes classes;
    ps_config_adapter adapter;
    char *text[PS_OPTION_COUNT]; /* owned copies of STRING values that were given, else NULL */
    char *name;                  /* of the file, for messages */
    bool knows_machine;          /* machine is set */
    ps_hardware machine;
    char *disk_folder;                /* NULL: the default */
    bool allows_speculation;          /* ps_config_allow_speculation */
    bool ignored[PS_UNSUPPORTED_MAX]; /* ignored keys of unsupported.def whose value differs from the one in effect */
};

/* Set every option that was not given to its default, or to the value of preset, type and config.json. */
void ps_config_resolve(ps_config *config);

/* Store a value of option `id`; strings are copied. Options that were not given then get their default, or the value of
 * preset, type and config.json. On failure config is unchanged. */
PS_NODISCARD ps_status ps_config_put(ps_config *config, ps_option_id id, ps_option_value value,
                                     ps_config_origin origin);

/* Set the options of the model that were not given from preset, type and config.json. */
void ps_config_resolve_model(ps_config *config);

/* Value of a default that an earlier version dumped and that differs from the present default; nothing uses the
 * value. */
void ps_config_forget_old_defaults(ps_config *config);

/* Drop the values of a config.json. */
void ps_config_forget_adopted(ps_config *config);

/* Read the config.json of model.from_pretrained, or drop its values when there is no such file or all options are
 * given; hf_config.c. */
PS_NODISCARD ps_status ps_config_adopt(ps_config *config);

/* The same from the text of a config.json; `name` is for messages. Options are set when the next value is stored. */
PS_NODISCARD ps_status ps_hf_config_read(ps_config *config, const char *text, int64_t n_bytes, const char *name);

/* Set the options of the section lora that were not given from adapter_config.json. */
void ps_config_resolve_adapters(ps_config *config);

/* Read the adapter_config.json of a folder; PS_EIO, PS_EFORMAT, PS_EINVAL with file and key. On failure *out is empty. */
PS_NODISCARD ps_status ps_adapter_config_load(const char *folder, ps_config_adapter *out);
/* The same from its text; `name` is for messages. */
PS_NODISCARD ps_status ps_adapter_config_read(const char *text, int64_t n_bytes, const char *name,
                                              ps_config_adapter *out);
void ps_adapter_config_forget(ps_config_adapter *a); /* an empty one is accepted */

/* Read that of lora.from_pretrained, unless all options of the section are given. */
PS_NODISCARD ps_status ps_config_adopt_adapter(ps_config *config);

/* Check the rules between options of the section lora. */
PS_NODISCARD ps_status ps_config_check_adapters(const ps_config *config);

/* Check the rules between options of the model. */
PS_NODISCARD ps_status ps_config_check_model(const ps_config *config);

/* PS_EINVAL, "file:line:column: message" when `id` was given in a file, else the message alone. */
__attribute__((format(printf, 3, 4))) ps_status ps_config_fail_for(const ps_config *config, ps_option_id id,
                                                                   const char *format, ...);

/* The key under which the option was given, for messages; its own key where it was not given. */
const char *ps_config_key(const ps_config *config, ps_option_id id);

/* Whether the option has the default of its table entry. */
bool ps_config_has_default(const ps_config *config, ps_option_id id);

/* Read JSON text (n_bytes, then a NUL) into config; unspecified on failure. */
PS_NODISCARD ps_status ps_config_read_json(ps_config *config, const char *text, size_t n_bytes);

/* A key of unsupported.def. */
typedef struct ps_unsupported {
    const char *key;
    enum {
        PS_ACCEPT_NEVER,
        PS_ACCEPT_FALSE,
        PS_ACCEPT_TRUE,
        PS_ACCEPT_EITHER,
        PS_ACCEPT_NOTHING, /* null, and an empty array or object */
        PS_ACCEPT_NONE,    /* "none" */
        PS_ACCEPT_IGNORED  /* any value of the type of `value` */
    } accept;              /* which values are accepted */
    const char *value;     /* of an ignored key, JSON: the value in effect, whatever is given */
    const char *reason;    /* "not supported: ..."; "without effect, as ..." */
} ps_unsupported;

/* The entry for key, or for a section that key is in; NULL when there is none. */
const ps_unsupported *ps_unsupported_find(const char *key);

/* The i-th entry; NULL past the last. */
const ps_unsupported *ps_unsupported_at(size_t i);

/* Whether this value changes nothing: false, true, or an object whose "enabled" is false. */
bool ps_unsupported_is_harmless(const ps_unsupported *entry, const json_t *json);

/* Whether the key is accepted with this value and has no effect; noted in config for ps_config_describe_ignored. */
bool ps_config_ignores(ps_config *config, const ps_unsupported *entry, const json_t *json);

#endif
