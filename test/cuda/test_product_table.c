/* test_product_table.c - tables of algorithms: what is written is read, and nothing else is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "assert_status.h"
#include "base/fault.h"
#include "base/mem.h"
#include "cuda/product_table.h"

static ps_cuda_choice choice(int64_t m)
{
    ps_cuda_choice c = {.shape = {.m = m,
                                  .n = 24,
                                  .k = 5,
                                  .y_stride = 24,
                                  .a_stride = m + 3,
                                  .b_stride = 32,
                                  .dtype = PS_DTYPE_BF16,
                                  .y_dtype = PS_DTYPE_F32,
                                  .is_a_transposed = true,
                                  .has_bias = m % 2 == 0,
                                  .accumulates = m % 2 == 1,
                                  .a_align = 16},
                        .place = (int32_t)m};
    if (m % 4 == 0) c.shape.has_addend = true;
    if (m % 4 == 3) c.shape.y_dtype = PS_DTYPE_BF16, c.shape.accumulates = false, c.shape.has_gelu_x = true;
    for (uint64_t i = 0; i < PS_CUDA_ALGORITHM_WORDS; i++) c.algorithm[i] = UINT64_C(0xfedcba9876543210) * (i + 1);
    return c;
}

static ps_cuda_product_table table(int n)
{
    ps_cuda_product_table t = {.site = {.gpu = "NVIDIA \"H100\"",
                                        .processors = 132,
                                        .driver_version = 13000,
                                        .library_version = 130100,
                                        .workspace_bytes = 33554688}};
    for (int i = 0; i < n; i++) {
        const ps_cuda_choice c = choice(i + 1);
        assert_ok(ps_cuda_product_table_put(&t, &c));
    }
    return t;
}

static void test_there_and_back(void **state)
{
    (void)state;
    for (int n = 0; n < 20; n += 7) {
        ps_cuda_product_table a = table(n), b;
        char *text;
        assert_ok(ps_cuda_product_table_render(&a, &text));
        assert_ok(ps_cuda_product_table_parse(text, (int64_t)strlen(text), "text", &b));
        assert_true(ps_cuda_site_is_same(&a.site, &b.site));
        assert_int_equal(b.n, n);
        if (n > 0) assert_memory_equal(a.choices, b.choices, (size_t)n * sizeof *a.choices);
        ps_mem_free(text);
        ps_cuda_product_table_deinit(&a);
        ps_cuda_product_table_deinit(&b);
    }
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void test_finding(void **state)
{
    (void)state;
    ps_cuda_product_table t = table(9);
    ps_cuda_choice c = choice(4);
    assert_ptr_equal(ps_cuda_product_table_find(&t, &c.shape), &t.choices[3]);
    c.place = 7;
    assert_ok(ps_cuda_product_table_put(&t, &c));
    assert_int_equal(t.n, 9);
    assert_int_equal(t.choices[3].place, 7);
    c.shape.y_stride++;
    assert_null(ps_cuda_product_table_find(&t, &c.shape));
    ps_cuda_product_table_deinit(&t);
}

static void test_sites(void **state)
{
    (void)state;
    const ps_cuda_product_table t = table(0);
    for (int i = 0; i < 5; i++) {
        ps_cuda_site other = t.site;
        other.gpu[3] = i == 0 ? 'x' : other.gpu[3];
        other.processors += i == 1;
        other.driver_version += i == 2;
        other.library_version += i == 3;
        other.workspace_bytes += i == 4;
        assert_false(ps_cuda_site_is_same(&t.site, &other));
    }
}

/* The text of table(2) in which `was` is `is`, once. */
static char *changed(const char *was, const char *is)
{
    ps_cuda_product_table t = table(2);
    char *text;
    assert_ok(ps_cuda_product_table_render(&t, &text));
    char *const at = strstr(text, was);
    if (at == NULL) fail_msg("no %s in %s", was, text);
    char *const out = malloc(strlen(text) + strlen(is) + 1);
    sprintf(out, "%.*s%s%s", (int)(at - text), text, is, at + strlen(was));
    ps_mem_free(text);
    ps_cuda_product_table_deinit(&t);
    return out;
}

static void test_what_is_none(void **state)
{
    (void)state;
    static const struct {
        const char *was, *is, *message;
    } wrong[] = {
        {"{", "", "file: line 2"},
        {"patrickstar products", "something", "file: \"format\" is missing or not \"patrickstar products\""},
        {"\"version\": 2", "\"version\": 3", "\"version\" is missing or not an integer from 1 to 2"},
        {"\"gpu\"", "\"cpu\"", "\"gpu\" is missing"},
        {"\"products\"", "\"product\"", "\"products\" is missing or not an array"},
        {"\"m\": 1", "\"m\": 0", "\"products\"[0]: \"m\" is missing or not an integer from 1 to"},
        {"\"m\": 1", "\"m\": 1.5", "\"products\"[0]: \"m\""},
        {"\"m\": 2", "\"m\": 9223372036854775807", "\"products\"[1]: \"m\""},
        {"\"y_stride\": 24", "\"y_stride\": 23", "\"y_stride\" is missing or not an integer from 24"},
        {"\"a_stride\": 4", "\"a_stride\": 0", "\"a_stride\""},
        {"\"b_stride\": 32", "\"b_stride\": 23", "\"b_stride\""},
        {"\"type\": \"bf16\"", "\"type\": \"f64\"", "\"type\" is missing or not a number format"},
        {"\"bias\": false", "\"bias\": 0", "\"bias\" is missing or not true or false"},
        {"\"addend\": false", "\"addend\": 0", "\"addend\" is missing or not true or false"},
        {"\"addend\": false", "\"addend\": true", "\"addend\" is missing or not false, as \"accumulates\""},
        {"\"gelu_derivative\": false", "\"gelu_derivative\": true", "\"gelu_derivative\" is missing or not false"},
        {"\"a_align\": 16", "\"a_align\": 24", "\"a_align\" is missing or not a power of 2"},
        {"\"a_align\": 16", "\"a_align\": 128", "\"a_align\""},
        {"\"place\": 1", "\"place\": -1", "\"place\""},
        {"fedcba9876543210", "fedcba987654321", "\"algorithm\" is missing or not 128 hexadecimal digits"},
        {"fedcba9876543210", "Fedcba9876543210", "\"algorithm\""},
        {"fedcba9876543210", "-0x0000000000000", "\"algorithm\""},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(wrong); i++) {
        ps_cuda_product_table t;
        char *text = changed(wrong[i].was, wrong[i].is);
        assert_fails(ps_cuda_product_table_parse(text, (int64_t)strlen(text), "file", &t), PS_EFORMAT,
                     wrong[i].message);
        assert_null(t.choices);
        assert_int_equal(t.n, 0);
        free(text);
    }
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* As it was before something could follow a product. */
static void test_first_version(void **state)
{
    (void)state;
    static const char *const words[] = {"\"version\": 2", "\"addend\": false,", "\"gelu_derivative\": false,",
                                        "\"addend\": false,", "\"gelu_derivative\": false,"};
    ps_cuda_product_table a = table(2), b;
    char *text;
    assert_ok(ps_cuda_product_table_render(&a, &text));
    for (size_t i = 0; i < PS_ARRAY_LEN(words); i++) {
        char *const at = strstr(text, words[i]);
        assert_non_null(at);
        memset(at, ' ', strlen(words[i]));
        if (i == 0) memcpy(at, "\"version\": 1", strlen(words[0]));
    }
    assert_ok(ps_cuda_product_table_parse(text, (int64_t)strlen(text), "text", &b));
    assert_int_equal(b.n, 2);
    assert_memory_equal(a.choices, b.choices, 2 * sizeof *a.choices);
    ps_mem_free(text);
    ps_cuda_product_table_deinit(&a);
    ps_cuda_product_table_deinit(&b);
}

/* The same shape twice; more bytes or entries than any table has. */
static void test_too_much(void **state)
{
    (void)state;
    ps_cuda_product_table t;
    const ps_cuda_choice c = choice(1);
    ps_cuda_product_table two = {.choices = (ps_cuda_choice[]){c, c}, .n = 2};
    char *text;
    assert_ok(ps_cuda_product_table_render(&two, &text));
    assert_fails(ps_cuda_product_table_parse(text, (int64_t)strlen(text), "file", &t), PS_EFORMAT,
                 "\"products\"[1] is of a shape that was there before");
    assert_fails(ps_cuda_product_table_parse(text, PS_CUDA_PRODUCT_TABLE_BYTES_MAX + 1, "file", &t), PS_EFORMAT,
                 "more than a table of products has");
    ps_mem_free(text);
}

static void test_no_memory(void **state)
{
    (void)state;
    ps_cuda_product_table a = table(9), b;
    char *text;
    assert_ok(ps_cuda_product_table_render(&a, &text));
    for (int nth = 0;; nth++) {
        ps_fault_arm(PS_FAULT_ALLOC, nth, false);
        const ps_status st = ps_cuda_product_table_parse(text, (int64_t)strlen(text), "file", &b);
        ps_fault_arm(PS_FAULT_ALLOC, -1, false);
        if (st == PS_OK) {
            assert_true(nth > 0);
            break;
        }
        assert_int_equal(st, PS_ENOMEM_HOST);
        assert_null(b.choices);
    }
    ps_mem_free(text);
    ps_cuda_product_table_deinit(&a);
    ps_cuda_product_table_deinit(&b);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back), cmocka_unit_test(test_finding),  cmocka_unit_test(test_sites),
        cmocka_unit_test(test_what_is_none),   cmocka_unit_test(test_too_much), cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_first_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
