#include "base/json_stream.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/utf8.h"

#define BUFFER_BYTES ((size_t)1 << 16)
#define PUT_BYTES ((size_t)1024)

struct ps_json_stream {
    ps_file_writer *file;
    int64_t offset; /* of the buffer's first byte in the file */
    size_t n;
    ps_status st;
    char buffer[BUFFER_BYTES];
};

ps_status ps_json_stream_open(const char *path, ps_json_stream **out)
{
    ps_json_stream *j = NULL;
    *out = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *j, &j));
    const ps_status st = ps_file_writer_open(path, &j->file);
    if (st == PS_OK)
        *out = j;
    else
        ps_mem_free(j);
    return st;
}

static void flush(ps_json_stream *j)
{
    if (j->st == PS_OK) j->st = ps_file_writer_write(j->file, j->offset, j->buffer, (int64_t)j->n);
    j->offset += (int64_t)j->n;
    j->n = 0;
}

void ps_json_put(ps_json_stream *j, const char *fmt, ...)
{
    if (BUFFER_BYTES - j->n < PUT_BYTES) flush(j);
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(j->buffer + j->n, PUT_BYTES, fmt, ap);
    va_end(ap);
    PS_ASSERT(n >= 0 && (size_t)n < PUT_BYTES);
    j->n += (size_t)n;
}

/* The next character of the text as JSON; returns how many bytes of it that were. */
static int put_character(ps_json_stream *j, const char *text, int64_t n_left)
{
    const unsigned char c = (unsigned char)*text;
    const int length = ps_utf8_length(text, n_left);
    if (length == 0)
        ps_json_put(j, "?");
    else if (c < 0x20)
        ps_json_put(j, "\\u%04x", c);
    else
        ps_json_put(j, "%s%.*s", c == '"' || c == '\\' ? "\\" : "", length, text);
    return length > 0 ? length : 1;
}

void ps_json_put_string(ps_json_stream *j, const char *text)
{
    const char *end = text + strlen(text);
    ps_json_put(j, "\"");
    while (text < end) text += put_character(j, text, end - text);
    ps_json_put(j, "\"");
}

void ps_json_put_fixed(ps_json_stream *j, int64_t units, int digits)
{
    int64_t scale = 1;
    for (int i = 0; i < digits; i++) scale *= 10;
    const uint64_t size = units < 0 ? -(uint64_t)units : (uint64_t)units;
    ps_json_put(j, "%s%llu.%0*llu", units < 0 ? "-" : "", (unsigned long long)(size / (uint64_t)scale), digits,
                (unsigned long long)(size % (uint64_t)scale));
}

ps_status ps_json_stream_commit(ps_json_stream *j)
{
    flush(j);
    const ps_status st = j->st;
    if (st != PS_OK) {
        ps_json_stream_cancel(j);
        return st;
    }
    ps_file_writer *file = j->file;
    ps_mem_free(j);
    return ps_file_writer_commit(file);
}

void ps_json_stream_cancel(ps_json_stream *j)
{
    if (j == NULL) return;
    ps_file_writer_cancel(j->file);
    ps_mem_free(j);
}
