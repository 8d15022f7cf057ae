#include "train/graph/fuse.h"

static bool takes(const ps_node *n, int32_t value)
{
    for (int i = 0; i < PS_NODE_INPUTS; i++)
        if (n->inputs[i] == value) return true;
    return false;
}

/* A pair with different bits is not fused if checkpointing could separate it. */
static bool is_epilogue(const ps_backend *backend, ps_fuse_direction direction, const ps_node *a, const ps_node *b)
{
    const bool is_forward = direction == PS_FUSE_FORWARD;
    const ps_node_type *gemm = is_forward ? a->type : b->type, *other = is_forward ? b->type : a->type;
    const ps_epilogue_kind kind = is_forward ? other->epilogue : other->backward_epilogue;
    if (ps_backend_epilogue_is_unrounded(backend, kind) && a->segment != b->segment) return false;
    return gemm->takes_epilogue && kind != PS_EPILOGUE_NONE && ps_backend_has_epilogue(backend, kind);
}

/* Backward of a pair may sum over its rows in another order than the two nodes do: it is not fused if checkpointing
 * could separate it. */
static bool is_pair(const ps_backend *backend, ps_fuse_direction direction, const ps_node *a, const ps_node *b)
{
    if (a->type->begins_pair != b->type->ends_pair || !ps_backend_has_pair(backend, a->type->begins_pair)) return false;
    if (direction == PS_FUSE_BACKWARD && (!a->type->backward_pairs || a->segment != b->segment)) return false;
    return a->type->pairs == NULL || a->type->pairs(a, b);
}

ps_fusion ps_fuse(const ps_program *p, const ps_backend *backend, ps_fuse_direction direction, int32_t first)
{
    if (first < 0 || first + 1 >= p->n_nodes) return PS_FUSION_NONE;
    const ps_node *a = &p->nodes[first], *b = a + 1;
    if (a->output < 0 || p->values[a->output].n_readers != 1 || !takes(b, a->output)) return PS_FUSION_NONE;
    if (is_epilogue(backend, direction, a, b)) return PS_FUSION_EPILOGUE;
    return is_pair(backend, direction, a, b) ? PS_FUSION_PAIR : PS_FUSION_NONE;
}
