#include "train/state/lists.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

_Static_assert(2 + PS_OPTIMIZER_STATES_MAX + 3 + 1 <= PS_LISTS_MAX, "a list for each of lists.h");

static void add(ps_lists *l, const char *name, bool exists, ps_item item)
{
    l->list[l->n].name = name;
    l->list[l->n++].item = exists ? item : (ps_item){0, 1};
}

ps_lists ps_lists_of(const ps_settings *s, int32_t n_standalone, int64_t standalone_bytes)
{
    const ps_item f32 = {4, 1};
    ps_lists l = {0};
    add(&l, "PARAM16", true, (ps_item){(int32_t)ps_dtype_bytes(s->dtype), 1});
    add(&l, "MASTER", s->training, ps_optimizer_master_item(&s->optimizer));
    for (int32_t i = 0; i < s->optimizer.n_states; i++) {
        add(&l, s->optimizer.optimizer->states[i].list, s->training,
            ps_format_item(ps_optimizer_state_format(&s->optimizer, i)));
    }
    add(&l, "GRAD", s->training, f32);
    add(&l, "GRAD_SUM", s->training && s->ranks.n > 1 && s->accumulation > 1, f32);
    const bool has_grad16 = s->training && ps_settings_separates_gradients(s);
    add(&l, has_grad16 ? "GRAD16" : "KEPT_GRAD", s->may_speculate || has_grad16, l.list[PS_LIST_PARAM16].item);
    l.list[l.n].name = "INPUTS";
    l.n_standalone = n_standalone;
    l.standalone_bytes = ps_round_up(standalone_bytes, PS_PAGE_BYTES);
    return l;
}

const char *ps_lists_describe(const ps_lists *l, ps_list list, ps_dtype dtype, char text[PS_LIST_TEXT_MAX])
{
    const char *name = l->list[list].name;
    if (list == PS_LIST_PARAM16)
        snprintf(text, PS_LIST_TEXT_MAX, "parameters (%s)", ps_dtype_precision(dtype));
    else if (list == PS_LIST_MASTER)
        snprintf(text, PS_LIST_TEXT_MAX, "fp32 parameters%s", l->list[list].item.bytes == 2 ? ", low halves" : "");
    else if (list == ps_lists_grad(l))
        snprintf(text, PS_LIST_TEXT_MAX, "fp32 gradients");
    else if (list == ps_lists_grad_sum(l))
        snprintf(text, PS_LIST_TEXT_MAX, "summed gradients");
    else if (list == ps_lists_kept_grad(l))
        snprintf(text, PS_LIST_TEXT_MAX, "%sgradients (%s)", strcmp(name, "KEPT_GRAD") == 0 ? "kept " : "",
                 ps_dtype_precision(dtype));
    else if (list == l->n)
        snprintf(text, PS_LIST_TEXT_MAX, "offloaded activations");
    else {
        const ps_item item = l->list[list].item;
        const char *const kind = item.elements > 1 ? "8-bit" : item.bytes == 2 ? "bf16" : "optimizer";
        const int start = snprintf(text, PS_LIST_TEXT_MAX, "%s %s", kind, name) - (int)strlen(name);
        for (char *c = text + start; *c != '\0'; c++) *c = (char)tolower((unsigned char)*c);
    }
    return text;
}
