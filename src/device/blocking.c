#include "device/blocking.h"

static _Thread_local ps_blocked so_far;

const char *ps_block_name(ps_block why)
{
    static const char *const names[] = {
#define XX(block, name, text) [PS_BLOCK_##block] = name,
        PS_BLOCKS(XX)
#undef XX
    };
    return names[why];
}

ps_blocked ps_blocked_so_far(void)
{
    return so_far;
}

void ps_block_note(ps_block why)
{
    so_far.n[why]++;
}
