/* test_client_profile.c - a client's profile: what the program did, as a file that pstar report draws; and it changes
 * nothing. */
#include "api/report/figures.h"
#include "base/file.h"
#include "external/client_fixture.h"

enum { TENSORS = 6, FROZEN = 2, ELEMENTS = 5000 };
#define MEMORY "memory.device=200KB memory.host=80KB memory.disk=4MB"

static float buffer[ELEMENTS];
static const char *const labels[TENSORS] = {"embedding", "h.0", "h.0.frozen", "h.1", "norm", "head"};

static ps_client *begun(const char *changes)
{
    ps_client *c = client_of(changes);
    int32_t n;
    for (int32_t t = 0; t < TENSORS; t++)
        assert_ok(add_tensor(c, labels[t], ELEMENTS, PS_DTYPE_F32, t == FROZEN, 0, &n));
    assert_ok(ps_client_begin(c));
    return c;
}

static void pass(ps_client *c, ps_client_phase phase, int is_read_again)
{
    for (int32_t i = 0; i < TENSORS; i++) {
        const int32_t t = phase == PS_CLIENT_BACKWARD ? TENSORS - 1 - i : i;
        assert_ok(ps_client_moment(c, phase, labels[t], 4096 * (1 + i)));
        const ps_client_place p = pinned(c, t, PS_CLIENT_PARAM, PS_CLIENT_READ);
        ps_to_floats(p.dtype, p.address, 0, ELEMENTS, buffer);
        ps_client_unpin(c, t, PS_CLIENT_PARAM);
        if (phase != PS_CLIENT_BACKWARD || t == FROZEN) continue;
        assert_ok(ps_client_give_gradient(c, t, buffer, PS_DTYPE_F32, is_read_again));
    }
}

static void step(ps_client *c, int is_read_again)
{
    pass(c, PS_CLIENT_FORWARD, 0);
    pass(c, PS_CLIENT_BACKWARD, is_read_again);
    (void)stepped(c);
}

static ps_report_profile *saved(ps_client *c)
{
    const temp_path path = temp_folder_file(&folder, "profile.json");
    ps_report_profile *p = NULL;
    assert_ok(ps_client_save_profile(c, path.text));
    assert_ok(ps_report_profile_read(path.text, &p));
    remove(path.text);
    return p;
}

/* How often the file has this. */
static int found(ps_client *c, const char *what)
{
    const temp_path path = temp_folder_file(&folder, "profile.json");
    char *text;
    int64_t n_bytes;
    int n = 0;
    assert_ok(ps_client_save_profile(c, path.text));
    assert_ok(ps_file_read_all(path.text, INT64_MAX, &text, &n_bytes));
    for (const char *at = text; (at = strstr(at, what)) != NULL; at++) n++;
    ps_mem_free(text);
    remove(path.text);
    return n;
}

typedef struct count {
    int ops[PS_REPORT_N_PHASES], offload_index, steps, copies, waits;
} count;

/* What ends before the first step or begins after the last is of none. */
static count count_of(const ps_report_profile *p)
{
    count n = {0};
    int64_t first = INT64_MAX, last = 0;
    for (int i = 0; i < p->n_spans; i++) {
        if (p->spans[i].lane != PS_REPORT_STEPS) continue;
        n.steps++;
        if (p->spans[i].begin_ns < first) first = p->spans[i].begin_ns;
        if (p->spans[i].end_ns > last) last = p->spans[i].end_ns;
    }
    for (int i = 0; i < p->n_spans; i++) {
        const ps_report_profile_span *s = &p->spans[i];
        if (s->lane == PS_REPORT_COMPUTE) {
            if (s->begin_ns >= first && s->end_ns <= last)
                n.ops[s->phase]++;
            else
                n.offload_index++;
        }
        n.copies += s->lane >= PS_REPORT_HOST_TO_DEVICE && s->lane <= PS_REPORT_DISK_WRITE;
        n.waits += s->lane == PS_REPORT_WAITS;
    }
    return n;
}

static int chunks_of(const ps_report_profile *p, const char *list)
{
    int n = 0;
    for (int i = 0; i < p->n_chunks; i++) n += strcmp(p->list_names[p->chunks[i].list], list) == 0;
    return n;
}

/* Chunks that come and go add up to the counters, which stay in the budgets. */
static void check_places(const ps_report_profile *p)
{
    int64_t there[PS_REPORT_N_TIERS] = {0}, peak[PS_REPORT_N_TIERS] = {0};
    int change = 0;
    for (int i = 0; i < p->n_samples; i++) {
        const ps_report_profile_sample *s = &p->samples[i];
        const int64_t all = s->chunk_bytes + s->non_model_bytes + s->other_bytes;
        assert_true(all <= p->budget_bytes[s->tier]);
        if (all > peak[s->tier]) peak[s->tier] = all;
        for (; change < p->n_changes && p->changes[change].order < s->order; change++) {
            const ps_report_profile_change *x = &p->changes[change];
            there[x->tier] += p->chunks[x->chunk].bytes * (x->is_there ? 1 : -1);
        }
        if (s->tier != PS_REPORT_DISK) assert_int_equal(there[s->tier], s->chunk_bytes);
    }
    for (int tier = 0; tier < PS_REPORT_N_TIERS; tier++) assert_int_equal(peak[tier], p->measured.peak_bytes[tier]);
}

static void test_what_it_says(void **state)
{
    (void)state;
    ps_client *c = begun(MEMORY " bf16.enabled=true");
    step(c, 0);
    assert_ok(ps_client_start_profile(c));
    const ps_client_info before = info_of(c);
    step(c, 0);
    step(c, 0);
    pass(c, PS_CLIENT_OUTSIDE_STEP, 0);
    const ps_client_info after = info_of(c);
    assert_ok(ps_client_stop_profile(c));
    step(c, 1); /* no longer */
    ps_report_profile *p = saved(c);
    ps_figures *figures = NULL;
    assert_int_equal(p->first_step, 2);
    assert_int_equal(p->last_step, 3);
    assert_int_equal(p->n_ranks, 1);
    const count n = count_of(p);
    assert_int_equal(n.steps, 2);
    assert_int_equal(n.ops[PS_REPORT_FORWARD], 2 * TENSORS);
    assert_int_equal(n.ops[PS_REPORT_BACKWARD], 2 * TENSORS);
    assert_true(n.ops[PS_REPORT_UPDATE] >= 2 && n.ops[PS_REPORT_UPDATE] % 2 == 0);
    assert_int_equal(n.offload_index, TENSORS);
    assert_int_equal(found(c, "\"moment\":0,"), 2 + TENSORS); /* none of those aside is of a step */
    for (int k = 1; k < 2 * TENSORS; k++) {
        char moment[32];
        snprintf(moment, sizeof moment, "\"moment\":%d,", k);
        assert_int_equal(found(c, moment), 2);
    }
    for (int i = 0, k = 0; i < p->n_spans && k < 2 * TENSORS; i++) {
        if (p->spans[i].lane != PS_REPORT_COMPUTE || p->spans[i].phase == PS_REPORT_UPDATE) continue;
        assert_string_equal(p->spans[i].name, labels[k < TENSORS ? k : 2 * TENSORS - 1 - k]);
        k++;
    }
    assert_int_equal(chunks_of(p, "GRAD"), 0); /* they lay over their parameters */
    assert_int_equal(chunks_of(p, "PARAM16"), after.n_chunks);
    assert_int_equal(chunks_of(p, "MASTER"), chunks_of(p, "VARIANCE"));
    assert_true(chunks_of(p, "MASTER") < after.n_chunks); /* what is frozen has none */
    for (int i = 0; i < p->n_chunks; i++) assert_true(p->chunks[i].n_tensors > 0);
    check_places(p);
    int64_t moved = 0;
    for (int i = 0; i < p->n_spans; i++)
        if (p->spans[i].lane == PS_REPORT_DISK_READ) moved += p->spans[i].bytes;
    assert_int_equal(moved, after.moved_bytes[2] - before.moved_bytes[2]);
    assert_true(n.copies > 4);
    assert_ok(ps_figures_create(p, &figures));
    assert_int_equal(figures->n_steps, 2);
    assert_true(figures->parts.compute_seconds[PS_REPORT_BACKWARD] > 0);
    ps_figures_destroy(figures);
    ps_report_profile_destroy(p);
    ps_client_destroy(c);
    expect_nothing_left();
}

static void test_from_any_time_on(void **state)
{
    (void)state;
    ps_client *c = begun(MEMORY);
    const temp_path path = temp_folder_file(&folder, "none");
    assert_int_equal(ps_client_stop_profile(c), PS_ESTATE);
    assert_int_equal(ps_client_save_profile(c, path.text), PS_ESTATE);
    assert_ok(ps_client_start_profile(c));
    assert_int_equal(ps_client_start_profile(c), PS_ESTATE);
    pass(c, PS_CLIENT_FORWARD, 0);
    ps_report_profile *p = saved(c); /* while it runs: no step so far */
    assert_int_equal(count_of(p).steps, 0);
    assert_true(p->measured.step_seconds <= 0);
    ps_report_profile_destroy(p);
    pass(c, PS_CLIENT_BACKWARD, 1);
    (void)stepped(c);
    pass(c, PS_CLIENT_FORWARD, 0);
    assert_ok(ps_client_stop_profile(c)); /* within a step */
    p = saved(c);
    assert_int_equal(count_of(p).steps, 2);
    assert_int_equal(chunks_of(p, "GRAD"), chunks_of(p, "MASTER"));
    check_places(p);
    ps_report_profile_destroy(p);
    assert_int_equal(ps_client_save_profile(c, ""), PS_EINVAL);
    assert_int_equal(ps_client_save_profile(c, "/no/such/folder/p.json"), PS_EIO);
    pass(c, PS_CLIENT_BACKWARD, 1);
    assert_ok(ps_client_start_profile(c)); /* what was recorded before is gone, and the rest of this step is of it */
    (void)stepped(c);
    step(c, 1);
    p = saved(c);
    assert_int_equal(p->last_step, 3);
    assert_int_equal(count_of(p).ops[PS_REPORT_FORWARD], TENSORS);
    ps_report_profile_destroy(p);
    ps_client_destroy(c); /* while it records */
    expect_nothing_left();
}

/* Of what it computes; what is moved when follows from how long operators took. */
static void test_it_changes_no_bit(void **state)
{
    (void)state;
    float want[ELEMENTS];
    for (int records = 0; records < 2; records++) {
        ps_client *c = begun(MEMORY " bf16.enabled=true");
        if (records) assert_ok(ps_client_start_profile(c));
        for (int i = 0; i < 4; i++) step(c, i == 2);
        assert_ok(ps_client_read_state(c, 3, NULL, 0, ELEMENTS, records ? buffer : want));
        ps_client_destroy(c);
    }
    assert_memory_equal(buffer, want, sizeof want);
    expect_nothing_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_what_it_says, note_live),
        cmocka_unit_test_setup(test_from_any_time_on, note_live),
        cmocka_unit_test_setup(test_it_changes_no_bit, note_live),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
