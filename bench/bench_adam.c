/* bench_adam.c - the Adam kernel against the memory it runs on, in one process and on the same pages.
 *
 * usage: bench_adam [ROUNDS [ELEMENTS ...]]     (default 15 rounds; 16777216, then the 124439808 of GPT-2 124M)
 *
 * A round times, one after the other,
 *   adam       the kernel on bf16 gradients, parameters over them, and fp32 master, m and v
 *   compact    the same with m and v in 8 bits (optimizer.params.state_format), 16.5 bytes an element
 *   stream 4   the same 28 bytes an element with next to no arithmetic: a = b a + c on the three fp32 arrays and one
 *              exclusive-or on the 16-bit one, in one loop that asks ahead as the kernel does
 *   stream c   the 16.5 bytes of compact: exclusive-or on 16-bit gradients and on m and v, and a = b a + c on master
 *   stream 1   a = b a + c on one fp32 array, 8 bytes an element
 * so that all see the same neighbours. GB/s (10^9) of the median and of the best round; "of stream 4" and "of stream c"
 * are medians of the rounds' ratios. */
#include "base/compact.h"
#include "bench.h"
#include "device/device.h"
#include "kernel/cpu/cpu_backend.h"

#define DEFAULT_ROUNDS 15
#define STREAM_BLOCK 4096
#define ADAM_BYTES 28
#define COMPACT_BYTES 16.5
#define STREAM_1_BYTES 8

/* The streams may use the widest loads and stores there are, as the kernel does. */
#define WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))

/* Asked for ahead of use: the best of 0 to 2048 where it was tried. */
#define STREAM_AHEAD 512

typedef struct arrays {
    uint16_t *grad;
    float *master, *m, *v;
} arrays;

/* A cache line of each fp32 array. */
typedef float line __attribute__((vector_size(64), aligned(4)));
typedef uint16_t half_line __attribute__((vector_size(32), aligned(2)));

static inline void stream_ask(const void *p)
{
    __builtin_prefetch((const char *)p + STREAM_AHEAD * sizeof(float));
}

/* Loads before stores: a load after the store of another array, at the same offset in its page, would be taken to
 * depend on it. n is a multiple of a line. */
WIDEST static void stream_4_block(uint16_t *g, float *w, float *m, float *v, int64_t n)
{
    for (int64_t i = 0; i < n; i += (int64_t)(sizeof(line) / sizeof(float))) {
        half_line *const pg = (half_line *)(void *)(g + i);
        line *const pw = (line *)(void *)(w + i), *const pm = (line *)(void *)(m + i),
                    *const pv = (line *)(void *)(v + i);
        stream_ask(pw), stream_ask(pm), stream_ask(pv);
        __builtin_prefetch(g + i + STREAM_AHEAD);
        const half_line g1 = *pg ^ 1;
        const line w1 = *pw * 0.5f + 0.1f, m1 = *pm * 0.5f + 0.1f, v1 = *pv * 0.5f + 0.1f;
        *pg = g1, *pw = w1, *pm = m1, *pv = v1;
    }
}

WIDEST static void stream_1_block(float *a, int64_t n)
{
    for (int64_t i = 0; i < n; i++) a[i] = 0.5f * a[i] + 0.1f;
}

static void stream_4_range(const void *args, int64_t lo, int64_t hi)
{
    const arrays *const x = args;
    stream_4_block(x->grad + lo, x->master + lo, x->m + lo, x->v + lo, hi - lo);
}

/* n is a multiple of a group. */
WIDEST static void stream_c_block(uint16_t *g, float *w, uint32_t *m, uint32_t *v, int64_t n, int64_t n_words)
{
    for (int64_t i = 0; i < n; i++) g[i] ^= 1;
    for (int64_t i = 0; i < n; i++) w[i] = 0.5f * w[i] + 0.1f;
    for (int64_t i = 0; i < n_words; i++) m[i] ^= 1;
    for (int64_t i = 0; i < n_words; i++) v[i] ^= 1;
}

static int64_t words_of(int64_t n)
{
    return ps_item_bytes(ps_format_item(PS_FORMAT_SIGNED), n) / (int64_t)sizeof(uint32_t);
}

static void stream_c_range(const void *args, int64_t lo, int64_t hi)
{
    const arrays *const x = args;
    uint32_t *const m = (uint32_t *)(void *)x->m, *const v = (uint32_t *)(void *)x->v;
    stream_c_block(x->grad + lo, x->master + lo, m + words_of(lo), v + words_of(lo), hi - lo, words_of(hi - lo));
}

static void stream_1_range(const void *args, int64_t lo, int64_t hi)
{
    stream_1_block(((const arrays *)args)->master + lo, hi - lo);
}

static void fill_range(const void *args, int64_t lo, int64_t hi)
{
    const arrays *const x = args;
    for (int64_t i = lo; i < hi; i++) x->grad[i] = 0x3c00, x->master[i] = x->m[i] = x->v[i] = 0.1f;
}

/* On the kernels' own threads: others, spinning where they have no work, would stand in the way. */
static double time_range(ps_backend *k, ps_cpu_range range, const arrays *x, int64_t n)
{
    const double begin = bench_now();
    ps_cpu_pool_run_range(ps_cpu_of(k)->pool, n, STREAM_BLOCK, 0, range, x);
    return bench_now() - begin;
}

static double time_adam(ps_backend *k, const arrays *x, int64_t n, bool is_compact)
{
    const ps_adam_args a = {.param = x->grad,
                            .grad = x->grad,
                            .master = x->master,
                            .m = x->m,
                            .v = x->v,
                            .n = n,
                            .lr = 1e-4f,
                            .beta1 = 0.9f,
                            .beta2 = 0.999f,
                            .eps = 1e-8f,
                            .weight_decay = 0.1f,
                            .one_minus_beta1 = 0.1f,
                            .one_minus_beta2 = 0.001f,
                            .bias1 = 0.1f,
                            .bias2 = 0.001f,
                            .grad_scale = 1.0f,
                            .decoupled_decay = true,
                            .is_compact = is_compact,
                            .param_dtype = PS_DTYPE_BF16,
                            .grad_dtype = PS_DTYPE_BF16};
    const double begin = bench_now();
    bench_check(ps_run_adam(k, NULL, &a, 0));
    return bench_now() - begin;
}

static void print_row(const char *name, double bytes, bench_samples *s)
{
    const double median = bench_median(s);
    printf("%-10s %12.2f %12.2f %10.2f\n", name, bytes / median * 1e-9, bytes / bench_least(s) * 1e-9, median * 1e3);
}

static void measure(ps_backend *k, ps_device *dev, int64_t n, int rounds)
{
    arrays x;
    bench_samples adam = {.n = 0}, stream_4 = {.n = 0}, stream_1 = {.n = 0}, ratio = {.n = 0};
    bench_samples compact = {.n = 0}, stream_c = {.n = 0}, ratio_c = {.n = 0};
    bench_check(ps_device_alloc(dev, n * 2, (void **)&x.grad));
    bench_check(ps_device_alloc(dev, n * 4, (void **)&x.master));
    bench_check(ps_device_alloc(dev, n * 4, (void **)&x.m));
    bench_check(ps_device_alloc(dev, n * 4, (void **)&x.v));
    (void)time_range(k, fill_range, &x, n);
    time_adam(k, &x, n, false); /* wakes the threads and maps the pages; not counted */
    for (int r = 0; r < rounds; r++) {
        bench_add(&adam, time_adam(k, &x, n, false));
        bench_add(&stream_4, time_range(k, stream_4_range, &x, n));
        bench_add(&stream_1, time_range(k, stream_1_range, &x, n));
        bench_add(&ratio, stream_4.seconds[r] / adam.seconds[r]);
    }
    memset(x.m, 0, (size_t)n * sizeof *x.m); /* groups of zeros */
    memset(x.v, 0, (size_t)n * sizeof *x.v);
    for (int r = 0; r < rounds; r++) {
        bench_add(&compact, time_adam(k, &x, n, true));
        (void)time_range(k, stream_c_range, &x, n); /* twice: the second has the bytes as they were */
        bench_add(&stream_c, time_range(k, stream_c_range, &x, n));
        bench_add(&ratio_c, stream_c.seconds[r] / compact.seconds[r]);
    }
    const double elements = (double)n;
    printf("%lld elements, %.0f MB, %d rounds\n", (long long)n, elements * 14e-6, rounds);
    printf("%-10s %12s %12s %10s\n", "", "median GB/s", "best GB/s", "median ms");
    print_row("adam", elements * ADAM_BYTES, &adam);
    print_row("stream 4", elements * ADAM_BYTES, &stream_4);
    print_row("compact", elements * COMPACT_BYTES, &compact);
    print_row("stream c", elements * COMPACT_BYTES, &stream_c);
    print_row("stream 1", elements * STREAM_1_BYTES, &stream_1);
    printf("adam runs at %.3f of stream 4, compact at %.3f of stream c\n\n", bench_median(&ratio),
           bench_median(&ratio_c));
    ps_device_free(dev, x.grad, n * 2, NULL);
    ps_device_free(dev, x.master, n * 4, NULL);
    ps_device_free(dev, x.m, n * 4, NULL);
    ps_device_free(dev, x.v, n * 4, NULL);
}

int main(int argc, char **argv)
{
    static const int64_t sizes[] = {16777216, 124439808};
    const int rounds = argc > 1 ? atoi(argv[1]) : DEFAULT_ROUNDS;
    if (rounds < 1 || rounds > BENCH_SAMPLES_MAX) {
        fprintf(stderr, "usage: bench_adam [ROUNDS [ELEMENTS ...]], 1 to %d rounds\n", BENCH_SAMPLES_MAX);
        return 1;
    }
    ps_device *dev = NULL;
    int n_threads;
    ps_backend *k = bench_backend(&n_threads);
    bench_check(ps_device_create(&ps_device_cpu_ops, "device", INT64_C(1) << 40, &dev));
    ps_device_set_keep(dev, false);
    printf("kernels: %s, %d threads\n\n", ps_backend_name(k), n_threads);
    if (argc > 2)
        for (int i = 2; i < argc; i++) measure(k, dev, atoll(argv[i]), rounds);
    else
        for (size_t i = 0; i < PS_ARRAY_LEN(sizes); i++) measure(k, dev, sizes[i], rounds);
    ps_device_destroy(dev);
    ps_backend_destroy(k);
    return 0;
}
