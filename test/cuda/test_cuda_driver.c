/* test_cuda_driver.c - the table of the driver's functions: what it is filled from, and what is said when it cannot be.
 * Where the toolkit is, its header and its library for linking say whether names and numbers are right. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "cuda/fake_driver.h"
#include "device/cuda/look.h"

#define assert_fails(expr, status, text)                                                                               \
    do {                                                                                                               \
        assert_int_equal((expr), (status));                                                                            \
        if (strstr(ps_last_error(), (text)) == NULL) fail_msg("%s", ps_last_error());                                  \
    } while (0)

/* ---- against the toolkit ---- */

#if __has_include("/usr/local/cuda/include/cuda.h")
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include "/usr/local/cuda/include/cuda.h"
#pragma GCC diagnostic pop
#endif
#if defined(CUDA_VERSION) && CUDA_VERSION >= PS_CUDA_DRIVER_LEAST

/* The header has a function of this name, version and all. */
#define XX(is_needed, name, symbol, params) _Static_assert(sizeof(&symbol) == sizeof(void *), #symbol);
#include "device/cuda/driver.def"
#undef XX

#define SAME(ours, theirs) _Static_assert((long)(ours) == (long)(theirs), #ours)
SAME(PS_CU_SUCCESS, CUDA_SUCCESS);
SAME(PS_CU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME(PS_CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(PS_CU_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED);
SAME(PS_CU_DEINITIALIZED, CUDA_ERROR_DEINITIALIZED);
SAME(PS_CU_STUB_LIBRARY, CUDA_ERROR_STUB_LIBRARY);
SAME(PS_CU_NEWER_DRIVER, CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER);
SAME(PS_CU_DEVICE_UNAVAILABLE, CUDA_ERROR_DEVICE_UNAVAILABLE);
SAME(PS_CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(PS_CU_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
SAME(PS_CU_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
SAME(PS_CU_NO_BINARY_FOR_GPU, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME(PS_CU_ECC_UNCORRECTABLE, CUDA_ERROR_ECC_UNCORRECTABLE);
SAME(PS_CU_NVLINK_UNCORRECTABLE, CUDA_ERROR_NVLINK_UNCORRECTABLE);
SAME(PS_CU_CONTAINED, CUDA_ERROR_CONTAINED);
SAME(PS_CU_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
SAME(PS_CU_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(PS_CU_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS);
SAME(PS_CU_LAUNCH_TIMEOUT, CUDA_ERROR_LAUNCH_TIMEOUT);
SAME(PS_CU_CONTEXT_IS_DESTROYED, CUDA_ERROR_CONTEXT_IS_DESTROYED);
SAME(PS_CU_ASSERT, CUDA_ERROR_ASSERT);
SAME(PS_CU_HARDWARE_STACK_ERROR, CUDA_ERROR_HARDWARE_STACK_ERROR);
SAME(PS_CU_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED);
SAME(PS_CU_TENSOR_MEMORY_LEAK, CUDA_ERROR_TENSOR_MEMORY_LEAK);
SAME(PS_CU_NOT_PERMITTED, CUDA_ERROR_NOT_PERMITTED);
SAME(PS_CU_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
SAME(PS_CU_SYSTEM_NOT_READY, CUDA_ERROR_SYSTEM_NOT_READY);
SAME(PS_CU_DRIVER_MISMATCH, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
SAME(PS_CU_COMPAT_NOT_SUPPORTED, CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE);
SAME(PS_CU_EXTERNAL_DEVICE, CUDA_ERROR_EXTERNAL_DEVICE);
SAME(PS_CU_UNKNOWN, CUDA_ERROR_UNKNOWN);
SAME(PS_CU_DEVICE_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(PS_CU_DEVICE_COMPUTE_MODE, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);
SAME(PS_CU_DEVICE_UNIFIED_ADDRESSES, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
SAME(PS_CU_DEVICE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(PS_CU_DEVICE_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(PS_CU_DEVICE_SHARED_BYTES, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SAME(PS_CU_DEVICE_VIRTUAL_MEMORY, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
SAME(PS_CU_MODE_PROHIBITED, CU_COMPUTEMODE_PROHIBITED);
SAME(PS_CU_MODE_EXCLUSIVE, CU_COMPUTEMODE_EXCLUSIVE_PROCESS);
SAME(PS_CU_FUNCTION_SHARED_BYTES, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME(PS_CU_GRANULARITY_LEAST, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
SAME(PS_CU_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME(PS_CU_PAGE_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
SAME(PS_CU_ACCESS_READ_WRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME(PS_CU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(PS_CU_EVENT_BLOCKING, CU_EVENT_BLOCKING_SYNC);
SAME(PS_CU_EVENT_NO_TIME, CU_EVENT_DISABLE_TIMING);
SAME(PS_CU_HOST_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE);
SAME(PS_CU_HOST_PORTABLE, CU_MEMHOSTALLOC_PORTABLE);
SAME(PS_CU_HOST_MAPPED, CU_MEMHOSTALLOC_DEVICEMAP);
SAME(PS_CU_WAIT_GEQ, CU_STREAM_WAIT_VALUE_GEQ);
SAME(sizeof(ps_cu_address), sizeof(CUdeviceptr));
SAME(sizeof(ps_cu_page), sizeof(CUmemGenericAllocationHandle));
SAME(sizeof(ps_cu_device), sizeof(CUdevice));
SAME(sizeof(ps_cu_page_properties), sizeof(CUmemAllocationProp));
SAME(offsetof(ps_cu_page_properties, location), offsetof(CUmemAllocationProp, location));
SAME(offsetof(ps_cu_page_properties, compression), offsetof(CUmemAllocationProp, allocFlags));
SAME(sizeof(ps_cu_access), sizeof(CUmemAccessDesc));
SAME(offsetof(ps_cu_access, flags), offsetof(CUmemAccessDesc, flags));
#endif

static void test_toolkit_has_all_symbols(void **state)
{
    (void)state;
    static const char stub[] = "/usr/local/cuda/lib64/stubs/libcuda.so";
    ps_cuda_driver d;
    if (access(stub, R_OK) != 0) skip();
    if (ps_cuda_driver_take(stub, &d) != PS_OK) fail_msg("%s", ps_last_error());
#define XX(is_needed, name, symbol, params) assert_non_null(d.name);
#include "device/cuda/driver.def"
#undef XX
    assert_fails(ps_cuda_driver_start(&d), PS_ENOSYS, "made for linking only");
}

/* ---- what it says ---- */

static void test_no_library(void **state)
{
    (void)state;
    ps_cuda_driver d;
    assert_fails(ps_cuda_driver_take("libcuda_that_is_not.so.1", &d), PS_ENOSYS, "cannot load NVIDIA's driver");
    assert_non_null(strstr(ps_last_error(), "driver R580 or later"));
    assert_non_null(strstr(ps_last_error(), "--gpus all"));
    assert_fails(ps_cuda_driver_take("libm.so.6", &d), PS_ENOSYS, "libm.so.6 has no cuInit, cuDriverGetVersion");
    assert_non_null(strstr(ps_last_error(), "CUDA 13.0 or later"));
    assert_non_null(strstr(ps_last_error(), "and more"));
}

static void starts_with(fake_options o, const char *text)
{
    const ps_cuda_driver *d = fake_driver(&o);
    assert_fails(ps_cuda_driver_start(d), PS_ENOSYS, text);
    assert_null(strchr(ps_last_error(), '\n'));
    assert_true(fake_driver_end());
}

static void test_unfit_drivers(void **state)
{
    (void)state;
    unsetenv("CUDA_VISIBLE_DEVICES");
    starts_with((fake_options){.version = 12040}, "is for CUDA 12.4: CUDA 13.0 or later");
    starts_with((fake_options){.n_devices = -1}, "finds no GPU");
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    starts_with((fake_options){.n_devices = -1}, "CUDA_VISIBLE_DEVICES is \"\"; unset it");
    unsetenv("CUDA_VISIBLE_DEVICES");
    const ps_cuda_driver *d = fake_driver(&(fake_options){.seed = 1});
    assert_int_equal(ps_cuda_driver_start(d), PS_OK);
    fake_fail("init", 0, PS_CU_DRIVER_MISMATCH);
    assert_fails(ps_cuda_driver_start(d), PS_ENOSYS, "restart the machine");
    fake_fail("init", 0, PS_CU_UNKNOWN);
    assert_fails(ps_cuda_driver_start(d), PS_ENOSYS, "does nvidia-smi work?");
    assert_true(fake_driver_end());
}

/* What the user has set stays. */
static void test_connections(void **state)
{
    (void)state;
    const ps_cuda_driver *d = fake_driver(&(fake_options){.seed = 1});
    unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
    assert_int_equal(ps_cuda_driver_start(d), PS_OK);
    assert_string_equal(getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "32");
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "8", 1);
    assert_int_equal(ps_cuda_driver_start(d), PS_OK);
    assert_string_equal(getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "8");
    unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
    assert_true(fake_driver_end());
}

static void test_results(void **state)
{
    (void)state;
    char text[128];
    const ps_cuda_driver *d = fake_driver(&(fake_options){.seed = 1});
    ps_cu_describe(d, PS_CU_ILLEGAL_ADDRESS, text, sizeof text);
    assert_string_equal(text, "CUDA_ERROR_ILLEGAL_ADDRESS (result 700)");
    ps_cu_describe(d, 12345, text, sizeof text);
    assert_string_equal(text, "error 12345 of the driver");
    static const ps_cu_result fatal[] = {214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 999};
    static const ps_cu_result others[] = {0, 1, 2, 201, 400, 600, 701, 720, 800, 801, 900};
    for (size_t i = 0; i < PS_ARRAY_LEN(fatal); i++) assert_true(ps_cu_is_fatal(fatal[i]));
    for (size_t i = 0; i < PS_ARRAY_LEN(others); i++) assert_false(ps_cu_is_fatal(others[i]));
    assert_true(fake_driver_end());
}

/* ---- looking ---- */

static void write_file(const char *root, const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; *slash++ = '/') {
        *slash = '\0';
        (void)mkdir(full, 0777);
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void looks(const char *root, const ps_cuda_driver *d, bool expected, const char *text)
{
    char out[512];
    assert_int_equal(ps_cuda_look(root, d, out, sizeof out), expected);
    if (strstr(out, text) == NULL) fail_msg("%s", out);
}

static void test_looking(void **state)
{
    (void)state;
    char root[] = "/tmp/test_cuda_XXXXXX", remove[64];
    assert_non_null(mkdtemp(root));
    const ps_cuda_driver *d = fake_driver(&(fake_options){.n_devices = 2});
    looks(root, d, false, "no NVIDIA GPU found");
    write_file(root, "sys/bus/pci/devices/0000:00:01.0/vendor", "0x10de\n"); /* its sound */
    write_file(root, "sys/bus/pci/devices/0000:00:01.0/class", "0x040300\n");
    write_file(root, "sys/bus/pci/devices/0000:00:02.0/vendor", "0x8086\n");
    write_file(root, "sys/bus/pci/devices/0000:00:02.0/class", "0x030000\n");
    looks(root, d, false, "no NVIDIA GPU found");
    write_file(root, "sys/bus/pci/devices/0000:00:03.0/vendor", "0x10de\n");
    write_file(root, "sys/bus/pci/devices/0000:00:03.0/class", "0x030200\n");
    looks(root, d, true, "2, Fake 0 (compute capability 9.0), driver for CUDA 13.0");
    snprintf(remove, sizeof remove, "rm -r %s/sys", root);
    assert_int_equal(system(remove), 0);
    looks(root, d, false, "no NVIDIA GPU found");
    write_file(root, "dev/nvidiactl", ""); /* of a container without /sys */
    looks(root, d, true, "2, Fake 0");
    snprintf(remove, sizeof remove, "rm -r %s/dev", root);
    assert_int_equal(system(remove), 0);
    looks(root, d, false, "no NVIDIA GPU found");
    write_file(root, "usr/lib/wsl/lib/libcuda.so.1", ""); /* of Windows */
    looks(root, d, true, "2, Fake 0");
    fake_fail("init", 0, PS_CU_DRIVER_MISMATCH);
    looks(root, d, false, "NVIDIA GPU not usable: NVIDIA's driver does not fit");
    fake_fail("device_name", 0, PS_CU_UNKNOWN);
    looks(root, d, false, "does not report its devices");
    assert_true(fake_driver_end());
    snprintf(remove, sizeof remove, "rm -r %s", root);
    assert_int_equal(system(remove), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_toolkit_has_all_symbols),
        cmocka_unit_test(test_no_library),
        cmocka_unit_test(test_unfit_drivers),
        cmocka_unit_test(test_connections),
        cmocka_unit_test(test_results),
        cmocka_unit_test(test_looking),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
