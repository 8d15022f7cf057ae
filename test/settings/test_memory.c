/* Budgets of the tiers from memory.total, from one of memory.device and memory.host, and from machines. */
#include "engine/engine_fixture.h"

#include <sys/statfs.h>

#include "config/config.h"
#include "train/settings/settings.h"

#define MB ((int64_t)1000000)

/* A processor whose budgets are all left open, with changes. */
#define OPEN(...) "train.backend=cpu", "memory.device=auto", "memory.host=auto", "memory.disk=auto", __VA_ARGS__
#define ALONE(...) read_alone((const char *const[]){OPEN(__VA_ARGS__), NULL})

static ps_settings read_alone(const char *const *changes)
{
    ps_settings s;
    ps_config *c = tiny_with(changes);
    assert_ok(ps_config_set(c, "train.backend", "cpu"));
    assert_ok(ps_settings_read(c, true, &s));
    ps_config_destroy(c);
    return s;
}

static int64_t budget(const ps_settings *s, ps_tier t)
{
    return s->budgets.bytes[t];
}

static void total_is_for_the_device_tier_and_the_process(void **state)
{
    (void)state;
    const ps_settings s = ALONE("memory.total=500MB");
    assert_true(s.memory.limit_kind == PS_LIMIT_TOTAL && s.memory.total_bytes == 500 * MB);
    assert_in_range(s.memory.process_bytes, 16 * MB, 200 * MB);
    assert_true(budget(&s, PS_TIER_DEVICE) == 500 * MB - s.memory.process_bytes);
    assert_true(budget(&s, PS_TIER_HOST) == 0);

    const char *const halving[] = {"use_cpu_embedding=true", "optimizer.params.use_hybrid_adam=false"};
    for (size_t i = 0; i < PS_ARRAY_LEN(halving); i++) {
        const ps_settings h = ALONE("memory.total=500MB", halving[i]);
        assert_true(budget(&h, PS_TIER_HOST) == (500 * MB - h.memory.process_bytes) / 2);
        assert_true(budget(&h, PS_TIER_HOST) + budget(&h, PS_TIER_DEVICE) == 500 * MB - h.memory.process_bytes);
    }
}

/* What is advised gives the tiers what they need, also when the process has grown a little. */
static void total_for_budgets_gives_them(void **state)
{
    (void)state;
    char text[64];
    for (int halves = 0; halves < 2; halves++) {
        const char *embedding = halves ? "use_cpu_embedding=true" : "use_cpu_embedding=false";
        const ps_settings s = ALONE("memory.total=500MB", embedding);
        const int64_t device = 123456789, host = halves ? 23456789 : 0;
        snprintf(text, sizeof text, "memory.total=%lld", (long long)ps_settings_total_for(&s, device, host));
        const ps_settings with = ALONE(text, embedding);
        assert_true(budget(&with, PS_TIER_DEVICE) >= device && budget(&with, PS_TIER_HOST) >= host);
        assert_true(budget(&with, PS_TIER_DEVICE) <= device + 20 * MB);
    }
}

static void one_budget_of_a_processor_is_all(void **state)
{
    (void)state;
    static const char *const given[] = {"memory.device=50MB", "memory.host=50MB"};
    for (size_t i = 0; i < PS_ARRAY_LEN(given); i++)
        for (int ref = 0; ref < 2; ref++) {
            ps_settings s;
            ps_config *c = TINY(OPEN(given[i]));
            assert_ok(ps_config_set(c, "train.backend", ref ? "ref" : "cpu"));
            assert_ok(ps_settings_read(c, true, &s));
            assert_true(s.memory.limit_kind == PS_LIMIT_TIERS);
            assert_true(budget(&s, PS_TIER_DEVICE) == 50 * MB && budget(&s, PS_TIER_HOST) == 0);
            assert_ok(ps_config_set(c, "use_cpu_embedding", "true"));
            assert_ok(ps_settings_read(c, true, &s));
            assert_true(budget(&s, PS_TIER_DEVICE) == 25 * MB && budget(&s, PS_TIER_HOST) == 25 * MB);
            ps_config_destroy(c);
        }
    const ps_settings both = ALONE("memory.device=50MB", "memory.host=20MB");
    assert_true(budget(&both, PS_TIER_DEVICE) == 50 * MB && budget(&both, PS_TIER_HOST) == 20 * MB);
}

static void refused(const char *total, const char *change, ps_status expected, const char *text)
{
    ps_settings s;
    ps_config *c = TINY(OPEN(total, change));
    assert_ok(ps_config_set(c, "train.backend", "cpu"));
    ps_status st = ps_settings_read(c, true, &s);
    if (st == PS_OK) {
        st = ps_settings_open_backend(&s);
        if (st == PS_OK) st = ps_settings_check_total(&s);
        ps_settings_close_backend(&s);
    }
    if (st != expected) fail_msg("%s %s: %s", total, change, ps_status_name(st));
    if (strstr(ps_last_error(), text) == NULL) fail_msg("%s", ps_last_error());
    ps_config_destroy(c);
}

static void total_excludes_tiers(void **state)
{
    (void)state;
    refused("memory.total=500MB", "memory.device=50MB", PS_EINVAL, "memory.total = 500 MB and memory.device = 50 MB");
    refused("memory.total=500MB", "memory.host=50MB", PS_EINVAL, "memory.total = 500 MB and memory.host = 50 MB");
    refused("memory.total=5MB", "train.seed=1", PS_EBUDGET, "memory.total = 5 MB: the process itself takes ");
}

/* Each rank has the total; ranks divide what is the machine's. */
static void ranks_divide_what_is_the_machines(void **state)
{
    (void)state;
    ps_settings s, alone;
    static const char *const totals[] = {"memory.total=500MB", "memory.total=auto"};
    for (int open = 0; open < 2; open++) {
        ps_config *c = TINY(OPEN(totals[open], "memory.disk_path=."));
        assert_ok(ps_config_set(c, "train.backend", "cpu"));
        assert_ok(ps_settings_read(c, true, &s));
        alone = s;
        assert_ok(ps_settings_plan_as_rank(&s, c, 0, 4));
        assert_true(budget(&s, PS_TIER_DEVICE) == budget(&alone, PS_TIER_DEVICE) / (open ? 4 : 1));
        assert_true(s.memory.spare_disk_bytes == alone.memory.spare_disk_bytes / 4);
        assert_true((s.memory.limit_kind == PS_LIMIT_MACHINE) == open);
        ps_config_destroy(c);
    }
}

static void disk_is_there_where_all_is_left_open(void **state)
{
    (void)state;
    static const struct {
        const char *change;
        bool is_spare;
    } cases[] = {{"train.seed=1", true},      {"memory.total=500MB", true}, {"memory.device=50MB", false},
                 {"memory.host=50MB", false}, {"memory.disk=0", false},     {"memory.disk=3MB", false}};
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        ps_settings s;
        ps_config *c = NULL;
        char *text = NULL;
        assert_ok(ps_config_parse("{}", "c", &c));
        char key[64];
        snprintf(key, sizeof key, "%.*s", (int)strcspn(cases[i].change, "="), cases[i].change);
        assert_ok(ps_config_set(c, key, strchr(cases[i].change, '=') + 1));
        assert_ok(ps_config_set(c, "train.backend", "cpu"));
        assert_ok(ps_config_set(c, "memory.disk_path", "."));
        for (int again = 0; again < 2; again++) { /* read from its own dump too, where all options are given */
            assert_ok(ps_settings_read(c, true, &s));
            const int64_t spare = s.memory.spare_disk_bytes;
            if ((spare > 0) != cases[i].is_spare) fail_msg("%s: %lld to spare", cases[i].change, (long long)spare);
            assert_true(budget(&s, PS_TIER_DISK) == (strcmp(cases[i].change, "memory.disk=3MB") == 0 ? 3 * MB : 0));
            assert_true(ps_settings_take_spare_disk(&s) == cases[i].is_spare);
            assert_false(ps_settings_take_spare_disk(&s));
            if (cases[i].is_spare) assert_true(budget(&s, PS_TIER_DISK) == spare);
            if (again) break;
            assert_ok(ps_config_dump_json(c, &text));
            ps_config_destroy(c);
            assert_ok(ps_config_parse(text, "again", &c));
            ps_free(text);
        }
        ps_config_destroy(c);
    }
}

/* Files of tmpfs are RAM. */
static void disk_is_never_on_tmpfs(void **state)
{
    (void)state;
    struct statfs fs;
    ps_settings s;
    ps_config *c = TINY(OPEN("train.seed=1"));
    assert_ok(ps_config_set(c, "train.backend", "cpu"));
    assert_ok(ps_config_set_disk_folder(c, "build"));
    assert_ok(ps_settings_read(c, true, &s));
    assert_true(ps_disk_folder_look("build") != PS_DISK_FOLDER_GOOD || strcmp(s.tiers.disk_folders, "build") == 0);
    assert_true(statfs("/dev/shm", &fs) != 0 || fs.f_type != 0x01021994 ||
                ps_disk_folder_look("/dev/shm/a/folder") == PS_DISK_FOLDER_IS_RAM);
    assert_ok(ps_config_set_disk_folder(c, "/dev/shm/a/folder"));
    if (ps_disk_folder_look("/dev/shm/a/folder") == PS_DISK_FOLDER_GOOD) {
        ps_config_destroy(c);
        skip();
    }
    assert_ok(ps_settings_read(c, true, &s));
    assert_string_equal(s.tiers.disk_folders, "/var/tmp");
    assert_non_null(strstr(s.memory.disk_note, "/dev/shm/a/folder "));
    ps_config_destroy(c);
}

/* What a described laptop keeps for its desktop is not offered; a rank's total is its own there too. */
static void reserved_memory_of_a_laptop_counts(void **state)
{
    (void)state;
    ps_settings s;
    ps_hardware hw;
    ps_config *c = TINY(OPEN("train.seed=1"));
    assert_ok(ps_config_set(c, "train.backend", "cpu"));
    assert_ok(ps_hardware_load("examples/hardware/laptop.json", &hw));
    static const int64_t reserved[] = {0, 4, 15, 16};
    for (size_t i = 0; i < PS_ARRAY_LEN(reserved); i++) {
        hw.host.reserved_bytes = reserved[i] * PS_GIB;
        assert_ok(ps_settings_read(c, true, &s));
        assert_ok(ps_settings_use_hardware(&s, c, &hw));
        assert_true(budget(&s, PS_TIER_DEVICE) == (int64_t)((double)((16 - reserved[i]) * PS_GIB) * 0.8));
        assert_true(budget(&s, PS_TIER_HOST) == 0 && budget(&s, PS_TIER_DISK) == 0);
        assert_true(s.memory.spare_disk_bytes == hw.disk.bytes);
    }
    assert_ok(ps_config_set(c, "memory", "8GB"));
    assert_ok(ps_settings_read(c, true, &s));
    assert_ok(ps_settings_use_hardware(&s, c, &hw));
    assert_in_range(budget(&s, PS_TIER_DEVICE), 7900 * MB, 8000 * MB);

    /* next to a described GPU the total is the host's */
    hw.gpus_per_node = 1;
    assert_ok(ps_config_set(c, "memory.device", "2GB"));
    assert_ok(ps_settings_read(c, true, &s));
    assert_ok(ps_settings_use_hardware(&s, c, &hw));
    assert_true(budget(&s, PS_TIER_DEVICE) == 2000 * MB);
    assert_true(budget(&s, PS_TIER_HOST) == 8000 * MB - s.memory.process_bytes);
    assert_ok(ps_config_set(c, "memory.host", "9GB"));
    assert_ok(ps_settings_read(c, true, &s));
    assert_int_equal(ps_settings_use_hardware(&s, c, &hw), PS_EBUDGET);
    assert_non_null(strstr(ps_last_error(), "memory.host = 9 GB does not fit into the rest"));
    ps_config_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(total_is_for_the_device_tier_and_the_process),
        cmocka_unit_test(total_for_budgets_gives_them),
        cmocka_unit_test(one_budget_of_a_processor_is_all),
        cmocka_unit_test(total_excludes_tiers),
        cmocka_unit_test(ranks_divide_what_is_the_machines),
        cmocka_unit_test(disk_is_there_where_all_is_left_open),
        cmocka_unit_test(disk_is_never_on_tmpfs),
        cmocka_unit_test(reserved_memory_of_a_laptop_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
