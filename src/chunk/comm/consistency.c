#include "chunk/comm/consistency.h"

#include <inttypes.h>

#include "base/base.h"
#include "base/mem.h"
#include "chunk/comm/agree.h"

ps_status ps_comm_check_consistency(ps_comm *c, const ps_consistency_item *items, int n)
{
    uint64_t mine[PS_CONSISTENCY_ITEMS_MAX], *all = NULL;
    const int32_t size = ps_comm_size(c);
    PS_ASSERT(n <= (int)PS_ARRAY_LEN(mine));
    for (int i = 0; i < n; i++) mine[i] = items[i].value;
    ps_status st = PS_OK;
    PS_TRY_GOTO(ps_comm_agree(c, ps_mem_alloc((size_t)size * (size_t)n, sizeof *all, &all)));
    PS_TRY_GOTO(ps_comm_all_gather(c, mine, n * (int64_t)sizeof *mine, all));
    for (int32_t r = 1; r < size && st == PS_OK; r++)
        for (int i = 0; i < n && st == PS_OK; i++) {
            if (all[r * n + i] == all[i]) continue;
            st = PS_FAIL(
                PS_EINVAL, "rank %d (%s) has another %s than rank 0 (%s): %016" PRIx64 ", not %016" PRIx64 "; %s", r,
                ps_comm_host(c, r), items[i].what, ps_comm_host(c, 0), all[r * n + i], all[i], items[i].remedy);
            ps_fail_on_rank(r, ps_comm_host(c, r), r != ps_comm_rank(c), true);
        }
out:
    ps_mem_free(all);
    return st;
}
