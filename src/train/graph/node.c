#include "train/graph/node.h"

#include "train/graph/program.h"

int64_t ps_node_rows(const ps_node_run *r)
{
    return r->cache_positions > 0 ? r->T : r->node->rows;
}

ps_status ps_node_measure(ps_node_run *r, ps_op op, const void *args)
{
    size_t bytes;
    PS_TRY(ps_kernel_measure(r->backend, op, args, &bytes));
    if (bytes > r->workspace_bytes) r->workspace_bytes = bytes;
    const ps_cost c = ps_op_cost(op, args);
    r->flops += c.flops;
    r->cost_ns += (int64_t)(ps_cost_seconds(&c, r->throughput) * 1e9 + ps_softmax_ns(op, args, &r->softmax_throughput));
    return PS_OK;
}
