#include "train/graph/quantize.h"

static bool is_linear_weight(const ps_program *p, int32_t w)
{
    bool is_read = false;
    for (int32_t i = 0; i < p->n_nodes; i++)
        for (int k = 0; k < PS_NODE_PARAMS; k++) {
            if (p->nodes[i].params[k] != w) continue;
            if (k > 0 || !p->nodes[i].type->takes_quantized) return false;
            is_read = true;
        }
    return is_read;
}

int32_t ps_program_quantize(ps_program *p, ps_quant quant, const bool *may_be)
{
    int32_t n = 0;
    for (int32_t w = 0; w < p->n_params; w++) {
        if (!may_be[w] || !is_linear_weight(p, w)) continue;
        p->params[w].quant = quant;
        n++;
        for (int32_t i = 0; i < p->n_nodes; i++)
            if (p->nodes[i].params[0] == w) p->nodes[i].attr.linear.quant = quant;
    }
    return n;
}
