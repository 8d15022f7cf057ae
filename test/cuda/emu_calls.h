/* emu_calls.h - what a kernel calls of the emulator (emulate.cpp), in C and C++: from a .cu file by the words of emulator.h,
 * from translated PTX by those of ptx_run.h. */
#ifndef TEST_CUDA_EMU_CALLS_H
#define TEST_CUDA_EMU_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct emu_index {
    unsigned x;
} emu_index;

/* Of the thread that runs now. */
extern emu_index emu_thread_index, emu_block_index, emu_block_dim, emu_grid_dim;

/* The next array of shared memory of this block: the same one for every thread that asks in the same order. */
void *emu_shared(size_t bytes);
/* Dynamic shared memory, where all of it begins. */
void *emu_shared_sized(void);

/* ---- barriers and warps ---- */

void emu_block_barrier(void);
/* A meeting of a warp where each lane brings 8 bytes; returns those of all 32. `what` names it, and must be equal. */
const uint64_t *emu_warp_sync(const char *what, unsigned mask, uint64_t mine);
/* The meeting that orders the lanes' accesses to memory, too: __syncwarp. */
void emu_warp_barrier(unsigned mask);

/* ---- products of a warp, and copies to shared memory: see cuda_mma.cuh ---- */

/* c += a b of this lane, from the words of all lanes. bits_are_bf16, else f16. */
void emu_mma(float *c, const unsigned *a, unsigned b0, unsigned b1, bool bits_are_bf16);
/* Row r of matrix i begins where lane 8i + r says. */
void emu_load_matrices(unsigned *r, const void *row, bool is_turned);
void emu_copy_begin(void *to, const void *from, unsigned bytes, bool is_there);
void emu_copies_commit(void);
void emu_copies_wait(unsigned n_left);

/* ---- accesses of translated PTX ---- */

typedef enum emu_access { EMU_READ, EMU_WRITE, EMU_ATOMIC, EMU_COPY_BEGIN, EMU_COPY_END } emu_access;

/* An instruction that touches memory, and the array that it touched last, in which it has to ask no more: an access at
 * `address` is within when address - begin < n_places. */
typedef struct emu_site {
    uint64_t begin, n_places;
} emu_site;

/* An access that its site did not find within: finds the array for the next, or ends the program, with a message that has
 * the line of the PTX. shared: an offset; global: an address; generic: either's address in the host. */
void emu_site_shared(emu_site *site, uint64_t offset, unsigned bytes, unsigned line);
void emu_site_global(emu_site *site, uint64_t address, unsigned bytes, unsigned line);
void emu_site_generic(emu_site *site, uint64_t address, unsigned bytes, unsigned line);
/* Of parameters and local memory, [begin, begin + size). */
void emu_site_outside(const char *what, uint64_t offset, uint64_t size, unsigned bytes, unsigned line);

/* Races within a barrier's interval are looked for: each access to shared memory has to be told. */
extern bool emu_finds_races;
void emu_touch_shared(uint64_t offset, unsigned bytes, emu_access access, unsigned line);
/* The same of an address, which may be elsewhere. */
void emu_touch_generic(uint64_t address, unsigned bytes, emu_access access, unsigned line);

/* ---- counts, of PTX that was translated by --count (emu_counts.h) ---- */

#define EMU_THREADS_MAX 1024

/* How often each thread of this block has executed each basic block of the kernel. */
extern uint32_t (*emu_executed)[EMU_THREADS_MAX];
/* An access to global memory by the instruction of this number, and its execution without one: its predicate is false. */
void emu_count_global(unsigned site, uint64_t address, unsigned bytes, emu_access access, unsigned line);
void emu_count_off(unsigned site);
/* An access to an address that may be in another memory. */
void emu_count_generic(unsigned site, uint64_t address, unsigned bytes, emu_access access, unsigned line);
/* Neither shared memory nor the thread's own. */
bool emu_is_global(uint64_t address);

/* Ends the program, with a message. */
#ifdef __cplusplus
[[noreturn]]
#else
_Noreturn
#endif
void emu_stop_at(const char *why, unsigned line);

/* ---- kernels ---- */

/* An array of constants, which translated PTX reads as it does global memory. */
typedef struct emu_constants {
    const void *data;
    size_t bytes;
} emu_constants;

typedef struct emu_kernel {
    const char *name;
    unsigned threads;
    size_t args_bytes;
    void (*call)(const void *args);
    /* of translated PTX, else none */
    const char *file;
    emu_site *sites;
    unsigned n_sites;
    const emu_constants *constants; /* the last one's data is NULL */
    /* of PTX that was translated by --count, else none */
    const uint16_t *basic_blocks; /* instructions of each, those of functions that it calls included */
    unsigned n_basic_blocks, n_counted_sites;
} emu_kernel;

#ifdef __cplusplus
}
#endif

#endif
