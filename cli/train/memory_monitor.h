/* memory_monitor.h - samples the resident memory of the process from a thread of its own
 * (client.mem_tracer.use_async_mem_monitor). */
#ifndef PSTAR_MEMORY_MONITOR_H
#define PSTAR_MEMORY_MONITOR_H

#include <stdint.h>

#include "patrickstar.h"

typedef struct memory_monitor memory_monitor;

PS_NODISCARD ps_status memory_monitor_start(memory_monitor **out);
void memory_monitor_stop(memory_monitor *m); /* NULL is accepted */
/* Largest sample since the last call. */
int64_t memory_monitor_take_peak(memory_monitor *m);

#endif
