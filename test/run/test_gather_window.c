/* When groups of chunks are gathered and released: before and after every use, never twice at once, the same on all
 * ranks. */
#include "engine/engine_fixture.h"

#include "train/run/gather_window.h"
#include "train/settings/params.h"
#include "train/settings/settings.h"

typedef struct planned {
    ps_settings settings;
    ps_program *program;
    ps_code *code;
    ps_layout *layout;
} planned;

static void plan_tiny(planned *p, ps_config *c, int64_t chunk_elements)
{
    assert_ok(ps_settings_read(c, true, &p->settings));
    assert_ok(ps_settings_open_backend(&p->settings));
    const ps_code_options o = ps_settings_code_options(&p->settings);
    assert_ok(
        ps_settings_build_program(&p->settings, ps_model_from_config, c, p->settings.B, p->settings.T, &p->program));
    assert_ok(ps_code_create(p->program, &o, &p->code));
    int64_t sizes[256];
    bool in_first_list_only[256];
    assert_true(p->program->n_params <= 256);
    for (int32_t t = 0; t < p->program->n_params; t++) {
        sizes[t] = p->program->params[t].elements;
        in_first_list_only[t] = p->program->params[t].is_frozen;
    }
    assert_ok(ps_layout_create(sizes, in_first_list_only, p->program->n_params, chunk_elements, &p->layout));
}

static void end(planned *p, ps_config *c)
{
    ps_layout_destroy(p->layout);
    ps_code_destroy(p->code);
    ps_program_destroy(p->program);
    ps_settings_close_backend(&p->settings);
    ps_config_destroy(c);
}

/* The one span that holds the chunk while the instruction runs. */
static const ps_gather_window *holder(const ps_gather_windows *s, int32_t chunk, int32_t m)
{
    const ps_gather_window *found = NULL;
    for (int32_t i = 0; i < s->n; i++) {
        const ps_gather_window *window = &s->windows[i];
        if (chunk < window->chunk || chunk >= window->chunk + window->n_chunks) continue;
        if (m < window->gather_at || m > window->release_at) continue;
        if (found != NULL) fail_msg("chunk %d is held twice at instruction %d", chunk, m);
        found = window;
    }
    return found;
}

static void check_uses(const planned *p, const ps_gather_windows *s)
{
    for (int32_t m = 0; m < p->code->n_instrs; m++) {
        const ps_instr *instr = &p->code->instrs[m];
        const ps_node *n = &p->program->nodes[instr->node];
        for (int k = 0; k < PS_NODE_PARAMS; k++) {
            if (!ps_instr_touches(p->program, instr, k)) continue;
            const ps_place *place = &p->layout->places[n->params[k]];
            for (int32_t c = place->chunk; c < place->chunk + place->n_chunks; c++) {
                const ps_gather_window *window = holder(s, c, m);
                if (window == NULL) fail_msg("chunk %d is not there at instruction %d (%s)", c, m, instr->label);
                assert_true(window->first <= m && m <= window->last);
                assert_int_equal(window->is_backward, m >= p->code->n_forward);
                assert_int_equal(window->reduces, window->is_backward && c < p->layout->n_mirrored);
            }
        }
    }
}

/* Each span: gathered, awaited, reduced if it is of the backward pass, released; and in the order of instructions. */
static void check_events(const ps_gather_windows *s)
{
    int32_t *next = calloc((size_t)s->n, sizeof *next);
    int32_t at = -1;
    for (int32_t i = 0; i < s->n_events; i++) {
        const ps_gather_event *e = &s->events[i];
        const ps_gather_window *window = &s->windows[e->window];
        assert_true(e->instr >= at);
        at = e->instr;
        if (next[e->window] == PS_GATHER_REDUCE && !window->reduces) next[e->window]++;
        assert_int_equal(e->kind, next[e->window]);
        next[e->window]++;
        if (e->kind == PS_GATHER_RELEASE) assert_true(e->instr >= window->last);
        if (e->kind == PS_GATHER_BEGIN) assert_true(e->instr <= window->first);
    }
    for (int32_t i = 0; i < s->n; i++) assert_int_equal(next[i], PS_GATHER_RELEASE + 1);
    free(next);
}

static void check(const planned *p, int32_t n_ranks, bool saves_memory, int32_t ahead)
{
    ps_gather_windows s, other;
    const ps_ranks ranks = {.rank = 0, .n = n_ranks, .saves_memory = saves_memory};
    const ps_ranks last = {.rank = n_ranks - 1, .n = n_ranks, .saves_memory = saves_memory};
    assert_ok(ps_gather_windows_find(p->program, p->code, p->layout, &ranks, ahead, &s));
    assert_ok(ps_gather_windows_find(p->program, p->code, p->layout, &last, ahead, &other));
    check_uses(p, &s);
    check_events(&s);
    int64_t n_chunks[2] = {0}, n_read_again = 0;
    for (int32_t i = 0; i < s.n; i++) {
        assert_true(s.windows[i].n_chunks <= (saves_memory ? 1 : n_ranks));
        if (ahead == 0) assert_int_equal(s.windows[i].gather_at, s.windows[i].first);
        /* no group has chunks of both kinds */
        const bool is_trained = s.windows[i].chunk < p->layout->n_mirrored;
        assert_int_equal(s.windows[i].chunk + s.windows[i].n_chunks <= p->layout->n_mirrored, is_trained);
        if (s.windows[i].is_backward && !is_trained)
            n_read_again += s.windows[i].n_chunks;
        else
            n_chunks[s.windows[i].is_backward] += s.windows[i].n_chunks;
    }
    /* once in each direction; backward of what is not trained only what gradients of others need */
    assert_int_equal(n_chunks[0], p->layout->n_chunks);
    assert_int_equal(n_chunks[1], p->layout->n_mirrored);
    assert_in_range(n_read_again, 0, p->layout->n_chunks - p->layout->n_mirrored);
    assert_int_equal(s.n_events, other.n_events);
    assert_memory_equal(s.events, other.events, (size_t)s.n_events * sizeof *s.events);
    ps_gather_windows_deinit(&s);
    ps_gather_windows_deinit(&other);
}

static void every_use_lies_in_a_span(void **state)
{
    (void)state;
    static const int64_t sizes[] = {2048, 8192, 32768};
    for (int way = 0; way < 4; way++)
        for (size_t i = 0; i < PS_ARRAY_LEN(sizes); i++) {
            ps_config *c =
                TINY(way % 2 == 0 ? "activation_checkpointing.enabled=true" : "train.seed=7",
                     way < 2 ? "train.freeze=" : "train.freeze=*.wpe.*,*.h.0.*,*.h.1.*weight", "bf16.enabled=true");
            planned p;
            plan_tiny(&p, c, sizes[i]);
            for (int32_t n = 2; n <= 5; n++)
                for (int32_t ahead = 0; ahead <= n; ahead++)
                    for (int saves_memory = 0; saves_memory < 2; saves_memory++) check(&p, n, saves_memory, ahead);
            end(&p, c);
        }
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void gathering_ahead_begins_earlier(void **state)
{
    (void)state;
    ps_config *c = TINY("bf16.enabled=true");
    planned p;
    ps_gather_windows s;
    plan_tiny(&p, c, 8192);
    const ps_ranks ranks = {.n = 2};
    assert_ok(ps_gather_windows_find(p.program, p.code, p.layout, &ranks, 1, &s));
    int n_earlier = 0;
    for (int32_t i = 0; i < s.n; i++) n_earlier += s.windows[i].gather_at < s.windows[i].first;
    assert_true(n_earlier > s.n / 2);
    ps_gather_windows_deinit(&s);
    end(&p, c);
}

/* Single chunks, as many ahead as a group of all ranks would have. */
static void gathering_farther_ahead_begins_earlier(void **state)
{
    (void)state;
    ps_config *c = TINY("bf16.enabled=true");
    planned p;
    plan_tiny(&p, c, 2048);
    const ps_ranks ranks = {.n = 4, .saves_memory = true};
    int64_t held[5] = {0};
    for (int32_t ahead = 0; ahead <= 4; ahead++) {
        ps_gather_windows s;
        assert_ok(ps_gather_windows_find(p.program, p.code, p.layout, &ranks, ahead, &s));
        for (int32_t i = 0; i < s.n; i++) {
            const int32_t before = (int32_t)ps_max_i64(0, i - ahead);
            assert_true(s.windows[i].gather_at >= (ahead > 0 ? s.windows[before].first : s.windows[i].first));
            held[ahead] += s.windows[i].first - s.windows[i].gather_at;
        }
        if (ahead > 0) assert_true(held[ahead] > held[ahead - 1]);
        ps_gather_windows_deinit(&s);
    }
    end(&p, c);
}

static void one_rank_gathers_nothing(void **state)
{
    (void)state;
    ps_config *c = TINY("bf16.enabled=true");
    planned p;
    ps_gather_windows s;
    plan_tiny(&p, c, 8192);
    assert_ok(ps_gather_windows_find(p.program, p.code, p.layout, &(ps_ranks){.n = 1}, true, &s));
    assert_int_equal(s.n, 0);
    assert_int_equal(s.n_events, 0);
    ps_gather_windows_deinit(&s);
    end(&p, c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_use_lies_in_a_span),
        cmocka_unit_test(gathering_ahead_begins_earlier),
        cmocka_unit_test(gathering_farther_ahead_begins_earlier),
        cmocka_unit_test(one_rank_gathers_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
