/* text_out.h - writes text to a file piece by piece, with the escapes of its format.
 *
 * The first failure ends all writing, and ps_text_out_close returns it, so callers need not check each piece. */
#ifndef PS_BASE_TEXT_OUT_H
#define PS_BASE_TEXT_OUT_H

#include "base/file.h"

typedef struct ps_text_out {
    ps_file_writer *writer;
    int64_t offset; /* bytes written so far */
    int used;       /* of buffer */
    ps_status st;
    char buffer[8192];
} ps_text_out;

/* ps_text_out_close creates the file atomically. PS_EIO. */
PS_NODISCARD ps_status ps_text_out_open(ps_text_out *o, const char *path);

/* Returns the first failure of any write. Frees everything, also after a failure. */
PS_NODISCARD ps_status ps_text_out_close(ps_text_out *o);

void ps_text_out_bytes(ps_text_out *o, const char *text, size_t n_bytes);
void ps_text_out_string(ps_text_out *o, const char *text);

/* At most 1 KiB at a time; ps_text_out_string writes text of any length. Integers and words only, as %f depends on the
 * locale. */
__attribute__((format(printf, 2, 3))) void ps_text_out_format(ps_text_out *o, const char *format, ...);

/* Text of an XML or HTML element or attribute; control characters, which XML does not allow, become U+FFFD. */
void ps_text_out_xml(ps_text_out *o, const char *utf8);

/* A JSON string with its quotes, safe inside an HTML script element. Bytes that are not UTF-8 become '?'. */
void ps_text_out_json(ps_text_out *o, const char *utf8);

/* A number of `units` with `digits` decimals: (1234567, 3) is 1234.567. */
void ps_text_out_fixed(ps_text_out *o, int64_t units, int digits);

#endif
