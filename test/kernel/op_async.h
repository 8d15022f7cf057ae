/* op_async.h - a backend for operator tests that computes on the fake GPU (device/async.h): brings the arrays of a case
 * to device memory, with their guards, runs the operator there, and brings them back. Tests see arrays of their own
 * only, and that a call has computed when it returns. */
#ifndef TEST_KERNEL_OP_ASYNC_H
#define TEST_KERNEL_OP_ASYNC_H

#include "device/async.h"
#include "kernel/op_check.h"

#define OP_ASYNC_BYTES (1 * PS_GIB)

/* An array of the case, and where it lies meanwhile. */
typedef struct op_visitor {
    const op_array *array;
    unsigned char *there; /* the guard before it */
} op_visitor;

typedef struct op_async_backend {
    ps_backend base;
    ps_backend *async;
    ps_device *device;
    ps_queue *queue;
    op_visitor visitors[16];
    int n_visitors;
} op_async_backend;

static inline int64_t op_visit_bytes(const op_array *a)
{
    return (int64_t)a->bytes + 2 * OP_GUARD_BYTES;
}

/* The address on the device for one of an array of the case; NULL for any other value. */
static inline void *op_visit(op_async_backend *b, uintptr_t address)
{
    const op_array *a = NULL;
    for (int i = 0; i < op_now.n_arrays && a == NULL; i++) {
        const uintptr_t first = (uintptr_t)op_now.arrays[i].data;
        if (address >= first && address <= first + op_now.arrays[i].bytes) a = &op_now.arrays[i];
    }
    if (a == NULL) return NULL;
    int v = 0;
    while (v < b->n_visitors && b->visitors[v].array != a) v++;
    if (v == b->n_visitors) {
        void *there = NULL;
        assert_true(v < (int)PS_ARRAY_LEN(b->visitors));
        op_expect_ok(ps_device_alloc(b->device, op_visit_bytes(a), &there));
        op_expect_ok(ps_queue_wait(b->queue, ps_device_gave_after(b->device)));
        op_expect_ok(ps_queue_put(b->queue, there, a->data - OP_GUARD_BYTES, op_visit_bytes(a)));
        b->visitors[b->n_visitors++] = (op_visitor){a, there};
    }
    return b->visitors[v].there + OP_GUARD_BYTES + (address - (uintptr_t)a->data);
}

static inline ps_status op_async_run(ps_backend *self, ps_op op, const void *args, size_t args_bytes,
                                     size_t workspace_bytes)
{
    op_async_backend *b = (op_async_backend *)self;
    uintptr_t words[PS_CALL_ARGS_BYTES_MAX / sizeof(uintptr_t)];
    assert_true(args_bytes <= sizeof words && args_bytes % sizeof words[0] == 0);
    memcpy(words, args, args_bytes);
    b->n_visitors = 0;
    for (size_t i = 0; i < args_bytes / sizeof words[0]; i++) {
        void *there = op_visit(b, words[i]);
        if (there != NULL) words[i] = (uintptr_t)there;
    }
    ps_status st = ps_kernel_run(b->async, op, b->queue, words, workspace_bytes);
    for (int v = 0; v < b->n_visitors; v++) {
        const op_visitor *w = &b->visitors[v];
        if (st == PS_OK)
            st = ps_queue_get(b->queue, w->array->data - OP_GUARD_BYTES, w->there, op_visit_bytes(w->array));
        ps_device_free(b->device, w->there, op_visit_bytes(w->array), NULL);
    }
    return st;
}

#define XX(op)                                                                                                         \
    static inline ps_status op_async_##op(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes) \
    {                                                                                                                  \
        (void)queue;                                                                                                   \
        return op_async_run(self, PS_OP_##op, args, sizeof(ps_##op##_args), workspace_bytes);                          \
    }                                                                                                                  \
    static inline ps_status op_async_##op##_bytes(ps_backend *self, const void *args, size_t *out)                     \
    {                                                                                                                  \
        return ps_kernel_measure(((op_async_backend *)self)->async, PS_OP_##op, args, out);                            \
    }                                                                                                                  \
    static const ps_kernel op_async_kernel_##op = {.run = op_async_##op, .workspace_bytes = op_async_##op##_bytes};
PS_OPS(XX)
#undef XX

static const ps_kernel *const op_async_kernels[PS_OP_COUNT] = {
#define XX(op) [PS_OP_##op] = &op_async_kernel_##op,
    PS_OPS(XX)
#undef XX
};

/* With the highest instruction set. Made once a program, and there until it ends. */
static inline ps_backend *op_async(void)
{
    static const ps_backend_ops ops = {
        .name = "cpu_async of test", .kernels = op_async_kernels, .epilogues = PS_EPILOGUES_ALL};
    static op_async_backend b;
    if (b.async != NULL) return &b.base;
    const ps_async_options o = {.seed = 1, .page_bytes = PS_PAGE_BYTES};
    b.base.ops = &ops;
    op_expect_ok(ps_backend_create_async(&o, ps_cpu_isa_detect(), false, 1, &b.async));
    const ps_space *space = ps_backend_space(b.async);
    op_expect_ok(
        ps_device_create_on(space->device, space->driver, space->page_bytes, "device", OP_ASYNC_BYTES, &b.device));
    op_expect_ok(ps_queue_create(b.device, "kernels", PS_QUEUE_COMPUTE, &b.queue));
    return &b.base;
}

#endif
