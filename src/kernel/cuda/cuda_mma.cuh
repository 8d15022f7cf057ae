/* cuda_mma.cuh - small matrix multiplication by a warp (tensor cores), of 16-bit types with sums in float, and its
 * operands: tiles in shared memory, copied asynchronously.
 *
 * The unit is 16 x 8 x 16: c [16, 8] += a [16, 16] b [16, 8]. With g = lane / 4 and t = lane % 4, a lane has these
 * elements (PTX ISA, "Matrix Fragments for mma.m16n8k16"), two neighbouring elements of 16 bits a word, the first in
 * its low half:
 *
 *     c[0], c[1]    row g,      columns 2t, 2t + 1          a[0]   row g,     columns 2t, 2t + 1
 *     c[2], c[3]    row g + 8,  the same columns            a[1]   row g + 8, the same
 *                                                           a[2]   row g,     columns 2t + 8, 2t + 9
 *     b[0]          rows 2t, 2t + 1, column g               a[3]   row g + 8, the same
 *     b[1]          rows 2t + 8, 2t + 9, column g
 *
 * So the rounded sums of two adjacent multiplications, [16, 8] each, are a matrix `a` of the next one, without
 * shuffles.
 *
 * A tile has rows of WIDTH elements in units of 8 (16 bytes). Unit u of row r is at u ^ (r mod 8), so that the 8 rows
 * of a matrix load, 16 bytes of each, are in different banks. */
#ifndef PS_KERNEL_CUDA_CUDA_MMA_CUH
#define PS_KERNEL_CUDA_CUDA_MMA_CUH

#include "kernel/cuda/cuda_device.cuh"

/* For the host compiler the emulator's header defines these:
 *
 *     mma_words<T>(c, a, b0, b1)   the product above
 *     load_matrices(r, row)        r[i] of a lane: of the i-th 8 x 8 matrix, whose rows begin where lanes 8i .. 8i + 7
 *                                  say, elements 2t and 2t + 1 of row g
 *     load_matrices_turned         the same of the matrices' transposes
 *     copy_begin<BYTES>(to, from, is_there)   4 or 16 bytes to shared memory, or as many zeros; from is a valid address
 *     copies_commit()              what was begun before is a group
 *     copies_wait<N>()             until at most the last N groups of this thread are under way
 *     exp2_fast(x)                 2^x, of results below 2^-126 zero */
#ifdef __CUDACC__
template <typename T> __device__ inline void mma_words(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1);

template <> __device__ inline void mma_words<ps_bf16>(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <> __device__ inline void mma_words<ps_f16>(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline unsigned shared_address(const void *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}

__device__ inline void load_matrices(unsigned (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

__device__ inline void load_matrices_turned(unsigned (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

template <int BYTES> __device__ inline void copy_begin(void *to, const void *from, bool is_there)
{
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                     "r"(is_there ? 16 : 0)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from),
                     "r"(is_there ? 4 : 0)
                     : "memory");
}

__device__ inline void copies_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int N> __device__ inline void copies_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

__device__ inline float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#endif

/* Two elements, x in the low half. */
template <typename T> __device__ inline unsigned pack_two(float x, float y)
{
    return (unsigned)from_float<T>(x).bits | (unsigned)from_float<T>(y).bits << 16;
}

/* ---- tiles ---- */

/* The 16 bytes of unit u of a row. */
template <int WIDTH, typename T> __device__ inline T *unit_of(T *tile, int row, int u)
{
    return tile + row * WIDTH + ((u ^ (row & 7)) << 3);
}

/* From unit u of a row, u 0 or 1, to unit u + 2k: rows are aligned to their size, so that the unit is a bit field of
 * the address. One operation, instead of four above. */
template <typename T> __device__ inline const T *units_on(const T *unit, int k)
{
    return reinterpret_cast<const T *>(reinterpret_cast<uintptr_t>(unit) ^ (uintptr_t)(k << 5));
}

/* Rows [row, row + 16) and columns [16k, 16k + 16) as the matrix a. */
template <int WIDTH, typename T> __device__ inline void load_a(unsigned (&a)[4], const T *tile, int row, int k)
{
    const int lane = lane_of_thread();
    load_matrices(a, units_on(unit_of<WIDTH>(tile, row + lane % 16, lane / 16), k));
}

/* Rows [row, row + 16) of the tile as columns of two matrices b, b[0 .. 1] and b[2 .. 3]; columns [16k, 16k + 16) of
 * the tile as their rows. */
template <int WIDTH, typename T> __device__ inline void load_b_of_rows(unsigned (&b)[4], const T *tile, int row, int k)
{
    const int lane = lane_of_thread();
    load_matrices(b, units_on(unit_of<WIDTH>(tile, row + lane / 16 * 8 + lane % 8, lane / 8 % 2), k));
}

/* Columns [16n, 16n + 16) of the tile as columns of two matrices b; rows [row, row + 16) of the tile as their rows. */
template <int WIDTH, typename T>
__device__ inline void load_b_of_columns(unsigned (&b)[4], const T *tile, int row, int n)
{
    const int lane = lane_of_thread();
    load_matrices_turned(b, units_on(unit_of<WIDTH>(tile, row + lane % 16, lane / 16), n));
}

#endif
