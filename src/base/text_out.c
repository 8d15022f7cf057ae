#include "base/text_out.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/utf8.h"

ps_status ps_text_out_open(ps_text_out *o, const char *path)
{
    o->writer = NULL;
    o->offset = 0;
    o->used = 0;
    o->st = ps_file_writer_open(path, &o->writer);
    return o->st;
}

static void flush(ps_text_out *o)
{
    if (o->st == PS_OK) o->st = ps_file_writer_write(o->writer, o->offset, o->buffer, o->used);
    o->offset += o->used;
    o->used = 0;
}

ps_status ps_text_out_close(ps_text_out *o)
{
    flush(o);
    if (o->st == PS_OK) return ps_file_writer_commit(o->writer);
    ps_file_writer_cancel(o->writer);
    return o->st;
}

void ps_text_out_bytes(ps_text_out *o, const char *text, size_t n_bytes)
{
    while (n_bytes > 0) {
        const size_t room = sizeof o->buffer - (size_t)o->used, n = n_bytes < room ? n_bytes : room;
        memcpy(o->buffer + o->used, text, n);
        o->used += (int)n;
        text += n;
        n_bytes -= n;
        if (o->used == (int)sizeof o->buffer) flush(o);
    }
}

void ps_text_out_string(ps_text_out *o, const char *text)
{
    ps_text_out_bytes(o, text, strlen(text));
}

void ps_text_out_format(ps_text_out *o, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    PS_ASSERT(n >= 0 && n < (int)sizeof text);
    ps_text_out_string(o, text);
}

void ps_text_out_xml(ps_text_out *o, const char *utf8)
{
    for (const char *c = utf8; *c != '\0'; c++) {
        switch (*c) {
        case '<': ps_text_out_string(o, "&lt;"); break;
        case '>': ps_text_out_string(o, "&gt;"); break;
        case '&': ps_text_out_string(o, "&amp;"); break;
        case '"': ps_text_out_string(o, "&quot;"); break;
        default:
            if ((unsigned char)*c < 0x20 || *c == 0x7f)
                ps_text_out_string(o, "\xEF\xBF\xBD");
            else
                ps_text_out_bytes(o, c, 1);
        }
    }
}

/* Write the next character as JSON; returns its number of bytes. */
static int64_t put_json_character(ps_text_out *o, const char *text, int64_t n_left)
{
    const unsigned char c = (unsigned char)*text;
    const int length = ps_utf8_length(text, n_left);
    if (length == 0)
        ps_text_out_string(o, "?");
    else if (c < 0x20 || strchr("<>&\x7f", c) != NULL)
        ps_text_out_format(o, "\\u%04x", c);
    else {
        if (c == '"' || c == '\\') ps_text_out_string(o, "\\");
        ps_text_out_bytes(o, text, (size_t)length);
    }
    return length > 0 ? length : 1;
}

void ps_text_out_json(ps_text_out *o, const char *utf8)
{
    const char *const end = utf8 + strlen(utf8);
    ps_text_out_string(o, "\"");
    while (utf8 < end) utf8 += put_json_character(o, utf8, end - utf8);
    ps_text_out_string(o, "\"");
}

void ps_text_out_fixed(ps_text_out *o, int64_t units, int digits)
{
    int64_t scale = 1;
    for (int i = 0; i < digits; i++) scale *= 10;
    const uint64_t size = units < 0 ? -(uint64_t)units : (uint64_t)units;
    ps_text_out_format(o, "%s%llu.%0*llu", units < 0 ? "-" : "", (unsigned long long)(size / (uint64_t)scale), digits,
                       (unsigned long long)(size % (uint64_t)scale));
}
