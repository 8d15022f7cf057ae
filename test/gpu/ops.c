/* ops.c - tests of operators (test/kernel) in one process, over one opened GPU: opening takes a second, most tests less.
 *
 * usage: ops [NAME...]     all of them when none is named
 *
 * Before each test a line "== op NAME". Ends after the first one that fails, with status 1: its context may be lost. The
 * Makefile lists the tests in OPS as XX(NAME), whose mains are called op_NAME, and defines TEST_OPS. */
#include "kernel/op_check.h"

mock_gpu_state mock_gpu;

ps_backend *ops_gpu(void)
{
    static ps_backend *opened;
    if (opened == NULL) opened = op_gpu_open();
    return opened;
}

#define XX(name) int op_##name(void);
OPS
#undef XX

    static const struct {
    const char *name;
    int (*run)(void);
} all[] = {
#define XX(name) {#name, op_##name},
    OPS
#undef XX
};

static int run(size_t i)
{
    printf("== op %s\n", all[i].name);
    return all[i].run();
}

int main(int argc, char **argv)
{
    (void)setvbuf(stdout, NULL, _IONBF, 0);
    for (size_t i = 0; argc < 2 && i < PS_ARRAY_LEN(all); i++)
        if (run(i) != 0) return 1;
    for (int a = 1; a < argc; a++) {
        size_t i = 0;
        while (i < PS_ARRAY_LEN(all) && strcmp(all[i].name, argv[a]) != 0) i++;
        if (i == PS_ARRAY_LEN(all)) {
            fprintf(stderr, "ops: there is no test '%s' of an operator: see CUDA_TESTS of the Makefile\n", argv[a]);
            return 2;
        }
        if (run(i) != 0) return 1;
    }
    return 0;
}
