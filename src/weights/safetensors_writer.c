/* safetensors_writer.c - the writer of safetensors.h: the header first, then tensors in any order. */
#include <jansson.h>
#include <string.h>
#include <xxhash.h>

#include "base/base.h"
#include "base/file.h"
#include "base/mem.h"
#include "weights/safetensors.h"
#include "weights/safetensors_format.h"

/* Bytes written and then hashed: they stay in the cache in between. */
#define PUT_BYTES (256 * PS_KIB)
#define READ_BACK_BYTES (256 * PS_KIB)
/* Granularity of write-back requests to the disk. */
#define SYNC_BYTES (8 * PS_MIB)

/* State of tensor i while it is written. */
typedef struct writer_tensor {
    int64_t offset, n_bytes; /* offset from the start of the data until the header is written, then of the file */
    int64_t n_written;
    char *name; /* for messages */
} writer_tensor;

struct ps_safetensors_writer {
    ps_file_writer *file;
    writer_tensor *tensors; /* [n] */
    int n;
    char *path; /* for messages */

    /* the hash of the file's first n_hashed bytes, begun by the first ps_safetensors_writer_put */
    XXH3_state_t *hash;
    int64_t n_hashed, n_synced, header_bytes, n_file_bytes;
    int *by_offset; /* [n] tensors in the order of the file */
    int next;       /* by_offset[next] is the first tensor that is not completely hashed */
    char *read_back;
};

/* ---- header ---- */

/* Add key: value, which is owned by the object then, unless the key exists. A NULL value means out of memory. */
static ps_status put_once(const char *path, json_t *object, const char *key, json_t *value)
{
    const bool is_twice = json_object_get(object, key) != NULL;
    if (is_twice) json_decref(value);
    if (is_twice) return PS_FAIL(PS_EINVAL, "%s: the name %.128s is there twice", path, key);
    if (json_object_set_new(object, key, value) != 0)
        return PS_FAIL(PS_EINVAL, "%s: %.128s: name or value is not UTF-8, or memory is exhausted", path, key);
    return PS_OK;
}

static ps_status put_metadata(const char *path, json_t *header, const ps_safetensors_metadata *metadata, int n)
{
    if (n == 0) return PS_OK;
    json_t *object = json_object();
    PS_TRY(put_once(path, header, "__metadata__", object));
    for (int i = 0; i < n; i++) PS_TRY(put_once(path, object, metadata[i].key, json_string(metadata[i].value)));
    return PS_OK;
}

static ps_status put_tensor(const char *path, json_t *header, const ps_safetensor *t, const writer_tensor *laid)
{
    if (strcmp(t->name, "__metadata__") == 0)
        return PS_FAIL(PS_EINVAL, "%s: a tensor cannot be named __metadata__", path);
    json_t *shape = json_array();
    for (int i = 0; i < t->n_dims; i++) json_array_append_new(shape, json_integer(t->shape[i]));
    /* "o" takes ownership of shape, also when packing fails */
    json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", ps_safetensors_dtype_name(t->dtype), "shape", shape,
                              "data_offsets", (json_int_t)laid->offset, (json_int_t)(laid->offset + laid->n_bytes));
    return put_once(path, header, t->name, entry);
}

/* Lay out the tensors, elements of 8 bytes first, and make the header. */
static ps_status lay_out(ps_safetensors_writer *w, const ps_safetensor *tensors, json_t *header)
{
    int64_t end = 0;
    int n_placed = 0;
    for (int element_bytes = 8; element_bytes >= 1; element_bytes /= 2) {
        for (int i = 0; i < w->n; i++) {
            const ps_safetensor *t = &tensors[i];
            writer_tensor *laid = &w->tensors[i];
            if (ps_safetensors_dtype_bytes(t->dtype) != element_bytes) continue;
            laid->offset = end;
            if (!ps_safetensor_bytes(t, &laid->n_bytes) || __builtin_add_overflow(end, laid->n_bytes, &end))
                return PS_FAIL(PS_EINVAL, "%s: tensor %.128s: a dimension is negative, or the size overflows", w->path,
                               t->name);
            w->by_offset[n_placed++] = i;
            PS_TRY(ps_mem_strdup(t->name, &laid->name));
            PS_TRY(put_tensor(w->path, header, t, laid));
        }
    }
    w->n_file_bytes = end;
    return PS_OK;
}

static ps_status write_header(ps_safetensors_writer *w, const json_t *header)
{
    char *text = NULL;
    const size_t n_json = json_dumpb(header, NULL, 0, JSON_COMPACT);
    const int64_t n = ps_round_up((int64_t)n_json, 8);
    if (n_json == 0 || n > SAFETENSORS_HEADER_BYTES_MAX)
        return PS_FAIL(PS_EINVAL, "%s: header of %lld bytes, expected at most %d; write several files", w->path,
                       (long long)n, SAFETENSORS_HEADER_BYTES_MAX);
    PS_TRY(ps_mem_alloc((size_t)n + 8, 1, &text));
    memset(text + 8, ' ', (size_t)n);
    for (int i = 0; i < 8; i++) text[i] = (char)((uint64_t)n >> 8 * i);
    (void)json_dumpb(header, text + 8, n_json, JSON_COMPACT);
    const ps_status st = ps_file_writer_write(w->file, 0, text, 8 + n);
    ps_mem_free(text);
    for (int i = 0; i < w->n; i++) w->tensors[i].offset += 8 + n;
    w->header_bytes = 8 + n;
    w->n_file_bytes += 8 + n;
    return st;
}

/* ---- writing ---- */

ps_status ps_safetensors_writer_open(const char *path, const ps_safetensor *tensors, int n,
                                     const ps_safetensors_metadata *metadata, int n_metadata,
                                     ps_safetensors_writer **out)
{
    PS_ASSERT(n >= 0 && n_metadata >= 0);
    *out = NULL;
    ps_status st;
    json_t *header = json_object();
    ps_safetensors_writer *w = NULL;
    PS_TRY_GOTO(ps_mem_alloc(1, sizeof *w, &w));
    w->n = n;
    PS_TRY_GOTO(ps_mem_strdup(path, &w->path));
    PS_TRY_GOTO(ps_mem_alloc((size_t)n, sizeof *w->tensors, &w->tensors));
    PS_TRY_GOTO(ps_mem_alloc((size_t)n, sizeof *w->by_offset, &w->by_offset));
    PS_TRY_GOTO(put_metadata(path, header, metadata, n_metadata));
    PS_TRY_GOTO(lay_out(w, tensors, header));
    PS_TRY_GOTO(ps_file_writer_open(path, &w->file));
    PS_TRY_GOTO(write_header(w, header));
    *out = w;
    w = NULL;
out:
    json_decref(header);
    ps_safetensors_writer_cancel(w);
    return st;
}

ps_status ps_safetensors_writer_append(ps_safetensors_writer *w, int i, const void *data, int64_t n_bytes)
{
    PS_ASSERT(i >= 0 && i < w->n && n_bytes >= 0);
    writer_tensor *t = &w->tensors[i];
    if (n_bytes > t->n_bytes - t->n_written)
        return PS_FAIL(PS_EINVAL, "%s: tensor %.128s: %lld bytes after the first %lld, but it has %lld", w->path,
                       t->name, (long long)n_bytes, (long long)t->n_written, (long long)t->n_bytes);
    PS_TRY(ps_file_writer_write(w->file, t->offset + t->n_written, data, n_bytes));
    t->n_written += n_bytes;
    return PS_OK;
}

/* ---- writing in any order, with the hash of the whole file ---- */

static void hash_bytes(ps_safetensors_writer *w, const void *data, int64_t n_bytes)
{
    XXH3_64bits_update(w->hash, data, (size_t)n_bytes);
    w->n_hashed += n_bytes;
    if (w->n_hashed - w->n_synced < SYNC_BYTES) return;
    ps_file_writer_start_sync(w->file, w->n_synced, w->n_hashed - w->n_synced);
    w->n_synced = w->n_hashed;
}

static ps_status hash_back_to(ps_safetensors_writer *w, int64_t end)
{
    while (w->n_hashed < end) {
        const int64_t n = ps_min_i64(READ_BACK_BYTES, end - w->n_hashed);
        PS_TRY(ps_file_writer_read(w->file, w->n_hashed, w->read_back, n));
        hash_bytes(w, w->read_back, n);
    }
    return PS_OK;
}

/* Hash, by reading back, the completely written tensors up to the first one that is not. */
static ps_status catch_up(ps_safetensors_writer *w)
{
    for (; w->next < w->n; w->next++) {
        const writer_tensor *t = &w->tensors[w->by_offset[w->next]];
        if (t->n_written != t->n_bytes) return PS_OK;
        PS_TRY(hash_back_to(w, t->offset + t->n_bytes));
    }
    return PS_OK;
}

static ps_status begin_hash(ps_safetensors_writer *w)
{
    if (w->read_back == NULL) PS_TRY(ps_mem_alloc((size_t)READ_BACK_BYTES, 1, &w->read_back));
    w->hash = XXH3_createState();
    if (w->hash == NULL) return PS_FAIL(PS_ENOMEM_HOST, "no memory for a hash state");
    XXH3_64bits_reset(w->hash);
    return hash_back_to(w, w->header_bytes);
}

ps_status ps_safetensors_writer_put(ps_safetensors_writer *w, int i, int64_t offset, const void *data, int64_t n_bytes)
{
    PS_ASSERT(i >= 0 && i < w->n && offset >= 0 && n_bytes >= 0);
    writer_tensor *t = &w->tensors[i];
    if (offset > t->n_bytes || n_bytes > t->n_bytes - offset || n_bytes > t->n_bytes - t->n_written)
        return PS_FAIL(PS_EINVAL, "%s: tensor %.128s: %lld bytes at %lld, but it has %lld, %lld of them written",
                       w->path, t->name, (long long)n_bytes, (long long)offset, (long long)t->n_bytes,
                       (long long)t->n_written);
    if (w->hash == NULL) PS_TRY(begin_hash(w));
    for (int64_t done = 0; done < n_bytes; done += PUT_BYTES) {
        const int64_t n = ps_min_i64(PUT_BYTES, n_bytes - done), at = t->offset + offset + done;
        const char *from = (const char *)data + done;
        PS_TRY(ps_file_writer_write(w->file, at, from, n));
        if (at == w->n_hashed) hash_bytes(w, from, n);
        t->n_written += n;
    }
    return catch_up(w);
}

ps_status ps_safetensors_writer_xxh3(ps_safetensors_writer *w, uint64_t *xxh3, int64_t *n_bytes)
{
    if (w->hash == NULL) PS_TRY(begin_hash(w));
    PS_TRY(catch_up(w));
    PS_ASSERT(w->n_hashed == w->n_file_bytes);
    *xxh3 = XXH3_64bits_digest(w->hash);
    *n_bytes = w->n_file_bytes;
    return PS_OK;
}

ps_status ps_safetensors_writer_commit(ps_safetensors_writer *w)
{
    ps_status st = PS_OK;
    for (int i = 0; st == PS_OK && i < w->n; i++) {
        const writer_tensor *t = &w->tensors[i];
        if (t->n_written != t->n_bytes)
            st = PS_FAIL(PS_ESTATE, "%s: tensor %.128s: %lld of %lld bytes written", w->path, t->name,
                         (long long)t->n_written, (long long)t->n_bytes);
    }
    if (st == PS_OK) {
        st = ps_file_writer_commit(w->file);
        w->file = NULL;
    }
    ps_safetensors_writer_cancel(w);
    return st;
}

void ps_safetensors_writer_cancel(ps_safetensors_writer *w)
{
    if (w == NULL) return;
    ps_file_writer_cancel(w->file);
    for (int i = 0; w->tensors != NULL && i < w->n; i++) ps_mem_free(w->tensors[i].name);
    ps_mem_free(w->tensors);
    ps_mem_free(w->by_offset);
    ps_mem_free(w->read_back);
    if (w->hash != NULL) XXH3_freeState(w->hash);
    ps_mem_free(w->path);
    ps_mem_free(w);
}
