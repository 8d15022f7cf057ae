/* test_cuda_plans.c - the real cuDNN, where it is installed, plans attention for GPUs that are described: that it takes our
 * graphs, which GPU has a plan for which shape, and that scratch is what cudnn_graph.h guesses. Without a GPU: a driver in
 * which there is none stands in (no_driver.c). Kernels are compiled and not run. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "assert_status.h"
#include "device/cuda/cudnn_graph.h"

/* As NVIDIA's data sheets and the CUDA programming guide (table of compute capabilities) have them. */
typedef struct described_gpu {
    const char *name;
    int capability, processors, clock_mhz, memory_mhz;
    int64_t l2_bytes, shared_bytes, memory_bytes;
    int threads, blocks; /* of a processor */
} described_gpu;

enum { H100, H200, A100, RTX_4090, GPUS };

static const described_gpu gpus[GPUS] = {
    [H100] = {"NVIDIA H100 80GB HBM3", 90, 132, 1980, 2619, 50 * PS_MIB, 227 * PS_KIB, 80 * PS_GIB, 2048, 32},
    [H200] = {"NVIDIA H200", 90, 132, 1980, 3201, 60 * PS_MIB, 227 * PS_KIB, 140 * PS_GIB, 2048, 32},
    [A100] = {"NVIDIA A100-SXM4-80GB", 80, 108, 1410, 1593, 40 * PS_MIB, 163 * PS_KIB, 80 * PS_GIB, 2048, 32},
    [RTX_4090] = {"NVIDIA GeForce RTX 4090", 89, 128, 2520, 10501, 72 * PS_MIB, 99 * PS_KIB, 24 * PS_GIB, 1536, 24},
};

static ps_dnn_descriptor describe(const ps_cudnn *dnn, const described_gpu *g)
{
    char json[1024];
    ps_dnn_descriptor d;
    const int n = snprintf(
        json, sizeof json,
        "{\"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64], \"regsPerBlock\": 65536, "
        "\"multiProcessorCount\": %d, \"smClockRateKHz\": %d, \"memClockRateKHz\": %d, \"l2CacheSize\": %lld, "
        "\"warpSize\": 32, \"maxSharedMemoryPerBlock\": 49152, \"maxSharedMemoryPerBlockOptin\": %lld, "
        "\"reservedSharedMemoryPerBlock\": 1024, \"maxRegistersPerSM\": 65536, \"pciDeviceId\": 0, \"maxCtasPerSM\": "
        "%d, "
        "\"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": %d, \"isTccDriver\": 0, \"supportCoopLaunch\": 1, "
        "\"deviceVer\": %d, \"driverVer\": 13000, \"cudaDeviceId\": 0, \"totalGlobalMem\": %lld, \"deviceName\": "
        "\"%s\"}",
        g->processors, 1000 * g->clock_mhz, 1000 * g->memory_mhz, (long long)g->l2_bytes, (long long)g->shared_bytes,
        g->blocks, g->threads, 10 * g->capability, (long long)g->memory_bytes, g->name);
    assert_true(n > 0 && n < (int)sizeof json);
    assert_int_equal(dnn->descriptor_create(PS_DNN_DEVICE, &d), PS_DNN_SUCCESS);
    assert_int_equal(dnn->set(d, PS_DNN_DEVICE_JSON, PS_DNN_TYPE_CHAR, n, json), PS_DNN_SUCCESS);
    assert_int_equal(dnn->finalize(d), PS_DNN_SUCCESS);
    return d;
}

typedef struct shape {
    const char *name;
    int64_t B, T, H, KV, D, window; /* 0: none */
    bool causal;
    ps_dtype dtype;
    bool forward_only;
} shape;

static const shape gpt2 = {"GPT-2", 16, 1024, 12, 12, 64, 0, true, PS_DTYPE_BF16, false};
static const shape llama = {"Llama, grouped heads", 1, 4096, 16, 4, 128, 0, true, PS_DTYPE_BF16, false};
static const shape wide = {"heads of 256", 2, 100, 4, 4, 256, 0, true, PS_DTYPE_BF16, true};
static const shape others[] = {
    {"BERT", 16, 512, 16, 16, 64, 0, false, PS_DTYPE_BF16, false},
    {"Mistral, with its window", 1, 8192, 4, 1, 128, 4096, true, PS_DTYPE_BF16, false},
    {"a sequence of odd length", 3, 1001, 16, 8, 128, 0, true, PS_DTYPE_F16, false},
    {"heads of 80", 2, 100, 4, 4, 80, 0, true, PS_DTYPE_F16, false},
    {"a tiny model", 2, 16, 3, 3, 16, 0, true, PS_DTYPE_BF16, false},
};

static const ps_cudnn *library; /* NULL: none */

static ps_dnn_attention attention_of(const shape *s)
{
    const int64_t packed = (s->H + 2 * s->KV) * s->D;
    return (ps_dnn_attention){.B = s->B,
                              .T = s->T,
                              .H = s->H,
                              .KV = s->KV,
                              .D = s->D,
                              .q_stride = packed,
                              .kv_stride = packed,
                              .y_stride = s->H * s->D,
                              .window = s->window > 0 ? s->window : s->T,
                              .dtype = (int32_t)s->dtype,
                              .causal = s->causal};
}

/* -1: there is none. */
static int64_t plan(const char *gpu, ps_dnn_descriptor device, const shape *s, bool is_backward)
{
    ps_dnn_attention a = attention_of(s);
    ps_dnn_plan p;
    const char *what;
    char why[512] = "";
    a.is_backward = is_backward;
    const ps_dnn_status st = ps_dnn_plan_init(&p, library, &(ps_dnn_target){.device = device}, &a, &what);
    if (st != PS_DNN_SUCCESS) library->last_error(why, sizeof why);
    if (st != PS_DNN_SUCCESS) fail_msg("%s, %s: %s: %s, %s", gpu, s->name, what, library->status_name(st), why);
    const int64_t bytes = p.plan != NULL ? p.workspace_bytes : -1;
    ps_dnn_plan_deinit(&p);
    if (bytes < 0) return -1;
    const int64_t guess = ps_dnn_workspace_guess(&a), least = is_backward ? 2 * a.B * a.H * a.T * a.T : 0;
    if (bytes < least || bytes > guess + 256 * PS_KIB)
        fail_msg("%s, %s, %s: a workspace of %lld bytes, guessed %lld", gpu, s->name,
                 is_backward ? "backward" : "forward", (long long)bytes, (long long)guess);
    return bytes;
}

static void expect_plans(const described_gpu *g, ps_dnn_descriptor device, const shape *s)
{
    if (plan(g->name, device, s, false) < 0) fail_msg("%s, %s: no plan for forward", g->name, s->name);
    if (plan(g->name, device, s, true) < 0 && !s->forward_only)
        fail_msg("%s, %s: no plan for backward", g->name, s->name);
}

static void test_every_gpu(void **state)
{
    (void)state;
    if (library == NULL) skip();
    for (int i = 0; i < GPUS; i++) {
        ps_dnn_descriptor device = describe(library, &gpus[i]);
        expect_plans(&gpus[i], device, &gpt2);
        expect_plans(&gpus[i], device, &llama);
        (void)library->descriptor_destroy(device);
    }
}

static void test_every_shape(void **state)
{
    (void)state;
    if (library == NULL) skip();
    ps_dnn_descriptor device = describe(library, &gpus[H100]);
    for (size_t i = 0; i < PS_ARRAY_LEN(others); i++) expect_plans(&gpus[H100], device, &others[i]);
    (void)library->descriptor_destroy(device);
}

/* Backward of wide heads is Hopper's alone: elsewhere there is no plan, which is no error. */
static void test_what_there_is_not(void **state)
{
    (void)state;
    if (library == NULL) skip();
    ps_dnn_descriptor device = describe(library, &gpus[A100]);
    assert_true(plan(gpus[A100].name, device, &wide, false) >= 0);
    assert_int_equal(plan(gpus[A100].name, device, &wide, true), -1);
    (void)library->descriptor_destroy(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_gpu),
        cmocka_unit_test(test_every_shape),
        cmocka_unit_test(test_what_there_is_not),
    };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    printf("not tried: cuDNN's own memory and threads are not what a sanitizer is to look at\n");
#else
    if (dlopen(NO_DRIVER, RTLD_NOW | RTLD_GLOBAL) == NULL)
        printf("not tried: %s\n", dlerror());
    else if (ps_cudnn_load(&library) != PS_OK)
        printf("not tried: %s\n", ps_last_error());
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
