/* Datasets and the loader over them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "data/loader.h"
#include "data/token_file.h"
#include "temp_folder.h"

enum { N_TOKENS = 1003, VOCAB = 2000 };

static temp_folder folder, cache;
static ps_tokenizer *gpt2;
static ps_dataset *counting; /* token i is i */

static int set_up(void **state)
{
    (void)state;
    int32_t ids[N_TOKENS];
    for (int i = 0; i < N_TOKENS; i++) ids[i] = i;
    const temp_path p = temp_folder_file(&folder, "counting.bin");
    return ps_token_file_write(p.text, ids, N_TOKENS) != PS_OK ||
           ps_dataset_open(p.text, NULL, NULL, VOCAB, &counting) != PS_OK ||
           ps_tokenizer_open("data/gpt2", &gpt2) != PS_OK;
}

static int tear_down(void **state)
{
    (void)state;
    ps_dataset_close(counting);
    ps_tokenizer_close(gpt2);
    return ps_mem_live_bytes() != 0;
}

static ps_loader *make_loader(int64_t sequence, double validation_fraction, uint64_t seed)
{
    ps_loader *l;
    const ps_loader_options o = {sequence, validation_fraction, seed, false};
    assert_int_equal(ps_loader_create(counting, &o, &l), PS_OK);
    return l;
}

/* ---- datasets ---- */

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
    assert_int_equal(ps_dataset_open(p.text, gpt2, NULL, 50304, &d), PS_OK);
    assert_string_equal(ps_dataset_path(d), p.text);
    assert_dataset_is_hello(d);
    ps_dataset_close(d);
    assert_int_equal(ps_dataset_open(p.text, NULL, NULL, 50257, &d), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "text needs a tokenizer"));
    assert_int_equal(ps_dataset_open(p.text, gpt2, NULL, 50256, &d), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "50257 ids, but the model's vocabulary only 50256"));
    assert_int_equal(ps_file_write_all(p.text, "", 0), PS_OK);
    assert_int_equal(ps_dataset_open(p.text, gpt2, NULL, 50257, &d), PS_EFORMAT);
    assert_null(d);
}

static void test_dataset_cache(void **state)
{
    (void)state;
    const temp_path p = temp_folder_file(&folder, "cached.txt");
    ps_dataset *d;
    assert_int_equal(ps_file_write_all(p.text, "Hello world", 11), PS_OK);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(ps_dataset_open(p.text, gpt2, cache.path, 50257, &d), PS_OK);
        assert_dataset_is_hello(d);
        ps_dataset_close(d);
        assert_int_equal(temp_folder_entries(&cache, 0), 1);
    }
    /* the second time it was read: without the right to write it still opens */
    ps_fault_arm(PS_FAULT_WRITE, 0, true);
    assert_int_equal(ps_dataset_open(p.text, gpt2, cache.path, 50257, &d), PS_OK);
    ps_fault_arm(PS_FAULT_WRITE, -1, false);
    ps_dataset_close(d);
    /* damaged: made anew */
    DIR *entries = opendir(cache.path);
    for (struct dirent *e; (e = readdir(entries)) != NULL;)
        if (e->d_name[0] != '.') assert_int_equal(truncate(temp_folder_file(&cache, e->d_name).text, 1000), 0);
    closedir(entries);
    assert_int_equal(ps_dataset_open(p.text, gpt2, cache.path, 50257, &d), PS_OK);
    assert_dataset_is_hello(d);
    ps_dataset_close(d);
    /* another text, another file */
    assert_int_equal(ps_file_write_all(p.text, "Hello there", 11), PS_OK);
    assert_int_equal(ps_dataset_open(p.text, gpt2, cache.path, 50257, &d), PS_OK);
    ps_dataset_close(d);
    assert_int_equal(temp_folder_entries(&cache, 0), 2);
    assert_int_equal(ps_dataset_open(p.text, gpt2, "/nonexistent", 50257, &d), PS_EIO);
}

static void test_dataset_checks_ids_when_opened(void **state)
{
    (void)state;
    ps_dataset *d;
    const temp_path p = temp_folder_file(&folder, "counting.bin");
    assert_int_equal(ps_dataset_open(p.text, NULL, NULL, N_TOKENS - 1, &d), PS_EFORMAT);
    assert_null(d);
    assert_non_null(strstr(ps_last_error(), "token 1002 has id 1002, expected 0 to 1001"));
}

/* ---- loader ---- */

static void test_windows(void **state)
{
    (void)state;
    ps_loader *l = make_loader(10, 0.1, 1);
    int32_t tokens[3 * 10], targets[3 * 10];
    assert_int_equal(ps_loader_window_count(l, PS_SPLIT_TRAIN), 90);
    assert_int_equal(ps_loader_window_count(l, PS_SPLIT_VALIDATION), 10);
    assert_int_equal(ps_loader_get(l, PS_SPLIT_TRAIN, 5, 3, tokens, targets), PS_OK);
    for (int i = 0; i < 30; i++) {
        assert_int_equal(tokens[i], ps_loader_window_of(l, PS_SPLIT_TRAIN, 5 + i / 10) * 10 + i % 10);
        assert_int_equal(targets[i], tokens[i] + 1);
    }
    /* validation: the last windows in order, and from the first one on again */
    assert_int_equal(ps_loader_get(l, PS_SPLIT_VALIDATION, 8, 3, tokens, targets), PS_OK);
    assert_int_equal(tokens[0], 980);
    assert_int_equal(tokens[10], 990);
    assert_int_equal(targets[19], 1000);
    assert_int_equal(tokens[20], 900);
    ps_loader_destroy(l);
    l = make_loader(1, 0, 1);
    assert_int_equal(ps_loader_window_count(l, PS_SPLIT_TRAIN), N_TOKENS - 1);
    assert_int_equal(ps_loader_get(l, PS_SPLIT_TRAIN, 0, 1, tokens, targets), PS_OK);
    assert_int_equal(targets[0], tokens[0] + 1);
    assert_int_equal(ps_loader_get(l, PS_SPLIT_VALIDATION, 0, 1, tokens, targets), PS_EINVAL);
    ps_loader_destroy(l);
}

/* Each epoch visits each training window once, in an order of its own. */
static void test_epochs_are_permutations(void **state)
{
    (void)state;
    for (int64_t sequence = 1; sequence <= N_TOKENS - 1; sequence = sequence * 3 / 2 + 1) {
        ps_loader *l = make_loader(sequence, 0, 42);
        const int64_t n = ps_loader_window_count(l, PS_SPLIT_TRAIN);
        int64_t n_moved = 0, n_in_place = 0;
        for (int64_t epoch = 0; epoch < 8; epoch++) {
            bool is_seen[N_TOKENS] = {false};
            for (int64_t i = 0; i < n; i++) {
                const int64_t w = ps_loader_window_of(l, PS_SPLIT_TRAIN, epoch * n + i);
                assert_in_range(w, 0, n - 1);
                assert_false(is_seen[w]);
                is_seen[w] = true;
                n_moved += w != ps_loader_window_of(l, PS_SPLIT_TRAIN, (epoch + 1) * n + i);
                n_in_place += w == i;
            }
        }
        if (n > 10) { /* a random permutation has 1 fixed point and agrees with another in 1 place on average */
            assert_true(n_moved > 8 * (n - 5));
            assert_true(n_in_place < 8 * 5);
        }
        ps_loader_destroy(l);
    }
}

/* The windows at place 0 over many epochs are spread evenly: chi square of 50 windows, 49 degrees of freedom. */
static void test_order_is_uniform(void **state)
{
    (void)state;
    ps_loader *l = make_loader(20, 0, 3);
    int counts[50] = {0};
    const int n_epochs = 5000;
    assert_int_equal(ps_loader_window_count(l, PS_SPLIT_TRAIN), 50);
    for (int epoch = 0; epoch < n_epochs; epoch++)
        counts[ps_loader_window_of(l, PS_SPLIT_TRAIN, (int64_t)epoch * 50)]++;
    double chi_square = 0;
    for (int i = 0; i < 50; i++) chi_square += (counts[i] - 100.0) * (counts[i] - 100.0) / 100.0;
    assert_true(chi_square > 23.9 && chi_square < 85.4); /* 0.1 % on either side */
    ps_loader_destroy(l);
}

/* Any batch size, any start, any loader made with the same options: sample s is the same. */
static void test_samples_depend_on_their_number_only(void **state)
{
    (void)state;
    enum { T = 7, N = 300 };
    static int32_t all[N * T], all_targets[N * T], part[N * T], part_targets[N * T];
    ps_loader *a = make_loader(T, 0.05, 9), *b = make_loader(T, 0.05, 9), *c = make_loader(T, 0.05, 10);
    assert_int_equal(ps_loader_get(a, PS_SPLIT_TRAIN, 0, N, all, all_targets), PS_OK);
    for (int batch = 1; batch < 50; batch += 12) {
        for (int64_t s = N - batch; s >= 0; s -= batch) {
            assert_int_equal(ps_loader_get(b, PS_SPLIT_TRAIN, s, batch, part, part_targets), PS_OK);
            assert_memory_equal(part, all + s * T, (size_t)batch * T * sizeof *part);
            assert_memory_equal(part_targets, all_targets + s * T, (size_t)batch * T * sizeof *part);
        }
    }
    assert_int_equal(ps_loader_get(c, PS_SPLIT_TRAIN, 0, N, part, part_targets), PS_OK);
    assert_memory_not_equal(part, all, sizeof part); /* another seed */
    ps_loader_destroy(a);
    ps_loader_destroy(b);
    ps_loader_destroy(c);
    ps_loader_destroy(NULL);
}

static void test_file_order(void **state)
{
    (void)state;
    ps_loader *l = NULL;
    assert_int_equal(ps_loader_create(counting, &(ps_loader_options){.sequence = 10, .in_file_order = true}, &l),
                     PS_OK);
    const int64_t n = ps_loader_window_count(l, PS_SPLIT_TRAIN);
    assert_true(n > 3);
    for (int64_t sample = 0; sample < 2 * n; sample++)
        assert_int_equal(ps_loader_window_of(l, PS_SPLIT_TRAIN, sample), sample % n);
    ps_loader_destroy(l);
}

static void test_too_short_is_refused_with_numbers(void **state)
{
    (void)state;
    ps_loader *l;
    assert_int_equal(ps_loader_create(counting, &(ps_loader_options){.sequence = 1002}, &l), PS_OK);
    assert_int_equal(ps_loader_window_count(l, PS_SPLIT_TRAIN), 1);
    ps_loader_destroy(l);
    assert_int_equal(ps_loader_create(counting, &(ps_loader_options){.sequence = 1003}, &l), PS_EINVAL);
    assert_null(l);
    assert_non_null(strstr(ps_last_error(), "1003 tokens, but one window needs 1004"));
    assert_int_equal(ps_loader_create(counting, &(ps_loader_options){1002, 0.1, 0, false}, &l), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "needs 2005"));
    assert_int_equal(ps_loader_create(counting, &(ps_loader_options){501, 0.001, 0, false}, &l), PS_OK);
    assert_int_equal(ps_loader_window_count(l, PS_SPLIT_VALIDATION), 1);
    ps_loader_destroy(l);
    assert_int_equal(ps_loader_create(counting, &(ps_loader_options){501, 0.999, 0, false}, &l), PS_OK);
    assert_int_equal(ps_loader_window_count(l, PS_SPLIT_TRAIN), 1);
    ps_loader_destroy(l);
    assert_int_equal(ps_loader_create(counting, &(ps_loader_options){0, 0, 0, false}, &l), PS_EINVAL);
    assert_int_equal(ps_loader_create(counting, &(ps_loader_options){INT64_MAX, 0.5, 0, false}, &l), PS_EINVAL);
    assert_int_equal(ps_loader_create(counting, &(ps_loader_options){8, 1.0, 0, false}, &l), PS_EINVAL);
    assert_int_equal(ps_loader_create(counting, &(ps_loader_options){8, 0.0 / 0.0, 0, false}, &l), PS_EINVAL);
}

static ps_status open_and_load(const char *path)
{
    ps_status st;
    ps_dataset *d = NULL;
    ps_loader *l = NULL;
    int32_t tokens[4], targets[4];
    PS_TRY_GOTO(ps_dataset_open(path, gpt2, cache.path, 50257, &d));
    PS_TRY_GOTO(ps_loader_create(d, &(ps_loader_options){.sequence = 2}, &l));
    PS_TRY_GOTO(ps_loader_get(l, PS_SPLIT_TRAIN, 0, 2, tokens, targets));
out:
    ps_loader_destroy(l);
    ps_dataset_close(d);
    return st;
}

static void test_faults(void **state)
{
    (void)state;
    const temp_path p = temp_folder_file(&folder, "fault.txt");
    static const ps_fault_kind kinds[] = {PS_FAULT_ALLOC, PS_FAULT_READ, PS_FAULT_WRITE};
    static const ps_status codes[] = {PS_ENOMEM_HOST, PS_EIO, PS_EIO};
    assert_int_equal(ps_file_write_all(p.text, "one two three four five six", 27), PS_OK);
    assert_int_equal(open_and_load(p.text), PS_OK);
    for (int kind = 0; kind < 3; kind++) {
        int n_failures = 0;
        for (bool has_struck = true; has_struck; n_failures += has_struck) {
            temp_folder_entries(&cache, 1);
            const int64_t live_bytes = ps_mem_live_bytes();
            ps_fault_arm(kinds[kind], n_failures, false);
            const ps_status st = open_and_load(p.text);
            has_struck = ps_fault_has_struck(kinds[kind]);
            ps_fault_arm(kinds[kind], -1, false);
            assert_int_equal(st, has_struck ? codes[kind] : PS_OK);
            assert_int_equal(ps_mem_live_bytes(), live_bytes);
            assert_in_range(temp_folder_entries(&cache, 0), 0, 1);
            assert_int_equal(open_and_load(p.text), PS_OK);
        }
        assert_true(n_failures >= 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dataset_from_text),
        cmocka_unit_test(test_dataset_cache),
        cmocka_unit_test(test_dataset_checks_ids_when_opened),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_epochs_are_permutations),
        cmocka_unit_test(test_order_is_uniform),
        cmocka_unit_test(test_samples_depend_on_their_number_only),
        cmocka_unit_test(test_file_order),
        cmocka_unit_test(test_too_short_is_refused_with_numbers),
        cmocka_unit_test(test_faults),
    };
    folder = temp_folder_make();
    cache = temp_folder_make();
    const int n_failed = cmocka_run_group_tests(tests, set_up, tear_down);
    temp_folder_remove(&folder);
    temp_folder_remove(&cache);
    return n_failed;
}
