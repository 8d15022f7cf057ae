/* guard.c - guard bytes after the buffers of code, in debug builds: an operator that writes past its workspace or its
 * results is reported at once. */
#include <string.h>

#include "train/graph/code.h"

#define GUARD 0xC5

/* The use of the buffer in instr; NULL when it belongs to another instruction. */
static const char *role_of(const ps_code *p, const ps_instr *instr, int32_t buffer)
{
    if (instr->workspace == buffer) return "workspace";
    if (instr->y == buffer) return "output";
    if (instr->between == buffer) return "result before what follows";
    for (int i = 0; i < PS_NODE_PARAMS; i++)
        if (instr->unwanted_dw[i] == buffer) return "gradient that is not needed";
    if (instr->dy == buffer) return "gradient of its output";
    for (int i = 0; i < PS_NODE_INPUTS; i++) {
        if (instr->x[i] == buffer) return "input";
        if (instr->dx[i] == buffer) return "gradient of an input";
    }
    for (int i = 0; i < PS_NODE_SAVED; i++)
        if (instr->saved[i] == buffer) return "row statistics";
    if (instr->logits == buffer) return "logits";
    if (instr->constants == buffer) return "constants";
    if (instr->output == buffer) return "output of inference";
    for (int i = 0; i < PS_BATCH_ARRAY_COUNT; i++)
        if (p->batch[i] == buffer) return "batch";
    return NULL;
}

static bool is_live(const ps_buffer *b, int32_t m)
{
    return b->first <= m && m <= b->last;
}

void ps_code_guard_set(const ps_code *p, const ps_instr *instr, void *base)
{
    const int32_t m = (int32_t)(instr - p->instrs);
    for (int32_t i = 0; i < p->n_buffers; i++) {
        const ps_buffer *b = &p->buffers[i];
        if (is_live(b, m)) memset((char *)base + b->offset + b->bytes, GUARD, PS_CODE_GUARD_BYTES);
    }
}

ps_status ps_code_guard_check(const ps_code *p, const ps_instr *instr, const void *base)
{
    const int32_t m = (int32_t)(instr - p->instrs);
    for (int32_t i = 0; i < p->n_buffers; i++) {
        const ps_buffer *b = &p->buffers[i];
        const unsigned char *end = (const unsigned char *)base + b->offset + b->bytes;
        for (int k = 0; is_live(b, m) && k < PS_CODE_GUARD_BYTES; k++) {
            if (end[k] == GUARD) continue;
            const char *role = role_of(p, instr, i);
            return PS_FAIL(PS_ESTATE, "%s wrote past %s%s: buffer %d of %lld bytes, byte %lld", instr->label,
                           role != NULL ? "its " : "another buffer", role != NULL ? role : "", i, (long long)b->bytes,
                           (long long)b->bytes + k);
        }
    }
    return PS_OK;
}
