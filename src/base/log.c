#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/printable.h"

/* Calls of the log function hold the read lock; the write lock in ps_set_log thus waits until no thread is in the old
 * function. */
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static ps_log_func listener;
static void *listener_user;

void ps_set_log(ps_log_func func, void *user)
{
    pthread_rwlock_wrlock(&lock);
    listener = func;
    listener_user = user;
    pthread_rwlock_unlock(&lock);
}

void ps_log(ps_log_level level, const char *format, ...)
{
    pthread_rwlock_rdlock(&lock);
    if (listener != NULL) {
        char line[1024];
        va_list ap;
        va_start(ap, format);
        const int n = vsnprintf(line, sizeof line, format, ap);
        va_end(ap);
        listener(listener_user, level, n >= 0 ? ps_printable(line) : format);
    }
    pthread_rwlock_unlock(&lock);
}
