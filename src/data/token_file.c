#include "data/token_file.h"

#include <string.h>

#include "base/base.h"
#include "base/file.h"
#include "base/mem.h"

#define HEADER_WORDS 256
#define HEADER_BYTES (HEADER_WORDS * 4)
#define BLOCK_TOKENS 65536 /* tokens converted at a time */

/* The two kinds of llm.c; index 0 and 1. */
static const struct {
    int32_t magic, version;
    int id_bytes;
} token_kinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};

struct ps_token_file {
    ps_file *file;
    int64_t header_bytes, n_tokens;
    int id_bytes; /* 2 or 4 */
};

/* Files are little-endian, whatever the machine. */
static uint32_t token_load(const unsigned char *p, int n_bytes)
{
    const uint32_t low = p[0] | (uint32_t)p[1] << 8;
    return n_bytes == 2 ? low : low | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void token_store(unsigned char *p, int n_bytes, uint32_t value)
{
    for (int i = 0; i < n_bytes; i++) p[i] = (unsigned char)(value >> 8 * i);
}

/* ---- reading ---- */

static ps_status token_file_check_header(ps_token_file *f)
{
    const char *path = ps_file_path(f->file);
    const int64_t n_bytes = ps_file_bytes(f->file);
    unsigned char header[HEADER_BYTES];
    if (n_bytes < HEADER_BYTES)
        return PS_FAIL(PS_EFORMAT, "%s: %lld bytes, expected a header of %d bytes and tokens", path, (long long)n_bytes,
                       HEADER_BYTES);
    PS_TRY(ps_file_read(f->file, 0, header, HEADER_BYTES));
    const int32_t magic = (int32_t)token_load(header, 4), version = (int32_t)token_load(header + 4, 4);
    const int32_t n_tokens = (int32_t)token_load(header + 8, 4);
    size_t kind = 0;
    while (kind < PS_ARRAY_LEN(token_kinds) && token_kinds[kind].magic != magic) kind++;
    if (kind == PS_ARRAY_LEN(token_kinds))
        return PS_FAIL(PS_EFORMAT,
                       "%s: offset 0: magic %d, expected %d or %d (a file of uint16 tokens without header must be "
                       "named *.u16)",
                       path, magic, token_kinds[0].magic, token_kinds[1].magic);
    if (version != token_kinds[kind].version)
        return PS_FAIL(PS_EFORMAT, "%s: offset 4: version %d, expected %d", path, version, token_kinds[kind].version);
    if (n_tokens < 1) return PS_FAIL(PS_EFORMAT, "%s: offset 8: %d tokens, expected at least 1", path, n_tokens);
    f->id_bytes = token_kinds[kind].id_bytes;
    f->n_tokens = n_tokens;
    f->header_bytes = HEADER_BYTES;
    const int64_t expected = HEADER_BYTES + (int64_t)n_tokens * f->id_bytes;
    if (n_bytes != expected)
        return PS_FAIL(PS_EFORMAT, "%s: %lld bytes, expected %lld for the %d tokens of %d bytes the header promises",
                       path, (long long)n_bytes, (long long)expected, n_tokens, f->id_bytes);
    return PS_OK;
}

static ps_status token_file_check_bare(ps_token_file *f)
{
    const int64_t n_bytes = ps_file_bytes(f->file);
    if (n_bytes == 0 || n_bytes % 2 != 0)
        return PS_FAIL(PS_EFORMAT, "%s: %lld bytes, expected tokens of 2 bytes each, at least one",
                       ps_file_path(f->file), (long long)n_bytes);
    f->id_bytes = 2;
    f->n_tokens = n_bytes / 2;
    return PS_OK;
}

ps_status ps_token_file_open(const char *path, ps_token_file **out)
{
    *out = NULL;
    ps_status st;
    ps_token_file *f = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *f, &f));
    PS_TRY_GOTO(ps_file_open(path, &f->file));
    const size_t length = strlen(path);
    const bool is_bare = length >= 4 && strcmp(path + length - 4, ".u16") == 0;
    PS_TRY_GOTO(is_bare ? token_file_check_bare(f) : token_file_check_header(f));
    *out = f;
    f = NULL;
out:
    ps_token_file_close(f);
    return st;
}

void ps_token_file_close(ps_token_file *f)
{
    if (f == NULL) return;
    ps_file_close(f->file);
    ps_mem_free(f);
}

int64_t ps_token_file_count(const ps_token_file *f)
{
    return f->n_tokens;
}

ps_status ps_token_file_read(const ps_token_file *f, int64_t first, int64_t n, int32_t vocab_size, int32_t *out)
{
    PS_ASSERT(first >= 0 && n >= 0 && first + n <= f->n_tokens);
    /* The narrow ids go to the end of `out` and are widened from the front: the reader stays ahead of the writer. */
    unsigned char *raw = (unsigned char *)out + n * (4 - f->id_bytes);
    PS_TRY(ps_file_read(f->file, f->header_bytes + first * f->id_bytes, raw, n * f->id_bytes));
    for (int64_t i = 0; i < n; i++) {
        const uint32_t id = token_load(raw + i * f->id_bytes, f->id_bytes);
        if (id >= (uint32_t)vocab_size)
            return PS_FAIL(PS_EFORMAT, "%s: offset %lld: token %lld has id %u, expected 0 to %d", ps_file_path(f->file),
                           (long long)(f->header_bytes + (first + i) * f->id_bytes), (long long)(first + i), id,
                           vocab_size - 1);
        out[i] = (int32_t)id;
    }
    return PS_OK;
}

ps_status ps_token_file_check(const ps_token_file *f, int32_t vocab_size)
{
    int32_t *block = NULL;
    ps_status st = PS_OK;
    PS_TRY(ps_mem_alloc(BLOCK_TOKENS, sizeof *block, &block));
    for (int64_t at = 0; at < f->n_tokens; at += BLOCK_TOKENS)
        PS_TRY_GOTO(ps_token_file_read(f, at, ps_min_i64(BLOCK_TOKENS, f->n_tokens - at), vocab_size, block));
out:
    ps_mem_free(block);
    return st;
}

/* ---- writing ---- */

static ps_status token_file_write_ids(ps_file_writer *w, const int32_t *ids, int64_t n_ids, int id_bytes,
                                      unsigned char *block)
{
    for (int64_t at = 0; at < n_ids; at += BLOCK_TOKENS) {
        const int64_t n = ps_min_i64(BLOCK_TOKENS, n_ids - at);
        for (int64_t i = 0; i < n; i++) token_store(block + i * id_bytes, id_bytes, (uint32_t)ids[at + i]);
        PS_TRY(ps_file_writer_write(w, HEADER_BYTES + at * id_bytes, block, n * id_bytes));
    }
    return PS_OK;
}

ps_status ps_token_file_write(const char *path, const int32_t *ids, int64_t n_ids)
{
    if (n_ids < 1 || n_ids > INT32_MAX)
        return PS_FAIL(PS_EINVAL, "%s: %lld tokens, but a token file holds 1 to %d; write several files", path,
                       (long long)n_ids, INT32_MAX);
    int32_t largest = 0;
    for (int64_t i = 0; i < n_ids; i++) {
        if (ids[i] < 0)
            return PS_FAIL(PS_EINVAL, "%s: token %lld has id %d, expected >= 0", path, (long long)i, ids[i]);
        if (ids[i] > largest) largest = ids[i];
    }
    const int kind = largest > UINT16_MAX;
    ps_status st;
    ps_file_writer *w = NULL;
    unsigned char header[HEADER_BYTES] = {0}, *block = NULL;
    token_store(header, 4, (uint32_t)token_kinds[kind].magic);
    token_store(header + 4, 4, (uint32_t)token_kinds[kind].version);
    token_store(header + 8, 4, (uint32_t)n_ids);
    PS_TRY_GOTO(ps_mem_alloc(BLOCK_TOKENS, 4, &block));
    PS_TRY_GOTO(ps_file_writer_open(path, &w));
    PS_TRY_GOTO(ps_file_writer_write(w, 0, header, HEADER_BYTES));
    PS_TRY_GOTO(token_file_write_ids(w, ids, n_ids, token_kinds[kind].id_bytes, block));
    st = ps_file_writer_commit(w);
    w = NULL;
out:
    ps_file_writer_cancel(w);
    ps_mem_free(block);
    return st;
}
