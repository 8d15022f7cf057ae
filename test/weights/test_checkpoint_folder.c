/* The folder of checkpoints when the process dies at any change, on file systems that can swap folders and on those
 * that cannot; links in it; what makes it durable. */
#include "checkpoint/checkpoint_fixture.h"

#include "base/file.h"
#include "base/leftover.h"
#include "checkpoint/crash_calls.h"
#include "weights/checkpoint_folder.h"

static work_folder work;
static char root[96];
static const char *said; /* by what save_one saves */
static int64_t step_saved;

/* A checkpoint is `said`, in two files. */
static void save_one(void)
{
    ps_checkpoint_folder f;
    assert_ok(ps_checkpoint_folder_open(root, NULL, step_saved, &f));
    assert_ok(ps_file_write_all(work_file(f.temporary, "model").text, said, (int64_t)strlen(said)));
    assert_ok(ps_file_write_all(work_file(f.temporary, PS_CHECKPOINT_STATE).text, said, (int64_t)strlen(said)));
    assert_ok(ps_checkpoint_folder_commit(&f, 1));
    ps_checkpoint_folder_close(&f);
}

static void save(int64_t step, const char *what)
{
    step_saved = step;
    said = what;
    save_one();
}

/* What the latest checkpoint says; it is whole. */
static char latest_says(void)
{
    char *path, *model, *state, c;
    int64_t n;
    assert_ok(ps_checkpoint_folder_find(root, &path));
    assert_ok(ps_file_read_all(work_file(path, "model").text, 100, &model, &n));
    assert_ok(ps_file_read_all(work_file(path, PS_CHECKPOINT_STATE).text, 100, &state, &n));
    assert_string_equal(model, state);
    c = state[0];
    ps_mem_free(state);
    ps_mem_free(model);
    ps_mem_free(path);
    return c;
}

static void begin(void)
{
    work_remove(root);
    crash.n_left = -1;
}

/* The second save is killed; the first or the second is there, and so it is after cleaning; the third succeeds and is
 * alone. */
static int kill_everywhere(int64_t first, int64_t second, int64_t third)
{
    long n = 0;
    for (bool was_killed = true; was_killed; n++) {
        begin();
        save(first, "1");
        step_saved = second;
        said = "2";
        was_killed = crash_at(n, save_one);
        char c = latest_says();
        assert_true(c == '2' || (was_killed && c == '1'));
        ps_checkpoint_folder_clean(root);
        assert_int_equal(latest_says(), c);
        save(third, "3");
        assert_int_equal(latest_says(), '3');
        if (work_count(root) != 2) fail_msg("killed at change %ld: %d entries are left", n, work_count(root));
    }
    return (int)n - 1;
}

static void test_killed_at_every_change(void **state)
{
    (void)state;
    for (int cannot_swap = 0; cannot_swap < 2; cannot_swap++) {
        crash.cannot_swap = cannot_swap;
        const int n_new = kill_everywhere(1, 2, 3), n_same = kill_everywhere(1, 1, 1);
        assert_true(n_new > 10 && n_same > 10);
        assert_true(kill_everywhere(2, 1, 1) > 10); /* taken back */
    }
    crash.cannot_swap = false;
}

/* A reader does not wait for the next save, and changes nothing. */
static void test_read_while_displaced(void **state)
{
    (void)state;
    begin();
    crash.cannot_swap = true;
    save(1, "1");
    step_saved = 1;
    said = "2";
    int n_offloaded = 0;
    for (long n = 0; crash_at(n, save_one); n++) {
        const bool is_displaced = !work_has(root, "step-000001");
        n_offloaded += is_displaced;
        assert_true(latest_says() == '1' || !is_displaced);
        assert_int_equal(is_displaced, !work_has(root, "step-000001"));
    }
    assert_true(n_offloaded > 0);
    crash.cannot_swap = false;
}

/* What has stepped aside and cannot get its name back may be the only checkpoint. */
static void test_displaced_stays_without_its_name(void **state)
{
    (void)state;
    begin();
    crash.cannot_swap = true;
    save(1, "1");
    step_saved = 1;
    said = "2";
    int n_offloaded = 0;
    for (long n = 0; crash_at(n, save_one); n++) {
        if (work_has(root, "step-000001")) continue;
        n_offloaded++;
        crash.cannot_rename = true;
        ps_checkpoint_folder_clean(root);
        assert_int_equal(latest_says(), '1');
        crash.cannot_rename = false;
        ps_checkpoint_folder_clean(root);
        assert_int_equal(latest_says(), '1');
        assert_true(work_has(root, "step-000001"));
    }
    assert_true(n_offloaded > 0);
    crash.cannot_swap = false;
}

/* The public call: none yet, damaged, and there are three things; and without `latest` the newest counts, also one that
 * has stepped aside. */
static void test_find(void **state)
{
    (void)state;
    char *path = NULL;
    int32_t is_latest = -1;
    begin();
    for (int has_root = 0; has_root < 2; has_root++) {
        assert_ok(ps_checkpoint_find(root, &path, &is_latest));
        assert_null(path);
        assert_int_equal(is_latest, 0);
        if (!has_root) assert_ok(ps_folder_make(root));
    }
    save(3, "3");
    assert_ok(ps_checkpoint_find(root, &path, &is_latest));
    assert_string_equal(path, work_file(root, "step-000003").text);
    assert_int_equal(is_latest, 1);
    ps_free(path);
    char mark[PS_LEFTOVER_MARK_MAX], hidden[160];
    snprintf(hidden, sizeof hidden, ".tmp-old-%s-step-000003", ps_leftover_mark(mark));
    const work_path latest = work_file(root, "latest"), name = work_file(root, "step-000003"),
                    offload_index = work_file(root, hidden);
    assert_int_equal(unlink(latest.text), 0);
    for (int is_displaced = 0; is_displaced < 2; is_displaced++) {
        if (is_displaced) assert_int_equal(rename(name.text, offload_index.text), 0);
        assert_ok(ps_checkpoint_find(root, &path, &is_latest));
        assert_non_null(path);
        assert_string_equal(path, is_displaced ? offload_index.text : name.text);
        assert_int_equal(is_latest, 0);
        ps_free(path);
        assert_int_equal(latest_says(), '3');
    }
    assert_ok(ps_file_write_all(latest.text, "step-000003", 11)); /* without its checksum */
    assert_int_equal(ps_checkpoint_find(root, &path, NULL), PS_EFORMAT);
    assert_null(path);
    assert_non_null(strstr(ps_last_error(), "damaged"));
}

/* Checkpoints that were moved to another disk, with a link left in their place. */
static void test_links_are_not_followed(void **state)
{
    (void)state;
    const work_path elsewhere = work_file(work.path, "elsewhere"), precious = work_file(elsewhere.text, "precious");
    for (int cannot_swap = 0; cannot_swap < 2; cannot_swap++) {
        begin();
        crash.cannot_swap = cannot_swap;
        save(1, "1");
        (void)mkdir(elsewhere.text, 0777);
        assert_ok(ps_file_write_all(precious.text, "x", 1));
        work_remove(work_file(root, "step-000001").text);
        assert_int_equal(symlink(elsewhere.text, work_file(root, "step-000001").text), 0);
        save(1, "2"); /* takes the place of the link */
        assert_true(ps_file_exists(precious.text));
        assert_int_equal(symlink(elsewhere.text, work_file(root, "step-000000").text), 0);
        save(2, "3"); /* removes the older ones */
        assert_true(ps_file_exists(precious.text));
        assert_int_equal(work_count(root), 2);
    }
    crash.cannot_swap = false;
    work_remove(elsewhere.text);
}

/* A new folder of checkpoints is durable only when the folder that it is in was synced. */
static void test_new_folder_is_synced(void **state)
{
    (void)state;
    begin();
    memset(crash.synced, 0, sizeof crash.synced);
    ps_checkpoint_folder f;
    assert_ok(ps_checkpoint_folder_open(root, NULL, 1, &f));
    assert_true(crash_has_synced(work.path));
    ps_checkpoint_folder_close(&f);
}

/* All checkpoints go, whole ones, one that is not complete and what a kill has left; other files stay. */
static void test_remove_all(void **state)
{
    (void)state;
    char mark[PS_LEFTOVER_MARK_MAX], left[PS_CHECKPOINT_HIDDEN_MAX];
    snprintf(left, sizeof left, ".tmp-delete-%s-step-000009", ps_leftover_mark(mark));
    begin();
    assert_ok(ps_checkpoint_remove_all(root)); /* there is no such folder */
    save(3, "a");
    assert_int_equal(mkdir(work_file(root, "step-000007").text, 0755), 0);
    assert_int_equal(mkdir(work_file(root, left).text, 0755), 0);
    assert_ok(ps_file_write_all(work_file(root, "notes.txt").text, "mine", 4));
    assert_ok(ps_checkpoint_remove_all(root));
    assert_false(work_has(root, "step-000003") || work_has(root, "step-000007") || work_has(root, "latest"));
    assert_false(work_has(root, left));
    assert_true(work_has(root, "notes.txt"));
    assert_int_equal(work_count(root), 1);
    assert_ok(ps_checkpoint_remove_all(root));
    save(1, "b"); /* and a run may begin there */
    assert_int_equal(latest_says(), 'b');
    assert_int_equal(ps_checkpoint_remove_all(NULL), PS_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_remove_all),
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_killed_at_every_change),
        cmocka_unit_test(test_read_while_displaced),
        cmocka_unit_test(test_displaced_stays_without_its_name),
        cmocka_unit_test(test_links_are_not_followed),
        cmocka_unit_test(test_new_folder_is_synced),
    };
    work = work_make();
    snprintf(root, sizeof root, "%s/checkpoints", work.path);
    const int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    work_remove(work.path);
    return n_failed;
}
