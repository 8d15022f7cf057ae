#include "chunk/comm/agree.h"

#include <stdio.h>
#include <string.h>

typedef struct verdict {
    int32_t status;
    int32_t rank; /* of the error, where ranks have agreed on it before; -1: the sending rank */
    char host[64];
    char text[768];
} verdict;

/* What this rank would send to the others. */
static verdict verdict_of(ps_status st)
{
    ps_failure f = {.struct_size = sizeof f};
    verdict v = {.status = (int32_t)st, .rank = -1};
    if (st == PS_OK) return v;
    snprintf(v.text, sizeof v.text, "%s", ps_last_error());
    if (ps_get_last_failure(&f) == PS_OK && f.is_shared) {
        v.rank = f.rank;
        memcpy(v.host, f.host, sizeof v.host);
    }
    return v;
}

ps_status ps_comm_agree(ps_comm *c, ps_status st)
{
    if (c == NULL || ps_comm_size(c) == 1) return st;
    const int32_t size = ps_comm_size(c);
    verdict v = verdict_of(st);
    double first = st != PS_OK ? ps_comm_rank(c) : size;
    PS_TRY(ps_comm_all_reduce(c, &first, 1, PS_COMM_MIN));
    const int32_t failed = (int32_t)first;
    if (failed >= size) return PS_OK;
    PS_TRY(ps_comm_broadcast(c, &v, sizeof v, failed));
    if (v.rank >= 0) {
        st = PS_FAIL((ps_status)v.status, "%s", v.text); /* the text names the rank */
    } else {
        v.rank = failed;
        snprintf(v.host, sizeof v.host, "%s", ps_comm_host(c, failed));
        st = PS_FAIL((ps_status)v.status, "rank %d (%s): %s", v.rank, v.host, v.text);
    }
    ps_fail_on_rank(v.rank, v.host, v.rank != ps_comm_rank(c), true);
    return st;
}

ps_status ps_comm_find_range(ps_comm *c, const double *numbers, int n, double *least, double *most)
{
    double both[2 * PS_COMM_NUMBERS_MAX];
    PS_ASSERT(n <= PS_COMM_NUMBERS_MAX);
    for (int i = 0; i < n; i++) both[i] = numbers[i], both[n + i] = -numbers[i];
    PS_TRY(ps_comm_all_reduce(c, both, 2 * n, PS_COMM_MIN));
    for (int i = 0; i < n; i++) least[i] = both[i], most[i] = -both[n + i];
    return PS_OK;
}

ps_status ps_comm_agree_alike(ps_comm *c, ps_status st, const char *call, const double *numbers, int n)
{
    double least[PS_COMM_NUMBERS_MAX], most[PS_COMM_NUMBERS_MAX];
    PS_TRY(ps_comm_agree(c, st));
    if (c == NULL || ps_comm_size(c) == 1) return PS_OK;
    PS_TRY(ps_comm_find_range(c, numbers, n, least, most));
    for (int i = 0; i < n; i++)
        if (least[i] != most[i])
            return PS_FAIL(PS_EINVAL, "%s: ranks call it with different values, from %g to %g; the call does nothing",
                           call, least[i], most[i]);
    return PS_OK;
}
