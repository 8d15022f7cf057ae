#include "ranks.h"

#include <stdio.h>
#include <string.h>

#include "program.h"

/* ---- rendezvous ---- */

static ps_status init_ranks(const ps_config *config, ps_comm **out)
{
    TRY(ps_comm_init(config, out));
    if (ps_comm_rank(*out) == 0 || freopen("/dev/null", "w", stdout) != NULL) return PS_OK;
    return client_fail(PS_EIO, "/dev/null cannot be opened");
}

/* A rank that cannot read its configuration must still report that to the others, so it connects with the defaults. */
static ps_status refuse(ps_status st, ps_comm **out)
{
    char text[768];
    ps_config *defaults = NULL;
    snprintf(text, sizeof text, "%s", ps_last_error());
    if (ps_config_create(&defaults) == PS_OK) (void)init_ranks(defaults, out);
    ps_config_destroy(defaults);
    st = client_fail(st, "%s", text);
    return *out != NULL ? ps_comm_agree(*out, st) : st;
}

ps_status ranks_open(const char *path, char *const *overrides, int n_overrides, ps_config **config, ps_comm **comm)
{
    *comm = NULL;
    const ps_status st = client_load_config(path, overrides, n_overrides, config);
    if (st != PS_OK) return refuse(st, comm);
    TRY(init_ranks(*config, comm));
    TRY(ps_comm_agree(*comm, PS_OK));
    TRY(ps_comm_check_same(*comm, *config));
    return program_report_machine(*config, *comm, 0);
}

/* Whether all ranks have failed with this rank's failure. */
static bool is_agreed(ps_status st)
{
    ps_failure f = {.struct_size = sizeof f};
    return st != PS_OK && ps_get_last_failure(&f) == PS_OK && f.is_shared;
}

void ranks_send_failure(ps_comm *c, ps_status st)
{
    if (c != NULL && st != PS_OK && !is_agreed(st)) ps_comm_fail(c, ps_last_error());
}

/* ---- output ---- */

const char *ranks_prefix(const ps_comm *c, char text[300])
{
    text[0] = '\0';
    if (c != NULL && ps_comm_rank(c) > 0)
        snprintf(text, 300, "[rank %d %.250s] ", ps_comm_rank(c), ps_comm_host(c, ps_comm_rank(c)));
    return text;
}

int ranks_report(const ps_comm *c, const char *command, ps_status st, int is_verbose)
{
    char prefix[300];
    if (st == PS_OK || (c != NULL && ps_comm_rank(c) > 0 && is_agreed(st))) return program_exit_code(st);
    const bool has_dump = (st == PS_EBUDGET || st == PS_ENOMEM_DEV) && ps_last_memory_dump()[0] != '\0';
    if (has_dump && is_verbose) fprintf(stderr, "%s\n", ps_last_memory_dump());
    fprintf(stderr, "%spstar %s: %s%s\n", ranks_prefix(c, prefix), command, ps_last_error(),
            has_dump && !is_verbose ? " (--verbose shows the use of memory)" : "");
    return program_exit_code(st);
}

ps_status ranks_any(ps_comm *c, bool *yes)
{
    double any = *yes;
    TRY(ps_comm_all_reduce(c, &any, 1, PS_COMM_MAX));
    *yes = any > 0;
    return PS_OK;
}
