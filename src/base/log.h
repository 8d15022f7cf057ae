/* log.h - log lines for the program's log function (ps_set_log). */
#ifndef PS_BASE_LOG_H
#define PS_BASE_LOG_H

#include "base/status.h"

/* A line without a newline, cut at 1 KiB. Any thread; no text is formatted when there is no log function. */
__attribute__((format(printf, 2, 3))) void ps_log(ps_log_level level, const char *format, ...);

#endif
