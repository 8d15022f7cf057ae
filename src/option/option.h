/* option.h - one option: its table entry, reading a value for it, writing its value as text.
 *
 * Used by the floors that read options by number: model/ and config/. */
#ifndef PS_OPTION_OPTION_H
#define PS_OPTION_OPTION_H

#include "option/options.h"

#include <jansson.h>

enum { PS_OPTION_KEY_MAX = 80 }; /* bytes of a key, NUL included */

typedef enum ps_option_type {
    PS_OPTION_BOOL,
    PS_OPTION_INT,
    PS_OPTION_DOUBLE,
    PS_OPTION_PAIR,
    PS_OPTION_RANGE,
    PS_OPTION_STRING,
    PS_OPTION_ENUM,
    PS_OPTION_BYTES,
} ps_option_type;

/* The value of an option of any type; which member holds it follows from the type. */
typedef struct ps_option_value {
    bool b;
    int64_t i;     /* INT, BYTES, and the value of an ENUM */
    double d[2];   /* DOUBLE in d[0], PAIR */
    int64_t r[2];  /* RANGE: first and last */
    const char *s; /* STRING: borrowed */
} ps_option_value;

typedef struct ps_option {
    const char *key; /* "optimizer.params.lr" */
    ps_option_type type;
    size_t offset;         /* in ps_options, or in the struct of another table */
    ps_option_value value; /* the default */
    int64_t int_min, int_max;
    double double_min, double_max;
    const char *ends;         /* "[)": which ends of double_min, double_max are allowed values */
    const char *const *names; /* ENUM: text of the values */
    int n_names;
    bool auto_allowed; /* BYTES */
    bool is_names;     /* STRING: several may stand in it, with commas between them */
    bool is_objects;   /* STRING: an array of JSON objects as text; "": none */
    const char *unit, *help;
} ps_option;

/* The options of a section: from first_id to before that of the next section. */
typedef struct ps_option_section {
    const char *title, *text;
    ps_option_id first_id;
} ps_option_section;

extern const ps_option ps_option_table[PS_OPTION_COUNT];
extern const ps_option_section ps_option_sections[];
extern const int ps_option_n_sections;

/* Another name of an option, whose value is factor x that of the name + offset. */
typedef struct ps_option_alias {
    const char *key;
    ps_option_id id;
    bool is_scaled;
    double factor, offset;
    double unset;     /* this value leaves the option as it is; NAN: none does */
    const char *note; /* what values of the name are: "in MB" */
} ps_option_alias;

/* The option with this key; PS_OPTION_COUNT when there is none. *alias is the name when it is not the option's own,
 * else NULL. */
ps_option_id ps_option_find(const char *key, const ps_option_alias **alias);

/* The i-th other name of an option; NULL past the last. */
const ps_option_alias *ps_option_alias_at(ps_option_id id, int i);

/* The option as it is under this name: key, type and bounds are the name's. alias NULL: the option's own. */
ps_option ps_option_under(const ps_option *option, const ps_option_alias *alias);

/* ps_option_read of what stands under this name (NULL: its own); *value is the option's, problem names the name. */
bool ps_option_read_under(const ps_option *option, const ps_option_alias *alias, const json_t *json,
                          ps_option_value *value, char *problem, size_t problem_bytes);

/* Is json the value of this name that leaves the option as it is? */
bool ps_option_leaves(const ps_option_alias *alias, const json_t *json);

/* Whether key is a proper prefix of an option's key that ends at a '.': "optimizer", "optimizer.params". */
bool ps_option_is_section(const char *key);

/* Which option of a section a value is likely meant for that stands in place of the section's object; false: none. */
bool ps_option_of_section(const char *key, const json_t *json, char member[PS_OPTION_KEY_MAX]);

/* What other programs call the option (other_names.def), the i-th; NULL past the last. */
const char *ps_option_other_name_at(ps_option_id id, int i);

/* Write the key or section that is spelled most like `key`, or else has the same last word; false when none is near.
 * ps_name_suggest looks among any names with dots, ps_option_suggest among those of options, first by what other
 * programs call them. */
bool ps_name_suggest(const char *key, const char *const known_names[], int n_known, char suggestion[PS_OPTION_KEY_MAX]);
bool ps_option_suggest(const char *key, char suggestion[PS_OPTION_KEY_MAX]);

/* Read json as a value of this option, bounds checked. null is the default. A string value stays json's.
 * On failure *value is unspecified and problem reads "train.steps must be an integer from 1 to 9, not true". */
bool ps_option_read(const ps_option *option, const json_t *json, ps_option_value *value, char *problem,
                    size_t problem_bytes);

/* Of an option that is_names, an array of names as one text; of one that is_objects, an array of objects as one; of none
 * ""; else json itself, also where a name is empty or has a comma. A new reference; NULL: no memory. */
json_t *ps_option_join_names(const ps_option *option, json_t *json);

/* Text of a command line as JSON: as it stands, or for strings, names, sizes and pairs the bare word (gelu, 64MB;
 * 0.9,0.95; of names and objects an array, too). A new reference; NULL with problem set when the text is not UTF-8, or begins an array of
 * names that is none. */
json_t *ps_option_json_from_word(const ps_option *option, const char *word, char *problem, size_t problem_bytes);

/* fields: the struct that option->offset counts in, ps_options for those of the configuration. */
void ps_option_store(const ps_option *option, ps_option_value value, void *fields);
ps_option_value ps_option_load(const ps_option *option, const void *fields);

bool ps_option_is_equal(const ps_option *option, ps_option_value a, ps_option_value b);

/* Write a value as JSON, the same in every locale; ps_option_read reads the same bits back. */
void ps_option_write_value(const ps_option *option, ps_option_value value, FILE *out);

enum { PS_OPTION_TEXT_MAX = 512 };

/* What values are allowed, for people: "an integer from 1 to 8", "one of Adam, AdamW". Returns text. */
const char *ps_option_expectation(const ps_option *option, char text[PS_OPTION_TEXT_MAX]);

#endif
