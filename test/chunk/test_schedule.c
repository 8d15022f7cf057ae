/* Traces merge accesses; a schedule answers as a walk along the circle of moments would. */
#include "chunk/chunk_fixture.h"

static ps_trace *random_trace(dice *d, int32_t n_moments, int32_t n_chunks)
{
    ps_trace *t = NULL;
    assert_ok(ps_trace_create(&t));
    for (int32_t m = 0; m < n_moments; m++) {
        assert_ok(ps_trace_add_moment(t, (ps_phase)roll(d, PS_PHASE_COUNT), "m", roll(d, 100000), 1));
        bool seen[64] = {false};
        for (int32_t k = roll(d, 4); k > 0; k--) {
            const ps_chunk_id c = roll(d, n_chunks);
            if (seen[c]) continue;
            seen[c] = true;
            assert_ok(ps_trace_add_access(t, c, (ps_tier)roll(d, 2), (ps_access_mode)roll(d, 3)));
        }
    }
    return t;
}

static int32_t walk(const ps_trace *t, ps_chunk_id id, ps_tier tier, int32_t now)
{
    for (int32_t k = 1; k <= t->n_moments + (now < 0); k++) {
        const ps_moment *m = &t->moments[(now + k) % t->n_moments];
        for (int32_t i = 0; i < m->n_accesses; i++) {
            const ps_access *a = &t->accesses[m->first_access + i];
            if (a->chunk == id && a->tier == tier) return k;
        }
    }
    return PS_NEVER;
}

static void test_next_use(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 100; seed++) {
        dice d = dice_of(seed);
        const int32_t n_moments = 1 + roll(&d, 40), n_chunks = 1 + roll(&d, 30);
        ps_trace *t = random_trace(&d, n_moments, n_chunks);
        ps_schedule *s = NULL;
        assert_ok(ps_schedule_create(t, n_chunks, &s));
        assert_ptr_equal(ps_schedule_trace(s), t);
        for (int32_t now = -1; now < n_moments; now++) {
            for (ps_chunk_id c = 0; c < n_chunks; c++) {
                const int32_t on_device = walk(t, c, PS_TIER_DEVICE, now), on_host = walk(t, c, PS_TIER_HOST, now);
                assert_int_equal(ps_schedule_next_use(s, c, PS_TIER_DEVICE, now), on_device);
                assert_int_equal(ps_schedule_next_use(s, c, PS_TIER_HOST, now), on_host);
                assert_int_equal(ps_schedule_next_use_anywhere(s, c, now), on_device < on_host ? on_device : on_host);
            }
            if (now < 0) continue;
            for (int32_t ahead = 0; ahead < 2 * n_moments; ahead += 1 + ahead / 2) {
                int64_t most = 0;
                for (int32_t k = 0; k <= ahead; k++)
                    most = ps_max_i64(most, t->moments[(now + k) % n_moments].non_model_bytes);
                assert_int_equal(ps_schedule_non_model_ahead(s, NULL, now, ahead), most);
            }
        }
        ps_schedule_destroy(s);
        ps_trace_destroy(t);
    }
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void test_wrap_around(void **state)
{
    (void)state;
    ps_trace *t = NULL;
    ps_schedule *s = NULL;
    assert_ok(ps_trace_create(&t));
    for (int32_t m = 0; m < 5; m++) assert_ok(ps_trace_add_moment(t, PS_PHASE_FORWARD, "m", m == 1 ? 70 : 10, 0));
    assert_ok(ps_trace_add_access(t, 3, PS_TIER_DEVICE, PS_ACCESS_READ)); /* only in the last moment */
    assert_ok(ps_schedule_create(t, 4, &s));
    assert_int_equal(ps_schedule_next_use(s, 3, PS_TIER_DEVICE, -1), 5);
    assert_int_equal(ps_schedule_next_use(s, 3, PS_TIER_DEVICE, 3), 1);
    assert_int_equal(ps_schedule_next_use(s, 3, PS_TIER_DEVICE, 4), 5); /* the next step's */
    assert_int_equal(ps_schedule_next_use(s, 3, PS_TIER_HOST, 4), PS_NEVER);
    assert_int_equal(ps_schedule_next_use_anywhere(s, 2, 0), PS_NEVER);
    assert_int_equal(ps_schedule_non_model_ahead(s, NULL, 3, 2), 10);
    assert_int_equal(ps_schedule_non_model_ahead(s, NULL, 3, 3), 70); /* 3, 4, 0, 1 */
    ps_schedule_destroy(s);
    ps_trace_destroy(t);
    ps_schedule_destroy(NULL);
    ps_trace_destroy(NULL);
}

static void test_merging(void **state)
{
    (void)state;
    static const ps_access_mode R = PS_ACCESS_READ, W = PS_ACCESS_WRITE, O = PS_ACCESS_OVERWRITE;
    const ps_access_mode cases[][3] = {{R, R, R}, {R, W, W}, {W, R, W}, {W, W, W},
                                       {O, O, O}, {O, R, W}, {R, O, W}, {O, W, W}};
    ps_trace *t = NULL;
    assert_ok(ps_trace_create(&t));
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        assert_ok(ps_trace_add_moment(t, PS_PHASE_UPDATE, "merge", 0, 0));
        assert_ok(ps_trace_add_access(t, 1, PS_TIER_HOST, R));
        assert_ok(ps_trace_add_access(t, 7, PS_TIER_DEVICE, cases[i][0]));
        assert_ok(ps_trace_add_access(t, 7, PS_TIER_DEVICE, cases[i][1]));
        assert_int_equal(t->moments[i].n_accesses, 2);
        assert_int_equal(t->moments[i].first_access, 2 * (int32_t)i);
        assert_int_equal(t->accesses[2 * i + 1].mode, cases[i][2]);
        assert_int_equal(t->accesses[2 * i].mode, R);
    }
    assert_int_equal(ps_trace_add_access(t, 7, PS_TIER_HOST, R), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "merge"));
    assert_int_equal(t->n_accesses, 2 * (int32_t)PS_ARRAY_LEN(cases));
    ps_trace_destroy(t);
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(ps_tier_name(PS_TIER_DISK), "disk");
    assert_string_equal(ps_tier_name(PS_TIER_COUNT), "?");
    assert_string_equal(ps_phase_name(PS_PHASE_UPDATE), "update");
    assert_string_equal(ps_phase_name(PS_PHASE_COUNT), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_next_use),
        cmocka_unit_test(test_wrap_around),
        cmocka_unit_test(test_merging),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
