/* One rank of several that an MPI launcher starts, for test/cli/mpi_lib.sh; $RANKS says how many.
 *
 * usage: mpi_ranks conformance | big | fail | leave | kill | stop | measure
 * Where a rank is to be missed (fail, leave, kill, stop), the others print what they hear of it and end with 3. */
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/machine.h"
#include "comm_conformance.h"

/* Alone under a launcher a process would choose no MPI. */
static int32_t size_expected(void)
{
    const char *text = getenv("RANKS");
    return text != NULL ? (int32_t)strtol(text, NULL, 10) : 0;
}

static int rank_conforms(ps_comm *c)
{
    return conformance_run(c, size_expected(), "mpi (");
}

/* Waits for an all-gather until it fails, and says why. */
static int rank_waits(ps_comm *c)
{
    enum { N = 1 << 20 };
    uint16_t *payload = calloc(N, sizeof *payload);
    ps_status st = PS_OK;
    while (st == PS_OK) {
        const ps_comm_part parts[] = {{payload, N / 2, 0}, {payload + N / 2, N / 2, 1}};
        const ps_transfer t = {.parts = parts, .n_parts = 2, .dtype = PS_DTYPE_BF16, .what = "group 7"};
        ps_event done;
        st = ps_collectives_gather(ps_comm_collectives(c), &t, &done);
        if (st == PS_OK) st = ps_collectives_wait(ps_comm_collectives(c), done);
    }
    free(payload);
    printf("rank %d heard: %s\n", ps_comm_rank(c), ps_last_error());
    fflush(stdout);
    return 3;
}

static int rank_fails(ps_comm *c)
{
    if (ps_comm_barrier(c) != PS_OK) return 1;
    if (ps_comm_rank(c) == 1) {
        usleep(100000);
        ps_comm_fail(c, "the disk is full");
    }
    return rank_waits(c);
}

static int rank_leaves(ps_comm *c)
{
    if (ps_comm_barrier(c) != PS_OK) return 1;
    if (ps_comm_rank(c) != 1) return rank_waits(c);
    usleep(100000);
    return 4;
}

static int rank_is_hit_by(ps_comm *c, int signal_number)
{
    if (ps_comm_barrier(c) != PS_OK) return 1;
    if (ps_comm_rank(c) == 1) {
        usleep(300000);
        kill(getpid(), signal_number);
    }
    return rank_waits(c);
}

static int rank_is_killed(ps_comm *c)
{
    return rank_is_hit_by(c, SIGKILL);
}

static int rank_is_stopped(ps_comm *c)
{
    return rank_is_hit_by(c, SIGSTOP);
}

/* More than 2^31 elements of one part, in little memory: the same pages again and again, and others at the end, which a
 * lost bit of an offset would miss. */
static int rank_big(ps_comm *c)
{
    enum { WINDOW = 16 << 20, N_WINDOWS = 257, TAIL = 1234 };
    const int32_t rank = ps_comm_rank(c);
    const int64_t tail_bytes = TAIL * 2, bytes = (int64_t)WINDOW * N_WINDOWS + tail_bytes;
    const int fd = memfd_create("window", 0);
    CHECK(rank, fd >= 0 && ftruncate(fd, WINDOW) == 0);
    char *base = mmap(NULL, (size_t)WINDOW * (N_WINDOWS + 1), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(rank, base != MAP_FAILED);
    for (int64_t i = 0; i < N_WINDOWS; i++)
        CHECK(rank,
              mmap(base + i * WINDOW, WINDOW, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED);
    char *tail = base + (int64_t)WINDOW * N_WINDOWS;
    const ps_rng_key key = {.seed = 1};
    for (int64_t i = 0; rank == 0 && i < WINDOW; i++) base[i] = (char)ps_rng_u32(key, (uint64_t)i / 4096);
    for (int64_t i = 0; rank == 0 && i < tail_bytes; i++) tail[i] = (char)ps_rng_u32(key, (uint64_t)(bytes + i));
    const ps_comm_part part = {.payload = base, .n = bytes / 2, .owner = 0};
    const ps_transfer t = {.parts = &part, .n_parts = 1, .dtype = PS_DTYPE_F16, .what = "big"};
    ps_event done;
    CHECK(rank, part.n > (int64_t)1 << 31);
    CHECK(rank, ps_collectives_gather(ps_comm_collectives(c), &t, &done) == PS_OK);
    CHECK(rank, ps_collectives_wait(ps_comm_collectives(c), done) == PS_OK);
    for (int64_t i = 0; i < WINDOW; i++) CHECK(rank, base[i] == (char)ps_rng_u32(key, (uint64_t)i / 4096));
    for (int64_t i = 0; i < tail_bytes; i++) CHECK(rank, tail[i] == (char)ps_rng_u32(key, (uint64_t)(bytes + i)));
    munmap(base, (size_t)WINDOW * (N_WINDOWS + 1));
    close(fd);
    return 0;
}

static int measure(ps_comm *c, const char *name, bool is_gather, ps_dtype dtype, char *payload)
{
    enum { ROUNDS = 20 };
    const int32_t rank = ps_comm_rank(c), p = ps_comm_size(c);
    const int64_t part_bytes = (int64_t)32 << 20, n = part_bytes / (int64_t)ps_dtype_bytes(dtype);
    ps_comm_part parts[16];
    CHECK(rank, p <= 16);
    for (int32_t r = 0; r < p; r++) parts[r] = (ps_comm_part){.payload = payload + r * part_bytes, .n = n, .owner = r};
    int64_t best_ns = INT64_MAX;
    for (int i = 0; i < ROUNDS; i++) {
        const ps_transfer t = {.parts = parts, .n_parts = p, .dtype = dtype, .what = name};
        ps_collectives *x = ps_comm_collectives(c);
        ps_event done;
        CHECK(rank, ps_comm_barrier(c) == PS_OK);
        const int64_t begin_ns = ps_clock_ns();
        CHECK(rank, (is_gather ? ps_collectives_gather(x, &t, &done) : ps_collectives_reduce(x, &t, &done)) == PS_OK);
        CHECK(rank, ps_collectives_wait(x, done) == PS_OK);
        best_ns = ps_min_i64(best_ns, ps_clock_ns() - begin_ns);
    }
    if (rank == 0)
        printf("%-14s %-4s %d parts of 32 MiB: %6.2f ms, %5.2f GB/s sent by each rank\n", name, ps_dtype_name(dtype), p,
               (double)best_ns * 1e-6, (double)((p - 1) * part_bytes) / (double)best_ns);
    return 0;
}

static int rank_measures(ps_comm *c)
{
    char *payload = calloc((size_t)ps_comm_size(c), (size_t)32 << 20);
    memset(payload, 1, (size_t)ps_comm_size(c) * ((size_t)32 << 20));
    int rc = measure(c, "all-gather", true, PS_DTYPE_BF16, payload);
    for (int d = 0; rc == 0 && d < PS_DTYPE_COUNT; d++) rc = measure(c, "reduce-scatter", false, (ps_dtype)d, payload);
    free(payload);
    struct timespec before, after;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    sleep(5);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    const double cpu_s = (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) * 1e-9;
    if (ps_comm_rank(c) == 0) printf("idle: %.3f %% of a processor\n", cpu_s / 5 * 100);
    return rc;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(ps_comm *c);
        double timeout_s;
    } cases[] = {{"conformance", rank_conforms, 60}, {"big", rank_big, 60},       {"fail", rank_fails, 60},
                 {"leave", rank_leaves, 60},         {"kill", rank_is_killed, 2}, {"stop", rank_is_stopped, 2},
                 {"measure", rank_measures, 60}};
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        if (argc != 2 || strcmp(argv[1], cases[i].name) != 0) continue;
        const ps_comm_options o = {.backend = size_expected() == 1 ? PS_COMM_MPI : PS_COMM_AUTO,
                                   .timeout_s = cases[i].timeout_s,
                                   .staging_bytes = (int64_t)16 << 20};
        ps_comm *c = NULL;
        if (ps_comm_open(&o, &c) != PS_OK) {
            fprintf(stderr, "cannot open: %s\n", ps_last_error());
            return 2;
        }
        const int32_t rank = ps_comm_rank(c);
        const int rc = cases[i].run(c);
        if (rc == 0 && rank == 0) printf("ok: %s\n", ps_comm_describe(c));
        ps_comm_close(c);
        if (rc == 4) sleep(1); /* with it the launcher ends the others: they speak first */
        return rc;
    }
    fprintf(stderr, "usage: mpi_ranks conformance | big | fail | leave | kill | stop | measure\n");
    return 2;
}
