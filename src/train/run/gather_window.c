#include "train/run/gather_window.h"

#include <stdlib.h>

#include "base/mem.h"

static ps_status add_span(ps_gather_windows *s, ps_gather_window window)
{
    PS_TRY(ps_mem_reserve(&s->windows, (size_t)s->n + 1, sizeof *s->windows));
    s->windows[s->n++] = window;
    return PS_OK;
}

/* Instruction m reads or writes the chunk. current[group] is the group's window in this pass; -1: none yet. */
static ps_status touch(ps_gather_windows *s, int32_t *current, const ps_layout *l, const ps_ranks *ranks, int32_t chunk,
                       int32_t m, bool backward)
{
    const int32_t group = ps_chunk_group_of(l, ranks, chunk);
    if (current[group] < 0) {
        const ps_chunk_group chunks = ps_chunk_group_at(l, ranks, group);
        current[group] = s->n;
        PS_TRY(add_span(s, (ps_gather_window){.chunk = chunks.chunk,
                                              .n_chunks = chunks.n_chunks,
                                              .first = m,
                                              .is_backward = backward,
                                              .reduces = backward && chunk < l->n_mirrored}));
    }
    s->windows[current[group]].last = m;
    return PS_OK;
}

static ps_status find_uses(ps_gather_windows *s, const ps_program *program, const ps_code *code, const ps_layout *l,
                           const ps_ranks *ranks)
{
    const int32_t n_groups = ps_chunk_group_count(l, ranks);
    int32_t *current = NULL;
    ps_status st = PS_OK;
    PS_TRY(ps_mem_alloc((size_t)n_groups, sizeof *current, &current));
    for (int32_t m = 0; m < code->n_instrs; m++) {
        const ps_instr *instr = &code->instrs[m];
        const ps_node *n = &program->nodes[instr->node];
        for (int32_t g = 0; (m == 0 || m == code->n_forward) && g < n_groups; g++) current[g] = -1;
        for (int k = 0; k < PS_NODE_PARAMS; k++) {
            if (!ps_instr_touches(program, instr, k)) continue;
            const ps_place *p = &l->places[n->params[k]];
            for (int32_t c = p->chunk; c < p->chunk + p->n_chunks; c++)
                PS_TRY_GOTO(touch(s, current, l, ranks, c, m, m >= code->n_forward));
        }
    }
out:
    ps_mem_free(current);
    return st;
}

/* The instruction after which the window's chunks can be gathered again: the one at which the last window of the same
 * group releases them; -1 for the first. */
static int32_t released_before(const ps_gather_windows *s, int32_t i)
{
    for (int32_t k = i - 1; k >= 0; k--)
        if (s->windows[k].chunk == s->windows[i].chunk) return s->windows[k].release_at;
    return -1;
}

/* gather_at and release_at of all windows, which are in the order of their first instructions. A forward window is
 * released at once: there is nothing to wait for. */
static void set_ends(ps_gather_windows *s, int32_t n_forward, int32_t n_instrs, int32_t ahead)
{
    for (int32_t i = 0; i < s->n; i++) {
        ps_gather_window *window = &s->windows[i];
        const int32_t pass_end = window->is_backward ? n_instrs - 1 : n_forward - 1;
        window->gather_at = window->first;
        window->release_at = window->last;
        if (ahead == 0) continue;
        if (window->reduces && i + 1 < s->n)
            window->release_at = (int32_t)ps_min_i64(pass_end, ps_max_i64(window->last, s->windows[i + 1].last));
        if (i > 0) window->gather_at = s->windows[ps_max_i64(0, i - ahead)].first;
        window->gather_at = (int32_t)ps_max_i64(window->gather_at, released_before(s, i) + 1);
    }
}

static int compare_events(const void *a, const void *b)
{
    const ps_gather_event *x = a, *y = b;
    if (x->instr != y->instr) return x->instr < y->instr ? -1 : 1;
    if (x->kind != y->kind) return (int)x->kind - (int)y->kind;
    return x->window - y->window;
}

static ps_status list_events(ps_gather_windows *s)
{
    PS_TRY(ps_mem_alloc((size_t)s->n * 4, sizeof *s->events, &s->events));
    for (int32_t i = 0; i < s->n; i++) {
        const ps_gather_window *window = &s->windows[i];
        s->events[s->n_events++] = (ps_gather_event){window->gather_at, i, PS_GATHER_BEGIN};
        s->events[s->n_events++] = (ps_gather_event){window->first, i, PS_GATHER_WAIT};
        if (window->reduces) s->events[s->n_events++] = (ps_gather_event){window->last, i, PS_GATHER_REDUCE};
        s->events[s->n_events++] = (ps_gather_event){window->release_at, i, PS_GATHER_RELEASE};
    }
    qsort(s->events, (size_t)s->n_events, sizeof *s->events, compare_events);
    return PS_OK;
}

ps_status ps_gather_windows_find(const ps_program *program, const ps_code *code, const ps_layout *layout,
                                 const ps_ranks *ranks, int32_t ahead, ps_gather_windows *out)
{
    *out = (ps_gather_windows){0};
    if (ranks->n == 1) return PS_OK;
    PS_TRY(find_uses(out, program, code, layout, ranks));
    set_ends(out, code->n_forward, code->n_instrs, ahead);
    return list_events(out);
}

void ps_gather_windows_deinit(ps_gather_windows *s)
{
    ps_mem_free(s->windows);
    ps_mem_free(s->events);
    *s = (ps_gather_windows){0};
}
