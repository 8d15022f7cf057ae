#include "graph/fuse.h"

static bool takes(const ps_node *n, int32_t value)
{
    for (int i = 0; i < PS_NODE_INPUTS; i++)
        if (n->inputs[i] == value) return true;
    return false;
}

bool ps_fuse(const ps_program *p, const ps_backend *backend, ps_fuse_direction direction, int32_t first)
{
    if (first < 0 || first + 1 >= p->n_nodes) return false;
    const ps_node *a = &p->nodes[first], *b = a + 1;
    if (a->output < 0 || p->values[a->output].n_readers != 1 || !takes(b, a->output)) return false;
    const bool is_forward = direction == PS_FUSE_FORWARD;
    const ps_node_type *product = is_forward ? a->type : b->type, *other = is_forward ? b->type : a->type;
    const ps_epilogue_kind kind = is_forward ? other->epilogue : other->backward_epilogue;
    return product->takes_epilogue && kind != PS_EPILOGUE_NONE && ps_backend_has_epilogue(backend, kind);
}
