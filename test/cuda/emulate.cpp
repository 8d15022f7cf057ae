/* The emulator: fibers, their order, barriers, shared memory. Without the C++ library, so that C programs link it. */
#include "cuda/emulator.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "cuda/emulate.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#include <sanitizer/asan_interface.h>
#endif
#endif
#ifndef __SANITIZE_ADDRESS__
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

extern "C" {
emu_index emu_thread_index, emu_block_index, emu_block_dim, emu_grid_dim;
}

/* ---- kernels by number ---- */

namespace
{

struct entry {
    const char *name;
    unsigned threads;
    void (*call)(const void *args);
};

} // namespace

#define XX(symbol, args, threads)                                                                                      \
    extern "C" void symbol(const args);                                                                                \
    static void call_##symbol(const void *p)                                                                           \
    {                                                                                                                  \
        symbol(*static_cast<const args *>(p));                                                                         \
    }
#include "kernel/cuda/cuda_kernels.def"
#undef XX

static const entry entries[PS_CUDA_KERNEL_COUNT] = {
#define XX(symbol, args, threads) {#symbol, threads, call_##symbol},
#include "kernel/cuda/cuda_kernels.def"
#undef XX
};

/* ---- fibers ---- */

namespace
{

constexpr unsigned warp = PS_CUDA_WARP, threads_max = 1024, arrays_max = 16, copies_max = 256;
constexpr size_t stack_bytes = 64 << 10, guard_bytes = 64, shared_max = 228 << 10;
constexpr unsigned char guard = 0xA5;

enum fiber_state { READY, AT_WARP, AT_BLOCK, DONE };

struct fiber {
    void *sp; /* while it does not run */
    fiber_state state;
    unsigned n_arrays; /* of shared memory that it asked for */
    const char *what;  /* the meeting that it waits for */
    unsigned n_meetings;
    unsigned n_copies, n_groups; /* begun and not done; groups that it made */
};

/* A copy to shared memory that was begun. */
struct copy {
    void *to;
    const void *from;
    unsigned bytes;
    bool is_there;
    unsigned group; /* of the thread: the next that it makes */
};

struct machine {
    const entry *kernel;
    const void *args;
    void *scheduler; /* its stack pointer */
    unsigned char *stacks;
    fiber fibers[threads_max];
    copy (*copies)[copies_max];     /* of each fiber, in the order in which they were begun */
    unsigned now;                   /* the fiber that runs */
    unsigned order[warp], n_order;  /* fibers of this warp that are still to run in this turn, the next one last */
    uint64_t words[2][threads_max]; /* of meetings, by turns: the next may begin while this one is still read */
    uint64_t random;
    unsigned char *shared; /* of the block: arrays, each with a guard after it */
    size_t shared_end, sized_bytes;
    size_t array_at[arrays_max], array_bytes[arrays_max];
    unsigned n_arrays;
};

machine m;

[[noreturn]] __attribute__((format(printf, 1, 2))) void stop(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    fprintf(stderr, "emulator: %s, block %u of %u, thread %u of %u: ", m.kernel->name, emu_block_index.x,
            emu_grid_dim.x, m.now, emu_block_dim.x);
    vfprintf(stderr, format, ap);
    fputc('\n', stderr);
    va_end(ap);
    abort();
}

unsigned draw(unsigned n)
{
    m.random = m.random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((m.random >> 33) % n);
}

} // namespace

/* Keeps the registers that a function must, goes over to another stack, and takes up those that lie there. */
extern "C" void emu_switch(void **from, void *to);
__asm__(".text\n"
        ".globl emu_switch\n"
        ".type emu_switch, @function\n"
        "emu_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size emu_switch, .-emu_switch\n");

/* The next fiber of the warp's turn; the scheduler after the last. */
static void *next_stack()
{
    if (m.n_order == 0) return m.scheduler;
    m.now = m.order[--m.n_order];
    emu_thread_index.x = m.now;
    return m.fibers[m.now].sp;
}

static void leave(fiber_state state)
{
    fiber *const f = &m.fibers[m.now];
    f->state = state;
    emu_switch(&f->sp, next_stack());
}

extern "C" void emu_fiber_main(void)
{
    m.kernel->call(m.args);
    if (m.fibers[m.now].n_copies > 0) stop("%u copies that it did not wait for", m.fibers[m.now].n_copies);
    leave(DONE);
    abort();
}

/* A fresh stack whose first return goes to emu_fiber_main, aligned as after a call. */
static void make_ready(unsigned i)
{
    unsigned char *const top = m.stacks + (i + 1) * stack_bytes;
    void **sp = reinterpret_cast<void **>(top) - 1;
    ASAN_UNPOISON_MEMORY_REGION(top - stack_bytes, stack_bytes);
    *sp-- = nullptr;
    *sp-- = reinterpret_cast<void *>(emu_fiber_main);
    for (int r = 0; r < 6; r++) *sp-- = nullptr;
    m.fibers[i] = fiber{sp + 1, READY, 0, nullptr, 0, 0, 0};
}

/* ---- what kernels call ---- */

extern "C" void emu_block_barrier(void)
{
    leave(AT_BLOCK);
}

extern "C" const uint64_t *emu_warp_sync(const char *what, unsigned mask, uint64_t mine)
{
    fiber *const f = &m.fibers[m.now];
    if (mask != 0xffffffffu) stop("%s of a part of a warp", what);
    uint64_t *const words = m.words[f->n_meetings++ % 2];
    words[m.now] = mine;
    f->what = what;
    leave(AT_WARP);
    return words + m.now / warp * warp;
}

extern "C" void emu_copy_begin(void *to, const void *from, unsigned bytes, bool is_there)
{
    fiber *const f = &m.fibers[m.now];
    if (f->n_copies == copies_max) stop("more than %u copies at once", copies_max);
    if (((uintptr_t)to | (uintptr_t)from) % bytes != 0) stop("a copy of %u bytes that is not aligned", bytes);
    m.copies[m.now][f->n_copies++] = copy{to, from, bytes, is_there, f->n_groups};
}

extern "C" void emu_copies_commit(void)
{
    m.fibers[m.now].n_groups++;
}

extern "C" void emu_copies_wait(unsigned n_left)
{
    fiber *const f = &m.fibers[m.now];
    copy *const copies = m.copies[m.now];
    unsigned n = 0;
    for (; n < f->n_copies && copies[n].group + n_left < f->n_groups; n++)
        if (copies[n].is_there)
            memcpy(copies[n].to, copies[n].from, copies[n].bytes);
        else
            memset(copies[n].to, 0, copies[n].bytes);
    f->n_copies -= n;
    memmove(copies, copies + n, f->n_copies * sizeof *copies);
}

static float element(unsigned word, unsigned half, bool is_bf16)
{
    const uint16_t bits = (uint16_t)(word >> 16 * half);
    return is_bf16 ? ps_bf16_to_f32(bits) : ps_f16_to_f32(bits);
}

/* Rows and columns by lanes as the picture of cuda_mma.cuh has them: words of a lane meet two by two. */
extern "C" void emu_mma(float *c, const unsigned *a, unsigned b0, unsigned b1, bool bits_are_bf16)
{
    const unsigned lane = m.now % warp, g = lane / 4, t = lane % 4;
    const uint64_t mine[3] = {a[0] | (uint64_t)a[1] << 32, a[2] | (uint64_t)a[3] << 32, b0 | (uint64_t)b1 << 32};
    float a_rows[2][16], b_columns[2][16];
    for (unsigned part = 0; part < 3; part++) {
        const uint64_t *const all = emu_warp_sync("mma", 0xffffffffu, mine[part]);
        for (unsigned k = 0; k < 8; k++) /* k of 8 of this part, or of either half of b */
            for (unsigned i = 0; i < 2; i++)
                if (part < 2) {
                    a_rows[i][8 * part + k] = element((unsigned)(all[4 * g + k / 2] >> 32 * i), k % 2, bits_are_bf16);
                } else {
                    const uint64_t words = all[4 * (2 * t + i) + k / 2];
                    b_columns[i][k] = element((unsigned)words, k % 2, bits_are_bf16);
                    b_columns[i][8 + k] = element((unsigned)(words >> 32), k % 2, bits_are_bf16);
                }
    }
    for (unsigned e = 0; e < 4; e++)
        for (unsigned k = 0; k < 16; k++) c[e] += a_rows[e / 2][k] * b_columns[e % 2][k];
}

extern "C" void emu_load_matrices(unsigned *r, const void *row, bool is_turned)
{
    const unsigned lane = m.now % warp, g = lane / 4, t = lane % 4;
    if ((uintptr_t)row % 16 != 0) stop("a row of a matrix that is not aligned to 16 bytes");
    const uint64_t *const rows = emu_warp_sync("ldmatrix", 0xffffffffu, (uint64_t)(uintptr_t)row);
    for (unsigned i = 0; i < 4; i++) {
        uint16_t pair[2];
        for (unsigned e = 0; e < 2; e++) {
            const unsigned at_row = is_turned ? 2 * t + e : g, column = is_turned ? g : 2 * t + e;
            memcpy(&pair[e], reinterpret_cast<const char *>((uintptr_t)rows[8 * i + at_row]) + 2 * column, 2);
        }
        r[i] = pair[0] | (unsigned)pair[1] << 16;
    }
}

static size_t shared_array(size_t bytes)
{
    const size_t at = m.shared_end, end = (at + bytes + guard_bytes + 63) / 64 * 64;
    if (m.n_arrays == arrays_max || end > shared_max + arrays_max * 2 * guard_bytes) stop("too much shared memory");
    ASAN_UNPOISON_MEMORY_REGION(m.shared + at, end - at);
    memset(m.shared + at, 0xff, bytes);
    memset(m.shared + at + bytes, guard, end - at - bytes);
    ASAN_POISON_MEMORY_REGION(m.shared + at + bytes, end - at - bytes);
    m.array_at[m.n_arrays] = at, m.array_bytes[m.n_arrays] = bytes;
    m.n_arrays++;
    m.shared_end = end;
    return at;
}

extern "C" void *emu_shared(size_t bytes)
{
    const unsigned a = 1 + m.fibers[m.now].n_arrays++;
    if (a >= m.n_arrays) shared_array(bytes);
    if (m.array_bytes[a] != bytes)
        stop("array %u of shared memory has %zu bytes, and %zu elsewhere", a, bytes, m.array_bytes[a]);
    return m.shared + m.array_at[a];
}

extern "C" void *emu_shared_sized(void)
{
    return m.shared + m.array_at[0];
}

/* ---- a block ---- */

/* All lanes of a warp until each waits for the block or is done. A turn brings each that can run to its next meeting. */
static void run_warp(unsigned first, unsigned n)
{
    for (;;) {
        const unsigned turn = draw(n), stride = 1 + 2 * draw(16); /* odd: a full warp's lanes in another order */
        m.n_order = 0;
        for (unsigned i = 0; i < n; i++) {
            const unsigned lane = n == warp ? (turn + i * stride) % warp : (turn + i) % n;
            if (m.fibers[first + lane].state == READY) m.order[m.n_order++] = first + lane;
        }
        if (m.n_order > 0) emu_switch(&m.scheduler, next_stack());
        unsigned n_waiting = 0;
        for (unsigned i = 0; i < n; i++) n_waiting += m.fibers[first + i].state == AT_WARP;
        if (n_waiting == 0) return;
        for (unsigned i = 0; i < n; i++) {
            m.now = first + i;
            if (n_waiting != warp || m.fibers[first + i].what != m.fibers[first].what)
                stop("%u lanes of its warp are at %s", n_waiting, m.fibers[first + i].what);
            m.fibers[first + i].state = READY;
        }
    }
}

static void run_block(unsigned threads)
{
    const unsigned n_warps = (threads + warp - 1) / warp;
    m.shared_end = m.n_arrays = 0;
    shared_array(m.sized_bytes);
    for (unsigned i = 0; i < threads; i++) make_ready(i);
    for (bool is_done = false; !is_done;) {
        const unsigned turn = draw(n_warps);
        const bool backwards = draw(2);
        for (unsigned i = 0; i < n_warps; i++) {
            const unsigned w = (turn + (backwards ? n_warps - i : i)) % n_warps, first = w * warp;
            run_warp(first, threads - first < warp ? threads - first : warp);
        }
        unsigned n_done = 0;
        for (unsigned i = 0; i < threads; i++) n_done += m.fibers[i].state == DONE;
        is_done = n_done == threads;
        if (!is_done && n_done > 0) stop("%u threads are done, others wait at __syncthreads", n_done);
        for (unsigned i = 0; !is_done && i < threads; i++) m.fibers[i].state = READY;
    }
    for (unsigned a = 0; a < m.n_arrays; a++) {
        const unsigned char *const dependents = m.shared + m.array_at[a] + m.array_bytes[a];
        ASAN_UNPOISON_MEMORY_REGION(dependents, guard_bytes);
        for (size_t i = 0; i < guard_bytes; i++)
            if (dependents[i] != guard) stop("array %u of shared memory was written %zu bytes behind its end", a, i);
    }
}

static void *map(size_t bytes)
{
    void *const p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) abort();
    return p;
}

static unsigned common_divisor(unsigned a, unsigned b)
{
    while (b != 0) {
        const unsigned rest = a % b;
        a = b, b = rest;
    }
    return a;
}

extern "C" void emulate(ps_cuda_kernel kernel, unsigned blocks, unsigned shared_bytes, const void *args, unsigned seed)
{
    if (m.stacks == nullptr) {
        m.stacks = static_cast<unsigned char *>(map(threads_max * stack_bytes));
        m.shared = static_cast<unsigned char *>(map(shared_max + arrays_max * 2 * guard_bytes));
        m.copies = static_cast<copy(*)[copies_max]>(map(threads_max * sizeof *m.copies));
    }
    m.kernel = &entries[kernel], m.args = args, m.sized_bytes = shared_bytes;
    m.random = seed * 0x9e3779b97f4a7c15u;
    emu_block_dim.x = m.kernel->threads, emu_grid_dim.x = blocks;
    if (blocks == 0) stop("a grid of no blocks");
    unsigned stride = 1 + draw(blocks), turn = draw(blocks);
    while (common_divisor(stride, blocks) != 1) stride++;
    for (unsigned i = 0; i < blocks; i++) {
        emu_block_index.x = (unsigned)((turn + (uint64_t)i * stride) % blocks);
        run_block(m.kernel->threads);
    }
}
