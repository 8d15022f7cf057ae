/* bytes.h - sizes in bytes as text: "64MB", "1.5GiB", and back. */
#ifndef PS_BASE_BYTES_H
#define PS_BASE_BYTES_H

#include "base/status.h"
#include "patrickstar.h"

/* "auto": a size to be derived from the available memory. ps_bytes_parse never returns it. */
#define PS_BYTES_AUTO ((int64_t)-1)

/* Parse a decimal number, optionally with a fraction, and a unit: none or B; KB MB GB TB PB (powers of 1000);
 * KiB MiB GiB TiB PiB (powers of 1024); K M G T P are short for the latter. Any case, spaces between number and unit
 * allowed. Fractions of a byte are dropped. PS_EINVAL and *bytes = 0 when the text is not a size or exceeds 2^63 -
 * 1. */
PS_NODISCARD ps_status ps_bytes_parse(const char *text, int64_t *bytes);

/* For people: ps_bytes_format of patrickstar.h. */

/* Format as an option's value, with at most three digits: "87.5GB", "480kB", "999B". Rounded up, so that a size that
 * suffices still does. bytes >= 0. Returns text. */
const char *ps_bytes_round_up(int64_t bytes, char text[PS_BYTES_TEXT_MAX]);

#endif
