/* train_ranks.c - a tiny model on ranks of one back end; rank 0 prints the weights' hash and the losses, for
 * test_backends.sh.
 *
 * usage: train_ranks THREADS [KEY=VALUE ...]       THREADS 0: as the launcher started it
 * train.backend=cuda is the fake driver, with the processor's kernels. */
#include "cuda/fake_cpu.h"
#include "engine/ranks_fixture.h"

static void show(const rank_result *r, int n_steps)
{
    printf("%016llx", (unsigned long long)r->hash);
    for (int step = 0; step < n_steps; step++) printf(" %a", r->losses[step]);
    printf("\n");
}

int main(int argc, char **argv)
{
    enum { STEPS = 8 };
    const int n = argc > 1 ? atoi(argv[1]) : -1;
    if (n < 0 || n > RANKS_MAX) return fprintf(stderr, "usage: train_ranks THREADS [KEY=VALUE ...]\n"), 2;
    const char *const *changes = (const char *const *)(void *)(argv + 2);
    for (int i = 2; i < argc; i++)
        if (strcmp(argv[i], "train.backend=cuda") == 0)
            fake_cpu_begin(&(fake_options){.seed = 1, .page_bytes = PS_PAGE_BYTES, .total_bytes = 4 * PS_GIB});
    if (n > 0) {
        show(&run_ranks(n, STEPS, rank_train, changes)->result, STEPS);
        return 0;
    }
    static rank_task task;
    task = (rank_task){.model = ps_model_from_config, .run = rank_train, .changes = changes, .n_steps = STEPS};
    const ps_comm_options o = {.backend = PS_COMM_MPI, .timeout_s = 20, .staging_bytes = 1 << 16};
    if (ps_comm_open(&o, &task.comm) != PS_OK) return fprintf(stderr, "%s\n", ps_last_error()), 1;
    const bool prints = ps_comm_rank(task.comm) == 0;
    (void)rank_main(&task);
    if (task.result.st != PS_OK) return fprintf(stderr, "%s\n", task.result.error), 1;
    if (prints) show(&task.result, STEPS);
    return 0;
}
