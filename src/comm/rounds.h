/* rounds.h - messages (ps_messages) made of a blocking collective that the calling program has (ps_process_group of
 * patrickstar.h).
 *
 * Whoever asks about a message that is not done takes part in a round, in which each rank gives each other what of its
 * messages has room: a stream of bytes from rank to rank, frame after frame, which goes on in the next round.
 *
 *     rank 0   asks --.                 asks --.
 *     rank 1          '-- round --> asks       '-- round -->
 *              asks --'                 asks --'
 *
 *     frame    | channel, bytes | content .......  |
 *     part     what goes from one rank to another in a round: | rest of a frame | frame | beginning of a frame |
 *
 * A round is the same two calls on all ranks, the second one left out when nobody has anything, which each says to all in
 * the first; and all of them make the same number: whoever closes makes rounds until all close in one. So the order in
 * which ranks begin messages may differ, as it does. What arrives before it is received is kept.
 *
 * One thread, as ps_messages says. */
#ifndef PS_COMM_ROUNDS_H
#define PS_COMM_ROUNDS_H

#include "base/status.h"

/* *c is copied; *out's close frees all and calls c's. PS_EINVAL for rank, size or functions that are none, or with the
 * program's `trouble`; PS_ENOMEM_HOST. On failure c is closed, where it can be. */
PS_NODISCARD ps_status ps_rounds_make(const ps_process_group *c, ps_messages *out);

#endif
