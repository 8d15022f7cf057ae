/* rounds.h - the transport over a process group of the calling program (ps_process_group of patrickstar_comm.h):
 * messages made of its blocking collective.
 *
 * A thread that tests a message that is not done takes part in a round, in which each rank sends each other rank as
 * much of its messages as fits: a stream of bytes from rank to rank, frame after frame, which continues in the next
 * round.
 *
 *     rank 0   tests -.                 tests -.
 *     rank 1          '-- round --> tests      '-- round -->
 *              tests -'                 tests -'
 *
 *     frame    | channel, bytes | content .......  |
 *     part     bytes from one rank to another in a round: | rest of a frame | frame | beginning of a frame |
 *
 * A round is the same two calls on all ranks; the second is omitted when the first has shown that no rank has data. All
 * ranks make the same number of rounds: a closing rank makes rounds until all close in one. So the order in which ranks
 * begin messages may differ, as it does. A message that arrives before its receive is kept. */
#ifndef PS_COMM_ROUNDS_H
#define PS_COMM_ROUNDS_H

#include "base/status.h"
#include "chunk/comm/transport.h"
#include "patrickstar_comm.h"

/* A transport that is not open yet; the caller too holds a reference, until ps_rounds_release. *c is copied. PS_EINVAL
 * for an invalid rank, size or missing functions, or with the program's `trouble`; PS_ENOMEM_HOST. On failure c is
 * closed, where possible. */
PS_NODISCARD ps_status ps_rounds_make(const ps_process_group *c, ps_transport *out);

/* Releases the caller's reference. is_failed: a transport that is not closed yet will not be, so it is closed here. */
void ps_rounds_release(const ps_transport *t, bool is_failed);

#endif
