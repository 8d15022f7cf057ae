/* torch_zip_writer.c - headers are written last, when the CRCs are known; their offsets follow from the sizes. */
#include "weights/torch_zip_writer.h"

#include <stdbool.h>
#include <string.h>

#include "base/base.h"
#include "base/mem.h"
#include "weights/torch_zip_format.h"

#define FOLDER "archive/"
#define FOLDER_BYTES ((int64_t)(sizeof FOLDER - 1))
#define NAME_BYTES_MAX 200
#define DATA_ALIGNMENT 64
#define PADDING_ID 0x4246u /* "FB", as PyTorch's own */
#define EXTRA_HEAD_BYTES 4 /* of an extra field: id, size */
#define LOCAL64_BYTES (EXTRA_HEAD_BYTES + 16)
#define DATE_1980 0x0021u /* 1 January */
#define VERSION_STORED 10u
#define VERSION_ZIP64 45u

typedef struct zip_record {
    char *name;
    int64_t header, offset, n_bytes; /* header and data: offsets in the file */
} zip_record;

struct ps_torch_zip_writer {
    ps_file_writer *file;
    zip_record *records; /* [n] */
    int n;
    int64_t directory, directory_bytes; /* its offset */
};

/* ---- little-endian numbers ---- */

static uint8_t *put(uint8_t *p, int n_bytes, uint64_t value)
{
    for (int i = 0; i < n_bytes; i++) *p++ = (uint8_t)(value >> 8 * i);
    return p;
}

static uint8_t *put_text(uint8_t *p, const char *text, int64_t n)
{
    memcpy(p, text, (size_t)n);
    return p + n;
}

static uint32_t low32(int64_t value)
{
    return value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
}

static bool is_large(int64_t value)
{
    return value >= UINT32_MAX;
}

/* ---- layout ---- */

static int64_t name_bytes(const zip_record *r)
{
    return FOLDER_BYTES + (int64_t)strlen(r->name);
}

/* Bytes before the data, without padding. */
static int64_t local_bytes(const zip_record *r)
{
    return ZIP_LOCAL_BYTES + name_bytes(r) + (is_large(r->n_bytes) ? LOCAL64_BYTES : 0) + EXTRA_HEAD_BYTES;
}

static int64_t entry_extra_bytes(const zip_record *r)
{
    const int64_t n = (is_large(r->n_bytes) ? 16 : 0) + (is_large(r->header) ? 8 : 0);
    return n > 0 ? EXTRA_HEAD_BYTES + n : 0;
}

static ps_status lay_out(ps_torch_zip_writer *w, const char *path, const ps_torch_new_record *records)
{
    int64_t end = 0;
    for (int i = 0; i < w->n; i++) {
        zip_record *r = &w->records[i];
        PS_ASSERT(records[i].n_bytes >= 0 && strlen(records[i].name) <= NAME_BYTES_MAX);
        PS_TRY(ps_mem_strdup(records[i].name, &r->name));
        r->n_bytes = records[i].n_bytes;
        r->header = end;
        r->offset = ps_round_up(end + local_bytes(r), DATA_ALIGNMENT);
        /* with room for the trailer and for the next header */
        if (r->n_bytes > INT64_MAX / 2 - r->offset)
            return PS_FAIL(PS_EINVAL, "%s: record %.128s: %lld bytes at offset %lld overflow", path, r->name,
                           (long long)r->n_bytes, (long long)r->offset);
        end = r->offset + r->n_bytes;
        w->directory_bytes += ZIP_ENTRY_BYTES + name_bytes(r) + entry_extra_bytes(r);
    }
    w->directory = end;
    if (w->directory_bytes > ZIP_DIRECTORY_BYTES_MAX)
        return PS_FAIL(PS_EINVAL,
                       "%s: a directory of %lld bytes for %d records, expected at most %lld; write several files", path,
                       (long long)w->directory_bytes, w->n, (long long)ZIP_DIRECTORY_BYTES_MAX);
    return PS_OK;
}

ps_status ps_torch_zip_writer_open(const char *path, const ps_torch_new_record *records, int n,
                                   ps_torch_zip_writer **out)
{
    *out = NULL;
    ps_torch_zip_writer *w = NULL;
    ps_status st;
    PS_TRY_GOTO(ps_mem_alloc(1, sizeof *w, &w));
    w->n = n;
    PS_TRY_GOTO(ps_mem_alloc((size_t)n, sizeof *w->records, &w->records));
    PS_TRY_GOTO(lay_out(w, path, records));
    PS_TRY_GOTO(ps_file_writer_open(path, &w->file));
    *out = w;
    w = NULL;
out:
    ps_torch_zip_writer_cancel(w);
    return st;
}

ps_status ps_torch_zip_writer_write(const ps_torch_zip_writer *w, int i, int64_t at, const void *data, int64_t n_bytes)
{
    PS_ASSERT(i >= 0 && i < w->n && at >= 0 && n_bytes >= 0 && n_bytes <= w->records[i].n_bytes - at);
    return ps_file_writer_write(w->file, w->records[i].offset + at, data, n_bytes);
}

/* ---- headers ---- */

/* Fields that the local header and the directory's entry share, from the version to the length of the name. */
static uint8_t *put_common(uint8_t *p, const zip_record *r, bool is_zip64, uint32_t crc32)
{
    p = put(p, 2, is_zip64 ? VERSION_ZIP64 : VERSION_STORED);
    p = put(p, 2, 0); /* flags */
    p = put(p, 2, 0); /* stored */
    p = put(p, 2, 0); /* time */
    p = put(p, 2, DATE_1980);
    p = put(p, 4, crc32);
    p = put(p, 4, low32(r->n_bytes)); /* as stored */
    p = put(p, 4, low32(r->n_bytes));
    return put(p, 2, (uint64_t)name_bytes(r));
}

static ps_status write_local(const ps_torch_zip_writer *w, const zip_record *r, uint32_t crc32)
{
    uint8_t head[ZIP_LOCAL_BYTES + FOLDER_BYTES + NAME_BYTES_MAX + LOCAL64_BYTES + EXTRA_HEAD_BYTES + DATA_ALIGNMENT];
    const bool is_zip64 = is_large(r->n_bytes);
    const int64_t padding = r->offset - r->header - local_bytes(r);
    uint8_t *p = put(head, 4, ZIP_SIGNATURE_LOCAL);
    p = put_common(p, r, is_zip64, crc32);
    p = put(p, 2, (uint64_t)((is_zip64 ? LOCAL64_BYTES : 0) + EXTRA_HEAD_BYTES + padding));
    p = put_text(p, FOLDER, FOLDER_BYTES);
    p = put_text(p, r->name, (int64_t)strlen(r->name));
    if (is_zip64) {
        p = put(p, 2, ZIP_EXTRA_ZIP64);
        p = put(p, 2, 16);
        p = put(p, 8, (uint64_t)r->n_bytes);
        p = put(p, 8, (uint64_t)r->n_bytes);
    }
    p = put(p, 2, PADDING_ID);
    p = put(p, 2, (uint64_t)padding);
    memset(p, 'Z', (size_t)padding);
    return ps_file_writer_write(w->file, r->header, head, r->offset - r->header);
}

static uint8_t *put_entry(uint8_t *p, const zip_record *r, uint32_t crc32)
{
    const int64_t n_extra = entry_extra_bytes(r);
    p = put(p, 4, ZIP_SIGNATURE_ENTRY);
    p = put(p, 2, 0); /* made by */
    p = put_common(p, r, n_extra > 0, crc32);
    p = put(p, 2, (uint64_t)n_extra);
    p = put(p, 6, 0); /* comment, volume, attributes inside */
    p = put(p, 4, 0); /* attributes outside */
    p = put(p, 4, low32(r->header));
    p = put_text(p, FOLDER, FOLDER_BYTES);
    p = put_text(p, r->name, (int64_t)strlen(r->name));
    if (n_extra == 0) return p;
    p = put(p, 2, ZIP_EXTRA_ZIP64);
    p = put(p, 2, (uint64_t)(n_extra - EXTRA_HEAD_BYTES));
    if (is_large(r->n_bytes)) p = put(put(p, 8, (uint64_t)r->n_bytes), 8, (uint64_t)r->n_bytes);
    return is_large(r->header) ? put(p, 8, (uint64_t)r->header) : p;
}

/* Every file has the zip64 end, as in PyTorch, so that this code is always tested. */
static uint8_t *put_ends(uint8_t *p, const ps_torch_zip_writer *w)
{
    const uint64_t n = (uint64_t)w->n;
    p = put(p, 4, ZIP_SIGNATURE_END64);
    p = put(p, 8, (uint64_t)ZIP_END64_BYTES - 12); /* of what follows */
    p = put(p, 2, VERSION_ZIP64);
    p = put(p, 2, VERSION_ZIP64);
    p = put(p, 8, 0); /* volumes */
    p = put(put(p, 8, n), 8, n);
    p = put(p, 8, (uint64_t)w->directory_bytes);
    p = put(p, 8, (uint64_t)w->directory);
    p = put(p, 4, ZIP_SIGNATURE_LOCATOR);
    p = put(p, 4, 0); /* volume */
    p = put(p, 8, (uint64_t)(w->directory + w->directory_bytes));
    p = put(p, 4, 1); /* volumes in all */
    p = put(p, 4, ZIP_SIGNATURE_END);
    p = put(p, 4, 0);
    p = put(put(p, 2, n < UINT16_MAX ? n : UINT16_MAX), 2, n < UINT16_MAX ? n : UINT16_MAX);
    p = put(p, 4, low32(w->directory_bytes));
    p = put(p, 4, low32(w->directory));
    return put(p, 2, 0); /* comment */
}

static ps_status write_headers(const ps_torch_zip_writer *w, const uint32_t *crc32s)
{
    uint8_t *directory = NULL;
    const int64_t n_bytes = w->directory_bytes + ZIP_END64_BYTES + ZIP_LOCATOR_BYTES + ZIP_END_BYTES;
    ps_status st;
    PS_TRY(ps_mem_alloc((size_t)n_bytes, 1, &directory));
    uint8_t *p = directory;
    for (int i = 0; i < w->n; i++) {
        PS_TRY_GOTO(write_local(w, &w->records[i], crc32s[i]));
        p = put_entry(p, &w->records[i], crc32s[i]);
    }
    p = put_ends(p, w);
    PS_ASSERT(p == directory + n_bytes);
    st = ps_file_writer_write(w->file, w->directory, directory, n_bytes);
out:
    ps_mem_free(directory);
    return st;
}

ps_status ps_torch_zip_writer_commit(ps_torch_zip_writer *w, const uint32_t *crc32s)
{
    ps_status st = write_headers(w, crc32s);
    if (st == PS_OK) {
        st = ps_file_writer_commit(w->file);
        w->file = NULL;
    }
    ps_torch_zip_writer_cancel(w);
    return st;
}

void ps_torch_zip_writer_cancel(ps_torch_zip_writer *w)
{
    if (w == NULL) return;
    ps_file_writer_cancel(w->file);
    for (int i = 0; w->records != NULL && i < w->n; i++) ps_mem_free(w->records[i].name);
    ps_mem_free(w->records);
    ps_mem_free(w);
}
