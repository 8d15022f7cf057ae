#include "stop.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "program.h"

static volatile sig_atomic_t stop_signal; /* 0: no stop requested */
static const char *interrupt_text;        /* NULL: none */

static void take_signal(int number)
{
    const int before = errno;
    stop_signal = number;
    signal(number, SIG_DFL);
    if (number == SIGINT && interrupt_text != NULL && write(STDERR_FILENO, interrupt_text, strlen(interrupt_text)) < 0)
        errno = 0; /* not used */
    errno = before;
}

/* The reader of the output has closed the pipe. This is not a signal of the user, so a second one does not end the
 * program; further output is lost. */
static void take_broken_pipe(int number)
{
    if (stop_signal == 0) stop_signal = number;
}

static void listen_unless_ignored(int number, void (*handler)(int))
{
    if (signal(number, handler) == SIG_IGN) signal(number, SIG_IGN);
}

void stop_listen(const char *on_interrupt)
{
    interrupt_text = on_interrupt;
    signal(SIGINT, take_signal); /* a shell's `&` ignores it, but scripts send it all the same */
    signal(SIGTERM, take_signal);
    listen_unless_ignored(SIGHUP, take_signal); /* nohup */
    listen_unless_ignored(SIGPIPE, take_broken_pipe);
}

/* Another thread hangs, and may never give back what it holds: so no exit handler runs. */
static void end_stalled(void *command, const char *text)
{
    dprintf(STDERR_FILENO, "pstar %s: %s\n", (const char *)command, text);
    if (ftrylockfile(stdout) == 0) (void)fflush(stdout);
    _exit(EXIT_STALLED);
}

void stop_at_stall(const char *command)
{
    ps_set_stall(end_stalled, (void *)(uintptr_t)command);
}

ps_status stop_is_asked(ps_comm *comm, bool *yes)
{
    double number = stop_signal;
    if (comm != NULL) TRY(ps_comm_all_reduce(comm, &number, 1, PS_COMM_MAX));
    if (number > 0) stop_signal = (sig_atomic_t)number;
    *yes = number > 0;
    return PS_OK;
}

int stop_end(bool is_single_rank)
{
    const int number = stop_signal;
    if (is_single_rank) {
        /* without exit handlers */
        const bool had_error = ferror(stdout) != 0;
        if ((fflush(stdout) != 0 || had_error) && number != SIGPIPE)
            fprintf(stderr, "pstar: cannot write to the standard output\n");
        signal(number, SIG_DFL);
        (void)raise(number);
    }
    return 128 + number; /* also for process 1 of a container, which signals do not end */
}
