/* Files of torch.save: those that make_torch_files.py wrote with PyTorch 1.13 and 2.x, pickles that try to do something
 * else, and damage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/dtype.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "temp_folder.h"
#include "weights/torch_pickle.h"
#include "weights/weight_source.h"

static temp_folder folder;

static ps_weight_source *open_golden(const char *name)
{
    char path[128];
    ps_weight_source *s;
    snprintf(path, sizeof path, "test/golden/torch_%s.pt", name);
    if (ps_weight_source_open(path, &s) != PS_OK) fail_msg("%s", ps_last_error());
    assert_string_equal(ps_weight_source_kind(s), "torch.save");
    return s;
}

static double element(ps_safetensors_dtype t, const void *data, int64_t i)
{
    uint16_t half;
    float single;
    double wide;
    int64_t whole = 0;
    const int64_t n = ps_safetensors_dtype_bytes(t);
    const char *at = (const char *)data + i * n;
    if (t == PS_SAFETENSORS_F64) return memcpy(&wide, at, sizeof wide), wide;
    if (t == PS_SAFETENSORS_F32) return memcpy(&single, at, sizeof single), (double)single;
    if (t == PS_SAFETENSORS_F16) return memcpy(&half, at, sizeof half), (double)ps_f16_to_f32(half);
    if (t == PS_SAFETENSORS_BF16) return memcpy(&half, at, sizeof half), (double)ps_bf16_to_f32(half);
    memcpy(&whole, at, (size_t)n); /* little-endian, with the sign of its length */
    return (double)((int64_t)((uint64_t)whole << (64 - 8 * n)) >> (64 - 8 * n));
}

/* The tensor has this type and shape, and the values that make_torch_files.py gives to number k from its `first` on. */
static void expect_tensor(const ps_weight_source *s, const char *name, ps_safetensors_dtype dtype, int n_dims,
                          int64_t rows, int64_t columns, int k, int64_t first)
{
    char data[1024];
    const int i = ps_weight_source_find(s, name);
    if (i < 0) fail_msg("%s is missing", name);
    const ps_weight *w = ps_weight_source_get(s, i);
    assert_int_equal(w->tensor.dtype, dtype);
    assert_int_equal(w->tensor.n_dims, n_dims);
    if (n_dims > 0) assert_int_equal(w->tensor.shape[0], rows);
    if (n_dims > 1) assert_int_equal(w->tensor.shape[1], columns);
    const int64_t n = (n_dims > 0 ? rows : 1) * (n_dims > 1 ? columns : 1);
    assert_int_equal(w->tensor.n_bytes, n * ps_safetensors_dtype_bytes(dtype));
    assert_int_equal(ps_weight_source_read(s, w, 0, data, w->tensor.n_bytes), PS_OK);
    for (int64_t j = 0; j < n; j++) {
        const double expected =
            dtype == PS_SAFETENSORS_BOOL ? (double)(j % 2) : (double)((7 * k + first + j) % 64 - 32);
        if (element(dtype, data, j) != expected)
            fail_msg("%s[%d] is %g, not %g", name, (int)j, element(dtype, data, j), expected);
    }
}

static void test_all_types(void **state)
{
    (void)state;
    static const char *const files[] = {"old_plain", "new_plain"};
    for (size_t f = 0; f < PS_ARRAY_LEN(files); f++) {
        ps_weight_source *s = open_golden(files[f]);
        assert_int_equal(ps_weight_source_count(s), 14);
        expect_tensor(s, "float32", PS_SAFETENSORS_F32, 2, 2, 3, 0, 0);
        expect_tensor(s, "float16", PS_SAFETENSORS_F16, 2, 2, 3, 1, 0);
        expect_tensor(s, "bfloat16", PS_SAFETENSORS_BF16, 2, 2, 3, 2, 0);
        expect_tensor(s, "float64", PS_SAFETENSORS_F64, 2, 2, 3, 3, 0);
        expect_tensor(s, "int64", PS_SAFETENSORS_I64, 2, 2, 3, 4, 0);
        expect_tensor(s, "int32", PS_SAFETENSORS_I32, 2, 2, 3, 5, 0);
        expect_tensor(s, "int16", PS_SAFETENSORS_I16, 2, 2, 3, 6, 0);
        expect_tensor(s, "int8", PS_SAFETENSORS_I8, 2, 2, 3, 7, 0);
        expect_tensor(s, "bool", PS_SAFETENSORS_BOOL, 1, 3, 0, 0, 0);
        expect_tensor(s, "tied", PS_SAFETENSORS_F32, 2, 2, 3, 0, 0);
        expect_tensor(s, "parameter", PS_SAFETENSORS_BF16, 1, 4, 0, 9, 0);
        expect_tensor(s, "scalar", PS_SAFETENSORS_F32, 0, 0, 0, 10, 0);
        expect_tensor(s, "empty", PS_SAFETENSORS_F32, 2, 0, 7, 11, 0);
        expect_tensor(s, "row", PS_SAFETENSORS_F32, 1, 3, 0, 12, 6);
        const ps_weight *a = ps_weight_source_get(s, ps_weight_source_find(s, "float32"));
        const ps_weight *b = ps_weight_source_get(s, ps_weight_source_find(s, "tied"));
        assert_int_equal(a->tensor.offset, b->tensor.offset);
        for (int i = 1; i < ps_weight_source_count(s); i++)
            assert_true(ps_weight_source_get(s, i)->tensor.offset >= ps_weight_source_get(s, i - 1)->tensor.offset);
        ps_weight_source_close(s);
    }
}

static void test_state_dicts(void **state)
{
    (void)state;
    static const char *const files[] = {"old_module", "new_module", "old_wrapped", "new_wrapped"};
    for (size_t f = 0; f < PS_ARRAY_LEN(files); f++) {
        ps_weight_source *s = open_golden(files[f]);
        assert_int_equal(ps_weight_source_count(s), 2);
        expect_tensor(s, "weight", PS_SAFETENSORS_F32, 2, 3, 5, 0, 0);
        expect_tensor(s, "mask", PS_SAFETENSORS_F16, 1, 4, 0, 1, 0);
        ps_weight_source_close(s);
    }
    static const char *const many[] = {"old_many", "new_many"};
    for (size_t f = 0; f < PS_ARRAY_LEN(many); f++) {
        ps_weight_source *s = open_golden(many[f]);
        assert_int_equal(ps_weight_source_count(s), 60);
        for (int i = 0; i < 60; i++) {
            char name[16];
            snprintf(name, sizeof name, "p.%d", i);
            expect_tensor(s, name, PS_SAFETENSORS_F32, 1, 1, 0, 0, i);
        }
        ps_weight_source_close(s);
    }
    ps_weight_source *s = open_golden("new_protocol4");
    expect_tensor(s, "w", PS_SAFETENSORS_F32, 2, 3, 5, 0, 0);
    ps_weight_source_close(s);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* What PatrickStar's ranks and DeepSpeed write. */
static void test_other_trainers(void **state)
{
    (void)state;
    static const char *const ranks[] = {"test/golden/torch_old_rank-0.pt", "test/golden/torch_old_rank-1.pt"};
    temp_folder parts = temp_folder_make();
    ps_weight_source *s;
    for (int i = 0; i < 2; i++) {
        char name[32], *data;
        int64_t n;
        snprintf(name, sizeof name, "model-%d.pt", i);
        assert_int_equal(ps_file_read_all(ranks[i], 1 << 20, &data, &n), PS_OK);
        assert_int_equal(ps_file_write_all(temp_folder_file(&parts, name).text, data, n), PS_OK);
        ps_mem_free(data);
    }
    for (int from_folder = 0; from_folder < 2; from_folder++) {
        if ((from_folder ? ps_weight_source_open(parts.path, &s) : ps_weight_source_open_files(ranks, 2, &s)) != PS_OK)
            fail_msg("%s", ps_last_error());
        assert_string_equal(ps_weight_source_kind(s), from_folder ? "PatrickStar's files of 2 ranks" : "2 files");
        assert_int_equal(ps_weight_source_count(s), 5);
        for (int k = 0; k < 4; k++) {
            char name[16];
            snprintf(name, sizeof name, "w.%d", k);
            expect_tensor(s, name, PS_SAFETENSORS_F32, 2, 2, 3, 20 + k, 0);
        }
        expect_tensor(s, "shared", PS_SAFETENSORS_F32, 1, 4, 0, 30, 0);
        ps_weight_source_close(s);
    }
    temp_folder_remove(&parts);
    s = open_golden("old_deepspeed");
    assert_int_equal(ps_weight_source_count(s), 2);
    expect_tensor(s, "module.weight", PS_SAFETENSORS_F16, 2, 3, 5, 0, 0);
    expect_tensor(s, "module.mask", PS_SAFETENSORS_F16, 1, 4, 0, 1, 0);
    ps_weight_source_close(s);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void test_refused_files(void **state)
{
    (void)state;
    static const struct {
        const char *path, *message;
        ps_status st;
    } cases[] = {
        {"test/golden/torch_old_view.pt", "tensor w: dimension 1 has stride 5, expected 1: it is a view", PS_EFORMAT},
        {"test/golden/torch_new_view.pt", "save it after .contiguous()", PS_EFORMAT},
        {"test/golden/torch_old_program.pt", "GLOBAL __main__ Model is not allowed", PS_EFORMAT},
        {"test/golden/torch_new_program.pt", "GLOBAL __main__ Model is not allowed", PS_EFORMAT},
        {"test/golden/torch_old_legacy.pt", "the format before PyTorch 1.6; load it in Python and save it again",
         PS_EFORMAT},
        {"test/golden/make_torch_files.py", "header of", PS_EFORMAT},
        {"/proc/nonexistent.bin", "/proc/nonexistent.bin", PS_EIO},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        ps_weight_source *s;
        const ps_status st = ps_weight_source_open(cases[i].path, &s);
        if (st != cases[i].st || strstr(ps_last_error(), cases[i].message) == NULL)
            fail_msg("case %zu: %s: %s", i, ps_status_name(st), ps_last_error());
        assert_null(s);
    }
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* ---- pickles by hand ---- */

#define P "\x80\x02"
#define STORAGE                                                                                                        \
    "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"                                                                 \
    "0X\3\0\0\0cpuK\6tQ"
#define REBUILD "ctorch._utils\n_rebuild_tensor_v2\n"
#define END                                                                                                            \
    "\x89"                                                                                                             \
    "ccollections\nOrderedDict\n)RtR"
#define TENSOR(offset, size, stride) REBUILD "(" STORAGE offset size stride END
#define DICT(value) P "}X\1\0\0\0w" value "s."
#define GOOD TENSOR("K\0", "K\2K\3\x86", "K\3K\1\x86")

typedef struct pickle_case {
    const char *bytes;
    size_t n;
    const char *message; /* NULL: it is good */
} pickle_case;

#define CASE(text, message)                                                                                            \
    {                                                                                                                  \
        text, sizeof(text) - 1, message                                                                                \
    }

static const pickle_case pickle_cases[] = {
    CASE(DICT(GOOD), NULL),
    CASE(P "}.", NULL),
    CASE(DICT(TENSOR("K\6", "K\0\x85", "K\1\x85")), NULL),         /* empty, at the end */
    CASE(DICT(TENSOR("K\0", "K\1K\6\x86", "K\x63K\1\x86")), NULL), /* the stride of one row does not matter */
    CASE(P "}X\1\0\0\0w" GOOD "sX\1\0\0\0vK\1s.", "v of the state_dict is no tensor"),
    /* what a pickle could run */
    CASE(P "cos\nsystem\n(X\2\0\0\0lstR.", "offset 13: GLOBAL os system is not allowed"),
    CASE(P "cbuiltins\neval\n(X\1\0\0\0"
           "1tR.",
         "GLOBAL builtins eval is not allowed"),
    CASE(P "cposix\nsystem\nX\1\0\0\0x\x85R.", "GLOBAL posix system is not allowed"),
    CASE("\x80\x04\x8c\2os\x8c\6system\x93.", "GLOBAL os system is not allowed"),
    CASE(P "ctorch\nFloatStorag\n.", "GLOBAL torch FloatStorag is not allowed"),
    CASE(P "ctorch\nFloatStoragee\n.", "GLOBAL torch FloatStoragee is not allowed"),
    CASE(P "ctorch.storage\n_load_from_bytes\n.", "_load_from_bytes is not allowed"),
    CASE(P "ios\nsystem\n.", "opcode 0x69 is not one"), /* INST */
    CASE(P "cos", "a name without its end"),
    CASE(P "ctorch\nSize\n]\x85R.", "torch.Size of what is no tuple"),
    CASE(P "ctorch\nSize\n)R.", "torch.Size of what is no tuple"),
    CASE(P "c__builtin__\nset\n)\x85R.", "a set of what is no list"),
    CASE(P "}}R.", "REDUCE of something that is no GLOBAL"),
    CASE(P "ctorch\nFloatStorage\n)R.", "REDUCE of a storage type is not allowed"),
    CASE(P "ccollections\nOrderedDict\nK\1\x85R.", "OrderedDict with arguments"),
    CASE(P REBUILD ")R.", "_rebuild_tensor_v2 without a storage"),
    CASE(P "ctorch._utils\n_rebuild_parameter\nK\1K\1K\1\x87R.", "_rebuild_parameter of what is no tensor"),
    CASE(P "K\1}b.", "no dictionary here"), /* BUILD of a number */
    CASE(P "}K\1b.", "BUILD with what is no dictionary"),
    CASE(P "K\1Q.", "a persistent id that is not"),
    CASE(P "\x8a\x09"
           "123456789.",
         "more than 64 bits"),
    CASE("\x80\x07.", "pickle protocol 7"),
    CASE(P "B\1\0\0\0x.", "opcode 0x42"), /* BINBYTES */
    /* the stack, the memo, lengths */
    CASE("", "it ends at 0"),
    CASE(P "}", "1 bytes wanted, but it ends at 3"),
    CASE(P ".", "the stack is empty"),
    CASE(P "(.", "the stack is empty"),
    CASE(P "}}.", "more than one value is left"),
    CASE(P "K\1.", "no dictionary of tensors"),
    CASE(P "]K\1s.", "the stack has no dictionary here"),
    CASE(P "}K\1a.", "the stack has no list here"),
    CASE(P "}(K\1u.", "a key without a value"),
    CASE(P "t.", "no mark on the stack"),
    CASE(P "(\x85.", "a mark among the items"),
    CASE(P "\x87.", "the stack is empty"),
    CASE(P "X\xff\xff\xff\xff"
           "a.",
         "4294967295 bytes wanted"),
    CASE(P "}h\0.", "memo 0 is not set"),
    CASE(P "}r\xff\xff\xff\xff.", "memo 4294967295 is set after 0 others"),
    CASE(P "q\0.", "the stack is empty"),
    /* tensors that are none */
    CASE(DICT(TENSOR("K\1", "K\2K\3\x86", "K\3K\1\x86")),
         "tensor w: 24 bytes from element 1 of a storage of 6 elements"),
    CASE(DICT(TENSOR("J\xff\xff\xff\xff", "K\2\x85", "K\1\x85")), "an offset >= 0"),
    CASE(DICT(TENSOR("K\0", "J\xff\xff\xff\xff\x85", "K\1\x85")), "dimension 0 is not an integer >= 0"),
    CASE(DICT(TENSOR("K\0", "K\2K\3\x86", "K\1\x85")), "no tuples of one length"),
    CASE(DICT(TENSOR("K\0", "K\2", "K\1")), "no tuples of one length"),
    CASE(DICT(TENSOR("K\0", "K\2K\3\x86", "K\0K\1\x86")), "dimension 0 has stride 0, expected 3"),
    CASE(DICT(TENSOR("K\0", "\x8a\x08\0\0\0\0\0\0\0\x40K\4\x86", "K\4K\1\x86")), "its shape overflows"),
    CASE(DICT(TENSOR("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f", "K\1\x85", "K\1\x85")),
         "from element 9223372036854775807"),
    CASE(DICT(TENSOR("K\0", "(K\1K\1K\1K\1K\1K\1K\1K\1K\1t", "(K\1K\1K\1K\1K\1K\1K\1K\1K\1t")),
         "9 dimensions, at most 8"),
    CASE(P "}(X\1\0\0\0w" GOOD "X\1\0\0\0w" GOOD "u.", "tensor w is there twice"),
    CASE(P "}X\2\0\0\0a\0" GOOD "s.", "a zero byte in a tensor's name"),
    CASE(P "}K\1" GOOD "s.", "a key of the state_dict is no string"),
};

static void test_pickles(void **state)
{
    (void)state;
    for (size_t i = 0; i < PS_ARRAY_LEN(pickle_cases); i++) {
        const pickle_case *c = &pickle_cases[i];
        ps_torch_pickle *p = NULL;
        const ps_status st = ps_torch_pickle_read("file", c->bytes, (int64_t)c->n, &p);
        if ((c->message == NULL) != (st == PS_OK) || (st != PS_OK && strstr(ps_last_error(), c->message) == NULL))
            fail_msg("case %zu: %s: \"%s\" lacks \"%s\"", i, ps_status_name(st), st == PS_OK ? "" : ps_last_error(),
                     c->message != NULL ? c->message : "");
        ps_torch_pickle_close(p);
        assert_int_equal(ps_mem_live_bytes(), 0);
        /* cut anywhere, it ends with an error, not with a crash */
        for (size_t n = 0; n < c->n; n++)
            if (ps_torch_pickle_read("file", c->bytes, (int64_t)n, &p) == PS_OK) fail_msg("case %zu cut at %zu", i, n);
    }
}

/* Programs that grow what they can, without end. */
static void test_bombs(void **state)
{
    (void)state;
    enum { N = 6000000 };
    static const struct {
        const char *repeated, *message;
    } cases[] = {{"(", "more than 65536 values on the stack"},
                 {")", "more than 65536 values on the stack"},
                 {"]", "more than 65536 values on the stack"},
                 {"\x85", "more than 4194304 values"}, /* a tuple in a tuple in .. */
                 {"2", "opcode 0x32"}};
    char *bytes = malloc(N);
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        ps_torch_pickle *p;
        memset(bytes, cases[i].repeated[0], N);
        memcpy(bytes, P ")", 3);
        assert_int_equal(ps_torch_pickle_read("file", bytes, N, &p), PS_EFORMAT);
        if (strstr(ps_last_error(), cases[i].message) == NULL) fail_msg("case %zu: %s", i, ps_last_error());
        assert_int_equal(ps_mem_live_bytes(), 0);
    }
    free(bytes);
    /* one long name, used many times */
    static char names[4000];
    static const char head[] = P "}X\0\2\0\0", tail[] = GOOD "q\1s";
    size_t n = sizeof head - 1;
    memcpy(names, head, n);
    memset(names + n, 'x', 512);
    memcpy(names + n + 512, "q\0", 2);
    n += 514;
    memcpy(names + n, tail, sizeof tail - 1);
    n += sizeof tail - 1;
    for (; n < sizeof names - 8; n += 5) memcpy(names + n, "h\0h\1s", 5);
    names[n++] = '.';
    ps_torch_pickle *p;
    assert_int_equal(ps_torch_pickle_read("file", names, (int64_t)n, &p), PS_EFORMAT);
    if (strstr(ps_last_error(), "has names of") == NULL) fail_msg("%s", ps_last_error());
}

/* ---- damaged files ---- */

/* Each byte of a file flipped, one after the other: never a crash, never a tensor beyond the file; in the pickle always
 * an error, as it has a checksum. */
static void test_flipped_bytes(void **state)
{
    (void)state;
    const temp_path path = temp_folder_file(&folder, "flipped.bin");
    char *data, message[1024];
    int64_t n;
    assert_int_equal(ps_file_read_all("test/golden/torch_old_module.pt", 1 << 20, &data, &n), PS_OK);
    int n_refused = 0;
    for (int64_t i = 0; i < n; i++) {
        ps_weight_source *s;
        data[i] ^= 0x11;
        assert_int_equal(ps_file_write_all(path.text, data, n), PS_OK);
        const ps_status st = ps_weight_source_open(path.text, &s);
        data[i] ^= 0x11;
        if (st != PS_OK) {
            snprintf(message, sizeof message, "%s", ps_last_error());
            if (strncmp(message, path.text, strlen(path.text)) != 0) fail_msg("%d: %s", (int)i, message);
            n_refused++;
        } else {
            char bytes[64];
            for (int k = 0; k < ps_weight_source_count(s); k++) {
                const ps_weight *w = ps_weight_source_get(s, k);
                assert_int_equal(ps_weight_source_read(s, w, 0, bytes, w->tensor.n_bytes), PS_OK);
            }
        }
        ps_weight_source_close(s);
        if (i >= 128 && i < 256) assert_int_equal(st, PS_EFORMAT); /* in the middle of data.pkl */
    }
    /* the file cut anywhere is refused */
    for (int64_t i = 0; i < n; i += 13) {
        ps_weight_source *s;
        assert_int_equal(ps_file_write_all(path.text, data, i), PS_OK);
        assert_int_not_equal(ps_weight_source_open(path.text, &s), PS_OK);
    }
    ps_mem_free(data);
    assert_true(n_refused > 400);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void test_faults(void **state)
{
    (void)state;
    static const ps_fault_kind kinds[] = {PS_FAULT_ALLOC, PS_FAULT_READ};
    static const ps_status codes[] = {PS_ENOMEM_HOST, PS_EIO};
    for (int kind = 0; kind < 2; kind++) {
        int n_failures = 0;
        for (bool has_struck = true; has_struck; n_failures += has_struck) {
            ps_weight_source *s;
            ps_fault_arm(kinds[kind], n_failures, false);
            const ps_status st = ps_weight_source_open("test/golden/torch_new_module.pt", &s);
            has_struck = ps_fault_has_struck(kinds[kind]);
            ps_fault_arm(kinds[kind], -1, false);
            assert_int_equal(st, has_struck ? codes[kind] : PS_OK);
            ps_weight_source_close(s);
            assert_int_equal(ps_mem_live_bytes(), 0);
        }
        assert_true(n_failures > 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_types),     cmocka_unit_test(test_state_dicts), cmocka_unit_test(test_other_trainers),
        cmocka_unit_test(test_refused_files), cmocka_unit_test(test_pickles),     cmocka_unit_test(test_bombs),
        cmocka_unit_test(test_flipped_bytes), cmocka_unit_test(test_faults),
    };
    folder = temp_folder_make();
    const int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    temp_folder_remove(&folder);
    return n_failed;
}
