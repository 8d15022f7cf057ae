/* memory_dump.h - the use of memory as a table for people: tiers with their lists, chunks by state and by tier, bytes
 * moved, the moments that need most. */
#ifndef PS_RUN_MEMORY_DUMP_H
#define PS_RUN_MEMORY_DUMP_H

#include "train/run/exec_plan.h"
#include "train/state/tiers.h"

enum { PS_MEMORY_DUMP_MAX = 8192 }; /* bytes, NUL included; longer text is truncated */

/* The use of memory by tier: chunk lists, then activations, staging, KV cache, and other; the sum is the bytes in use.
 * lists: those of the tiers' store. Returns the number of entries. */
enum { PS_MEMORY_USES_MAX = PS_LISTS_MAX + 4 };
int ps_memory_uses(const ps_lists *lists, const ps_tiers *t, ps_memory_use uses[PS_MEMORY_USES_MAX]);

/* The table as it is now. */
void ps_memory_dump_write(const ps_exec_plan *b, const ps_tiers *t, char text[PS_MEMORY_DUMP_MAX]);

/* Keep the table for ps_last_memory_dump, under the name of the moment (-1: before the first), if st is a shortage of
 * memory (PS_EBUDGET, PS_ENOMEM_DEV). */
void ps_memory_dump_keep(const ps_exec_plan *b, const ps_tiers *t, int32_t moment, ps_status st);
void ps_memory_dump_forget(void);

#endif
