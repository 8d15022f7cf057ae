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
