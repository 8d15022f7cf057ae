#include "weights/torch_writer.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/crc32.h"
#include "base/mem.h"
#include "base/name_index.h"
#include "base/utf8.h"
#include "weights/safetensors_format.h"
#include "weights/torch_machine.h"
#include "weights/torch_opcodes.h"
#include "weights/torch_pickle.h"
#include "weights/torch_zip_writer.h"

#define BYTE_ORDER_TEXT "little"
#define VERSION_TEXT "3\n" /* of torch.save's files since PyTorch 1.6 */

enum { RECORD_PICKLE, RECORD_BYTE_ORDER, RECORD_FIRST_DATA };

typedef struct writer_tensor {
    char *name; /* for messages */
    int record; /* -1: another tensor's */
    int64_t n_bytes, n_written;
} writer_tensor;

struct ps_torch_writer {
    ps_torch_zip_writer *zip;
    writer_tensor *tensors; /* [n] */
    int n, n_records;
    uint32_t *crc32s; /* [n_records] */
    char *path;       /* for messages */
    ps_crc32_table table;
};

/* ---- the pickle ---- */

/* Values that are memoized. */
enum {
    MEMO_REBUILD,
    MEMO_ORDERED_DICT,
    MEMO_STORAGE,
    MEMO_CPU,
    MEMO_FIRST_CLASS, /* + ps_safetensors_dtype */
    MEMO_COUNT = MEMO_FIRST_CLASS + PS_SAFETENSORS_DTYPE_COUNT,
};

/* The first failure is kept, and ends all writing. */
typedef struct pickle {
    char *bytes;
    int64_t n;
    int memo[MEMO_COUNT]; /* 1 + memo number, 0: not yet written */
    int n_memo;
    ps_status st;
} pickle;

static void put_bytes(pickle *k, const void *bytes, int64_t n)
{
    if (k->st == PS_OK) k->st = ps_mem_reserve(&k->bytes, (size_t)(k->n + n), 1);
    if (k->st != PS_OK) return;
    memcpy(k->bytes + k->n, bytes, (size_t)n);
    k->n += n;
}

static void put(pickle *k, torch_opcode opcode)
{
    put_bytes(k, &(uint8_t){(uint8_t)opcode}, 1);
}

static void put_number(pickle *k, torch_opcode opcode, int n_bytes, int64_t number)
{
    uint8_t b[sizeof number];
    for (int i = 0; i < n_bytes; i++) b[i] = (uint8_t)((uint64_t)number >> 8 * i);
    put(k, opcode);
    if (opcode == TORCH_OP_LONG1) put_bytes(k, &(uint8_t){(uint8_t)n_bytes}, 1);
    put_bytes(k, b, n_bytes);
}

static void put_integer(pickle *k, int64_t v)
{
    if (v <= UINT8_MAX)
        put_number(k, TORCH_OP_BININT1, 1, v);
    else if (v <= UINT16_MAX)
        put_number(k, TORCH_OP_BININT2, 2, v);
    else if (v <= INT32_MAX)
        put_number(k, TORCH_OP_BININT, 4, v);
    else
        put_number(k, TORCH_OP_LONG1, 8, v);
}

static void put_text(pickle *k, const char *text)
{
    const int64_t n = (int64_t)strlen(text);
    put_number(k, TORCH_OP_BINUNICODE, 4, n);
    put_bytes(k, text, n);
}

static void put_tuple(pickle *k, const int64_t *numbers, int n)
{
    static const torch_opcode short_ones[] = {TORCH_OP_EMPTY_TUPLE, TORCH_OP_TUPLE1, TORCH_OP_TUPLE2, TORCH_OP_TUPLE3};
    const bool is_short = n < (int)PS_ARRAY_LEN(short_ones);
    if (!is_short) put(k, TORCH_OP_MARK);
    for (int i = 0; i < n; i++) put_integer(k, numbers[i]);
    put(k, is_short ? short_ones[n] : TORCH_OP_TUPLE);
}

/* True when the value is in the memo, and written from there; otherwise the caller writes it, and then calls
 * `remember`. */
static bool recall(pickle *k, int what)
{
    if (k->memo[what] > 0) put_number(k, TORCH_OP_BINGET, 1, k->memo[what] - 1);
    return k->memo[what] > 0;
}

static void remember(pickle *k, int what)
{
    put_number(k, TORCH_OP_BINPUT, 1, k->n_memo);
    k->memo[what] = ++k->n_memo;
}

static void put_known_text(pickle *k, int what, const char *text)
{
    if (recall(k, what)) return;
    put_text(k, text);
    remember(k, what);
}

static void put_global(pickle *k, int what, torch_global global)
{
    const char *module, *name;
    if (recall(k, what)) return;
    torch_global_name((int)global, &module, &name);
    put(k, TORCH_OP_GLOBAL);
    put_bytes(k, module, (int64_t)strlen(module));
    put_bytes(k, "\n", 1);
    put_bytes(k, name, (int64_t)strlen(name));
    put_bytes(k, "\n", 1);
    remember(k, what);
}

static void put_ordered_dict(pickle *k)
{
    put_global(k, MEMO_ORDERED_DICT, TORCH_ORDERED_DICT);
    put(k, TORCH_OP_EMPTY_TUPLE);
    put(k, TORCH_OP_REDUCE);
}

/* As torch/_utils.py rebuilds it: its storage's persistent id is ("storage", class, key, device, elements). */
static void put_tensor(pickle *k, const ps_safetensor *t, int storage, int64_t n_elements)
{
    char key[16];
    int64_t strides[PS_SAFETENSORS_DIMS_MAX], step = 1;
    for (int d = t->n_dims - 1; d >= 0; d--) {
        strides[d] = step;
        step *= ps_max_i64(t->shape[d], 1);
    }
    snprintf(key, sizeof key, "%d", storage);
    put_global(k, MEMO_REBUILD, TORCH_REBUILD_TENSOR);
    put(k, TORCH_OP_MARK);
    put(k, TORCH_OP_MARK);
    put_known_text(k, MEMO_STORAGE, "storage");
    put_global(k, MEMO_FIRST_CLASS + (int)t->dtype, (torch_global)(TORCH_STORAGE_TYPE + (int)t->dtype));
    put_text(k, key);
    put_known_text(k, MEMO_CPU, "cpu");
    put_integer(k, n_elements);
    put(k, TORCH_OP_TUPLE);
    put(k, TORCH_OP_BINPERSID);
    put_integer(k, 0);
    put_tuple(k, t->shape, t->n_dims);
    put_tuple(k, strides, t->n_dims);
    put(k, TORCH_OP_NEWFALSE);
    put_ordered_dict(k);
    put(k, TORCH_OP_TUPLE);
    put(k, TORCH_OP_REDUCE);
}

static ps_status make_pickle(const ps_torch_writer *w, const ps_safetensor *tensors, const int *same_as, pickle *k)
{
    put_number(k, TORCH_OP_PROTO, 1, 2);
    put_ordered_dict(k);
    for (int i = 0; i < w->n; i++) {
        const writer_tensor *storage = &w->tensors[same_as != NULL ? same_as[i] : i];
        put_text(k, tensors[i].name);
        put_tensor(k, &tensors[i], storage->record - RECORD_FIRST_DATA,
                   storage->n_bytes / ps_safetensors_dtype_bytes(tensors[i].dtype));
        put(k, TORCH_OP_SETITEM); /* one by one, so that the stack stays small */
    }
    put(k, TORCH_OP_STOP);
    PS_TRY(k->st);
    if (k->n > PS_TORCH_PICKLE_BYTES_MAX)
        return PS_FAIL(PS_EINVAL, "%s: names and shapes of %lld bytes, expected at most %lld; write several files",
                       w->path, (long long)k->n, (long long)PS_TORCH_PICKLE_BYTES_MAX);
    return PS_OK;
}

/* ---- open ---- */

static bool is_utf8(const char *text)
{
    const char *const end = text + strlen(text);
    for (int n; text < end; text += n)
        if ((n = ps_utf8_length(text, end - text)) == 0) return false;
    return true;
}

static ps_status take_tensor(ps_torch_writer *w, const ps_safetensor *t, int i, int same_as, ps_name_index *names)
{
    writer_tensor *to = &w->tensors[i];
    const char *module, *name;
    PS_ASSERT(same_as >= 0 && same_as <= i && t->n_dims <= PS_SAFETENSORS_DIMS_MAX);
    PS_TRY(ps_mem_strdup(t->name, &to->name));
    if (!is_utf8(t->name)) return PS_FAIL(PS_EINVAL, "%s: the name of tensor %d is not UTF-8", w->path, i);
    if (!ps_name_index_add(names, to->name, i))
        return PS_FAIL(PS_EINVAL, "%s: the name %.128s is there twice", w->path, t->name);
    if (!torch_global_name(TORCH_STORAGE_TYPE + (int)t->dtype, &module, &name))
        return PS_FAIL(PS_EINVAL,
                       "%s: tensor %.128s is %s, for which PyTorch has no class of storage; write safetensors", w->path,
                       t->name, ps_safetensors_dtype_name(t->dtype));
    if (!ps_safetensor_bytes(t, &to->n_bytes))
        return PS_FAIL(PS_EINVAL, "%s: tensor %.128s: a dimension is negative, or the size overflows", w->path,
                       t->name);
    to->record = same_as == i ? w->n_records++ : -1;
    const writer_tensor *storage = &w->tensors[same_as];
    PS_ASSERT(storage->record >= 0 && storage->n_bytes == to->n_bytes);
    return PS_OK;
}

static ps_status take_tensors(ps_torch_writer *w, const ps_safetensor *tensors, const int *same_as)
{
    ps_name_index names;
    ps_status st = ps_name_index_init(&names, w->n);
    w->n_records = RECORD_FIRST_DATA;
    for (int i = 0; i < w->n && st == PS_OK; i++)
        st = take_tensor(w, &tensors[i], i, same_as != NULL ? same_as[i] : i, &names);
    w->n_records++; /* version */
    ps_name_index_deinit(&names);
    return st;
}

static ps_status write_whole(ps_torch_writer *w, int record, const void *data, int64_t n)
{
    w->crc32s[record] = ps_crc32_update(&w->table, 0, data, n);
    return ps_torch_zip_writer_write(w->zip, record, 0, data, n);
}

static ps_status open_zip(ps_torch_writer *w, const pickle *k)
{
    ps_torch_new_record *records = NULL;
    char(*names)[24] = NULL; /* of data/... */
    ps_status st;
    PS_TRY_GOTO(ps_mem_alloc((size_t)w->n_records, sizeof *records, &records));
    PS_TRY_GOTO(ps_mem_alloc((size_t)w->n_records, sizeof *names, (void *)&names));
    PS_TRY_GOTO(ps_mem_alloc((size_t)w->n_records, sizeof *w->crc32s, &w->crc32s));
    records[RECORD_PICKLE] = (ps_torch_new_record){"data.pkl", k->n};
    records[RECORD_BYTE_ORDER] = (ps_torch_new_record){"byteorder", sizeof BYTE_ORDER_TEXT - 1};
    records[w->n_records - 1] = (ps_torch_new_record){"version", sizeof VERSION_TEXT - 1};
    for (int i = 0; i < w->n; i++) {
        const int record = w->tensors[i].record;
        if (record < 0) continue;
        snprintf(names[record], sizeof names[record], "data/%d", record - RECORD_FIRST_DATA);
        records[record] = (ps_torch_new_record){names[record], w->tensors[i].n_bytes};
    }
    PS_TRY_GOTO(ps_torch_zip_writer_open(w->path, records, w->n_records, &w->zip));
    PS_TRY_GOTO(write_whole(w, RECORD_PICKLE, k->bytes, k->n));
    PS_TRY_GOTO(write_whole(w, RECORD_BYTE_ORDER, BYTE_ORDER_TEXT, sizeof BYTE_ORDER_TEXT - 1));
    PS_TRY_GOTO(write_whole(w, w->n_records - 1, VERSION_TEXT, sizeof VERSION_TEXT - 1));
    st = PS_OK;
out:
    ps_mem_free(names);
    ps_mem_free(records);
    return st;
}

ps_status ps_torch_writer_open(const char *path, const ps_safetensor *tensors, int n, const int *same_as,
                               ps_torch_writer **out)
{
    PS_ASSERT(n >= 0);
    *out = NULL;
    ps_status st;
    pickle k = {0};
    ps_torch_writer *w = NULL;
    PS_TRY_GOTO(ps_mem_alloc(1, sizeof *w, &w));
    w->n = n;
    ps_crc32_table_init(&w->table);
    PS_TRY_GOTO(ps_mem_strdup(path, &w->path));
    PS_TRY_GOTO(ps_mem_alloc((size_t)n, sizeof *w->tensors, &w->tensors));
    PS_TRY_GOTO(take_tensors(w, tensors, same_as));
    PS_TRY_GOTO(make_pickle(w, tensors, same_as, &k));
    PS_TRY_GOTO(open_zip(w, &k));
    *out = w;
    w = NULL;
out:
    ps_mem_free(k.bytes);
    ps_torch_writer_cancel(w);
    return st;
}

/* ---- data ---- */

bool ps_torch_writer_wants(const ps_torch_writer *w, int i)
{
    PS_ASSERT(i >= 0 && i < w->n);
    return w->tensors[i].record >= 0;
}

ps_status ps_torch_writer_append(ps_torch_writer *w, int i, const void *data, int64_t n_bytes)
{
    PS_ASSERT(i >= 0 && i < w->n && w->tensors[i].record >= 0 && n_bytes >= 0);
    writer_tensor *t = &w->tensors[i];
    if (n_bytes > t->n_bytes - t->n_written)
        return PS_FAIL(PS_EINVAL, "%s: tensor %.128s: %lld bytes after the first %lld, but it has %lld", w->path,
                       t->name, (long long)n_bytes, (long long)t->n_written, (long long)t->n_bytes);
    PS_TRY(ps_torch_zip_writer_write(w->zip, t->record, t->n_written, data, n_bytes));
    w->crc32s[t->record] = ps_crc32_update(&w->table, w->crc32s[t->record], data, n_bytes);
    t->n_written += n_bytes;
    return PS_OK;
}

ps_status ps_torch_writer_commit(ps_torch_writer *w)
{
    ps_status st = PS_OK;
    for (int i = 0; st == PS_OK && i < w->n; i++) {
        const writer_tensor *t = &w->tensors[i];
        if (t->record >= 0 && t->n_written != t->n_bytes)
            st = PS_FAIL(PS_ESTATE, "%s: tensor %.128s: %lld of %lld bytes written", w->path, t->name,
                         (long long)t->n_written, (long long)t->n_bytes);
    }
    if (st == PS_OK) {
        st = ps_torch_zip_writer_commit(w->zip, w->crc32s);
        w->zip = NULL;
    }
    ps_torch_writer_cancel(w);
    return st;
}

void ps_torch_writer_cancel(ps_torch_writer *w)
{
    if (w == NULL) return;
    ps_torch_zip_writer_cancel(w->zip);
    for (int i = 0; w->tensors != NULL && i < w->n; i++) ps_mem_free(w->tensors[i].name);
    ps_mem_free(w->tensors);
    ps_mem_free(w->crc32s);
    ps_mem_free(w->path);
    ps_mem_free(w);
}
