/* The emulator: fibers, their order, barriers, shared memory, copies to it. Without the C++ library, so that C programs link
 * it.
 *
 * A copy arrives when it is begun (early), when its thread has waited for it (late), or at a turn of a warp that is drawn
 * (PS_TEST_COPIES), so a buffer that is read too soon, or filled while it is still read, is wrong in one of them.
 *
 * Races (PS_TEST_RACES=1, of translated PTX): each two bytes of shared memory have a cell, which knows since the last barrier of
 * the block its last writer and its readers: the lanes of one warp, by name, since that warp's last barrier of its own, and
 * some other warp. An access is a race when another thread's, of which either writes, has no barrier in between that both
 * have passed; and, of bytes that a copy was begun to and not waited for, each access is. */
extern "C" {
#include "base/dtype.h"
}

#include "cuda/emu_counts.h"
#include "cuda/emulate.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

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
bool emu_finds_races;
}

/* ---- fibers ---- */

namespace
{

constexpr unsigned warp = PS_CUDA_WARP, threads_max = EMU_THREADS_MAX, arrays_max = 16, copies_max = 256;
constexpr unsigned warps_max = threads_max / warp, cell_bytes = 2, turns_max = 16;
constexpr size_t stack_bytes = 64 << 10, guard_bytes = 64, shared_max = 228 << 10;
constexpr size_t shared_end_max = shared_max + arrays_max * 2 * guard_bytes;
constexpr unsigned char guard = 0xA5;
constexpr uint64_t when_waited_for = UINT64_MAX;
constexpr const char *barrier_of_warp = "__syncwarp";

enum fiber_state { READY, AT_WARP, AT_BLOCK, DONE };

struct fiber {
    void *sp; /* while it does not run */
    fiber_state state;
    unsigned n_arrays; /* of shared memory that it asked for */
    const char *what;  /* the meeting that it waits for */
    unsigned n_meetings;
    unsigned n_copies, n_groups; /* begun and not waited for; groups that it made */
};

/* A copy to shared memory that was begun. */
struct copy {
    void *to;
    const void *from;
    unsigned bytes;
    bool is_there;
    unsigned group;      /* of the thread: the next that it makes */
    uint64_t arrives_at; /* the turn */
    bool has_arrived;
};

/* What has been done to two bytes of shared memory since the block's barrier number `interval`. Threads and warps count
 * from 1, 0 is none. */
struct cell {
    uint32_t interval;
    uint16_t writer, copier; /* of a copy that is not waited for, since whatever barrier */
    uint16_t reading_warp, other_warp;
    uint32_t written_in, read_in; /* intervals of the writer's and the reading warp's own barriers */
    uint32_t lanes;               /* of the reading warp, since read_in began */
    uint32_t line;                /* of the last access */
    bool is_atomic;               /* the write */
};

/* The operands of an mma of a warp. */
struct mma_tile {
    float a[16][16], b_columns[8][16];
};

struct machine {
    const emu_kernel *kernel;
    const void *args;
    void *scheduler; /* its stack pointer */
    unsigned char *stacks;
    fiber fibers[threads_max];
    copy (*copies)[copies_max];     /* of each fiber, in the order in which they were begun */
    unsigned now;                   /* the fiber that runs */
    unsigned order[warp], n_order;  /* fibers of this warp that are still to run in this turn, the next one last */
    uint64_t words[2][threads_max]; /* of meetings, by turns: the next may begin while this one is still read */
    mma_tile tiles[2][warps_max];   /* by turns, too */
    uint64_t random;
    unsigned char *shared; /* of the block: arrays, each with a guard after it */
    size_t shared_end, sized_bytes;
    size_t array_at[arrays_max], array_bytes[arrays_max];
    unsigned n_arrays;
    uint64_t turn, next_arrival;   /* of a copy that arrives at a drawn turn, or later */
    uint32_t interval;             /* barriers of blocks so far */
    uint32_t intervals[warps_max]; /* barriers of each warp so far */
    cell *cells;
};

machine m;

enum { EARLY, LATE, DRAWN } copies_arrive;
emu_find_memory *find_memory;

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

extern "C" void emu_warp_barrier(unsigned mask)
{
    (void)emu_warp_sync(barrier_of_warp, mask, 0);
}

/* ---- copies to shared memory ---- */

static void arrive(copy *c)
{
    if (c->has_arrived) return;
    if (c->is_there)
        memcpy(c->to, c->from, c->bytes);
    else
        memset(c->to, 0, c->bytes);
    c->has_arrived = true;
}

/* Those of this block whose turn it is. */
static void arrive_by_turns(void)
{
    m.next_arrival = when_waited_for;
    for (unsigned i = 0; i < emu_block_dim.x; i++)
        for (unsigned k = 0; k < m.fibers[i].n_copies; k++) {
            copy *const c = &m.copies[i][k];
            if (c->has_arrived) continue;
            if (c->arrives_at <= m.turn)
                arrive(c);
            else if (c->arrives_at < m.next_arrival)
                m.next_arrival = c->arrives_at;
        }
}

/* At once, after one of the next turns, or not before its thread waits. */
static uint64_t drawn_arrival(void)
{
    if (copies_arrive == LATE) return when_waited_for;
    if (copies_arrive == EARLY) return m.turn;
    const unsigned n = draw(turns_max + 8);
    return n < 4 ? m.turn : n >= turns_max + 4 ? when_waited_for : m.turn + n - 3;
}

static void tell_of_copy(const copy *c, emu_access access)
{
    if (!emu_finds_races || m.kernel->sites == nullptr) return;
    emu_touch_shared((uint64_t)(static_cast<unsigned char *>(c->to) - m.shared), c->bytes, access, 0);
}

extern "C" void emu_copy_begin(void *to, const void *from, unsigned bytes, bool is_there)
{
    fiber *const f = &m.fibers[m.now];
    if (f->n_copies == copies_max) stop("more than %u copies at once", copies_max);
    if (((uintptr_t)to | (uintptr_t)from) % bytes != 0) stop("a copy of %u bytes that is not aligned", bytes);
    copy *const c = &m.copies[m.now][f->n_copies++];
    *c = copy{to, from, bytes, is_there, f->n_groups, drawn_arrival(), false};
    tell_of_copy(c, EMU_COPY_BEGIN);
    if (c->arrives_at <= m.turn)
        arrive(c);
    else if (c->arrives_at < m.next_arrival)
        m.next_arrival = c->arrives_at;
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
    for (; n < f->n_copies && copies[n].group + n_left < f->n_groups; n++) {
        arrive(&copies[n]);
        tell_of_copy(&copies[n], EMU_COPY_END);
    }
    f->n_copies -= n;
    memmove(copies, copies + n, f->n_copies * sizeof *copies);
}

/* ---- accesses of translated PTX ---- */

extern "C" void emu_stop_at(const char *why, unsigned line)
{
    stop("%s, %s:%u", why, m.kernel->file, line);
}

static void check_alignment(uint64_t address, unsigned bytes, unsigned line)
{
    if (address % bytes != 0)
        stop("an access of %u bytes at %#llx, which is not aligned to them, %s:%u", bytes, (unsigned long long)address,
             m.kernel->file, line);
}

/* Whether [address, address + bytes) is in [begin, end), where the site then finds it. */
static bool is_within(emu_site *site, uint64_t address, unsigned bytes, uint64_t begin, uint64_t end)
{
    if (address < begin || address >= end || end - address < bytes) return false;
    *site = emu_site{begin, end - begin - bytes + 1};
    return true;
}

extern "C" void emu_site_shared(emu_site *site, uint64_t offset, unsigned bytes, unsigned line)
{
    check_alignment(offset, bytes, line);
    for (unsigned a = 0; a < m.n_arrays; a++)
        if (is_within(site, offset, bytes, m.array_at[a], m.array_at[a] + m.array_bytes[a])) return;
    stop("%u bytes of shared memory at %lld, outside of its arrays, %s:%u", bytes, (long long)offset, m.kernel->file,
         line);
}

extern "C" void emu_site_global(emu_site *site, uint64_t address, unsigned bytes, unsigned line)
{
    check_alignment(address, bytes, line);
    for (const emu_constants *c = m.kernel->constants; c->data != nullptr; c++)
        if (is_within(site, address, bytes, (uint64_t)c->data, (uint64_t)c->data + c->bytes)) return;
    uint64_t begin = 0, end = UINT64_MAX;
    if (find_memory != nullptr && !find_memory(address, &begin, &end)) begin = end = 0;
    if (is_within(site, address, bytes, begin, end)) return;
    if (begin < end)
        stop("%u bytes of global memory at %#llx, which is %llu bytes into an array of %llu, %s:%u", bytes,
             (unsigned long long)address, (unsigned long long)(address - begin), (unsigned long long)(end - begin),
             m.kernel->file, line);
    stop("%u bytes of global memory at %#llx, where no array is (any more), %s:%u", bytes, (unsigned long long)address,
         m.kernel->file, line);
}

static bool is_shared(uint64_t address)
{
    return address - (uint64_t)m.shared < shared_end_max;
}

static bool is_local(uint64_t address)
{
    return address - (uint64_t)(m.stacks + m.now * stack_bytes) < stack_bytes;
}

extern "C" bool emu_is_global(uint64_t address)
{
    return !is_shared(address) && !is_local(address);
}

extern "C" void emu_site_generic(emu_site *site, uint64_t address, unsigned bytes, unsigned line)
{
    if (is_shared(address)) {
        emu_site_shared(site, address - (uint64_t)m.shared, bytes, line);
        site->begin += (uint64_t)m.shared;
    } else if (is_local(address)) {
        check_alignment(address, bytes, line); /* local memory: of this thread, so the site does not keep it */
    } else {
        emu_site_global(site, address, bytes, line);
    }
}

extern "C" void emu_site_outside(const char *what, uint64_t offset, uint64_t size, unsigned bytes, unsigned line)
{
    check_alignment(offset, bytes, line);
    stop("%u bytes at %lld of %llu of %s, %s:%u", bytes, (long long)offset, (unsigned long long)size, what,
         m.kernel->file, line);
}

/* ---- races ---- */

[[noreturn]] static void stop_race(const char *what, unsigned other, uint64_t offset, const cell *c, unsigned line)
{
    stop("a race: byte %llu of shared memory %s %u (line %u) without a barrier between, %s:%u",
         (unsigned long long)offset, what, other, c->line, m.kernel->file, line);
}

static void touch(cell *c, uint64_t offset, emu_access access, unsigned line)
{
    const unsigned w = m.now / warp, lane = 1u << m.now % warp;
    if (c->interval != m.interval) *c = cell{m.interval, 0, c->copier, 0, 0, 0, 0, 0, c->line, false};
    if (access == EMU_COPY_END) c->copier = 0;
    if (c->copier != 0) stop_race("is copied to by thread", c->copier - 1u, offset, c, line);
    if (c->writer != 0 && c->writer - 1u != m.now) {
        const bool is_ordered = (c->writer - 1u) / warp == w && c->written_in < m.intervals[w];
        if (!is_ordered && !(c->is_atomic && access == EMU_ATOMIC))
            stop_race("was written by thread", c->writer - 1u, offset, c, line);
    }
    if (access == EMU_READ) {
        if (c->reading_warp != 0 && c->reading_warp - 1u != w) {
            c->other_warp = (uint16_t)(w + 1);
        } else {
            if (c->reading_warp == 0 || c->read_in != m.intervals[w]) c->lanes = 0;
            c->reading_warp = (uint16_t)(w + 1), c->read_in = m.intervals[w];
            c->lanes |= lane;
        }
    } else {
        if (c->reading_warp != 0 && c->reading_warp - 1u != w)
            stop_race("was read by warp", c->reading_warp - 1u, offset, c, line);
        if (c->other_warp != 0) stop_race("was read by warp", c->other_warp - 1u, offset, c, line);
        if (c->reading_warp != 0 && c->read_in == m.intervals[w] && (c->lanes & ~lane) != 0)
            stop_race("was read by warp", w, offset, c, line);
        c->writer = (uint16_t)(m.now + 1), c->written_in = m.intervals[w], c->is_atomic = access == EMU_ATOMIC;
        if (access == EMU_COPY_BEGIN) c->copier = c->writer;
    }
    c->line = line;
}

extern "C" void emu_touch_shared(uint64_t offset, unsigned bytes, emu_access access, unsigned line)
{
    for (uint64_t at = offset / cell_bytes; at <= (offset + bytes - 1) / cell_bytes; at++)
        touch(&m.cells[at], at * cell_bytes, access, line);
}

extern "C" void emu_touch_generic(uint64_t address, unsigned bytes, emu_access access, unsigned line)
{
    if (is_shared(address)) emu_touch_shared(address - (uint64_t)m.shared, bytes, access, line);
}

/* ---- mma of a warp ---- */

static float element(unsigned word, unsigned half, bool is_bf16)
{
    const uint16_t bits = (uint16_t)(word >> 16 * half);
    return is_bf16 ? ps_bf16_to_f32(bits) : ps_f16_to_f32(bits);
}

/* Rows and columns by lanes as the picture of cuda_mma.cuh has them. Each lane puts its elements where all of them read. */
extern "C" void emu_mma(float *c, const unsigned *a, unsigned b0, unsigned b1, bool bits_are_bf16)
{
    const unsigned lane = m.now % warp, g = lane / 4, t = lane % 4;
    mma_tile *const tile = &m.tiles[m.fibers[m.now].n_meetings % 2][m.now / warp];
    for (unsigned half = 0; half < 2; half++) {
        const unsigned k = 2 * t + half;
        tile->a[g][k] = element(a[0], half, bits_are_bf16), tile->a[g + 8][k] = element(a[1], half, bits_are_bf16);
        tile->a[g][k + 8] = element(a[2], half, bits_are_bf16),
                       tile->a[g + 8][k + 8] = element(a[3], half, bits_are_bf16);
        tile->b_columns[g][k] = element(b0, half, bits_are_bf16),
        tile->b_columns[g][k + 8] = element(b1, half, bits_are_bf16);
    }
    (void)emu_warp_sync("mma", 0xffffffffu, 0);
    for (unsigned e = 0; e < 4; e++)
        for (unsigned k = 0; k < 16; k++) c[e] += tile->a[g + e / 2 * 8][k] * tile->b_columns[2 * t + e % 2][k];
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
    if (m.n_arrays == arrays_max || end > shared_end_max) stop("too much shared memory");
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
        if (++m.turn >= m.next_arrival) arrive_by_turns();
        emu_counts_turn();
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
        m.intervals[first / warp] += m.fibers[first].what == barrier_of_warp;
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
        m.interval++;
    }
    emu_counts_block(threads);
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

static unsigned choice(const char *name, const char *const *values, unsigned otherwise)
{
    const char *const value = getenv(name);
    if (value == nullptr) return otherwise;
    for (unsigned i = 0; values[i] != nullptr; i++)
        if (strcmp(value, values[i]) == 0) return i;
    fprintf(stderr, "emulator: %s=%s: there are", name, value);
    for (; *values != nullptr; values++) fprintf(stderr, " %s", *values);
    fputc('\n', stderr);
    abort();
}

static void begin(void)
{
    static const char *const times[] = {"early", "late", "drawn", nullptr}, *const off_on[] = {"0", "1", nullptr};
    m.stacks = static_cast<unsigned char *>(map(threads_max * stack_bytes));
    m.shared = static_cast<unsigned char *>(map(shared_end_max));
    m.copies = static_cast<copy(*)[copies_max]>(map(threads_max * sizeof *m.copies));
    m.cells = static_cast<cell *>(map(shared_end_max / cell_bytes * sizeof *m.cells));
    copies_arrive = static_cast<decltype(copies_arrive)>(choice("PS_TEST_COPIES", times, DRAWN));
    emu_finds_races = choice("PS_TEST_RACES", off_on, 0);
}

extern "C" void emulate_over(emu_find_memory *find)
{
    find_memory = find;
}

extern "C" void emulate_kernel(const emu_kernel *kernel, unsigned blocks, unsigned shared_bytes, const void *args,
                               unsigned seed)
{
    if (m.stacks == nullptr) begin();
    m.kernel = kernel, m.args = args, m.sized_bytes = shared_bytes;
    m.random = seed * 0x9e3779b97f4a7c15u;
    m.next_arrival = when_waited_for;
    if (kernel->sites != nullptr) memset(kernel->sites, 0, kernel->n_sites * sizeof *kernel->sites);
    emu_block_dim.x = kernel->threads, emu_grid_dim.x = blocks;
    if (blocks == 0) stop("a grid of no blocks");
    emu_counts_launch(kernel);
    unsigned stride = 1 + draw(blocks), turn = draw(blocks);
    while (common_divisor(stride, blocks) != 1) stride++;
    for (unsigned i = 0; i < blocks; i++) {
        emu_block_index.x = (unsigned)((turn + (uint64_t)i * stride) % blocks);
        run_block(kernel->threads);
    }
}
