/* emu_counts.h - what kernels execute and move, counted on the emulator: of PTX that tool/ptx_to_c.py --count translated.
 * Kernels of other translations, and those of the sources, are not counted.
 *
 * Instructions are those of the PTX, one whose predicate is false included: hardware issues it, too. ptxas makes other
 * instructions of them (it keeps parameters in constant memory, folds addresses, adds moves), so counts compare two
 * texts of a kernel, and are not cycles. A warp executes a basic block as often as the lane that does so most often:
 * exact where the lanes that enter a block do so together.
 *
 * A request is one instruction of a warp that accesses global memory, all its lanes together. Memory is fetched in
 * sectors of 32 bytes, aligned to them ("CUDA C++ Best Practices Guide", "Coalesced Access to Global Memory"); a request
 * takes each sector that one of its lanes is in, once. 32 lanes of 4 bytes side by side are 4 sectors.
 *
 * Lanes run one after the other here. The nth execution of an instruction by a lane since the last meeting of its warp
 * (a barrier, a shuffle, ...) is put together with the nth of the others; an execution whose predicate is false counts.
 * Lanes that come to an instruction in different passes of a loop are put together too, where hardware takes two
 * requests.
 *
 * Without any cache the sectors of all requests are moved; with caches that keep all, each sector once a launch
 * (`touched_sectors`). Hardware is between the two. Not counted: parameters, shared and local memory, and what ptxas
 * spills. */
#ifndef TEST_CUDA_EMU_COUNTS_H
#define TEST_CUDA_EMU_COUNTS_H

#include "cuda/emu_calls.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EMU_SECTOR_BYTES 32

typedef struct emu_traffic {
    uint64_t requests;
    uint64_t bytes;           /* that lanes ask for: each access of each lane */
    uint64_t sectors;         /* of all requests */
    uint64_t touched_sectors; /* each once a launch; of a kernel, not of a site */
} emu_traffic;

/* An instruction that accesses global memory. */
typedef struct emu_site_counts {
    unsigned line;  /* of the PTX; 0: it was not executed */
    unsigned bytes; /* of an access of a lane */
    emu_access access;
    emu_traffic moved;
} emu_site_counts;

typedef struct emu_kernel_counts {
    const emu_kernel *kernel;
    uint64_t launches;
    uint64_t thread_instructions; /* sum over threads */
    uint64_t warp_instructions;
    emu_traffic read, written; /* an atomic operation is written */
    emu_site_counts *sites;    /* kernel->n_counted_sites */
} emu_kernel_counts;

/* Forgets what was counted. */
void emu_counts_begin(void);
/* Since then: *n kernels, in the order of their first launches. Valid until the next launch or emu_counts_begin. */
const emu_kernel_counts *emu_counts(unsigned *n);

/* ---- what the emulator tells; a kernel without kernel->basic_blocks is left out ---- */

void emu_counts_launch(const emu_kernel *kernel);
/* The lanes of a warp go on from the last meeting. */
void emu_counts_turn(void);
/* All threads of the block are done. */
void emu_counts_block(unsigned threads);

#ifdef __cplusplus
}
#endif

#endif
