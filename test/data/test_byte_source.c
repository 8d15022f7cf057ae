/* Files as they are, and compressed by gzip or zstd: the same bytes whatever the size of reads, several members or frames,
 * damage and truncation at every byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "base/base.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "data/byte_source.h"
#include "data/dataset.h"
#include "temp_folder.h"

enum { TEXT_BYTES = 300000, PACKED_MAX = 400000 };

static temp_folder folder;
static char text[TEXT_BYTES + 1];

static size_t pack_gzip(const char *from, size_t n, char *to)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (unsigned char *)(uintptr_t)from;
    z.avail_in = (unsigned)n;
    z.next_out = (unsigned char *)to;
    z.avail_out = PACKED_MAX;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    const size_t n_packed = z.total_out;
    assert_int_equal(deflateEnd(&z), Z_OK);
    return n_packed;
}

static size_t pack_zstd(const char *from, size_t n, char *to)
{
    ZSTD_CCtx *c = ZSTD_createCCtx();
    assert_non_null(c);
    assert_false(ZSTD_isError(ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1))); /* as the program zstd does */
    const size_t n_packed = ZSTD_compress2(c, to, PACKED_MAX, from, n);
    assert_false(ZSTD_isError(n_packed));
    ZSTD_freeCCtx(c);
    return n_packed;
}

typedef size_t packer(const char *from, size_t n, char *to);
static packer *const packers[] = {pack_gzip, pack_zstd};

static temp_path write_bytes(const char *bytes, size_t n)
{
    const temp_path p = temp_folder_file(&folder, "packed");
    assert_int_equal(ps_file_write_all(p.text, bytes, (int64_t)n), PS_OK);
    return p;
}

/* Read all in pieces of at most n_max bytes. */
static ps_status read_pieces(const char *path, int64_t n_max, char *out, int64_t room, int64_t *n_read)
{
    ps_byte_source *s = NULL;
    ps_status st;
    int64_t n = 1;
    *n_read = 0;
    PS_TRY_GOTO(ps_byte_source_open(path, &s));
    while (n > 0 && *n_read < room) {
        PS_TRY_GOTO(ps_byte_source_read(s, out + *n_read, ps_min_i64(n_max, room - *n_read), &n));
        *n_read += n;
    }
out:
    ps_byte_source_close(s);
    return st;
}

static void expect_bytes(const char *packed, size_t n_packed, const char *expected, int64_t n)
{
    static char out[2 * TEXT_BYTES + 16];
    static const int64_t sizes[] = {1 << 20, 65536, 4099, 7};
    const temp_path p = write_bytes(packed, n_packed);
    for (size_t i = 0; i < PS_ARRAY_LEN(sizes); i++) {
        int64_t n_read;
        if (read_pieces(p.text, sizes[i], out, sizeof out, &n_read) != PS_OK) fail_msg("%s", ps_last_error());
        assert_int_equal(n_read, n);
        assert_memory_equal(out, expected, (size_t)n);
    }
    char *all;
    int64_t n_all;
    assert_int_equal(ps_byte_source_read_all(p.text, n, "", &all, &n_all), PS_OK);
    assert_int_equal(n_all, n);
    assert_memory_equal(all, expected, (size_t)n);
    assert_int_equal(all[n], 0);
    assert_int_equal(ps_mem_bytes(all), n + 1);
    ps_mem_free(all);
    if (n > 0) {
        assert_int_equal(ps_byte_source_read_all(p.text, n - 1, ", a limit", &all, &n_all), PS_EFORMAT);
        assert_non_null(strstr(ps_last_error(), ", a limit"));
    }
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void test_same_bytes(void **state)
{
    (void)state;
    static char packed[2 * PACKED_MAX], twice[2 * TEXT_BYTES];
    expect_bytes(text, TEXT_BYTES, text, TEXT_BYTES);
    expect_bytes("", 0, "", 0);
    memcpy(twice, text, TEXT_BYTES);
    memcpy(twice + TEXT_BYTES, text, 100);
    for (size_t i = 0; i < PS_ARRAY_LEN(packers); i++) {
        const size_t n = packers[i](text, TEXT_BYTES, packed);
        assert_in_range(n, 1000, TEXT_BYTES / 2);
        expect_bytes(packed, n, text, TEXT_BYTES);
        expect_bytes(packed, n + packers[i](text, 100, packed + n), twice, TEXT_BYTES + 100); /* cat a.gz b.gz */
        expect_bytes(packed, n + packers[i]("", 0, packed + n), text, TEXT_BYTES);
        expect_bytes(packed, packers[i]("", 0, packed), "", 0);
    }
    /* padding to a block, as tar has it; longer than what is read at once */
    static char padded[PACKED_MAX];
    const size_t n_gzip = pack_gzip(text, 1000, padded);
    expect_bytes(padded, n_gzip + 1, text, 1000);
    expect_bytes(padded, n_gzip + 200000, text, 1000);
    /* frames that decoders skip, as pzstd and seekable files have them */
    static const char skipped[] = "\x50\x2a\x4d\x18\x03\x00\x00\x00"
                                  "abc";
    memcpy(packed, skipped, sizeof skipped - 1);
    size_t n = sizeof skipped - 1;
    n += pack_zstd(text, TEXT_BYTES, packed + n);
    memcpy(packed + n, skipped, sizeof skipped - 1);
    expect_bytes(packed, n + sizeof skipped - 1, text, TEXT_BYTES);
}

static void test_damage(void **state)
{
    (void)state;
    static char packed[PACKED_MAX], out[4096];
    for (size_t i = 0; i < PS_ARRAY_LEN(packers); i++) {
        const size_t n = packers[i](text, 1000, packed);
        int64_t n_read;
        for (size_t cut = 4; cut < n; cut++) {
            const temp_path p = write_bytes(packed, cut);
            assert_int_equal(read_pieces(p.text, 4096, out, sizeof out, &n_read), PS_EFORMAT);
            if (strstr(ps_last_error(), "offset ") == NULL || strstr(ps_last_error(), "truncated?") == NULL)
                fail_msg("%zu of %zu bytes: %s", cut, n, ps_last_error());
        }
        int n_refused = 0;
        for (size_t at = 4; at < n; at++) {
            packed[at] = (char)~packed[at];
            const temp_path p = write_bytes(packed, n);
            const ps_status st = read_pieces(p.text, 4096, out, sizeof out, &n_read);
            assert_true(st == PS_EFORMAT || (st == PS_OK && n_read <= 4096));
            if (st == PS_OK)
                assert_memory_equal(out, text, (size_t)ps_min_i64(n_read, 1000)); /* dates and names of a header */
            n_refused += st == PS_EFORMAT;
            packed[at] = (char)~packed[at];
        }
        assert_true(n_refused > (int)n - 20);
        const size_t garbage = n + 20;
        memset(packed + n, 'x', 20);
        const temp_path p = write_bytes(packed, garbage);
        assert_int_equal(read_pieces(p.text, 4096, out, sizeof out, &n_read), PS_EFORMAT);
        assert_non_null(strstr(ps_last_error(), "damaged: "));
    }
    /* after gzip: bytes that are no member, at once and after zeros; a member after zeros */
    static const char *const others[] = {"x", "\0\0x", "\0\x1f\x8b"};
    static const size_t n_others[] = {1, 3, 3};
    const size_t n_packed = pack_gzip(text, 1000, packed);
    for (size_t i = 0; i < PS_ARRAY_LEN(others); i++) {
        char expected[64];
        int64_t n_read;
        memcpy(packed + n_packed, others[i], n_others[i]);
        const temp_path p = write_bytes(packed, n_packed + n_others[i]);
        assert_int_equal(read_pieces(p.text, 4096, out, sizeof out, &n_read), PS_EFORMAT);
        snprintf(expected, sizeof expected, "offset %zu of the compressed bytes",
                 n_packed + (i == 0   ? 0
                             : i == 1 ? 2
                                      : 1));
        assert_non_null(strstr(ps_last_error(), expected));
        assert_non_null(strstr(ps_last_error(), "neither a member nor zeros to the end"));
    }
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void test_large_window(void **state)
{
    (void)state;
    /* a frame without size of content, whose window is 2^30 bytes, and an empty last block */
    static const char frame[] = "\x28\xb5\x2f\xfd\x00\xa0\x01\x00\x00";
    char out[16];
    int64_t n_read;
    const temp_path p = write_bytes(frame, sizeof frame - 1);
    assert_int_equal(read_pieces(p.text, 16, out, sizeof out, &n_read), PS_EFORMAT);
    assert_non_null(strstr(ps_last_error(), "a window of more than 128 MiB: compress it again without --long"));
}

static void test_faults(void **state)
{
    (void)state;
    static char packed[PACKED_MAX], out[TEXT_BYTES + 16];
    static const ps_fault_kind kinds[] = {PS_FAULT_ALLOC, PS_FAULT_READ};
    static const ps_status codes[] = {PS_ENOMEM_HOST, PS_EIO};
    for (size_t i = 0; i < PS_ARRAY_LEN(packers); i++) {
        const temp_path p = write_bytes(packed, packers[i](text, TEXT_BYTES, packed));
        for (int kind = 0; kind < 2; kind++) {
            int n_failures = 0;
            for (bool has_struck = true; has_struck; n_failures += has_struck) {
                int64_t n_read;
                ps_fault_arm(kinds[kind], n_failures, false);
                const ps_status st = read_pieces(p.text, 1 << 16, out, sizeof out, &n_read);
                has_struck = ps_fault_has_struck(kinds[kind]);
                ps_fault_arm(kinds[kind], -1, false);
                assert_int_equal(st, has_struck ? codes[kind] : PS_OK);
                assert_int_equal(ps_mem_live_bytes(), 0);
            }
            assert_true(n_failures >= 2);
        }
    }
}

/* By the name, which may have .gz or .zst at its end; what cannot be read is refused with a command. */
static void test_formats(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        ps_config_data_format format;
    } names[] = {{"a.jsonl", PS_CONFIG_DATA_FORMAT_JSONL},     {"a.jsonl.gz", PS_CONFIG_DATA_FORMAT_JSONL},
                 {"a.jsonl.zst", PS_CONFIG_DATA_FORMAT_JSONL}, {"c4.json.gz", PS_CONFIG_DATA_FORMAT_JSONL},
                 {"a.json", PS_CONFIG_DATA_FORMAT_TEXT},       {"a.txt.gz", PS_CONFIG_DATA_FORMAT_TEXT},
                 {"a.bin", PS_CONFIG_DATA_FORMAT_LLMC},        {"a.bin.zst", PS_CONFIG_DATA_FORMAT_LLMC},
                 {"a.u16.gz", PS_CONFIG_DATA_FORMAT_NANOGPT},  {"gz", PS_CONFIG_DATA_FORMAT_TEXT}};
    for (size_t i = 0; i < PS_ARRAY_LEN(names); i++)
        assert_int_equal(ps_dataset_format(names[i].name, PS_CONFIG_DATA_FORMAT_AUTO), names[i].format);
    assert_int_equal(ps_dataset_format("a.bin", PS_CONFIG_DATA_FORMAT_TEXT), PS_CONFIG_DATA_FORMAT_TEXT);

    static const struct {
        const char *name, *bytes, *said;
    } cases[] = {
        {"t.parquet", "x", "t.parquet is a Parquet file, which pstar does not read: `python -m patrickstar.convert"},
        {"t.jsonl", "PAR1x", "is a Parquet file"},
        {"data.arrow", "\xff\xff\xff\xff", "is an Arrow file"},
        {"data.txt", "ARROW1", "is an Arrow file"},
        {"t.bin.gz", "\x1f\x8bxx", "a token file is read at random places and cannot be compressed: `gzip -d "},
        {"t.u16", "\x28\xb5\x2f\xfd", "`zstd -d "},
        {"t.bin", "PAR1", NULL},
        {"t.jsonl.gz", "\x1f\x8bxx", NULL},
        {"t.txt", "text", NULL},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        const temp_path p = temp_folder_file(&folder, cases[i].name);
        assert_int_equal(ps_file_write_all(p.text, cases[i].bytes, (int64_t)strlen(cases[i].bytes)), PS_OK);
        const ps_status st = ps_dataset_check_file(p.text, PS_CONFIG_DATA_FORMAT_AUTO);
        if (st != (cases[i].said != NULL ? PS_EFORMAT : PS_OK)) fail_msg("%s: %d", cases[i].name, (int)st);
        if (cases[i].said != NULL && strstr(ps_last_error(), cases[i].said) == NULL)
            fail_msg("%s: %s", cases[i].name, ps_last_error());
    }
    assert_int_equal(ps_dataset_check_file(temp_folder_file(&folder, "t.parquet").text, PS_CONFIG_DATA_FORMAT_AUTO),
                     PS_EFORMAT);
    char expected[400];
    snprintf(expected, sizeof expected, "`python -m patrickstar.convert %s/t.parquet %s/t.jsonl`", folder.path,
             folder.path);
    assert_non_null(strstr(ps_last_error(), expected));
    assert_int_equal(ps_dataset_check_file(folder.path, PS_CONFIG_DATA_FORMAT_AUTO), PS_EFORMAT);
    snprintf(expected, sizeof expected,
             "%s is a folder, which pstar does not read: `python -m patrickstar.convert %s "
             "%s.jsonl`",
             folder.path, folder.path, folder.path);
    if (strstr(ps_last_error(), expected) == NULL) fail_msg("%s", ps_last_error());
    assert_int_equal(ps_dataset_check_file("/nowhere.jsonl", PS_CONFIG_DATA_FORMAT_AUTO), PS_EIO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bytes), cmocka_unit_test(test_damage),  cmocka_unit_test(test_large_window),
        cmocka_unit_test(test_faults),     cmocka_unit_test(test_formats),
    };
    uint32_t x = 1;
    for (int i = 0; i < TEXT_BYTES; i++) { /* words that come again, and some that do not */
        x = x * 1664525 + 1013904223;
        text[i] = (char)(i / 7 % 5 != 0 ? "the same "[i % 9] : 'a' + (int)(x >> 24) % 26);
    }
    folder = temp_folder_make();
    const int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    temp_folder_remove(&folder);
    return n_failed;
}
