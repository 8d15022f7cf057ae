/* transport_thread.h - ranks that are threads of one process. */
#ifndef PS_COMM_TRANSPORT_THREAD_H
#define PS_COMM_TRANSPORT_THREAD_H

#include "base/status.h"
#include "comm/transport.h"

typedef struct ps_thread_hub ps_thread_hub;

extern const ps_transport_ops ps_transport_thread_ops;

/* What the ranks share. Held by its maker and by each transport; gone when the last has let go. */
PS_NODISCARD ps_status ps_thread_hub_create(int32_t size, ps_thread_hub **out);
void ps_thread_hub_release(ps_thread_hub *hub);

/* The transport of one rank, to be opened by the thread that uses it. It holds the hub until its close is called, which
 * must be even if it was never opened. PS_ENOMEM_HOST. */
PS_NODISCARD ps_status ps_thread_hub_attach(ps_thread_hub *hub, int32_t rank, ps_transport *out);

#endif
