#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/fault.h"
#include "base/mem.h"
#include "report_fixture.h"

#define STEP SPAN(0, "step", 10, 200, "step 2", "\"step\":2")
#define UPDATE SPAN(2, "op", 20, 30.5, "update", "\"moment\":1,\"phase\":\"adam\",\"step\":2,\"chunk\":1")
#define COPY SPAN(6, "copy", 12, 5, "MOMENTUM 0", COPY_ARGS)
#define PLACE CHANGE(7, "place", 6, "host")
#define LEAVE CHANGE(7, "leave", 6, "host")
#define MEMORY SAMPLE(3, "device bytes", "\"chunks\":5,\"non_model\":6,\"other\":7")
#define STRANGE "{\"ph\":\"M\"},{\"ph\":\"X\",\"tid\":77,\"cat\":\"strange\"}"
#define EVENTS STEP "," UPDATE "," COPY "," PLACE "," LEAVE "," MEMORY "," STRANGE

static void test_what_is_read(void **state)
{
    (void)state;
    ps_report_profile *p = NULL;
    assert_int_equal(read_text(PROFILE(EVENTS), &p), PS_OK);
    assert_string_equal(p->title, "a <b> & \"c\".json");
    assert_int_equal(p->n_chunks, 4);
    assert_int_equal(p->chunks[2].list, 2);
    assert_string_equal(p->list_names[2], "MOMENTUM");
    assert_string_equal(p->list_names[1], ""); /* no chunk is of it */
    assert_string_equal(p->chunks[0].tensors[1], "</script>");
    assert_int_equal(p->budget_bytes[PS_REPORT_HOST], 500000);
    assert_true(p->predicted.busy_seconds[PS_REPORT_COMPUTE] == 0.0001);
    assert_true(p->predicted.busy_seconds[PS_REPORT_DISK_READ] < 0);
    assert_null(p->predicted.critical);
    assert_int_equal(p->measured.moved_bytes[PS_REPORT_DISK_READ], 400);
    assert_int_equal(p->measured.peak_bytes[0], -1);
    assert_int_equal(p->bound.n, 2);
    assert_string_equal(p->bound.names[p->bound.by], "the <disk>");
    assert_true(p->bound.seconds[p->bound.by] == 0.00005 && p->bound.seconds[1 - p->bound.by] == 0.00004);
    assert_int_equal(p->n_throughputs, 1);
    assert_string_equal(p->throughput[0].of, "disk <read>");
    assert_true(p->throughput[0].reckoned == 2e9 && p->throughput[0].seen == 5e8);
    assert_int_equal(p->n_spans, 3);
    assert_int_equal(p->spans[0].lane, PS_REPORT_STEPS); /* by begin */
    assert_int_equal(p->spans[1].lane, PS_REPORT_DISK_READ);
    assert_int_equal(p->spans[1].chunk, 2);
    assert_int_equal(p->spans[1].reason, PS_REPORT_PREFETCH);
    assert_int_equal(p->spans[2].begin_ns, 20000);
    assert_int_equal(p->spans[2].end_ns, 50500);
    assert_int_equal(p->spans[2].phase, PS_REPORT_UPDATE);
    assert_int_equal(p->spans[2].chunk, 1);
    assert_int_equal(p->n_changes, 2); /* at the same time: in the file's order */
    assert_true(p->changes[0].is_there);
    assert_false(p->changes[1].is_there);
    assert_int_equal(p->changes[0].chunk, 3);
    assert_int_equal(p->samples[0].other_bytes, 7);
    ps_report_profile_destroy(p);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* Each is the profile above with one place exchanged. */
static void test_what_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *message;
    } bad[] = {
        {"\"version\":1", "\"version\":2", "\"version\": expected an integer from 1 to 1, found 2"},
        {"\"simulated\":false", "\"simulated\":0", "\"simulated\": expected true or false, found 0"},
        {"\"rank\":0", "\"rank\":1", "\"rank\""},
        {"\"rank\":0", "\"rank\":0,\"rank\":0", "duplicate"},
        {"\"steps\":[2,3]", "\"steps\":[3,2]", "\"steps\""},
        {"\"steps\":[2,3]", "\"steps\":[2]", "expected two integers"},
        {"\"host\":500000", "\"host\":-1", "\"host\": expected an integer from 0"},
        {"\"n_chunks\":2", "\"n_chunks\":5", "\"n_chunks\": expected an integer from 0 to 4, found 5"},
        {"\"id\":1,", "\"id\":0,", "patrickstar.chunks[1]: \"id\": expected an id of its own, found 0"},
        {"\"id\":6,", "\"id\":34,", "patrickstar.chunks[3]: \"id\": expected an integer from 0 to 33, found 34"},
        {"\"id\":1,\"list\":\"PARAM16\"", "\"id\":1,\"list\":\"MASTER\"",
         "patrickstar.chunks[1]: \"list\": expected 'PARAM16' as of the chunks before it, found 'MASTER'"},
        {"\"list\":\"VARIANCE\"", "\"list\":\"\"", "\"list\": expected a short name, found ''"},
        {"\"list\":\"VARIANCE\"", "\"list\":7", "\"list\": expected a string, found 7"},
        {"[\"wte\"]", "[7]", "\"tensors\": expected names, found 7"},
        {"\"step_seconds\":0.0002", "\"step_seconds\":-1", "patrickstar.predicted: \"step_seconds\""},
        {"\"by\":\"the <disk>\"", "\"by\":\"the disk\"",
         "patrickstar.bound: \"by\": expected a name of the seconds, found 'the disk'"},
        {"\"computing\":0.00004", "\"computing\":-1", "patrickstar.bound: \"computing\": expected a number from 0"},
        {"\"computing\":0.00004", "\"a\":1,\"b\":1,\"c\":1,\"d\":1,\"e\":1,\"f\":1,\"g\":1,\"h\":1",
         "patrickstar.bound: \"seconds\": expected a few short names"},
        {"\"reckoned\":2e9", "\"reckoned\":\"2e9\"", "patrickstar.rates[0]: \"reckoned\": expected a number"},
        {"\"of\":\"disk <read>\"", "\"of\":\"\"", "patrickstar.rates[0]: \"of\": expected a short name"},
        {"\"waste\":0.25", "\"waste\":25", "\"waste\": expected a number from 0 to 1, found 25"},
        {"\"ts\":10,", "\"ts\":-10,", "traceEvents[0]: \"ts\": expected a number from 0 to 8.64e+12, found -10"},
        {"\"ts\":10,", "\"ts\":1e300,", "traceEvents[0]: \"ts\""},
        {"\"dur\":200,", "", "traceEvents[0]: \"dur\": expected a number from 0 to 8.64e+12, found nothing"},
        {"\"phase\":\"adam\"", "\"phase\":\"adams\"", "traceEvents[1]: \"phase\": expected one of forward"},
        {"\"chunk\":1}", "\"chunk\":2}", "traceEvents[1]: \"chunk\": expected the id of a chunk"},
        {"\"chunk\":1}", "\"chunk\":99}", "traceEvents[1]: \"chunk\": expected an integer from 0 to 33, found 99"},
        {"\"from\":\"disk\"", "\"from\":\"tape\"", "traceEvents[2]: \"from\": expected one of device, host, disk"},
        {"\"name\":\"leave\"", "\"name\":\"left\"", "traceEvents[4]: \"name\": expected one of leave, place"},
        {"\"non_model\":6", "\"non_model\":1e3", "traceEvents[5]: \"non_model\""},
        {"{\"ph\":\"M\"}", "7", "traceEvents[6]"},
        {"\"traceEvents\":[", "\"traceEvent\":[", "\"traceEvents\": expected an array, found nothing"},
        {"\"patrickstar\"", "\"other\"", "\"patrickstar\": expected an object"},
    };
    static const char whole[] = PROFILE(EVENTS);
    for (size_t i = 0; i < PS_ARRAY_LEN(bad); i++) {
        char text[2 * sizeof whole];
        const char *at = strstr(whole, bad[i].from);
        assert_non_null(at);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - whole), whole, bad[i].to, at + strlen(bad[i].from));
        ps_report_profile *p = NULL;
        assert_int_equal(read_text(text, &p), PS_EFORMAT);
        assert_null(p);
        if (strstr(ps_last_error(), bad[i].message) == NULL)
            fail_msg("%s\nsays not: %s", ps_last_error(), bad[i].message);
        assert_non_null(strstr(ps_last_error(), "p.json"));
    }
    ps_report_profile *p = NULL;
    assert_int_equal(read_text("{\"a\":", &p), PS_EFORMAT);
    assert_non_null(strstr(ps_last_error(), "p.json:1:"));
    assert_int_equal(read_text("[]", &p), PS_EFORMAT);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void test_faults(void **state)
{
    (void)state;
    bool has_struck = true;
    for (long n = 0; has_struck; n++) {
        ps_report_profile *p = NULL;
        ps_fault_arm(PS_FAULT_ALLOC, n, false);
        const ps_status st = read_text(PROFILE(EVENTS), &p);
        has_struck = ps_fault_has_struck(PS_FAULT_ALLOC);
        ps_fault_arm(PS_FAULT_ALLOC, -1, false);
        assert_int_equal(st, has_struck ? PS_ENOMEM_HOST : PS_OK);
        ps_report_profile_destroy(p);
        assert_int_equal(ps_mem_live_bytes(), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_read),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
