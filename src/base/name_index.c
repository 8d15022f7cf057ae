#include "base/name_index.h"

#include <string.h>
#include <xxhash.h>

#include "base/base.h"
#include "base/mem.h"

ps_status ps_name_index_init(ps_name_index *x, int64_t n_names)
{
    *x = (ps_name_index){.n_slots = 8};
    while (x->n_slots < 2 * (uint64_t)n_names) x->n_slots *= 2; /* at most half full, for short probe sequences */
    PS_TRY(ps_mem_alloc(x->n_slots, sizeof *x->names, (void *)&x->names));
    return ps_mem_alloc(x->n_slots, sizeof *x->numbers, &x->numbers);
}

void ps_name_index_deinit(ps_name_index *x)
{
    ps_mem_free(x->names);
    ps_mem_free(x->numbers);
    *x = (ps_name_index){0};
}

/* First slot of the search for a name. */
static uint64_t first_slot(const ps_name_index *x, const char *name)
{
    return XXH3_64bits(name, strlen(name)) & (x->n_slots - 1);
}

/* The slot of the name, or the free one where it belongs. */
static uint64_t slot_of(const ps_name_index *x, const char *name)
{
    uint64_t slot = first_slot(x, name);
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

ps_status ps_name_index_reserve(ps_name_index *x, int64_t n_names)
{
    ps_name_index larger;
    if (2 * (uint64_t)n_names <= x->n_slots) return PS_OK;
    const ps_status st = ps_name_index_init(&larger, n_names);
    if (st != PS_OK) {
        ps_name_index_deinit(&larger);
        return st;
    }
    for (uint64_t i = 0; i < x->n_slots; i++)
        if (x->names[i] != NULL) (void)ps_name_index_add(&larger, x->names[i], x->numbers[i]);
    ps_name_index_deinit(x);
    *x = larger;
    return PS_OK;
}

int32_t ps_name_index_find(const ps_name_index *x, const char *name)
{
    if (x->n_slots == 0) return -1;
    const uint64_t slot = slot_of(x, name);
    return x->names[slot] != NULL ? x->numbers[slot] : -1;
}

/* Later names of the probe sequence that the free slot would hide move up. */
void ps_name_index_remove(ps_name_index *x, const char *name)
{
    const uint64_t mask = x->n_slots - 1;
    if (x->n_slots == 0) return;
    uint64_t hole = slot_of(x, name);
    if (x->names[hole] == NULL) return;
    for (uint64_t i = (hole + 1) & mask; x->names[i] != NULL; i = (i + 1) & mask) {
        const uint64_t distance = (i - first_slot(x, x->names[i])) & mask;
        if (distance < ((i - hole) & mask)) continue;
        x->names[hole] = x->names[i];
        x->numbers[hole] = x->numbers[i];
        hole = i;
    }
    x->names[hole] = NULL;
}
