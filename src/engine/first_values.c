/* first_values.c - what parameters begin with when nobody has values for them: ps_engine_draw_rest. */
#include "base/mem.h"
#include "engine/engine.h"
#include "engine/tensors.h"

typedef struct drawing {
    const ps_runner *runner;
    int32_t tensor;
} drawing;

static ps_status give_drawn(void *user, int64_t first, int64_t n, void *dst)
{
    const drawing *d = user;
    return ps_runner_draw(d->runner, d->tensor, first, n, dst);
}

ps_status ps_engine_draw_tensor(ps_engine *e, int64_t tensor)
{
    drawing d = {.runner = e->runner, .tensor = (int32_t)tensor};
    return ps_engine_fill_tensor(e, tensor, e->program->params[tensor].elements, PS_DTYPE_F32, give_drawn, &d);
}

void ps_engine_end_filling(ps_engine *e)
{
    ps_mem_free(e->is_filled);
    e->is_filled = NULL;
}

ps_status ps_engine_draw_rest(ps_engine *e)
{
    if (e->is_filled == NULL) return PS_OK;
    for (int64_t t = 0; t < e->program->n_params; t++)
        if (!e->is_filled[t]) PS_TRY(ps_engine_draw_tensor(e, t));
    ps_engine_end_filling(e);
    return PS_OK;
}
