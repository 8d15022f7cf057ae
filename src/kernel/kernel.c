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

size_t ps_op_args_bytes(ps_op op)
{
    static const size_t bytes[PS_OP_COUNT] = {
#define XX(op) sizeof(ps_##op##_args),
        PS_OPS(XX)
#undef XX
    };
    return bytes[op];
}
