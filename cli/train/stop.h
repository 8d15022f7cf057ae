/* stop.h - Ctrl-C, SIGTERM, SIGHUP and a broken pipe: a command ends in order, and its exit status says that it was stopped. */
#ifndef PSTAR_STOP_H
#define PSTAR_STOP_H

#include "client.h"

/* From here on the first SIGINT, SIGTERM or SIGHUP asks to stop, and so does a write to a pipe that nothing reads; a
 * second signal of its kind ends the program at once. SIGHUP stays ignored where it was (nohup). on_interrupt, a
 * constant, is written to stderr at SIGINT, for whoever pressed Ctrl-C and waits; NULL: nothing. */
void stop_listen(const char *on_interrupt);

/* Was this rank, or any other of comm, asked to stop? Then all of them are from now on. All ranks call. comm NULL:
 * alone. PS_ECOMM. */
PS_NODISCARD ps_status stop_is_asked(ps_comm *comm, bool *yes);

/* The end of a command that has stopped because stop_is_asked said so. Alone, the process ends here, by the signal with
 * its default action, as if it had never been caught: that is what shells and job schedulers look at. A rank of several
 * gets 128 + the signal's number, its exit code: it calls once ps_comm_close has returned, as a launcher kills the
 * other ranks when one of them exits with another status than 0. */
int stop_end(bool is_alone);

#endif
