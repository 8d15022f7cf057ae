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
#include "data/task_set.h"
#include "temp_folder.h"

static temp_folder folder;
static ps_tokenizer *bert;

static int set_up(void **state)
{
    (void)state;
    bert = bert_tokenizer();
    return bert == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    ps_tokenizer_close(bert);
    return ps_mem_live_bytes() != 0;
}

static ps_task_options options_of(ps_task_kind kind, int64_t T, int32_t n_values)
{
    return (ps_task_options){.kind = kind,
                             .text_key = "text",
                             .text_pair_key = "text_pair",
                             .label_key = "label",
                             .tokenizer = bert,
                             .T = T,
                             .n_values = n_values,
                             .doc_stride = 2};
}

static ps_status open_text(const char *text, const ps_task_options *o, ps_labels *labels, ps_task_set **out)
{
    const temp_path p = temp_folder_file(&folder, "lines.jsonl");
    assert_int_equal(ps_file_write_all(p.text, text, (int64_t)strlen(text)), PS_OK);
    return ps_task_set_open(p.text, o, labels, out);
}

static ps_task_set *opened(const char *text, const ps_task_options *o, ps_labels *labels)
{
    ps_task_set *s = NULL;
    if (open_text(text, o, labels, &s) != PS_OK) fail_msg("%s", ps_last_error());
    return s;
}

static void expect_ids(const ps_task_sample *s, const int32_t *ids, int64_t n)
{
    assert_int_equal(s->n_ids, n);
    assert_memory_equal(s->ids, ids, (size_t)n * sizeof *ids);
}

static void test_numbers(void **state)
{
    (void)state;
    ps_labels none = {0};
    ps_task_options o = options_of(PS_TASK_NUMBERS, 6, 1);
    ps_task_set *s = opened("{\"text\": \"hello\", \"label\": -2.5}\n"
                            "{\"text\": \"a\", \"text_pair\": \"b\", \"label\": [3]}\n",
                            &o, &none);
    assert_int_equal(ps_task_set_count(s), 2);
    assert_true(ps_task_set_has_pairs(s));
    ps_task_sample a = ps_task_set_get(s, 0), b = ps_task_set_get(s, 1);
    expect_ids(&a, (const int32_t[]){BERT_CLS, BERT_HELLO, BERT_SEP}, 3);
    expect_ids(&b, (const int32_t[]){BERT_CLS, BERT_A, BERT_SEP, BERT_B, BERT_SEP}, 5);
    assert_true(a.values[0] == -2.5f && b.values[0] == 3 && b.n_first == 3 && b.line == 2);
    ps_task_set_close(s);
    o.n_values = 2;
    s = opened("{\"text\": \"a\", \"label\": [1, 2.5]}", &o, &none);
    a = ps_task_set_get(s, 0);
    assert_true(a.values[0] == 1 && a.values[1] == 2.5f);
    ps_task_set_close(s);
}

/* Names are numbered in byte order, whatever the order of the lines. */
static void test_labels(void **state)
{
    (void)state;
    ps_labels labels;
    const ps_task_options o = options_of(PS_TASK_LABELS, 6, 3);
    assert_int_equal(ps_labels_init(&labels, "", 3), PS_OK);
    ps_task_set *s = opened("{\"text\": \"a\", \"label\": [\"z\", \"m\"]}\n{\"text\": \"a\", \"label\": []}\n"
                            "{\"text\": \"a\", \"label\": \"b\"}\n",
                            &o, &labels);
    static const float expected[][3] = {{0, 1, 1}, {0, 0, 0}, {1, 0, 0}};
    for (int i = 0; i < 3; i++) assert_memory_equal(ps_task_set_get(s, i).values, expected[i], sizeof expected[i]);
    assert_string_equal(labels.list.names[0], "b");
    ps_task_set_close(s);
    s = opened("{\"text\": \"a\", \"label\": [\"m\"]}\n{\"text\": \"a\", \"label\": [1, 0, 0.5]}\n", &o, &labels);
    assert_true(ps_task_set_get(s, 0).values[1] == 1 && ps_task_set_get(s, 1).values[2] == 0.5f);
    ps_task_set_close(s);
    ps_labels_deinit(&labels);
}

/* "ahello" is no word of the vocabulary: one [UNK]. "ab" has no token of its own either. */
static void test_words(void **state)
{
    (void)state;
    ps_labels labels;
    ps_task_options o = options_of(PS_TASK_WORDS, 16, 0);
    const int32_t X = PS_IGNORE_INDEX;
    assert_int_equal(ps_labels_init(&labels, "", 3), PS_OK);
    ps_task_set *s = opened("{\"tokens\": [\"hello\", \"a-b\", \"x\"], \"labels\": [\"O\", \"B\", \"A\"]}\n"
                            "{\"tokens\": [\"a\"], \"ner_tags\": [\"B\"]}\n",
                            &o, &labels);
    ps_task_sample a = ps_task_set_get(s, 0);
    expect_ids(&a, (const int32_t[]){BERT_CLS, BERT_HELLO, BERT_A, 100, BERT_B, 201, BERT_SEP}, 7);
    assert_memory_equal(a.targets, ((const int32_t[]){X, 2, 1, X, X, 0, X}), 7 * 4);
    a = ps_task_set_get(s, 1);
    assert_memory_equal(a.targets, ((const int32_t[]){X, 1, X}), 3 * 4);
    ps_task_set_close(s);
    o.T = 5; /* what does not fit goes, the special tokens stay */
    s = opened("{\"tokens\": [\"hello\", \"a-b\", \"x\"], \"labels\": [\"O\", \"B\", -100]}\n", &o, &labels);
    a = ps_task_set_get(s, 0);
    expect_ids(&a, (const int32_t[]){BERT_CLS, BERT_HELLO, BERT_A, 100, BERT_SEP}, 5);
    ps_task_set_close(s);
    ps_labels_deinit(&labels);
}

#define QUESTION "{\"question\": \"hello\", \"context\": \"a b x a b x a\", \"answers\": "

/* Rows of 8 have room for 4 tokens of a context of 7, each beginning 2 before the end of the one before. */
static void test_answers(void **state)
{
    (void)state;
    ps_labels none = {0};
    ps_task_options o = options_of(PS_TASK_ANSWERS, 8, 0);
    ps_task_set *s = opened(QUESTION "{\"text\": [\"b x\"], \"answer_start\": [8]}}\n" QUESTION
                                     "{\"text\": [], \"answer_start\": []}}\n",
                            &o, &none);
    static const int32_t targets[][2] = {{0, 0}, {5, 6}, {0, 0}, {0, 0}, {0, 0}, {0, 0}};
    assert_int_equal(ps_task_set_count(s), 6);
    assert_int_equal(ps_task_set_question_count(s), 2);
    for (int i = 0; i < 6; i++) {
        const ps_task_sample a = ps_task_set_get(s, i);
        assert_int_equal(a.question, i / 3);
        assert_int_equal(a.context_first, i % 3 * 2);
        assert_int_equal(a.context, 3);
        assert_int_equal(a.n_first, 3);
        assert_int_equal(a.context_end, i % 3 == 2 ? 6 : 7);
        if (i == 0) assert_memory_equal(a.targets, targets[0], 8);
    }
    ps_task_sample a = ps_task_set_get(s, 0);
    expect_ids(&a, (const int32_t[]){BERT_CLS, BERT_HELLO, BERT_SEP, BERT_A, BERT_B, 201, BERT_A, BERT_SEP}, 8);
    /* tokens 4 and 5 of the context are in the second row, which begins with token 2, and the third, with 4 */
    a = ps_task_set_get(s, 1);
    assert_true(a.targets[0] == 5 && a.targets[1] == 6);
    a = ps_task_set_get(s, 2);
    assert_true(a.targets[0] == 3 && a.targets[1] == 4);
    assert_string_equal(ps_task_set_question(s, 0).answers[0], "b x");
    assert_int_equal(ps_task_set_question(s, 1).n_answers, 0);
    ps_task_set_close(s);
    o.T = 32;
    s = opened("{\"question\": \"hello\", \"context\": \"\xC3\xA9 hello b\", \"answers\": "
               "{\"text\": [\"hello\"], \"answer_start\": [2]}}",
               &o, &none);
    a = ps_task_set_get(s, 0); /* places count characters */
    assert_true(a.targets[0] == 4 && a.targets[1] == 4);
    ps_task_set_close(s);
    ps_task_set *refused;
    o.T = 6;
    assert_int_equal(open_text(QUESTION "{\"text\": [], \"answer_start\": []}}", &o, &none, &refused), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "data.doc_stride = 2"));
}

static void test_bad_lines(void **state)
{
    (void)state;
    static const struct {
        ps_task_kind kind;
        const char *text, *message;
    } cases[] = {
        {PS_TASK_NUMBERS, "{\"text\": \"a\", \"label\": [1]}", "\"label\" has 1 numbers, the model has 2"},
        {PS_TASK_NUMBERS, "{\"text\": \"a\", \"label\": 1}", "expected an array of model.num_labels numbers"},
        {PS_TASK_NUMBERS, "{\"text\": \"a\", \"label\": [1, 1e31]}", "expected numbers"},
        {PS_TASK_NUMBERS, "{\"text\": \"a\"}", "\"label\" is missing"},
        {PS_TASK_NUMBERS, "{\"label\": 1}", "\"text\" is missing"},
        {PS_TASK_NUMBERS, "{\"text\": \"a\", \"text_pair\": 1, \"label\": 1}", "\"text_pair\" is an integer"},
        {PS_TASK_LABELS, "{\"text\": \"a\", \"label\": 1}", "expected an array of names, or of 0 and 1"},
        {PS_TASK_LABELS, "{\"text\": \"a\", \"label\": [\"p\", 1]}", "expected names only"},
        {PS_TASK_LABELS, "{\"text\": \"a\", \"label\": [\"p\", \"q\", \"r\"]}", "'r' is one more than the model's 2"},
        {PS_TASK_LABELS, "{\"text\": \"a\", \"label\": [0, -1]}", "\"label\"[1] is -1, expected 0 to 1"},
        {PS_TASK_WORDS, "{\"tokens\": \"a\", \"labels\": [0]}", "expected an array of words"},
        {PS_TASK_WORDS, "{\"tokens\": [\"a\"]}", "\"labels\" is missing"},
        {PS_TASK_WORDS, "{\"tokens\": [1], \"labels\": [0]}", "\"tokens\" is an integer, expected strings"},
        {PS_TASK_WORDS, "{\"tokens\": [\"a\"], \"labels\": [2]}", "label 2, expected 0 to 1"},
        {PS_TASK_WORDS, "{\"tokens\": [\"a\"], \"labels\": [0.5]}", "expected integers or names"},
        {PS_TASK_WORDS, "{\"tokens\": [\"a\"], \"labels\": [0, 1]}", "1 words, \"labels\" 2 labels"},
        {PS_TASK_WORDS, "{\"tokens\": [\"a\", \"b\"], \"labels\": [0, \"p\"]}", "is a name, but those before it are"},
        {PS_TASK_WORDS, "{\"tokens\": [], \"labels\": []}", "the words are empty"},
        {PS_TASK_ANSWERS, "{\"context\": \"a\", \"answers\": {}}", "\"question\" is missing"},
        {PS_TASK_ANSWERS, "{\"question\": \"a\", \"answers\": {}}", "\"context\" is missing"},
        {PS_TASK_ANSWERS, "{\"question\": \"a\", \"context\": \"a\"}", "\"answers\" is missing"},
        {PS_TASK_ANSWERS, "{\"question\": \"a\", \"context\": \"a\", \"answers\": {}}", "\"answers.text\" is missing"},
        {PS_TASK_ANSWERS, QUESTION "{\"text\": [\"b\"], \"answer_start\": []}}", "a place for each text"},
        {PS_TASK_ANSWERS, QUESTION "{\"text\": [1], \"answer_start\": [1]}}", "expected strings"},
        {PS_TASK_ANSWERS, QUESTION "{\"text\": [\"b\"], \"answer_start\": [3]}}", "does not have the answer 'b'"},
        {PS_TASK_ANSWERS, QUESTION "{\"text\": [\"b\"], \"answer_start\": [99]}}", "does not have the answer 'b'"},
        {PS_TASK_ANSWERS, QUESTION "{\"text\": [\"b\"], \"answer_start\": [-1]}}", "does not have the answer 'b'"},
        {PS_TASK_ANSWERS, QUESTION "{\"text\": [\"\"], \"answer_start\": [0]}}", "does not have the answer ''"},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        const ps_task_options o = options_of(cases[i].kind, 16, 2);
        ps_labels labels;
        ps_task_set *s;
        assert_int_equal(ps_labels_init(&labels, "", 2), PS_OK);
        assert_int_equal(open_text(cases[i].text, &o, &labels, &s), PS_EFORMAT);
        assert_null(s);
        if (strstr(ps_last_error(), cases[i].message) == NULL || strstr(ps_last_error(), "line 1, offset 0") == NULL)
            fail_msg("case %zu: \"%s\" lacks \"%s\"", i, ps_last_error(), cases[i].message);
        ps_labels_deinit(&labels);
    }
}

static void test_faults(void **state)
{
    (void)state;
    static const char *const texts[] = {[PS_TASK_NUMBERS] = "{\"text\": \"a\", \"label\": [1, 2]}",
                                        [PS_TASK_LABELS] = "{\"text\": \"a\", \"label\": [\"p\", \"q\"]}",
                                        [PS_TASK_WORDS] = "{\"tokens\": [\"a\", \"b\"], \"labels\": [\"p\", \"q\"]}",
                                        [PS_TASK_ANSWERS] = QUESTION "{\"text\": [\"b\"], \"answer_start\": [2]}}"};
    for (int kind = 0; kind < 4; kind++) {
        const ps_task_options o = options_of((ps_task_kind)kind, 8, 2);
        const temp_path p = temp_folder_file(&folder, "fault.jsonl");
        assert_int_equal(ps_file_write_all(p.text, texts[kind], (int64_t)strlen(texts[kind])), PS_OK);
        const int64_t live_bytes = ps_mem_live_bytes();
        int n_failures = 0;
        for (bool has_struck = true; has_struck; n_failures += has_struck) {
            ps_labels labels;
            ps_task_set *s;
            assert_int_equal(ps_labels_init(&labels, "", 2), PS_OK);
            ps_fault_arm(PS_FAULT_ALLOC, n_failures, false);
            const ps_status st = ps_task_set_open(p.text, &o, &labels, &s);
            has_struck = ps_fault_has_struck(PS_FAULT_ALLOC);
            ps_fault_arm(PS_FAULT_ALLOC, -1, false);
            assert_int_equal(st, has_struck ? PS_ENOMEM_HOST : PS_OK);
            ps_task_set_close(s);
            ps_labels_deinit(&labels);
            assert_int_equal(ps_mem_live_bytes(), live_bytes);
        }
        assert_true(n_failures >= 7);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers), cmocka_unit_test(test_labels),    cmocka_unit_test(test_words),
        cmocka_unit_test(test_answers), cmocka_unit_test(test_bad_lines), cmocka_unit_test(test_faults),
    };
    folder = temp_folder_make();
    const int n_failed = cmocka_run_group_tests(tests, set_up, tear_down);
    temp_folder_remove(&folder);
    return n_failed;
}
