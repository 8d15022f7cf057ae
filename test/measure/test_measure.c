/* Measuring: the arithmetic of samples, that every part gives sound figures and frees what it took, whatever
 * fails. No rate is compared with another or with a limit: this machine may be busy. */
#include "base/fault.h"
#include "base/machine.h"
#include "base/mem.h"
#include "train/measure/measure_impl.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "temp_folder.h"

typedef struct fixture {
    ps_measure_options options;
    ps_measure_report report;
    ps_measuring m;
} fixture;

static void begin(fixture *f, const char *disk_folder)
{
    *f = (fixture){.options = {.disk_folder = disk_folder,
                               .seconds = 1e-3,
                               .n_samples_least = 1,
                               .isa = ps_cpu_isa_detect(),
                               .n_threads = 2}};
    f->m = (ps_measuring){.options = &f->options, .report = &f->report, .slice_s = 1e-4};
    assert_int_equal(ps_measure_open_places(&f->m), PS_OK);
}

/* Everything that was taken has been freed. */
static void end(fixture *f)
{
    assert_int_equal(f->m.n_blocks, 0);
    assert_int_equal(ps_device_get_stats(f->m.device.memory).used_bytes, 0);
    ps_measure_close_places(&f->m);
}

static void samples_have_a_median_and_a_spread(void **state)
{
    (void)state;
    fixture f;
    ps_samples s;
    begin(&f, NULL);
    f.options.n_samples_least = 4;
    ps_samples_begin(&f.m, 0, &s);
    static const double values[] = {3, 1, 100, 2};
    for (size_t i = 0; i < PS_ARRAY_LEN(values); i++) {
        assert_true(ps_samples_want(&s));
        ps_samples_add(&s, values[i]);
    }
    assert_false(ps_samples_want(&s));
    assert_true(ps_measuring_report(&f.m, &s, "GB/s", "way %d", 7) == 2.5);
    assert_int_equal(f.report.n_figures, 1);
    assert_string_equal(f.report.figures[0].what, "way 7");
    assert_true(f.report.figures[0].least == 1 && f.report.figures[0].most == 100 && f.report.figures[0].n == 4);
    s.n = 3;
    assert_true(ps_samples_median(&s) == 2);
    ps_samples_begin(&f.m, 1e12, &s); /* time enough: as many as there is room for */
    for (int i = 0; i < PS_SAMPLES_MAX; i++) {
        assert_true(ps_samples_want(&s));
        ps_samples_add(&s, i);
    }
    assert_false(ps_samples_want(&s));
    assert_true(ps_measured(123456789) == 123500000 && ps_measured(0.123449) == 0.1234 && ps_measured(0) == 0);
    end(&f);
}

/* With memory and latency that cost nothing, rate times seconds is the arithmetic of the block: its products are 3 x 2
 * x rows x 12 C^2, of which 8 of 36 have gelu after them, and those of the loss 4 x 2 x rows x C V; attention and the
 * rest add a little. */
static void assert_close(double a, double b)
{
    if (fabs(a - b) > 1e-3 * fabs(b)) fail_msg("%g is not %g", a, b);
}

static void the_block_counts_the_products_of_a_transformer(void **state)
{
    (void)state;
    const double rows = 512, C = 512, V = 4096, gemms = 28 * 2 * rows * C * C,
                 with_gelu = 8 * 2 * rows * C * C + (20 + 30) * rows * 4 * C;
    const double scores = 3.5 * 8 * 2 * 256 * 256 / 2; /* forward, and five products of scores for two backward */
    for (ps_dtype t = 0; t < PS_DTYPE_F16; t++) {
        fixture f;
        double reached = 0;
        begin(&f, NULL);
        f.report.hardware.device.memory_bytes_per_s = 1e15;
        assert_int_equal(ps_measure_block(&f.m, t, 1e15, &reached), PS_OK);
        /* the whole; norms, products, with gelu, attention, loss, of which the least times count as parts of it */
        const ps_measure_figure *of = f.report.figures;
        const double whole_s = of[0].median * 1e-3;
        const double least = of[1].least + of[2].least + of[3].least + of[4].least + of[5].least;
        assert_close(reached * whole_s * of[2].least / least, gemms);
        /* what is left of the others' times is of scores and logits */
        const ps_hardware_device *d = &f.report.hardware.device;
        if (d->score_ns > 0)
            assert_close(scores * (d->score_ns * 1e-9 + 4 * 64 / reached), whole_s * of[4].least / least);
        if (d->gelu_ns > 0)
            assert_close(2 * rows * 4 * C * d->gelu_ns * 1e-9 + with_gelu / reached, whole_s * of[3].least / least);
        if (d->logit_ns > 0)
            assert_close(2 * rows * V * d->logit_ns * 1e-9 + 4 * 2 * rows * C * V / reached,
                         whole_s * of[5].least / least);
        assert_true(d->stream_fraction > 0 && d->stream_fraction <= 1);
        f.report.hardware.device.memory_bytes_per_s = 1; /* traffic explains all: no rate is fast enough */
        assert_int_equal(ps_measure_block(&f.m, t, 1e9, &reached), PS_OK);
        assert_true(fabs(reached - 4e9) < 1);
        end(&f);
    }
}

/* What else the machine does has no part in it: processor time, threads and cores are all it knows. */
static void transfers_cost_the_cores_that_they_take(void **state)
{
    (void)state;
    assert_close(ps_measure_interference(0.5, 2, 2), 0.25);
    assert_close(ps_measure_interference(1, 2, 2), 0.5);
    assert_close(ps_measure_interference(0.08, 8, 8), 0.01);
    assert_true(ps_measure_interference(0.5, 1, 2) == 0); /* a core is free */
    assert_close(ps_measure_interference(1.5, 1, 2), 0.5);
    assert_true(ps_measure_interference(3, 2, 2) == 1);
    assert_true(ps_measure_interference(0, 2, 2) == 0);
}

static void a_busy_machine_is_told_from_a_quiet_one(void **state)
{
    (void)state;
    assert_false(ps_measure_is_busy(1.1, 1.95, 1, 2, 2));
    assert_true(ps_measure_is_busy(1.1, 1.5, 1, 2, 2));  /* others took a quarter */
    assert_true(ps_measure_is_busy(1.5, 1.95, 1, 2, 2)); /* a moment was much faster */
    assert_false(ps_measure_is_busy(1, 0.97, 1, 1, 2));  /* a core was not asked for */
    assert_false(ps_measure_is_busy(1, 0.97, 1, 2, 1));  /* or is not there */
    assert_false(ps_measure_is_busy(1, 0, 1, 0, 2));     /* a GPU computes */
    fixture f;
    begin(&f, NULL);
    ps_measuring_spread(&f.m, 3, 2);
    ps_measuring_spread(&f.m, 5, 6);
    assert_close(f.m.spread, 1.5);
    end(&f);
}

/* A quarter of what is available, and no more than it takes to measure well. */
static void little_memory_is_enough(void **state)
{
    (void)state;
    fixture f;
    int64_t bytes;
    begin(&f, NULL);
    ps_device_destroy(f.m.device.memory);
    assert_int_equal(ps_measure_room(64 * PS_GIB, &bytes, &f.m.sizes), PS_OK);
    assert_int_equal(bytes, 256 * PS_MIB);
    assert_ptr_equal(f.m.sizes, &ps_measure_sizes_processor);
    assert_int_equal(ps_measure_room(383 * PS_MIB, &bytes, &f.m.sizes), PS_ENOMEM_DEV);
    assert_int_equal(ps_measure_room(384 * PS_MIB, &bytes, &f.m.sizes), PS_OK);
    assert_int_equal(bytes, 96 * PS_MIB);
    assert_int_equal(ps_device_create(&ps_device_cpu_ops, "test", bytes, &f.m.device.memory), PS_OK);
    f.m.host = f.m.device;
    const temp_folder folder = temp_folder_make();
    f.options.disk_folder = folder.path;
    if (ps_measure_memory(&f.m) != PS_OK) fail_msg("%s", ps_last_error());
    assert_int_equal(ps_measure_gemms(&f.m), PS_OK);
    assert_int_equal(ps_measure_link(&f.m), PS_OK);
    assert_int_equal(ps_measure_disk(&f.m), PS_OK);
    end(&f);
    temp_folder_remove(&folder);
}

static void memory_is_described(void **state)
{
    (void)state;
    fixture f;
    begin(&f, NULL);
    assert_int_equal(ps_measure_memory(&f.m), PS_OK);
    const ps_hardware *hw = &f.report.hardware;
    assert_true(hw->device.memory_bytes_per_s > 1e6 && hw->device.op_latency_ns > 0);
    assert_true(hw->host.memory_bytes_per_s == hw->device.memory_bytes_per_s);
    assert_true(hw->host.adam_fraction > 0 && hw->host.adam_fraction <= 1);
    assert_true(hw->host.adam_compact_fraction > 0 && hw->host.adam_compact_fraction <= 1);
    assert_int_equal(f.report.n_figures, 4);
    end(&f);
}

static void the_link_is_described_and_failing_copies_are_reported(void **state)
{
    (void)state;
    static const int nth[] = {0, 10, 25};
    fixture f;
    for (size_t i = 0; i < PS_ARRAY_LEN(nth); i++) {
        begin(&f, NULL);
        ps_fault_arm(PS_FAULT_COPY, nth[i], false);
        const ps_status st = ps_measure_link(&f.m);
        assert_true(ps_fault_has_struck(PS_FAULT_COPY));
        ps_fault_arm(PS_FAULT_COPY, -1, false);
        assert_int_not_equal(st, PS_OK);
        end(&f);
    }
    begin(&f, NULL);
    assert_int_equal(ps_measure_link(&f.m), PS_OK);
    const ps_hardware_link *l = &f.report.hardware.link;
    assert_true(l->to_device_bytes_per_s > 1e6 && l->to_host_bytes_per_s > 1e6 && l->latency_ns > 0);
    assert_true(l->compute_interference >= 0 && l->compute_interference <= 1 && l->shared_by == 1);
    assert_int_equal(f.report.n_figures, 5);
    end(&f);
}

static void the_disk_is_described_and_failing_transfers_are_reported(void **state)
{
    (void)state;
    static const int nth[] = {0, 20};
    fixture f;
    const temp_folder folder = temp_folder_make();
    for (size_t i = 0; i < PS_ARRAY_LEN(nth); i++) {
        for (ps_fault_kind kind = PS_FAULT_READ; kind <= PS_FAULT_WRITE; kind++) {
            begin(&f, folder.path);
            ps_fault_arm(kind, nth[i], false);
            const ps_status st = ps_measure_disk(&f.m);
            assert_true(ps_fault_has_struck(kind));
            ps_fault_arm(kind, -1, false);
            assert_int_equal(st, PS_EIO);
            assert_false(f.report.hardware.disk.present);
            end(&f);
        }
    }
    begin(&f, folder.path);
    assert_int_equal(ps_measure_disk(&f.m), PS_OK);
    const ps_hardware_disk *d = &f.report.hardware.disk;
    assert_true(d->present && d->bytes > 0 && d->latency_ns > 0);
    assert_true(d->read_bytes_per_s > 1e5 && d->write_bytes_per_s > 1e5);
    assert_true(d->compute_interference >= 0 && d->compute_interference <= 1);
    assert_non_null(strstr(d->source, folder.path));
    end(&f);
    temp_folder_remove(&folder);
}

static void memory_that_cannot_be_had_is_reported(void **state)
{
    (void)state;
    const int64_t live = ps_mem_live_bytes();
    const ps_measure_options options = {
        .seconds = 1e-3, .n_samples_least = 1, .isa = ps_cpu_isa_detect(), .n_threads = 2};
    for (int nth = 0; nth < 6; nth++) {
        ps_measure_report report;
        ps_fault_arm(PS_FAULT_ALLOC, nth, true);
        const ps_status st = ps_measure_machine(&options, &report);
        ps_fault_arm(PS_FAULT_ALLOC, -1, false);
        assert_int_not_equal(st, PS_OK);
        assert_int_equal(ps_mem_live_bytes(), live);
    }
    ps_measure_report report;
    const ps_measure_options absent = {.disk_folder = "/dev/null/folder",
                                       .seconds = 1e-3,
                                       .n_samples_least = 1,
                                       .isa = ps_cpu_isa_detect(),
                                       .n_threads = 2};
    assert_int_equal(ps_measure_machine(&absent, &report), PS_EIO);
    assert_int_equal(report.n_figures, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_have_a_median_and_a_spread),
        cmocka_unit_test(the_block_counts_the_products_of_a_transformer),
        cmocka_unit_test(transfers_cost_the_cores_that_they_take),
        cmocka_unit_test(a_busy_machine_is_told_from_a_quiet_one),
        cmocka_unit_test(little_memory_is_enough),
        cmocka_unit_test(memory_is_described),
        cmocka_unit_test(the_link_is_described_and_failing_copies_are_reported),
        cmocka_unit_test(the_disk_is_described_and_failing_transfers_are_reported),
        cmocka_unit_test(memory_that_cannot_be_had_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
