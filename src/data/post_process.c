#include "data/post_process.h"

#include "base/base.h"

void ps_post_processor_init(ps_post_processor *p)
{
    *p = (ps_post_processor){.single = {.parts = {{PS_PART_A, 0}}, .n = 1},
                             .pair = {.parts = {{PS_PART_A, 0}, {PS_PART_B, 1}}, .n = 2}};
}

ps_status ps_template_add(ps_template *t, int32_t id, int32_t type_id, const char *where)
{
    if (t->n == PS_TEMPLATE_PARTS_MAX)
        return PS_FAIL(PS_EFORMAT, "%s: a template of more than %d parts", where, PS_TEMPLATE_PARTS_MAX);
    t->parts[t->n++] = (ps_template_part){id, type_id};
    return PS_OK;
}

int ps_template_token_count(const ps_template *t)
{
    int n = 0;
    for (int i = 0; i < t->n; i++) n += t->parts[i].id >= 0;
    return n;
}

void ps_truncate_longest_first(int64_t max, int64_t *n_a, int64_t *n_b)
{
    if (*n_a + *n_b <= max) return;
    int64_t *shorter = *n_a <= *n_b ? n_a : n_b, *longer = *n_a <= *n_b ? n_b : n_a;
    if (2 * *shorter <= max) {
        *longer = max - *shorter;
    } else {
        *shorter = max / 2;
        *longer = max - max / 2;
    }
}
