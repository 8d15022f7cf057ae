/* own_process.h - tests that need a process to themselves. For another environment the program is started again with a word
 * as its argument, and its main gives that word its own group of tests. What may abort runs in a child. */
#ifndef TEST_OWN_PROCESS_H
#define TEST_OWN_PROCESS_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs this program with `word`, and the variables NAME=VALUE of environment (NULL at its end; or NULL). Its exit
 * status; 256 and more: it died of signal - 256. */
static inline int own_process(const char *word, char *const *environment)
{
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        char program[] = "/proc/self/exe", argument[64];
        snprintf(argument, sizeof argument, "%s", word);
        for (int i = 0; environment != NULL && environment[i] != NULL; i++) putenv(environment[i]);
        execv(program, (char *[]){program, argument, NULL});
        _exit(127);
    }
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) return -1;
    return WIFSIGNALED(status) ? 256 + WTERMSIG(status) : WEXITSTATUS(status);
}

typedef struct child_outcome {
    int status;      /* of waitpid; -1: there was no child */
    char text[1024]; /* of stderr */
} child_outcome;

/* Calls body(user) in a child, which ends with status 0 when it returns, and by SIGABRT as a program does. */
static inline child_outcome in_child(void (*body)(const void *), const void *user)
{
    child_outcome o = {.status = -1};
    int ends[2];
    if (pipe(ends) != 0) return o;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        body(user);
        _exit(0);
    }
    close(ends[1]);
    size_t n = 0;
    for (ssize_t k; n + 1 < sizeof o.text && (k = read(ends[0], o.text + n, sizeof o.text - 1 - n)) > 0;)
        n += (size_t)k;
    close(ends[0]);
    if (child > 0) waitpid(child, &o.status, 0);
    return o;
}

#endif
