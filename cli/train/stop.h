/* stop.h - graceful stop by Ctrl-C, SIGTERM, SIGHUP or a broken pipe, with an exit status that shows it. */
#ifndef PSTAR_STOP_H
#define PSTAR_STOP_H

#include "client.h"

/* From now on the first SIGINT, SIGTERM or SIGHUP requests a stop, as does a write to a closed pipe; a second signal of
 * the same kind ends the program at once. SIGHUP stays ignored where it was (nohup). on_interrupt, a constant, is
 * written to stderr at SIGINT, as feedback for Ctrl-C; NULL: nothing. */
void stop_listen(const char *on_interrupt);

/* From now on the program ends with EXIT_STALLED and a message of this command, when nothing goes on for train.stall_s. */
void stop_at_stall(const char *command);

/* Whether a stop was requested on any rank of comm; it then applies to all. All ranks call. comm NULL: single rank.
 * PS_ECOMM. */
PS_NODISCARD ps_status stop_is_asked(ps_comm *comm, bool *yes);

/* End of a command that has stopped because of stop_is_asked. A single rank ends here, by the signal with its default
 * action, which shells and job schedulers check. With several ranks it returns 128 + the signal's number, the exit
 * code; call it after ps_comm_close, as a launcher kills the other ranks when one exits with a status other than 0. */
int stop_end(bool is_single_rank);

#endif
