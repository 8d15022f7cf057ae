/* bench_load.c - weights from a safetensors file into an engine and back, against plain reading and writing of the same
 * bytes.
 *
 * usage: bench_load [FOLDER [ROUNDS [KEY=VALUE...]]]      (default: . 5; options as in a configuration)
 * GPT-2 124M (498 MB in f32) with enough memory, training in bf16: loading fills f32 masters and rounds them to bf16
 * parameters. "plain" reads the file from front to back into memory of its size that has been touched before, or writes
 * that memory to a new file; pieces of 1 MiB, the same calls, syncing and renaming as saving does. The page cache
 * serves both sides alike ("cached"); "from disk" gives the file's pages back (posix_fadvise) before each reading.
 * Rounds alternate; medians. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "base/mem.h"
#include "bench.h"

#define PIECE_BYTES PS_MIB

static const char options[] =
    "{\"model\": {\"preset\": \"gpt2\"}, \"bf16\": {\"enabled\": true}, \"train_micro_batch_size_per_gpu\": 1,"
    " \"data\": {\"sequence_length\": 64}, \"optimizer\": {\"type\": \"AdamW\"},"
    " \"memory\": {\"device\": \"4GB\", \"host\": 0, \"disk\": 0}}";

typedef struct bench {
    char path[4096], copy[4096];
    ps_engine *engine;
    char *memory; /* of the file's size */
    int64_t n_bytes;
} bench;

static double plain_read(bench *b)
{
    ps_file *f = NULL;
    const double begin = bench_now();
    bench_check(ps_file_open(b->path, &f));
    for (int64_t at = 0; at < b->n_bytes; at += PIECE_BYTES)
        bench_check(ps_file_read(f, at, b->memory + at, ps_min_i64(PIECE_BYTES, b->n_bytes - at)));
    ps_file_close(f);
    return bench_now() - begin;
}

static double plain_write(bench *b)
{
    ps_file_writer *w = NULL;
    const double begin = bench_now();
    bench_check(ps_file_writer_open(b->copy, &w));
    for (int64_t at = 0; at < b->n_bytes; at += PIECE_BYTES)
        bench_check(ps_file_writer_write(w, at, b->memory + at, ps_min_i64(PIECE_BYTES, b->n_bytes - at)));
    bench_check(ps_file_writer_commit(w));
    return bench_now() - begin;
}

static double load(bench *b)
{
    const double begin = bench_now();
    bench_check(ps_engine_load_pretrained(b->engine, b->path, NULL, NULL));
    return bench_now() - begin;
}

static double save(bench *b)
{
    const double begin = bench_now();
    bench_check(ps_engine_save_weights(b->engine, b->path));
    return bench_now() - begin;
}

/* Written pages were synced by the commit, so the kernel may drop them. */
static void forget(const char *path)
{
    const int fd = open(path, O_RDONLY);
    if (fd >= 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0) fprintf(stderr, "%s stays cached\n", path);
    if (fd >= 0) close(fd);
}

static void show(const bench *b, const char *what, bench_samples *plain, bench_samples *ours)
{
    const double p = bench_median(plain), o = bench_median(ours), gb = (double)b->n_bytes * 1e-9;
    printf("%-18s %10.2f %10.2f %8.2f\n", what, gb / p, gb / o, p / o);
}

int main(int argc, char **argv)
{
    static bench b;
    static bench_samples s[6];
    const char *folder = argc > 1 ? argv[1] : ".";
    const int rounds = argc > 2 ? atoi(argv[2]) : 5;
    ps_config *c = NULL;
    ps_file *f = NULL;
    char cpu[128];
    bench_check(ps_config_parse(options, "bench_load", &c));
    for (int i = 3; i < argc; i++) {
        char key[256];
        const char *equals = strchr(argv[i], '=');
        if (equals == NULL) return fprintf(stderr, "%s is not key=value\n", argv[i]), 2;
        snprintf(key, sizeof key, "%.*s", (int)(equals - argv[i]), argv[i]);
        bench_check(ps_config_set(c, key, equals + 1));
    }
    bench_check(ps_config_validate(c));
    bench_check(ps_initialize_engine(ps_model_from_config, c, 0, c, &b.engine));
    snprintf(b.path, sizeof b.path, "%s/bench_load.safetensors", folder);
    snprintf(b.copy, sizeof b.copy, "%s/bench_load.copy", folder);
    save(&b);
    bench_check(ps_file_open(b.path, &f));
    b.n_bytes = ps_file_bytes(f);
    ps_file_close(f);
    bench_check(ps_mem_alloc((size_t)b.n_bytes, 1, &b.memory));
    plain_read(&b);
    load(&b);
    for (int i = 0; i < rounds; i++) {
        bench_add(&s[0], plain_read(&b));
        bench_add(&s[1], load(&b));
    }
    for (int i = 0; i < rounds; i++) {
        bench_add(&s[2], plain_write(&b));
        bench_add(&s[3], save(&b));
    }
    for (int i = 0; i < rounds; i++) {
        forget(b.path);
        bench_add(&s[4], plain_read(&b));
        forget(b.path);
        bench_add(&s[5], load(&b));
    }
    ps_machine_cpu_name(NULL, cpu, sizeof cpu);
    printf("%s, %d cores; %.0f MB, %d rounds; GB/s\n", cpu, ps_machine_cores(NULL), (double)b.n_bytes * 1e-6, rounds);
    printf("%-18s %10s %10s %8s\n", "", "plain", "pstar", "ratio");
    show(&b, "load, cached", &s[0], &s[1]);
    show(&b, "load, from disk", &s[4], &s[5]);
    show(&b, "save", &s[2], &s[3]);
    unlink(b.path);
    unlink(b.copy);
    ps_mem_free(b.memory);
    ps_engine_destroy(b.engine);
    ps_config_destroy(c);
    return 0;
}
