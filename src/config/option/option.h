/* option.h - one option: its table entry, and reading and writing of its value as text.
 *
 * For the layers that read options by number: model/ and config/. */
#ifndef PS_OPTION_OPTION_H
#define PS_OPTION_OPTION_H

#include "config/option/options.h"

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

/* The value of an option of any type; the type selects the member. */
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
    const char *ends;         /* "[)": whether double_min and double_max themselves are allowed */
    const char *const *names; /* ENUM: text of the values */
    int n_names;
    bool auto_allowed; /* BYTES */
    bool is_names;     /* STRING: a comma-separated list */
    bool is_numbers;   /* STRING: the same of numbers */
    bool is_objects;   /* STRING: an array of JSON objects as text; "": none */
    bool is_counts;    /* STRING: "name=number,name=number", numbers from 1 on; "": none */
    const char *unit, *help;
} ps_option;

/* The options of a section: from first_id to the next section's first_id, exclusive. */
typedef struct ps_option_section {
    const char *title, *text;
    ps_option_id first_id;
} ps_option_section;

extern const ps_option ps_option_table[PS_OPTION_COUNT];
extern const ps_option_section ps_option_sections[];
extern const int ps_option_n_sections;

/* An alias of an option. The option's value is factor x the alias's value + offset. */
typedef struct ps_option_alias {
    const char *key;
    ps_option_id id;
    bool is_scaled;
    double factor, offset;
    double unset;     /* this value leaves the option unchanged; NAN: none does */
    const char *note; /* unit of the alias's values: "in MB" */
} ps_option_alias;

/* The option with this key or alias; PS_OPTION_COUNT when there is none. *alias is NULL for the option's own key. */
ps_option_id ps_option_find(const char *key, const ps_option_alias **alias);

/* The i-th alias of an option; NULL past the last. */
const ps_option_alias *ps_option_alias_at(ps_option_id id, int i);

/* The table entry of an alias: its key, type and bounds. alias NULL: the option's own entry. */
ps_option ps_option_under(const ps_option *option, const ps_option_alias *alias);

/* ps_option_read of a value given under this alias (NULL: the own key). *value is the option's; problem names the
 * alias. */
bool ps_option_read_under(const ps_option *option, const ps_option_alias *alias, const json_t *json,
                          ps_option_value *value, char *problem, size_t problem_bytes);

/* Whether json is the alias's value that leaves the option unchanged. */
bool ps_option_leaves(const ps_option_alias *alias, const json_t *json);

/* Whether key is a proper prefix of an option's key that ends at a '.': "optimizer", "optimizer.params". */
bool ps_option_is_section(const char *key);

/* The option of a section that is probably meant by a value in place of the section's object; false: none. */
bool ps_option_of_section(const char *key, const json_t *json, char member[PS_OPTION_KEY_MAX]);

/* The i-th name of the option in other programs (other_names.def); NULL past the last. */
const char *ps_option_other_name_at(ps_option_id id, int i);

/* Find the key or section with the name most similar to `key`, or with the same last word; false when there is none.
 * ps_name_suggest searches any names with dots, ps_option_suggest those of options, first by their names in other
 * programs. */
bool ps_name_suggest(const char *key, const char *const known_names[], int n_known, char suggestion[PS_OPTION_KEY_MAX]);
bool ps_option_suggest(const char *key, char suggestion[PS_OPTION_KEY_MAX]);

/* Read json as a value of this option, bounds checked. null is the default. json owns a string value. On failure *value
 * is unspecified, and problem is a text such as "train.steps must be an integer from 1 to 9, not true". */
bool ps_option_read(const ps_option *option, const json_t *json, ps_option_value *value, char *problem,
                    size_t problem_bytes);

/* For an option with is_names, or is_numbers, an array of such as one text; with is_objects, an array of objects as one text; an
 * empty array as ""; with is_counts, an object of whole numbers as one text. Else json itself, also where a name is empty or has a comma. A new reference; NULL: no memory. */
json_t *ps_option_join_names(const ps_option *option, json_t *json);

/* Text of a command line as JSON. The text is JSON, or for strings, names, sizes and pairs the bare word (gelu, 64MB;
 * 0.9,0.95; for names and objects an array, too). A new reference; NULL with problem set when the text is not UTF-8, or
 * begins a malformed array of names. */
json_t *ps_option_json_from_word(const ps_option *option, const char *word, char *problem, size_t problem_bytes);

/* fields: the struct of option->offset; ps_options for options of the configuration. */
void ps_option_store(const ps_option *option, ps_option_value value, void *fields);
ps_option_value ps_option_load(const ps_option *option, const void *fields);

bool ps_option_is_equal(const ps_option *option, ps_option_value a, ps_option_value b);

/* Write a value as JSON, independent of the locale; ps_option_read reads back the same bits. */
void ps_option_write_value(const ps_option *option, ps_option_value value, FILE *out);

enum { PS_OPTION_TEXT_MAX = 512 };

/* The allowed values as readable text: "an integer from 1 to 8", "one of Adam, AdamW". Returns text. */
const char *ps_option_expectation(const ps_option *option, char text[PS_OPTION_TEXT_MAX]);

#endif
