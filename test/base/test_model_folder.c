#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/mem.h"
#include "base/model_folder.h"
#include "temp_folder.h"

static void test_names_of_the_hub(void **state)
{
    (void)state;
    char here[200];
    assert_non_null(getcwd(here, sizeof here));
    static const struct {
        const char *path;
        int is_name;
    } cases[] = {{"gpt2-no-such", 1},
                 {"meta-llama/Llama-3.1-8B", 1},
                 {"./org/name", 0},
                 {"/org/name", 0},
                 {"models/org/name", 0},
                 {"org/name/", 0},
                 {"", 0},
                 {"a b/c", 0},
                 {"sentence-transformers/x", 1},
                 {"moby-dick.txt", 0},
                 {"run/model.safetensors", 0},
                 {"run/step-3.PT", 0},
                 {"gpt2.json", 0},
                 {"Qwen/Qwen2.5-0.5B", 1},
                 {"src/gpt2", 0}}; /* src is a folder here */
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        assert_int_equal(ps_model_folder_check("model.from_pretrained", cases[i].path), PS_EIO);
        assert_non_null(strstr(ps_last_error(), "model.from_pretrained: there is no folder"));
        if ((strstr(ps_last_error(), "hf download") != NULL) != cases[i].is_name)
            fail_msg("%s: %s", cases[i].path, ps_last_error());
        if (cases[i].is_name && strstr(ps_last_error(), here) == NULL) fail_msg("%s", ps_last_error());
    }
}

static void test_folders_and_files(void **state)
{
    (void)state;
    temp_folder folder = temp_folder_make();
    const temp_path file = temp_folder_file(&folder, "model.safetensors");
    assert_int_equal(ps_file_write_all(file.text, "x", 1), PS_OK);
    assert_int_equal(ps_model_folder_check("w", folder.path), PS_OK);
    assert_int_equal(ps_model_folder_check("w", file.text), PS_EIO);
    assert_non_null(strstr(ps_last_error(), "is a file; give the folder"));
    temp_folder_remove(&folder);
}

#define COMMIT "0123456789abcdef0123456789abcdef01234567"

static void make_folder(const char *root, const char *inside)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, inside);
    assert_int_equal(ps_folder_make_all(path), PS_OK);
}

static void make_file(const char *root, const char *inside, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, inside);
    assert_int_equal(ps_file_write_all(path, text, (int64_t)strlen(text)), PS_OK);
}

static void without_variables(void)
{
    static const char *const variables[] = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"};
    for (size_t i = 0; i < PS_ARRAY_LEN(variables); i++) assert_int_equal(unsetenv(variables[i]), 0);
}

static void expect_snapshot(const char *path, const char *folder)
{
    char *found = NULL;
    assert_int_equal(ps_model_folder_find(path, &found), PS_OK);
    if ((found == NULL) != (folder == NULL) || (found != NULL && folder != NULL && strcmp(found, folder) != 0))
        fail_msg("%s: %s, expected %s", path, found != NULL ? found : "none", folder != NULL ? folder : "none");
    ps_mem_free(found);
}

static void test_snapshots(void **state)
{
    (void)state;
    temp_folder root = temp_folder_make();
    char folder[512], other[512], gpt2[512];
    make_folder(root.path, "hub/models--org--name/snapshots/" COMMIT);
    make_folder(root.path, "hub/models--org--name/snapshots/beef");
    make_folder(root.path, "hub/models--org--name/refs/refs/pr");
    make_file(root.path, "hub/models--org--name/refs/main", COMMIT "\n");
    make_file(root.path, "hub/models--org--name/refs/refs/pr/1", "beef");
    make_file(root.path, "hub/models--org--name/refs/gone", "dead");
    make_file(root.path, "hub/models--org--name/refs/odd", "../../../..");
    make_folder(root.path, "hub/models--gpt2/snapshots/" COMMIT);
    make_folder(root.path, "hub/models--gpt2/refs");
    make_file(root.path, "hub/models--gpt2/refs/main", COMMIT);
    snprintf(folder, sizeof folder, "%s/hub/models--org--name/snapshots/" COMMIT, root.path);
    snprintf(other, sizeof other, "%s/hub/models--org--name/snapshots/beef", root.path);
    snprintf(gpt2, sizeof gpt2, "%s/hub/models--gpt2/snapshots/" COMMIT, root.path);
    without_variables();
    assert_int_equal(setenv("HF_HOME", root.path, 1), 0);
    expect_snapshot("org/name", folder);
    expect_snapshot("org/name@main", folder);
    expect_snapshot("org/name@" COMMIT, folder);
    expect_snapshot("org/name@refs/pr/1", other);
    expect_snapshot("org/name@beef", other);
    expect_snapshot("gpt2", gpt2);
    static const char *const none[] = {"org/name@gone",   "org/name@odd",
                                       "org/name@",       "org/name@../x",
                                       "org/none",        "org",
                                       "./org/name",      "/org/name",
                                       "org/name/",       "",
                                       "../name",         "org/..",
                                       "org/name@a/../b", "src"};
    for (size_t i = 0; i < PS_ARRAY_LEN(none); i++) expect_snapshot(none[i], NULL);
    assert_int_equal(ps_model_folder_check("m", "org/name@gone"), PS_EIO);
    assert_non_null(strstr(ps_last_error(), "/hub has no revision gone of org/name;"));
    assert_non_null(strstr(ps_last_error(), "Download it first: `hf download org/name --revision gone`"));
    assert_non_null(strstr(ps_last_error(), root.path));
    without_variables();
    snprintf(folder, sizeof folder, "rm -r '%s'", root.path);
    assert_int_equal(system(folder), 0);
}

static void test_incomplete_snapshots(void **state)
{
    (void)state;
    static const struct {
        const char *folder, *said;
    } cases[] = {{"/c/models--org--a-b.c/snapshots/beef", "`hf download org/a-b.c --revision beef` fetches"},
                 {"/c/models--gpt2/snapshots/beef/config.json", "`hf download gpt2 --revision beef` fetches"},
                 {"/c/models--gpt2", ""},
                 {"/snapshots/models--gpt2", ""},
                 {"", ""}};
    char out[PS_MODEL_FOLDER_HINT_BYTES];
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        const char *hint = ps_model_folder_rest_hint(cases[i].folder, out);
        if (cases[i].said[0] == '\0' ? hint[0] != '\0' : strstr(hint, cases[i].said) == NULL)
            fail_msg("%s: %s", cases[i].folder, hint);
    }
}

/* The first that is set; a "~" is the home, and variables in it are replaced, as Python's os.path.expandvars does. */
static void test_where_the_cache_is(void **state)
{
    (void)state;
    static const struct {
        const char *variable, *value, *cache;
    } cases[] = {{"HF_HOME", "", "/home/.cache/huggingface/hub"},
                 {"XDG_CACHE_HOME", "/xdg", "/xdg/huggingface/hub"},
                 {"HF_HOME", "", "/xdg/huggingface/hub"},
                 {"HF_HOME", "/hf", "/hf/hub"},
                 {"HUGGINGFACE_HUB_CACHE", "/older", "/older"},
                 {"HF_HUB_CACHE", "~/own", "/home/own"},
                 {"HF_HUB_CACHE", "~", "/home"},
                 {"HF_HUB_CACHE", "~else/own", "~else/own"},
                 {"HF_HUB_CACHE", "$PS_TEST_A/own", "/a/own"},
                 {"HF_HUB_CACHE", "/x${PS_TEST_A}b$PS_TEST_A", "/x/ab/a"},
                 {"HF_HUB_CACHE", "~/$PS_TEST_B", "/home/b~"},
                 {"HF_HUB_CACHE", "/x$PS_TEST_NONE/${PS_TEST_NONE}", "/x$PS_TEST_NONE/${PS_TEST_NONE}"},
                 {"HF_HUB_CACHE", "/x$/${PS_TEST_A", "/x$/${PS_TEST_A"}};
    char *home = getenv("HOME"), expected[100];
    home = home != NULL ? strdup(home) : NULL;
    without_variables();
    assert_int_equal(setenv("HOME", "/home", 1), 0);
    assert_int_equal(setenv("PS_TEST_A", "/a", 1), 0);
    assert_int_equal(setenv("PS_TEST_B", "b~", 1), 0);
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        assert_int_equal(setenv(cases[i].variable, cases[i].value, 1), 0);
        assert_int_equal(ps_model_folder_check("m", "no/such"), PS_EIO);
        snprintf(expected, sizeof expected, ", and %s has no revision main of no/such;", cases[i].cache);
        if (strstr(ps_last_error(), expected) == NULL) fail_msg("%s: %s", expected, ps_last_error());
    }
    without_variables();
    if (home != NULL) (void)setenv("HOME", home, 1);
    free(home);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_of_the_hub),   cmocka_unit_test(test_folders_and_files),
        cmocka_unit_test(test_snapshots),          cmocka_unit_test(test_incomplete_snapshots),
        cmocka_unit_test(test_where_the_cache_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
