/* Files as torch.save writes them: what is read back, offsets beyond 32 bits, what is refused, failures. That PyTorch
 * reads them is shown by test/cli/test_torch_save.sh. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <sys/stat.h>

#include "base/base.h"
#include "base/crc32.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "temp_folder.h"
#include "weights/torch_writer.h"
#include "weights/torch_zip.h"
#include "weights/torch_zip_writer.h"
#include "weights/weight_copy.h"
#include "weights/weight_source.h"
#include "weights/weight_writer.h"

static temp_folder folder;

static temp_path path_of(const char *name)
{
    return temp_folder_file(&folder, name);
}

static void assert_ok(ps_status st)
{
    if (st != PS_OK) fail_msg("%s", ps_last_error());
}

static void expect_fails(ps_status st, ps_status wanted, const char *message)
{
    if (st != wanted || strstr(ps_last_error(), message) == NULL)
        fail_msg("%s: \"%s\" lacks \"%s\"", ps_status_name(st), ps_last_error(), message);
}

/* ---- state_dicts ---- */

/* Every type, number of dimensions and size of number that a pickle writes in its own way; and one that shares. */
static const ps_safetensor all[] = {
    {.name = "f64", .dtype = PS_SAFETENSORS_F64, .n_dims = 2, .shape = {2, 3}},
    {.name = "i64", .dtype = PS_SAFETENSORS_I64, .n_dims = 1, .shape = {5}},
    {.name = "f32", .dtype = PS_SAFETENSORS_F32, .n_dims = 3, .shape = {2, 1, 3}},
    {.name = "i32", .dtype = PS_SAFETENSORS_I32, .n_dims = 4, .shape = {2, 1, 3, 2}},
    {.name = "bf16", .dtype = PS_SAFETENSORS_BF16, .n_dims = 8, .shape = {1, 2, 1, 2, 1, 2, 1, 3}},
    {.name = "f16", .dtype = PS_SAFETENSORS_F16, .n_dims = 0},
    {.name = "i16", .dtype = PS_SAFETENSORS_I16, .n_dims = 2, .shape = {300, 2}},
    {.name = "i8", .dtype = PS_SAFETENSORS_I8, .n_dims = 2, .shape = {70000, 1}},
    {.name = "u8", .dtype = PS_SAFETENSORS_U8, .n_dims = 2, .shape = {0, 7}},
    {.name = "bool", .dtype = PS_SAFETENSORS_BOOL, .n_dims = 1, .shape = {1}},
    {.name = "no elements", .dtype = PS_SAFETENSORS_F32, .n_dims = 2, .shape = {(int64_t)1 << 40, 0}},
    {.name = "gr\xc3\xb6\xc3\x9f"
             "e",
     .dtype = PS_SAFETENSORS_F32,
     .n_dims = 2,
     .shape = {3, 2}},
};
static const int same_as[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 2};

enum { N = PS_ARRAY_LEN(all) };

static uint8_t byte_of(int tensor, int64_t i)
{
    return (uint8_t)(31 * tensor + 7 * i + (i >> 8));
}

static int64_t bytes_of(const ps_safetensor *t)
{
    int64_t n = ps_safetensors_dtype_bytes(t->dtype);
    for (int d = 0; d < t->n_dims; d++) n *= t->shape[d];
    return n;
}

/* Its data in pieces of at most `piece` bytes. */
static ps_status append_all(ps_torch_writer *w, int tensor, int64_t piece)
{
    uint8_t data[1 << 12];
    const int64_t n_bytes = bytes_of(&all[tensor]);
    for (int64_t done = 0; done < n_bytes; done += piece) {
        const int64_t n = ps_min_i64(piece, n_bytes - done);
        for (int64_t i = 0; i < n; i++) data[i] = byte_of(tensor, done + i);
        PS_TRY(ps_torch_writer_append(w, tensor, data, n));
    }
    return PS_OK;
}

static ps_status write_all(const char *path, int64_t piece)
{
    ps_torch_writer *w;
    ps_status st = PS_OK;
    PS_TRY(ps_torch_writer_open(path, all, N, same_as, &w));
    for (int i = N - 1; i >= 0 && st == PS_OK; i--)
        if (ps_torch_writer_wants(w, i)) st = append_all(w, i, piece);
    if (st != PS_OK)
        ps_torch_writer_cancel(w);
    else
        st = ps_torch_writer_commit(w);
    return st;
}

static void expect_tensor(const ps_weight_source *s, int tensor)
{
    static uint8_t data[1 << 18];
    const int found = ps_weight_source_find(s, all[tensor].name);
    if (found < 0) fail_msg("%s is missing", all[tensor].name);
    const ps_weight *w = ps_weight_source_get(s, found);
    assert_int_equal(w->tensor.dtype, all[tensor].dtype);
    assert_int_equal(w->tensor.n_dims, all[tensor].n_dims);
    for (int d = 0; d < all[tensor].n_dims; d++) assert_int_equal(w->tensor.shape[d], all[tensor].shape[d]);
    assert_int_equal(w->tensor.offset % 64, 0);
    assert_int_equal(w->tensor.n_bytes, bytes_of(&all[tensor]));
    assert_ok(ps_weight_source_read(s, w, 0, data, w->tensor.n_bytes));
    for (int64_t i = 0; i < w->tensor.n_bytes; i++)
        if (data[i] != byte_of(same_as[tensor], i)) fail_msg("%s: byte %d is another", all[tensor].name, (int)i);
}

static void test_round_trip(void **state)
{
    (void)state;
    const temp_path path = path_of("all.pt"), again = path_of("again.pt");
    char *a, *b;
    int64_t n_a, n_b;
    ps_weight_source *s;
    assert_ok(write_all(path.text, 4096));
    assert_ok(ps_weight_source_open(path.text, &s));
    assert_string_equal(ps_weight_source_kind(s), "torch.save");
    assert_int_equal(ps_weight_source_count(s), N);
    for (int i = 0; i < N; i++) expect_tensor(s, i);
    const int shared = ps_weight_source_find(s, all[N - 1].name);
    assert_int_equal(ps_weight_source_same_as(s, shared), ps_weight_source_same_as(s, ps_weight_source_find(s, "f32")));
    assert_int_equal(ps_weight_source_same_as(s, ps_weight_source_find(s, "f64")), ps_weight_source_find(s, "f64"));
    ps_weight_source_close(s);
    /* the same file, whatever the pieces */
    assert_ok(write_all(again.text, 1001));
    assert_ok(ps_file_read_all(path.text, 1 << 20, &a, &n_a));
    assert_ok(ps_file_read_all(again.text, 1 << 20, &b, &n_b));
    assert_int_equal(n_a, n_b);
    assert_memory_equal(a, b, (size_t)n_a);
    ps_mem_free(a), ps_mem_free(b);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* Every record has its sum: the reader looks at those of small records only. */
static void test_sums(void **state)
{
    (void)state;
    const temp_path path = path_of("sums.pt");
    ps_file *file;
    ps_torch_zip *zip;
    assert_ok(write_all(path.text, 999));
    assert_ok(ps_file_open(path.text, &file));
    assert_ok(ps_torch_zip_open(file, &zip));
    assert_int_equal(ps_torch_zip_count(zip), N - 1 + 3);
    for (int i = 0; i < ps_torch_zip_count(zip); i++) {
        char *data;
        const ps_torch_record *r = ps_torch_zip_get(zip, i);
        assert_true(r->crc32 != 0 || r->n_bytes == 0);
        assert_ok(ps_torch_zip_read(zip, r, 1 << 20, &data));
        if (strcmp(r->name, "version") == 0) assert_string_equal(data, "3\n");
        if (strcmp(r->name, "byteorder") == 0) assert_string_equal(data, "little");
        ps_mem_free(data);
    }
    ps_torch_zip_close(zip);
    ps_file_close(file);
}

/* What is shared in one file of torch.save is in the next; safetensors has it twice, with the same bytes. */
static void test_copies(void **state)
{
    (void)state;
    const temp_path path = path_of("merged.pth"), flat = path_of("flat.safetensors");
    ps_weight_source *s;
    assert_ok(ps_weight_source_open("test/golden/torch_old_plain.pt", &s));
    assert_ok(ps_weight_merge(s, path.text));
    assert_ok(ps_weight_merge(s, flat.text));
    for (int k = 0; k < 2; k++) {
        ps_weight_source *copy;
        bool is_equal;
        assert_ok(ps_weight_source_open(k == 0 ? path.text : flat.text, &copy));
        assert_string_equal(ps_weight_source_kind(copy), k == 0 ? "torch.save" : "safetensors");
        assert_int_equal(ps_weight_source_count(copy), ps_weight_source_count(s));
        for (int i = 0; i < ps_weight_source_count(s); i++) {
            const ps_weight *a = ps_weight_source_get(s, i);
            const int found = ps_weight_source_find(copy, a->tensor.name);
            assert_true(found >= 0);
            const ps_weight *b = ps_weight_source_get(copy, found);
            char x[64], y[64];
            is_equal = a->tensor.dtype == b->tensor.dtype && a->tensor.n_bytes == b->tensor.n_bytes;
            assert_true(is_equal);
            assert_ok(ps_weight_source_read(s, a, 0, x, a->tensor.n_bytes));
            assert_ok(ps_weight_source_read(copy, b, 0, y, b->tensor.n_bytes));
            assert_memory_equal(x, y, (size_t)a->tensor.n_bytes);
        }
        const int tied = ps_weight_source_find(copy, "tied"), first = ps_weight_source_find(copy, "float32");
        assert_true((ps_weight_source_same_as(copy, tied) == ps_weight_source_same_as(copy, first)) == (k == 0));
        ps_weight_source_close(copy);
    }
    ps_weight_source_close(s);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void test_formats(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        bool is_torch;
    } cases[] = {{"a.pt", true}, {"a.pth", true}, {"d/pytorch_model.bin", true}, {"a.safetensors", false},
                 {"a", false},   {".pt", false},  {"a.pt.safetensors", false},   {"apt", false},
                 {"a.bin", true}};
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++)
        if (ps_weight_writer_is_torch(cases[i].path) != cases[i].is_torch) fail_msg("%s", cases[i].path);
}

/* ---- refused ---- */

static void test_refused(void **state)
{
    (void)state;
    const temp_path path = path_of("refused.pt");
    ps_torch_writer *w = NULL;
    const ps_safetensor twice[] = {{.name = "a", .dtype = PS_SAFETENSORS_F32, .n_dims = 1, .shape = {1}},
                                   {.name = "a", .dtype = PS_SAFETENSORS_F32, .n_dims = 1, .shape = {1}}};
    const ps_safetensor two[] = {{.name = "a", .dtype = PS_SAFETENSORS_F32, .n_dims = 1, .shape = {2}},
                                 {.name = "b", .dtype = PS_SAFETENSORS_F32, .n_dims = 1, .shape = {2}}};
    static const struct {
        ps_safetensor t;
        const char *message;
    } cases[] = {
        {{.name = "t", .dtype = PS_SAFETENSORS_U16, .n_dims = 1, .shape = {1}}, "t is U16, for which PyTorch has no"},
        {{.name = "t", .dtype = PS_SAFETENSORS_F8_E4M3, .n_dims = 1, .shape = {1}}, "t is F8_E4M3"},
        {{.name = "t\xff", .dtype = PS_SAFETENSORS_F32, .n_dims = 0}, "the name of tensor 0 is not UTF-8"},
        {{.name = "t", .dtype = PS_SAFETENSORS_F32, .n_dims = 1, .shape = {-1}}, "a dimension is negative"},
        {{.name = "t", .dtype = PS_SAFETENSORS_F32, .n_dims = 2, .shape = {INT64_MAX / 2, 4}}, "the size overflows"},
        {{.name = "t", .dtype = PS_SAFETENSORS_I8, .n_dims = 1, .shape = {INT64_MAX - 100}}, "overflow"},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++)
        expect_fails(ps_torch_writer_open(path.text, &cases[i].t, 1, NULL, &w), PS_EINVAL, cases[i].message);
    expect_fails(ps_torch_writer_open(path.text, twice, 2, NULL, &w), PS_EINVAL, "the name a is there twice");
    expect_fails(ps_torch_writer_open(path_of("none/x.pt").text, two, 2, NULL, &w), PS_EIO, "none/x.pt");
    assert_null(w);
    assert_ok(ps_torch_writer_open(path.text, two, 2, NULL, &w));
    assert_ok(ps_torch_writer_append(w, 0, "12345678", 8));
    assert_ok(ps_torch_writer_append(w, 1, "1234", 4));
    expect_fails(ps_torch_writer_append(w, 1, "12345678", 5), PS_EINVAL,
                 "tensor b: 5 bytes after the first 4, but it has 8");
    expect_fails(ps_torch_writer_commit(w), PS_ESTATE, "tensor b: 4 of 8 bytes written");
    assert_int_equal(ps_mem_live_bytes(), 0);
    assert_false(ps_file_exists(path.text));
}

/* The first allocation, write, ... fails, the second, ...: no file, and none under way, until it succeeds. */
static void test_faults(void **state)
{
    (void)state;
    static const ps_fault_kind kinds[] = {PS_FAULT_ALLOC, PS_FAULT_WRITE};
    static const ps_status codes[] = {PS_ENOMEM_HOST, PS_EIO};
    const temp_path path = path_of("faults.pt");
    for (int kind = 0; kind < 2; kind++) {
        int n_failures = 0;
        for (bool has_struck = true; has_struck; n_failures += has_struck) {
            temp_folder_entries(&folder, 1);
            ps_fault_arm(kinds[kind], n_failures, false);
            const ps_status st = write_all(path.text, 4096);
            has_struck = ps_fault_has_struck(kinds[kind]);
            ps_fault_arm(kinds[kind], -1, false);
            assert_int_equal(st, has_struck ? codes[kind] : PS_OK);
            assert_int_equal(ps_mem_live_bytes(), 0);
            const int n_files = temp_folder_entries(&folder, 0);
            /* what fails last syncs the folder: the file is there then, and whole */
            if (n_files != (has_struck ? 0 : 1)) {
                ps_weight_source *s;
                assert_ok(ps_weight_source_open(path.text, &s));
                ps_weight_source_close(s);
            }
        }
        assert_true(n_failures > 20);
    }
}

/* ---- sizes beyond 32 bits ---- */

#define GIB ((int64_t)1 << 30)

/* Records of 5 GiB that are all holes but for their ends, and small ones after them: sizes and offsets that need zip64
 * fields, both, or one of them. */
static void test_zip64(void **state)
{
    (void)state;
    static const ps_torch_new_record records[] = {
        {"data.pkl", 3}, {"data/0", 5 * GIB},        {"data/1", 4}, {"data/2", UINT32_MAX},
        {"data/3", 0},   {"data/4", UINT32_MAX - 1}, {"version", 2}};
    const int n = (int)PS_ARRAY_LEN(records);
    const uint32_t sums[PS_ARRAY_LEN(records)] = {0};
    const temp_path path = path_of("sparse.pt");
    ps_torch_zip_writer *w;
    ps_file *file;
    ps_torch_zip *zip;
    struct stat info;
    assert_ok(ps_torch_zip_writer_open(path.text, records, n, &w));
    for (int i = 0; i < n; i++) {
        const int64_t n_bytes = records[i].n_bytes;
        const char first = (char)('a' + i), last = (char)('A' + i);
        if (n_bytes > 0) assert_ok(ps_torch_zip_writer_write(w, i, 0, &first, 1));
        if (n_bytes > 0) assert_ok(ps_torch_zip_writer_write(w, i, n_bytes - 1, &last, 1));
    }
    assert_ok(ps_torch_zip_writer_commit(w, sums));
    assert_int_equal(stat(path.text, &info), 0);
    assert_true(info.st_size > 13 * GIB);
    assert_true((int64_t)info.st_blocks * 512 < GIB / 256);
    assert_ok(ps_file_open(path.text, &file));
    assert_ok(ps_torch_zip_open(file, &zip));
    assert_int_equal(ps_torch_zip_count(zip), n);
    int64_t end = 0;
    for (int i = 0; i < n; i++) {
        const ps_torch_record *r = ps_torch_zip_find(zip, records[i].name);
        char first, last;
        assert_non_null(r);
        assert_int_equal(r->n_bytes, records[i].n_bytes);
        assert_int_equal(r->offset % 64, 0);
        assert_true(r->offset > end && r->offset < end + 200);
        end = r->offset + r->n_bytes;
        if (r->n_bytes == 0) continue;
        assert_ok(ps_file_read(file, r->offset, &first, 1));
        assert_ok(ps_file_read(file, end - 1, &last, 1));
        assert_int_equal(first, 'a' + i);
        assert_int_equal(last, 'A' + i);
    }
    /* Where the directory says that each header is, it is. APPNOTE 4.3.12: sizes at 20 and 24, the header's offset at 42,
     * fields of all ones in the extra field after the name. */
    uint8_t directory[1024];
    const int64_t n_directory = ps_min_i64((int64_t)sizeof directory, ps_file_bytes(file) - end);
    assert_ok(ps_file_read(file, end, directory, n_directory));
    static const struct {
        uint32_t size, offset, n_extra;
    } expected[] = {
        {3, 0, 0},           {UINT32_MAX, 0 /* not looked at */, 20}, {4, UINT32_MAX, 12}, {UINT32_MAX, UINT32_MAX, 28},
        {0, UINT32_MAX, 12}, {UINT32_MAX - 1, UINT32_MAX, 12},        {2, UINT32_MAX, 12}};
    const uint8_t *p = directory;
    for (int i = 0; i < n; i++) {
        uint32_t size, offset;
        memcpy(&size, p + 24, sizeof size);
        memcpy(&offset, p + 42, sizeof offset);
        assert_int_equal(size, expected[i].size);
        if (i != 1) assert_int_equal(offset, expected[i].offset);
        assert_int_equal(p[30], expected[i].n_extra);
        p += 46 + p[28] + p[30];
    }
    ps_torch_zip_close(zip);
    ps_file_close(file);
    unlink(path.text);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* More records than 16 bits count, and more than a reader takes. */
static void test_many_records(void **state)
{
    (void)state;
    enum { MANY = 70000, TOO_MANY = 1200000 };
    const temp_path path = path_of("many.pt");
    ps_torch_new_record *records = calloc(TOO_MANY, sizeof *records);
    char(*names)[24] = calloc(TOO_MANY, sizeof *names);
    uint32_t *sums = calloc(MANY, sizeof *sums);
    ps_torch_zip_writer *w;
    ps_file *file;
    ps_torch_zip *zip;
    for (int i = 0; i < TOO_MANY; i++) {
        snprintf(names[i], sizeof names[i], "data/%d", i);
        records[i] = (ps_torch_new_record){names[i], 1};
    }
    assert_ok(ps_torch_zip_writer_open(path.text, records, MANY, &w));
    for (int i = 0; i < MANY; i += 100) assert_ok(ps_torch_zip_writer_write(w, i, 0, "x", 1));
    assert_ok(ps_torch_zip_writer_commit(w, sums));
    assert_ok(ps_file_open(path.text, &file));
    assert_ok(ps_torch_zip_open(file, &zip));
    assert_int_equal(ps_torch_zip_count(zip), MANY);
    const ps_torch_record *r = ps_torch_zip_find(zip, "data/69900");
    char byte;
    uint8_t end[22]; /* APPNOTE 4.3.16: all ones where the zip64 end counts */
    assert_ok(ps_file_read(file, ps_file_bytes(file) - 22, end, 22));
    assert_memory_equal(end + 8, "\xff\xff\xff\xff", 4);
    assert_non_null(r);
    assert_ok(ps_file_read(file, r->offset, &byte, 1));
    assert_int_equal(byte, 'x');
    ps_torch_zip_close(zip);
    ps_file_close(file);
    expect_fails(ps_torch_zip_writer_open(path.text, records, TOO_MANY, &w), PS_EINVAL, "write several files");
    free(sums), free(names), free(records);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),   cmocka_unit_test(test_sums),    cmocka_unit_test(test_copies),
        cmocka_unit_test(test_formats),      cmocka_unit_test(test_refused), cmocka_unit_test(test_zip64),
        cmocka_unit_test(test_many_records), cmocka_unit_test(test_faults),
    };
    folder = temp_folder_make();
    const int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    temp_folder_remove(&folder);
    return n_failed;
}
