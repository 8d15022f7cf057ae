/* unicode_class.h - character classes for the tokenizers. */
#ifndef PS_DATA_UNICODE_CLASS_H
#define PS_DATA_UNICODE_CLASS_H

#include <stdbool.h>
#include <stdint.h>
#include <utf8proc.h>

/* White_Space of Unicode's PropList. */
static inline bool ps_is_white_space(int32_t c)
{
    if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

/* General category P?, and printable ASCII that is neither letter, digit nor space. */
static inline bool ps_is_punctuation(int32_t c)
{
    if (c < 0x80)
        return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
    const utf8proc_category_t category = utf8proc_category(c);
    return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

static inline bool ps_is_mark(int32_t c) /* M? */
{
    const utf8proc_category_t category = utf8proc_category(c);
    return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

static inline bool ps_is_number(int32_t c) /* N? */
{
    if (c < 0x80) return c >= '0' && c <= '9';
    const utf8proc_category_t category = utf8proc_category(c);
    return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

/* A word character, as \w of Rust's regular expressions: letters, marks, Nd, Nl, Pc, and the two joiners. */
static inline bool ps_is_word(int32_t c)
{
    const utf8proc_category_t category = utf8proc_category(c);
    return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_PC && category != UTF8PROC_CATEGORY_NO) ||
           c == 0x200C || c == 0x200D;
}

#endif
