/* The counts of emu_counts.h. One kernel runs at a time, and one of its warps until that meets; so what is kept of
 * accesses since the last meeting is of the lanes of one warp. */
#include "cuda/emu_counts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARP = 32, KERNELS_MAX = 512, REQUESTS_MAX = 1 << 18, PAGE_SECTORS = 64 };

/* The lanes' accesses that are one instruction of a warp: the sectors they are in. */
typedef struct request {
    unsigned n_sectors;
    uint64_t sectors[WARP];
} request;

/* An instruction, since the last meeting of the warp. */
typedef struct site {
    uint64_t turn;       /* of what follows; another one: nothing yet */
    uint32_t next[WARP]; /* of each lane: its next execution */
    unsigned n, n_allocated;
    request *requests; /* by number of the execution */
} site;

/* Consecutive sectors of memory that were touched in this launch, a bit each. */
typedef struct page {
    uint64_t launch; /* another one: free */
    uint64_t number, read, written;
} page;

static struct {
    emu_kernel_counts kernels[KERNELS_MAX], *now; /* NULL: not counted */
    unsigned n_kernels;
    uint64_t turn, launch;
    site *sites;
    unsigned n_sites, n_requests; /* requests: allocated, of all sites */
    unsigned n_basic_blocks;      /* that emu_executed has room for */
    page *pages;                  /* open addressing, a power of two of them, at most half full */
    size_t n_pages, n_used;
} c;

uint32_t (*emu_executed)[EMU_THREADS_MAX];

static void *checked(void *p)
{
    if (p != NULL) return p;
    fprintf(stderr, "emulator: no memory for counts\n");
    abort();
}

void emu_counts_begin(void)
{
    for (unsigned i = 0; i < c.n_kernels; i++) free(c.kernels[i].sites);
    c.n_kernels = 0;
    c.now = NULL;
}

const emu_kernel_counts *emu_counts(unsigned *n)
{
    *n = c.n_kernels;
    return c.kernels;
}

static emu_kernel_counts *counts_of(const emu_kernel *kernel)
{
    for (unsigned i = 0; i < c.n_kernels; i++)
        if (c.kernels[i].kernel == kernel) return &c.kernels[i];
    if (c.n_kernels == KERNELS_MAX) {
        fprintf(stderr, "emulator: more than %d kernels are counted: KERNELS_MAX of emu_counts.c\n", KERNELS_MAX);
        abort();
    }
    emu_kernel_counts *const k = &c.kernels[c.n_kernels++];
    *k = (emu_kernel_counts){.kernel = kernel, .sites = checked(calloc(kernel->n_counted_sites + 1, sizeof *k->sites))};
    return k;
}

void emu_counts_launch(const emu_kernel *kernel)
{
    c.now = NULL;
    if (kernel->basic_blocks == NULL) return;
    if (kernel->n_basic_blocks > c.n_basic_blocks) {
        c.n_basic_blocks = kernel->n_basic_blocks;
        free(emu_executed);
        emu_executed = checked(calloc(c.n_basic_blocks, sizeof *emu_executed));
    }
    if (kernel->n_counted_sites > c.n_sites) {
        c.sites = checked(realloc(c.sites, kernel->n_counted_sites * sizeof *c.sites));
        memset(c.sites + c.n_sites, 0, (kernel->n_counted_sites - c.n_sites) * sizeof *c.sites);
        c.n_sites = kernel->n_counted_sites;
    }
    c.now = counts_of(kernel);
    c.now->launches++;
    c.launch++;
    c.n_used = 0;
}

void emu_counts_turn(void)
{
    c.turn++;
}

void emu_counts_block(unsigned threads)
{
    if (c.now == NULL) return;
    for (unsigned b = 0; b < c.now->kernel->n_basic_blocks; b++) {
        const uint64_t size = c.now->kernel->basic_blocks[b];
        for (unsigned first = 0; first < threads; first += WARP) {
            uint32_t most = 0;
            for (unsigned t = first; t < threads && t < first + WARP; t++) {
                const uint32_t n = emu_executed[b][t];
                c.now->thread_instructions += n * size;
                most = n > most ? n : most;
            }
            c.now->warp_instructions += most * size;
        }
        memset(emu_executed[b], 0, threads * sizeof **emu_executed);
    }
}

/* ---- accesses ---- */

static page *find_page(page *pages, size_t n, uint64_t number)
{
    size_t at = (size_t)(number * 0x9e3779b97f4a7c15u >> 20) & (n - 1);
    while (pages[at].launch == c.launch && pages[at].number != number) at = (at + 1) & (n - 1);
    return &pages[at];
}

static void make_room_for_page(void)
{
    if (2 * (c.n_used + 1) <= c.n_pages) return;
    const size_t n = c.n_pages > 0 ? 2 * c.n_pages : 1 << 12;
    page *const grown = checked(calloc(n, sizeof *grown));
    for (size_t i = 0; i < c.n_pages; i++)
        if (c.pages[i].launch == c.launch) *find_page(grown, n, c.pages[i].number) = c.pages[i];
    free(c.pages);
    c.pages = grown, c.n_pages = n;
}

static void touch(uint64_t sector, bool is_read)
{
    make_room_for_page();
    page *const p = find_page(c.pages, c.n_pages, sector / PAGE_SECTORS);
    if (p->launch != c.launch) {
        *p = (page){.launch = c.launch, .number = sector / PAGE_SECTORS};
        c.n_used++;
    }
    const uint64_t bit = (uint64_t)1 << sector % PAGE_SECTORS;
    uint64_t *const bits = is_read ? &p->read : &p->written;
    if ((*bits & bit) == 0) (is_read ? &c.now->read : &c.now->written)->touched_sectors++;
    *bits |= bit;
}

/* The number of this execution by the lane that runs, since the last meeting. */
static unsigned execution(site *s)
{
    if (s->turn != c.turn) {
        s->turn = c.turn, s->n = 0;
        memset(s->next, 0, sizeof s->next);
    }
    return s->next[emu_thread_index.x % WARP]++;
}

static request *request_of(site *s, unsigned number, unsigned line)
{
    if (number >= s->n_allocated) {
        const unsigned n = s->n_allocated > 0 ? 2 * s->n_allocated : 4;
        if (c.n_requests + n - s->n_allocated > REQUESTS_MAX)
            emu_stop_at("too many accesses between two barriers to be counted: a smaller shape, or REQUESTS_MAX", line);
        c.n_requests += n - s->n_allocated;
        s->requests = checked(realloc(s->requests, n * sizeof *s->requests));
        s->n_allocated = n;
    }
    for (; s->n <= number; s->n++) s->requests[s->n].n_sectors = 0;
    return &s->requests[number];
}

void emu_count_off(unsigned number)
{
    (void)execution(&c.sites[number]);
}

/* An access is aligned to its size, which divides that of a sector: it is in one. */
void emu_count_global(unsigned number, uint64_t address, unsigned bytes, emu_access access, unsigned line)
{
    site *const s = &c.sites[number];
    request *const r = request_of(s, execution(s), line);
    const bool is_read = access == EMU_READ;
    emu_traffic *const of_kernel = is_read ? &c.now->read : &c.now->written;
    emu_site_counts *const of_site = &c.now->sites[number];
    const uint64_t sector = address / EMU_SECTOR_BYTES;
    of_site->line = line, of_site->bytes = bytes, of_site->access = access;
    of_site->moved.bytes += bytes, of_kernel->bytes += bytes;
    if (r->n_sectors == 0) of_site->moved.requests++, of_kernel->requests++;
    for (unsigned i = r->n_sectors; i > 0; i--)
        if (r->sectors[i - 1] == sector) return;
    r->sectors[r->n_sectors++] = sector;
    of_site->moved.sectors++, of_kernel->sectors++;
    touch(sector, is_read);
}

void emu_count_generic(unsigned number, uint64_t address, unsigned bytes, emu_access access, unsigned line)
{
    if (emu_is_global(address))
        emu_count_global(number, address, bytes, access, line);
    else
        emu_count_off(number);
}
