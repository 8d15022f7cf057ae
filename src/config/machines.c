#include "config/machines.h"

#include <stddef.h>
#include <string.h>

#include "base/base.h"
#include "base/embed.h"

/* XX(identifier, name), sorted by name */
#define MACHINE_MAP(XX)                                                                                                \
    XX(a100_40gb_x8, "a100-40gb-x8")                                                                                   \
    XX(gb10_128gb, "gb10-128gb")                                                                                       \
    XX(gh200_480gb, "gh200-480gb")                                                                                     \
    XX(h100_128gb, "h100-128gb")                                                                                       \
    XX(h200_128gb, "h200-128gb")                                                                                       \
    XX(laptop, "laptop")                                                                                               \
    XX(rtx4090_64gb, "rtx4090-64gb")                                                                                   \
    XX(v100_32gb_x8, "v100-32gb-x8")

#define EMBED(id, name)                                                                                                \
    extern const char ps_machine_##id[];                                                                               \
    PS_EMBED(ps_machine_##id, "examples/hardware/" name ".json");
MACHINE_MAP(EMBED)

#define ENTRY(id, name) {name, ps_machine_##id},
static const struct {
    const char *name, *text;
} machines[] = {MACHINE_MAP(ENTRY)};

#define NAME(id, name) name ", "
const char ps_machine_names[] = MACHINE_MAP(NAME) "or a file";

const char *ps_machine_description(const char *name)
{
    for (size_t i = 0; i < PS_ARRAY_LEN(machines); i++)
        if (strcmp(machines[i].name, name) == 0) return machines[i].text;
    return NULL;
}
