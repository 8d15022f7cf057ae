#include "data/byte_source.h"

#include <string.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/base.h"
#include "base/file.h"
#include "base/mem.h"

enum {
    INPUT_BYTES = 1 << 16,
    MAGIC_BYTES = 4,
    WINDOW_LOG_MAX = 27,
    GZIP_WINDOW_BITS = 15 + 16,
    GZIP_FIRST_BYTE = 0x1f
};

/*     offset 0                  file_at - (end - begin)   file_at
 *     |--- decompressed      ---|--- input[begin..end) ---|--- not yet read ---| */
struct ps_byte_source {
    ps_file *file;
    ps_compression compression;
    int64_t file_at;
    /* of compressed files only */
    char *input;
    size_t begin, end;
    bool is_between; /* at the begin of the file, or at the end of a member or frame */
    bool has_gzip;
    bool has_member; /* gzip: one has been read to its end */
    z_stream gzip;
    ZSTD_DCtx *zstd;
};

/* ---- opening ---- */

static void *allocate(void *opaque, unsigned n, unsigned item_bytes)
{
    void *p = NULL;
    (void)opaque;
    return ps_mem_alloc(n, item_bytes, &p) == PS_OK ? p : NULL;
}

static void release(void *opaque, void *p)
{
    (void)opaque;
    ps_mem_free(p);
}

static ps_status find_compression(ps_byte_source *s)
{
    static const unsigned char gzip[] = {GZIP_FIRST_BYTE, 0x8b}, zstd[] = {0x28, 0xb5, 0x2f, 0xfd};
    unsigned char magic[MAGIC_BYTES] = {0};
    const int64_t n = ps_min_i64(MAGIC_BYTES, ps_file_bytes(s->file));
    PS_TRY(ps_file_read(s->file, 0, magic, n));
    if (memcmp(magic, gzip, sizeof gzip) == 0) s->compression = PS_COMPRESSION_GZIP;
    /* a frame that decoders skip may come first */
    const bool is_skipped = (magic[0] & 0xf0) == 0x50 && magic[1] == 0x2a && magic[2] == 0x4d && magic[3] == 0x18;
    if (is_skipped || memcmp(magic, zstd, sizeof zstd) == 0) s->compression = PS_COMPRESSION_ZSTD;
    return PS_OK;
}

static ps_status begin_decompression(ps_byte_source *s)
{
    if (s->compression == PS_COMPRESSION_NONE) return PS_OK;
    s->is_between = true;
    PS_TRY(ps_mem_alloc(INPUT_BYTES, 1, &s->input));
    if (s->compression == PS_COMPRESSION_GZIP) {
        s->gzip = (z_stream){.zalloc = allocate, .zfree = release};
        s->has_gzip = inflateInit2(&s->gzip, GZIP_WINDOW_BITS) == Z_OK;
        return s->has_gzip ? PS_OK : PS_FAIL(PS_ENOMEM_HOST, "%s: no memory to decompress it", ps_file_path(s->file));
    }
    s->zstd = ZSTD_createDCtx();
    if (s->zstd == NULL || ZSTD_isError(ZSTD_DCtx_setParameter(s->zstd, ZSTD_d_windowLogMax, WINDOW_LOG_MAX)))
        return PS_FAIL(PS_ENOMEM_HOST, "%s: no memory to decompress it", ps_file_path(s->file));
    return PS_OK;
}

ps_status ps_byte_source_open(const char *path, ps_byte_source **out)
{
    ps_status st;
    ps_byte_source *s = NULL;
    *out = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *s, &s));
    PS_TRY_GOTO(ps_file_open(path, &s->file));
    PS_TRY_GOTO(find_compression(s));
    PS_TRY_GOTO(begin_decompression(s));
    *out = s;
    s = NULL;
out:
    ps_byte_source_close(s);
    return st;
}

void ps_byte_source_close(ps_byte_source *s)
{
    if (s == NULL) return;
    if (s->has_gzip) (void)inflateEnd(&s->gzip);
    (void)ZSTD_freeDCtx(s->zstd);
    ps_mem_free(s->input);
    ps_file_close(s->file);
    ps_mem_free(s);
}

ps_compression ps_byte_source_compression(const ps_byte_source *s)
{
    return s->compression;
}

const char *ps_byte_source_path(const ps_byte_source *s)
{
    return ps_file_path(s->file);
}

int64_t ps_byte_source_bytes(const ps_byte_source *s)
{
    return s->compression == PS_COMPRESSION_NONE ? ps_file_bytes(s->file) : -1;
}

/* ---- reading ---- */

static ps_status fail_damaged(const ps_byte_source *s, const char *reason)
{
    return PS_FAIL(PS_EFORMAT, "%s: offset %lld of the compressed bytes: damaged: %s", ps_file_path(s->file),
                   (long long)(s->file_at - (int64_t)(s->end - s->begin)), reason);
}

/* Decompress into out[0..n_max), which may take input without output. */
static ps_status inflate_some(ps_byte_source *s, char *out, int64_t n_max, int64_t *n)
{
    z_stream *z = &s->gzip;
    if (s->is_between && inflateReset(z) != Z_OK) return fail_damaged(s, "zlib cannot begin a member");
    s->is_between = false;
    z->next_in = (unsigned char *)s->input + s->begin;
    z->avail_in = (unsigned)(s->end - s->begin);
    z->next_out = (unsigned char *)out;
    z->avail_out = (unsigned)ps_min_i64(n_max, INT32_MAX);
    const int code = inflate(z, Z_NO_FLUSH);
    *n = (char *)z->next_out - out;
    s->begin = s->end - z->avail_in;
    if (code == Z_STREAM_END) s->is_between = s->has_member = true;
    if (code == Z_MEM_ERROR) return PS_FAIL(PS_ENOMEM_HOST, "%s: no memory to decompress it", ps_file_path(s->file));
    if (code == Z_OK || code == Z_STREAM_END || code == Z_BUF_ERROR) return PS_OK;
    return fail_damaged(s, z->msg != NULL ? z->msg : "no gzip");
}

static ps_status decompress_zstd(ps_byte_source *s, char *out, int64_t n_max, int64_t *n)
{
    ZSTD_inBuffer input = {s->input, s->end, s->begin};
    ZSTD_outBuffer output = {out, (size_t)n_max, 0};
    const size_t left = ZSTD_decompressStream(s->zstd, &output, &input);
    s->begin = input.pos;
    *n = (int64_t)output.pos;
    if (!ZSTD_isError(left)) {
        s->is_between = left == 0;
        return PS_OK;
    }
    const ZSTD_ErrorCode code = ZSTD_getErrorCode(left);
    if (code == ZSTD_error_memory_allocation)
        return PS_FAIL(PS_ENOMEM_HOST, "%s: no memory to decompress it", ps_file_path(s->file));
    if (code != ZSTD_error_frameParameter_windowTooLarge) return fail_damaged(s, ZSTD_getErrorName(left));
    return PS_FAIL(PS_EFORMAT,
                   "%s: decompressing it needs a window of more than %d MiB: compress it again without --long",
                   ps_file_path(s->file), 1 << (WINDOW_LOG_MAX - 20));
}

static ps_status fill_input(ps_byte_source *s)
{
    const int64_t n = ps_min_i64(INPUT_BYTES, ps_file_bytes(s->file) - s->file_at);
    PS_TRY(ps_file_read(s->file, s->file_at, s->input, n));
    s->begin = 0;
    s->end = (size_t)n;
    s->file_at += n;
    return PS_OK;
}

static bool is_all_read(const ps_byte_source *s)
{
    return s->begin == s->end && s->file_at == ps_file_bytes(s->file);
}

/* After a member of gzip: zeros up to the end of the file are padding, as tar and tapes leave it (RFC 1952 has none, the
 * program gzip takes it). Other bytes must be the next member. */
static ps_status skip_padding(ps_byte_source *s)
{
    bool is_padded = false;
    for (;;) {
        if (s->begin == s->end && !is_all_read(s)) PS_TRY(fill_input(s));
        while (s->begin < s->end && s->input[s->begin] == 0) {
            s->begin++;
            is_padded = true;
        }
        if (s->begin < s->end || is_all_read(s)) break;
    }
    if (is_all_read(s) || (!is_padded && (unsigned char)s->input[s->begin] == GZIP_FIRST_BYTE)) return PS_OK;
    return fail_damaged(s,
                        "after the last gzip member come bytes that are neither a member nor zeros to the end; if they "
                        "are no text, cut the file there");
}

ps_status ps_byte_source_read(ps_byte_source *s, char *out, int64_t n_max, int64_t *n)
{
    PS_ASSERT(n_max > 0);
    *n = 0;
    if (s->compression == PS_COMPRESSION_NONE) {
        const int64_t here = ps_min_i64(n_max, ps_file_bytes(s->file) - s->file_at);
        PS_TRY(ps_file_read(s->file, s->file_at, out, here));
        s->file_at += here;
        *n = here;
        return PS_OK;
    }
    for (;;) {
        if (s->is_between && s->has_member) PS_TRY(skip_padding(s));
        if (is_all_read(s) && s->is_between) return PS_OK;
        if (s->begin == s->end && !is_all_read(s)) PS_TRY(fill_input(s));
        const size_t before = s->begin;
        PS_TRY((s->compression == PS_COMPRESSION_GZIP ? inflate_some : decompress_zstd)(s, out, n_max, n));
        if (*n > 0) return PS_OK;
        /* without more input nothing will come */
        if (s->begin == before && is_all_read(s) && !s->is_between)
            return PS_FAIL(PS_EFORMAT,
                           "%s: offset %lld: the compressed bytes end before the text does: is the file truncated?",
                           ps_file_path(s->file), (long long)s->file_at);
    }
}

/* The bytes of a compressed file when decompressed, or more than max_bytes. */
static ps_status count_decompressed(const char *path, int64_t max_bytes, int64_t *out)
{
    ps_status st;
    ps_byte_source *s = NULL;
    char *piece = NULL;
    int64_t n = 1;
    *out = 0;
    PS_TRY_GOTO(ps_byte_source_open(path, &s));
    PS_TRY_GOTO(ps_mem_alloc(INPUT_BYTES, 1, &piece));
    for (; n > 0 && *out <= max_bytes; *out += n) PS_TRY_GOTO(ps_byte_source_read(s, piece, INPUT_BYTES, &n));
out:
    ps_mem_free(piece);
    ps_byte_source_close(s);
    return st;
}

/* What is compressed is decompressed twice: memory that grew as the text comes would take several times its size. */
ps_status ps_byte_source_read_all(const char *path, int64_t max_bytes, const char *limit, char **out, int64_t *n_bytes)
{
    ps_byte_source *s = NULL;
    char *text = NULL;
    ps_status st;
    *out = NULL;
    *n_bytes = 0;
    PS_TRY(ps_byte_source_open(path, &s));
    int64_t all = 0, n = 1, bytes = ps_byte_source_bytes(s);
    const bool is_compressed = bytes < 0;
    if (is_compressed) PS_TRY_GOTO(count_decompressed(path, max_bytes, &bytes));
    if (bytes > max_bytes) {
        st = is_compressed ? PS_FAIL(PS_EFORMAT, "%s: more than %lld bytes when decompressed%s", path,
                                     (long long)max_bytes, limit)
                           : PS_FAIL(PS_EFORMAT, "%s: %lld bytes, expected at most %lld%s", path, (long long)bytes,
                                     (long long)max_bytes, limit);
        goto out;
    }
    PS_TRY_GOTO(ps_mem_alloc((size_t)bytes + 1, 1, &text));
    for (; n > 0 && all < bytes; all += n) PS_TRY_GOTO(ps_byte_source_read(s, text + all, bytes - all, &n));
    *out = text;
    *n_bytes = all;
    text = NULL;
out:
    ps_mem_free(text);
    ps_byte_source_close(s);
    return st;
}
