/* count_op.c - bench_op, linked to this, finds a GPU whose kernels are PTX on the emulator, and prints what they execute
 * and move (cuda/emu_counts.h) in place of times: `make gpu-counts`. GEMMs of cuBLASLt are left out; what they would
 * write keeps the small random numbers that bench_op puts everywhere. */
#include "gpu/count_op.h"

#include <stdio.h>

#include "cuda/emu_counts.h"
#include "gpu/mock_gpu.h"

/* An instruction is listed whose sectors are more than LISTED_RATIO times the bytes that its lanes ask for, and at least
 * LISTED_SHARE of the kernel's. */
#define LISTED_SHARE 0.01
#define LISTED_RATIO 1.1

enum { LISTED_MAX = 512, LINE_BYTES = 1024, PLACE_BYTES = 128 };

typedef struct listed_site {
    const emu_kernel *kernel;
    emu_site_counts counts;
    char place[PLACE_BYTES];
} listed_site;

static int n_gemms;
static listed_site listed[LISTED_MAX];
static int n_listed;

/* ---- the GPU ---- */

static ps_status leave_gemm_out(void *self, ps_cu_stream stream, const ps_cuda_gemm *p, bool *is_done)
{
    (void)self, (void)stream, (void)p;
    n_gemms++;
    *is_done = true;
    return PS_OK;
}

static ps_status no_gemms(ps_gpu *gpu, ps_cuda_gemms *out)
{
    (void)gpu;
    *out = (ps_cuda_gemms){.workspace_bytes = FAKE_GEMM_BYTES, .multiply = leave_gemm_out};
    return PS_OK;
}

__attribute__((constructor)) static void begin(void)
{
    mock_gpu_begin(&(fake_options){.seed = 1, .page_bytes = PS_PAGE_BYTES});
    mock_gpu.parts.gemms = no_gemms;
}

__attribute__((destructor)) static void end(void)
{
    if (!mock_gpu_end()) _Exit(99);
}

/* ---- the table ---- */

void count_op_print_head(void)
{
    printf("| operator | shape | kernel | launches | instructions, k | read: asked, MB | sectors, MB | touched, MB | "
           "sectors a request | written: asked, MB | sectors, MB | touched, MB | sectors a request | roofline, MB | "
           "touched / roofline |\n|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n");
}

void count_op_begin(void)
{
    emu_counts_begin();
    n_gemms = 0;
}

static double mb_of_sectors(uint64_t n)
{
    return (double)n * EMU_SECTOR_BYTES * 1e-6;
}

static void print_traffic(const emu_traffic *t)
{
    if (t->requests == 0) {
        printf(" | | | |");
        return;
    }
    printf(" %.3f | %.3f | %.3f | %.2f |", (double)t->bytes * 1e-6, mb_of_sectors(t->sectors),
           mb_of_sectors(t->touched_sectors), (double)t->sectors / (double)t->requests);
}

static void print_row(const char *name, const char *shape, const char *kernel, const emu_kernel_counts *k)
{
    printf("| %s | %s | %s | %llu | %.1f |", name, shape, kernel, (unsigned long long)k->launches,
           (double)k->warp_instructions * 1e-3);
    print_traffic(&k->read);
    print_traffic(&k->written);
}

/* Of an operator's kernels, and of its roofline where no GEMM has a part in it. */
static void print_roofline(const emu_kernel_counts *all, const ps_cost *cost)
{
    printf(" %.3f |", cost->bytes * 1e-6);
    if (n_gemms > 0)
        printf(" |\n");
    else
        printf(" %.2f |\n",
               mb_of_sectors(all->read.touched_sectors + all->written.touched_sectors) / (cost->bytes * 1e-6));
}

static void add_traffic(emu_traffic *to, const emu_traffic *t)
{
    to->requests += t->requests, to->bytes += t->bytes;
    to->sectors += t->sectors, to->touched_sectors += t->touched_sectors;
}

static void add(emu_kernel_counts *to, const emu_kernel_counts *k)
{
    to->launches += k->launches, to->warp_instructions += k->warp_instructions;
    add_traffic(&to->read, &k->read);
    add_traffic(&to->written, &k->written);
}

/* The sites of the kernel that move more than they are asked for; of those of an earlier operator the larger. */
static void list_sites(const emu_kernel_counts *k)
{
    for (unsigned i = 0; i < k->kernel->n_counted_sites; i++) {
        const emu_site_counts *const s = &k->sites[i];
        const emu_traffic *const of_kernel = s->access == EMU_READ ? &k->read : &k->written;
        if ((double)s->moved.sectors * EMU_SECTOR_BYTES <= LISTED_RATIO * (double)s->moved.bytes ||
            (double)s->moved.sectors < LISTED_SHARE * (double)of_kernel->sectors)
            continue;
        int at = 0;
        while (at < n_listed && (listed[at].kernel != k->kernel || listed[at].counts.line != s->line)) at++;
        if (at == LISTED_MAX || (at < n_listed && listed[at].counts.moved.sectors >= s->moved.sectors)) continue;
        listed[at] = (listed_site){.kernel = k->kernel, .counts = *s};
        n_listed += at == n_listed;
    }
}

void count_op_print(const char *name, const char *shape, const ps_cost *cost)
{
    unsigned n;
    char text[64];
    const emu_kernel_counts *const kernels = emu_counts(&n);
    emu_kernel_counts all = {.kernel = NULL};
    if (n == 0 && n_gemms == 0) {
        fprintf(stderr,
                "count_op: %s: nothing was counted; expected the kernels of build/cuda/counts/libkernels.so, "
                "which `make gpu-counts` builds\n",
                name);
        exit(1);
    }
    for (unsigned i = 0; i < n; i++) {
        const bool is_first = i == 0;
        print_row(is_first ? name : "", is_first ? shape : "", kernels[i].kernel->name + strlen("ps_gpu_"),
                  &kernels[i]);
        add(&all, &kernels[i]);
        list_sites(&kernels[i]);
        if (n == 1 && n_gemms == 0)
            print_roofline(&all, cost);
        else
            printf(" | |\n");
    }
    if (n == 1 && n_gemms == 0) return;
    snprintf(text, sizeof text,
             n_gemms == 0 ? "all"
             : n > 0      ? "all; GEMMs left out: %d"
                          : "GEMMs left out: %d",
             n_gemms);
    print_row(n > 0 ? "" : name, n > 0 ? "" : shape, text, &all);
    print_roofline(&all, cost);
}

/* ---- the list ---- */

/* Appends file name and line of source file `number` of the PTX, whose .file lines are at its end. */
static void add_source(FILE *f, int number, int at, char *text)
{
    char line[LINE_BYTES], path[LINE_BYTES] = "?";
    int n;
    rewind(f);
    while (fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, " .file %d \"%1023[^\"]", &n, path) == 2 && n == number) break;
    const char *const slash = strrchr(path, '/');
    const size_t used = strlen(text);
    snprintf(text + used, PLACE_BYTES - used, "%s%s:%d", used > 0 ? " in " : "", slash != NULL ? slash + 1 : path, at);
}

/* Where in the sources a line of PTX is from: what the last .loc before it says that has a line. */
static void find_place(const char *ptx, unsigned number, char *text)
{
    char line[LINE_BYTES];
    int file = 0, at = 0, caller = 0, caller_at = 0;
    FILE *const f = fopen(ptx, "r");
    text[0] = 0;
    if (f == NULL) {
        snprintf(text, PLACE_BYTES, "%s:%u", ptx, number);
        return;
    }
    for (unsigned i = 1; i <= number && fgets(line, sizeof line, f) != NULL; i++) {
        int in_file, in_line;
        if (sscanf(line, " .loc %d %d", &in_file, &in_line) != 2 || in_line == 0) continue;
        const char *const inlined = strstr(line, "inlined_at");
        file = in_file, at = in_line, caller = 0;
        if (inlined != NULL) (void)sscanf(inlined, "inlined_at %d %d", &caller, &caller_at);
    }
    add_source(f, file, at, text);
    if (caller > 0) add_source(f, caller, caller_at, text);
    fclose(f);
}

static bool is_one_place(const listed_site *a, const listed_site *b)
{
    return a->kernel == b->kernel && a->counts.access == b->counts.access && a->counts.bytes == b->counts.bytes &&
           strcmp(a->place, b->place) == 0;
}

static void print_site(const listed_site *l, int n)
{
    const emu_site_counts *const s = &l->counts;
    printf("| %s | %s | %d | %s | %u | %llu | %.3f | %.3f | %.2f |\n", l->kernel->name + strlen("ps_gpu_"), l->place, n,
           s->access == EMU_READ    ? "reads"
           : s->access == EMU_WRITE ? "writes"
                                    : "adds",
           s->bytes, (unsigned long long)s->moved.requests, (double)s->moved.bytes * 1e-6,
           mb_of_sectors(s->moved.sectors), (double)s->moved.sectors / (double)s->moved.requests);
}

/* Those of one place of the sources together: it may be unrolled. */
void count_op_print_sites(void)
{
    printf("\nWhat moves more than %.1f times what its lanes ask for\n\n"
           "| kernel | source | instructions | does | bytes a lane | requests | asked, MB | sectors, MB | sectors a "
           "request |\n|---|---|--:|---|--:|--:|--:|--:|--:|\n",
           LISTED_RATIO);
    for (int i = 0; i < n_listed; i++) find_place(listed[i].kernel->file, listed[i].counts.line, listed[i].place);
    for (int i = 0; i < n_listed; i++) {
        int n = 1;
        for (int j = n_listed - 1; j > i; j--) {
            if (!is_one_place(&listed[i], &listed[j])) continue;
            add_traffic(&listed[i].counts.moved, &listed[j].counts.moved);
            listed[j] = listed[--n_listed];
            n++;
        }
        print_site(&listed[i], n);
    }
}
