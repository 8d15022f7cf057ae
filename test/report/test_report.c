#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/report/report.h"
#include "base/base.h"
#include "base/fault.h"
#include "base/mem.h"
#include "report_fixture.h"

#define STEP SPAN(0, "step", 10, 200, "</script><svg>", "\"step\":2")
#define UPDATE SPAN(2, "op", 20, 30.5, "update", "\"moment\":1,\"phase\":\"adam\",\"step\":2,\"chunk\":1")
#define COPY SPAN(6, "copy", 12, 5, "MOMENTUM 0", COPY_ARGS)
#define WAIT SPAN(3, "wait", 60, 5, "wait for MOMENTUM 0", "\"chunk\":4,\"link\":\"disk read\"")
#define EVENTS STEP "," UPDATE "," COPY "," CHANGE(7, "place", 0, "host") "," SAMPLE(3, "device bytes", "\"chunks\":5")

static temp_folder folder;

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at++) n++;
    return n;
}

static char *read_back(const char *path)
{
    char *text;
    int64_t n_bytes;
    assert_int_equal(ps_file_read_all(path, 16 * PS_MIB, &text, &n_bytes), PS_OK);
    assert_int_equal(strlen(text), n_bytes);
    return text;
}

static void test_names_cannot_break_the_page(void **state)
{
    (void)state;
    ps_report_profile *p;
    ps_figures *f;
    const temp_path page = temp_folder_file(&folder, "page.html");
    assert_int_equal(read_text(PROFILE(EVENTS), &p), PS_OK);
    assert_int_equal(ps_figures_create(p, &f), PS_OK);
    assert_int_equal(ps_report_write_html(f, page.text), PS_OK);
    char *text = read_back(page.text);
    assert_int_equal(count(text, "</script>"), 3); /* uPlot, the data, the page's own */
    assert_int_equal(count(text, "<b>"), 0);
    assert_int_equal(count(text, "<title>a &lt;b&gt; &amp; &quot;c&quot;.json</title>"), 1);
    assert_int_equal(count(text, "\"\\u003c/script\\u003e\""), 1);
    assert_int_equal(count(text, "@data@"), 0);
    assert_non_null(strstr(text, "<td>time</td><td>0.0002 s</td><td>0.0001 s</td><td>0.50</td>"));
    assert_non_null(strstr(text, "<td>moved: disk read</td><td>–</td><td>400 B</td><td>–</td>"));
    /* the step's 200 us: 30.5 computing */
    assert_non_null(strstr(text, "Bound: 0.0001 s a step by the &lt;disk&gt; (computing 0.0000 s), at the rates that"));
    assert_non_null(strstr(text, "A step took 4.00 x that long: computing 0.0000 s, the rest 0.0002 s."));
    assert_non_null(
        strstr(text, "<td>disk &lt;read&gt;</td><td>2.00 Gbytes/s</td><td>0.50 Gbytes/s</td><td>0.25</td>"));
    ps_mem_free(text);
    ps_figures_destroy(f);
    ps_report_profile_destroy(p);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* Lists apart have chunks of a size of their own. */
static void test_standalone_lists_are_counted(void **state)
{
    (void)state;
    static const char plain[] = PROFILE(EVENTS);
    ps_report_profile *p;
    ps_figures *f;
    char listed[sizeof plain + 200];
    const char *lists = strstr(plain, "\"waste\""), *end = strstr(plain, "],\"predicted\"");
    const temp_path page = temp_folder_file(&folder, "page.html");
    snprintf(listed, sizeof listed, "%.*s\"n_lists\":4,%.*s,%s,%s%s", (int)(lists - plain), plain, (int)(end - lists),
             lists, "{\"id\":8,\"list\":\"INPUTS\",\"index\":0,\"bytes\":64,\"tensors\":[]}",
             "{\"id\":9,\"list\":\"INPUTS\",\"index\":1,\"bytes\":64,\"tensors\":[]}", end);
    const char *const texts[] = {plain, listed};
    const char *const said[] = {". 4 chunks of 100 elements, 25.00 % of them unused.</p>",
                                ". 4 chunks of 100 elements, 25.00 % of them unused; 2 of INPUTS.</p>"};
    for (size_t i = 0; i < PS_ARRAY_LEN(texts); i++) {
        assert_int_equal(read_text(texts[i], &p), PS_OK);
        assert_int_equal(ps_figures_create(p, &f), PS_OK);
        assert_int_equal(ps_report_write_html(f, page.text), PS_OK);
        char *text = read_back(page.text);
        assert_int_equal(count(text, said[i]), 1);
        ps_mem_free(text);
        ps_figures_destroy(f);
        ps_report_profile_destroy(p);
    }
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void test_data_say_where_the_time_went(void **state)
{
    (void)state;
    ps_report_profile *p;
    ps_figures *f;
    const temp_path page = temp_folder_file(&folder, "page.html");
    assert_int_equal(read_text(PROFILE(EVENTS "," WAIT), &p), PS_OK);
    assert_int_equal(ps_figures_create(p, &f), PS_OK);
    assert_int_equal(ps_report_write_html(f, page.text), PS_OK);
    char *text = read_back(page.text);
    assert_int_equal(count(text, "\"measured\":\"measured\",\n\"parts\":[[\"forward\",0.000000000],"
                                 "[\"backward\",0.000000000],[\"update\",0.000030500],"
                                 "[\"wait: disk read\",0.000005000],[\"other\",0.000164500]],\n"),
                     1);
    assert_int_equal(count(text, "\"busy\":[[\"whole step\",0.000200000,0.000100000],"
                                 "[\"compute\",0.000100000,-1.000000000]],\n"),
                     1);
    ps_mem_free(text);
    ps_figures_destroy(f);
    ps_report_profile_destroy(p);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void test_a_page_is_complete_or_not_there(void **state)
{
    (void)state;
    const temp_path page = temp_folder_file(&folder, "page.html");
    ps_report_profile *p;
    ps_figures *f;
    temp_folder_entries(&folder, 1);
    assert_int_equal(read_text(PROFILE(EVENTS), &p), PS_OK);
    assert_int_equal(ps_figures_create(p, &f), PS_OK);
    bool has_struck = true;
    for (long n = 0; has_struck; n++) {
        ps_fault_arm(PS_FAULT_WRITE, n, false);
        const ps_status st = ps_report_write_html(f, page.text);
        has_struck = ps_fault_has_struck(PS_FAULT_WRITE);
        ps_fault_arm(PS_FAULT_WRITE, -1, false);
        assert_int_equal(st, has_struck ? PS_EIO : PS_OK);
        const int n_entries = temp_folder_entries(&folder, 0);
        if (!has_struck) assert_int_equal(n_entries, 1);
        assert_true(n_entries <= 1);
        if (ps_file_exists(page.text)) {
            char *text = read_back(page.text);
            assert_non_null(strstr(text, "</html>"));
            ps_mem_free(text);
        } else {
            assert_int_equal(n_entries, 0);
        }
        temp_folder_entries(&folder, 1);
    }
    ps_figures_destroy(f);
    ps_report_profile_destroy(p);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_cannot_break_the_page),
        cmocka_unit_test(test_standalone_lists_are_counted),
        cmocka_unit_test(test_data_say_where_the_time_went),
        cmocka_unit_test(test_a_page_is_complete_or_not_there),
    };
    folder = temp_folder_make();
    const int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    temp_folder_remove(&folder);
    return n_failed;
}
