/* The log of a run: what is read, what is refused, and its page. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "api/report/report.h"
#include "base/base.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "temp_folder.h"

#define LINES                                                                                                          \
    "{\"step\":2,\"loss\":3.5,\"lr\":0.1,\"grad_norm\":null,\"skipped\":true,\"taken_back\":true,\"step_s\":0.5,"      \
    "\"tokens\":32,"                                                                                                   \
    "\"device_peak_bytes\":1000,\"own\":[1]}\n"                                                                        \
    "\n"                                                                                                               \
    "{\"step\":2,\"checkpoint\":\"step-<2>\",\"bytes\":7,\"seconds\":0.25,\"stall_s\":0.125}\n"                        \
    "{\"step\":3,\"loss\":3.25,\"lr\":0.2,\"grad_norm\":2,\"skipped\":false,\"step_s\":1.5,\"tokens\":64,"             \
    "\"device_peak_bytes\":1000,\"eval_loss\":3.75,\"ranks\":[{\"device_peak_bytes\":1000},"                           \
    "{\"device_peak_bytes\":2000}]}\n"                                                                                 \
    "{\"step\":3,\"checkpoint_error\":\"the </script> disk\"}\n"

static temp_folder folder;

static ps_status read_lines(const char *text, ps_report_log **out)
{
    const temp_path path = temp_folder_file(&folder, "metrics.jsonl");
    assert_int_equal(ps_file_write_all(path.text, text, (int64_t)strlen(text)), PS_OK);
    return ps_report_log_read(path.text, out);
}

static void test_what_is_read(void **state)
{
    (void)state;
    ps_report_log *l = NULL;
    assert_int_equal(read_lines(LINES "{\"step\":4,\"lo", &l), PS_OK); /* a run under way */
    assert_string_equal(l->title, folder.path);
    assert_int_equal(l->n_steps, 2);
    assert_int_equal(l->n_ranks, 2);
    assert_int_equal(l->steps[0].step, 2);
    assert_true(l->steps[0].is_skipped && !l->steps[1].is_skipped);
    assert_true(l->steps[0].is_taken_back && !l->steps[1].is_taken_back);
    assert_true(l->steps[0].values[PS_REPORT_LOG_LOSS] == 3.5);
    assert_true(isnan(l->steps[0].values[PS_REPORT_LOG_GRAD_NORM])); /* null */
    assert_true(isnan(l->steps[0].values[PS_REPORT_LOG_EVAL_LOSS])); /* missing */
    assert_true(l->steps[1].values[PS_REPORT_LOG_EVAL_LOSS] == 3.75);
    assert_true(l->steps[1].values[PS_REPORT_LOG_DEVICE_BYTES] == 2000); /* the rank with most */
    assert_int_equal(l->n_saves, 2);
    assert_string_equal(l->saves[0].name, "step-<2>");
    assert_true(l->saves[0].stall_seconds == 0.125 && l->saves[0].error == NULL);
    assert_string_equal(l->saves[1].error, "the </script> disk");
    ps_report_log_destroy(l);
    ps_report_log_destroy(NULL);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void test_what_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *said;
    } cases[] = {
        {"", "there is no step in this file"},
        {"{\"step\":1}\n", "there is no step in this file"},
        {"{\"step\":1,\"loss\":1}\n{\"step\":2,\"loss\n{\"step\":3,\"loss\":1}\n", "metrics.jsonl:2:"},
        {"{\"step\":0,\"loss\":1}\n", "metrics.jsonl:1: \"step\": expected an integer from 1 to 2^53"},
        {"{\"step\":9007199254740993,\"loss\":1}\n", "an integer from 1 to 2^53"},
        {"{\"step\":1,\"loss\":\"1\"}\n", "\"loss\": expected a number or null"},
        {"{\"step\":1,\"loss\":1,\"skipped\":0}\n", "\"skipped\": expected true or false"},
        {"{\"step\":1,\"loss\":1,\"taken_back\":0}\n", "\"taken_back\": expected true or false"},
        {"{\"step\":1,\"loss\":1,\"ranks\":{}}\n", "\"ranks\": expected an array"},
        {"{\"step\":1,\"loss\":1,\"ranks\":[{\"host_peak_bytes\":\"x\"}]}\n", "\"host_peak_bytes\": expected a number"},
        {"{\"step\":1,\"checkpoint\":1}\n", "\"checkpoint\": expected a string"},
        {"{\"step\":2,\"loss\":1}\n{\"step\":2,\"loss\":1}\n", "metrics.jsonl:2: step 2 follows step 2"},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        ps_report_log *l = NULL;
        if (read_lines(cases[i].text, &l) != PS_EFORMAT) fail_msg("accepted: %s", cases[i].text);
        if (strstr(ps_last_error(), cases[i].said) == NULL) fail_msg("%s: %s", cases[i].said, ps_last_error());
        assert_null(l);
        assert_int_equal(ps_mem_live_bytes(), 0);
    }
}

static void test_which_file(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool is_log;
    } cases[] = {{LINES, true},
                 {" { \"step\" : 1}", true},
                 {"{\"displayTimeUnit\":\"ms\",\"step\":1}", false},
                 {"{\"steps\":1}", false},
                 {"", false}};
    const temp_path path = temp_folder_file(&folder, "file"), metrics = temp_folder_file(&folder, "metrics.jsonl");
    char *found = NULL;
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        assert_int_equal(ps_file_write_all(path.text, cases[i].text, (int64_t)strlen(cases[i].text)), PS_OK);
        assert_int_equal(ps_report_log_find(path.text, &found), PS_OK);
        assert_int_equal(found != NULL, cases[i].is_log);
        if (found != NULL) assert_string_equal(found, path.text);
        ps_mem_free(found);
    }
    assert_int_equal(ps_file_write_all(metrics.text, "x", 1), PS_OK);
    assert_int_equal(ps_report_log_find(folder.path, &found), PS_OK);
    assert_string_equal(found, metrics.text);
    ps_mem_free(found);
    temp_folder_entries(&folder, 1);
    assert_int_equal(ps_report_log_find(folder.path, &found), PS_EIO);
    assert_non_null(strstr(ps_last_error(), "there is no metrics.jsonl in this folder"));
    assert_int_equal(ps_report_log_find(metrics.text, &found), PS_EIO);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static char *page_of(const char *lines)
{
    ps_report_log *l = NULL;
    char *text = NULL;
    int64_t n;
    const temp_path page = temp_folder_file(&folder, "page.html");
    assert_int_equal(read_lines(lines, &l), PS_OK);
    assert_int_equal(ps_report_write_log(l, page.text), PS_OK);
    assert_int_equal(ps_file_read_all(page.text, 16 * PS_MIB, &text, &n), PS_OK);
    ps_report_log_destroy(l);
    return text;
}

static void test_page(void **state)
{
    (void)state;
    char *text = page_of(LINES);
    static const char *const parts[] = {
        "{\"begin\":2,\"end\":3,\"ranks\":2,\n\"steps\":[2,3],\n\"skipped\":[2],\n\"values\":{\n\"loss\":[3.5,3.25],",
        "\"eval_loss\":[null,3.75]",
        ("\"saves\":[\n{\"step\":2,\"name\":\"step-\\u003c2\\u003e\",\"error\":null},\n"
         "{\"step\":3,\"name\":null,\"error\":\"the \\u003c/script\\u003e disk\"}]}"),
        "<td>loss</td><td>3.5000 to 3.2500, least 3.2500 at step 3</td>",
        "<td>validation loss</td><td>3.7500 at last, least 3.7500 at step 3</td>",
        "<td>skipped steps</td><td>1</td>",
        "<td>steps with updates taken back</td><td>1</td>",
        "<td>time of steps</td><td>2 s, median 1.5 s</td>",
        "<td>tokens</td><td>96, 48/s</td>",
        "<td>peak: device</td><td>2 kB</td>",
        "<td>checkpoint failed</td><td>step 3: the &lt;/script&gt; disk</td>",
        "<td>checkpoints</td><td>1, training waited 0.125 s for them</td>",
        "The log of steps 2 to 3, 2 ranks.",
        "</html>"};
    for (size_t i = 0; i < PS_ARRAY_LEN(parts); i++)
        if (strstr(text, parts[i]) == NULL) fail_msg("not in the page: %s", parts[i]);
    assert_null(strstr(text, "@table@"));
    assert_null(strstr(text, "id=\"chunks\"")); /* a profile's */
    ps_mem_free(text);

    text = page_of("{\"step\":5,\"loss\":null}\n"); /* an axis has two ends */
    assert_non_null(strstr(text, "{\"begin\":4.5,\"end\":5.5,\"ranks\":1,"));
    assert_non_null(strstr(text, "<td>losses that are not finite</td><td>1</td>"));
    ps_mem_free(text);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void test_without_memory(void **state)
{
    (void)state;
    const temp_path page = temp_folder_file(&folder, "page.html");
    bool has_struck = true;
    for (long n = 0; has_struck; n++) {
        ps_report_log *l = NULL;
        const temp_path path = temp_folder_file(&folder, "metrics.jsonl");
        assert_int_equal(ps_file_write_all(path.text, LINES, sizeof LINES - 1), PS_OK);
        ps_fault_arm(PS_FAULT_ALLOC, n, false);
        ps_status st = ps_report_log_read(path.text, &l);
        if (st == PS_OK) st = ps_report_write_log(l, page.text);
        has_struck = ps_fault_has_struck(PS_FAULT_ALLOC);
        ps_fault_arm(PS_FAULT_ALLOC, -1, false);
        assert_int_equal(st, has_struck ? PS_ENOMEM_HOST : PS_OK);
        ps_report_log_destroy(l);
        assert_int_equal(ps_mem_live_bytes(), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_read), cmocka_unit_test(test_what_is_refused), cmocka_unit_test(test_which_file),
        cmocka_unit_test(test_page),         cmocka_unit_test(test_without_memory),
    };
    folder = temp_folder_make();
    const int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    temp_folder_entries(&folder, 1);
    temp_folder_remove(&folder);
    return n_failed;
}
