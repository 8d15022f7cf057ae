#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/printable.h"

#define TEXT(number) TEXT_OF(number)
#define TEXT_OF(number) #number

static _Thread_local char last_error[1024];
static _Thread_local ps_failure last_failure = {.rank = -1};
static _Thread_local unsigned n_failures;

ps_status ps_fail(const char *file, int line, ps_status st, const char *fmt, ...)
{
    /* Formatted into a separate buffer first: an argument may be ps_last_error() itself, when a caller adds context. */
    char message[sizeof last_error];
    va_list ap;
    va_start(ap, fmt);
    last_failure = (ps_failure){.status = st, .rank = -1};
    const int n = vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    n_failures++;
    snprintf(last_error, sizeof last_error, "%s", n >= 0 ? ps_printable(message) : fmt);
#if PS_DEBUG >= 1
    const size_t n_bytes = strlen(last_error);
    if (n >= 0 && (size_t)n < sizeof last_error)
        snprintf(last_error + n_bytes, sizeof last_error - n_bytes, " [%s:%d]", file, line);
#else
    (void)file, (void)line;
#endif
    return st;
}

ps_status ps_need(const char *call, const char *names, const void *const *pointers, size_t n)
{
    for (size_t i = 0; i < n; i++, names += strcspn(names, " ") + 1)
        if (pointers[i] == NULL) return PS_FAIL(PS_EINVAL, "%s: %.*s is NULL", call, (int)strcspn(names, " "), names);
    return PS_OK;
}

void ps_fail_on_rank(int32_t rank, const char *host, bool is_remote, bool is_shared)
{
    last_failure.rank = rank;
    last_failure.is_remote = is_remote;
    last_failure.is_shared = is_shared;
    snprintf(last_failure.host, sizeof last_failure.host, "%s", host);
}

const ps_failure *ps_fail_last(void)
{
    return &last_failure;
}

unsigned ps_fail_count(void)
{
    return n_failures;
}

const char *ps_version(int *major, int *minor, int *patch)
{
    if (major != NULL) *major = PS_VERSION_MAJOR;
    if (minor != NULL) *minor = PS_VERSION_MINOR;
    if (patch != NULL) *patch = PS_VERSION_PATCH;
    return TEXT(PS_VERSION_MAJOR) "." TEXT(PS_VERSION_MINOR) "." TEXT(PS_VERSION_PATCH);
}

ps_status ps_set_last_error(ps_status st, const char *text)
{
    return PS_FAIL(st, "%s", text != NULL ? text : "");
}

const char *ps_last_error(void)
{
    return last_error;
}

const char *ps_status_name(ps_status st)
{
    switch (st) {
#define XX(name, value, text)                                                                                          \
    case PS_##name: return #name;
        PS_STATUS_MAP(XX)
#undef XX
    }
    return "UNKNOWN";
}

bool ps_status_is_known(ps_status st)
{
    return strcmp(ps_status_name(st), "UNKNOWN") != 0;
}

const char *ps_status_text(ps_status st)
{
    switch (st) {
#define XX(name, value, text)                                                                                          \
    case PS_##name: return text;
        PS_STATUS_MAP(XX)
#undef XX
    }
    return "unknown status";
}
