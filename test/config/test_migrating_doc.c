/* doc/migrating.md names options that exist, and all that other programs have too. */
#include "config/config.h"
#include "config/option/option.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static bool named[PS_OPTION_COUNT];

static int find(const char *key)
{
    for (int i = 0; i < PS_OPTION_COUNT; i++)
        if (strcmp(ps_option_table[i].key, key) == 0) return i;
    return -1;
}

/* The keys in the second column of a line of a table. */
static int read_line(const char *line, int number)
{
    int n = 0;
    const char *at = line[0] == '|' ? strchr(line + 1, '|') : NULL;
    const char *end = at != NULL ? strchr(at + 1, '|') : NULL;
    while (end != NULL) {
        char key[128];
        const char *open = memchr(at, '`', (size_t)(end - at));
        if (open == NULL) break;
        const char *close = strchr(open + 1, '`');
        if (close == NULL || close > end) fail_msg("line %d: ` without end", number);
        snprintf(key, sizeof key, "%.*s", (int)(close - open - 1), open + 1);
        const int id = find(key);
        if (id < 0) fail_msg("line %d: there is no option %s", number, key);
        named[id] = true;
        at = close + 1;
        n++;
    }
    return n;
}

static void names_exist_and_none_is_missing(void **state)
{
    (void)state;
    static const char *const of_others[] = {"optimizer.", "fp16.",  "bf16.",       "zero.",
                                            "client.",    "train_", "gradient_",   "default_",
                                            "release_",   "use_",   "activation_", "comm.staging"};
    char line[1024];
    int n = 0, number = 0;
    FILE *f = fopen("doc/migrating.md", "r");
    if (f == NULL) fail_msg("doc/migrating.md is missing");
    while (fgets(line, sizeof line, f) != NULL) n += read_line(line, ++number);
    fclose(f);
    assert_true(n > 50);
    for (int i = 0; i < PS_OPTION_COUNT; i++)
        for (size_t k = 0; k < sizeof of_others / sizeof *of_others; k++)
            if (strncmp(ps_option_table[i].key, of_others[k], strlen(of_others[k])) == 0 && !named[i])
                fail_msg("doc/migrating.md does not name %s", ps_option_table[i].key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(names_exist_and_none_is_missing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
