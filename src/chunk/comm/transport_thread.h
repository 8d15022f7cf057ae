/* transport_thread.h - ranks that are threads of one process. */
#ifndef PS_COMM_TRANSPORT_THREAD_H
#define PS_COMM_TRANSPORT_THREAD_H

#include "base/status.h"
#include "chunk/comm/transport.h"

typedef struct ps_thread_hub ps_thread_hub;

extern const ps_transport_ops ps_transport_thread_ops;

/* State shared by the ranks, with a reference of its creator and of each transport. */
PS_NODISCARD ps_status ps_thread_hub_create(int32_t size, ps_thread_hub **out);
void ps_thread_hub_release(ps_thread_hub *hub);

/* The transport of one rank, to be opened by the thread that uses it. It holds a reference to the hub until its close
 * is called, which is required even if it was never opened. PS_ENOMEM_HOST. */
PS_NODISCARD ps_status ps_thread_hub_attach(ps_thread_hub *hub, int32_t rank, ps_transport *out);

#endif
