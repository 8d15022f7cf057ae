#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "bert_vocab.h"
#include "data/data_loader.h"
#include "data/token_file.h"
#include "temp_folder.h"

enum { N_TOKENS = 1003, VOCAB = 2000, N_LINES = 40, N_PAIRS = 17, CLS = 1500, SEP = 1501, MASK = 1502 };

static temp_folder folder;
static ps_tokenizer *gpt2;
static temp_path counting; /* token i is i */
static temp_path lines;    /* line i is i + 1 times " a", label 0 for the first half, else 1 */
static temp_path pairs; /* line i is i times " a" with the completion " b"; 17 tokens have room for the first N_PAIRS */

static int set_up(void **state)
{
    (void)state;
    int32_t ids[N_TOKENS];
    char text[N_LINES * (N_LINES * 2 + 40)] = "", *at = text;
    for (int i = 0; i < N_TOKENS; i++) ids[i] = i;
    counting = temp_folder_file(&folder, "counting.bin");
    for (int i = 0; i < N_LINES; i++) {
        at += sprintf(at, "{\"text\": \"");
        for (int k = 0; k <= i; k++) at += sprintf(at, " a");
        at += sprintf(at, "\", \"label\": \"%s\"}\n", i < N_LINES / 2 ? "no" : "yes");
    }
    lines = temp_folder_file(&folder, "lines.jsonl");
    if (ps_file_write_all(lines.text, text, at - text) != PS_OK) return 1;
    at = text;
    for (int i = 0; i < N_LINES; i++) {
        at += sprintf(at, "{\"prompt\": \"");
        for (int k = 0; k < i; k++) at += sprintf(at, " a");
        at += sprintf(at, "\", \"completion\": \" b\"}\n");
    }
    pairs = temp_folder_file(&folder, "pairs.jsonl");
    return ps_token_file_write(counting.text, ids, N_TOKENS) != PS_OK ||
           ps_file_write_all(pairs.text, text, at - text) != PS_OK || ps_tokenizer_open("data/gpt2", &gpt2) != PS_OK;
}

static int tear_down(void **state)
{
    (void)state;
    ps_tokenizer_close(gpt2);
    return ps_mem_live_bytes() != 0;
}

static ps_data_loader_options causal_options(int64_t sequence, double fraction, uint64_t seed)
{
    return (ps_data_loader_options){.task = PS_DATA_LOADER_CAUSAL_LM,
                                    .train = counting.text,
                                    .specials = PS_SPECIALS_NONE,
                                    .sequence = sequence,
                                    .vocab_size = VOCAB,
                                    .validation_fraction = fraction,
                                    .seed = seed};
}

static ps_data_loader_options masked_options(int64_t sequence, double fraction, uint64_t seed)
{
    ps_data_loader_options o = causal_options(sequence, fraction, seed);
    o.task = PS_DATA_LOADER_MASKED_LM;
    o.specials = (ps_specials){.cls = CLS, .sep = SEP, .mask = MASK, .pad = -1, .eot = -1};
    o.mlm_probability = 0.15;
    return o;
}

static ps_data_loader_options lines_options(double fraction, uint64_t seed)
{
    return (ps_data_loader_options){.task = PS_DATA_LOADER_CLASSIFICATION,
                                    .train = lines.text,
                                    .tokenizer = gpt2,
                                    .specials = ps_specials_of(gpt2),
                                    .sequence = 16,
                                    .vocab_size = 50257,
                                    .n_labels = 2,
                                    .validation_fraction = fraction,
                                    .seed = seed};
}

static ps_data_loader_options pairs_options(double fraction, uint64_t seed)
{
    ps_data_loader_options o = lines_options(fraction, seed);
    o.task = PS_DATA_LOADER_CAUSAL_LM;
    o.train = pairs.text;
    return o;
}

static ps_data_loader *open_data_loader(const ps_data_loader_options *o)
{
    ps_data_loader *f;
    const ps_status st = ps_data_loader_open(o, &f);
    if (st != PS_OK) fail_msg("%s", ps_last_error());
    return f;
}

static void test_causal_windows(void **state)
{
    (void)state;
    ps_data_loader_options o = causal_options(10, 0.1, 1);
    ps_data_loader *f = open_data_loader(&o);
    ps_data_loader_batch b;
    assert_int_equal(ps_data_loader_batch_init(&b, f, 3), PS_OK);
    assert_null(b.attention_mask);
    assert_null(b.token_type_ids);
    assert_int_equal(ps_data_loader_sample_count(f, PS_SPLIT_TRAIN), 90);
    assert_int_equal(ps_data_loader_sample_count(f, PS_SPLIT_VALIDATION), 10);
    assert_int_equal(ps_data_loader_get(f, PS_SPLIT_TRAIN, 5, 3, &b), PS_OK);
    for (int i = 0; i < 30; i++) {
        assert_int_equal(b.tokens[i], ps_data_loader_item_of(f, PS_SPLIT_TRAIN, 5 + i / 10) * 10 + i % 10);
        assert_int_equal(b.targets[i], b.tokens[i] + 1);
    }
    /* validation: the last windows in order, and from the first one on again */
    assert_int_equal(ps_data_loader_get(f, PS_SPLIT_VALIDATION, 8, 3, &b), PS_OK);
    assert_int_equal(b.tokens[0], 980);
    assert_int_equal(b.tokens[10], 990);
    assert_int_equal(b.targets[19], 1000);
    assert_int_equal(b.tokens[20], 900);
    assert_int_equal(b.targets[20], 901);
    /* or a pass that ends */
    assert_int_equal(ps_data_loader_get_once(f, PS_SPLIT_VALIDATION, 8, 3, &b), PS_OK);
    assert_int_equal(b.targets[19], 1000);
    for (int i = 20; i < 30; i++) assert_int_equal(b.targets[i], -100);
    assert_int_equal(ps_data_loader_get_once(f, PS_SPLIT_VALIDATION, 12, 1, &b), PS_OK);
    assert_int_equal(b.targets[0], -100);
    ps_data_loader_batch_deinit(&b);
    ps_data_loader_close(f);
    o = causal_options(1, 0, 1);
    f = open_data_loader(&o);
    assert_int_equal(ps_data_loader_sample_count(f, PS_SPLIT_TRAIN), N_TOKENS - 1);
    assert_int_equal(ps_data_loader_get(f, PS_SPLIT_VALIDATION, 0, 1, &b), PS_EINVAL);
    ps_data_loader_close(f);
    ps_data_loader_close(NULL);
}

/* [CLS], 8 tokens, [SEP]; what is hidden is in the targets; epochs hide differently, evaluations alike. */
static void test_masked_windows(void **state)
{
    (void)state;
    enum { T = 10, N = 125 };
    const ps_data_loader_options o = masked_options(T, 0.1, 4);
    ps_data_loader *f = open_data_loader(&o);
    static int32_t tokens[2][N * T], targets[2][N * T];
    assert_int_equal(ps_data_loader_sample_count(f, PS_SPLIT_TRAIN), N - 12);
    assert_int_equal(ps_data_loader_sample_count(f, PS_SPLIT_VALIDATION), 12);
    int64_t n_targets = 0, n_same_mask = 0;
    for (int64_t epoch = 0; epoch < 2; epoch++) {
        ps_data_loader_batch b = {.tokens = tokens[epoch], .targets = targets[epoch]};
        assert_int_equal(ps_data_loader_get(f, PS_SPLIT_TRAIN, epoch * (N - 12), N - 12, &b), PS_OK);
        for (int64_t row = 0; row < N - 12; row++) {
            const int64_t begin = ps_data_loader_item_of(f, PS_SPLIT_TRAIN, epoch * (N - 12) + row) * 8;
            assert_int_equal(b.tokens[row * T], CLS);
            assert_int_equal(b.tokens[row * T + 9], SEP);
            assert_int_equal(b.targets[row * T], -100);
            assert_int_equal(b.targets[row * T + 9], -100);
            for (int64_t t = 1; t < 9; t++) {
                const bool is_target = b.targets[row * T + t] != -100;
                n_targets += is_target;
                if (is_target)
                    assert_int_equal(b.targets[row * T + t], begin + t - 1);
                else
                    assert_int_equal(b.tokens[row * T + t], begin + t - 1);
            }
        }
    }
    /* 15 % of 1808, and a row of 8 with none (27 %) has one: 0.15 + 0.2725 / 8 = 0.184 a token, 333 in all; 16 is one
     * deviation */
    assert_in_range(n_targets, 270, 400);
    for (int64_t row = 0; row < N - 12; row++) /* the same window, in both epochs */
        for (int64_t other = 0; other < N - 12; other++)
            if (ps_data_loader_item_of(f, PS_SPLIT_TRAIN, row) ==
                ps_data_loader_item_of(f, PS_SPLIT_TRAIN, N - 12 + other))
                n_same_mask += memcmp(targets[0] + row * T, targets[1] + other * T, T * 4) == 0;
    assert_true(n_same_mask < (N - 12) / 4);
    ps_data_loader_batch a = {.tokens = tokens[0], .targets = targets[0]},
                         b = {.tokens = tokens[1], .targets = targets[1]};
    assert_int_equal(ps_data_loader_get(f, PS_SPLIT_VALIDATION, 0, 12, &a), PS_OK);
    assert_int_equal(ps_data_loader_get(f, PS_SPLIT_VALIDATION, 12, 12, &b), PS_OK);
    assert_memory_equal(a.tokens, b.tokens, 12 * T * 4);
    assert_memory_equal(a.targets, b.targets, 12 * T * 4);
    ps_data_loader_close(f);
}

/* Any batch size, any start, any feed opened with the same options: sample s is the same. So a run that resumes at
 * sample k sees what one without a stop sees. */
static void test_samples_depend_on_their_number_only(void **state)
{
    (void)state;
    enum { T = 16, N = 300 };
    for (int task = 0; task < 4; task++) {
        static int32_t all[2][N * T], part[2][N * T];
        ps_data_loader_options o = task == 0   ? causal_options(T, 0.05, 9)
                                   : task == 1 ? masked_options(T, 0.05, 9)
                                   : task == 2 ? lines_options(0.05, 9)
                                               : pairs_options(0.05, 9);
        ps_data_loader *a = open_data_loader(&o), *b = open_data_loader(&o);
        o.seed = 10;
        ps_data_loader *c = open_data_loader(&o);
        ps_data_loader_batch out_all = {.tokens = all[0], .targets = all[1]},
                             out = {.tokens = part[0], .targets = part[1]};
        const int64_t row_targets = task == 2 ? 1 : T;
        assert_int_equal(ps_data_loader_get(a, PS_SPLIT_TRAIN, 0, N, &out_all), PS_OK);
        for (int batch = 1; batch < 50; batch += 12) {
            for (int64_t s = N - batch; s >= 0; s -= batch) {
                assert_int_equal(ps_data_loader_get(b, PS_SPLIT_TRAIN, s, batch, &out), PS_OK);
                assert_memory_equal(out.tokens, all[0] + s * T, (size_t)batch * T * 4);
                assert_memory_equal(out.targets, all[1] + s * row_targets, (size_t)(batch * row_targets) * 4);
            }
        }
        assert_int_equal(ps_data_loader_get(c, PS_SPLIT_TRAIN, 0, N, &out), PS_OK);
        assert_memory_not_equal(part[0], all[0], sizeof part[0]); /* another seed */
        ps_data_loader_close(a);
        ps_data_loader_close(b);
        ps_data_loader_close(c);
    }
}

/* Every item is in exactly one split, and each epoch of a split visits each of its items once. */
static void test_splits_are_disjoint_and_complete(void **state)
{
    (void)state;
    for (int task = 0; task < 4; task++) {
        const ps_data_loader_options o = task == 0   ? causal_options(7, 0.3, 2)
                                         : task == 1 ? masked_options(9, 0.3, 2)
                                         : task == 2 ? lines_options(0.3, 2)
                                                     : pairs_options(0.3, 2);
        ps_data_loader *f = open_data_loader(&o);
        int8_t split_of[N_TOKENS];
        memset(split_of, -1, sizeof split_of);
        int64_t n_items = 0;
        for (ps_split split = 0; split < PS_SPLIT_COUNT; split++) {
            const int64_t n = ps_data_loader_sample_count(f, split);
            n_items += n;
            for (int64_t epoch = 0; epoch < 3; epoch++) {
                int counts[N_TOKENS] = {0};
                for (int64_t s = 0; s < n; s++) {
                    const int64_t item = ps_data_loader_item_of(f, split, epoch * n + s);
                    assert_int_equal(counts[item]++, 0);
                    assert_int_equal(split_of[item], epoch == 0 ? -1 : (int)split);
                }
                for (int64_t s = 0; s < n; s++)
                    split_of[ps_data_loader_item_of(f, split, epoch * n + s)] = (int8_t)split;
            }
        }
        for (int64_t item = 0; item < n_items; item++) assert_in_range(split_of[item], 0, 1);
        const int64_t n_train = ps_data_loader_sample_count(f, PS_SPLIT_TRAIN);
        int64_t n_moved = 0; /* from one epoch to the next */
        for (int64_t i = 0; i < n_train; i++)
            n_moved +=
                ps_data_loader_item_of(f, PS_SPLIT_TRAIN, i) != ps_data_loader_item_of(f, PS_SPLIT_TRAIN, n_train + i);
        assert_true(n_moved > n_train - 8);
        assert_int_equal(n_items, task == 0 ? 1002 / 7 : task == 1 ? 1003 / 7 : task == 2 ? N_LINES : N_PAIRS);
        ps_data_loader_close(f);
    }
}

static void test_lines_are_padded_and_labelled(void **state)
{
    (void)state;
    enum { T = 16 };
    ps_data_loader_options o = lines_options(0.25, 5);
    o.in_file_order = true;
    ps_data_loader *f = open_data_loader(&o);
    ps_data_loader_batch b;
    assert_int_equal(ps_data_loader_batch_init(&b, f, 30), PS_OK);
    assert_non_null(b.attention_mask);
    assert_null(b.token_type_ids);
    assert_string_equal(ps_data_loader_label_name(f, 0), "no");
    assert_string_equal(ps_data_loader_label_name(f, 1), "yes");
    assert_null(ps_data_loader_label_name(f, 2));
    assert_int_equal(ps_data_loader_sample_count(f, PS_SPLIT_TRAIN), 30);
    assert_int_equal(ps_data_loader_get(f, PS_SPLIT_TRAIN, 0, 30, &b), PS_OK);
    for (int64_t row = 0; row < 30; row++) {
        const int64_t line = ps_data_loader_item_of(f, PS_SPLIT_TRAIN, row);
        if (row > 0) assert_true(line > ps_data_loader_item_of(f, PS_SPLIT_TRAIN, row - 1));
        assert_int_equal(b.targets[row], line >= N_LINES / 2);
        for (int64_t t = 0; t < T; t++) {
            assert_int_equal(b.tokens[row * T + t], t <= line ? 257 : 50256);
            assert_int_equal(b.attention_mask[row * T + t], t <= line);
        }
    }
    /* the file is sorted by label; the choice is not */
    int n_yes = 0;
    for (int64_t s = 0; s < 10; s++) n_yes += ps_data_loader_item_of(f, PS_SPLIT_VALIDATION, s) >= N_LINES / 2;
    assert_in_range(n_yes, 2, 8);
    assert_int_equal(ps_data_loader_get_once(f, PS_SPLIT_VALIDATION, 8, 4, &b), PS_OK);
    assert_in_range(b.targets[1], 0, 1);
    assert_int_equal(b.targets[2], -100);
    assert_int_equal(b.attention_mask[3 * T], 1);
    ps_data_loader_batch_deinit(&b);
    ps_data_loader_close(f);
}

/* Only the completion and its end are targets, each in the place before its own. */
static void test_instructions(void **state)
{
    (void)state;
    enum { T = 16, EOT = 50256, A = 257, B = 275, IGNORED = -100 };
    ps_data_loader_options o = pairs_options(0, 5);
    o.in_file_order = true;
    o.pad_to_multiple_of = 4;
    ps_data_loader *f = open_data_loader(&o);
    ps_data_loader_batch b;
    assert_int_equal(ps_data_loader_sample_count(f, PS_SPLIT_TRAIN), N_PAIRS);
    assert_int_equal(ps_data_loader_batch_init(&b, f, N_PAIRS), PS_OK);
    assert_null(b.attention_mask);
    for (int64_t row_length = 0; row_length <= T; row_length += T) { /* 0: as it stands in the batch */
        b.T = row_length;
        assert_int_equal(ps_data_loader_get(f, PS_SPLIT_TRAIN, 0, N_PAIRS, &b), PS_OK);
        for (int64_t i = 0; i < N_PAIRS; i++)
            for (int64_t t = 0; t < T; t++) {
                assert_int_equal(b.tokens[i * T + t], t < i ? A : t == i ? B : EOT);
                assert_int_equal(b.targets[i * T + t], t == i - 1 ? B : t == i ? EOT : IGNORED);
            }
        assert_int_equal(ps_data_loader_line_of(f, PS_SPLIT_TRAIN, 5), 6);
    }
    /* the end of a line is a target only, so one input less is needed */
    assert_int_equal(ps_data_loader_length(f, PS_SPLIT_TRAIN, 0, 4), 4);
    assert_int_equal(ps_data_loader_length(f, PS_SPLIT_TRAIN, 2, 3), 8);
    assert_int_equal(ps_data_loader_length(f, PS_SPLIT_TRAIN, N_PAIRS - 1, 1), T);
    assert_int_equal(ps_data_loader_token_count(f, PS_SPLIT_TRAIN, 2, 3), 3 + 4 + 5);
    b.T = 4;
    assert_int_equal(ps_data_loader_get_once(f, PS_SPLIT_TRAIN, N_PAIRS, 1, &b), PS_OK);
    for (int i = 0; i < 4; i++) assert_int_equal(b.targets[i], IGNORED);
    assert_int_equal(ps_data_loader_get(f, PS_SPLIT_TRAIN, 3, 1, &b), PS_OK);
    assert_memory_equal(b.tokens, ((int32_t[]){A, A, A, B}), 16);
    assert_memory_equal(b.targets, ((int32_t[]){IGNORED, IGNORED, B, EOT}), 16);
    const ps_instruct_info info = ps_data_loader_instruct_info(f, PS_SPLIT_TRAIN);
    assert_int_equal(info.n_lines, N_LINES);
    assert_int_equal(info.n_left_out, N_LINES - N_PAIRS);
    assert_true(ps_data_loader_chooses_targets(f));
    assert_int_equal(ps_data_loader_instruct_info(f, PS_SPLIT_VALIDATION).n_lines, 0);
    ps_data_loader_batch_deinit(&b);
    ps_data_loader_close(f);
    /* text to train on, answers to evaluate on */
    o = causal_options(T, 0, 1);
    o.tokenizer = gpt2;
    o.vocab_size = 50257;
    o.validation = pairs.text;
    f = open_data_loader(&o);
    assert_int_equal(ps_data_loader_sample_count(f, PS_SPLIT_VALIDATION), N_PAIRS);
    assert_int_equal(ps_data_loader_instruct_info(f, PS_SPLIT_VALIDATION).n_lines, N_LINES);
    assert_false(ps_data_loader_chooses_targets(f));
    assert_int_equal(ps_data_loader_line_of(f, PS_SPLIT_TRAIN, 0), 0);
    ps_data_loader_close(f);
    o = pairs_options(0, 1);
    o.jsonl_form = PS_CONFIG_JSONL_FORM_TEXT;
    assert_int_equal(ps_data_loader_open(&o, &f), PS_EFORMAT);
    assert_non_null(strstr(ps_last_error(), "\"text\" is missing"));
}

static void test_second_texts_have_type_1(void **state)
{
    (void)state;
    const temp_path p = temp_folder_file(&folder, "pairs.jsonl");
    static const char text[] = "{\"q\": \" a a\", \"r\": \" b\", \"y\": 1}";
    assert_int_equal(ps_file_write_all(p.text, text, sizeof text - 1), PS_OK);
    ps_data_loader_options o = lines_options(0, 1);
    o.train = p.text;
    o.text_key = "q", o.text_pair_key = "r", o.label_key = "y";
    o.tokenizer = bert_tokenizer();
    o.specials = ps_specials_of(o.tokenizer);
    o.sequence = 8;
    ps_data_loader *f = open_data_loader(&o);
    ps_data_loader_batch b;
    assert_int_equal(ps_data_loader_batch_init(&b, f, 1), PS_OK);
    assert_int_equal(ps_data_loader_get(f, PS_SPLIT_TRAIN, 3, 1, &b), PS_OK);
    assert_memory_equal(b.tokens, ((int32_t[]){101, 257, 257, 102, 275, 102, 0, 0}), 32);
    assert_memory_equal(b.token_type_ids, ((int32_t[]){0, 0, 0, 0, 1, 1, 0, 0}), 32);
    assert_memory_equal(b.attention_mask, ((int32_t[]){1, 1, 1, 1, 1, 1, 0, 0}), 32);
    assert_int_equal(b.targets[0], 1);
    assert_null(ps_data_loader_label_name(f, 0));
    ps_data_loader_batch_deinit(&b);
    ps_data_loader_close(f);
    ps_tokenizer_close(o.tokenizer);
}

static void test_validation_file(void **state)
{
    (void)state;
    const temp_path p = temp_folder_file(&folder, "other.bin");
    assert_int_equal(ps_token_file_write(p.text, (const int32_t[]){9, 8, 7, 6, 5}, 5), PS_OK);
    ps_data_loader_options o = causal_options(2, 0, 1);
    o.validation = p.text;
    ps_data_loader *f = open_data_loader(&o);
    int32_t tokens[6], targets[6];
    ps_data_loader_batch b = {.tokens = tokens, .targets = targets};
    assert_int_equal(ps_data_loader_sample_count(f, PS_SPLIT_TRAIN), 501);
    assert_int_equal(ps_data_loader_sample_count(f, PS_SPLIT_VALIDATION), 2);
    assert_int_equal(ps_data_loader_get(f, PS_SPLIT_VALIDATION, 0, 3, &b), PS_OK);
    assert_memory_equal(tokens, ((int32_t[]){9, 8, 7, 6, 9, 8}), sizeof tokens);
    assert_memory_equal(targets, ((int32_t[]){8, 7, 6, 5, 8, 7}), sizeof targets);
    ps_data_loader_close(f);
    /* of a classifier: the labels are those of the training data */
    const temp_path v = temp_folder_file(&folder, "validation.jsonl");
    static const char text[] = "{\"text\": \"x\", \"label\": \"yes\"}";
    assert_int_equal(ps_file_write_all(v.text, text, sizeof text - 1), PS_OK);
    o = lines_options(0, 1);
    o.validation = v.text;
    f = open_data_loader(&o);
    static int32_t row[16];
    b = (ps_data_loader_batch){.tokens = row, .targets = targets};
    assert_int_equal(ps_data_loader_get(f, PS_SPLIT_VALIDATION, 0, 1, &b), PS_OK);
    assert_int_equal(targets[0], 1);
    ps_data_loader_close(f);
}

static void test_file_order(void **state)
{
    (void)state;
    ps_data_loader_options o = causal_options(10, 0, 1);
    o.in_file_order = true;
    ps_data_loader *f = open_data_loader(&o);
    const int64_t n = ps_data_loader_sample_count(f, PS_SPLIT_TRAIN);
    assert_true(n > 3);
    for (int64_t sample = 0; sample < 2 * n; sample++)
        assert_int_equal(ps_data_loader_item_of(f, PS_SPLIT_TRAIN, sample), sample % n);
    ps_data_loader_close(f);
}

static void assert_refused(ps_data_loader_options o, const char *message)
{
    ps_data_loader *f;
    assert_int_equal(ps_data_loader_open(&o, &f), PS_EINVAL);
    assert_null(f);
    if (strstr(ps_last_error(), message) == NULL) fail_msg("\"%s\" lacks \"%s\"", ps_last_error(), message);
}

static void test_refused_with_numbers(void **state)
{
    (void)state;
    ps_data_loader_options o = causal_options(1002, 0, 0);
    ps_data_loader *f = open_data_loader(&o);
    assert_int_equal(ps_data_loader_sample_count(f, PS_SPLIT_TRAIN), 1);
    ps_data_loader_close(f);
    assert_refused(causal_options(1003, 0, 0), "1003 tokens, but one window needs 1004");
    assert_refused(causal_options(1002, 0.1, 0), "needs 2005");
    assert_refused(masked_options(1006, 0, 0), "1003 tokens, but one window needs 1004");
    o = causal_options(501, 0.001, 0);
    f = open_data_loader(&o);
    assert_int_equal(ps_data_loader_sample_count(f, PS_SPLIT_VALIDATION), 1);
    ps_data_loader_close(f);
    o = causal_options(501, 0.999, 0);
    f = open_data_loader(&o);
    assert_int_equal(ps_data_loader_sample_count(f, PS_SPLIT_TRAIN), 1);
    ps_data_loader_close(f);
    assert_refused(causal_options(0, 0, 0), "sequence length 0");
    assert_refused(causal_options(INT64_MAX, 0.5, 0), "sequence length");
    assert_refused(causal_options(8, 1.0, 0), "validation fraction 1");
    assert_refused(causal_options(8, 0.0 / 0.0, 0), "validation fraction");
    assert_refused(masked_options(2, 0, 0), "no room between the special tokens");
    o = masked_options(8, 0, 0);
    o.specials.mask = -1;
    assert_refused(o, "a tokenizer with a mask token");
    o = masked_options(8, 0, 0);
    o.mlm_probability = 0;
    assert_refused(o, "masking probability 0");
    o = masked_options(8, 0, 0);
    o.specials.sep = VOCAB;
    assert_refused(o, "special token with id 2000");
    o = lines_options(0, 0);
    o.tokenizer = NULL;
    assert_refused(o, "text needs a tokenizer");
    o = lines_options(0, 0);
    o.train = counting.text;
    assert_refused(o, "a classifier needs JSON Lines");
    o = causal_options(8, 0, 0);
    o.train = "";
    assert_refused(o, "data.train is not set");
    const temp_path p = temp_folder_file(&folder, "one.jsonl");
    assert_int_equal(ps_file_write_all(p.text, "{\"text\": \"x\", \"label\": 0}", 25), PS_OK);
    o = lines_options(0.5, 0);
    o.train = p.text;
    assert_refused(o, "1 line, but a line to train on and one to validate on are needed");
}

static ps_status open_and_get(const ps_data_loader_options *o)
{
    ps_status st;
    ps_data_loader *f = NULL;
    ps_data_loader_batch b = {0};
    PS_TRY_GOTO(ps_data_loader_open(o, &f));
    PS_TRY_GOTO(ps_data_loader_batch_init(&b, f, 2));
    PS_TRY_GOTO(ps_data_loader_get(f, PS_SPLIT_TRAIN, 0, 2, &b));
    PS_TRY_GOTO(ps_data_loader_get(f, PS_SPLIT_VALIDATION, 0, 2, &b));
out:
    ps_data_loader_batch_deinit(&b);
    ps_data_loader_close(f);
    return st;
}

/* Lines that were left out are lines of the file all the same. */
static void test_left_out_lines_are_counted(void **state)
{
    (void)state;
    const temp_path p = temp_folder_file(&folder, "left.jsonl");
    static const char text[] = "{\"prompt\": \" a a a a a a\", \"completion\": \" b\"}\n"
                               "{\"prompt\": \"a\", \"completion\": \" b\"}\n"
                               "{\"prompt\": \" a a a a a a\", \"completion\": \" b\"}\n";
    assert_int_equal(ps_file_write_all(p.text, text, sizeof text - 1), PS_OK);
    ps_data_loader_options o = pairs_options(0.5, 1);
    o.train = p.text;
    o.sequence = 4;
    assert_refused(o, "left.jsonl: 1 of 3 lines has something to predict, but one to train on and one to validate on");
}

/* Options that would be lost without a word. */
static void test_refused_without_effect(void **state)
{
    (void)state;
    const temp_path chat = temp_folder_file(&folder, "chat.json"), twin = temp_folder_file(&folder, "twin.jsonl");
    static const char text[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"Why?\"}]}\n";
    assert_int_equal(ps_file_write_all(chat.text, text, sizeof text - 1), PS_OK);
    assert_int_equal(ps_file_write_all(twin.text, text, sizeof text - 1), PS_OK);
    const temp_path prompts = temp_folder_file(&folder, "prompts.jsonl");
    static const char pair[] = "{\"prompt\": \"a\", \"completion\": \" b\"}\n";
    assert_int_equal(ps_file_write_all(prompts.text, pair, sizeof pair - 1), PS_OK);
    ps_data_loader_options plain = pairs_options(0, 1);
    plain.train = prompts.text;
    ps_data_loader_options o = plain;
    o.sequence = 4;
    o.train = chat.text; /* text by its name */
    o.jsonl_form = PS_CONFIG_JSONL_FORM_MESSAGES;
    assert_refused(o,
                   "chat.json: data.jsonl_form = messages is for JSON Lines, but this is read as text; name the file "
                   "*.jsonl or set data.format = jsonl");
    o.validation = twin.text;
    assert_refused(o, "chat.json: data.jsonl_form = messages is for JSON Lines");
    o.jsonl_form = PS_CONFIG_JSONL_FORM_AUTO;
    o.validation = NULL;
    o.messages_key = "conversations";
    assert_refused(o, "data.messages_key has no effect: it is for JSON Lines with messages");
    assert_refused(o, "set data.format = jsonl");
    o.messages_key = NULL;
    o.chat_format = PS_CONFIG_CHAT_FORMAT_LLAMA3;
    assert_refused(o, "data.chat_format has no effect: it is for messages");
    o = plain; /* prompts that are strings */
    o.chat_format = PS_CONFIG_CHAT_FORMAT_LLAMA3;
    assert_refused(o, "data.chat_format has no effect");
    o = plain;
    o.jsonl_form = PS_CONFIG_JSONL_FORM_PROMPT_COMPLETION;
    o.text_key = "zz";
    assert_refused(o, "data.text_key has no effect");
    o = causal_options(16, 0, 1); /* tokens */
    o.added_tokens = true;
    assert_refused(o, "data.added_tokens has no effect: it is for text");
    o = causal_options(16, 0, 1);
    o.text_key = "zz";
    assert_refused(o, "data.text_key has no effect");
    o = causal_options(16, 0, 1);
    o.prompt_key = "q";
    assert_refused(o, "data.prompt_key has no effect");
    /* of two files one is enough */
    o.tokenizer = gpt2;
    o.vocab_size = 50257;
    o.prompt_key = NULL;
    o.added_tokens = true;
    o.validation = prompts.text;
    ps_data_loader_close(open_data_loader(&o));
}

static void test_faults(void **state)
{
    (void)state;
    static const ps_fault_kind kinds[] = {PS_FAULT_ALLOC, PS_FAULT_READ};
    static const ps_status codes[] = {PS_ENOMEM_HOST, PS_EIO};
    for (int task = 0; task < 4; task++) {
        const ps_data_loader_options o = task == 0   ? causal_options(16, 0.1, 1)
                                         : task == 1 ? masked_options(16, 0.1, 1)
                                                     : lines_options(0.1, 1);
        for (int kind = 0; kind < 2; kind++) {
            int n_failures = 0;
            assert_int_equal(open_and_get(&o), PS_OK);
            for (bool has_struck = true; has_struck; n_failures += has_struck) {
                const int64_t live_bytes = ps_mem_live_bytes();
                ps_fault_arm(kinds[kind], n_failures, false);
                const ps_status st = open_and_get(&o);
                has_struck = ps_fault_has_struck(kinds[kind]);
                ps_fault_arm(kinds[kind], -1, false);
                assert_int_equal(st, has_struck ? codes[kind] : PS_OK);
                assert_int_equal(ps_mem_live_bytes(), live_bytes);
            }
            assert_true(n_failures >= 2);
        }
    }
}

/* p ranks see in each step the micro-batches that one rank with p times the accumulation has, each once. */
static void ranks_take_turns(void **state)
{
    (void)state;
    enum { STEPS = 3, MICRO = 12 };
    for (int32_t p = 1; p <= 4; p++) {
        int seen[STEPS * MICRO] = {0};
        const int64_t accumulation = MICRO / p;
        for (int64_t step = 0; step < STEPS; step++)
            for (int64_t m = 0; m < accumulation; m++)
                for (int32_t r = 0; r < p; r++) {
                    const int64_t number = ps_data_loader_micro_batch(step, accumulation, m, p, r);
                    assert_in_range(number, step * MICRO, step * MICRO + MICRO - 1);
                    assert_int_equal(number % p, r);
                    seen[number]++;
                }
        for (int i = 0; i < STEPS * MICRO; i++) assert_int_equal(seen[i], 1);
    }
}

static uint64_t hash_of(const ps_data_loader_options *o)
{
    uint64_t hash;
    ps_data_loader *f = open_data_loader(o);
    assert_int_equal(ps_data_loader_xxh3(f, &hash), PS_OK);
    ps_data_loader_close(f);
    return hash;
}

/* The same for the same data, however they are cut into rows of an epoch's order; another one for any other token, label
 * or choice of lines. */
static void test_hash_of_all(void **state)
{
    (void)state;
    const temp_path other = temp_folder_file(&folder, "other.bin");
    int32_t ids[N_TOKENS];
    for (int i = 0; i < N_TOKENS; i++) ids[i] = i;
    ids[N_TOKENS / 2]++;
    assert_int_equal(ps_token_file_write(other.text, ids, N_TOKENS), PS_OK);
    ps_data_loader_options o = causal_options(10, 0.1, 1);
    const uint64_t whole = hash_of(&o);
    o.seed = 2; /* another order of windows: the configuration's business */
    assert_true(hash_of(&o) == whole);
    o.train = other.text;
    assert_true(hash_of(&o) != whole);
    o.train = counting.text;
    o.validation_fraction = 0.2;
    assert_true(hash_of(&o) != whole);
    o.validation_fraction = 0;
    const uint64_t alone = hash_of(&o);
    o.validation = counting.text;
    const uint64_t both = hash_of(&o);
    assert_true(both != alone);
    o.validation = other.text;
    assert_true(hash_of(&o) != both);

    ps_data_loader_options l = lines_options(0.25, 1);
    const uint64_t chosen = hash_of(&l);
    assert_true(hash_of(&l) == chosen);
    l.seed = 2; /* other lines are for validation */
    assert_true(hash_of(&l) != chosen);
    const temp_path relabelled = temp_folder_file(&folder, "relabelled.jsonl");
    char *text = NULL, *label;
    int64_t n = 0;
    assert_int_equal(ps_file_read_all(lines.text, INT64_MAX - 1, &text, &n), PS_OK);
    label = strstr(text, "yes");
    memcpy(label, "no\"", 3); /* "no"" is no JSON, so the quote after it goes */
    label[3] = ' ';
    assert_int_equal(ps_file_write_all(relabelled.text, text, n), PS_OK);
    ps_mem_free(text);
    l.seed = 1;
    l.train = relabelled.text;
    assert_true(hash_of(&l) != chosen);
}

static void test_rows_without_memory(void **state)
{
    (void)state;
    const ps_data_loader_options o = lines_options(0.25, 1);
    ps_data_loader *f = open_data_loader(&o);
    const int64_t live = ps_mem_live_bytes();
    bool done = false;
    for (long n = 0; !done; n++) {
        ps_rows *rows = NULL;
        char *text = NULL;
        ps_fault_arm(PS_FAULT_ALLOC, n, false);
        ps_status st = ps_rows_create(f, 3, &rows);
        if (st == PS_OK) st = ps_data_loader_describe(f, PS_SPLIT_TRAIN, &text);
        done = !ps_fault_has_struck(PS_FAULT_ALLOC);
        ps_fault_arm(PS_FAULT_ALLOC, -1, false);
        assert_int_equal(st, done ? PS_OK : PS_ENOMEM_HOST);
        ps_free(text);
        ps_rows_destroy(rows);
        assert_int_equal(ps_mem_live_bytes(), live);
    }
    ps_data_loader_close(f);
}

static void test_rows(void **state)
{
    (void)state;
    ps_data_loader_options o = lines_options(0.25, 1);
    o.pad_to_multiple_of = 4;
    ps_data_loader *f = open_data_loader(&o);
    ps_data_loader_batch b;
    ps_rows *rows = NULL;
    assert_int_equal(ps_rows_create(f, 0, &rows), PS_EINVAL);
    assert_null(rows);
    assert_int_equal(ps_rows_create(f, 3, &rows), PS_OK);
    assert_int_equal(ps_data_loader_batch_init(&b, f, 3), PS_OK);
    const ps_batch *batch = ps_rows_batch(rows);
    assert_int_equal(batch->struct_size, sizeof *batch);
    assert_non_null(batch->attention_mask);
    assert_null(batch->token_type_ids);
    for (int64_t s = 0; s < 9; s++) {
        b.T = ps_data_loader_length(f, PS_SPLIT_TRAIN, s, 3);
        ps_rows_set_length(rows, b.T);
        assert_int_equal(ps_rows_fill(rows, PS_SPLIT_TRAIN, s, 3), PS_OK);
        assert_int_equal(ps_data_loader_get(f, PS_SPLIT_TRAIN, s, 3, &b), PS_OK);
        assert_memory_equal(batch->tokens, b.tokens, (size_t)(3 * b.T) * sizeof *b.tokens);
        assert_memory_equal(batch->attention_mask, b.attention_mask, (size_t)(3 * b.T) * sizeof *b.tokens);
        assert_memory_equal(batch->targets, b.targets, 3 * sizeof *b.targets);
    }
    ps_rows_set_length(rows, 0);
    assert_int_equal(
        ps_rows_fill_once(rows, PS_SPLIT_VALIDATION, ps_data_loader_sample_count(f, PS_SPLIT_VALIDATION) - 1, 3),
        PS_OK);
    assert_true(batch->targets[0] >= 0);
    assert_int_equal(batch->targets[1], -100);
    ps_rows_destroy(rows);
    ps_rows_destroy(NULL);
    ps_data_loader_batch_deinit(&b);
    ps_data_loader_close(f);
}

/* Asked for with sizes that the arrays do not have: refused before anything is written. */
static void test_rows_of_wrong_sizes(void **state)
{
    (void)state;
    enum { N_ROWS = 2, T = 16 };
    static const struct {
        const char *says;
        int64_t T, first, n;
        int split;
    } cases[] = {
        {"rows of 64 tokens, expected 1 to 16", 64, 0, 1, PS_SPLIT_TRAIN},
        {"rows of 17 tokens", T + 1, 0, 1, PS_SPLIT_TRAIN},
        {"rows of -1 tokens", -1, 0, 1, PS_SPLIT_TRAIN},
        {"6 samples, expected 0 to 2", 0, 0, 6, PS_SPLIT_TRAIN},
        {"3 samples", 0, 0, N_ROWS + 1, PS_SPLIT_TRAIN},
        {"-1 samples", 0, 0, -1, PS_SPLIT_TRAIN},
        {"sample -1, samples are counted from 0", 0, -1, 2, PS_SPLIT_TRAIN},
        {"sample 9223372036854775807", 0, INT64_MAX, 1, PS_SPLIT_TRAIN},
        {"rows of 4 tokens, but samples from 12 on need 16 (ps_data_loader_length)", 4, 12, 2, PS_SPLIT_TRAIN},
        {"split 2, expected 0 to 1", 0, 0, 1, PS_SPLIT_COUNT},
        {"there are no validation data", 4, 0, 1, PS_SPLIT_VALIDATION},
    };
    ps_data_loader_options o = lines_options(0, 1);
    o.in_file_order = true;
    o.pad_to_multiple_of = 4;
    ps_data_loader *f = open_data_loader(&o);
    ps_rows *rows = NULL;
    assert_int_equal(ps_rows_create(f, N_ROWS, &rows), PS_OK);
    assert_int_equal(ps_rows_fill(rows, PS_SPLIT_TRAIN, 3, N_ROWS), PS_OK);
    int32_t tokens[N_ROWS * T];
    memcpy(tokens, ps_rows_batch(rows)->tokens, sizeof tokens);
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++)
        for (int once = 0; once < 2; once++) {
            ps_rows_set_length(rows, cases[i].T);
            const ps_status st =
                (once ? ps_rows_fill_once : ps_rows_fill)(rows, (ps_split)cases[i].split, cases[i].first, cases[i].n);
            if (st != PS_EINVAL || strstr(ps_last_error(), cases[i].says) == NULL)
                fail_msg("case %zu: %d: %s", i, st, st != PS_OK ? ps_last_error() : "taken");
            assert_memory_equal(ps_rows_batch(rows)->tokens, tokens, sizeof tokens);
        }
    ps_rows_set_length(rows, 4);
    assert_int_equal(ps_rows_fill(rows, PS_SPLIT_TRAIN, 2, N_ROWS), PS_OK); /* three and four tokens */
    assert_int_equal(ps_rows_fill(rows, PS_SPLIT_TRAIN, 3, N_ROWS), PS_EINVAL);
    assert_int_equal(ps_rows_fill(rows, PS_SPLIT_TRAIN, 3, 1), PS_OK);
    ps_rows_destroy(rows);
    ps_data_loader_close(f);
    /* windows of a stream have one length */
    o = causal_options(10, 0, 1);
    f = open_data_loader(&o);
    assert_int_equal(ps_rows_create(f, 1, &rows), PS_OK);
    ps_rows_set_length(rows, 4);
    assert_int_equal(ps_rows_fill(rows, PS_SPLIT_TRAIN, 0, 1), PS_EINVAL);
    ps_rows_set_length(rows, 10);
    assert_int_equal(ps_rows_fill(rows, PS_SPLIT_TRAIN, 0, 1), PS_OK);
    ps_rows_destroy(rows);
    ps_data_loader_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_take_turns),
        cmocka_unit_test(test_causal_windows),
        cmocka_unit_test(test_hash_of_all),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_rows_of_wrong_sizes),
        cmocka_unit_test(test_rows_without_memory),
        cmocka_unit_test(test_masked_windows),
        cmocka_unit_test(test_samples_depend_on_their_number_only),
        cmocka_unit_test(test_splits_are_disjoint_and_complete),
        cmocka_unit_test(test_lines_are_padded_and_labelled),
        cmocka_unit_test(test_instructions),
        cmocka_unit_test(test_second_texts_have_type_1),
        cmocka_unit_test(test_validation_file),
        cmocka_unit_test(test_file_order),
        cmocka_unit_test(test_refused_with_numbers),
        cmocka_unit_test(test_refused_without_effect),
        cmocka_unit_test(test_left_out_lines_are_counted),
        cmocka_unit_test(test_faults),
    };
    folder = temp_folder_make();
    const int n_failed = cmocka_run_group_tests(tests, set_up, tear_down);
    temp_folder_remove(&folder);
    return n_failed;
}
