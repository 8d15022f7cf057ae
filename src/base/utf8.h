/* utf8.h - one character of UTF-8 at a time. */
#ifndef PS_BASE_UTF8_H
#define PS_BASE_UTF8_H

#include <stdint.h>

/* Length of the well-formed UTF-8 character (Unicode standard, table 3-7) at p, 0 when there is none. n >= 1. */
static inline int ps_utf8_length(const char *text, int64_t n)
{
    const unsigned char *p = (const unsigned char *)text;
    if (p[0] < 0x80) return 1;
    const int length = p[0] < 0xC2 ? 0 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : p[0] < 0xF5 ? 4 : 0;
    if (length == 0 || length > n) return 0;
    /* no overlong forms, no surrogates, nothing above U+10FFFF */
    const unsigned char least = p[0] == 0xE0 ? 0xA0 : p[0] == 0xF0 ? 0x90 : 0x80;
    const unsigned char most = p[0] == 0xED ? 0x9F : p[0] == 0xF4 ? 0x8F : 0xBF;
    if (p[1] < least || p[1] > most) return 0;
    for (int i = 2; i < length; i++)
        if ((p[i] & 0xC0) != 0x80) return 0;
    return length;
}

/* The character at p, which must be well-formed; *length is its number of bytes. */
static inline int32_t ps_utf8_get(const char *p, int *length)
{
    const unsigned char first = (unsigned char)p[0];
    *length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (*length == 1) return first;
    int32_t c = first & (0x7F >> *length);
    for (int i = 1; i < *length; i++) c = c << 6 | ((unsigned char)p[i] & 0x3F);
    return c;
}

/* The length of the character that ends before p; the text is well-formed and has one. */
static inline int ps_utf8_length_before(const char *p)
{
    int length = 1;
    while (length < 4 && ((unsigned char)p[-length] & 0xC0) == 0x80) length++;
    return length;
}

/* Write c, at most U+10FFFF and not a surrogate, to dst, which has room for 4 bytes; returns the number of bytes. */
static inline int ps_utf8_put(int32_t c, char *dst)
{
    if (c < 0x80) {
        dst[0] = (char)c;
        return 1;
    }
    const int length = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    const int mark[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (int i = length - 1; i > 0; i--, c >>= 6) dst[i] = (char)(0x80 | (c & 0x3F));
    dst[0] = (char)(mark[length] | c);
    return length;
}

#endif
