#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "bert_vocab.h"
#include "data/sample_set.h"
#include "temp_folder.h"

static temp_folder folder;
static ps_tokenizer *gpt2, *bert;
static const ps_jsonl_keys keys = {"text", "text_pair", "label"};

static int set_up(void **state)
{
    (void)state;
    bert = bert_tokenizer();
    return bert == NULL || ps_tokenizer_open("data/gpt2", &gpt2) != PS_OK;
}

static int tear_down(void **state)
{
    (void)state;
    ps_tokenizer_close(gpt2);
    ps_tokenizer_close(bert);
    return ps_mem_live_bytes() != 0;
}

static ps_status open_text(const char *text, ps_tokenizer *tokenizer, ps_labels *labels, ps_sample_set **out)
{
    const temp_path p = temp_folder_file(&folder, "lines.jsonl");
    assert_int_equal(ps_file_write_all(p.text, text, (int64_t)strlen(text)), PS_OK);
    return ps_sample_set_open(p.text, &keys, tokenizer, false, 6, labels, out);
}

static ps_labels make_labels(const char *list, int32_t n_max)
{
    ps_labels l;
    assert_int_equal(ps_labels_init(&l, list, n_max), PS_OK);
    return l;
}

static void test_lines_become_samples(void **state)
{
    (void)state;
    ps_labels labels = make_labels("", 3);
    ps_sample_set *s;
    assert_int_equal(open_text("{\"text\": \"Hello\", \"label\": 2}\n{\"text\": \" a a a a a a\", \"label\": 0}\n"
                               "{\"text\": \"Hello\", \"text_pair\": \" a\", \"label\": 1}\n",
                               bert, &labels, &s),
                     PS_OK);
    assert_int_equal(ps_sample_set_count(s), 3);
    assert_true(ps_sample_set_has_pairs(s));
    static const struct {
        int32_t ids[6], label;
        int n, n_first;
    } expected[] = {{{101, BERT_HELLO, 102}, 2, 3, 3},
                    {{101, 257, 257, 257, 257, 102}, 0, 6, 6},
                    {{101, BERT_HELLO, 102, 257, 102}, 1, 5, 3}};
    for (int i = 0; i < 3; i++) {
        const ps_sample a = ps_sample_set_get(s, i);
        assert_int_equal(a.n_ids, expected[i].n);
        assert_int_equal(a.n_first, expected[i].n_first);
        assert_int_equal(a.label, expected[i].label);
        assert_memory_equal(a.ids, expected[i].ids, (size_t)a.n_ids * 4);
    }
    assert_int_equal(labels.list.n, 0);
    ps_sample_set_close(s);
    ps_labels_deinit(&labels);
}

/* Names found in the data get ids in byte order, whatever the order of the lines; another file then uses the same
 * ids. */
static void test_label_names(void **state)
{
    (void)state;
    ps_labels labels = make_labels("", 3);
    ps_sample_set *s;
    assert_int_equal(open_text("{\"text\": \"x\", \"label\": \"yes\"}\n{\"text\": \"x\", \"label\": \"no\"}\n"
                               "{\"text\": \"x\", \"label\": \"yes\"}\n{\"text\": \"x\", \"label\": \"maybe\"}",
                               bert, &labels, &s),
                     PS_OK);
    static const int32_t expected[] = {2, 1, 2, 0};
    for (int i = 0; i < 4; i++) assert_int_equal(ps_sample_set_get(s, i).label, expected[i]);
    assert_false(ps_sample_set_has_pairs(s));
    ps_sample_set_close(s);
    assert_int_equal(open_text("{\"text\": \"x\", \"label\": \"no\"}", bert, &labels, &s), PS_OK);
    assert_int_equal(ps_sample_set_get(s, 0).label, 1);
    ps_sample_set_close(s);
    assert_int_equal(open_text("{\"text\": \"x\", \"label\": \"never\"}", bert, &labels, &s), PS_EFORMAT);
    assert_null(s);
    assert_non_null(
        strstr(ps_last_error(),
               "line 1, offset 0: the label 'never' is none of the classes 0 'maybe', 1 'no', 2 'yes'; correct"));
    ps_labels_deinit(&labels);
    /* with a list names and numbers go together */
    labels = make_labels("yes,no", 2);
    assert_int_equal(
        open_text("{\"text\": \"x\", \"label\": \"no\"}\n{\"text\": \"x\", \"label\": 0}", bert, &labels, &s), PS_OK);
    assert_int_equal(ps_sample_set_get(s, 0).label, 1);
    assert_int_equal(ps_sample_set_get(s, 1).label, 0);
    ps_sample_set_close(s);
    ps_labels_deinit(&labels);
}

static void test_bad_labels_are_refused(void **state)
{
    (void)state;
#define A "{\"text\": \"x\", \"label\": " /* 23 bytes */
    static const struct {
        const char *text, *message;
    } cases[] = {
        {A "1}\n" A "2}\n", "line 2, offset 26: label 2, expected 0 to 1"},
        {A "1}\n\n" A "-1}\n", "line 3, offset 27: label -1, expected 0 to 1"},
        {A "1}\n" A "\"a\"}\n", "line 2, offset 26: the label is a name, but those before it are numbers"},
        {A "\"a\"}\n" A "1}\n", "line 2, offset 28: the label is a number, but those before it are names"},
        {A "\"a\"}\n" A "\"b\"}\n" A "\"a\"}\n" A "\"c\"}\n",
         "line 4, offset 84: the label 'c' is one more than the model's 2 classes"},
        {A "\"a\\u0000\"}\n", "has a zero byte"},
        {"{\"text\": \"x\"}\n", "line 1, offset 0: \"label\" is missing"},
        {"", "line 1, offset 0: the file ends without any JSON object"},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        ps_labels labels = make_labels("", 2);
        ps_sample_set *s;
        assert_int_equal(open_text(cases[i].text, bert, &labels, &s), PS_EFORMAT);
        if (strstr(ps_last_error(), cases[i].message) == NULL)
            fail_msg("case %zu: \"%s\" lacks \"%s\"", i, ps_last_error(), cases[i].message);
        ps_labels_deinit(&labels);
    }
    ps_labels labels = make_labels("", 2);
    ps_sample_set *s;
    assert_int_equal(open_text("{\"text\": \"\", \"label\": 0}", gpt2, &labels, &s), PS_EFORMAT);
    assert_non_null(strstr(ps_last_error(), "line 1, offset 0: the text is empty"));
    ps_labels_deinit(&labels);
}

static void test_faults(void **state)
{
    (void)state;
    static const char text[] = "{\"text\": \"y\", \"text_pair\": \"z\", \"label\": \"b\"}";
    const temp_path p = temp_folder_file(&folder, "fault.jsonl");
    assert_int_equal(ps_file_write_all(p.text, text, sizeof text - 1), PS_OK);
    const int64_t live_bytes = ps_mem_live_bytes();
    int n_failures = 0;
    for (bool has_struck = true; has_struck; n_failures += has_struck) {
        ps_labels labels = make_labels("", 2);
        ps_sample_set *s;
        ps_fault_arm(PS_FAULT_ALLOC, n_failures, false);
        const ps_status st = ps_sample_set_open(p.text, &keys, bert, false, 6, &labels, &s);
        has_struck = ps_fault_has_struck(PS_FAULT_ALLOC);
        ps_fault_arm(PS_FAULT_ALLOC, -1, false);
        assert_int_equal(st, has_struck ? PS_ENOMEM_HOST : PS_OK);
        ps_sample_set_close(s);
        ps_labels_deinit(&labels);
        assert_int_equal(ps_mem_live_bytes(), live_bytes);
    }
    assert_true(n_failures >= 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_become_samples),
        cmocka_unit_test(test_label_names),
        cmocka_unit_test(test_bad_labels_are_refused),
        cmocka_unit_test(test_faults),
    };
    folder = temp_folder_make();
    const int n_failed = cmocka_run_group_tests(tests, set_up, tear_down);
    temp_folder_remove(&folder);
    return n_failed;
}
