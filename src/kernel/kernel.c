#include "kernel/kernel.h"

#include "base/base.h"

const char *ps_op_name(ps_op op)
{
    static const char *const names[PS_OP_COUNT] = {
#define XX(op) #op,
        PS_OPS(XX)
#undef XX
    };
    return (size_t)op < PS_ARRAY_LEN(names) ? names[op] : "?";
}

ps_status ps_ids_check(const int32_t *ids, int64_t rows, int64_t V)
{
    for (int64_t r = 0; r < rows; r++)
        if (ids[r] < 0 || ids[r] >= V)
            return PS_FAIL(PS_EINVAL, "token id %d at row %lld is outside the vocabulary [0, %lld)", (int)ids[r],
                           (long long)r, (long long)V);
    return PS_OK;
}

ps_status ps_targets_check(const int32_t *targets, int64_t rows, int64_t V)
{
    for (int64_t r = 0; r < rows; r++)
        if (targets[r] != PS_IGNORE_INDEX && (targets[r] < 0 || targets[r] >= V))
            return PS_FAIL(PS_EINVAL, "target %d at row %lld is neither in the vocabulary [0, %lld) nor %d",
                           (int)targets[r], (long long)r, (long long)V, PS_IGNORE_INDEX);
    return PS_OK;
}

ps_status ps_positions_check(int64_t end, int64_t n_positions)
{
    if (end <= n_positions) return PS_OK;
    return PS_FAIL(PS_EINVAL, "sequence length %lld exceeds the %lld positions of the model", (long long)end,
                   (long long)n_positions);
}
