/* bench_disk.c - the disk tier next to fio: payloads of several sizes read, written, and both at once as in a step that
 * is offloaded, with the processor time that a GB costs.
 *
 * usage: bench_disk [FOLDERS [MIB [ROUNDS [SECONDS [uring|threads]]]]]      (default: . 1024 5 1, io_uring if there)
 * FOLDERS as memory.disk_path has them; fio gets a file in each. Ours and fio (Debian package fio; left out where it is
 * not installed) take turns, with the same size, as many payloads under way, and as many reads as writes; medians of
 * ROUNDS. MB is 10^6 bytes. Processor time is that of the whole process, in ms for a GB. The files are written once before
 * anything is measured. At the end, how long a read takes that is issued after a long queue of writes: fio has no such
 * thing. fio's memory is in small pages, ours in huge ones. */
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "bench.h"
#include "device/device.h"
#include "device/disk.h"

enum { N_WAY = 8 }; /* payloads under way in each direction */

typedef enum way { WAY_READ = 1, WAY_WRITE = 2, WAY_BOTH = 3 } way;

typedef struct figures {
    bench_samples read, write, ms; /* MB/s, MB/s, ms of processor time for a GB */
} figures;

typedef struct bench {
    ps_device *host;
    ps_disk *disk;
    const char *folders;
    int64_t file_bytes;
    double seconds;
    char *buffer[2][N_WAY]; /* of reads, of writes */
    int64_t payload_bytes;
} bench;

static double processor_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void add(figures *f, double read_bytes, double write_bytes, double seconds, double processor_s)
{
    bench_add(&f->read, read_bytes * 1e-6 / seconds);
    bench_add(&f->write, write_bytes * 1e-6 / seconds);
    bench_add(&f->ms, processor_s * 1e3 / ((read_bytes + write_bytes) * 1e-9));
}

/* ---- ours ---- */

/* The payload of `slot` in the file, from or to one of the buffers of its way. */
static void begin_payload(bench *b, bool is_write, int64_t slot, int buffer, ps_event *out)
{
    const int64_t offset = slot % (b->file_bytes / b->payload_bytes) * b->payload_bytes;
    char *p = b->buffer[is_write][buffer];
    bench_check(is_write ? ps_disk_write(b->disk, offset, p, b->payload_bytes, NULL, out)
                         : ps_disk_read(b->disk, offset, p, b->payload_bytes, NULL, out));
}

/* Wait for the one of a way that should end first, and begin others for all that have ended, as fio does. Reads are
 * half the file ahead of writes. */
static void refill(bench *b, bool is_write, ps_event *under_way, int first, int64_t *n)
{
    const int64_t ahead = is_write ? 0 : b->file_bytes / b->payload_bytes / 2;
    bench_check(ps_event_wait(under_way[first]));
    for (int i = 0; i < N_WAY; i++) {
        const int k = (first + i) % N_WAY;
        if (!ps_event_is_done(under_way[k])) continue;
        bench_check(ps_event_wait(under_way[k]));
        begin_payload(b, is_write, *n + ahead, k, &under_way[k]);
        ++*n;
    }
}

static void run_ours(bench *b, way which, double seconds, figures *f)
{
    ps_event under_way[2][N_WAY] = {{{0}}};
    int64_t n[2] = {0, 0};
    const double begin = bench_now(), processor = processor_seconds();
    for (int i = 0; bench_now() - begin < seconds; i++) {
        if (which & WAY_READ) refill(b, false, under_way[false], i % N_WAY, &n[false]);
        if (which & WAY_WRITE) refill(b, true, under_way[true], i % N_WAY, &n[true]);
    }
    for (int i = 0; i < N_WAY; i++)
        for (int is_write = 0; is_write < 2; is_write++) bench_check(ps_event_wait(under_way[is_write][i]));
    const double bytes = (double)b->payload_bytes;
    if (f != NULL)
        add(f, (double)n[0] * bytes, (double)n[1] * bytes, bench_now() - begin, processor_seconds() - processor);
}

/* ---- fio ---- */

/* The field of fio's terse format, counted from 1; 0 where it is missing. */
static double field(const char *line, int which)
{
    for (; which > 1 && line != NULL; which--) {
        line = strchr(line, ';');
        if (line != NULL) line++;
    }
    return line != NULL ? atof(line) : 0;
}

/* fio puts its files one after another, separated by ':'. */
static void fio_files(const char *folders, char *out, size_t bytes)
{
    size_t n = 0;
    for (const char *at = folders; n < bytes;) {
        const size_t length = strcspn(at, ",");
        n += (size_t)snprintf(out + n, bytes - n, "%s%.*s/bench_disk.fio", n > 0 ? ":" : "", (int)length, at);
        at += length;
        if (*at++ == '\0') break;
    }
}

static bool run_fio(const bench *b, way which, double seconds, figures *f)
{
    enum {
        READ_BYTES = 6,
        READ_RUNTIME = 9,
        WRITE_BYTES = 47,
        WRITE_RUNTIME = 50,
        USER = 88,
        SYSTEM = 89
    }; /* KiB, ms, % */
    static const char *const names[] = {[WAY_READ] = "read", [WAY_WRITE] = "write", [WAY_BOTH] = "rw"};
    char files[2048], command[4096], line[8192] = "";
    fio_files(b->folders, files, sizeof files);
    snprintf(command, sizeof command,
             "fio --name=x --filename='%s' --size=%lld --bs=%lld --iodepth=%d --rw=%s --time_based --runtime=%dms "
             "--ioengine=io_uring --direct=1 --scramble_buffers=0 --norandommap --minimal 2>/dev/null",
             files, (long long)b->file_bytes, (long long)b->payload_bytes, which == WAY_BOTH ? 2 * N_WAY : N_WAY,
             names[which], (int)(seconds * 1e3));
    FILE *out = popen(command, "r");
    if (out == NULL) return false;
    const bool said = fgets(line, sizeof line, out) != NULL;
    const double elapsed = 1e-3 * field(line, which == WAY_WRITE ? WRITE_RUNTIME : READ_RUNTIME);
    if (pclose(out) != 0 || !said || !(elapsed > 0)) return false;
    if (f != NULL)
        add(f, field(line, READ_BYTES) * 1024, field(line, WRITE_BYTES) * 1024, elapsed,
            elapsed * 0.01 * (field(line, USER) + field(line, SYSTEM)));
    return true;
}

static void remove_fio_files(const bench *b)
{
    char files[2048], *rest = files;
    fio_files(b->folders, files, sizeof files);
    for (char *path; (path = strsep(&rest, ":")) != NULL;) unlink(path);
}

/* ---- a read that is needed now ---- */

static void read_after_writes(bench *b, int rounds)
{
    enum { N = 32 };
    bench_samples dependents = {.n = 0}, alone = {.n = 0};
    for (int r = 0; r < rounds; r++)
        for (int n_writes = 0; n_writes <= N; n_writes += N) {
            ps_event writes[N], read;
            for (int i = 0; i < n_writes; i++) begin_payload(b, true, i, i % N_WAY, &writes[i]);
            const double begin = bench_now();
            begin_payload(b, false, N + 1, 0, &read);
            bench_check(ps_event_wait(read));
            bench_add(n_writes > 0 ? &dependents : &alone, bench_now() - begin);
            for (int i = 0; i < n_writes; i++) bench_check(ps_event_wait(writes[i]));
        }
    printf("a read of %.2f MB: %.1f ms alone, %.1f ms behind %d writes (%.0f MB); medians of %d\n",
           (double)b->payload_bytes * 1e-6, 1e3 * bench_median(&alone), 1e3 * bench_median(&dependents), N,
           N * (double)b->payload_bytes * 1e-6, rounds);
}

/* ---- table ---- */

static void print_figures(figures *f)
{
    printf(" %8.0f %8.0f %8.1f", bench_median(&f->read), bench_median(&f->write), bench_median(&f->ms));
}

static double both_ways(figures *f)
{
    return bench_median(&f->read) + bench_median(&f->write);
}

static void compare(bench *b, way which, int rounds, bool with_fio)
{
    static const char *const names[] = {[WAY_READ] = "read", [WAY_WRITE] = "write", [WAY_BOTH] = "both"};
    figures ours = {.read = {.n = 0}}, fio = {.read = {.n = 0}};
    for (int i = 0; i < rounds; i++) {
        run_ours(b, which, b->seconds, &ours);
        if (with_fio && !run_fio(b, which, b->seconds, &fio)) with_fio = false;
    }
    printf("%8.2f  %-6s", (double)b->payload_bytes * 1e-6, names[which]);
    print_figures(&ours);
    if (with_fio) {
        print_figures(&fio);
        printf(" %8.2f", both_ways(&ours) / both_ways(&fio));
    }
    printf("\n");
    fflush(stdout);
}

static void use_payloads(bench *b, int64_t bytes)
{
    b->payload_bytes = bytes;
    for (int i = 0; i < 2 * N_WAY; i++) {
        bench_check(ps_device_alloc(b->host, bytes, (void **)&b->buffer[i / N_WAY][i % N_WAY]));
        memset(b->buffer[i / N_WAY][i % N_WAY], i + 1, (size_t)bytes);
    }
}

static void give_payloads(bench *b)
{
    for (int i = 0; i < 2 * N_WAY; i++)
        ps_device_free(b->host, b->buffer[i / N_WAY][i % N_WAY], b->payload_bytes, NULL);
}

int main(int argc, char **argv)
{
    static const int64_t payloads[] = {512 * PS_KIB, 4608 * PS_KIB, 9216 * PS_KIB}; /* 0.5, 4.7, 9.4 MB */
    bench b = {.folders = argc > 1 ? argv[1] : "."};
    const int rounds = argc > 3 ? atoi(argv[3]) : 5;
    ps_disk_backend backend = PS_DISK_AUTO;
    char cpu[128];
    b.file_bytes = (argc > 2 ? atoll(argv[2]) : 1024) * PS_MIB / payloads[2] * payloads[2];
    b.seconds = argc > 4 ? atof(argv[4]) : 1;
    if (argc > 5) backend = strcmp(argv[5], "threads") == 0 ? PS_DISK_THREADS : PS_DISK_URING;
    if (rounds < 1 || b.file_bytes < 4 * N_WAY * payloads[2]) {
        fprintf(stderr, "at least 1 round and 300 MiB\n");
        return 2;
    }
    bench_check(ps_device_create(&ps_device_cpu_ops, "host", 512 * PS_MIB, &b.host));
    bench_check(ps_disk_open(b.folders, backend, 32, &b.disk));
    use_payloads(&b, payloads[2]);
    for (int64_t i = 0; i < b.file_bytes / b.payload_bytes; i++) { /* finds room, which is slower */
        ps_event e;
        begin_payload(&b, true, i, 0, &e);
        bench_check(ps_event_wait(e));
    }
    const bool with_fio = run_fio(&b, WAY_WRITE, 2, NULL);
    give_payloads(&b);
    const ps_disk_stats s = ps_disk_get_stats(b.disk);
    ps_machine_cpu_name(NULL, cpu, sizeof cpu);
    printf("%s, %d cores; %lld MiB in %s, %s%s; %d payloads under way each way, medians of %d times %.1f s\n", cpu,
           ps_machine_cores(NULL), (long long)(b.file_bytes / PS_MIB), b.folders, s.backend, s.direct ? ", direct" : "",
           N_WAY, rounds, b.seconds);
    if (!with_fio) printf("fio is not installed, or does not run here: ours alone\n");
    printf("%8s  %-6s %26s%s\n", "", "", "ours: read    write    ms/GB",
           with_fio ? "  fio: read    write    ms/GB  ours/fio" : "");
    for (size_t p = 0; p < PS_ARRAY_LEN(payloads); p++) {
        use_payloads(&b, payloads[p]);
        for (way which = WAY_READ; which <= WAY_BOTH; which++) compare(&b, which, rounds, with_fio);
        give_payloads(&b);
    }
    use_payloads(&b, payloads[2]);
    read_after_writes(&b, rounds);
    give_payloads(&b);
    ps_disk_close(b.disk);
    remove_fio_files(&b);
    ps_device_destroy(b.host);
    return 0;
}
