#include "graph/fuse.h"

typedef struct fuse_pattern {
    ps_fuse_direction direction;
    const ps_node_type *first, *second;
    ps_epilogue_kind epilogue;
} fuse_pattern;

static const fuse_pattern patterns[] = {
    {PS_FUSE_FORWARD, &ps_node_linear, &ps_node_gelu, PS_EPILOGUE_GELU},
    {PS_FUSE_FORWARD, &ps_node_linear, &ps_node_add, PS_EPILOGUE_ADD},
    {PS_FUSE_BACKWARD, &ps_node_gelu, &ps_node_linear, PS_EPILOGUE_GELU_BWD},
};

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
    for (size_t i = 0; i < PS_ARRAY_LEN(patterns); i++) {
        const fuse_pattern *f = &patterns[i];
        if (f->direction == direction && f->first == a->type && f->second == b->type)
            return ps_backend_has_epilogue(backend, f->epilogue);
    }
    return false;
}
