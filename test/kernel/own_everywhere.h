/* own_everywhere.h - a user's operator with functions for the CPU, made one with functions for a GPU: on the emulator these
 * are the same, as its memory is the host's; over the fake driver they give a kernel to the stream that calls them. */
#ifndef TEST_KERNEL_OWN_EVERYWHERE_H
#define TEST_KERNEL_OWN_EVERYWHERE_H

#include "patrickstar.h"

#ifdef TEST_OVER_GPU
#include "gpu/mock_gpu.h"

/* One operator a program. Options of the call do not outlast it. */
static ps_own_operator own_of_cpu;

typedef struct own_kernel_args {
    ps_own_func f;
    ps_own_call call;
    int64_t options[PS_OWN_OPTIONS_BYTES_MAX / 8];
} own_kernel_args;

static inline void own_kernel(void *user, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes,
                              const void *args)
{
    own_kernel_args a;
    (void)user, (void)grid, (void)block, (void)shared_bytes;
    memcpy(&a, args, sizeof a);
    a.call.options = a.options;
    (void)a.f(&a.call);
}

static inline ps_status own_launch(const ps_own_call *call, ps_own_func f)
{
    const ps_cuda_driver *d = mock_gpu.driver;
    own_kernel_args a = {.f = f, .call = *call};
    void *args[] = {&a};
    ps_cu_module module;
    ps_cu_function function;
    memcpy(a.options, call->options, sizeof a.options);
    if (call->device != PS_DEVICE_CUDA || call->stream == NULL) return PS_ESTATE;
    if (d->module_load(&module, "own") != PS_CU_SUCCESS) return PS_EDEVICE;
    ps_status st = d->function_get(&function, module, "own") == PS_CU_SUCCESS ? PS_OK : PS_EDEVICE;
    if (st == PS_OK && d->launch(function, 1, 1, 1, 1, 1, 1, 0, call->stream, args, NULL) != PS_CU_SUCCESS)
        st = PS_EDEVICE;
    (void)d->module_unload(module);
    return st;
}

static inline ps_status own_cuda_forward(const ps_own_call *call)
{
    return own_launch(call, own_of_cpu.forward);
}

static inline ps_status own_cuda_backward(const ps_own_call *call)
{
    return own_launch(call, own_of_cpu.backward);
}

/* Kernels of the fake driver are added once it is there. */
static inline void own_add_kernels(void)
{
    fake_kernel_add("own", own_kernel, NULL, sizeof(own_kernel_args));
}

static inline ps_own_operator own_everywhere(const ps_own_operator *op)
{
    ps_own_operator both = own_of_cpu = *op;
    both.cuda_forward = own_cuda_forward;
    both.cuda_backward = own_cuda_backward;
    return both;
}
#else
static inline void own_add_kernels(void)
{
}

static inline ps_own_operator own_everywhere(const ps_own_operator *op)
{
    ps_own_operator both = *op;
    both.cuda_forward = op->forward;
    both.cuda_backward = op->backward;
    return both;
}
#endif

#endif
