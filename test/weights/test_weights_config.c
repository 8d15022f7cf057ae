/* The configuration that is with weights: of a checkpoint, a run, a Hugging Face model, a file; and its names of classes. */
#include "assert_status.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "base/base.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "config/config.h"
#include "patrickstar_data.h"

static char root[] = "/tmp/ps-test-XXXXXX";

static int make_root(void **state)
{
    (void)state;
    return mkdtemp(root) == NULL;
}

static int remove_root(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", root);
    return system(command);
}

static const char *path_of(const char *name)
{
    static char paths[4][128];
    static unsigned n;
    char *path = paths[n++ % PS_ARRAY_LEN(paths)];
    snprintf(path, sizeof paths[0], "%s/%s", root, name);
    return path;
}

static void make_folder(const char *name)
{
    assert_int_equal(mkdir(path_of(name), 0777), 0);
}

static void write_file(const char *name, const char *text)
{
    assert_ok(ps_file_write_all(path_of(name), text, (int64_t)strlen(text)));
}

#define CLASSIFIER(labels)                                                                                             \
    "{\"config\": {\"model\": {\"type\": \"bert\", \"head\": \"sequence_classification\", \"num_labels\": 3, "         \
    "\"hidden_size\": 16, \"num_hidden_layers\": 1, \"num_attention_heads\": 2}, \"data\": {\"labels\": \"" labels     \
    "\"}}}"

static void labels_are(const char *path, const char *labels)
{
    ps_config *c = NULL;
    const char *text = NULL;
    assert_ok(ps_config_load_of_weights(path, &c));
    if (c == NULL) fail_msg("nothing with %s", path);
    assert_ok(ps_config_get_string(c, "data.labels", &text));
    assert_string_equal(text, labels);
    ps_config_destroy(c);
}

static void nothing_says_it(const char *path)
{
    ps_config *c = NULL;
    assert_ok(ps_config_load_of_weights(path, &c));
    assert_null(c);
}

static void is_refused(ps_status st, const char *path, const char *says)
{
    ps_config *c = NULL;
    assert_int_equal(ps_config_load_of_weights(path, &c), st);
    assert_null(c);
    if (strstr(ps_last_error(), says) == NULL) fail_msg("'%s' does not say '%s'", ps_last_error(), says);
}

static void runs_and_checkpoints(void **state)
{
    (void)state;
    make_folder("run");
    nothing_says_it(path_of("run"));
    make_folder("run/checkpoints");
    make_folder("run/checkpoints/step-000007");
    write_file("run/checkpoints/step-000007/state.json", CLASSIFIER("a,b,c"));
    labels_are(path_of("run"), "a,b,c"); /* before its end, and without a `latest` */
    labels_are(path_of("run/checkpoints/step-000007"), "a,b,c");
    write_file("run/summary.json", CLASSIFIER("d,e,f"));
    labels_are(path_of("run"), "d,e,f");
    write_file("run/model.safetensors", "");
    labels_are(path_of("run/model.safetensors"), "d,e,f");
    is_refused(PS_EIO, path_of("run/nowhere.safetensors"), "No such file");

    /* what is damaged in a folder is an error; next to a file it may be another model's */
    write_file("run/summary.json", "{");
    is_refused(PS_EFORMAT, path_of("run"), "summary.json:1");
    nothing_says_it(path_of("run/model.safetensors"));
    write_file("run/summary.json", "{}");
    is_refused(PS_EFORMAT, path_of("run"), "no \"config\"");
}

static void models_of_hugging_face(void **state)
{
    (void)state;
    ps_config *c = NULL;
    int64_t width = 0;
    make_folder("hf");
    write_file("hf/config.json", "{\"architectures\": [\"GPT2LMHeadModel\"], \"model_type\": \"gpt2\", \"n_embd\": 24, "
                                 "\"n_layer\": 1, \"n_head\": 2, \"n_positions\": 32, \"vocab_size\": 300}");
    write_file("hf/pytorch_model.bin", "");
    for (int i = 0; i < 2; i++) {
        assert_ok(ps_config_load_of_weights(path_of(i == 0 ? "hf" : "hf/pytorch_model.bin"), &c));
        assert_ok(ps_config_get_int(c, "model.hidden_size", &width));
        assert_int_equal(width, 24);
        ps_config_destroy(c);
    }
}

static ps_config *classifier(const char *head, const char *labels)
{
    ps_config *c = NULL;
    assert_ok(ps_config_create(&c));
    assert_ok(ps_config_set(c, "model.type", "bert"));
    assert_ok(ps_config_set(c, "model.head", head));
    assert_ok(ps_config_set(c, "model.num_labels", "3"));
    if (labels != NULL) assert_ok(ps_config_set(c, "data.labels", labels));
    return c;
}

static void names_are_taken(void **state)
{
    (void)state;
    static const struct {
        const char *head, *given, *weights;
        ps_status st;
        const char *labels; /* or the error */
    } cases[] = {
        {"sequence_classification", NULL, "trained", PS_OK, "no,perhaps,yes"},
        {"sequence_classification", "no,perhaps,yes", "trained", PS_OK, "no,perhaps,yes"},
        {"sequence_classification", "no,yes", "trained", PS_EINVAL, "data.labels has 'yes' as class 1"},
        {"token_classification", NULL, "trained", PS_OK, ""}, /* another head */
        {"masked_lm", NULL, "trained", PS_OK, ""},
        {"masked_lm", NULL, "nowhere", PS_OK, ""}, /* not even looked for */
        {"sequence_classification", NULL, "nowhere", PS_EIO, "nowhere"},
        {"sequence_classification", "x,y,z", "empty", PS_OK, "x,y,z"},
    };
    make_folder("empty");
    make_folder("trained");
    write_file("trained/state.json", CLASSIFIER("no,perhaps,yes"));
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        ps_config *c = classifier(cases[i].head, cases[i].given);
        const char *labels = "";
        const ps_status st = ps_config_take_labels(c, path_of(cases[i].weights));
        if (st != cases[i].st) fail_msg("case %zu: %s, %s", i, ps_status_name(st), ps_last_error());
        assert_ok(ps_config_get_string(c, "data.labels", &labels));
        if (st == PS_OK)
            assert_string_equal(labels, cases[i].labels);
        else
            assert_non_null(strstr(ps_last_error(), cases[i].labels));
        ps_config_destroy(c);
    }
}

/* With each allocation and each read failing: no leak, and names stay as they were. */
static void failures(void **state)
{
    (void)state;
    static const ps_fault_kind kinds[] = {PS_FAULT_ALLOC, PS_FAULT_READ};
    for (size_t k = 0; k < PS_ARRAY_LEN(kinds); k++) {
        int n = 0;
        for (bool has_struck = true; has_struck; n++) {
            ps_config *c = classifier("sequence_classification", NULL);
            const char *labels = NULL;
            ps_fault_arm(kinds[k], n, false);
            const ps_status st = ps_config_take_labels(c, path_of("trained"));
            has_struck = ps_fault_has_struck(kinds[k]);
            ps_fault_arm(kinds[k], -1, false);
            assert_int_equal(st != PS_OK, has_struck);
            assert_ok(ps_config_get_string(c, "data.labels", &labels));
            assert_string_equal(labels, st == PS_OK ? "no,perhaps,yes" : "");
            ps_config_destroy(c);
        }
        assert_true(n > 1);
    }
    assert_int_equal(ps_mem_live_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_and_checkpoints),
        cmocka_unit_test(models_of_hugging_face),
        cmocka_unit_test(names_are_taken),
        cmocka_unit_test(failures),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
