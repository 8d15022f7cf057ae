/* log.h - what the library would print if it printed (ps_set_log). */
#ifndef PS_BASE_LOG_H
#define PS_BASE_LOG_H

#include "base/status.h"

/* A line without a newline, cut at 1 KiB. Any thread; nothing is made where nobody listens. */
__attribute__((format(printf, 2, 3))) void ps_log(ps_log_level level, const char *format, ...);

#endif
