/* test_client_budget.c - budgets that the machine does not have, and what a message says of the framework's own
 * memory. */
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/machine.h"
#include "external/client_fixture.h"

static ps_status begin(ps_client *c, int n_tensors, int64_t elements)
{
    int32_t number;
    for (int32_t t = 0; t < n_tensors; t++) assert_ok(add_tensor(c, NULL, elements, PS_DTYPE_F32, 0, 0, &number));
    return ps_client_begin(c);
}

/* What is used of a budget counts, not the budget. */
static void test_more_than_the_machine(void **state)
{
    (void)state;
    ps_machine_memory_info machine;
    char changes[160], total[64], text[PS_BYTES_TEXT_MAX];
    assert_ok(ps_machine_memory(NULL, &machine));
    /* one chunk, of which a tensor takes little, but which is there as a whole */
    snprintf(changes, sizeof changes, "memory.device=900TB memory.host=0 default_chunk_size=%lld",
             (long long)(machine.total_bytes / 16 + 4096));
    ps_client *c = client_of(changes);
    assert_int_equal(begin(c, 1, 100), PS_EBUDGET);
    assert_non_null(strstr(ps_last_error(), "memory.device and memory.host: the plan takes"));
    snprintf(total, sizeof total, "has %s: lower", ps_bytes_format(machine.total_bytes, text));
    assert_non_null(strstr(ps_last_error(), total));
    ps_client_destroy(c);
    c = client_of("memory.device=900TB memory.host=900TB memory.disk=900TB");
    assert_ok(begin(c, 3, 5000));
    ps_client_destroy(c);
    expect_nothing_left();
}

/* Before anything is made. Tensors of 2^38 elements, 1 TB each, stand for a machine with less. */
static void test_expected(void **state)
{
    (void)state;
    const int64_t many = (int64_t)1 << 38;
    ps_client *c = client_of("memory.device=900TB memory.host=0 memory.disk=0");
    assert_ok(ps_client_expect(c, 15000, 100));
    assert_int_equal(ps_client_expect(c, many, 0), PS_EBUDGET);
    assert_non_null(strstr(ps_last_error(), "memory.device and memory.host: the plan takes 4.4 TB"));
    assert_int_equal(ps_client_expect(c, 0, many), PS_EBUDGET);
    assert_non_null(strstr(ps_last_error(), "the plan takes 1.1 TB"));
    assert_int_equal(ps_client_expect(c, -1, 0), PS_EINVAL);
    assert_int_equal(ps_client_expect(c, 0, INT64_MAX), PS_EINVAL);
    assert_int_equal(ps_client_expect(c, INT64_MAX, 0), PS_EINVAL);
    assert_ok(begin(c, 3, 5000));
    assert_int_equal(ps_client_expect(c, 1, 0), PS_ESTATE);
    ps_client_destroy(c);

    c = client_of("memory.device=100KB memory.host=50KB memory.disk=10KB");
    assert_ok(ps_client_expect(c, 10000, 0));
    assert_int_equal(ps_client_expect(c, 10001, 0), PS_EBUDGET);
    assert_non_null(strstr(ps_last_error(), "is 10 kB, and parameters, fp32 values and optimizer "
                                            "states take 160 kB"));
    assert_ok(ps_client_expect(c, 0, 40000));
    assert_int_equal(ps_client_expect(c, 0, 40001), PS_EBUDGET);
    ps_client_destroy(c);
    c = client_of("memory.device=100KB memory.host=50KB memory.disk=10KB train.freeze=*");
    assert_ok(ps_client_expect(c, 40000, 0)); /* the pattern may name all of them */
    assert_int_equal(ps_client_expect(c, 40001, 0), PS_EBUDGET);
    ps_client_destroy(c);
    expect_nothing_left();
}

/* Without a file for them. */
static void test_first_values_that_the_machine_has_no_memory_for(void **state)
{
    (void)state;
    const int64_t elements = (int64_t)1 << 40;
    ps_client *c = client_of("memory.device=900TB memory.host=0 memory.disk=0");
    const ps_client_tensor tensor = {.struct_size = sizeof tensor, .name = "wide", .shape = &elements, .n_dims = 1};
    int32_t number;
    void *values;
    assert_int_equal(ps_client_add(c, &tensor, &number, &values), PS_EBUDGET);
    assert_non_null(strstr(ps_last_error(), "initial values of the model take 4.4 TB of memory"));
    assert_ok(begin(c, 3, 5000));
    ps_client_destroy(c);
    expect_nothing_left();
}

/* First values lie there too, and make way. */
static void test_more_than_the_disk(void **state)
{
    (void)state;
    const temp_path small = temp_folder_file(&folder, "small");
    char changes[256];
    assert_int_equal(mkdir(small.text, 0700), 0);
    if (mount("none", small.text, "tmpfs", 0, "size=1m") != 0) {
        assert_int_equal(rmdir(small.text), 0);
        print_message("not tried: a small file system, which cannot be mounted here\n");
        skip();
    }
    static const int n_tensors[] = {24, 4}; /* of two chunks, 131 KB, each, and 20 KB of first values */
    for (int i = 0; i < 2; i++) {
        snprintf(changes, sizeof changes, "memory.device=110KB memory.host=0 memory.disk=900MB memory.disk_path=%.100s",
                 small.text);
        ps_client *c = client_of(changes);
        const ps_status st = begin(c, n_tensors[i], 5000);
        if (st != (i == 0 ? PS_EBUDGET : PS_OK)) print_message("%s\n", ps_last_error());
        assert_int_equal(st, i == 0 ? PS_EBUDGET : PS_OK);
        if (i == 0) assert_non_null(strstr(ps_last_error(), " free, and the plan puts "));
        if (i == 0) assert_non_null(strstr(ps_last_error(), "memory.disk_path = "));
        ps_client_destroy(c);
    }
    umount2(small.text, MNT_DETACH);
    assert_int_equal(rmdir(small.text), 0);
    expect_nothing_left();
}

/* What was there before a step is not activations. */
static void test_what_the_program_holds(void **state)
{
    (void)state;
    enum { BEFORE = 60 << 20, ACTIVATIONS = 30 << 20 };
    ps_client *c = client_of("memory.device=100MB memory.host=0 memory.disk=4MB");
    ps_client_place place = {.struct_size = sizeof place};
    static const char said[] = "the program holds 62.9 MB outside of chunks since before the step (a loaded checkpoint";
    assert_ok(begin(c, 1, 5000));
    assert_ok(ps_client_moment(c, PS_CLIENT_FORWARD, "first", BEFORE));
    assert_ok(ps_client_moment(c, PS_CLIENT_FORWARD, "second", BEFORE + ACTIVATIONS));
    assert_int_equal(ps_client_moment(c, PS_CLIENT_FORWARD, "third", 110 << 20), PS_EBUDGET);
    assert_non_null(strstr(ps_last_error(), said));
    assert_non_null(strstr(ps_last_error(), "and activations take 52.4 MB"));
    assert_ok(ps_client_moment(c, PS_CLIENT_FORWARD, "fourth", 100000000 / 4096 * 4096 - 4096));
    assert_int_equal(ps_client_pin(c, 0, PS_CLIENT_PARAM, PS_CLIENT_READ, &place), PS_EBUDGET);
    assert_non_null(strstr(ps_last_error(), said));
    assert_ok(ps_client_moment(c, PS_CLIENT_FORWARD, "fifth", BEFORE));
    const ps_client_place p = pinned(c, 0, PS_CLIENT_PARAM, PS_CLIENT_READ);
    assert_true(((const float *)p.address)[4999] == drawn(0, 4999));
    ps_client_unpin(c, 0, PS_CLIENT_PARAM);
    ps_client_destroy(c);
    expect_nothing_left();
}

/* A folder of the disk tier that is missing is made; one that cannot be is named with its option. */
static void test_missing_folders(void **state)
{
    (void)state;
    const temp_path missing = temp_folder_file(&folder, "not/yet");
    char changes[256];
    ps_client *c = NULL;
    snprintf(changes, sizeof changes, "memory.device=300KB memory.disk=4MB memory.disk_path=%.100s", missing.text);
    c = client_of(changes);
    assert_int_equal(access(missing.text, F_OK), 0);
    assert_ok(begin(c, 3, 5000));
    ps_client_destroy(c);
    assert_int_equal(rmdir(missing.text), 0);
    assert_int_equal(rmdir(temp_folder_file(&folder, "not").text), 0);
    ps_config *config = config_of("memory.device=300KB memory.disk=4MB memory.disk_path=/proc/not/yet");
    assert_int_equal(ps_client_create(config, NULL, &c), PS_EIO);
    assert_non_null(strstr(ps_last_error(), "memory.disk_path: /proc/not: cannot make the folder"));
    ps_config_destroy(config);
    config = config_of("memory.device=300KB memory.disk=4MB memory.disk_path=/dev/null");
    assert_int_equal(ps_client_create(config, NULL, &c), PS_EIO);
    assert_non_null(strstr(ps_last_error(), "memory.disk_path: /dev/null: is not a folder"));
    ps_config_destroy(config);
    config = config_of("memory.device=300KB memory.disk=4MB memory.disk_path=~/x");
    assert_int_equal(ps_client_create(config, NULL, &c), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "memory.disk_path: ~ in \"~/x\" is not replaced by the home folder"));
    ps_config_destroy(config);
    expect_nothing_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_more_than_the_machine, note_live),
        cmocka_unit_test_setup(test_expected, note_live),
        cmocka_unit_test_setup(test_first_values_that_the_machine_has_no_memory_for, note_live),
        cmocka_unit_test_setup(test_more_than_the_disk, note_live),
        cmocka_unit_test_setup(test_what_the_program_holds, note_live),
        cmocka_unit_test_setup(test_missing_folders, note_live),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
