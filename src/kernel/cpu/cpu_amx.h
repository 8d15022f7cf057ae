/* cpu_amx.h - the tile instructions of Intel's AMX, and the same in plain C for tests on any machine.
 *
 * Eight tiles, 0 to 7, of 16 rows of 64 bytes. A tile of operand A has 16 rows of 32 bf16, k contiguous; one of operand
 * B has 16 rows of 16 pairs of k: [k / 2][column][k % 2]; a tile of C has 16 rows of 16 floats. PS_TILE_DP(c, a, b): c
 * += a b over 32 k.
 *
 * Its order of arithmetic is that of all bf16 matrix multiplication of this library: for each 32 k, products of even k
 * and of odd k are summed separately, k ascending, by FMA from zero; the sum of both is added to c. Subnormal numbers
 * are zero, as operands and as results.
 *
 *     ps_tiles_begin();                       in each thread, before its first tile
 *     PS_TILE_ZERO(0);
 *     PS_TILE_LOAD(4, a, stride_bytes); PS_TILE_STREAM(6, b, stride_bytes); PS_TILE_DP(0, 4, 6);
 *     PS_TILE_STORE(0, c, stride_bytes);
 *     ps_tiles_end();                         otherwise context switches save the tiles
 *
 * Tile numbers are immediates of the instructions, hence macros. The intrinsics of gcc 12 are not used, as they do not
 * declare that a load reads memory, or that the configuration reads more than 8 of its 64 bytes.
 *
 * The instructions may be used only where the backend's level is PS_CPU_AMX. With PS_TILES_EMULATED defined before,
 * plain C is used instead. */
#ifndef PS_KERNEL_CPU_AMX_H
#define PS_KERNEL_CPU_AMX_H

#include <stdint.h>
#include <string.h>

#define PS_TILE_ROWS 16
#define PS_TILE_ROW_BYTES 64
#define PS_TILE_BYTES 1024

#ifdef PS_TILES_EMULATED

#include <math.h>

#include "base/dtype.h"

static _Thread_local float ps_tile_data[8][PS_TILE_ROWS][PS_TILE_ROW_BYTES / sizeof(float)];

static inline float ps_tile_flush(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x;
}

static inline void ps_tile_load(int t, const void *p, int64_t stride)
{
    for (int64_t r = 0; r < PS_TILE_ROWS; r++)
        memcpy(ps_tile_data[t][r], (const char *)p + r * stride, PS_TILE_ROW_BYTES);
}

static inline void ps_tile_store(int t, void *p, int64_t stride)
{
    for (int64_t r = 0; r < PS_TILE_ROWS; r++) memcpy((char *)p + r * stride, ps_tile_data[t][r], PS_TILE_ROW_BYTES);
}

/* The sum of the products of even (0) or odd (1) k. */
static inline float ps_tile_sum(int a, int b, int row, int col, int odd)
{
    float sum = 0.0f;
    for (int pair = 0; pair < PS_TILE_ROWS; pair++) {
        uint16_t x[2], y[2];
        memcpy(x, &ps_tile_data[a][row][pair], sizeof x);
        memcpy(y, &ps_tile_data[b][pair][col], sizeof y);
        sum = ps_tile_flush(fmaf(ps_tile_flush(ps_bf16_to_f32(x[odd])), ps_tile_flush(ps_bf16_to_f32(y[odd])), sum));
    }
    return sum;
}

static inline void ps_tile_dp(int c, int a, int b)
{
    for (int row = 0; row < PS_TILE_ROWS; row++)
        for (int col = 0; col < PS_TILE_ROWS; col++) {
            const float sum = ps_tile_flush(ps_tile_sum(a, b, row, col, 0) + ps_tile_sum(a, b, row, col, 1));
            float *const to = &ps_tile_data[c][row][col];
            *to = ps_tile_flush(ps_tile_flush(*to) + sum);
        }
}

static inline void ps_tiles_begin(void)
{
}

static inline void ps_tiles_end(void)
{
}

#define PS_TILE_ZERO(t) memset(ps_tile_data[t], 0, PS_TILE_BYTES)
#define PS_TILE_LOAD(t, p, stride) ps_tile_load(t, p, stride)
#define PS_TILE_STREAM(t, p, stride) ps_tile_load(t, p, stride)
#define PS_TILE_STORE(t, p, stride) ps_tile_store(t, p, stride)
#define PS_TILE_DP(c, a, b) ps_tile_dp(c, a, b)

#else

/* Palette 1: all eight tiles whole. */
static inline void ps_tiles_begin(void)
{
    _Alignas(64) unsigned char config[64] = {1};
    for (int t = 0; t < 8; t++) config[16 + 2 * t] = PS_TILE_ROW_BYTES, config[48 + t] = PS_TILE_ROWS;
    __asm__ volatile("ldtilecfg %0" ::"m"(config) : "memory");
}

static inline void ps_tiles_end(void)
{
    __asm__ volatile("tilerelease" ::: "memory");
}

#define PS_TILE_ZERO(t) __asm__ volatile("tilezero %%tmm" #t ::)
#define PS_TILE_LOAD(t, p, stride)                                                                                     \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"(p), "r"((int64_t)(stride)) : "memory")
/* The same for data that is read once, without displacing the L1 cache. */
#define PS_TILE_STREAM(t, p, stride)                                                                                   \
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm" #t ::"r"(p), "r"((int64_t)(stride)) : "memory")
#define PS_TILE_STORE(t, p, stride)                                                                                    \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"(p), "r"((int64_t)(stride)) : "memory")
#define PS_TILE_DP(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)

#endif

#endif
