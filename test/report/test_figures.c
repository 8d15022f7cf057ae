#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/mem.h"
#include "report_fixture.h"

#define STEPS SPAN(0, "step", 100, 100, "step 2", "\"step\":2") "," SPAN(0, "step", 200, 100, "step 3", "\"step\":3")
#define OP(ts, dur, phase) SPAN(2, "op", ts, dur, "x", "\"moment\":1,\"phase\":\"" phase "\",\"step\":2")
#define WAIT(ts, dur, link) SPAN(3, "wait", ts, dur, "wait for MOMENTUM 0", "\"chunk\":4,\"link\":\"" link "\"")
#define COPY(tid, ts, dur) SPAN(tid, "copy", ts, dur, "MOMENTUM 0", COPY_ARGS)

static ps_figures *make(const char *text, ps_report_profile **p)
{
    ps_figures *f = NULL;
    assert_int_equal(read_text(text, p), PS_OK);
    assert_int_equal(ps_figures_create(*p, &f), PS_OK);
    return f;
}

static void drop(ps_figures *f, ps_report_profile *p)
{
    ps_figures_destroy(f);
    ps_report_profile_destroy(p);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void test_chunks(void **state)
{
    (void)state;
    ps_report_profile *p;
    /* chunk 0: there before the steps, also on disk, released, back at the end; 6: never in the steps */
    ps_figures *f = make(
        PROFILE(STEPS "," CHANGE(0, "place", 0, "device") "," CHANGE(150, "place", 0, "disk") "," CHANGE(
            180, "leave", 0,
            "device") "," CHANGE(190, "leave", 0,
                                 "disk") "," CHANGE(250, "place", 0,
                                                    "host") "," CHANGE(400, "leave", 0,
                                                                       "host") "," CHANGE(20, "place", 6,
                                                                                          "host") "," CHANGE(50,
                                                                                                             "leave", 6,
                                                                                                             "host")),
        &p);
    assert_int_equal(f->begin_ns, 100000);
    assert_int_equal(f->end_ns, 300000);
    static const ps_figure_stay want[] = {
        {0, 100000, 150000, 1}, {0, 150000, 180000, 1 | 4}, {0, 180000, 190000, 4}, {0, 250000, 300000, 2}};
    assert_int_equal(f->n_stays, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(f->stays[i].chunk, want[i].chunk);
        assert_int_equal(f->stays[i].begin_ns, want[i].begin_ns);
        assert_int_equal(f->stays[i].end_ns, want[i].end_ns);
        assert_int_equal(f->stays[i].tiers, want[i].tiers);
    }
    /* by list, then by index */
    static const int rows[] = {0, 1, 2, 3};
    assert_memory_equal(f->rows, rows, sizeof rows);
    drop(f, p);
}

static void test_overlapping_copies(void **state)
{
    (void)state;
    ps_report_profile *p;
    ps_figures *f = make(PROFILE(STEPS "," COPY(6, 110, 20) "," COPY(6, 115, 30) "," COPY(6, 120, 5) "," COPY(
                             6, 130, 10) "," COPY(7, 110, 20)),
                         &p);
    int slots[4], n = 0;
    for (int i = 0; i < p->n_spans; i++)
        if (p->spans[i].lane == PS_REPORT_DISK_READ) slots[n++] = f->slots[i];
    static const int want[] = {0, 1, 2, 0};
    assert_int_equal(n, 4);
    assert_memory_equal(slots, want, sizeof want);
    assert_int_equal(f->n_slots[PS_REPORT_DISK_READ], 3);
    assert_int_equal(f->n_slots[PS_REPORT_DISK_WRITE], 1);
    assert_int_equal(f->n_slots[PS_REPORT_HOST_TO_DEVICE], 1);
    drop(f, p);
}

static void near(double a, double b)
{
    if (fabs(a - b) > 1e-12) fail_msg("%.12g is not %.12g", a, b);
}

static void test_parts_sum_up_to_the_step(void **state)
{
    (void)state;
    ps_report_profile *p;
    /* the first begins before the steps, the last ends after them, a wait overlaps an operator; one spans both */
    ps_figures *f = make(
        PROFILE(STEPS "," OP(80, 30, "adam") "," OP(120, 20, "forward") "," WAIT(130, 30, "disk read") "," OP(
            190, 20, "backward") "," WAIT(240, 10, "disk write") "," OP(290, 50, "forward") "," OP(400, 50, "forward")),
        &p);
    assert_int_equal(f->n_steps, 2);
    near(f->parts.step_seconds, 100e-6);
    near(f->parts.compute_seconds[PS_REPORT_UPDATE], 5e-6);
    near(f->parts.compute_seconds[PS_REPORT_FORWARD], 15e-6);
    near(f->parts.compute_seconds[PS_REPORT_BACKWARD], 10e-6);
    near(f->parts.wait_seconds[PS_REPORT_DISK_READ], 10e-6);
    near(f->parts.wait_seconds[PS_REPORT_DISK_WRITE], 5e-6);
    near(f->parts.rest_seconds, 55e-6);
    drop(f, p);
}

static void test_without_steps(void **state)
{
    (void)state;
    ps_report_profile *p;
    ps_figures *f = make(PROFILE(OP(80, 30, "adam")), &p);
    assert_int_equal(f->begin_ns, 80000);
    assert_int_equal(f->end_ns, 110000);
    near(f->parts.step_seconds, 0);
    drop(f, p);
    f = make(PROFILE(), &p);
    assert_true(f->end_ns > f->begin_ns);
    assert_int_equal(f->n_stays, 0);
    drop(f, p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_overlapping_copies),
        cmocka_unit_test(test_parts_sum_up_to_the_step),
        cmocka_unit_test(test_without_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
