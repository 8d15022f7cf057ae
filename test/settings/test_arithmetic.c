/* test_arithmetic.c - what is reported of a run that resumes with another arithmetic. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "train/settings/arithmetic.h"

static void test_names(void **state)
{
    (void)state;
    static const struct {
        ps_settings settings;
        const char *kernels, *reductions;
    } cases[] = {{{.backend_kind = PS_BACKEND_CPU, .isa = PS_CPU_PORTABLE, .ranks.n = 1}, "cpu portable", ""},
                 {{.backend_kind = PS_BACKEND_CPU, .isa = PS_CPU_AVX2, .ranks.n = 1}, "cpu", ""},
                 {{.backend_kind = PS_BACKEND_CPU, .isa = PS_CPU_AVX512, .dtype = PS_DTYPE_BF16, .ranks.n = 2},
                  "cpu",
                  "ordered"},
                 {{.backend_kind = PS_BACKEND_REF, .ranks.n = 1}, "ref", ""},
                 {{.backend_kind = PS_BACKEND_CUDA, .ranks.n = 3, .nccl = {.is_used = true}}, "cuda", "ordered"}};
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        ps_arithmetic a;
        ps_arithmetic_of(&cases[i].settings, &a);
        assert_string_equal(a.kernels, cases[i].kernels);
        assert_string_equal(a.reductions, cases[i].reductions);
        assert_string_equal(a.attention, "");
    }
}

static void test_differences(void **state)
{
    (void)state;
    const ps_arithmetic gpu = {"cuda", "cuDNN 9.19.0", "nccl"}, own = {"cuda", "own kernels", "ordered"};
    const ps_arithmetic cpu = {"cpu", "", "ordered"}, unknown = {"", "", ""};
    char text[512] = "x";
    ps_arithmetic_compare(&gpu, &gpu, "a", text, sizeof text);
    assert_string_equal(text, "");
    ps_arithmetic_compare(&unknown, &gpu, "a", text, sizeof text);
    assert_string_equal(text, "");
    ps_arithmetic_compare(&cpu, &(ps_arithmetic){"cpu", "", ""}, "a", text, sizeof text); /* another number of ranks */
    assert_string_equal(text, "");
    ps_arithmetic_compare(&gpu, &own, "step-3", text, sizeof text);
    assert_string_equal(text,
                        "step-3 continues with other arithmetic (attention: own kernels instead of cuDNN 9.19.0, "
                        "reductions among ranks: ordered instead of nccl): bits may differ from a run that was not "
                        "interrupted");
    ps_arithmetic_compare(&own, &cpu, "a", text, sizeof text);
    assert_non_null(strstr(text, "(kernels: cpu instead of cuda)"));
    char few[16];
    ps_arithmetic_compare(&gpu, &own, "a", few, sizeof few);
    assert_int_equal(strlen(few), sizeof few - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names), cmocka_unit_test(test_differences)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
