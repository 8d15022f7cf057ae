/* Grids and scratch of cuda_norm.cu.
 *
 * Backward of rows that fit the registers of a team is one kernel, whose blocks process many rows each, and a reduction
 * of the blocks' sums for the weights. Other rows need an additional kernel for each weight: column sums. */
#include "kernel/cuda/cuda_operator.h"

#define THREADS PS_CUDA_THREADS_layernorm_fwd
#define ROWS_OF_WARPS(kernel) (PS_CUDA_THREADS_##kernel / PS_CUDA_WARP)

_Static_assert(PS_CUDA_THREADS_rmsnorm_fwd == THREADS && PS_CUDA_THREADS_layernorm_bwd_1 == THREADS &&
                   PS_CUDA_THREADS_layernorm_bwd_2 == THREADS && PS_CUDA_THREADS_layernorm_bwd_4 == THREADS &&
                   PS_CUDA_THREADS_rmsnorm_bwd_1 == THREADS && PS_CUDA_THREADS_rmsnorm_bwd_2 == THREADS &&
                   PS_CUDA_THREADS_rmsnorm_bwd_4 == THREADS,
               "one team serves them all");

static ps_status forward(const ps_cuda_issuer *to, ps_cuda_kernel kernel, ps_dtype t, ps_cuda_norm_fwd_args a)
{
    const ps_cuda_team team = ps_cuda_team_of(a.cols, t, THREADS, false);
    a.lanes = team.lanes, a.vectors = team.vectors;
    const int64_t rows_a_block = team.lanes > 0 ? THREADS / team.lanes : ROWS_OF_WARPS(layernorm_fwd);
    return PS_CUDA_LAUNCH(to, (ps_cuda_kernel)((int)kernel + (int)t), ps_ceil_div(a.rows, rows_a_block), &a);
}

static ps_status layernorm_fwd(const ps_cuda_issuer *to, const void *args)
{
    const ps_layernorm_fwd_args *const a = args;
    return forward(to, PS_CUDA_layernorm_fwd, a->dtype,
                   (ps_cuda_norm_fwd_args){.y = a->y,
                                           .mean = a->mean,
                                           .rstd = a->rstd,
                                           .x = a->x,
                                           .w = a->w,
                                           .b = a->b,
                                           .rows = a->rows,
                                           .cols = a->cols,
                                           .eps = a->eps});
}

const ps_cuda_operator ps_cuda_layernorm_fwd = {.run = layernorm_fwd};

static ps_status rmsnorm_fwd(const ps_cuda_issuer *to, const void *args)
{
    const ps_rmsnorm_fwd_args *const a = args;
    return forward(
        to, PS_CUDA_rmsnorm_fwd, a->dtype,
        (ps_cuda_norm_fwd_args){
            .y = a->y, .rstd = a->rstd, .x = a->x, .w = a->w, .rows = a->rows, .cols = a->cols, .eps = a->eps});
}

const ps_cuda_operator ps_cuda_rmsnorm_fwd = {.run = rmsnorm_fwd};

/* ---- backward ---- */

/* Shared by both norms. db and mean: layernorm only. */
typedef struct norm_bwd {
    ps_cuda_norm_bwd_args a;
    ps_cuda_kernel by_team; /* that of one vector per thread, followed by those of 2 and 4 */
    int64_t n_arrays;       /* of sums down columns */
    void *dw, *db;
    ps_dtype dtype, grad_dtype;
    bool accumulate_grad;
    void *workspace;
} norm_bwd;

/* Blocks of the team kernel: as many as are resident on an H100, limited by registers; a team has several rows, so that
 * partial sums are few in comparison. */
#define BLOCKS_MAX(team) ((team).vectors > 2 ? 132 : 264)
#define ROWS_A_TEAM 4

static int64_t blocks_of_teams(int64_t rows, ps_cuda_team team)
{
    return ps_min_i64(ps_ceil_div(rows, ROWS_A_TEAM * (THREADS / team.lanes)), BLOCKS_MAX(team));
}

static int64_t bwd_bytes(int64_t rows, int64_t cols, ps_dtype t, int64_t n_arrays)
{
    const ps_cuda_team team = ps_cuda_team_of(cols, t, THREADS, true);
    return team.lanes > 0 ? ps_cuda_floats(blocks_of_teams(rows, team) * cols * n_arrays)
                          : n_arrays * ps_cuda_columns_bytes(rows, cols);
}

static ps_status backward_by_teams(const ps_cuda_issuer *to, norm_bwd *b, ps_cuda_team team)
{
    const int64_t n_blocks = blocks_of_teams(b->a.rows, team), nth = team.vectors == 4 ? 2 : team.vectors - 1;
    b->a.partial = b->workspace;
    b->a.rows_a_block = n_blocks > 0 ? ps_ceil_div(b->a.rows, n_blocks) : 0;
    b->a.lanes = team.lanes;
    PS_TRY(PS_CUDA_LAUNCH(to, (ps_cuda_kernel)((int)b->by_team + (int)nth * PS_DTYPE_COUNT + (int)b->dtype), n_blocks,
                          &b->a));
    return ps_cuda_add_partials(to, &(ps_cuda_partials_args){.y = b->dw,
                                                             .y2 = b->db,
                                                             .partial = b->a.partial,
                                                             .n_partials = n_blocks,
                                                             .cols = b->a.cols,
                                                             .n_arrays = b->n_arrays,
                                                             .dtype = b->grad_dtype,
                                                             .accumulate = b->accumulate_grad});
}

/* Partial sums first, as dx may overwrite dy; dw last, as it may overwrite w. */
static ps_status backward(const ps_cuda_issuer *to, norm_bwd *b)
{
    const ps_cuda_norm_bwd_args *const a = &b->a;
    const ps_cuda_team team = ps_cuda_team_of(a->cols, b->dtype, THREADS, true);
    if (team.lanes > 0) return backward_by_teams(to, b, team);
    char *workspace = b->workspace;
    const int64_t bytes = ps_cuda_columns_bytes(a->rows, a->cols);
    float *const dw = ps_cuda_take(&workspace, bytes), *const db =
                                                           b->n_arrays > 1 ? ps_cuda_take(&workspace, bytes) : NULL;
    ps_cuda_columns_args c = {.x = a->dy, .rows = a->rows, .cols = a->cols, .stride = a->cols};
    if (db != NULL) PS_TRY(ps_cuda_column_partials(to, b->dtype, c, db));
    c.normal = a->x, c.mean = a->mean, c.rstd = a->rstd;
    PS_TRY(ps_cuda_column_partials(to, b->dtype, c, dw));
    PS_TRY(PS_CUDA_LAUNCH(to, PS_CUDA_OF_TYPE(norm_bwd, b->dtype), ps_ceil_div(a->rows, ROWS_OF_WARPS(norm_bwd)), a));
    PS_TRY(ps_cuda_column_sums(to, dw, a->rows, a->cols, b->dw, b->grad_dtype, b->accumulate_grad));
    if (db == NULL) return PS_OK;
    return ps_cuda_column_sums(to, db, a->rows, a->cols, b->db, b->grad_dtype, b->accumulate_grad);
}

static int64_t layernorm_bwd_bytes(const void *args, int64_t gemm_bytes)
{
    const ps_layernorm_bwd_args *const a = args;
    (void)gemm_bytes;
    return bwd_bytes(a->rows, a->cols, a->dtype, 2);
}

static ps_status layernorm_bwd(const ps_cuda_issuer *to, const void *args)
{
    const ps_layernorm_bwd_args *const a = args;
    norm_bwd b = {.a = {.dx = a->dx,
                        .dy = a->dy,
                        .x = a->x,
                        .w = a->w,
                        .mean = a->mean,
                        .rstd = a->rstd,
                        .rows = a->rows,
                        .cols = a->cols,
                        .accumulate_dx = a->accumulate_dx},
                  .by_team = PS_CUDA_layernorm_bwd_1,
                  .n_arrays = 2,
                  .dw = a->dw,
                  .db = a->db,
                  .dtype = a->dtype,
                  .grad_dtype = a->grad_dtype,
                  .accumulate_grad = a->accumulate_grad,
                  .workspace = a->workspace};
    return backward(to, &b);
}

const ps_cuda_operator ps_cuda_layernorm_bwd = {.run = layernorm_bwd, .workspace_bytes = layernorm_bwd_bytes};

static int64_t rmsnorm_bwd_bytes(const void *args, int64_t gemm_bytes)
{
    const ps_rmsnorm_bwd_args *const a = args;
    (void)gemm_bytes;
    return bwd_bytes(a->rows, a->cols, a->dtype, 1);
}

static ps_status rmsnorm_bwd(const ps_cuda_issuer *to, const void *args)
{
    const ps_rmsnorm_bwd_args *const a = args;
    norm_bwd b = {.a = {.dx = a->dx,
                        .dy = a->dy,
                        .x = a->x,
                        .w = a->w,
                        .rstd = a->rstd,
                        .rows = a->rows,
                        .cols = a->cols,
                        .accumulate_dx = a->accumulate_dx},
                  .by_team = PS_CUDA_rmsnorm_bwd_1,
                  .n_arrays = 1,
                  .dw = a->dw,
                  .dtype = a->dtype,
                  .grad_dtype = a->grad_dtype,
                  .accumulate_grad = a->accumulate_grad,
                  .workspace = a->workspace};
    return backward(to, &b);
}

const ps_cuda_operator ps_cuda_rmsnorm_bwd = {.run = rmsnorm_bwd, .workspace_bytes = rmsnorm_bwd_bytes};
