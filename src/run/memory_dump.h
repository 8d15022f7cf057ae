/* memory_dump.h - who takes which memory, as a table for people: tiers with their lists, chunks by state and by
 * where their content is, bytes moved, the moments that need most. */
#ifndef PS_RUN_MEMORY_DUMP_H
#define PS_RUN_MEMORY_DUMP_H

#include "run/blueprint.h"
#include "state/tiers.h"

enum { PS_MEMORY_DUMP_MAX = 8192 }; /* bytes, NUL included; what is more is cut */

/* Who takes memory now, by tier: chunk lists, then activations, staging, keys and values where there are some, and
 * others. Together they are what is in use. lists: those of the tiers' store. Returns how many there are. */
enum { PS_MEMORY_USES_MAX = PS_LISTS_MAX + 4 };
int ps_memory_uses(const ps_lists *lists, const ps_tiers *t, ps_memory_use uses[PS_MEMORY_USES_MAX]);

/* The table as it is now. */
void ps_memory_dump_write(const ps_blueprint *b, const ps_tiers *t, char text[PS_MEMORY_DUMP_MAX]);

/* Keep it for ps_last_memory_dump, under the name of the moment (-1: before the first), when st says that memory was
 * short (PS_EBUDGET, PS_ENOMEM_DEV). */
void ps_memory_dump_keep(const ps_blueprint *b, const ps_tiers *t, int32_t moment, ps_status st);
void ps_memory_dump_forget(void);

#endif
