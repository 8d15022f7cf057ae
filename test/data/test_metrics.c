/* What programs may do with metrics: numbers against their definition, and each call at a wrong time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/engine_fixture.h"
#include "patrickstar_data.h"

enum { N_SAMPLES = 3, ROWS = 2 };

static const float labels[N_SAMPLES] = {0.5f, -1.0f, 2.0f};

static void write_data(const char *folder, char *data, char *vocabulary, size_t bytes)
{
    snprintf(data, bytes, "%s/data.jsonl", folder);
    snprintf(vocabulary, bytes, "%s/vocab.txt", folder);
    FILE *f = fopen(vocabulary, "w");
    assert_non_null(f);
    fprintf(f, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\n");
    fclose(f);
    f = fopen(data, "w");
    assert_non_null(f);
    for (int i = 0; i < N_SAMPLES; i++)
        fprintf(f, "{\"text\": \"%.*s\", \"label\": %g}\n", 2 * i + 1, "a b c", labels[i]);
    fclose(f);
}

/* The last value is none: it takes no part. */
static void test_numbers(void **state)
{
    (void)state;
    char folder[] = "/tmp/test_metrics_XXXXXX", data[128], vocabulary[128], train_option[160], tokenizer_option[160];
    assert_non_null(mkdtemp(folder));
    write_data(folder, data, vocabulary, sizeof data);
    snprintf(train_option, sizeof train_option, "data.train=%s", data);
    snprintf(tokenizer_option, sizeof tokenizer_option, "data.tokenizer=%s", vocabulary);
    ps_config *c = TINY("model.head=sequence_classification", "model.num_labels=1", "data.validation_split=0",
                        "data.shuffle=false", train_option, tokenizer_option);
    ps_engine *e = NULL, *other = NULL;
    ps_data_loader *loader = NULL;
    ps_rows *rows = NULL;
    ps_metrics *m = NULL;
    assert_ok(ps_initialize_inference_engine(ps_model_from_config, c, 0, c, &e));
    assert_ok(ps_data_loader_from_config(c, NULL, &loader));
    ps_config *answers = TINY("model.head=question_answering");
    assert_ok(ps_initialize_inference_engine(ps_model_from_config, answers, 0, answers, &other));
    assert_int_equal(ps_metrics_create(answers, loader, PS_SPLIT_TRAIN, &m), PS_EINVAL);
    assert_int_equal(ps_metrics_create(c, loader, PS_SPLIT_COUNT, &m), PS_EINVAL);
    assert_ok(ps_rows_create(loader, ROWS, &rows));
    assert_ok(ps_metrics_create(c, loader, PS_SPLIT_TRAIN, &m));
    double sum = 0, value = -1;
    for (int64_t first = 0; first < 2 * N_SAMPLES;
         first += ROWS) { /* twice around: which sample it is does not matter */
        float z[ROWS];
        ps_batch changed;
        assert_ok(ps_rows_fill(rows, PS_SPLIT_TRAIN, first, ROWS));
        changed = *ps_rows_batch(rows);
        float values[ROWS];
        memcpy(values, changed.values, sizeof values);
        if (first + ROWS == 2 * N_SAMPLES) values[ROWS - 1] = NAN;
        changed.values = values;
        assert_ok(ps_infer(e, &changed, PS_ALL_ROWS, z));
        for (int i = 0; i < ROWS; i++)
            if (!isnan(values[i])) sum += ((double)z[i] - (double)values[i]) * ((double)z[i] - (double)values[i]);
        assert_ok(ps_metrics_take(m, e, &changed, 0, ROWS));
    }
    const ps_batch *full = ps_rows_batch(rows);
    ps_batch empty = *full;
    empty.values = NULL;
    assert_int_equal(ps_metrics_take(m, e, &empty, 0, ROWS), PS_EINVAL);
    assert_int_equal(ps_metrics_take(m, e, full, 0, ROWS + 1), PS_EINVAL);
    assert_int_equal(ps_metrics_take(m, e, full, N_SAMPLES - 1, ROWS), PS_EINVAL);
    assert_int_equal(ps_metrics_take(m, e, full, -1, ROWS), PS_EINVAL);
    assert_int_equal(ps_metrics_take(m, other, full, 0, ROWS), PS_EINVAL);
    assert_int_equal(ps_metrics_count(m), 0);
    assert_null(ps_metrics_get(m, 0, &value));
    assert_ok(ps_metrics_finish(m, NULL));
    assert_int_equal(ps_metrics_count(m), 2);
    assert_string_equal(ps_metrics_get(m, 0, &value), "mse");
    assert_true(fabs(value - sum / (2 * N_SAMPLES - 1)) < 1e-12);
    assert_string_equal(ps_metrics_get(m, 1, &value), "pearson");
    assert_null(ps_metrics_get(m, 2, &value));
    assert_null(ps_metrics_get(m, -1, &value));
    for (int again = 0; again < 2; again++) {
        assert_int_equal(ps_metrics_finish(m, NULL), PS_ESTATE);
        assert_int_equal(ps_metrics_take(m, e, ps_rows_batch(rows), 0, ROWS), PS_ESTATE);
        assert_int_equal(ps_metrics_count(m), 2);
    }
    ps_metrics_destroy(m);
    ps_rows_destroy(rows);
    ps_data_loader_close(loader);
    ps_engine_destroy(e);
    ps_engine_destroy(other);
    ps_config_destroy(answers);
    ps_config_destroy(c);
    unlink(data);
    unlink(vocabulary);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
