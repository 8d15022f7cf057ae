/* cache.c - the KV cache: places of keys and values for incremental decoding, and the passes that extend it.
 *
 *     block  | keys of the first attention | its values | keys of the second | ...        each [KV, positions, D]
 *
 * A pass has as many rows as one of row_counts; all of them use the same buffers. */
#include "base/mem.h"
#include "train/graph/code_impl.h"

#define CACHE_ALIGN 64

/* Bytes of the node's keys, or of its values; 0: none. */
static int64_t half_bytes(const ps_node *n, int64_t positions, ps_dtype dtype)
{
    if (n->type->cached_cols == NULL) return 0;
    return ps_round_up(n->type->cached_cols(n) * positions * (int64_t)ps_dtype_bytes(dtype), CACHE_ALIGN);
}

/* 1, 4, 16, ... and the program's rows. */
static void choose_row_counts(ps_code *p)
{
    for (int64_t rows = 1; rows < p->program->T; rows *= 4) p->row_counts[p->n_row_counts++] = rows;
    p->row_counts[p->n_row_counts++] = p->program->T;
}

ps_status ps_code_place_cache(ps_code *p, int64_t positions, ps_dtype dtype)
{
    const ps_program *program = p->program;
    PS_ASSERT(program->B == 1 && program->T <= PS_DECODE_ROWS_MAX && program->T <= positions);
    PS_TRY(ps_mem_alloc((size_t)program->n_nodes, sizeof *p->cache_offset, &p->cache_offset));
    p->cache_positions = positions;
    for (int32_t i = 0; i < program->n_nodes; i++) {
        const ps_node *n = &program->nodes[i];
        if (n->type->continues != NULL) PS_TRY(n->type->continues(program, n, positions));
        p->cache_offset[i] = p->cache_bytes;
        p->cache_bytes += 2 * half_bytes(n, positions, dtype);
    }
    choose_row_counts(p);
    return PS_OK;
}

void ps_code_bind_cache(const ps_code *p, const ps_instr *instr, void *cache, ps_node_run *run)
{
    const ps_node *n = &p->program->nodes[instr->node];
    run->cache_positions = p->cache_positions;
    if (cache == NULL || n->type->cached_cols == NULL) return;
    run->k_cache = (char *)cache + p->cache_offset[instr->node];
    run->v_cache = (char *)run->k_cache + half_bytes(n, p->cache_positions, run->dtype);
}
