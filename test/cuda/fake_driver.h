/* fake_driver.h - NVIDIA's driver without a GPU: a table of functions over RAM.
 *
 * A stream is a list of commands. There are no threads: issuing a command or asking for an event carries out a few, a
 * wait carries out as many as it takes, each time of a stream that a seed draws. So work begins late, and in any order
 * that events allow; and a program of one thread does the same in each run.
 *
 * Device memory is where the host may not touch it, and is what its pages are mapped to. A kernel touches it elsewhere:
 * addresses of device memory among a kernel's arguments are replaced, so it must not keep or return them. Memory that is
 * neither mapped nor page-locked is refused, or found when a command that names it is carried out: then everything fails
 * from there on, as on hardware. What pages have at first is 0xff.
 *
 * A stream has room for `depth` commands, launches, copies, fills, records and waits alike. A call that issues another
 * waits for room, as hardware's does, and in the worst way: it keeps the context's lock, so that every call of another
 * thread but the waits for events waits for it. Calls that may synchronise the context do: unmapping, access, freeing of
 * addresses, page-locking, loading, and the first launch of a kernel that was not loaded. They wait for the streams that
 * the calling thread made: ranks, which are threads in tests, have contexts of their own elsewhere.
 *
 * A deadlock is found: when calls wait, and for `stall_ms` no command was issued or went on. The program ends with a
 * message that names streams, and what the first command of each waits for.
 *
 * One at a time in a process. */
#ifndef TEST_CUDA_FAKE_DRIVER_H
#define TEST_CUDA_FAKE_DRIVER_H

#include "device/cuda/driver.h"

typedef struct fake_options {
    uint64_t seed;
    int64_t page_bytes;  /* 0: 64 KiB */
    int64_t total_bytes; /* memory of the GPU; 0: 1 GiB */
    int n_devices;       /* 0: 1; at most 8; < 0: none */
    int version;         /* 0: 13000 */
    int mode, mode_from; /* compute mode of this GPU and those after it */
    int capability;      /* 0: 90 */
    bool are_alike;      /* GPUs have one name, as those of a machine do; else each its number in it */
    bool has_no_wait_value;
    bool copies_unlocked; /* unregistered memory of the host is copied too, and the host waits */
    int depth;            /* commands of a stream; 0: FAKE_DEPTH of the environment, else 1024 */
    int stall_ms;         /* 0: 30 s */
    /* Of a deadlock, in place of the program's end; then the context is broken, and all calls return. */
    void (*on_deadlock)(const char *text);
} fake_options;

/* Everything anew. */
const ps_cuda_driver *fake_driver(const fake_options *o);
/* Threads end, memory is freed. Each count of what was made and not ended is an error: false, on stderr. */
bool fake_driver_end(void);

/* The nth call from now (0: the next) of this function of the table fails so. */
void fake_fail(const char *function, int nth, ps_cu_result r);
/* The nth command from now that a stream comes to breaks the context. The next one is well again, when all have given this
 * one back. */
void fake_break(int nth, ps_cu_result r);
/* The same of GPU number `ordinal`, and streams of its own; fake_break's is number 0. */
void fake_break_device(int ordinal, int nth, ps_cu_result r);
/* How often it was opened so far. */
int fake_opened(int ordinal);
/* Memory of each GPU that another process takes; negative: frees. */
void fake_take_memory(int64_t bytes);
/* Calls of a function of the table so far. */
int fake_calls(const char *function);
/* Commands that a stream has room for: ps_gpu_options.stream_commands of tests. And calls that had to wait for room so far. */
int fake_depth(void);
int fake_full_calls(void);
/* Calls that synchronise only count from now on, or wait again: where the calling thread itself ends, later, what streams
 * wait for. They wait when the driver is begun. */
void fake_let_calls_wait(bool let);
/* Calls so far that synchronise the context, idle or not. */
int fake_synchronizing_calls(void);

/* What ps_cuda_driver.launch finds under this name, until the driver is begun anew. run is called on some thread of the
 * host, one at a time, with the copied arguments. */
typedef void (*fake_kernel)(void *user, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes,
                            const void *args);
void fake_kernel_add(const char *name, fake_kernel run, void *user, size_t args_bytes);
/* What a kernel may touch around an address, which it has from its translated arguments: mapped pages, or page-locked
 * memory, [begin, end). False: nothing. It is asked by kernels only. */
bool fake_find_memory(uint64_t address, uint64_t *begin, uint64_t *end);
/* [p, p + bytes) is memory of a GPU that may be touched. */
bool fake_is_device_memory(const void *p, int64_t bytes);
/* The GPU whose context the calling thread has. */
int fake_ordinal(void);

#endif
