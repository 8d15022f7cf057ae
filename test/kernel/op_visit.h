/* op_visit.h - with TEST_OVER_GPU, a GPU for operator tests, NVIDIA's or the fake driver's (gpu/mock_gpu.h): it brings the
 * arrays of a case to device memory, with their guards, runs the operator there, and brings them back. Tests see arrays
 * of their own only, and that a call has computed when it returns. */
#ifndef TEST_KERNEL_OP_VISIT_H
#define TEST_KERNEL_OP_VISIT_H

#include "gpu/mock_gpu.h"
#include "kernel/cuda/cuda_operator.h"
#include "kernel/op_check.h"

#define OP_VISIT_BYTES (1 * PS_GIB)

/* Memory of the device for an array of a case, kept for later ones: committed pages, and after them addresses without
 * memory. Arrays lie at the end of it, so that a kernel that reads far past one fails. */
typedef struct op_place {
    ps_region *region;
    int64_t committed_bytes;
    const op_array *array; /* of the call that runs now */
    unsigned char *there;  /* the guard before it */
} op_place;

typedef struct op_visit_backend {
    ps_backend base;
    ps_backend *inner;
    ps_device *device;
    ps_queue *queue;
    op_place places[16];
    int n_places; /* in use */
} op_visit_backend;

/* With its guards. */
static inline int64_t op_visit_bytes(const op_array *a)
{
    return (int64_t)a->bytes + 2 * OP_GUARD_BYTES;
}

static inline void op_place_grow(op_visit_backend *b, op_place *p, int64_t bytes)
{
    const int64_t page = ps_device_page_bytes(b->device);
    if (p->committed_bytes >= bytes) return;
    if (p->region != NULL) {
        ps_region_decommit(p->region, 0, p->committed_bytes, NULL);
        ps_region_destroy(p->region);
    }
    p->committed_bytes = ps_round_up(bytes, page);
    op_expect_ok(ps_region_create(b->device, p->committed_bytes + page, &p->region));
    op_expect_ok(ps_region_commit(p->region, 0, p->committed_bytes));
    op_expect_ok(ps_queue_wait(b->queue, ps_device_gave_after(b->device)));
}

/* Only the guards of scratch are brought; what is between them is NaN, as op_alloc has it. */
static inline ps_status op_visit_come(op_visit_backend *b, const op_array *a, bool is_scratch)
{
    assert_true(b->n_places < (int)PS_ARRAY_LEN(b->places));
    op_place *p = &b->places[b->n_places++];
    const int64_t bytes = op_visit_bytes(a), padded = ps_round_up(bytes, 64) + (int64_t)op_now.shift_bytes;
    op_place_grow(b, p, padded);
    p->array = a;
    p->there = (unsigned char *)ps_region_base(p->region) + p->committed_bytes - padded;
    if (!is_scratch) return ps_queue_put(b->queue, p->there, a->data - OP_GUARD_BYTES, bytes);
    PS_TRY(ps_queue_fill(b->queue, p->there, 0xFF, bytes));
    PS_TRY(ps_queue_put(b->queue, p->there, a->data - OP_GUARD_BYTES, OP_GUARD_BYTES));
    return ps_queue_put(b->queue, p->there + OP_GUARD_BYTES + a->bytes, a->data + a->bytes, OP_GUARD_BYTES);
}

static inline ps_status op_visit_leave(op_visit_backend *b, const op_place *p, bool is_scratch)
{
    const op_array *a = p->array;
    if (!is_scratch) return ps_queue_get(b->queue, a->data - OP_GUARD_BYTES, p->there, op_visit_bytes(a));
    PS_TRY(ps_queue_get(b->queue, a->data - OP_GUARD_BYTES, p->there, OP_GUARD_BYTES));
    return ps_queue_get(b->queue, a->data + a->bytes, p->there + OP_GUARD_BYTES + a->bytes, OP_GUARD_BYTES);
}

/* The address on the device for one of an array of the case; NULL for any other value. */
static inline void *op_visit(op_visit_backend *b, uintptr_t address, const void *scratch)
{
    const op_array *a = NULL;
    for (int i = 0; i < op_now.n_arrays && a == NULL; i++) {
        const uintptr_t first = (uintptr_t)op_now.arrays[i].data;
        if (address >= first && address <= first + op_now.arrays[i].bytes) a = &op_now.arrays[i];
    }
    if (a == NULL) return NULL;
    int i = 0;
    while (i < b->n_places && b->places[i].array != a) i++;
    if (i == b->n_places) op_expect_ok(op_visit_come(b, a, a->data == scratch));
    return b->places[i].there + OP_GUARD_BYTES + (address - (uintptr_t)a->data);
}

static inline const void *op_visit_scratch(ps_op op, const void *args, size_t workspace_bytes)
{
    ps_uses u;
    ps_op_uses(op, args, workspace_bytes, &u);
    for (int i = 0; i < u.n; i++)
        if (strcmp(u.use[i].name, "workspace") == 0) return u.use[i].address;
    return NULL;
}

static inline ps_status op_visit_run(ps_backend *self, ps_op op, const void *args, size_t args_bytes,
                                     size_t workspace_bytes)
{
    op_visit_backend *b = (op_visit_backend *)self;
    const void *scratch = op_visit_scratch(op, args, workspace_bytes);
    uintptr_t words[PS_CALL_ARGS_BYTES_MAX / sizeof(uintptr_t)];
    assert_true(args_bytes <= sizeof words && args_bytes % sizeof words[0] == 0);
    memcpy(words, args, args_bytes);
    b->n_places = 0;
    for (size_t i = 0; i < args_bytes / sizeof words[0]; i++) {
        void *there = op_visit(b, words[i], scratch);
        if (there != NULL) words[i] = (uintptr_t)there;
    }
    PS_TRY(ps_kernel_run(b->inner, op, b->queue, words, workspace_bytes));
    for (int i = 0; i < b->n_places; i++) PS_TRY(op_visit_leave(b, &b->places[i], b->places[i].array->data == scratch));
    return PS_OK;
}

#define XX(op)                                                                                                         \
    static inline ps_status op_visit_##op(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes) \
    {                                                                                                                  \
        (void)queue;                                                                                                   \
        return op_visit_run(self, PS_OP_##op, args, sizeof(ps_##op##_args), workspace_bytes);                          \
    }                                                                                                                  \
    static inline ps_status op_visit_##op##_bytes(ps_backend *self, const void *args, size_t *out)                     \
    {                                                                                                                  \
        return ps_kernel_measure(((op_visit_backend *)self)->inner, PS_OP_##op, args, out);                            \
    }                                                                                                                  \
    static const ps_kernel op_visit_kernel_##op = {.run = op_visit_##op, .workspace_bytes = op_visit_##op##_bytes};
PS_OPS(XX)
#undef XX

static const ps_kernel *const op_visit_kernels[PS_OP_COUNT] = {
#define XX(op) [PS_OP_##op] = &op_visit_kernel_##op,
    PS_OPS(XX)
#undef XX
};

/* What each of them has when its inner backend is there. */
static inline ps_backend *op_visit_begin(op_visit_backend *b, const ps_backend_ops *ops)
{
    const ps_space *space = ps_backend_space(b->inner);
    b->base.ops = ops;
    op_expect_ok(
        ps_device_create_on(space->device, space->driver, space->page_bytes, "device", OP_VISIT_BYTES, &b->device));
    op_expect_ok(ps_queue_create(b->device, "kernels", PS_QUEUE_COMPUTE, &b->queue));
    return &b->base;
}

/* A test that has parts of its own to open it by has put them in place. */
static bool op_gpu_has_parts;

static inline ps_backend *op_gpu_open(void)
{
    ps_backend *host = NULL, *opened = NULL;
    if (!op_gpu_has_parts) mock_gpu_begin(&(fake_options){.seed = 1});
    if (mock_gpu_choice() == PS_CUDA_ATTENTION_CUDNN) mock_gpu_install_cudnn();
    op_expect_ok(ps_backend_create_ref(&host));
    op_expect_ok(ps_backend_open_cuda(0, mock_gpu_choice(), host, &opened));
    return opened;
}

#ifdef TEST_OPS
ps_backend *ops_gpu(void); /* of all tests of the program */
#else
#define ops_gpu op_gpu_open
#endif

/* Made once a program, and there until it ends. */
static inline ps_backend *op_gpu(void)
{
    static const ps_backend_ops ops = {
        .name = "cuda", .kernels = op_visit_kernels, .epilogues = PS_EPILOGUES_ALL, .unrounded = PS_CUDA_UNROUNDED};
    static op_visit_backend b;
    if (b.inner != NULL) return &b.base;
    b.inner = ops_gpu();
    return op_visit_begin(&b, &ops);
}

#endif
