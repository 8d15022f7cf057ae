/* first_values.c - initial values of parameters when none are given: ps_engine_init_remaining. */
#include "api/engine/engine.h"
#include "api/engine/tensors.h"

ps_status ps_engine_init_remaining(ps_engine *e)
{
    if (e->is_filled == NULL) return PS_OK;
    for (int64_t t = 0; t < e->program->n_params; t++)
        if (!e->is_filled[t]) PS_TRY(ps_engine_draw_tensor(e, t));
    ps_engine_end_filling(e);
    return PS_OK;
}
