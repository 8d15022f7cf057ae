#include "base/bytes.h"
#include "base/base.h"

#include <stdio.h>

/* Wide enough for any product of a 64-bit size. */
__extension__ typedef __int128 wide;

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Bytes in the unit that the whole of text names; 0 when it names none. */
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
        /* digits that far up are too large whatever follows; fraction digits that far down are below a byte */
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

const char *ps_bytes_format(int64_t bytes, char text[PS_BYTES_TEXT_MAX])
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    const char *sign = bytes < 0 ? "-" : "";
    const uint64_t magnitude = bytes < 0 ? 0 - (uint64_t)bytes : (uint64_t)bytes;
    if (magnitude < 1000) {
        snprintf(text, PS_BYTES_TEXT_MAX, "%s%u B", sign, (unsigned)magnitude);
        return text;
    }
    uint64_t unit = 1;
    size_t i = 0;
    /* 999.95 of a unit would round to 1000.0: take the next one */
    while (i + 1 < PS_ARRAY_LEN(units) && magnitude / unit >= 999 &&
           (magnitude / unit >= 1000 || magnitude % unit * 20 >= unit * 19)) {
        unit *= 1000;
        i++;
    }
    const uint64_t tenths = (uint64_t)(((wide)magnitude * 10 + unit / 2) / unit);
    snprintf(text, PS_BYTES_TEXT_MAX, "%s%llu.%u %s", sign, (unsigned long long)(tenths / 10), (unsigned)(tenths % 10),
             units[i]);
    return text;
}

const char *ps_bytes_round_up(int64_t bytes, char text[PS_BYTES_TEXT_MAX])
{
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB", "PB"};
    int64_t unit = 1;
    size_t i = 0;
    for (; i + 1 < PS_ARRAY_LEN(units) && bytes / unit >= 1000; i++) unit *= 1000;
    /* in hundredths of the unit below ten, in tenths below a hundred */
    int64_t parts = i == 0 ? 1 : bytes < 10 * unit ? 100 : bytes < 100 * unit ? 10 : 1;
    int64_t n = ps_ceil_div(bytes, unit / parts);
    while (parts > 1 && n % 10 == 0) n /= 10, parts /= 10;
    if (n >= 1000 && parts == 1 && i + 1 < PS_ARRAY_LEN(units)) n /= 1000, i++; /* 999.5 MB are 1 GB */
    const int digits = parts == 100 ? 2 : parts == 10 ? 1 : 0;
    if (digits > 0)
        snprintf(text, PS_BYTES_TEXT_MAX, "%lld.%0*lld%s", (long long)(n / parts), digits, (long long)(n % parts),
                 units[i]);
    else
        snprintf(text, PS_BYTES_TEXT_MAX, "%lld%s", (long long)n, units[i]);
    return text;
}
