/* family.h - a family of models: all that is known of it, in one ps_family in a file of its own in this folder.
 *
 *     PS_CONFIG_MODEL_MAP of option/options.h   a line: number, model.type, name of the object
 *     model/<family>.c                          the object
 *
 * Who asks:  config/   which options it uses, what it makes of those not given, its config.json
 *            weights/  names of tensors: the base's prefix, heads, what is tied, what is no parameter
 *            ps_model_from_config   the model itself
 *
 * Lists end with an entry of zeros; NULL is an empty one. What several families have in common they take from the same
 * ps_traits. */
#ifndef PS_MODEL_FAMILY_H
#define PS_MODEL_FAMILY_H

#include "base/status.h"
#include "option/option.h"

/* A key of config.json that is an option. */
typedef struct ps_family_key {
    const char *key;
    ps_option_id id;
    bool has_null; /* an option that is derived from others is written as null; else as what it comes to */
} ps_family_key;

/* A key of config.json that must have this value, given as JSON, where it is there. */
typedef struct ps_family_fixed {
    const char *key, *value;
} ps_family_fixed;

/* Where the family differs from the default of options.def, which is gpt2's. */
typedef struct ps_family_default {
    ps_option_id id;
    ps_option_value value;
} ps_family_default;

/* A tensor that need not be there, as it is the same as another; both without the base's prefix. They have a row or an
 * element for each token of the vocabulary. */
typedef struct ps_family_tie {
    const char *name, *to;
    /* A tensor that is there where nothing is tied. In transformers 5 the class then computes with `name`, and has `to`
     * without using it; before, it ties the two in any case. NULL: the tie is as any other. */
    const char *untied_with;
} ps_family_tie;

typedef struct ps_traits {
    const struct ps_traits *more;      /* and these; NULL: no others */
    const ps_family_default *defaults; /* win over those of more */
    const ps_option_id *uses;          /* of the options that only some families use */
    const ps_family_key *keys;
    const ps_family_fixed *fixed;
    const ps_family_tie *ties;
    const char *const *heads;   /* how names of tensors of heads begin, with the base's prefix where it has them */
    const char *const *buffers; /* ends of names of what is no parameter: "h.#.attn.bias", '#' for any number */
    /* Parts of names of parameters, in the order of the class's model.parameters(), where that is not the one in which
     * the model is described: of those of a block, or of those behind the blocks. */
    const char *const *parameter_order;
} ps_traits;

/* Which keys of config.json make attention slide. */
typedef enum ps_family_window {
    PS_WINDOW_NEVER,
    PS_WINDOW_FOREIGN, /* PS_WINDOW_SWITCHED where a file has the keys; the class lacks them, so none is written */
    PS_WINDOW_NUMBER,  /* sliding_window, where it is a number */
    PS_WINDOW_SWITCHED /* use_sliding_window or layer_types, from max_window_layers on */
} ps_family_window;

typedef struct ps_family {
    const char *class_name;                          /* "Llama": how the names of its classes begin */
    const char *class_ends[PS_CONFIG_HEAD_NONE + 1]; /* and end, by head: "ForCausalLM"; NULL: it has no such head */
    /* What transformers calls base_model_prefix, at most 15 bytes: "model" of "model.norm.weight". Names have no prefix
     * with the head none. */
    const char *base;
    const char *base_of_questions; /* the same of its class for question answering, where that is another; else NULL */
    bool is_gated;                 /* its activation is silu, as a gate; else relu or one of the gelus */
    ps_family_window window;
    ps_traits traits;

    /* Describe the model on the builder, as a ps_model_func; o is what a configuration with this model.type came to. */
    ps_status (*build)(ps_builder *b, const ps_options *o);
} ps_family;

int ps_family_count(void);
const ps_family *ps_family_at(int i);               /* by number, a ps_config_model; NULL past the last */
const ps_family *ps_family_of(const ps_options *o); /* of model.type */
/* By the text of model.type, with its number in *type. NULL: none has that name, and *type is left alone. */
const ps_family *ps_family_find(const char *name, ps_config_model *type);

/* base_model_prefix of the class with this head. */
const char *ps_family_base(const ps_family *f, ps_config_head head);

/* Does the option do anything? Yes for those that no family lists. */
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
