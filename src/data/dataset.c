#include "data/dataset.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/base.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/machine.h"
#include "base/mem.h"
#include "data/byte_source.h"
#include "data/jsonl.h"
#include "data/token_file.h"

#define TEXT_BYTES_MAX (64 * PS_GIB)
#define HASH_BLOCK_BYTES PS_MIB

struct ps_dataset {
    char *path;
    int32_t vocab_size;
    ps_token_file *file; /* or NULL, and then: */
    int32_t *ids;
    int64_t n_ids;
};

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), n_end = strlen(end);
    return n >= n_end && strcmp(s + n - n_end, end) == 0;
}

ps_config_data_format ps_dataset_format(const char *path, ps_config_data_format format)
{
    static const struct {
        const char *name;
        ps_config_data_format format;
    } formats[] = {{".bin", PS_CONFIG_DATA_FORMAT_LLMC},
                   {".u16", PS_CONFIG_DATA_FORMAT_NANOGPT},
                   {".jsonl", PS_CONFIG_DATA_FORMAT_JSONL}};
    static const char *const ends[] = {"", ".gz", ".zst"};
    char name[16];
    if (format != PS_CONFIG_DATA_FORMAT_AUTO) return format;
    for (size_t i = 0; i < PS_ARRAY_LEN(formats); i++)
        for (size_t k = 0; k < PS_ARRAY_LEN(ends); k++) {
            snprintf(name, sizeof name, "%s%s", formats[i].name, ends[k]);
            if (ends_with(path, name)) return formats[i].format;
        }
    /* as the files of C4 are called; a .json by itself may be anything */
    if (ends_with(path, ".json.gz") || ends_with(path, ".json.zst")) return PS_CONFIG_DATA_FORMAT_JSONL;
    return PS_CONFIG_DATA_FORMAT_TEXT;
}

/* ---- files of other formats ---- */

/* What a file is that python -m patrickstar.convert reads: "a Parquet file"; NULL: something else. */
static ps_status find_table(const char *path, const char **what)
{
    static const struct {
        const char *name, *magic, *what;
    } tables[] = {{".parquet", "PAR1", "a Parquet file"},
                  {".arrow", "ARROW1", "an Arrow file"},
                  {".feather", "\xff\xff\xff\xff", "an Arrow file"}}; /* a stream, as `datasets` writes */
    char first[8] = "";
    ps_file *f;
    *what = NULL;
    PS_TRY(ps_file_open(path, &f));
    const ps_status st = ps_file_read(f, 0, first, ps_min_i64(sizeof first - 1, ps_file_bytes(f)));
    ps_file_close(f);
    PS_TRY(st);
    for (size_t i = 0; i < PS_ARRAY_LEN(tables) && *what == NULL; i++)
        if (ends_with(path, tables[i].name) || memcmp(first, tables[i].magic, strlen(tables[i].magic)) == 0)
            *what = tables[i].what;
    return PS_OK;
}

/* "data/train.jsonl" of data/train.parquet or of the folder data/train/ */
static void name_lines(const char *path, char *out, size_t bytes)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    const char *slash = memrchr(path, '/', n), *dot = memrchr(path, '.', n);
    if (dot != NULL && dot > path && (slash == NULL || dot > slash + 1)) n = (size_t)(dot - path);
    snprintf(out, bytes, "%.*s.jsonl", (int)n, path);
}

ps_status ps_dataset_check_file(const char *path, ps_config_data_format format)
{
    enum { NAME_BYTES = 256 };
    char lines[NAME_BYTES];
    const char *what = "a folder";
    if (!ps_folder_exists(path)) PS_TRY(find_table(path, &what));
    name_lines(path, lines, sizeof lines);
    const ps_config_data_format is = ps_dataset_format(path, format);
    if (what != NULL && (is == PS_CONFIG_DATA_FORMAT_TEXT || is == PS_CONFIG_DATA_FORMAT_JSONL))
        return PS_FAIL(PS_EFORMAT,
                       "%s is %s, which pstar does not read: `python -m patrickstar.convert %s %s` makes JSON Lines of "
                       "it (pip install pyarrow)",
                       path, what, path, lines);
    if (is == PS_CONFIG_DATA_FORMAT_TEXT || is == PS_CONFIG_DATA_FORMAT_JSONL) return PS_OK;
    ps_byte_source *s;
    PS_TRY(ps_byte_source_open(path, &s));
    const ps_compression compression = ps_byte_source_compression(s);
    ps_byte_source_close(s);
    if (compression == PS_COMPRESSION_NONE) return PS_OK;
    return PS_FAIL(PS_EFORMAT,
                   "%s: a token file is read at random places and cannot be compressed: `%s -d %s` makes "
                   "a file that can be read",
                   path, compression == PS_COMPRESSION_GZIP ? "gzip" : "zstd", path);
}

/* ---- encoding: into a token file, or into memory when there is none ---- */

typedef struct encoding {
    ps_dataset *d;
    ps_token_writer *w;
} encoding;

static ps_status append_ids(void *context, const int32_t *ids, int64_t n)
{
    ps_dataset *d = ((encoding *)context)->d;
    ps_token_writer *w = ((encoding *)context)->w;
    if (w != NULL) {
        PS_TRY(ps_token_writer_append(w, ids, n));
    } else {
        PS_TRY(ps_mem_reserve(&d->ids, (size_t)(d->n_ids + n), sizeof *ids));
        memcpy(d->ids + d->n_ids, ids, (size_t)n * sizeof *ids);
    }
    d->n_ids += n;
    return PS_OK;
}

static ps_status encode_text(encoding *e, const ps_dataset_options *o, const char *text, int64_t n)
{
    return ps_tokenizer_encode_into(o->tokenizer, text, n, o->added_tokens, append_ids, e);
}

static ps_status encode_file(encoding *e, const ps_dataset_options *o)
{
    char *text = NULL;
    int64_t text_bytes, room = TEXT_BYTES_MAX;
    ps_machine_rss_info has = {0};
    if (o->memory_bytes > 0) {
        PS_TRY(ps_machine_rss(NULL, &has));
        /* a total that the process has used up is refused with what the model needs */
        if (o->memory_bytes > has.resident_bytes) room = ps_min_i64(room, o->memory_bytes - has.resident_bytes);
    }
    const char *limit = room == TEXT_BYTES_MAX
                            ? ""
                            : ", which is what memory.total leaves: text is in memory whole while its tokens are made. "
                              "Raise memory.total, or make a token file of it where there is more memory (pstar "
                              "tokenize), or JSON Lines, which are read line by line";
    PS_TRY(ps_byte_source_read_all(e->d->path, room, limit, &text, &text_bytes));
    const ps_status st = encode_text(e, o, text, text_bytes);
    ps_mem_free(text);
    return st;
}

static ps_status encode_jsonl(encoding *e, const ps_dataset_options *o)
{
    ps_status st;
    ps_jsonl *lines = NULL;
    PS_TRY_GOTO(ps_jsonl_open(e->d->path, &(ps_jsonl_keys){.text = o->text_key}, &lines));
    for (;;) {
        ps_jsonl_record record;
        bool has_record;
        PS_TRY_GOTO(ps_jsonl_next(lines, &record, &has_record));
        if (!has_record) break;
        if (e->d->n_ids > 0 && o->separator >= 0) PS_TRY_GOTO(append_ids(e, &o->separator, 1));
        PS_TRY_GOTO(encode_text(e, o, record.text, record.text_bytes));
    }
out:
    ps_jsonl_close(lines);
    return st;
}

static ps_status encode_all(ps_dataset *d, const ps_dataset_options *o, bool is_jsonl, ps_token_writer *w)
{
    encoding e = {d, w};
    d->n_ids = 0;
    PS_TRY(is_jsonl ? encode_jsonl(&e, o) : encode_file(&e, o));
    if (d->n_ids > 0) return PS_OK;
    return PS_FAIL(PS_EFORMAT, is_jsonl ? "%s: all its texts are empty" : "%s: offset 0: the text is empty", d->path);
}

/* ---- the cache ---- */

/* Hash of the content and of the options that determine the tokens, without the vocabulary. */
static ps_status hash_content(const ps_dataset *d, const ps_dataset_options *o, bool is_jsonl, uint64_t *out)
{
    ps_status st;
    ps_file *f = NULL;
    char *block = NULL;
    uint64_t hash = 0;
    PS_TRY_GOTO(ps_file_open(d->path, &f));
    PS_TRY_GOTO(ps_mem_alloc((size_t)HASH_BLOCK_BYTES, 1, &block));
    for (int64_t at = 0, all = ps_file_bytes(f); at < all; at += HASH_BLOCK_BYTES) {
        const int64_t n = ps_min_i64(HASH_BLOCK_BYTES, all - at);
        PS_TRY_GOTO(ps_file_read(f, at, block, n));
        hash = XXH3_64bits_withSeed(block, (size_t)n, hash);
    }
    if (is_jsonl) {
        hash = XXH3_64bits_withSeed(o->text_key, strlen(o->text_key), hash);
        hash = XXH3_64bits_withSeed(&o->separator, sizeof o->separator, hash);
    }
    *out = o->added_tokens ? XXH3_64bits_withSeed("added", 5, hash) : hash;
out:
    ps_mem_free(block);
    ps_file_close(f);
    return st;
}

static ps_status fill_cache(ps_dataset *d, const ps_dataset_options *o, bool is_jsonl, const char *name)
{
    ps_token_writer *w = NULL;
    PS_TRY(ps_token_writer_open(name, ps_tokenizer_vocab_size(o->tokenizer), &w));
    const ps_status st = encode_all(d, o, is_jsonl, w);
    if (st != PS_OK) {
        ps_token_writer_cancel(w);
        return st;
    }
    return ps_token_writer_commit(w);
}

/* Open the cached tokens of this text; write them first when they are missing or damaged. */
static ps_status open_cached(ps_dataset *d, const ps_dataset_options *o, bool is_jsonl)
{
    ps_status st;
    char *name = NULL;
    uint64_t hash;
    const size_t name_bytes = strlen(o->cache_folder) + 40;
    PS_TRY(hash_content(d, o, is_jsonl, &hash));
    PS_TRY(ps_mem_alloc(name_bytes, 1, &name));
    snprintf(name, name_bytes, "%s/%016llx-%016llx.bin", o->cache_folder, (unsigned long long)hash,
             (unsigned long long)ps_tokenizer_fingerprint(o->tokenizer));
    st = ps_file_exists(name) ? ps_token_file_open(name, &d->file) : PS_EFORMAT;
    if (st != PS_EFORMAT) goto out;
    PS_TRY_GOTO(fill_cache(d, o, is_jsonl, name));
    PS_TRY_GOTO(ps_token_file_open(name, &d->file));
out:
    ps_mem_free(name);
    return st;
}

/* ---- opening ---- */

static ps_status open_text(ps_dataset *d, const ps_dataset_options *o, bool is_jsonl)
{
    if (o->tokenizer == NULL)
        return PS_FAIL(PS_EINVAL, "%s: text needs a tokenizer; set data.tokenizer, or name a token file (*.bin, *.u16)",
                       d->path);
    if (ps_tokenizer_vocab_size(o->tokenizer) > d->vocab_size)
        return PS_FAIL(PS_EINVAL, "%s: the tokenizer has %d ids, but the model's vocabulary only %d", d->path,
                       ps_tokenizer_vocab_size(o->tokenizer), d->vocab_size);
    return o->cache_folder != NULL ? open_cached(d, o, is_jsonl) : encode_all(d, o, is_jsonl, NULL);
}

ps_status ps_dataset_open(const char *path, const ps_dataset_options *options, ps_dataset **out)
{
    PS_ASSERT(options->vocab_size > 0);
    *out = NULL;
    ps_status st;
    ps_dataset *d = NULL;
    const ps_config_data_format format = ps_dataset_format(path, options->format);
    PS_TRY(ps_mem_alloc(1, sizeof *d, &d));
    d->vocab_size = options->vocab_size;
    PS_TRY_GOTO(ps_mem_strdup(path, &d->path));
    if (format == PS_CONFIG_DATA_FORMAT_LLMC)
        PS_TRY_GOTO(ps_token_file_open_as(path, PS_TOKEN_FORMAT_LLMC, &d->file));
    else if (format == PS_CONFIG_DATA_FORMAT_NANOGPT)
        PS_TRY_GOTO(ps_token_file_open_as(path, PS_TOKEN_FORMAT_NANOGPT, &d->file));
    else
        PS_TRY_GOTO(open_text(d, options, format == PS_CONFIG_DATA_FORMAT_JSONL));
    if (d->file != NULL) {
        PS_TRY_GOTO(ps_token_file_check(d->file, d->vocab_size));
        d->n_ids = ps_token_file_count(d->file);
    }
    *out = d;
    d = NULL;
out:
    ps_dataset_close(d);
    return st;
}

void ps_dataset_close(ps_dataset *d)
{
    if (d == NULL) return;
    ps_token_file_close(d->file);
    ps_mem_free(d->ids);
    ps_mem_free(d->path);
    ps_mem_free(d);
}

int64_t ps_dataset_token_count(const ps_dataset *d)
{
    return d->n_ids;
}

const char *ps_dataset_path(const ps_dataset *d)
{
    return d->path;
}

ps_status ps_dataset_read(const ps_dataset *d, int64_t first, int64_t n, int32_t *out)
{
    PS_ASSERT(first >= 0 && n >= 0 && first + n <= d->n_ids);
    if (d->file != NULL) return ps_token_file_read(d->file, first, n, d->vocab_size, out);
    memcpy(out, d->ids + first, (size_t)n * sizeof *out);
    return PS_OK;
}
