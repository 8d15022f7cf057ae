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

/* Files are little-endian on every machine. */
static uint32_t load_number(const unsigned char *p, int n_bytes)
{
    const uint32_t low = p[0] | (uint32_t)p[1] << 8;
    return n_bytes == 2 ? low : low | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void store_number(unsigned char *p, int n_bytes, uint32_t value)
{
    for (int i = 0; i < n_bytes; i++) p[i] = (unsigned char)(value >> 8 * i);
}

/* ---- reading ---- */

static ps_status check_header(ps_token_file *f)
{
    const char *path = ps_file_path(f->file);
    const int64_t n_bytes = ps_file_bytes(f->file);
    unsigned char header[HEADER_BYTES];
    PS_TRY(ps_file_read(f->file, 0, header, ps_min_i64(n_bytes, HEADER_BYTES)));
    const int32_t magic = n_bytes < 4 ? 0 : (int32_t)load_number(header, 4);
    size_t kind = 0;
    while (kind < PS_ARRAY_LEN(token_kinds) && token_kinds[kind].magic != magic) kind++;
    if (n_bytes >= 4 && kind == PS_ARRAY_LEN(token_kinds))
        return PS_FAIL(
            PS_EFORMAT,
            "%s: offset 0: magic %d, expected %d or %d; for uint16 tokens without a header, as nanoGPT writes "
            "them, set data.format = nanogpt or name the file *.u16",
            path, magic, token_kinds[0].magic, token_kinds[1].magic);
    if (n_bytes < HEADER_BYTES)
        return PS_FAIL(PS_EFORMAT, "%s: the file ends at offset %lld, expected a header of %d bytes and tokens", path,
                       (long long)n_bytes, HEADER_BYTES);
    const int32_t version = (int32_t)load_number(header + 4, 4), n_tokens = (int32_t)load_number(header + 8, 4);
    if (version != token_kinds[kind].version)
        return PS_FAIL(PS_EFORMAT, "%s: offset 4: version %d, expected %d", path, version, token_kinds[kind].version);
    if (n_tokens < 1) return PS_FAIL(PS_EFORMAT, "%s: offset 8: %d tokens, expected at least 1", path, n_tokens);
    f->id_bytes = token_kinds[kind].id_bytes;
    f->n_tokens = n_tokens;
    f->header_bytes = HEADER_BYTES;
    const int64_t expected = HEADER_BYTES + (int64_t)n_tokens * f->id_bytes;
    if (n_bytes != expected)
        return PS_FAIL(PS_EFORMAT,
                       "%s: the file ends at offset %lld, expected %lld for the %d tokens of %d bytes that the header "
                       "promises at offset 8",
                       path, (long long)n_bytes, (long long)expected, n_tokens, f->id_bytes);
    return PS_OK;
}

static ps_status check_bare(ps_token_file *f)
{
    const int64_t n_bytes = ps_file_bytes(f->file);
    if (n_bytes == 0 || n_bytes % 2 != 0)
        return PS_FAIL(PS_EFORMAT, "%s: the file ends at offset %lld, expected tokens of 2 bytes each, at least one",
                       ps_file_path(f->file), (long long)n_bytes);
    f->id_bytes = 2;
    f->n_tokens = n_bytes / 2;
    return PS_OK;
}

ps_status ps_token_file_open_as(const char *path, ps_token_format format, ps_token_file **out)
{
    *out = NULL;
    ps_status st;
    ps_token_file *f = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *f, &f));
    PS_TRY_GOTO(ps_file_open(path, &f->file));
    const size_t length = strlen(path);
    const bool is_named_bare = length >= 4 && strcmp(path + length - 4, ".u16") == 0;
    const bool is_bare = format == PS_TOKEN_FORMAT_NANOGPT || (format == PS_TOKEN_FORMAT_BY_NAME && is_named_bare);
    PS_TRY_GOTO(is_bare ? check_bare(f) : check_header(f));
    PS_TRY_GOTO(ps_file_map(f->file));
    *out = f;
    f = NULL;
out:
    ps_token_file_close(f);
    return st;
}

ps_status ps_token_file_open(const char *path, ps_token_file **out)
{
    return ps_token_file_open_as(path, PS_TOKEN_FORMAT_BY_NAME, out);
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
    const int64_t offset = f->header_bytes + first * f->id_bytes, n_bytes = n * f->id_bytes;
    ps_status st = PS_OK;
    const unsigned char *raw;
    PS_TRY(ps_file_begin_view(f->file, offset, n_bytes, &raw));
    for (int64_t i = 0; i < n && st == PS_OK; i++) {
        const uint32_t id = load_number(raw + i * f->id_bytes, f->id_bytes);
        if (id >= (uint32_t)vocab_size)
            st = PS_FAIL(PS_EFORMAT, "%s: offset %lld: token %lld has id %u, expected 0 to %d", ps_file_path(f->file),
                         (long long)(offset + i * f->id_bytes), (long long)(first + i), id, vocab_size - 1);
        out[i] = (int32_t)id;
    }
    ps_file_end_view(f->file, offset, n_bytes);
    return st;
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

struct ps_token_writer {
    ps_file_writer *file;
    char *path;
    int64_t n_ids;
    int32_t vocab_size;
    int kind;
    unsigned char block[BLOCK_TOKENS * 4];
};

ps_status ps_token_writer_open(const char *path, int32_t vocab_size, ps_token_writer **out)
{
    PS_ASSERT(vocab_size >= 1);
    *out = NULL;
    ps_status st;
    ps_token_writer *w = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *w, &w));
    w->vocab_size = vocab_size;
    w->kind = vocab_size > UINT16_MAX + 1;
    PS_TRY_GOTO(ps_mem_strdup(path, &w->path));
    PS_TRY_GOTO(ps_file_writer_open(path, &w->file));
    *out = w;
    w = NULL;
out:
    ps_token_writer_cancel(w);
    return st;
}

void ps_token_writer_cancel(ps_token_writer *w)
{
    if (w == NULL) return;
    ps_file_writer_cancel(w->file);
    ps_mem_free(w->path);
    ps_mem_free(w);
}

ps_status ps_token_writer_append(ps_token_writer *w, const int32_t *ids, int64_t n_ids)
{
    const int id_bytes = token_kinds[w->kind].id_bytes;
    if (n_ids > INT32_MAX - w->n_ids)
        return PS_FAIL(PS_EINVAL, "%s: %lld tokens, but a token file holds at most %d; write several files", w->path,
                       (long long)(w->n_ids + n_ids), INT32_MAX);
    for (int64_t at = 0; at < n_ids; at += BLOCK_TOKENS) {
        const int64_t n = ps_min_i64(BLOCK_TOKENS, n_ids - at);
        for (int64_t i = 0; i < n; i++) {
            const int32_t id = ids[at + i];
            if (id < 0 || id >= w->vocab_size)
                return PS_FAIL(PS_EINVAL, "%s: token %lld has id %d, expected 0 to %d", w->path,
                               (long long)(w->n_ids + i), id, w->vocab_size - 1);
            store_number(w->block + i * id_bytes, id_bytes, (uint32_t)id);
        }
        PS_TRY(ps_file_writer_write(w->file, HEADER_BYTES + w->n_ids * id_bytes, w->block, n * id_bytes));
        w->n_ids += n;
    }
    return PS_OK;
}

ps_status ps_token_writer_commit(ps_token_writer *w)
{
    ps_status st;
    unsigned char header[HEADER_BYTES] = {0};
    if (w->n_ids == 0) {
        st = PS_FAIL(PS_EINVAL, "%s: no tokens, but a token file holds at least 1", w->path);
        goto out;
    }
    store_number(header, 4, (uint32_t)token_kinds[w->kind].magic);
    store_number(header + 4, 4, (uint32_t)token_kinds[w->kind].version);
    store_number(header + 8, 4, (uint32_t)w->n_ids);
    PS_TRY_GOTO(ps_file_writer_write(w->file, 0, header, HEADER_BYTES));
    st = ps_file_writer_commit(w->file);
    w->file = NULL;
out:
    ps_token_writer_cancel(w);
    return st;
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
    ps_token_writer *w = NULL;
    PS_TRY(ps_token_writer_open(path, largest < INT32_MAX ? largest + 1 : largest, &w));
    const ps_status st = ps_token_writer_append(w, ids, n_ids);
    if (st != PS_OK) {
        ps_token_writer_cancel(w);
        return st;
    }
    return ps_token_writer_commit(w);
}
