/* test_cuda_open.c - what a budget "auto" is: what is left of a GPU when kernels and libraries are there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "assert_status.h"
#include "gpu/mock_gpu.h"

#define LIBRARY_BYTES (100 * PS_MIB)

static struct {
    int n_opened;
    ps_cuda_gemms gemms;
} library;

static void close_library(void *self)
{
    fake_take_memory(-LIBRARY_BYTES);
    library.gemms.destroy(self);
}

/* A library that takes memory of the GPU. */
static ps_status open_library(ps_gpu *gpu, ps_cuda_gemms *out)
{
    PS_TRY(fake_gpu_gemms(gpu, &library.gemms));
    library.n_opened++;
    fake_take_memory(LIBRARY_BYTES);
    *out = library.gemms;
    out->destroy = close_library;
    return PS_OK;
}

static ps_cuda_found found(int ordinal)
{
    ps_cuda_found f;
    assert_ok(ps_cuda_find(ordinal, PS_CUDA_ATTENTION_AUTO, &f));
    assert_int_equal(f.usable_bytes % f.page_bytes, 0);
    return f;
}

static void test_budget_auto_is_measured(void **state)
{
    (void)state;
    mock_gpu_begin(&(fake_options){.seed = 1, .total_bytes = 2 * PS_GIB, .n_devices = 2});
    const int64_t without = found(0).usable_bytes;
    assert_true(without > PS_GIB && without < 2 * PS_GIB);
    mock_gpu.parts.gemms = open_library;
    ps_cuda_use_parts(&mock_gpu.parts);
    library.n_opened = 0;
    assert_int_equal(found(0).usable_bytes, without - LIBRARY_BYTES);
    assert_int_equal(library.n_opened, 1);
    /* known from then on: only what others have is looked at */
    fake_take_memory(PS_GIB);
    assert_int_equal(found(2).usable_bytes, without - LIBRARY_BYTES - PS_GIB);
    assert_int_equal(library.n_opened, 1);
    fake_take_memory(-PS_GIB);
    assert_int_equal(found(1).usable_bytes, without - LIBRARY_BYTES);
    assert_int_equal(library.n_opened, 2);
    assert_true(mock_gpu_end());
}

static ps_status no_library(ps_gpu *gpu, ps_cuda_gemms *out)
{
    (void)gpu, (void)out;
    return PS_FAIL(PS_ENOSYS, "no library");
}

/* Whatever is missing is found before anything is begun, and again when it is asked again. */
static void test_what_is_missing_is_found(void **state)
{
    (void)state;
    ps_cuda_found f;
    mock_gpu_begin(&(fake_options){.seed = 1});
    mock_gpu.parts.gemms = no_library;
    for (int i = 0; i < 2; i++) assert_fails(ps_cuda_find(0, PS_CUDA_ATTENTION_AUTO, &f), PS_ENOSYS, "no library");
    mock_gpu.parts.gemms = fake_gpu_gemms;
    fake_fail("launch", 0, PS_CU_INVALID_VALUE);
    assert_fails(ps_cuda_find(0, PS_CUDA_ATTENTION_AUTO, &f), PS_EDEVICE, "matrix multiplication: CUBLAS");
    fake_take_memory(PS_GIB);
    assert_fails(ps_cuda_find(0, PS_CUDA_ATTENTION_AUTO, &f), PS_ENOMEM_DEV, "the rest belongs to other processes");
    fake_take_memory(-PS_GIB);
    assert_ok(ps_cuda_find(0, PS_CUDA_ATTENTION_AUTO, &f));
    assert_true(mock_gpu_end());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_budget_auto_is_measured),
        cmocka_unit_test(test_what_is_missing_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
