#include "kernel/backend.h"

#include <stddef.h>
#include <string.h>

#include "device/device.h"
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

ps_backend *ps_backend_host(ps_backend *b)
{
    return b->ops->host != NULL ? b->ops->host(b) : b;
}

bool ps_backend_has_epilogue(const ps_backend *b, ps_epilogue_kind kind)
{
    return kind == PS_EPILOGUE_NONE || b->ops->epilogues >> kind & 1;
}

bool ps_backend_epilogue_is_unrounded(const ps_backend *b, ps_epilogue_kind kind)
{
    return kind != PS_EPILOGUE_NONE && (b->ops->unrounded >> kind & 1);
}

bool ps_backend_has_pair(const ps_backend *b, ps_pair_kind kind)
{
    return kind != PS_PAIR_NONE && (b->ops->pairs >> kind & 1);
}

ps_device_type ps_backend_own_device(const ps_backend *b)
{
    return b->ops->own_device;
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

/* ---- running ---- */

/* A call as an item of a queue. */
typedef struct kernel_call {
    ps_op op;
    size_t workspace_bytes;
    _Alignas(max_align_t) char args[PS_CALL_ARGS_BYTES_MAX - 32];
} kernel_call;

_Static_assert(sizeof(kernel_call) <= PS_CALL_ARGS_BYTES_MAX, "a call must fit an item");

#define XX(op) _Static_assert(sizeof(ps_##op##_args) <= sizeof(((kernel_call *)0)->args), #op);
PS_OPS(XX)
#undef XX

static ps_status run_call(void *self, const void *args)
{
    ps_backend *b = self;
    const kernel_call *c = args;
    const int64_t before = begin(b);
    const ps_status st = ps_kernel_find(b, c->op)->run(b, NULL, c->args, c->workspace_bytes);
    end(b, before);
    return st;
}

/* A synchronous kernel runs as a call item, in the thread that executes the queue's items. */
static ps_status issue_call(ps_backend *b, ps_op op, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    kernel_call c = {.op = op, .workspace_bytes = workspace_bytes};
    const size_t n = ps_op_args_bytes(op);
    ps_uses uses;
    uses.n = 0;
    if (ps_queue_wants_uses(queue)) ps_op_uses(op, args, workspace_bytes, &uses);
    memcpy(c.args, args, n);
    return ps_queue_call(queue, &(ps_call){.name = ps_op_name(op),
                                           .run = run_call,
                                           .self = b,
                                           .args = &c,
                                           .args_bytes = offsetof(kernel_call, args) + n,
                                           .uses = uses.use,
                                           .n_uses = uses.n});
}

/* Between begin and end. */
static ps_status check_workspace(ps_backend *b, ps_op op, const void *args, size_t workspace_bytes)
{
    size_t need;
    PS_TRY(measure(b, ps_kernel_find(b, op), args, &need));
    if (need <= workspace_bytes) return PS_OK;
    return PS_FAIL(PS_EINVAL,
                   "%s of %s needs a workspace of %zu bytes, but was given %zu: it was measured with other arguments "
                   "than these",
                   ps_op_name(op), b->ops->name, need, workspace_bytes);
}

ps_status ps_kernel_run(ps_backend *b, ps_op op, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const bool runs_here = queue == NULL || b->ops->issues;
    const int64_t before = begin(b);
    ps_status st = check_workspace(b, op, args, workspace_bytes);
    if (st == PS_OK && runs_here) st = ps_kernel_find(b, op)->run(b, queue, args, workspace_bytes);
    end(b, before);
    return st != PS_OK || runs_here ? st : issue_call(b, op, queue, args, workspace_bytes);
}

/* ---- operators ---- */

void ps_op_uses(ps_op op, const void *args, size_t workspace_bytes, ps_uses *out)
{
    out->n = 0;
    out->workspace_bytes = (int64_t)workspace_bytes;
    ps_operators[op]->uses(args, out);
}

ps_cost ps_op_cost(ps_op op, const void *args)
{
    return ps_operators[op]->cost(args);
}
