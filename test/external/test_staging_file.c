/* test_staging_file.c - pieces of the file in which a model is built: zeros at first, freed one by one, and few mappings for
 * many of them. */
#include "api/external/staging_file.h"

#include <stdio.h>
#include <string.h>

#include "assert_status.h"
#include "base/mem.h"
#include "temp_folder.h"

/* Of files, to be shared: a sanitizer has mappings of its own. */
static int count_mappings(void)
{
    char line[512], access[8];
    int n = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f) != NULL)
        n += sscanf(line, "%*s %7s", access) == 1 && strchr(access, 's') != NULL;
    fclose(f);
    return n;
}

static void expect_all(const ps_staging_file_piece *p, int64_t n, char want)
{
    const char *at = p->address;
    for (int64_t i = 0; i < n; i += 509) assert_int_equal(at[i], want);
    assert_int_equal(at[n - 1], want);
}

static void use(const char *folders)
{
    enum { PIECES = 2000 };
    static ps_staging_file_piece piece[PIECES];
    const int64_t live = ps_mem_live_bytes(), large = (int64_t)70 << 20; /* wider than what is mapped at a time */
    ps_staging_file *n;
    ps_staging_file_piece wide, after;
    assert_ok(ps_staging_file_create(folders, 0, &n));
    const int before = count_mappings();
    for (int i = 0; i < PIECES; i++) {
        assert_ok(ps_staging_file_take(n, 1 + i % 9000, &piece[i]));
        expect_all(&piece[i], 1 + i % 9000, 0);
        memset(piece[i].address, 1 + i % 100, (size_t)(1 + i % 9000));
        if (i % 3 == 0) ps_staging_file_release(n, &piece[i]);
    }
    assert_in_range(count_mappings() - before, 1, 9);
    assert_ok(ps_staging_file_take(n, large, &wide));
    assert_ok(ps_staging_file_take(n, 5000, &after));
    expect_all(&wide, large, 0);
    memset((char *)wide.address + large - 5000, 7, 5000);
    memset(after.address, 8, 5000);
    for (int i = 0; i < PIECES; i++) {
        expect_all(&piece[i], 1 + i % 9000, (char)(1 + i % 100));
        ps_staging_file_give(n, &piece[i]);
        expect_all(&piece[i], 1 + i % 9000, 0);
    }
    assert_int_equal(((char *)wide.address)[large - 1], 7);
    ps_staging_file_give(n, &wide);
    expect_all(&wide, large, 0);
    expect_all(&after, 5000, 8);
    ps_staging_file_destroy(n);
    assert_int_equal(count_mappings(), before);
    assert_int_equal(ps_mem_live_bytes(), live);
}

static void test_of_memory(void **state)
{
    (void)state;
    use(NULL);
}

static void test_of_a_file(void **state)
{
    (void)state;
    temp_folder folder = temp_folder_make();
    use(folder.path);
    temp_folder_remove(&folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_of_memory),
        cmocka_unit_test(test_of_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
