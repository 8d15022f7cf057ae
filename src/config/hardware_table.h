/* hardware_table.h - hardware.def as data; for hardware.c, hardware_table.c and hardware_write.c only. */
#ifndef PS_CONFIG_HARDWARE_TABLE_H
#define PS_CONFIG_HARDWARE_TABLE_H

#include "config/hardware.h"
#include "config/option/option.h"

typedef struct ps_hardware_key {
    ps_option option;    /* STRING: its offset is that of an array of char */
    size_t string_bytes; /* STRING: size of that array */
    bool is_required;    /* in a section that is present */
} ps_hardware_key;

/* Consecutive keys of the table that begin with `key`; the first section, "", has those of the top level. */
typedef struct ps_hardware_section {
    const char *key; /* "device.f32" */
    const char *title, *text;
    bool is_optional;
    size_t present_offset; /* of a bool in ps_hardware; optional sections only */
} ps_hardware_section;

extern const ps_hardware_key ps_hardware_keys[];
extern const int ps_hardware_n_keys;
extern const ps_hardware_section ps_hardware_sections[];
extern const int ps_hardware_n_sections;

/* Indices in the tables; -1 when there is no such name. */
int ps_hardware_find_key(const char *key);
int ps_hardware_find_section(const char *key);

/* The section of a key or of a nested section. */
int ps_hardware_section_of(const char *key);

/* The key or section with the most similar name; false when none is similar. */
bool ps_hardware_suggest(const char *key, char suggestion[PS_OPTION_KEY_MAX]);

/* Required sections are always present. */
bool ps_hardware_has_section(const ps_hardware *hw, int section);
/* Add an optional section with the defaults of its keys, or remove it. */
void ps_hardware_put_section(ps_hardware *hw, int section, bool is_present);

/* Set or get a value of the key's type; strings are copied, and must fit. hw owns returned strings. */
void ps_hardware_store(const ps_hardware_key *key, ps_option_value value, ps_hardware *hw);
ps_option_value ps_hardware_value(const ps_hardware_key *key, const ps_hardware *hw);

/* Check the rules between keys. Returns the key that the broken rule is about, for the position in a message, or NULL.
 * problem is set to a text such as "device.reserved_bytes = 5 ...". */
const char *ps_hardware_conflict(const ps_hardware *hw, char *problem, size_t problem_bytes);

#endif
