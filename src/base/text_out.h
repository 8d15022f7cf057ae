/* text_out.h - text into a file, piece by piece, in the escapes of what is written.
 *
 * The first failure is kept and ends all writing; ps_text_out_close tells it. So callers need not look at each
 * piece. */
#ifndef PS_BASE_TEXT_OUT_H
#define PS_BASE_TEXT_OUT_H

#include "base/file.h"

typedef struct ps_text_out {
    ps_file_writer *writer;
    int64_t offset; /* written so far */
    int used;       /* of buffer */
    ps_status st;
    char buffer[8192];
} ps_text_out;

/* The file appears at ps_text_out_close, complete or not at all. PS_EIO. */
PS_NODISCARD ps_status ps_text_out_open(ps_text_out *o, const char *path);

/* The status of all that was written. Frees what is held, whether it succeeds or not. */
PS_NODISCARD ps_status ps_text_out_close(ps_text_out *o);

void ps_text_out_bytes(ps_text_out *o, const char *text, size_t n_bytes);
void ps_text_out_string(ps_text_out *o, const char *text);

/* At most 1 KiB at a time; for text of any length there is ps_text_out_string. Integers and words only: %f would follow
 * the locale. */
__attribute__((format(printf, 2, 3))) void ps_text_out_format(ps_text_out *o, const char *format, ...);

/* Text of an XML or HTML element or attribute; control characters become U+FFFD, which XML would refuse. */
void ps_text_out_xml(ps_text_out *o, const char *utf8);

/* A JSON string with its quotes that may stand inside an HTML script element. Bytes that are not UTF-8 become '?'. */
void ps_text_out_json(ps_text_out *o, const char *utf8);

/* A number of `units` with `digits` decimals: (1234567, 3) is 1234.567. */
void ps_text_out_fixed(ps_text_out *o, int64_t units, int digits);

#endif
