/* bytes.h - sizes in bytes as text: "64MB", "1.5GiB", and back. */
#ifndef PS_BASE_BYTES_H
#define PS_BASE_BYTES_H

#include "base/status.h"

/* A size to be chosen from the memory that is available. Never the result of ps_bytes_parse. */
#define PS_BYTES_AUTO ((int64_t)-1)

/* Parse a decimal number, optionally with a fraction, and a unit: none or B; KB MB GB TB PB (powers of 1000);
 * KiB MiB GiB TiB PiB (powers of 1024); K M G T P are short for the latter. Any case, spaces between number and unit
 * allowed. Fractions of a byte are dropped. PS_EINVAL, *bytes = 0 when the text is no size or exceeds 2^63 - 1. */
PS_NODISCARD ps_status ps_bytes_parse(const char *text, int64_t *bytes);

enum { PS_BYTES_TEXT_MAX = 24 };

/* Write for people, in powers of 1000, from kB on with one decimal, rounded to nearest: "999 B", "96.0 MB", "-1.5 GB".
 * Returns text. */
const char *ps_bytes_format(int64_t bytes, char text[PS_BYTES_TEXT_MAX]);

/* Write as an option takes it, with three digits at most: "87.5GB", "480KB", "999B". No less than bytes, which are from
 * 0 on, so that what is enough stays enough. Returns text. */
const char *ps_bytes_round_up(int64_t bytes, char text[PS_BYTES_TEXT_MAX]);

#endif
