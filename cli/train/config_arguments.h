/* config_arguments.h - parses "CONFIG [key=value ...]" of a command line, and the option --memory. */
#ifndef PSTAR_CONFIG_ARGUMENTS_H
#define PSTAR_CONFIG_ARGUMENTS_H

#include <stdbool.h>

enum { CONFIG_MEMORY_KEY = 3000, CONFIG_MEMORY_MAX = 64 };

/* An entry for the struct argp_option of a command, whose parser passes CONFIG_MEMORY_KEY to
 * config_arguments_take_memory. */
#define CONFIG_MEMORY_OPTION                                                                                           \
    {                                                                                                                  \
        "memory", CONFIG_MEMORY_KEY, "BYTES", 0,                                                                       \
            "Limit of RAM of each process, such as 8GB: memory.total (doc/config.md)", 0                               \
    }

typedef struct config_arguments {
    const char *path; /* CONFIG; NULL before it is parsed */
    char **overrides; /* "key=value", in their order; point into argv */
    int n_overrides;
    char memory[CONFIG_MEMORY_MAX]; /* value of --memory; "": not given */
} config_arguments;

/* Allocate room for argc words; false: out of memory. Freed by deinit, which accepts a zeroed struct. */
bool config_arguments_init(config_arguments *a, int argc);
void config_arguments_deinit(config_arguments *a);

/* Add the next word that is not an option; the first is CONFIG. */
void config_arguments_take(config_arguments *a, char *word);

/* Set the value of --memory; the last one counts. */
void config_arguments_take_memory(config_arguments *a, const char *value);
/* Append it as "memory.total=VALUE"; a value longer than any size is cut, and refused when it is parsed. */
void config_memory_text(const char *value, char text[CONFIG_MEMORY_MAX]);

#endif
