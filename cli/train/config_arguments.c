#include "config_arguments.h"

#include <stdlib.h>

bool config_arguments_init(config_arguments *a, int argc)
{
    *a = (config_arguments){.overrides = calloc((size_t)argc, sizeof *a->overrides)};
    return a->overrides != NULL;
}

void config_arguments_deinit(config_arguments *a)
{
    free(a->overrides);
    *a = (config_arguments){0};
}

void config_arguments_take(config_arguments *a, char *word)
{
    if (a->path == NULL)
        a->path = word;
    else
        a->overrides[a->n_overrides++] = word;
}
