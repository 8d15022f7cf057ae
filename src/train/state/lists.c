#include "train/state/lists.h"

_Static_assert(2 + PS_OPTIMIZER_STATES_MAX + 2 + 1 <= PS_LISTS_MAX, "a list for each of lists.h");

static void add(ps_lists *l, const char *name, bool exists, int32_t item_bytes)
{
    l->list[l->n].name = name;
    l->list[l->n++].item_bytes = exists ? item_bytes : 0;
}

ps_lists ps_lists_of(const ps_settings *s, int32_t n_standalone, int64_t standalone_bytes)
{
    enum { F32 = 4 };
    ps_lists l = {0};
    add(&l, "PARAM16", true, (int32_t)ps_dtype_bytes(s->dtype));
    add(&l, "MASTER", s->training, F32);
    for (int32_t i = 0; i < s->optimizer.n_states; i++) {
        const ps_optimizer_state *state = &s->optimizer.optimizer->states[i];
        add(&l, state->list, s->training, state->item_bytes);
    }
    add(&l, "GRAD", s->training, F32);
    add(&l, "GRAD_SUM", s->training && s->ranks.n > 1 && s->accumulation > 1, F32);
    l.list[l.n].name = "INPUTS";
    l.n_standalone = n_standalone;
    l.standalone_bytes = ps_round_up(standalone_bytes, PS_PAGE_BYTES);
    return l;
}
