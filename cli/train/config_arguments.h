/* config_arguments.h - the words "CONFIG [key=value ...]" of a command line. */
#ifndef PSTAR_CONFIG_ARGUMENTS_H
#define PSTAR_CONFIG_ARGUMENTS_H

#include <stdbool.h>

typedef struct config_arguments {
    const char *path; /* CONFIG; NULL until it is met */
    char **overrides; /* "key=value", in their order; argv's own words */
    int n_overrides;
} config_arguments;

/* With room for the words of argc; false: no memory. Freed by deinit, which takes a cleared struct too. */
bool config_arguments_init(config_arguments *a, int argc);
void config_arguments_deinit(config_arguments *a);

/* The next word that is no option: the first is CONFIG. */
void config_arguments_take(config_arguments *a, char *word);

#endif
