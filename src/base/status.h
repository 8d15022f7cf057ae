/* status.h - raising and forwarding errors inside the library. */
#ifndef PS_BASE_STATUS_H
#define PS_BASE_STATUS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/base.h"
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

/* First line of a public function, with its pointers: PS_EINVAL, naming the function and the first pointer that is
 * NULL. PS_TRY(PS_NEED("engine path", e, path)); */
#define PS_NEED(names, ...)                                                                                            \
    ps_need(__func__, names, (const void *const[]){__VA_ARGS__}, sizeof((const void *[]){__VA_ARGS__}) / sizeof(void *))

/* The same for a function with *out = NULL on failure; out is one of the pointers. */
#define PS_NEED_FOR(out, names, ...) ((out) != NULL ? (void)(*(out) = NULL) : (void)0, PS_NEED(names, __VA_ARGS__))

/* For a pointer that is checked on a condition only, such as an array of n > 0. */
#define PS_NEED_IF(is_needed, pointer) ((is_needed) ? (const void *)(pointer) : (const void *)"")

/* names: one for each pointer, separated by spaces. */
PS_PRIVATE_API PS_NODISCARD ps_status ps_need(const char *call, const char *names, const void *const *pointers,
                                              size_t n);

/* Store the message (cut at 1 KiB) as this thread's last error and return st. Characters that are not printable become
 * '?' (printable.h), so that messages may quote text from files. Debug builds append [file:line]. */
PS_PRIVATE_API __attribute__((format(printf, 4, 5))) ps_status ps_fail(const char *file, int line, ps_status st,
                                                                       const char *fmt, ...);

/* Set the details of the last message of ps_fail: the rank on which the failure arose, its machine, whether it is
 * another rank than this thread's, and whether all ranks fail with it in the same call. The next ps_fail clears
 * them. */
void ps_fail_on_rank(int32_t rank, const char *host, bool is_remote, bool is_shared);

/* This thread's result of ps_get_last_failure. */
const ps_failure *ps_fail_last(void);

/* Whether st is a value of PS_STATUS_MAP; callbacks of the program may return any number. */
bool ps_status_is_known(ps_status st);

/* Number of failures that this thread has recorded; it changes with each new last error. */
unsigned ps_fail_count(void);

#endif
