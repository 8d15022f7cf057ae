#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "temp_folder.h"
#include "weights/safetensors.h"

static temp_folder folder;

static const ps_safetensor three[] = {
    {.name = "h.0.weight", .dtype = PS_SAFETENSORS_BF16, .n_dims = 2, .shape = {3, 2}},
    {.name = "step", .dtype = PS_SAFETENSORS_I64, .n_dims = 0},
    {.name = "bias \"\xC3\xA9\"", .dtype = PS_SAFETENSORS_F32, .n_dims = 1, .shape = {2}},
};
static const uint16_t weight[6] = {1, 2, 3, 4, 5, 6};
static const int64_t step = 77;
static const float bias[2] = {0.5f, -3.0f};

static ps_status write_three(const char *path)
{
    static const ps_safetensors_metadata metadata[] = {{"format", "pt"}, {"note", "caf\xC3\xA9"}};
    ps_status st;
    ps_safetensors_writer *w = NULL;
    PS_TRY(ps_safetensors_writer_open(path, three, 3, metadata, 2, &w));
    PS_TRY_GOTO(ps_safetensors_writer_append(w, 0, weight, 8)); /* in pieces, interleaved */
    PS_TRY_GOTO(ps_safetensors_writer_append(w, 2, bias, sizeof bias));
    PS_TRY_GOTO(ps_safetensors_writer_append(w, 0, weight + 4, 4));
    PS_TRY_GOTO(ps_safetensors_writer_append(w, 1, &step, sizeof step));
    return ps_safetensors_writer_commit(w);
out:
    ps_safetensors_writer_cancel(w);
    return st;
}

static ps_status read_three(const char *path)
{
    ps_status st;
    ps_safetensors *s = NULL;
    uint16_t back[6];
    PS_TRY(ps_safetensors_open(path, &s));
    const ps_safetensor *t = ps_safetensors_find(s, "h.0.weight");
    assert_non_null(t);
    PS_TRY_GOTO(ps_safetensors_read(s, t, 0, back, sizeof back));
    assert_memory_equal(back, weight, sizeof back);
out:
    ps_safetensors_close(s);
    return st;
}

static void test_round_trip(void **state)
{
    (void)state;
    const temp_path p = temp_folder_file(&folder, "a.safetensors");
    ps_safetensors *s;
    int64_t step_back;
    float bias_back;
    assert_int_equal(write_three(p.text), PS_OK);
    assert_int_equal(read_three(p.text), PS_OK);
    assert_int_equal(ps_safetensors_open(p.text, &s), PS_OK);
    assert_int_equal(ps_safetensors_count(s), 3);
    /* largest elements first */
    assert_string_equal(ps_safetensors_get(s, 0)->name, "step");
    assert_string_equal(ps_safetensors_get(s, 1)->name, three[2].name);
    assert_string_equal(ps_safetensors_get(s, 2)->name, "h.0.weight");
    assert_int_equal(ps_safetensors_get(s, 0)->offset % 8, 0);
    assert_int_equal(ps_safetensors_get(s, 0)->n_dims, 0);
    assert_int_equal(ps_safetensors_get(s, 2)->n_dims, 2);
    assert_int_equal(ps_safetensors_get(s, 2)->shape[0], 3);
    assert_int_equal(ps_safetensors_get(s, 2)->n_bytes, 12);
    assert_int_equal(ps_safetensors_get(s, 2)->dtype, PS_SAFETENSORS_BF16);
    assert_null(ps_safetensors_find(s, "h.0"));
    assert_null(ps_safetensors_find(s, "__metadata__"));
    assert_string_equal(ps_safetensors_metadata_value(s, "format"), "pt");
    assert_string_equal(ps_safetensors_metadata_value(s, "note"), "caf\xC3\xA9");
    assert_null(ps_safetensors_metadata_value(s, "none"));
    assert_int_equal(ps_safetensors_read(s, ps_safetensors_find(s, "step"), 0, &step_back, 8), PS_OK);
    assert_int_equal(step_back, 77);
    assert_int_equal(ps_safetensors_read(s, ps_safetensors_find(s, three[2].name), 4, &bias_back, 4), PS_OK);
    assert_true(bias_back == -3.0f);
    ps_safetensors_close(s);
    ps_safetensors_close(NULL);
}

/* Byte for byte what the format's description asks for. */
static void test_layout(void **state)
{
    (void)state;
    const temp_path p = temp_folder_file(&folder, "layout");
    const ps_safetensor one = {.name = "x", .dtype = PS_SAFETENSORS_U8, .n_dims = 1, .shape = {3}};
    static const char expected[] = "\x38\0\0\0\0\0\0\0"
                                   "{\"x\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}   abc";
    ps_safetensors_writer *w;
    char *data;
    int64_t n;
    assert_int_equal(ps_safetensors_writer_open(p.text, &one, 1, NULL, 0, &w), PS_OK);
    assert_int_equal(ps_safetensors_writer_append(w, 0, "abc", 3), PS_OK);
    assert_int_equal(ps_safetensors_writer_commit(w), PS_OK);
    assert_int_equal(ps_file_read_all(p.text, 4096, &data, &n), PS_OK);
    assert_int_equal(n, sizeof expected - 1);
    assert_memory_equal(data, expected, sizeof expected - 1);
    ps_mem_free(data);
}

static void test_every_dtype_and_empty_tensors(void **state)
{
    (void)state;
    const temp_path p = temp_folder_file(&folder, "dtypes");
    ps_safetensor all[PS_SAFETENSORS_DTYPE_COUNT + 2] = {
        [PS_SAFETENSORS_DTYPE_COUNT] = {.name = "empty", .dtype = PS_SAFETENSORS_F16, .n_dims = 2, .shape = {5, 0}},
        [PS_SAFETENSORS_DTYPE_COUNT + 1] = {.name = "", .dtype = PS_SAFETENSORS_F64, .n_dims = 1, .shape = {0}}};
    const int n = PS_ARRAY_LEN(all);
    const uint8_t data[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    for (int i = 0; i < PS_SAFETENSORS_DTYPE_COUNT; i++)
        all[i] = (ps_safetensor){.name = ps_safetensors_dtype_name((ps_safetensors_dtype)i),
                                 .dtype = (ps_safetensors_dtype)i,
                                 .n_dims = 3,
                                 .shape = {1, 2, 1}};
    ps_safetensors_writer *w;
    assert_int_equal(ps_safetensors_writer_open(p.text, all, n, NULL, 0, &w), PS_OK);
    for (int i = 0; i < PS_SAFETENSORS_DTYPE_COUNT; i++)
        assert_int_equal(ps_safetensors_writer_append(w, i, data, 2 * ps_safetensors_dtype_bytes(all[i].dtype)), PS_OK);
    assert_int_equal(ps_safetensors_writer_commit(w), PS_OK);
    ps_safetensors *s;
    assert_int_equal(ps_safetensors_open(p.text, &s), PS_OK);
    assert_int_equal(ps_safetensors_count(s), n);
    for (int i = 0; i < n; i++) {
        const ps_safetensor *t = ps_safetensors_find(s, all[i].name);
        uint8_t back[16];
        assert_non_null(t);
        assert_int_equal(t->dtype, all[i].dtype);
        assert_int_equal(t->offset % ps_safetensors_dtype_bytes(t->dtype), 0);
        assert_int_equal(t->n_bytes, i < PS_SAFETENSORS_DTYPE_COUNT ? 2 * ps_safetensors_dtype_bytes(t->dtype) : 0);
        assert_int_equal(ps_safetensors_read(s, t, 0, back, t->n_bytes), PS_OK);
        assert_memory_equal(back, data, (size_t)t->n_bytes);
    }
    ps_safetensors_close(s);
    /* no tensor at all */
    assert_int_equal(ps_safetensors_writer_open(p.text, NULL, 0, NULL, 0, &w), PS_OK);
    assert_int_equal(ps_safetensors_writer_commit(w), PS_OK);
    assert_int_equal(ps_safetensors_open(p.text, &s), PS_OK);
    assert_int_equal(ps_safetensors_count(s), 0);
    ps_safetensors_close(s);
}

#define X(offsets) "\"x\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":" offsets "}"

static void test_damaged_files_are_errors(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        int n_data;
        ps_status st;
        const char *message;
    } cases[] = {
        {"{" X("[0,8]") "}", 8, PS_OK, ""},
        {"{" X("[0,8]") ",\"y\":{\"data_offsets\":[8,8],\"dtype\":\"F64\",\"shape\":[0,9]}}", 8, PS_OK, ""},
        {"", 0, PS_EFORMAT, "offset 8: the header does not begin with '{'"},
        {" {}", 0, PS_EFORMAT, "does not begin with '{'"},
        {"{} x", 0, PS_EFORMAT, "offset 12: end of file expected"},
        {"{" X("[0,8]") "," X("[0,8]") "}", 8, PS_EFORMAT, "duplicate object key"},
        {"{\"x\":3}", 0, PS_EFORMAT, "tensor x: expected \"dtype\""},
        {"{\"x\":{\"dtype\":\"I32\",\"shape\":[]}}", 0, PS_EFORMAT, "tensor x: expected \"dtype\""},
        {"{\"x\":{\"dtype\":\"I7\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, PS_EFORMAT, "dtype I7 is not known"},
        {"{\"x\":{\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,8]}}", 8, PS_EFORMAT, "\"dtype\" is not a string"},
        {"{\"x\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1, PS_EFORMAT,
         "has 9 dimensions, at most 8"},
        {"{\"x\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]}}", 1, PS_EFORMAT, "\"shape\"[0] is not"},
        {"{\"x\":{\"dtype\":\"U8\",\"shape\":[1.0],\"data_offsets\":[0,1]}}", 1, PS_EFORMAT, "\"shape\"[0] is not"},
        {"{\"x\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0, PS_EFORMAT,
         "its shape overflows"},
        {"{\"x\":{\"dtype\":\"F64\",\"shape\":[2305843009213693952],\"data_offsets\":[0,0]}}", 0, PS_EFORMAT,
         "its shape overflows"},
        {"{\"x\":{\"dtype\":\"U8\",\"shape\":[99999999999999999999],\"data_offsets\":[0,0]}}", 0, PS_EFORMAT,
         "too big"},
        {"{" X("[0,9]") "}", 8, PS_EFORMAT, "data_offsets [0, 9], but the file has 8 bytes of data"},
        {"{" X("[8,0]") "}", 8, PS_EFORMAT, "data_offsets [8, 0]"},
        {"{" X("[0,-8]") "}", 8, PS_EFORMAT, "\"data_offsets\"[1] is not"},
        {"{" X("[0,7]") "}", 8, PS_EFORMAT, "need 8 bytes, its data_offsets have 7"},
        {"{" X("[0,8]") "}", 9, PS_EFORMAT, "the last tensor ends at offset 70, but the file has 71 bytes"},
        {"{" X("[1,9]") "}", 9, PS_EFORMAT, "begins at offset 63 of the file, expected 62: a hole"},
        {"{" X("[0,8]") ",\"y\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[1,9]}}", 9, PS_EFORMAT,
         "it overlaps the one before"},
        {"{\"__metadata__\":[]}", 0, PS_EFORMAT, "__metadata__ is not an object"},
        {"{\"__metadata__\":{\"a\":1}}", 0, PS_EFORMAT, "the value of a is not a string"},
        {"{\"__metadata__\":{\"a\":\"1\"}}", 0, PS_OK, ""},
    };
    const temp_path p = temp_folder_file(&folder, "bad");
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        char data[512] = {0};
        ps_safetensors *s;
        const size_t n = strlen(cases[i].header);
        data[0] = (char)n;
        memcpy(data + 8, cases[i].header, n);
        assert_int_equal(ps_file_write_all(p.text, data, 8 + (int64_t)n + cases[i].n_data), PS_OK);
        const ps_status st = ps_safetensors_open(p.text, &s);
        if (st != cases[i].st || (st != PS_OK && strstr(ps_last_error(), cases[i].message) == NULL))
            fail_msg("case %zu: %s, \"%s\" lacks \"%s\"", i, ps_status_name(st), ps_last_error(), cases[i].message);
        assert_true((s != NULL) == (st == PS_OK));
        ps_safetensors_close(s);
    }
}

static void test_damaged_lengths_are_errors(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        int n;
        const char *message;
    } cases[] = {
        {"", 0, "0 bytes, expected a header length of 8 bytes"},
        {"\1\0\0\0\0\0\0", 7, "7 bytes"},
        {"\3\0\0\0\0\0\0\0{}", 10, "offset 0: header of 3 bytes, expected at most 2"},
        {"\2\0\0\0\0\0\0\x80{}", 10, "header of 9223372036854775810 bytes"},
        {"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF{}", 10, "header of 18446744073709551615 bytes"},
    };
    const temp_path p = temp_folder_file(&folder, "bad");
    ps_safetensors *s;
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        assert_int_equal(ps_file_write_all(p.text, cases[i].bytes, cases[i].n), PS_OK);
        assert_int_equal(ps_safetensors_open(p.text, &s), PS_EFORMAT);
        if (strstr(ps_last_error(), cases[i].message) == NULL)
            fail_msg("case %zu: \"%s\" lacks \"%s\"", i, ps_last_error(), cases[i].message);
    }
    assert_int_equal(ps_safetensors_open("/proc/nonexistent", &s), PS_EIO);
}

static void test_writing_refuses(void **state)
{
    (void)state;
    const temp_path p = temp_folder_file(&folder, "refused");
    const int n_entries = temp_folder_entries(&folder, 0);
    ps_safetensors_writer *w;
    const ps_safetensor twice[] = {{.name = "x"}, {.name = "x"}}, reserved = {.name = "__metadata__"};
    const ps_safetensor no_text = {.name = "\xFF"}, negative = {.name = "n", .n_dims = 1, .shape = {-1}};
    const ps_safetensor huge = {.name = "h", .n_dims = 2, .shape = {INT64_MAX / 2, 3}};
    const ps_safetensors_metadata bad_value = {"k", "\xFF"};
    assert_int_equal(ps_safetensors_writer_open(p.text, twice, 2, NULL, 0, &w), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "the name x is there twice"));
    assert_int_equal(ps_safetensors_writer_open(p.text, &reserved, 1, NULL, 0, &w), PS_EINVAL);
    assert_int_equal(ps_safetensors_writer_open(p.text, &no_text, 1, NULL, 0, &w), PS_EINVAL);
    assert_int_equal(ps_safetensors_writer_open(p.text, &negative, 1, NULL, 0, &w), PS_EINVAL);
    assert_int_equal(ps_safetensors_writer_open(p.text, &huge, 1, NULL, 0, &w), PS_EINVAL);
    assert_int_equal(ps_safetensors_writer_open(p.text, three, 3, &bad_value, 1, &w), PS_EINVAL);
    assert_null(w);
    assert_int_equal(ps_safetensors_writer_open(p.text, three, 3, NULL, 0, &w), PS_OK);
    assert_int_equal(ps_safetensors_writer_append(w, 2, bias, 4), PS_OK);
    assert_int_equal(ps_safetensors_writer_append(w, 2, bias, 5), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "5 bytes after the first 4, but it has 8"));
    assert_int_equal(ps_safetensors_writer_commit(w), PS_ESTATE);
    assert_non_null(strstr(ps_last_error(), "tensor h.0.weight: 0 of 12 bytes written"));
    assert_false(ps_file_exists(p.text));
    assert_int_equal(temp_folder_entries(&folder, 0), n_entries);
}

static void test_faults(void **state)
{
    (void)state;
    const temp_path p = temp_folder_file(&folder, "fault");
    static const ps_fault_kind kinds[] = {PS_FAULT_ALLOC, PS_FAULT_READ, PS_FAULT_WRITE};
    static const ps_status codes[] = {PS_ENOMEM_HOST, PS_EIO, PS_EIO};
    for (int kind = 0; kind < 3; kind++) {
        int n_failures = 0;
        for (bool has_struck = true; has_struck; n_failures += has_struck) {
            assert_int_equal(write_three(p.text), PS_OK);
            const int n_entries = temp_folder_entries(&folder, 0);
            const int64_t live_bytes = ps_mem_live_bytes();
            ps_fault_arm(kinds[kind], n_failures, false);
            ps_status st = write_three(p.text);
            if (st == PS_OK) st = read_three(p.text);
            has_struck = ps_fault_has_struck(kinds[kind]);
            ps_fault_arm(kinds[kind], -1, false);
            assert_int_equal(st, has_struck ? codes[kind] : PS_OK);
            assert_int_equal(ps_mem_live_bytes(), live_bytes);
            assert_int_equal(temp_folder_entries(&folder, 0), n_entries);
            assert_int_equal(read_three(p.text), PS_OK); /* old or new, but whole */
        }
        assert_true(n_failures >= 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_every_dtype_and_empty_tensors),
        cmocka_unit_test(test_damaged_files_are_errors),
        cmocka_unit_test(test_damaged_lengths_are_errors),
        cmocka_unit_test(test_writing_refuses),
        cmocka_unit_test(test_faults),
    };
    folder = temp_folder_make();
    const int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    temp_folder_remove(&folder);
    return n_failed;
}
