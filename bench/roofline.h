/* roofline.h - how long a training step must take at least on one GPU with host memory attached, from what it computes, moves
 * and updates and from rates that were measured apart; and the FLOP of a token that model FLOP utilisation counts.
 *
 *     t_step >= max{ K (c P T + A) / F                      the GPU's products; c = 6, with activation checkpointing 8
 *                    A = 6 L s d T c / 6                    causal attention on sequences of s
 *                    H / B_h2d, D / B_d2h                   the link, both ways at once; else one after the other
 *                    (M + H + D) / B_dram                   the host's memory; M is what updates there touch
 *                    N / B_disk }                           as the link
 *
 * of K micro-batches with T tokens and P parameters, L layers d wide. Neither latencies nor the GPU's own memory are in it: it is
 * what nothing but less work could be faster than. Also included by tests. */
#ifndef PS_BENCH_ROOFLINE_H
#define PS_BENCH_ROOFLINE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

typedef struct roofline_model {
    double parameters, layers, width, sequence;
} roofline_model;

typedef struct roofline_work {
    double tokens;                                                            /* of a micro-batch */
    double micro_batches;                                                     /* of a step */
    bool recomputes;                                                          /* activation checkpointing */
    double to_device_bytes, to_host_bytes, disk_read_bytes, disk_write_bytes; /* moved in a step */
    double updated_on_host_bytes; /* that updates on the host read and write in a step */
} roofline_work;

/* Of one way alone, and while as much goes the other way; 0: as fast as alone. */
typedef struct roofline_ways {
    double in_bytes_per_s, out_bytes_per_s;
    double in_both_bytes_per_s, out_both_bytes_per_s;
    bool full_duplex; /* counts where no rates of both ways are known */
} roofline_ways;

typedef struct roofline_throughput {
    double flop_per_s; /* of products: of large ones, or as in a step */
    double host_memory_bytes_per_s;
    roofline_ways link, disk;
} roofline_throughput;

typedef enum roofline_part { ROOFLINE_GPU, ROOFLINE_LINK, ROOFLINE_HOST, ROOFLINE_DISK, ROOFLINE_PARTS } roofline_part;

typedef struct roofline {
    double part_s[ROOFLINE_PARTS];
    roofline_part by; /* the longest */
} roofline;

static inline const char *roofline_part_name(roofline_part p)
{
    static const char *const names[ROOFLINE_PARTS] = {"GEMMs", "link", "host memory", "disk"};
    return names[p];
}

/* 6 N + 6 L C T: products of parameters forward and backward, and causal attention's. What activation checkpointing computes again
 * does not count. */
static inline double roofline_flop_a_token(const roofline_model *m)
{
    return 6 * m->parameters + 6 * m->layers * m->width * m->sequence;
}

/* What a second of both ways at once does takes `at_once` seconds one after the other: 2 at full rates, 1 in turns. */
static inline double roofline_ways_s(const roofline_ways *w, double in_bytes, double out_bytes)
{
    const double in_s = in_bytes > 0 ? in_bytes / w->in_bytes_per_s : 0;
    const double out_s = out_bytes > 0 ? out_bytes / w->out_bytes_per_s : 0;
    const bool is_measured = w->in_both_bytes_per_s > 0 && w->out_both_bytes_per_s > 0;
    double at_once = w->full_duplex ? 2 : 1;
    if (is_measured)
        at_once = w->in_both_bytes_per_s / w->in_bytes_per_s + w->out_both_bytes_per_s / w->out_bytes_per_s;
    const double shared = (in_s + out_s) / (at_once > 1 ? at_once : 1), longer = in_s > out_s ? in_s : out_s;
    return shared > longer ? shared : longer;
}

static inline roofline roofline_of(const roofline_model *m, const roofline_work *w, const roofline_throughput *r)
{
    const double flop = roofline_flop_a_token(m) * (w->recomputes ? 8.0 / 6.0 : 1.0) * w->tokens * w->micro_batches;
    const double host_bytes = w->updated_on_host_bytes + w->to_device_bytes + w->to_host_bytes;
    roofline out = {.part_s = {[ROOFLINE_GPU] = flop / r->flop_per_s,
                               [ROOFLINE_LINK] = roofline_ways_s(&r->link, w->to_device_bytes, w->to_host_bytes),
                               [ROOFLINE_HOST] = host_bytes > 0 ? host_bytes / r->host_memory_bytes_per_s : 0,
                               [ROOFLINE_DISK] = roofline_ways_s(&r->disk, w->disk_read_bytes, w->disk_write_bytes)}};
    for (int p = 0; p < ROOFLINE_PARTS; p++)
        if (out.part_s[p] > out.part_s[out.by]) out.by = (roofline_part)p;
    return out;
}

/* FLOP/s of 16-bit products with sums in f32, dense, by the data sheet of the GPU of this name; 0 where it is not known. */
static inline double roofline_data_sheet_flop_per_s(const char *gpu_name)
{
    /* the first that the name contains */
    static const struct {
        const char *name;
        double flop_per_s;
    } sheets[] = {{"H100 PCIe", 756e12}, {"H100 NVL", 835e12}, {"H100", 989.5e12},    {"H200", 989.5e12},
                  {"A100", 312e12},      {"B200", 2250e12},    {"RTX 4090", 165.2e12}};
    for (size_t i = 0; i < sizeof sheets / sizeof *sheets; i++)
        if (strstr(gpu_name, sheets[i].name) != NULL) return sheets[i].flop_per_s;
    return 0;
}

#endif
