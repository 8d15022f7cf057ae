/* test_introspection.c - what an engine reports: profiles at any time, memory as numbers, lines of a log, progress
 * of long calls, which can be ended. */
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/engine_fixture.h"

static void step(ps_engine *e, int64_t index)
{
    int32_t tokens[32], targets[32];
    fill_batch(tokens, targets, 2, 16, TINY_VOCABULARY, index);
    assert_ok(ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets}, NULL));
    assert_ok(ps_backward(e));
    assert_ok(ps_step(e));
}

/* ---- profiles ---- */

static ps_profile_info profile_of(const ps_engine *e)
{
    ps_profile_info info = {.struct_size = sizeof info};
    assert_ok(ps_engine_get_profile_info(e, &info));
    return info;
}

static void test_profile_at_any_time(void **state)
{
    (void)state;
    static const char path[] = "introspection.profile.json";
    ps_config *c = TINY("train.seed=7");
    ps_engine *e = engine_of(c);
    step(e, 0);
    assert_int_equal(ps_engine_stop_profile(e), PS_ESTATE);
    assert_int_equal(ps_engine_save_profile(e, path), PS_ESTATE);
    for (int round = 0; round < 2; round++) {
        assert_ok(ps_engine_start_profile(e));
        assert_int_equal(ps_engine_start_profile(e), PS_ESTATE);
        assert_int_equal(ps_engine_save_profile(e, path), PS_ESTATE); /* no step yet */
        step(e, 1);
        step(e, 2);
        assert_ok(ps_engine_stop_profile(e));
        step(e, 3);
        assert_int_equal(profile_of(e).first_step, 2 + 3 * round);
        assert_int_equal(profile_of(e).last_step, 3 + 3 * round);
        assert_int_equal(ps_engine_save_profile(e, NULL), PS_EINVAL); /* there is no profile.path */
        assert_ok(ps_engine_save_profile(e, path));
        struct stat file;
        assert_int_equal(stat(path, &file), 0);
        assert_true(file.st_size > 1000);
        (void)unlink(path);
    }
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

/* One that the configuration asks for continues; another may follow it. */
static void test_profile_of_configuration(void **state)
{
    (void)state;
    ps_config *c = TINY("profile.path=introspection.configured.json", "profile.steps=[2, 3]");
    ps_engine *e = engine_of(c);
    step(e, 0);
    step(e, 1);
    assert_int_equal(ps_engine_start_profile(e), PS_ESTATE);
    step(e, 2);
    assert_int_equal(profile_of(e).is_written, 1);
    assert_ok(ps_engine_start_profile(e));
    assert_int_equal(profile_of(e).is_written, 0);
    step(e, 3);
    assert_ok(ps_engine_stop_profile(e));
    assert_int_equal(profile_of(e).first_step, 4);
    assert_int_equal(profile_of(e).is_written, 1);
    ps_engine_destroy(e);
    ps_config_destroy(c);
    assert_int_equal(unlink("introspection.configured.json"), 0);
}

/* One of the program before the configured steps, or of their first ones, takes nothing from those that come: the file
 * is that of the configuration. */
static void test_profile_before_the_configured(void **state)
{
    (void)state;
    static const char configured[] = "introspection.configured.json";
    static const struct {
        int start, stop, first; /* before which step; the first of the file */
    } cases[] = {{2, 3, 5}, {4, 6, 6}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        ps_config *c = TINY("profile.path=introspection.configured.json", "profile.steps=[5, 6]");
        ps_engine *e = engine_of(c);
        for (int s = 1; s <= 7; s++) {
            if (s == cases[k].start) assert_ok(ps_engine_start_profile(e));
            if (s == cases[k].stop) {
                assert_ok(ps_engine_stop_profile(e));
                assert_int_equal(profile_of(e).first_step, cases[k].start);
                assert_int_equal(profile_of(e).last_step, cases[k].stop - 1);
                assert_int_equal(profile_of(e).is_written, 0);
                assert_int_equal(access(configured, F_OK), -1);
            }
            step(e, s - 1);
        }
        assert_int_equal(profile_of(e).first_step, cases[k].first);
        assert_int_equal(profile_of(e).last_step, 6);
        assert_int_equal(profile_of(e).is_written, 1);
        assert_int_equal(unlink(configured), 0);
        ps_engine_destroy(e);
        assert_int_equal(access(configured, F_OK), -1); /* nothing was left to write */
        ps_config_destroy(c);
    }
    /* over all of them: their file is the program's */
    ps_config *c = TINY("profile.path=introspection.configured.json", "profile.steps=[2, 3]");
    ps_engine *e = engine_of(c);
    assert_ok(ps_engine_start_profile(e));
    for (int s = 1; s <= 3; s++) step(e, s - 1);
    assert_ok(ps_engine_stop_profile(e));
    assert_int_equal(profile_of(e).is_written, 1);
    step(e, 3);
    assert_int_equal(profile_of(e).first_step, 1);
    assert_int_equal(profile_of(e).last_step, 3);
    assert_int_equal(unlink(configured), 0);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

/* ---- memory ---- */

static void test_memory_use(void **state)
{
    (void)state;
    ps_config *c = TINY("memory.device=800KB", "memory.host=300KB", "memory.disk=20MB", "default_chunk_size=4096");
    ps_engine *e = engine_of(c);
    step(e, 0);
    int64_t device = 0, host = 0, disk = 0;
    int n = 0, n_lists = 0;
    ps_memory_use use = {.struct_size = sizeof use};
    for (; ps_engine_get_memory_use(e, n, &use) == PS_OK; n++) {
        device += use.device_bytes;
        host += use.host_bytes;
        disk += use.disk_bytes;
        n_lists += strcmp(use.name, "PARAM16") == 0 || strcmp(use.name, "MASTER") == 0;
    }
    assert_non_null(strstr(ps_last_error(), "number"));
    assert_true(n >= 5);
    assert_true(n_lists >= 1);
    ps_memory_info info = {.struct_size = sizeof info};
    assert_ok(ps_engine_get_memory_info(e, &info));
    assert_int_equal(device, info.device_used_bytes);
    assert_int_equal(host, info.host_used_bytes);
    assert_int_equal(disk, info.disk_used_bytes);
    assert_true(disk > 0);
    assert_int_equal(ps_engine_get_memory_use(e, -1, &use), PS_EINVAL);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

/* ---- log ---- */

typedef struct lines {
    int n_infos, n_warnings;
    char last[2][256];
} lines;

static void take_line(void *user, ps_log_level level, const char *line)
{
    lines *l = user;
    *(level == PS_LOG_INFO ? &l->n_infos : &l->n_warnings) += 1;
    snprintf(l->last[level], sizeof l->last[level], "%s", line);
}

static void test_log(void **state)
{
    (void)state;
    lines l = {0};
    ps_set_log(take_line, &l);
    ps_config *c = TINY("train.seed=7");
    ps_engine *e = engine_of(c);
    assert_int_equal(l.n_infos, 1);
    assert_non_null(strstr(l.last[PS_LOG_INFO], "chunks"));
    step(e, 0);
    assert_int_equal(l.n_warnings, 0);
    const float nan = NAN;
    assert_ok(ps_engine_write_tensor(e, 0, 0, 1, &nan));
    for (int i = 0; i < 8 && l.n_warnings == 0; i++) step(e, 1 + i);
    assert_int_equal(l.n_warnings, 1);
    assert_non_null(strstr(l.last[PS_LOG_WARNING], "skipped"));
    ps_set_log(NULL, NULL);
    ps_engine_destroy(e);
    e = engine_of(c);
    assert_int_equal(l.n_infos, 1);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

/* ---- progress ---- */

typedef struct watch {
    int64_t n[PS_PROGRESS_SAVE + 1], last_done, total;
    ps_progress_kind ends_what;
    int64_t ends_at; /* call of this kind, from 1; 0: none */
} watch;

static int look(void *user, const ps_progress *p)
{
    watch *w = user;
    w->n[p->what]++;
    assert_true(p->total == 0 || (p->done >= 0 && p->done < p->total));
    w->last_done = p->done;
    w->total = p->total;
    return p->what == w->ends_what && w->n[p->what] == w->ends_at;
}

static void test_progress(void **state)
{
    (void)state;
    static const char path[] = "introspection.safetensors";
    watch w = {0};
    ps_config *c = TINY("train.seed=7");
    ps_engine *e = NULL;
    uint64_t before, after;
    ps_set_progress(look, &w);
    w.ends_what = PS_PROGRESS_PLAN, w.ends_at = 1;
    assert_int_equal(ps_initialize_engine(ps_model_from_config, c, 0, c, &e), PS_ECANCELED);
    assert_non_null(strstr(ps_last_error(), "planning"));
    assert_null(e);
    w.ends_at = 0;
    assert_ok(ps_initialize_engine(ps_model_from_config, c, 0, c, &e));
    assert_true(w.n[PS_PROGRESS_PLAN] >= 2);
    /* of another engine, and of another shape, plans are counted anew */
    const int64_t n_tried = w.n[PS_PROGRESS_PLAN] - 1;
    assert_int_equal(w.last_done, n_tried - 1);
    ps_engine_destroy(e);
    assert_ok(ps_initialize_engine(ps_model_from_config, c, 0, c, &e));
    assert_int_equal(w.n[PS_PROGRESS_PLAN], 1 + 2 * n_tried);
    assert_int_equal(w.last_done, n_tried - 1);
    assert_ok(ps_engine_set_shape(e, ps_model_from_config, c, 1, 16));
    assert_true(w.last_done < w.n[PS_PROGRESS_PLAN] - 1 - 2 * n_tried);
    assert_ok(ps_engine_save_weights(e, path));
    assert_int_equal(w.n[PS_PROGRESS_SAVE], ps_engine_get_tensor_count(e));
    assert_int_equal(w.last_done, w.total - 1);
    /* a save that is ended leaves the file of before; one more engine can be asked afterwards */
    struct stat was, is;
    assert_int_equal(stat(path, &was), 0);
    w.ends_what = PS_PROGRESS_SAVE, w.ends_at = w.n[PS_PROGRESS_SAVE] + 3;
    assert_int_equal(ps_engine_save_weights(e, path), PS_ECANCELED);
    assert_int_equal(stat(path, &is), 0);
    assert_true(was.st_ino == is.st_ino && was.st_size == is.st_size);
    w.ends_at = 0;
    assert_ok(ps_engine_get_weights_xxh3(e, &before));
    assert_ok(ps_engine_load_pretrained(e, path, NULL, NULL));
    assert_int_equal(w.n[PS_PROGRESS_LOAD], ps_engine_get_tensor_count(e));
    assert_ok(ps_engine_get_weights_xxh3(e, &after));
    assert_true(before == after);
    w.ends_what = PS_PROGRESS_LOAD, w.ends_at = w.n[PS_PROGRESS_LOAD] + 2;
    assert_int_equal(ps_engine_load_pretrained(e, path, NULL, NULL), PS_ECANCELED);
    ps_set_progress(NULL, NULL);
    /* some parameters are those of the file, others not: no call continues with such a mixture */
    assert_int_equal(ps_engine_get_weights_xxh3(e, &after), PS_ESTATE);
    assert_int_equal(ps_engine_load_pretrained(e, path, NULL, NULL), PS_ESTATE);
    int32_t tokens[2 * 16] = {0};
    assert_int_equal(
        ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = tokens}, NULL),
        PS_ESTATE);
    (void)unlink(path);
    ps_engine_destroy(e);
    ps_config_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_profile_at_any_time),
        cmocka_unit_test(test_profile_of_configuration),
        cmocka_unit_test(test_profile_before_the_configured),
        cmocka_unit_test(test_memory_use),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_progress),
    };
    return RUN_ON_BACKENDS(tests);
}
