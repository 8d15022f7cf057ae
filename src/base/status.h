/* status.h - raising and forwarding errors inside the library. */
#ifndef PS_BASE_STATUS_H
#define PS_BASE_STATUS_H

#include <stdbool.h>
#include <stddef.h>

#include "patrickstar.h"

/* Record a message and yield st: return PS_FAIL(PS_EINVAL, "batch %d must be positive", b); */
#define PS_FAIL(st, ...) ps_fail(__FILE__, __LINE__, (st), __VA_ARGS__)

/* Forward any failure of expr to the caller; nothing to release. */
#define PS_TRY(expr)                                                                                                   \
    do {                                                                                                               \
        const ps_status st_ = (expr);                                                                                  \
        if (st_ != PS_OK) return st_;                                                                                  \
    } while (0)

/* Same, for functions that must release what they hold: status in `st`, label `out`. */
#define PS_TRY_GOTO(expr)                                                                                              \
    do {                                                                                                               \
        st = (expr);                                                                                                   \
        if (st != PS_OK) goto out;                                                                                     \
    } while (0)

/* As the first line of a function of the interface, whose pointers these are: PS_EINVAL naming the function and the first
 * that is NULL. PS_TRY(PS_NEED("engine path", e, path)); */
#define PS_NEED(names, ...)                                                                                            \
    ps_need(__func__, names, (const void *const[]){__VA_ARGS__}, sizeof((const void *[]){__VA_ARGS__}) / sizeof(void *))

/* The same of a function with *out = NULL on failure, which is among the pointers. */
#define PS_NEED_FOR(out, names, ...) ((out) != NULL ? (void)(*(out) = NULL) : (void)0, PS_NEED(names, __VA_ARGS__))

/* Among the pointers: one that is looked at on a condition, an array of n > 0. */
#define PS_NEED_IF(is_needed, pointer) ((is_needed) ? (const void *)(pointer) : (const void *)"")

/* names: one for each pointer, with a space between them. */
PS_NODISCARD ps_status ps_need(const char *call, const char *names, const void *const *pointers, size_t n);

/* Store the message (cut at 1 KiB) as this thread's last error and return st. What of it is no text to print becomes
 * '?' (printable.h), so that messages may quote whatever is found in files. Debug builds append [file:line]. */
__attribute__((format(printf, 4, 5))) ps_status ps_fail(const char *file, int line, ps_status st, const char *fmt, ...);

/* Of the message that ps_fail has stored last: the rank that the failure arose on, its machine, whether that is another
 * than this thread's, and whether all ranks fail with it in the same call. ps_fail forgets it. */
void ps_fail_on_rank(int32_t rank, const char *host, bool is_remote, bool is_shared);

/* Is it a value of PS_STATUS_MAP? Functions of the program's may return any. */
bool ps_status_is_known(ps_status st);

/* How many failures this thread has recorded: a change says that the last error is a new one. */
unsigned ps_fail_count(void);

#endif
