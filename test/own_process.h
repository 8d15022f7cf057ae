/* own_process.h - tests that need a process to themselves, for another environment. The program is started again with a
 * word as its argument, and its main gives that word its own group of tests. */
#ifndef TEST_OWN_PROCESS_H
#define TEST_OWN_PROCESS_H

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

#endif
