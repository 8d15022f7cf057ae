/* bench_copy.c - how fast bytes move between the tiers: a copy queue of the cpu device, and the disk tier.
 *
 * usage: bench_copy [FOLDER [MIB [QUEUE_DEPTH [uring|threads]]]]      (default: . 1024 8, io_uring if there)
 * Prints GB/s (10^9) for each chunk size: memcpy from block to block on a queue; the first writing of the file, where
 * the file system finds space; writing it again; reading it. Four buffers are in use at a time. Without O_DIRECT the
 * disk columns measure the page cache too. Compare with
 *     dd if=/dev/zero of=FOLDER/x bs=8M count=128 oflag=direct
 *     dd if=FOLDER/x of=/dev/null bs=8M iflag=direct */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine.h"
#include "device/disk.h"

#define N_BUFFERS 4

typedef struct bench {
    ps_device *host;
    ps_queue *queue;
    ps_disk *disk;
    int64_t total_bytes;
    char *buffer[N_BUFFERS];
} bench;

static double rate(int64_t bytes, int64_t begin_ns)
{
    return (double)bytes / (double)(ps_clock_ns() - begin_ns);
}

static ps_status bench_queue(bench *b, int64_t chunk, double *out)
{
    const int64_t begin = ps_clock_ns();
    int64_t done = 0;
    for (int i = 0; done < b->total_bytes; i += 2, done += chunk)
        PS_TRY(ps_queue_copy(b->queue, b->buffer[i % N_BUFFERS], b->buffer[(i + 1) % N_BUFFERS], chunk));
    PS_TRY(ps_event_wait(ps_queue_event(b->queue)));
    *out = rate(done, begin);
    return PS_OK;
}

static ps_status bench_disk(bench *b, bool is_write, int64_t chunk, double *out)
{
    const int64_t begin = ps_clock_ns();
    ps_event t[N_BUFFERS] = {0};
    int64_t done = 0;
    for (int i = 0; done < b->total_bytes; i = (i + 1) % N_BUFFERS, done += chunk) {
        PS_TRY(ps_event_wait(t[i]));
        PS_TRY(is_write ? ps_disk_write(b->disk, done, b->buffer[i], chunk, NULL, &t[i])
                        : ps_disk_read(b->disk, done, b->buffer[i], chunk, NULL, &t[i]));
    }
    for (int i = 0; i < N_BUFFERS; i++) PS_TRY(ps_event_wait(t[i]));
    *out = rate(done, begin);
    return PS_OK;
}

static ps_status bench_chunk(bench *b, const char *folder, ps_disk_backend backend, int depth, int64_t chunk)
{
    ps_status st;
    double copy, first, again, back;
    PS_TRY(ps_disk_open(folder, backend, depth, &b->disk));
    for (int i = 0; i < N_BUFFERS; i++) {
        PS_TRY_GOTO(ps_device_alloc(b->host, chunk, (void **)&b->buffer[i]));
        memset(b->buffer[i], i + 1, (size_t)chunk);
    }
    PS_TRY_GOTO(bench_queue(b, chunk, &copy));
    PS_TRY_GOTO(bench_disk(b, true, chunk, &first));
    PS_TRY_GOTO(bench_disk(b, true, chunk, &again));
    PS_TRY_GOTO(bench_disk(b, false, chunk, &back));
    const ps_disk_stats s = ps_disk_get_stats(b->disk);
    printf("%8lld %10.2f %12.2f %10.2f %10.2f   %s%s\n", (long long)(chunk / PS_KIB), copy, first, again, back,
           s.backend, s.direct ? ", direct" : "");
out:
    ps_disk_close(b->disk); /* before the buffers go */
    for (int i = 0; i < N_BUFFERS; i++) {
        ps_device_free(b->host, b->buffer[i], chunk, NULL);
        b->buffer[i] = NULL;
    }
    return st;
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : ".";
    const int64_t mib = argc > 2 ? atoll(argv[2]) : 1024;
    const int depth = argc > 3 ? atoi(argv[3]) : 8;
    ps_disk_backend backend = PS_DISK_AUTO;
    if (argc > 4) backend = strcmp(argv[4], "threads") == 0 ? PS_DISK_THREADS : PS_DISK_URING;
    bench b = {.total_bytes = mib * PS_MIB};
    char cpu[128];
    ps_status st;
    PS_TRY_GOTO(ps_device_create(&ps_device_cpu_ops, "host", N_BUFFERS * 64 * PS_MIB, &b.host));
    PS_TRY_GOTO(ps_queue_create(b.host, "bench", PS_QUEUE_COPY, &b.queue));
    ps_machine_cpu_name(NULL, cpu, sizeof cpu);
    printf("%s, %d cores; %lld MiB, queue depth %d; GB/s\n", cpu, ps_machine_cores(NULL), (long long)mib, depth);
    printf("%8s %10s %12s %10s %10s\n", "KiB", "memcpy", "first write", "write", "read");
    for (int64_t chunk = 256 * PS_KIB; chunk <= 64 * PS_MIB; chunk *= 4)
        PS_TRY_GOTO(bench_chunk(&b, folder, backend, depth, chunk));
out:
    if (st != PS_OK) fprintf(stderr, "bench_copy: %s\n", ps_last_error());
    ps_queue_destroy(b.queue);
    ps_device_destroy(b.host);
    return st != PS_OK;
}
