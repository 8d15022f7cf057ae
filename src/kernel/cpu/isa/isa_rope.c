/* Rotary position embedding: cosines and sines of all positions once per call, then a pass over the rows.
 *
 * The table continues from position to position by the formula for the sum of two angles, in double, which costs a few
 * multiplications instead of a cosine and a sine. Every ROPE_RANGE positions it restarts from the functions, so the
 * error stays below 2^-47, and values rounded to float are correct except near ties. */
#include "base/same_math.h"
#include "kernel/cpu/cpu_vec.h"

#define ROPE_RANGE 64

/* Frequencies that are processed together, so that their state stays in the L1 cache. */
#define ROPE_COLUMNS 64

/* Workspace: the angle of one position, cosines and sines [D / 2] each in double; then a row for each position, D / 2
 * cosines and D / 2 sines. */
typedef struct rope_table {
    double *step_cos, *step_sin;
    float *rows; /* [T][D] */
} rope_table;

static rope_table rope_table_lay(const ps_rope_args *a, char **at)
{
    rope_table t;
    t.step_cos = ps_cpu_take(at, a->D / 2 * (int64_t)sizeof(double));
    t.step_sin = ps_cpu_take(at, a->D / 2 * (int64_t)sizeof(double));
    t.rows = ps_cpu_take(at, a->T * a->D * (int64_t)sizeof(float));
    return t;
}

static ps_status rope_bytes(ps_backend *self, const void *args, size_t *out)
{
    const ps_rope_args *const a = args;
    (void)self;
    char *const base = (char *)64, *end = base; /* any address: only the distance is used */
    rope_table_lay(a, &end);
    *out = (size_t)(end - base);
    return PS_OK;
}

/* Columns [i0, i0 + n) of the rows of positions [t0, t0 + ROPE_RANGE). The sines are those of the direction; both are
 * scaled. */
static void rope_table_range(const ps_rope_args *a, const rope_table *table, int64_t t0, int64_t i0, int64_t n)
{
    const int64_t half = a->D / 2, end = ps_min_i64(a->T, t0 + ROPE_RANGE);
    const double scale = (double)a->scale;
    double c[ROPE_COLUMNS], s[ROPE_COLUMNS];
    for (int64_t i = 0; i < n; i++) {
        const double angle = (double)(a->first + t0) * (double)a->inv_freq[i0 + i]; /* exact below 2^29 positions */
        ps_same_cos_sin(angle, &c[i], &s[i]);
        c[i] = scale * c[i], s[i] = scale * (a->inverse ? -s[i] : s[i]);
    }
    const double *const step_c = table->step_cos + i0, *const step_s = table->step_sin + i0;
    for (int64_t t = t0; t < end; t++) {
        float *const cos_row = table->rows + t * a->D + i0, *const sin_row = cos_row + half;
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            const double c0 = c[i], s0 = s[i];
            cos_row[i] = (float)c0, sin_row[i] = (float)s0;
            c[i] = c0 * step_c[i] - s0 * step_s[i];
            s[i] = s0 * step_c[i] + c0 * step_s[i];
        }
    }
}

typedef struct rope_work {
    const ps_rope_args *a;
    const rope_table *table;
} rope_work;

/* Ranges [lo, hi) of ROPE_RANGE positions each. */
static void rope_table_ranges(const void *args, int64_t lo, int64_t hi)
{
    const rope_work *const w = args;
    const int64_t half = w->a->D / 2;
    for (int64_t r = lo; r < hi; r++)
        for (int64_t i0 = 0; i0 < half; i0 += ROPE_COLUMNS)
            rope_table_range(w->a, w->table, r * ROPE_RANGE, i0, ps_min_i64(ROPE_COLUMNS, half - i0));
}

static void rope_table_fill(ps_backend *self, const ps_rope_args *a, const rope_table *table)
{
    const int64_t half = a->D / 2;
    for (int64_t i = 0; i < half; i++) {
        ps_same_cos_sin((double)a->inv_freq[i], &table->step_cos[i], &table->step_sin[i]);
        if (a->inverse) table->step_sin[i] = -table->step_sin[i];
    }
    const rope_work work = {a, table};
    ps_cpu_for_rows(self, ps_ceil_div(a->T, ROPE_RANGE), ROPE_RANGE * a->D, rope_table_ranges, &work);
}

/* One head: its first element is number `at`. Both halves are read before either is written. */
PS_CPU_INLINE void rope_head(ps_dtype t, const ps_rope_args *a, const float *cosines, int64_t at)
{
    const int64_t half = a->D / 2;
    for (int64_t i = 0; i < half; i += VF_LANES) {
        const int64_t n = half - i, first = at + i, second = first + half;
        const vf c = vf_get(PS_DTYPE_F32, cosines, i, n), s = vf_get(PS_DTYPE_F32, cosines + half, i, n);
        const vf x0 = vf_get(t, a->x, first, n), x1 = vf_get(t, a->x, second, n);
        vf y0 = x0 * c - x1 * s, y1 = x1 * c + x0 * s;
        if (a->accumulate) y0 += vf_get(t, a->y, first, n), y1 += vf_get(t, a->y, second, n);
        vf_put(t, a->y, first, n, y0);
        vf_put(t, a->y, second, n, y1);
    }
}

PS_CPU_INLINE void rope_row(ps_dtype t, const ps_rope_args *a, const rope_table *table, int64_t row)
{
    for (int64_t h = 0; h < a->H; h++) rope_head(t, a, table->rows + row % a->T * a->D, (row * a->H + h) * a->D);
}

static void rope_rows(const void *args, int64_t lo, int64_t hi)
{
    const rope_work *const w = args;
#define CALL(t)                                                                                                        \
    for (int64_t row = lo; row < hi; row++) rope_row(t, w->a, w->table, row)
    PS_CPU_BY_DTYPE(w->a->dtype, CALL);
#undef CALL
}

static ps_status rope(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_rope_args *const a = args;
    (void)queue, (void)workspace_bytes;
    char *at = a->workspace;
    const rope_table table = rope_table_lay(a, &at);
    const rope_work work = {a, &table};
    if (a->B > 0) rope_table_fill(self, a, &table);
    ps_cpu_for_rows(self, a->B * a->T, a->H * a->D, rope_rows, &work);
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(rope) = {.run = rope, .workspace_bytes = rope_bytes};
