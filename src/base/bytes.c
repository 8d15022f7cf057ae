#include "base/bytes.h"
#include "base/base.h"

#include <stdio.h>

/* Wide enough for a 64-bit size times a unit. */
__extension__ typedef __int128 wide;

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Bytes of the unit that text names; 0 when it names none. */
static int64_t unit_bytes(const char *text)
{
    static const char letters[] = "kmgtp";
    if (text[0] == '\0' || (lower(text[0]) == 'b' && text[1] == '\0')) return 1;
    int power = 0;
    while (letters[power] != '\0' && letters[power] != lower(text[0])) power++;
    if (letters[power] == '\0') return 0;
    text++;
    int64_t base;
    if (text[0] == '\0' || (lower(text[0]) == 'i' && lower(text[1]) == 'b' && text[2] == '\0'))
        base = 1024;
    else if (lower(text[0]) == 'b' && text[1] == '\0')
        base = 1000;
    else
        return 0;
    int64_t bytes = base;
    for (int i = 0; i < power; i++) bytes *= base;
    return bytes;
}

/* The number is kept as integer digits / denominator, so that 0.1 GB is exactly 10^8 bytes. */
ps_status ps_bytes_parse(const char *text, int64_t *bytes)
{
    *bytes = 0;
    const char *p = text;
    wide digits = 0, denominator = 1;
    bool any = false;
    for (bool fraction = false; is_digit(*p) || (*p == '.' && !fraction); p++) {
        if (*p == '.') {
            fraction = true;
            continue;
        }
        any = true;
        /* more integer digits are too large in any case; further fraction digits are below a byte */
        if (digits > INT64_MAX || denominator > INT64_MAX) continue;
        digits = digits * 10 + (*p - '0');
        if (fraction) denominator *= 10;
    }
    while (*p == ' ') p++;
    const int64_t unit = unit_bytes(p);
    if (!any || unit == 0)
        return PS_FAIL(PS_EINVAL, "'%.40s' is not a size; write bytes as an integer, or a unit as in 64MB or 1.5GiB",
                       text);
    /* digits < 10 * 2^63 + 10 and unit <= 2^50: the product stays below 2^117 */
    const wide value = digits * unit / denominator;
    if (value > INT64_MAX) return PS_FAIL(PS_EINVAL, "'%.40s' exceeds the largest size, 2^63 - 1", text);
    *bytes = (int64_t)value;
    return PS_OK;
}

/* Three digits at most, zeros behind the point left out; `gap` stands between number and unit. */
static const char *format_size(uint64_t bytes, bool rounds_up, const char *sign, const char *gap,
                               char text[PS_BYTES_TEXT_MAX])
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    const size_t last = rounds_up ? 5 : 6; /* options have no EB */
    uint64_t unit = 1;
    size_t i = 0;
    for (; i < last && bytes / unit >= 1000; i++) unit *= 1000;
    /* in hundredths of the unit below ten, in tenths below a hundred */
    unsigned parts = i == 0 ? 1 : bytes / unit < 10 ? 100 : bytes / unit < 100 ? 10 : 1;
    wide n = ((wide)bytes * parts + (rounds_up ? unit - 1 : unit / 2)) / unit;
    if (n >= 1000 && parts == 1 && i < last) n /= 1000, i++; /* 999.5 MB are 1 GB */
    while (parts > 1 && n % 10 == 0) n /= 10, parts /= 10;
    const unsigned number = (unsigned)n;
    const int digits = parts == 100 ? 2 : parts == 10 ? 1 : 0;
    if (digits > 0)
        snprintf(text, PS_BYTES_TEXT_MAX, "%s%u.%0*u%s%s", sign, number / parts, digits, number % parts, gap, units[i]);
    else
        snprintf(text, PS_BYTES_TEXT_MAX, "%s%u%s%s", sign, number, gap, units[i]);
    return text;
}

const char *ps_bytes_format(int64_t bytes, char text[PS_BYTES_TEXT_MAX])
{
    const bool is_negative = bytes < 0;
    return format_size(is_negative ? 0 - (uint64_t)bytes : (uint64_t)bytes, false, is_negative ? "-" : "", " ", text);
}

const char *ps_bytes_round_up(int64_t bytes, char text[PS_BYTES_TEXT_MAX])
{
    return format_size((uint64_t)bytes, true, "", "", text);
}
