#include "weights/name_index.h"

#include <string.h>
#include <xxhash.h>

#include "base/base.h"
#include "base/mem.h"

ps_status ps_name_index_init(ps_name_index *x, int64_t n_names)
{
    *x = (ps_name_index){.n_slots = 8};
    while (x->n_slots < 2 * (uint64_t)n_names) x->n_slots *= 2; /* at most half full: few steps to a free slot */
    PS_TRY(ps_mem_alloc(x->n_slots, sizeof *x->names, (void *)&x->names));
    return ps_mem_alloc(x->n_slots, sizeof *x->numbers, &x->numbers);
}

void ps_name_index_deinit(ps_name_index *x)
{
    ps_mem_free(x->names);
    ps_mem_free(x->numbers);
    *x = (ps_name_index){0};
}

/* The slot of the name, or the free one where it belongs. */
static uint64_t slot_of(const ps_name_index *x, const char *name)
{
    uint64_t slot = XXH3_64bits(name, strlen(name)) & (x->n_slots - 1);
    while (x->names[slot] != NULL && strcmp(x->names[slot], name) != 0) slot = (slot + 1) & (x->n_slots - 1);
    return slot;
}

bool ps_name_index_add(ps_name_index *x, const char *name, int32_t number)
{
    const uint64_t slot = slot_of(x, name);
    if (x->names[slot] != NULL) return false;
    x->names[slot] = name;
    x->numbers[slot] = number;
    return true;
}

int32_t ps_name_index_find(const ps_name_index *x, const char *name)
{
    const uint64_t slot = slot_of(x, name);
    return x->names[slot] != NULL ? x->numbers[slot] : -1;
}
