#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/file.h"
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_of_the_hub),
        cmocka_unit_test(test_folders_and_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
