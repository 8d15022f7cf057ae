/* transport_program.h - messages that the calling program carries (ps_messages of patrickstar.h), as a transport. */
#ifndef PS_COMM_TRANSPORT_PROGRAM_H
#define PS_COMM_TRANSPORT_PROGRAM_H

#include "base/status.h"
#include "comm/transport.h"
#include "patrickstar_comm.h"

/* Still to be opened, and held by the caller too until ps_transport_program_release. *m is copied. PS_EINVAL for rank,
 * size or functions that are none; PS_ENOMEM_HOST. On failure the messages are closed. */
PS_NODISCARD ps_status ps_transport_program_make(const ps_messages *m, ps_transport *out);

/* The caller lets go. is_failed: nobody will close the transport that has not done so yet, so it is done here. */
void ps_transport_program_release(const ps_transport *t, bool is_failed);

#endif
