/* worker.h - start a thread of the library. */
#ifndef PS_DEVICE_WORKER_H
#define PS_DEVICE_WORKER_H

#include <pthread.h>
#include <stdint.h>

#include "base/status.h"

/* Run main(arg) on a thread named `name` (truncated to 15 bytes). All signals are blocked there: they belong to the
 * program, and a write past RLIMIT_FSIZE must be an error, not SIGXFSZ. The caller joins it. PS_ENOMEM_HOST when the
 * system has no thread left. */
PS_NODISCARD ps_status ps_worker_start(const char *name, void *(*main)(void *), void *arg, pthread_t *out);

/* Processor time of the thread, which is not joined yet. */
int64_t ps_worker_processor_ns(pthread_t t);

#endif
