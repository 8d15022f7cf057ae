#include "kernel/backend.h"

#include "kernel/ref/ref.h"

void ps_backend_destroy(ps_backend *b)
{
    if (b != NULL) b->ops->destroy(b);
}

const char *ps_backend_name(const ps_backend *b)
{
    return b->ops->name;
}

const ps_space *ps_backend_space(const ps_backend *b)
{
    return b->ops->space != NULL ? b->ops->space(b) : &ps_space_ram;
}

bool ps_backend_has_epilogue(const ps_backend *b, ps_epilogue_kind kind)
{
    return kind == PS_EPILOGUE_NONE || b->ops->epilogues >> kind & 1;
}

const ps_kernel *ps_kernel_find(const ps_backend *b, ps_op op)
{
    const ps_kernel *own = b->ops->kernels[op];
    return own != NULL ? own : &ps_operators[op]->reference;
}

static int64_t begin(ps_backend *b)
{
    return b->ops->begin != NULL ? b->ops->begin(b) : 0;
}

static void end(ps_backend *b, int64_t before)
{
    if (b->ops->end != NULL) b->ops->end(b, before);
}

/* Between begin and end. */
static ps_status measure(ps_backend *b, const ps_kernel *k, const void *args, size_t *bytes)
{
    *bytes = 0;
    return k->workspace_bytes != NULL ? k->workspace_bytes(b, args, bytes) : PS_OK;
}

ps_status ps_kernel_measure(ps_backend *b, ps_op op, const void *args, size_t *workspace_bytes)
{
    const int64_t before = begin(b);
    const ps_status st = measure(b, ps_kernel_find(b, op), args, workspace_bytes);
    end(b, before);
    return st;
}

ps_status ps_kernel_run(ps_backend *b, ps_op op, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_kernel *k = ps_kernel_find(b, op);
    const int64_t before = begin(b);
    size_t need;
    ps_status st = measure(b, k, args, &need);
    if (st == PS_OK && need > workspace_bytes)
        st = PS_FAIL(PS_EINVAL,
                     "%s of %s needs a workspace of %zu bytes, but was given %zu: it was measured with other "
                     "arguments than these",
                     ps_op_name(op), b->ops->name, need, workspace_bytes);
    if (st == PS_OK) st = k->run(b, queue, args, workspace_bytes);
    end(b, before);
    return st;
}

ps_cost ps_op_cost(ps_op op, const void *args)
{
    return ps_operators[op]->cost(args);
}
