/* family.h - a family of models: one ps_family, in one file of this folder, has all properties of it.
 *
 *     PS_CONFIG_MODEL_MAP of config/option/options.h   a line: number, model.type, name of the object
 *     model/<family>.c                          the object
 *
 * Users: config/ which options it uses, their defaults, its config.json
 *            weights/ names of tensors: the base's prefix, heads, tied tensors, buffers ps_model_from_config the model
 *            itself
 *
 * Lists end with an entry of zeros; NULL is an empty list. Families share properties through a common ps_traits. */
#ifndef PS_MODEL_FAMILY_H
#define PS_MODEL_FAMILY_H

#include "base/status.h"
#include "config/option/option.h"

/* A key of config.json and its option. */
typedef struct ps_family_key {
    const char *key;
    ps_option_id id;
    bool has_null; /* an option that is derived from others is written as null; else as its derived value */
} ps_family_key;

/* A key of config.json that must be absent or have this value, given as JSON. */
typedef struct ps_family_fixed {
    const char *key, *value;
} ps_family_fixed;

/* A default that differs from that of options.def, which is gpt2's. */
typedef struct ps_family_default {
    ps_option_id id;
    ps_option_value value;
} ps_family_default;

/* A tensor that a file may lack, as it is tied to another one; both names without the base's prefix. They have a row or
 * an element for each token of the vocabulary. */
typedef struct ps_family_tie {
    const char *name, *to;
    /* A tensor that exists only where nothing is tied. The class of transformers 5 then computes with `name` and
     * ignores `to`; earlier versions always tie the two. NULL: no such case. */
    const char *untied_with;
} ps_family_tie;

typedef struct ps_traits {
    const struct ps_traits *more;      /* inherited traits; NULL: none */
    const ps_family_default *defaults; /* override those of more */
    const ps_option_id *uses;          /* options that only some families have */
    const ps_family_key *keys;
    const ps_family_fixed *fixed;
    const ps_family_tie *ties;
    const char *const *heads;   /* prefixes of names of heads' tensors, with the base's prefix where a name has it */
    const char *const *buffers; /* suffixes of names of buffers: "h.#.attn.bias", '#' for any number */
    /* Parts of parameter names in the order of the class's model.parameters(), where that differs from the order of
     * description: for the parameters of a block, or for those after the blocks. */
    const char *const *parameter_order;
} ps_traits;

/* Which keys of config.json enable sliding-window attention. */
typedef enum ps_family_window {
    PS_WINDOW_NEVER,
    PS_WINDOW_UNKNOWN_TO_CLASS, /* read as PS_WINDOW_SWITCHED; not written, as the class lacks the keys */
    PS_WINDOW_NUMBER,           /* sliding_window, where it is a number */
    PS_WINDOW_SWITCHED          /* use_sliding_window or layer_types, from max_window_layers on */
} ps_family_window;

typedef struct ps_family {
    const char *class_name;                          /* "Llama": prefix of its class names */
    const char *class_ends[PS_CONFIG_HEAD_NONE + 1]; /* their suffix for each head: "ForCausalLM"; NULL: there is no
                                                        such head */
    /* base_model_prefix of transformers, at most 15 bytes: "model" of "model.norm.weight". Names have no prefix with
     * the head none. */
    const char *base;
    const char *base_of_questions; /* that of its class for question answering, where it differs; else NULL */
    bool has_conv1d;               /* its layers have weights [n_in, n_out] */
    bool is_gated;                 /* its activation is a silu gate; else relu or a gelu */
    ps_family_window window;
    ps_traits traits;

    /* Describe the model on the builder, as a ps_model_func; o has this model.type. */
    ps_status (*build)(ps_builder *b, const ps_options *o);
} ps_family;

int ps_family_count(void);
const ps_family *ps_family_at(int i);               /* by number, a ps_config_model; NULL past the last */
const ps_family *ps_family_of(const ps_options *o); /* of model.type */
/* The family with this model.type, and its number in *type. NULL: there is none, and *type is unchanged. */
const ps_family *ps_family_find(const char *name, ps_config_model *type);

/* base_model_prefix of the class with this head. */
const char *ps_family_base(const ps_family *f, ps_config_head head);

/* Whether the family uses the option; true for options that no family lists. */
bool ps_family_uses(const ps_family *f, ps_option_id id);

/* Shorthands for lists. */
#define PS_KEY(key, field)                                                                                             \
    {                                                                                                                  \
        key, PS_OPTION_model_##field, false                                                                            \
    }
#define PS_KEY_OR_NULL(key, field)                                                                                     \
    {                                                                                                                  \
        key, PS_OPTION_model_##field, true                                                                             \
    }
#define PS_DEFAULT_INT(field, value)                                                                                   \
    {                                                                                                                  \
        PS_OPTION_model_##field,                                                                                       \
        {                                                                                                              \
            .i = value                                                                                                 \
        }                                                                                                              \
    }
#define PS_DEFAULT_DOUBLE(field, value)                                                                                \
    {                                                                                                                  \
        PS_OPTION_model_##field,                                                                                       \
        {                                                                                                              \
            .d = { value }                                                                                             \
        }                                                                                                              \
    }
#define PS_DEFAULT_BOOL(field, value)                                                                                  \
    {                                                                                                                  \
        PS_OPTION_model_##field,                                                                                       \
        {                                                                                                              \
            .b = value                                                                                                 \
        }                                                                                                              \
    }

#endif
