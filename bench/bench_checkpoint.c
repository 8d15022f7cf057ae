/* bench_checkpoint.c - saving and loading a checkpoint against plain sequential writing and reading of as many bytes.
 *
 * usage: bench_checkpoint [FOLDER [REPEATS [key=value ...]]]      (default: build, 3 repeats; GPT-2 124M in bf16, 1.5 GB)
 * Plain: one file of the same bytes (a disk may store repeated ones in no time), 1 MiB a call, fsync. Files are dropped
 * from the page cache before they are read. Writing comes first, then a pause, then reading, each alternating: a
 * virtual disk is slow for a while after much has been written. Each repeat measures all four in turn; what is printed
 * is the median of each, in GB/s (10^9), and the ratio. Then one checkpoint is saved while training runs: how long a
 * step takes without, how long training stood still for it. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench.h"

#define PIECE ((size_t)1 << 20)
#define PAUSE_SECONDS 5

static const char config_text[] =
    "{\"train_micro_batch_size_per_gpu\": 1, \"bf16\": {\"enabled\": true},"
    " \"model\": {\"preset\": \"gpt2\", \"embd_pdrop\": 0, \"resid_pdrop\": 0, \"attn_pdrop\": 0},"
    " \"data\": {\"sequence_length\": 64}, \"memory\": {\"device\": \"6GB\", \"host\": 0},"
    " \"train\": {\"save_interval\": 1, \"keep_last\": 1}}";

typedef struct bench {
    ps_engine *engine;
    char folder[512], plain[600];
    int64_t bytes;
    char *content; /* of the checkpoint's two large files */
    int64_t content_bytes;
} bench;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

/* Written back already: only clean pages can be dropped. */
static void drop_cache(const char *path)
{
    const int fd = open(path, O_RDONLY);
    if (fd < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0) fail(path);
    close(fd);
}

/* The checkpoint's bytes again, from memory. */
static double plain_write(const bench *b)
{
    unlink(b->plain);
    const double begin = bench_now();
    const int fd = open(b->plain, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0) fail(b->plain);
    for (size_t done = 0, n; done < (size_t)b->content_bytes; done += n) {
        n = (size_t)b->content_bytes - done < PIECE ? (size_t)b->content_bytes - done : PIECE;
        if (write(fd, b->content + done, n) != (ssize_t)n) fail(b->plain);
    }
    if (fsync(fd) != 0) fail(b->plain);
    close(fd);
    return bench_now() - begin;
}

static double plain_read(const bench *b)
{
    char *piece = malloc(PIECE);
    if (piece == NULL) fail("memory");
    drop_cache(b->plain);
    const double begin = bench_now();
    const int fd = open(b->plain, O_RDONLY);
    if (fd < 0) fail(b->plain);
    while (read(fd, piece, PIECE) > 0) {
    }
    close(fd);
    const double seconds = bench_now() - begin;
    free(piece);
    return seconds;
}

static void remove_last(const bench *b)
{
    char path[700];
    static const char *const names[] = {"/model-0-of-1.safetensors", "/optimizer-0-of-1.safetensors", "/state.json",
                                        ""};
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/step-000002%s", b->folder, names[i]);
        (void)remove(path);
    }
}

static double save(bench *b)
{
    ps_checkpoint_info info = {.struct_size = sizeof info};
    remove_last(b); /* the plain file is removed beforehand too */
    const double begin = bench_now();
    bench_check(ps_engine_save_checkpoint(b->engine, b->folder, NULL, &info));
    b->bytes = info.bytes;
    return bench_now() - begin;
}

static const char *const file_names[] = {"model-0-of-1.safetensors", "optimizer-0-of-1.safetensors"};

static void keep_content(bench *b)
{
    b->content = malloc((size_t)b->bytes);
    if (b->content == NULL) fail("memory");
    for (int i = 0; i < 2; i++) {
        char path[700];
        snprintf(path, sizeof path, "%s/step-000002/%s", b->folder, file_names[i]);
        const int fd = open(path, O_RDONLY);
        if (fd < 0) fail(path);
        for (ssize_t n; (n = read(fd, b->content + b->content_bytes, (size_t)(b->bytes - b->content_bytes))) > 0;)
            b->content_bytes += n;
        close(fd);
    }
}

static double load(const bench *b)
{
    char path[700];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/step-000002/%s", b->folder, file_names[i]);
        drop_cache(path);
    }
    const double begin = bench_now();
    bench_check(ps_engine_load_checkpoint(b->engine, b->folder, NULL));
    return bench_now() - begin;
}

static double step(const bench *b)
{
    static int32_t tokens[64];
    const double begin = bench_now();
    bench_check(
        ps_forward(b->engine, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = tokens, .targets = tokens}, NULL));
    bench_check(ps_backward(b->engine));
    bench_check(ps_step(b->engine));
    return bench_now() - begin;
}

static void print_rate(const char *what, int64_t bytes, bench_samples *ours, bench_samples *plain)
{
    const double a = (double)bytes / bench_median(ours) * 1e-9, p = (double)bytes / bench_median(plain) * 1e-9;
    printf("%-6s %8.3f GB/s, plain %8.3f GB/s, ratio %.2f\n", what, a, p, a / p);
}

static void save_meanwhile(bench *b)
{
    bench_samples without = {.n = 0}, with = {.n = 0};
    for (int i = 0; i < 6; i++) bench_add(&without, step(b));
    bench_check(ps_engine_begin_checkpoint(b->engine, b->folder, NULL));
    while (!ps_engine_checkpoint_is_done(b->engine)) bench_add(&with, step(b));
    ps_checkpoint_info info = {.struct_size = sizeof info};
    bench_check(ps_engine_finish_checkpoint(b->engine, &info));
    printf("while training goes on: %.2f s, training stood %.3f s; a step takes %.3f s without, %.3f s while saving\n",
           info.seconds, info.stall_seconds, bench_median(&without), bench_median(&with));
}

int main(int argc, char **argv)
{
    static bench b;
    bench_samples times[4] = {{.n = 0}};
    const int repeats = argc > 2 ? atoi(argv[2]) : 3;
    ps_config *c = NULL;
    snprintf(b.folder, sizeof b.folder, "%s/bench-checkpoints", argc > 1 ? argv[1] : "build");
    bench_check(ps_config_parse(config_text, "bench_checkpoint", &c));
    for (int i = 3; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (equals == NULL) return fprintf(stderr, "%s is not key=value\n", argv[i]), 2;
        *equals = '\0';
        bench_check(ps_config_set(c, argv[i], equals + 1));
    }
    bench_check(ps_config_validate(c));
    bench_check(ps_initialize_engine(ps_model_from_config, c, 0, c, &b.engine));
    snprintf(b.plain, sizeof b.plain, "%s/plain", b.folder);
    for (int i = 0; i < 2; i++) (void)step(&b);
    (void)save(&b);
    keep_content(&b);
    for (int i = 0; i < repeats; i++) {
        bench_add(&times[0], save(&b));
        bench_add(&times[1], plain_write(&b));
    }
    sleep(PAUSE_SECONDS);
    (void)plain_read(&b);
    (void)load(&b);
    for (int i = 0; i < repeats; i++) {
        bench_add(&times[2], load(&b));
        bench_add(&times[3], plain_read(&b));
    }
    printf("%.2f GB in %s, %d threads, median of %d\n", (double)b.bytes * 1e-9, b.folder, ps_cpu_threads(), repeats);
    print_rate("save", b.bytes, &times[0], &times[1]);
    print_rate("load", b.bytes, &times[2], &times[3]);
    save_meanwhile(&b);
    unlink(b.plain);
    free(b.content);
    ps_engine_destroy(b.engine);
    ps_config_destroy(c);
    return 0;
}
