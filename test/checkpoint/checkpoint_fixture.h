/* checkpoint_fixture.h - runs that are saved and resumed, and a folder for what they leave. */
#ifndef CHECKPOINT_FIXTURE_H
#define CHECKPOINT_FIXTURE_H

#include "engine/engine_fixture.h"

#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct work_folder {
    char path[64];
} work_folder;

static inline work_folder work_make(void)
{
    /* in memory where there is such a folder: syncing hundreds of checkpoints takes a disk minutes */
    work_folder w = {"/dev/shm/ps-ckpt-XXXXXX"};
    if (access("/dev/shm", W_OK) != 0) strcpy(w.path, "/tmp/ps-ckpt-XXXXXX");
    if (mkdtemp(w.path) == NULL) fail_msg("no folder");
    return w;
}

static inline int work_remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info, (void)kind, (void)at;
    return remove(path);
}

static inline void work_remove(const char *path)
{
    (void)nftw(path, work_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

typedef struct work_path {
    char text[256];
} work_path;

static inline work_path work_file(const char *folder, const char *name)
{
    work_path p;
    snprintf(p.text, sizeof p.text, "%.120s/%.120s", folder, name);
    return p;
}

static inline bool work_has(const char *folder, const char *name)
{
    return access(work_file(folder, name).text, F_OK) == 0;
}

/* Entries, those that begin with a dot too, but . and .. */
static inline int work_count(const char *folder)
{
    char command[320];
    snprintf(command, sizeof command, "ls -A '%s' | wc -l", folder);
    FILE *f = popen(command, "r");
    int n = -1;
    if (f == NULL || fscanf(f, "%d", &n) != 1) fail_msg("cannot list %s", folder);
    pclose(f);
    return n;
}

/* Train steps [from, to) of the run whose micro-batches are numbered through; losses at their step. */
static inline void train_steps(ps_engine *e, int from, int to, float *losses)
{
    int64_t B, T, K, V;
    ps_engine_get_shape(e, &B, &T, &K, &V);
    int32_t *tokens = calloc((size_t)(B * T), sizeof *tokens), *targets = calloc((size_t)(B * T), sizeof *targets);
    for (int step = from; step < to; step++) {
        losses[step] = 0;
        for (int64_t k = 0; k < K; k++) {
            float loss;
            fill_batch(tokens, targets, B, T, (int32_t)V, step * K + k);
            assert_ok(ps_forward(e, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = targets},
                                 &loss));
            assert_ok(ps_backward(e));
            assert_ok(ps_step(e));
            losses[step] += loss / (float)K;
        }
    }
    free(tokens);
    free(targets);
}

static inline uint64_t hash_of(ps_engine *e)
{
    uint64_t hash;
    assert_ok(ps_engine_get_weights_xxh3(e, &hash));
    return hash;
}

static inline void assert_within_budgets(const ps_engine *e)
{
    ps_memory_info m = {.struct_size = sizeof m};
    ps_engine_get_memory_info(e, &m);
    assert_true(m.device_peak_bytes <= m.device_budget_bytes);
    assert_true(m.host_peak_bytes <= m.host_budget_bytes);
    assert_true(m.disk_peak_bytes <= m.disk_budget_bytes);
}

#endif
