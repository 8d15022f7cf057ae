#include "weights/torch_zip.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/crc32.h"
#include "base/mem.h"
#include "base/name_index.h"
#include "weights/torch_zip_format.h"

#define COMMENT_BYTES_MAX ((int64_t)65535)
#define FLAG_ENCRYPTED 1u

struct ps_torch_zip {
    const ps_file *file;
    int64_t directory_offset, directory_bytes, n_entries;
    ps_torch_record *records; /* [n], by offset */
    int n;
    char *names; /* storage of the records' names */
    ps_name_index index;
};

static uint32_t get16(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t get32(const uint8_t *p)
{
    return get16(p) | get16(p + 2) << 16;
}

static uint64_t get64(const uint8_t *p)
{
    return (uint64_t)get32(p) | (uint64_t)get32(p + 4) << 32;
}

/* ---- the end: where the directory is ---- */

static ps_status no_end(const ps_torch_zip *z)
{
    /* The format of torch.save before 1.6: a sequence of pickles, the first a magic number (torch/serialization.py). */
    static const uint8_t legacy[] = {0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20};
    uint8_t head[sizeof legacy] = {0};
    if (ps_file_bytes(z->file) >= (int64_t)sizeof head) PS_TRY(ps_file_read(z->file, 0, head, sizeof head));
    if (memcmp(head, legacy, sizeof legacy) == 0)
        return PS_FAIL(
            PS_EFORMAT,
            "%s: written by torch.save in the format before PyTorch 1.6; load it in Python and save it again by "
            "torch.save or safetensors.torch.save_file",
            ps_file_path(z->file));
    return PS_FAIL(PS_EFORMAT, "%s: no end of a zip file in it: it is cut, or was not written by torch.save",
                   ps_file_path(z->file));
}

/* The zip64 end, when the locator before the end at `end` names one; 32-bit fields are all ones then or equal. */
static ps_status find_end64(ps_torch_zip *z, int64_t end)
{
    uint8_t locator[ZIP_LOCATOR_BYTES], b[ZIP_END64_BYTES];
    if (end < ZIP_LOCATOR_BYTES + ZIP_END64_BYTES) return PS_OK;
    PS_TRY(ps_file_read(z->file, end - ZIP_LOCATOR_BYTES, locator, ZIP_LOCATOR_BYTES));
    if (get32(locator) != ZIP_SIGNATURE_LOCATOR) return PS_OK;
    const uint64_t at = get64(locator + 8);
    if (at > (uint64_t)(end - ZIP_LOCATOR_BYTES - ZIP_END64_BYTES))
        return PS_FAIL(PS_EFORMAT, "%s: offset %lld: the zip64 end is said to be at %llu", ps_file_path(z->file),
                       (long long)(end - ZIP_LOCATOR_BYTES), (unsigned long long)at);
    PS_TRY(ps_file_read(z->file, (int64_t)at, b, ZIP_END64_BYTES));
    if (get32(b) != ZIP_SIGNATURE_END64)
        return PS_FAIL(PS_EFORMAT, "%s: offset %llu: no zip64 end of central directory", ps_file_path(z->file),
                       (unsigned long long)at);
    if (get32(b + 16) != 0 || get32(b + 20) != 0 || get64(b + 24) != get64(b + 32))
        return PS_FAIL(PS_EFORMAT, "%s: a zip file of several volumes", ps_file_path(z->file));
    const uint64_t n = get64(b + 32), n_bytes = get64(b + 40), offset = get64(b + 48);
    if (offset > at || n_bytes > at - offset || n > n_bytes / (uint64_t)ZIP_ENTRY_BYTES)
        return PS_FAIL(PS_EFORMAT, "%s: offset %llu: %llu directory entries in %llu bytes at offset %llu",
                       ps_file_path(z->file), (unsigned long long)at, (unsigned long long)n,
                       (unsigned long long)n_bytes, (unsigned long long)offset);
    z->n_entries = (int64_t)n;
    z->directory_bytes = (int64_t)n_bytes;
    z->directory_offset = (int64_t)offset;
    return PS_OK;
}

static ps_status read_end(ps_torch_zip *z, const uint8_t *b, int64_t end)
{
    if (get16(b + 4) != 0 || get16(b + 6) != 0 || get16(b + 8) != get16(b + 10))
        return PS_FAIL(PS_EFORMAT, "%s: a zip file of several volumes", ps_file_path(z->file));
    z->n_entries = get16(b + 10);
    z->directory_bytes = get32(b + 12);
    z->directory_offset = get32(b + 16);
    PS_TRY(find_end64(z, end));
    if (z->directory_offset > end || z->directory_bytes > end - z->directory_offset ||
        z->n_entries > z->directory_bytes / ZIP_ENTRY_BYTES)
        return PS_FAIL(PS_EFORMAT, "%s: offset %lld: %lld directory entries in %lld bytes at offset %lld",
                       ps_file_path(z->file), (long long)end, (long long)z->n_entries, (long long)z->directory_bytes,
                       (long long)z->directory_offset);
    if (z->directory_bytes > ZIP_DIRECTORY_BYTES_MAX)
        return PS_FAIL(PS_EFORMAT, "%s: a directory of %lld bytes, expected at most %lld", ps_file_path(z->file),
                       (long long)z->directory_bytes, (long long)ZIP_DIRECTORY_BYTES_MAX);
    return PS_OK;
}

/* Look for the end backwards: a comment may follow it. */
static ps_status find_end(ps_torch_zip *z)
{
    const int64_t n = ps_min_i64(ps_file_bytes(z->file), ZIP_END_BYTES + COMMENT_BYTES_MAX);
    const int64_t first = ps_file_bytes(z->file) - n;
    uint8_t *tail = NULL;
    ps_status st = PS_OK;
    PS_TRY_GOTO(ps_mem_alloc((size_t)n, 1, &tail));
    PS_TRY_GOTO(ps_file_read(z->file, first, tail, n));
    for (int64_t i = n - ZIP_END_BYTES; i >= 0; i--) {
        if (get32(tail + i) != ZIP_SIGNATURE_END || get16(tail + i + 20) != n - ZIP_END_BYTES - i) continue;
        st = read_end(z, tail + i, first + i);
        goto out;
    }
    st = no_end(z);
out:
    ps_mem_free(tail);
    return st;
}

/* ---- the directory ---- */

typedef struct zip_entry {
    const uint8_t *name;
    uint32_t name_bytes, flags, method;
    uint64_t packed_bytes, n_bytes, local_offset;
} zip_entry;

/* The values of fields of all ones are in the zip64 extra field, in this order. */
static bool take_extra64(zip_entry *e, const uint8_t *extra, uint32_t n)
{
    uint64_t *const fields[] = {&e->n_bytes, &e->packed_bytes, &e->local_offset};
    for (uint32_t at = 0; at + 4 <= n;) {
        const uint32_t id = get16(extra + at), n_field = get16(extra + at + 2);
        const uint8_t *p = extra + at + 4, *const field_end = p + n_field;
        if (n_field > n - at - 4) return false;
        for (size_t f = 0; id == ZIP_EXTRA_ZIP64 && f < PS_ARRAY_LEN(fields); f++) {
            if (*fields[f] != UINT32_MAX) continue;
            if (field_end - p < 8) return false;
            *fields[f] = get64(p);
            p += 8;
        }
        at += 4 + n_field;
    }
    return true;
}

/* Offset of the data. The local header has another name and extra field, which PyTorch uses for padding. */
static ps_status check_local(const ps_torch_zip *z, const zip_entry *e, ps_torch_record *r)
{
    const char *path = ps_file_path(z->file);
    uint8_t b[ZIP_LOCAL_BYTES], name[UINT16_MAX];
    const uint64_t room = (uint64_t)z->directory_offset;
    if (e->local_offset > room || room - e->local_offset < (uint64_t)ZIP_LOCAL_BYTES + e->name_bytes)
        return PS_FAIL(PS_EFORMAT, "%s: record %.128s at offset %llu, but the directory begins at %lld", path, r->name,
                       (unsigned long long)e->local_offset, (long long)z->directory_offset);
    PS_TRY(ps_file_read(z->file, (int64_t)e->local_offset, b, ZIP_LOCAL_BYTES));
    PS_TRY(ps_file_read(z->file, (int64_t)e->local_offset + ZIP_LOCAL_BYTES, name, e->name_bytes));
    if (get32(b) != ZIP_SIGNATURE_LOCAL || get16(b + 8) != e->method || get16(b + 26) != e->name_bytes ||
        memcmp(name, e->name, e->name_bytes) != 0)
        return PS_FAIL(PS_EFORMAT, "%s: offset %llu: the header of record %.128s is not the directory's", path,
                       (unsigned long long)e->local_offset, r->name);
    const uint64_t data = e->local_offset + (uint64_t)ZIP_LOCAL_BYTES + e->name_bytes + get16(b + 28);
    if (data > room || e->n_bytes > room - data)
        return PS_FAIL(PS_EFORMAT, "%s: record %.128s of %llu bytes at offset %llu, but the directory begins at %lld",
                       path, r->name, (unsigned long long)e->n_bytes, (unsigned long long)data,
                       (long long)z->directory_offset);
    r->offset = (int64_t)data;
    r->n_bytes = (int64_t)e->n_bytes;
    return PS_OK;
}

/* The entry at p, of at most `room` bytes; its name goes to *names. */
static ps_status take_entry(ps_torch_zip *z, const uint8_t **p, int64_t room, char **names, ps_torch_record *r)
{
    const char *path = ps_file_path(z->file);
    const uint8_t *b = *p;
    if (room < ZIP_ENTRY_BYTES || get32(b) != ZIP_SIGNATURE_ENTRY)
        return PS_FAIL(PS_EFORMAT, "%s: offset %lld: no entry of the directory, expected %lld of them", path,
                       (long long)(z->directory_offset + z->directory_bytes - room), (long long)z->n_entries);
    zip_entry e = {.name = b + ZIP_ENTRY_BYTES,
                   .name_bytes = get16(b + 28),
                   .flags = get16(b + 8),
                   .method = get16(b + 10),
                   .packed_bytes = get32(b + 20),
                   .n_bytes = get32(b + 24),
                   .local_offset = get32(b + 42)};
    const uint32_t n_extra = get16(b + 30);
    const int64_t n = ZIP_ENTRY_BYTES + e.name_bytes + n_extra + get16(b + 32);
    if (n > room || memchr(e.name, 0, e.name_bytes) != NULL || !take_extra64(&e, e.name + e.name_bytes, n_extra))
        return PS_FAIL(PS_EFORMAT, "%s: offset %lld: a damaged entry of the directory", path,
                       (long long)(z->directory_offset + z->directory_bytes - room));
    memcpy(*names, e.name, e.name_bytes); /* zero-terminated, as the memory is zeroed and has an additional byte for
                                             each name */
    r->name = *names;
    r->crc32 = get32(b + 16);
    if ((e.flags & FLAG_ENCRYPTED) != 0) return PS_FAIL(PS_EFORMAT, "%s: record %.128s is encrypted", path, r->name);
    if (e.method != 0 || e.packed_bytes != e.n_bytes)
        return PS_FAIL(PS_EFORMAT, "%s: record %.128s is compressed; torch.save stores records as they are", path,
                       r->name);
    PS_TRY(check_local(z, &e, r));
    *names += e.name_bytes + 1;
    *p += n;
    return PS_OK;
}

static int compare_offset(const void *a, const void *b)
{
    const ps_torch_record *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->n_bytes < y->n_bytes ? -1 : x->n_bytes > y->n_bytes;
}

static ps_status check_records(ps_torch_zip *z)
{
    const char *path = ps_file_path(z->file);
    if (z->n > 0) qsort(z->records, (size_t)z->n, sizeof *z->records, compare_offset);
    PS_TRY(ps_name_index_init(&z->index, z->n));
    for (int i = 0; i < z->n; i++) {
        ps_torch_record *r = &z->records[i];
        if (i > 0 && r->offset < r[-1].offset + r[-1].n_bytes)
            return PS_FAIL(PS_EFORMAT, "%s: records %.128s and %.128s overlap at offset %lld", path, r[-1].name,
                           r->name, (long long)r->offset);
        /* all records are in one folder, named after the original file */
        const char *slash = strchr(r->name, '/');
        if (slash == NULL || strncmp(r->name, z->names, (size_t)(slash - r->name) + 1) != 0)
            return PS_FAIL(PS_EFORMAT, "%s: record %.128s is not in the folder of the others", path, r->name);
        r->name = slash + 1;
        if (!ps_name_index_add(&z->index, r->name, i))
            return PS_FAIL(PS_EFORMAT, "%s: record %.128s is there twice", path, r->name);
    }
    return PS_OK;
}

static ps_status read_directory(ps_torch_zip *z)
{
    uint8_t *directory = NULL;
    ps_status st = PS_OK;
    PS_TRY_GOTO(ps_mem_alloc((size_t)z->directory_bytes, 1, &directory));
    PS_TRY_GOTO(ps_mem_alloc((size_t)z->n_entries, sizeof *z->records, &z->records));
    PS_TRY_GOTO(ps_mem_alloc((size_t)z->directory_bytes, 1, &z->names)); /* an entry has 46 bytes in addition to its
                                                                            name */
    PS_TRY_GOTO(ps_file_read(z->file, z->directory_offset, directory, z->directory_bytes));
    const uint8_t *p = directory;
    char *names = z->names;
    for (; z->n < z->n_entries; z->n++)
        PS_TRY_GOTO(take_entry(z, &p, z->directory_bytes - (p - directory), &names, &z->records[z->n]));
    if (p - directory != z->directory_bytes) {
        st = PS_FAIL(PS_EFORMAT, "%s: offset %lld: %lld bytes after the last entry of the directory",
                     ps_file_path(z->file), (long long)(z->directory_offset + (p - directory)),
                     (long long)(z->directory_bytes - (p - directory)));
        goto out;
    }
    st = check_records(z);
out:
    ps_mem_free(directory);
    return st;
}

ps_status ps_torch_zip_open(const ps_file *file, ps_torch_zip **out)
{
    *out = NULL;
    ps_torch_zip *z = NULL;
    ps_status st;
    PS_TRY(ps_mem_alloc(1, sizeof *z, &z));
    z->file = file;
    PS_TRY_GOTO(find_end(z));
    PS_TRY_GOTO(read_directory(z));
    *out = z;
    return PS_OK;
out:
    ps_torch_zip_close(z);
    return st;
}

void ps_torch_zip_close(ps_torch_zip *z)
{
    if (z == NULL) return;
    ps_name_index_deinit(&z->index);
    ps_mem_free(z->names);
    ps_mem_free(z->records);
    ps_mem_free(z);
}

int ps_torch_zip_count(const ps_torch_zip *z)
{
    return z->n;
}

const ps_torch_record *ps_torch_zip_get(const ps_torch_zip *z, int i)
{
    PS_ASSERT(i >= 0 && i < z->n);
    return &z->records[i];
}

const ps_torch_record *ps_torch_zip_find(const ps_torch_zip *z, const char *name)
{
    const int32_t i = ps_name_index_find(&z->index, name);
    return i >= 0 ? &z->records[i] : NULL;
}

ps_status ps_torch_zip_read(const ps_torch_zip *z, const ps_torch_record *r, int64_t max_bytes, char **data)
{
    const char *path = ps_file_path(z->file);
    ps_status st = PS_OK;
    *data = NULL;
    char *bytes = NULL;
    ps_crc32_table table;
    if (r->n_bytes > max_bytes)
        return PS_FAIL(PS_EFORMAT, "%s: record %.128s has %lld bytes, expected at most %lld", path, r->name,
                       (long long)r->n_bytes, (long long)max_bytes);
    PS_TRY_GOTO(ps_mem_alloc((size_t)r->n_bytes + 1, 1, &bytes));
    PS_TRY_GOTO(ps_file_read(z->file, r->offset, bytes, r->n_bytes));
    ps_crc32_table_init(&table);
    const uint32_t crc = ps_crc32_update(&table, 0, bytes, r->n_bytes);
    if (r->crc32 != 0 && crc != r->crc32) {
        st = PS_FAIL(PS_EFORMAT, "%s: record %.128s is damaged: its CRC-32 is %08x, expected %08x", path, r->name, crc,
                     r->crc32);
        goto out;
    }
    *data = bytes;
    bytes = NULL;
out:
    ps_mem_free(bytes);
    return st;
}
