#include "data/dataset.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/base.h"
#include "base/file.h"
#include "base/mem.h"
#include "data/token_file.h"

#define TEXT_BYTES_MAX (64 * PS_GIB)

struct ps_dataset {
    char *path;
    int32_t vocab_size;
    ps_token_file *file; /* or NULL, and then: */
    int32_t *ids;
    int64_t n_ids;
};

static bool dataset_ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), n_end = strlen(end);
    return n >= n_end && strcmp(s + n - n_end, end) == 0;
}

/* The cached tokens of this text, written first when they are not there or damaged. */
static ps_status dataset_open_cached(ps_dataset *d, ps_tokenizer *t, const char *folder, const char *text,
                                     int64_t text_bytes)
{
    ps_status st;
    int32_t *ids = NULL;
    int64_t n_ids;
    char *name = NULL;
    const size_t name_bytes = strlen(folder) + 40;
    PS_TRY(ps_mem_alloc(name_bytes, 1, &name));
    snprintf(name, name_bytes, "%s/%016llx-%016llx.bin", folder,
             (unsigned long long)XXH3_64bits(text, (size_t)text_bytes),
             (unsigned long long)ps_tokenizer_fingerprint(t));
    st = ps_file_exists(name) ? ps_token_file_open(name, &d->file) : PS_EFORMAT;
    if (st != PS_EFORMAT) goto out;
    PS_TRY_GOTO(ps_tokenizer_encode(t, text, text_bytes, &ids, &n_ids));
    PS_TRY_GOTO(ps_token_file_write(name, ids, n_ids));
    PS_TRY_GOTO(ps_token_file_open(name, &d->file));
out:
    ps_mem_free(ids);
    ps_mem_free(name);
    return st;
}

static ps_status dataset_open_text(ps_dataset *d, ps_tokenizer *t, const char *cache_folder)
{
    if (t == NULL)
        return PS_FAIL(PS_EINVAL,
                       "%s: text needs a tokenizer; give a vocabulary folder, or a token file (*.bin, *.u16)", d->path);
    if (ps_tokenizer_vocab_size(t) > d->vocab_size)
        return PS_FAIL(PS_EINVAL, "%s: the tokenizer has %d ids, but the model's vocabulary only %d", d->path,
                       ps_tokenizer_vocab_size(t), d->vocab_size);
    ps_status st;
    char *text = NULL;
    int64_t text_bytes;
    PS_TRY(ps_file_read_all(d->path, TEXT_BYTES_MAX, &text, &text_bytes));
    if (text_bytes == 0) {
        st = PS_FAIL(PS_EFORMAT, "%s: the text is empty", d->path);
        goto out;
    }
    PS_TRY_GOTO(cache_folder != NULL ? dataset_open_cached(d, t, cache_folder, text, text_bytes)
                                     : ps_tokenizer_encode(t, text, text_bytes, &d->ids, &d->n_ids));
out:
    ps_mem_free(text);
    return st;
}

ps_status ps_dataset_open(const char *path, ps_tokenizer *tokenizer, const char *cache_folder, int32_t vocab_size,
                          ps_dataset **out)
{
    PS_ASSERT(vocab_size > 0);
    *out = NULL;
    ps_status st;
    ps_dataset *d = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *d, &d));
    d->vocab_size = vocab_size;
    PS_TRY_GOTO(ps_mem_strdup(path, &d->path));
    if (dataset_ends_with(path, ".bin") || dataset_ends_with(path, ".u16"))
        PS_TRY_GOTO(ps_token_file_open(path, &d->file));
    else
        PS_TRY_GOTO(dataset_open_text(d, tokenizer, cache_folder));
    if (d->file != NULL) {
        PS_TRY_GOTO(ps_token_file_check(d->file, vocab_size));
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
