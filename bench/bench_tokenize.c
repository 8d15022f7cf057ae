/* bench_tokenize.c - how fast text becomes tokens, on one core.
 *
 * usage: bench_tokenize [TOKENIZER... [-- TEXT]]
 * Without arguments: GPT-2 and Qwen3 (data/gpt2, build/qwen3/tokenizer.json) over data/text/moby-dick.txt. The text is
 * encoded for a second or more, with the word cache as the pass before left it; the first pass finds it empty. MB are
 * 10^6 bytes of text. */
#include <string.h>

#include "base/base.h"
#include "base/file.h"
#include "base/mem.h"
#include "bench.h"
#include "data/tokenizer.h"

static double encode(ps_tokenizer *t, const char *text, int64_t n_bytes, int64_t *n_ids)
{
    int32_t *ids;
    const double begin = bench_now();
    bench_check(ps_tokenizer_encode(t, text, n_bytes, &ids, n_ids));
    const double seconds = bench_now() - begin;
    ps_mem_free(ids);
    return seconds;
}

static void bench_tokenizer(const char *path, const char *text, int64_t n_bytes)
{
    ps_tokenizer *t;
    int64_t n_ids;
    double begin = bench_now();
    bench_check(ps_tokenizer_open(path, &t));
    const double open_s = bench_now() - begin, first_s = encode(t, text, n_bytes, &n_ids);
    bench_samples samples = {0};
    for (double sum = 0; sum < 1; sum += samples.seconds[samples.n - 1]) {
        bench_add(&samples, encode(t, text, n_bytes, &n_ids));
        if (samples.n == BENCH_SAMPLES_MAX) break;
    }
    const double mb = (double)n_bytes * 1e-6;
    printf("%-34s %9.0f %10.1f %10.1f %10.1f %9.2f\n", path, open_s * 1e3, mb / first_s, mb / bench_median(&samples),
           mb / bench_least(&samples), (double)n_bytes / (double)n_ids);
    ps_tokenizer_close(t);
}

int main(int argc, char **argv)
{
    static const char *const usual[] = {"data/gpt2", "build/qwen3/tokenizer.json"};
    const char *path = "data/text/moby-dick.txt";
    int n = 0;
    while (1 + n < argc && strcmp(argv[1 + n], "--") != 0) n++;
    if (1 + n + 1 < argc) path = argv[1 + n + 1];
    char *text, cpu[128];
    int64_t n_bytes;
    bench_check(ps_file_read_all(path, PS_GIB, &text, &n_bytes));
    ps_machine_cpu_name(NULL, cpu, sizeof cpu);
    printf("%s, one core; %s, %lld bytes; MB/s\n", cpu, path, (long long)n_bytes);
    printf("%-34s %9s %10s %10s %10s %9s\n", "tokenizer", "open, ms", "first", "median", "best", "B/token");
    for (int i = 0; i < n; i++) bench_tokenizer(argv[1 + i], text, n_bytes);
    for (size_t i = 0; n == 0 && i < PS_ARRAY_LEN(usual); i++) bench_tokenizer(usual[i], text, n_bytes);
    ps_mem_free(text);
    return 0;
}
