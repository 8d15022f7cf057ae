/* config_arguments.h - the words "CONFIG [key=value ...]" of a command line, and the option --memory. */
#ifndef PSTAR_CONFIG_ARGUMENTS_H
#define PSTAR_CONFIG_ARGUMENTS_H

#include <stdbool.h>

enum { CONFIG_MEMORY_KEY = 3000, CONFIG_MEMORY_MAX = 64 };

/* In the struct argp_option of a command; its parser hands CONFIG_MEMORY_KEY to config_arguments_take_memory. */
#define CONFIG_MEMORY_OPTION                                                                                           \
    {                                                                                                                  \
        "memory", CONFIG_MEMORY_KEY, "BYTES", 0,                                                                       \
            "What each process may have in RAM all told, such as 8GB: memory.total (doc/config.md)", 0                 \
    }

typedef struct config_arguments {
    const char *path; /* CONFIG; NULL until it is met */
    char **overrides; /* "key=value", in their order; argv's own words */
    int n_overrides;
    char memory[CONFIG_MEMORY_MAX]; /* that of --memory; "": it was not given */
} config_arguments;

/* With room for the words of argc; false: no memory. Freed by deinit, which takes a cleared struct too. */
bool config_arguments_init(config_arguments *a, int argc);
void config_arguments_deinit(config_arguments *a);

/* The next word that is no option: the first is CONFIG. */
void config_arguments_take(config_arguments *a, char *word);

/* The value of --memory, given once or more: the last counts. */
void config_arguments_take_memory(config_arguments *a, const char *value);
/* It as "memory.total=VALUE"; one that is longer than any size is cut, and refused when it is read. */
void config_memory_text(const char *value, char text[CONFIG_MEMORY_MAX]);

#endif
