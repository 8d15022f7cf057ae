#include "config_arguments.h"

#include <stdio.h>
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

void config_memory_text(const char *value, char text[CONFIG_MEMORY_MAX])
{
    snprintf(text, CONFIG_MEMORY_MAX, "memory.total=%s", value);
}

void config_arguments_take_memory(config_arguments *a, const char *value)
{
    if (a->memory[0] == '\0') a->overrides[a->n_overrides++] = a->memory;
    config_memory_text(value, a->memory);
}
