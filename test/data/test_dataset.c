#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "data/dataset.h"
#include "data/token_file.h"
#include "temp_folder.h"

static temp_folder folder, cache;
static ps_tokenizer *gpt2;

static ps_status open_as(const char *path, ps_tokenizer *t, const char *cache_folder, int32_t vocab_size,
                         ps_dataset **out)
{
    return ps_dataset_open(path,
                           &(ps_dataset_options){.tokenizer = t,
                                                 .cache_folder = cache_folder,
                                                 .vocab_size = vocab_size,
                                                 .text_key = "text",
                                                 .separator = t != NULL ? ps_tokenizer_eot(t) : -1},
                           out);
}

static int set_up(void **state)
{
    (void)state;
    return ps_tokenizer_open("data/gpt2", &gpt2) != PS_OK;
}

static int tear_down(void **state)
{
    (void)state;
    ps_tokenizer_close(gpt2);
    return ps_mem_live_bytes() != 0;
}

static void assert_dataset_is_hello(ps_dataset *d)
{
    int32_t ids[2];
    assert_int_equal(ps_dataset_token_count(d), 2);
    assert_int_equal(ps_dataset_read(d, 0, 2, ids), PS_OK);
    assert_int_equal(ids[0], 15496);
    assert_int_equal(ids[1], 995);
    assert_int_equal(ps_dataset_read(d, 1, 1, ids), PS_OK);
    assert_int_equal(ids[0], 995);
}

static void test_dataset_from_text(void **state)
{
    (void)state;
    const temp_path p = temp_folder_file(&folder, "hello.txt");
    ps_dataset *d;
    assert_int_equal(ps_file_write_all(p.text, "Hello world", 11), PS_OK);
    assert_int_equal(open_as(p.text, gpt2, NULL, 50304, &d), PS_OK);
    assert_string_equal(ps_dataset_path(d), p.text);
    assert_dataset_is_hello(d);
    ps_dataset_close(d);
    assert_int_equal(open_as(p.text, NULL, NULL, 50257, &d), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "text needs a tokenizer"));
    assert_int_equal(open_as(p.text, gpt2, NULL, 50256, &d), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "50257 ids, but the model's vocabulary only 50256"));
    assert_int_equal(ps_file_write_all(p.text, "", 0), PS_OK);
    assert_int_equal(open_as(p.text, gpt2, NULL, 50257, &d), PS_EFORMAT);
    assert_null(d);
    assert_non_null(strstr(ps_last_error(), "hello.txt: offset 0: the text is empty"));
}

static void test_dataset_cache(void **state)
{
    (void)state;
    const temp_path p = temp_folder_file(&folder, "cached.txt");
    ps_dataset *d;
    assert_int_equal(ps_file_write_all(p.text, "Hello world", 11), PS_OK);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(open_as(p.text, gpt2, cache.path, 50257, &d), PS_OK);
        assert_dataset_is_hello(d);
        ps_dataset_close(d);
        assert_int_equal(temp_folder_entries(&cache, 0), 1);
    }
    /* the second time it was read: without the right to write it still opens */
    ps_fault_arm(PS_FAULT_WRITE, 0, true);
    assert_int_equal(open_as(p.text, gpt2, cache.path, 50257, &d), PS_OK);
    ps_fault_arm(PS_FAULT_WRITE, -1, false);
    ps_dataset_close(d);
    /* damaged: made anew */
    DIR *entries = opendir(cache.path);
    for (struct dirent *e; (e = readdir(entries)) != NULL;)
        if (e->d_name[0] != '.') assert_int_equal(truncate(temp_folder_file(&cache, e->d_name).text, 1000), 0);
    closedir(entries);
    assert_int_equal(open_as(p.text, gpt2, cache.path, 50257, &d), PS_OK);
    assert_dataset_is_hello(d);
    ps_dataset_close(d);
    /* another text, another file */
    assert_int_equal(ps_file_write_all(p.text, "Hello there", 11), PS_OK);
    assert_int_equal(open_as(p.text, gpt2, cache.path, 50257, &d), PS_OK);
    ps_dataset_close(d);
    assert_int_equal(temp_folder_entries(&cache, 0), 2);
    assert_int_equal(open_as(p.text, gpt2, "/proc/nonexistent", 50257, &d), PS_EIO);
}

/* A token file: read through when opened. */
static void test_ids_are_checked_when_opened(void **state)
{
    (void)state;
    int32_t ids[1003];
    for (int i = 0; i < 1003; i++) ids[i] = i;
    ps_dataset *d;
    const temp_path p = temp_folder_file(&folder, "counting.bin");
    assert_int_equal(ps_token_file_write(p.text, ids, 1003), PS_OK);
    assert_int_equal(open_as(p.text, NULL, NULL, 1003, &d), PS_OK);
    assert_int_equal(ps_dataset_token_count(d), 1003);
    assert_int_equal(ps_dataset_read(d, 1000, 3, ids), PS_OK);
    assert_int_equal(ids[2], 1002);
    ps_dataset_close(d);
    assert_int_equal(open_as(p.text, NULL, NULL, 1002, &d), PS_EFORMAT);
    assert_null(d);
    assert_non_null(strstr(ps_last_error(), "offset 3028: token 1002 has id 1002, expected 0 to 1001"));
}

static void test_formats(void **state)
{
    (void)state;
    const ps_config_data_format any = PS_CONFIG_DATA_FORMAT_AUTO;
    assert_int_equal(ps_dataset_format("a.bin", any), PS_CONFIG_DATA_FORMAT_LLMC);
    assert_int_equal(ps_dataset_format("a.u16", any), PS_CONFIG_DATA_FORMAT_NANOGPT);
    assert_int_equal(ps_dataset_format("a.jsonl", any), PS_CONFIG_DATA_FORMAT_JSONL);
    assert_int_equal(ps_dataset_format("a.txt", any), PS_CONFIG_DATA_FORMAT_TEXT);
    assert_int_equal(ps_dataset_format("jsonl", any), PS_CONFIG_DATA_FORMAT_TEXT);
    assert_int_equal(ps_dataset_format("a.bin", PS_CONFIG_DATA_FORMAT_NANOGPT), PS_CONFIG_DATA_FORMAT_NANOGPT);
    const temp_path p = temp_folder_file(&folder, "train.bin");
    ps_dataset *d;
    int32_t ids[2];
    assert_int_equal(ps_file_write_all(p.text, "\x05\x00\x06\x00", 4), PS_OK);
    assert_int_equal(open_as(p.text, NULL, NULL, 10, &d), PS_EFORMAT);
    assert_non_null(strstr(ps_last_error(), "data.format = nanogpt"));
    const ps_dataset_options nano = {.format = PS_CONFIG_DATA_FORMAT_NANOGPT, .vocab_size = 10};
    assert_int_equal(ps_dataset_open(p.text, &nano, &d), PS_OK);
    assert_int_equal(ps_dataset_read(d, 0, 2, ids), PS_OK);
    assert_int_equal(ids[1], 6);
    ps_dataset_close(d);
}

/* The texts of all lines, <|endoftext|> between them, from memory and from the cache. */
static void test_jsonl(void **state)
{
    (void)state;
    static const char text[] =
        "{\"text\": \"Hello\"}\n\n{\"text\": \" world\", \"label\": \"x\"}\n{\"other\": \" world\", "
        "\"text\": \"\"}\n";
    const temp_path p = temp_folder_file(&folder, "lines.jsonl");
    const int32_t expected[] = {15496, 50256, 995, 50256};
    int32_t ids[4];
    ps_dataset *d;
    temp_folder_entries(&cache, 1);
    assert_int_equal(ps_file_write_all(p.text, text, sizeof text - 1), PS_OK);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(open_as(p.text, gpt2, round == 0 ? NULL : cache.path, 50257, &d), PS_OK);
        assert_int_equal(ps_dataset_token_count(d), 4);
        assert_int_equal(ps_dataset_read(d, 0, 4, ids), PS_OK);
        assert_memory_equal(ids, expected, sizeof ids);
        ps_dataset_close(d);
        assert_int_equal(temp_folder_entries(&cache, 0), round > 0);
    }
    /* another key is another content */
    ps_dataset_options o = {.tokenizer = gpt2, .cache_folder = cache.path, .vocab_size = 50257, .text_key = "other"};
    assert_int_equal(ps_dataset_open(p.text, &o, &d), PS_EFORMAT);
    assert_non_null(strstr(ps_last_error(), "lines.jsonl: line 1, offset 0: \"other\" is missing"));
    assert_int_equal(temp_folder_entries(&cache, 0), 1);
    assert_int_equal(ps_file_write_all(p.text, "{\"text\": \"\"}", 12), PS_OK);
    assert_int_equal(open_as(p.text, gpt2, NULL, 50257, &d), PS_EFORMAT);
    assert_non_null(strstr(ps_last_error(), "lines.jsonl: all its texts are empty"));
}

/* data.added_tokens; what it gives is cached apart. */
static void test_added_tokens(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text;
        int64_t n;
        int32_t ids[6];
    } cases[] = {
        {"added.txt", "Hello<|endoftext|> world", 3, {15496, 50256, 995}},
        {"added.jsonl", "{\"text\": \"<|endoftext|>Hello\"}\n{\"text\": \" world\"}", 4, {50256, 15496, 50256, 995}},
    };
    temp_folder_entries(&cache, 1);
    for (int i = 0; i < 2; i++)
        for (int round = 0; round < 4; round++) {
            const temp_path p = temp_folder_file(&folder, cases[i].name);
            int32_t ids[6];
            ps_dataset *d;
            assert_int_equal(ps_file_write_all(p.text, cases[i].text, (int64_t)strlen(cases[i].text)), PS_OK);
            const ps_dataset_options o = {.tokenizer = gpt2,
                                          .added_tokens = round % 2 == 0,
                                          .separator = 50256,
                                          .text_key = "text",
                                          .cache_folder = cache.path,
                                          .vocab_size = 50257};
            assert_int_equal(ps_dataset_open(p.text, &o, &d), PS_OK);
            if (round % 2 == 0) {
                assert_int_equal(ps_dataset_token_count(d), cases[i].n);
                assert_int_equal(ps_dataset_read(d, 0, cases[i].n, ids), PS_OK);
                assert_memory_equal(ids, cases[i].ids, (size_t)cases[i].n * sizeof *ids);
            } else {
                assert_int_equal(ps_dataset_token_count(d), cases[i].n + 6); /* <, |, endo, ft, ext, |, > */
            }
            ps_dataset_close(d);
        }
    assert_int_equal(temp_folder_entries(&cache, 0), 4);
}

static ps_status open_and_read(const char *path, const char *cache_folder)
{
    ps_dataset *d = NULL;
    int32_t ids[2];
    PS_TRY(open_as(path, gpt2, cache_folder, 50257, &d));
    const ps_status st = ps_dataset_read(d, 0, 2, ids);
    ps_dataset_close(d);
    return st;
}

static void test_faults(void **state)
{
    (void)state;
    static const ps_fault_kind kinds[] = {PS_FAULT_ALLOC, PS_FAULT_READ, PS_FAULT_WRITE};
    static const ps_status codes[] = {PS_ENOMEM_HOST, PS_EIO, PS_EIO};
    for (int kind = 0; kind < 6; kind++) {
        const temp_path p = temp_folder_file(&folder, kind < 3 ? "fault.txt" : "fault.jsonl");
        if (kind < 3)
            assert_int_equal(ps_file_write_all(p.text, "one two three four five six", 27), PS_OK);
        else
            assert_int_equal(ps_file_write_all(p.text, "{\"text\": \"one two\"}\n{\"text\": \"three\"}", 37), PS_OK);
        int n_failures = 0;
        for (bool has_struck = true; has_struck; n_failures += has_struck) {
            temp_folder_entries(&cache, 1);
            const int64_t live_bytes = ps_mem_live_bytes();
            ps_fault_arm(kinds[kind % 3], n_failures, false);
            const ps_status st = open_and_read(p.text, cache.path);
            has_struck = ps_fault_has_struck(kinds[kind % 3]);
            ps_fault_arm(kinds[kind % 3], -1, false);
            assert_int_equal(st, has_struck ? codes[kind % 3] : PS_OK);
            assert_int_equal(ps_mem_live_bytes(), live_bytes);
            assert_in_range(temp_folder_entries(&cache, 0), 0, 1);
            assert_int_equal(open_and_read(p.text, cache.path), PS_OK);
        }
        assert_true(n_failures >= 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dataset_from_text),
        cmocka_unit_test(test_dataset_cache),
        cmocka_unit_test(test_ids_are_checked_when_opened),
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_jsonl),
        cmocka_unit_test(test_added_tokens),
        cmocka_unit_test(test_faults),
    };
    folder = temp_folder_make();
    cache = temp_folder_make();
    const int n_failed = cmocka_run_group_tests(tests, set_up, tear_down);
    temp_folder_remove(&folder);
    temp_folder_remove(&cache);
    return n_failed;
}
