#include "kernel/cpu/cpu_team.h"

#include <omp.h>

#include "base/base.h"
#include "base/machine.h"

enum { TEAM_THREADS, TEAM_DYNAMIC, TEAM_LEVELS };

/* With the settings of before in *state. */
static void team_set(int n_threads, ps_thread_state *state)
{
    state->saved[TEAM_THREADS] = omp_get_max_threads();
    state->saved[TEAM_DYNAMIC] = omp_get_dynamic();
    state->saved[TEAM_LEVELS] = omp_get_max_active_levels();
    if (state->saved[TEAM_THREADS] != n_threads) omp_set_num_threads(n_threads);
    if (state->saved[TEAM_DYNAMIC]) omp_set_dynamic(0);
    if (state->saved[TEAM_LEVELS] < 1) omp_set_max_active_levels(1);
}

void ps_cpu_team_end(const ps_thread_state *state)
{
    const int n_threads = (int)state->saved[TEAM_THREADS], levels = (int)state->saved[TEAM_LEVELS];
    if (omp_get_max_threads() != n_threads) omp_set_num_threads(n_threads);
    if (state->saved[TEAM_DYNAMIC]) omp_set_dynamic(1);
    if (omp_get_max_active_levels() != levels) omp_set_max_active_levels(levels);
}

static ps_status fail_smaller(int n, int n_threads)
{
    return PS_FAIL(PS_ENOSYS,
                   "OpenMP gives %d of the %d threads that were planned (OMP_THREAD_LIMIT allows %d in all): raise "
                   "OMP_THREAD_LIMIT, or set train.threads to %d",
                   n, n_threads, omp_get_thread_limit(), n);
}

static ps_status team_count(int n_threads)
{
    int n = 0;
#pragma omp parallel
#pragma omp single
    n = omp_get_num_threads();
    return n == n_threads ? PS_OK : fail_smaller(n, n_threads);
}

/* In a parallel region oneDNN takes one thread, whatever it was made for. Outside of one a team is the caller's own, which all of the
 * limit is for; so it cannot come out smaller: where OpenMP cannot start a thread it ends the program. */
ps_status ps_cpu_team_begin(int n_threads, ps_thread_state *state)
{
    if (n_threads > 1 && omp_in_parallel())
        return PS_FAIL(
            PS_ESTATE,
            "called from within a parallel region of OpenMP, where %d threads cannot be had: call from outside, "
            "or set train.threads to 1",
            n_threads);
    if (n_threads > omp_get_thread_limit()) return fail_smaller(omp_get_thread_limit(), n_threads);
    team_set(n_threads, state);
    return PS_OK;
}

ps_status ps_cpu_team_check(int n_threads)
{
    ps_thread_state state;
    if (n_threads < 1) return PS_FAIL(PS_EINVAL, "%d threads: at least 1 is needed", n_threads);
    PS_TRY(ps_cpu_team_begin(n_threads, &state));
    const ps_status st = team_count(n_threads);
    ps_cpu_team_end(&state);
    return st;
}

int ps_cpu_threads(void)
{
    return (int)ps_min_i64(ps_machine_cores(NULL), ps_max_i64(omp_get_thread_limit(), 1));
}

void ps_cpu_team_suppose(int n_threads, ps_thread_state *state)
{
    team_set(n_threads, state);
}
