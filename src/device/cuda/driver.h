/* driver.h - NVIDIA's driver as a table of functions, loaded from libcuda.so.1 at run time: building needs no part of
 * CUDA, and tests supply another table.
 *
 * Types and numbers are those of the driver's binary interface, which does not change; where cuda.h is found a test
 * compares them. */
#ifndef PS_CUDA_DRIVER_H
#define PS_CUDA_DRIVER_H

#include "base/base.h"
#include "base/status.h"

typedef int ps_cu_result; /* 0: success */
typedef int ps_cu_device;
typedef unsigned long long ps_cu_address; /* of memory of the device, and of page-locked memory */
typedef unsigned long long ps_cu_page;    /* memory without an address */
typedef struct ps_cu_context_state *ps_cu_context;
typedef struct ps_cu_stream_state *ps_cu_stream;
typedef struct ps_cu_event_state *ps_cu_event;
typedef struct ps_cu_module_state *ps_cu_module;
typedef struct ps_cu_function_state *ps_cu_function;

/* Results that the code distinguishes. */
enum {
    PS_CU_SUCCESS = 0,
    PS_CU_INVALID_VALUE = 1,
    PS_CU_OUT_OF_MEMORY = 2,
    PS_CU_NOT_INITIALIZED = 3,
    PS_CU_DEINITIALIZED = 4,
    PS_CU_STUB_LIBRARY = 34,
    PS_CU_NEWER_DRIVER = 36,
    PS_CU_DEVICE_UNAVAILABLE = 46,
    PS_CU_NO_DEVICE = 100,
    PS_CU_INVALID_DEVICE = 101,
    PS_CU_INVALID_CONTEXT = 201,
    PS_CU_NO_BINARY_FOR_GPU = 209,
    PS_CU_ECC_UNCORRECTABLE = 214,
    PS_CU_NVLINK_UNCORRECTABLE = 220,
    PS_CU_CONTAINED = 226,
    PS_CU_NOT_FOUND = 500,
    PS_CU_NOT_READY = 600,
    PS_CU_ILLEGAL_ADDRESS = 700,
    PS_CU_LAUNCH_TIMEOUT = 702,
    PS_CU_CONTEXT_IS_DESTROYED = 709,
    PS_CU_ASSERT = 710,
    PS_CU_HARDWARE_STACK_ERROR = 714,
    PS_CU_LAUNCH_FAILED = 719,
    PS_CU_TENSOR_MEMORY_LEAK = 721,
    PS_CU_NOT_PERMITTED = 800,
    PS_CU_NOT_SUPPORTED = 801,
    PS_CU_SYSTEM_NOT_READY = 802,
    PS_CU_DRIVER_MISMATCH = 803,
    PS_CU_COMPAT_NOT_SUPPORTED = 804,
    PS_CU_EXTERNAL_DEVICE = 911,
    PS_CU_UNKNOWN = 999,
};

typedef enum ps_cu_device_attribute {
    PS_CU_DEVICE_MULTIPROCESSORS = 16,
    PS_CU_DEVICE_COMPUTE_MODE = 20,
    PS_CU_DEVICE_UNIFIED_ADDRESSES = 41,
    PS_CU_DEVICE_CAPABILITY_MAJOR = 75,
    PS_CU_DEVICE_CAPABILITY_MINOR = 76,
    PS_CU_DEVICE_SHARED_BYTES = 97, /* of a block, at most */
    PS_CU_DEVICE_VIRTUAL_MEMORY = 102,
} ps_cu_device_attribute;

enum { PS_CU_MODE_PROHIBITED = 2, PS_CU_MODE_EXCLUSIVE = 3 };

typedef enum ps_cu_function_attribute { PS_CU_FUNCTION_SHARED_BYTES = 8 } ps_cu_function_attribute;

typedef enum ps_cu_granularity { PS_CU_GRANULARITY_LEAST = 0 } ps_cu_granularity;

enum { PS_CU_LOCATION_DEVICE = 1, PS_CU_PAGE_PINNED = 1, PS_CU_ACCESS_READ_WRITE = 3 };

typedef struct ps_cu_location {
    int type, id;
} ps_cu_location;

typedef struct ps_cu_page_properties {
    int type, handle_types;
    ps_cu_location location;
    void *unused;
    unsigned char compression, rdma;
    unsigned short usage;
    unsigned char reserved[4];
} ps_cu_page_properties;

typedef struct ps_cu_access {
    ps_cu_location location;
    int flags;
} ps_cu_access;

/* flags */
enum {
    PS_CU_STREAM_NON_BLOCKING = 1,
    PS_CU_EVENT_DEFAULT = 0,
    PS_CU_EVENT_BLOCKING = 1, /* a waiting thread sleeps instead of spinning */
    PS_CU_EVENT_NO_TIME = 2,
    PS_CU_HOST_PORTABLE = 1,
    PS_CU_HOST_MAPPED = 2,
    PS_CU_WAIT_GEQ = 0, /* (int32_t)(*p - value) >= 0 */
};

typedef struct ps_cuda_driver {
#define XX(is_needed, name, symbol, params) ps_cu_result(*name) params;
#include "device/cuda/driver.def"
#undef XX
} ps_cuda_driver;

/* The lowest version of the driver (1000 * major + 10 * minor of its CUDA) that can run code compiled by nvcc 13. */
#define PS_CUDA_DRIVER_LEAST 13000

/* The driver of this system, loaded once for the process, kept, and initialised (cuInit). Sets the environment's
 * CUDA_DEVICE_MAX_CONNECTIONS to 32 first, unless it is set: a program whose other threads read the environment sets it
 * before this call. PS_ENOSYS, in one line that says what to do, when it is missing or too old, or finds no device. */
PS_NODISCARD ps_status ps_cuda_driver_load(const ps_cuda_driver **out);
/* The same from a library of another name, into *out; not kept, and no function is called. */
PS_NODISCARD ps_status ps_cuda_driver_take(const char *library, ps_cuda_driver *out);
/* Initialises the driver, and checks that it is usable: the errors of ps_cuda_driver_load. */
PS_NODISCARD ps_status ps_cuda_driver_start(const ps_cuda_driver *d);

/* After these results the context is unusable: all work in flight is lost. */
bool ps_cu_is_fatal(ps_cu_result r);
/* The driver's name of the result, and its text: "CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was ...)". */
void ps_cu_describe(const ps_cuda_driver *d, ps_cu_result r, char *out, size_t bytes);

#endif
