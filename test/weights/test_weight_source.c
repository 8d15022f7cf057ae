/* Folders of weights: shards and their index, ranks of a checkpoint, the newest checkpoint of a run; and what is wrong
 * with them, by name. Also the index' parser. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "base/base.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/mem.h"
#include "temp_folder.h"
#include "weights/checkpoint_folder.h"
#include "weights/shard_index.h"
#include "weights/weight_source.h"

#define INDEX "model.safetensors.index.json"
#define ONE "model-00001-of-00002.safetensors"
#define TWO "model-00002-of-00002.safetensors"

static temp_folder folder;

static void empty_folder(void)
{
    temp_folder_entries(&folder, 1);
}

static void write_text(const char *name, const char *text)
{
    assert_int_equal(ps_file_write_all(temp_folder_file(&folder, name).text, text, (int64_t)strlen(text)), PS_OK);
}

/* A file with one-element tensors of these names and values. */
static void write_tensors(const char *file, const char *a, int32_t a_value, const char *b, int32_t b_value)
{
    const ps_safetensor t[] = {{.name = a, .dtype = PS_SAFETENSORS_I32, .n_dims = 1, .shape = {1}},
                               {.name = b, .dtype = PS_SAFETENSORS_I32, .n_dims = 1, .shape = {1}}};
    ps_safetensors_writer *w;
    assert_int_equal(
        ps_safetensors_writer_open(temp_folder_file(&folder, file).text, t, b != NULL ? 2 : 1, NULL, 0, &w), PS_OK);
    assert_int_equal(ps_safetensors_writer_append(w, 0, &a_value, sizeof a_value), PS_OK);
    if (b != NULL) assert_int_equal(ps_safetensors_writer_append(w, 1, &b_value, sizeof b_value), PS_OK);
    assert_int_equal(ps_safetensors_writer_commit(w), PS_OK);
}

static int32_t value_of(const ps_weight_source *s, const char *name)
{
    int32_t v;
    const int i = ps_weight_source_find(s, name);
    if (i < 0) fail_msg("%s is missing", name);
    assert_int_equal(ps_weight_source_read(s, ps_weight_source_get(s, i), 0, &v, sizeof v), PS_OK);
    return v;
}

static void expect_fails(ps_status wanted, const char *message)
{
    ps_weight_source *s;
    const ps_status st = ps_weight_source_open(folder.path, &s);
    if (st != wanted || strstr(ps_last_error(), message) == NULL)
        fail_msg("%s: \"%s\" lacks \"%s\"", ps_status_name(st), ps_last_error(), message);
    assert_null(s);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void test_shards(void **state)
{
    (void)state;
    ps_weight_source *s;
    empty_folder();
    write_tensors(ONE, "a", 1, "b", 2);
    write_tensors(TWO, "c", 3, NULL, 0);
    write_text(INDEX, "{\"weight_map\": {\"c\": \"" TWO "\", \"a\": \"" ONE "\", \"b\": \"" ONE "\"}}");
    write_text("model.safetensors.tmp-1-0", "left by a writer that was killed");
    assert_int_equal(ps_weight_source_open(folder.path, &s), PS_OK);
    assert_string_equal(ps_weight_source_kind(s), "2 shards of safetensors");
    assert_int_equal(ps_weight_source_count(s), 3);
    assert_int_equal(value_of(s, "a"), 1);
    assert_int_equal(value_of(s, "b"), 2);
    assert_int_equal(value_of(s, "c"), 3);
    assert_int_equal(ps_weight_source_find(s, "d"), -1);
    ps_weight_source_close(s);

    write_text(INDEX, "{\"weight_map\": {\"c\": \"" TWO "\", \"a\": \"" ONE "\"}}");
    expect_fails(PS_EFORMAT, "tensor b is in ");
    expect_fails(PS_EFORMAT, "the index lacks it");
    write_text(INDEX, "{\"weight_map\": {\"c\": \"" TWO "\", \"a\": \"" ONE "\", \"b\": \"" TWO "\"}}");
    expect_fails(PS_EFORMAT, "the index names another file");
    write_text(INDEX,
               "{\"weight_map\": {\"c\": \"" TWO "\", \"a\": \"" ONE "\", \"b\": \"" ONE "\", \"d\": \"" TWO "\"}}");
    expect_fails(PS_EFORMAT, "tensor d is missing in ");
    write_text(INDEX, "{\"weight_map\": {\"c\": \"absent.safetensors\"}}");
    expect_fails(PS_EIO, "absent.safetensors");
    write_tensors(TWO, "c", 3, "a", 1);
    write_text(INDEX, "{\"weight_map\": {\"c\": \"" TWO "\", \"a\": \"" ONE "\", \"b\": \"" ONE "\"}}");
    expect_fails(PS_EFORMAT, "tensor a is in ");
    write_text(INDEX, "{\"weight_map\": {}}");
    expect_fails(PS_EFORMAT, "\"weight_map\" is empty");
}

static void test_index_texts(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "index:"},
        {"[]", "no object \"weight_map\""},
        {"{\"weight_map\": []}", "no object \"weight_map\""},
        {"{\"weight_map\": {\"a\": \"x\", \"a\": \"y\"}}", "duplicate"},
        {"{\"weight_map\": {\"a\": 1}}", "tensor a: expected the name of a file in this folder, found no string"},
        {"{\"weight_map\": {\"a\": \"\"}}", "tensor a: expected the name"},
        {"{\"weight_map\": {\"a\": \"../x.safetensors\"}}", "found ../x.safetensors"},
        {"{\"weight_map\": {\"a\": \"/etc/passwd\"}}", "found /etc/passwd"},
        {"{\"weight_map\": {\"a\": \"..\"}}", "found .."},
        {"{\"weight_map\": {\"a\": \"d/x\"}}", "found d/x"},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        ps_shard_index *x;
        assert_int_equal(ps_shard_index_parse("index", cases[i].text, (int64_t)strlen(cases[i].text), &x), PS_EFORMAT);
        if (strstr(ps_last_error(), cases[i].message) == NULL) fail_msg("case %zu: %s", i, ps_last_error());
        assert_null(x);
    }
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void test_ranks(void **state)
{
    (void)state;
    ps_weight_source *s;
    empty_folder();
    expect_fails(PS_EIO, "no weights in this folder");
    write_tensors("model-1-of-2.safetensors", "c", 3, "shared", 7);
    expect_fails(PS_EIO, "model-0-of-2.safetensors");
    write_tensors("model-0-of-2.safetensors", "a", 1, "shared", 7);
    assert_int_equal(ps_weight_source_open(folder.path, &s), PS_OK);
    assert_string_equal(ps_weight_source_kind(s), "checkpoint of 2 ranks");
    assert_int_equal(ps_weight_source_count(s), 3); /* what is the same in both is there once */
    assert_int_equal(value_of(s, "shared"), 7);
    assert_int_equal(value_of(s, "c"), 3);
    ps_weight_source_close(s);
    write_tensors("model-1-of-2.safetensors", "c", 3, "shared", 8);
    expect_fails(PS_EFORMAT, "tensor shared is in ");
    expect_fails(PS_EFORMAT, ", and not the same");
    write_tensors("model-0-of-3.safetensors", "a", 1, NULL, 0);
    expect_fails(PS_EFORMAT, "files of 2 ranks and of 3");
}

static void test_run(void **state)
{
    (void)state;
    ps_weight_source *s;
    char *found;
    empty_folder();
    const temp_path checkpoints = temp_folder_file(&folder, "checkpoints");
    const temp_path latest = temp_folder_file(&folder, "checkpoints/latest");
    const temp_path step = temp_folder_file(&folder, "checkpoints/step-000100");
    assert_int_equal(ps_checkpoint_folder_of_run(folder.path, &found), PS_OK);
    assert_null(found);
    assert_int_equal(mkdir(checkpoints.text, 0777) | mkdir(step.text, 0777), 0);
    static const char *const bad[] = {"", "..", "a/b", "/etc"};
    for (size_t i = 0; i < PS_ARRAY_LEN(bad); i++) {
        assert_int_equal(ps_file_write_all(latest.text, bad[i], (int64_t)strlen(bad[i])), PS_OK);
        expect_fails(PS_EFORMAT, "latest: damaged: expected the name of a checkpoint");
    }
    char line[64];
    snprintf(line, sizeof line, "step-000100 %016llx\n", (unsigned long long)XXH3_64bits("step-000100", 11));
    assert_int_equal(ps_file_write_all(latest.text, line, (int64_t)strlen(line)), PS_OK);
    expect_fails(PS_EIO, "step-000100: no weights in this folder");
    write_tensors("checkpoints/step-000100/model-0-of-1.safetensors", "a", 5, NULL, 0);
    assert_int_equal(ps_weight_source_open(folder.path, &s), PS_OK);
    assert_int_equal(value_of(s, "a"), 5);
    ps_weight_source_close(s);
    /* what the run ended with comes first */
    write_tensors("model.safetensors", "a", 6, NULL, 0);
    assert_int_equal(ps_weight_source_open(folder.path, &s), PS_OK);
    assert_int_equal(value_of(s, "a"), 6);
    ps_weight_source_close(s);
    unlink(temp_folder_file(&folder, "checkpoints/step-000100/model-0-of-1.safetensors").text);
    unlink(latest.text);
    rmdir(step.text);
    rmdir(checkpoints.text);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_index_texts),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_run),
    };
    folder = temp_folder_make();
    const int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    temp_folder_remove(&folder);
    return n_failed;
}
