/* json_stream.h - a JSON file written as it is made: a buffer, no text of the whole, all or nothing. */
#ifndef PS_BASE_JSON_STREAM_H
#define PS_BASE_JSON_STREAM_H

#include "base/status.h"

typedef struct ps_json_stream ps_json_stream;

/* The folder must exist; what is at `path` stays until the commit. PS_EIO. */
PS_NODISCARD ps_status ps_json_stream_open(const char *path, ps_json_stream **out);

/* Text as it is, at most 1 KiB at a time, from integers and plain words only: %f would follow the locale. After a failure
 * nothing more is written. */
__attribute__((format(printf, 2, 3))) void ps_json_put(ps_json_stream *j, const char *fmt, ...);

/* A string with its quotes. Bytes that are not UTF-8 become '?'. */
void ps_json_put_string(ps_json_stream *j, const char *text);

/* A number of `units` with `digits` decimals: (1234567, 3) is 1234.567. */
void ps_json_put_fixed(ps_json_stream *j, int64_t units, int digits);

/* The first failure, or the file is there. Frees the stream in either case. */
PS_NODISCARD ps_status ps_json_stream_commit(ps_json_stream *j);

/* Give up. NULL is accepted. */
void ps_json_stream_cancel(ps_json_stream *j);

#endif
