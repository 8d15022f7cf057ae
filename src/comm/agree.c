#include "comm/agree.h"

#include <stdio.h>

typedef struct verdict {
    int32_t status;
    char text[768];
} verdict;

ps_status ps_comm_agree(ps_comm *c, ps_status st)
{
    if (c == NULL || ps_comm_size(c) == 1) return st;
    const int32_t size = ps_comm_size(c);
    verdict v = {.status = (int32_t)st};
    if (st != PS_OK) snprintf(v.text, sizeof v.text, "%s", ps_last_error());
    double first = st != PS_OK ? ps_comm_rank(c) : size;
    PS_TRY(ps_comm_all_reduce(c, &first, 1, PS_COMM_MIN));
    const int32_t failed = (int32_t)first;
    if (failed >= size) return PS_OK;
    PS_TRY(ps_comm_broadcast(c, &v, sizeof v, failed));
    int named; /* already, by what it has agreed on before */
    if (sscanf(v.text, "rank %d (", &named) == 1) return PS_FAIL((ps_status)v.status, "%s", v.text);
    return PS_FAIL((ps_status)v.status, "rank %d (%s): %s", failed, ps_comm_host(c, failed), v.text);
}
