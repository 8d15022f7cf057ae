/* cpu_team.h - the team of threads that a kernel computes with, whatever the program around it and its environment (OMP_DYNAMIC,
 * OMP_NUM_THREADS, OMP_MAX_ACTIVE_LEVELS) have set up. oneDNN divides its work and its scratch by the threads that it was
 * promised, and computes nonsense with fewer.
 *
 * OpenMP keeps these settings for each thread; they are set for one kernel's call and set back, so that a caller with an OpenMP
 * program of its own finds it as it was. What cannot be lifted is refused: a limit on all threads (OMP_THREAD_LIMIT), and calls from
 * within a parallel region. */
#ifndef PS_KERNEL_CPU_TEAM_H
#define PS_KERNEL_CPU_TEAM_H

#include "kernel/backend.h"

/* The next parallel regions of this thread have n_threads threads. PS_ENOSYS when the system gives fewer; PS_ESTATE in a parallel region
 * of the caller, unless n_threads is 1. */
PS_NODISCARD ps_status ps_cpu_team_begin(int n_threads, ps_thread_state *state);
void ps_cpu_team_end(const ps_thread_state *state);

/* As ps_cpu_team_begin for who computes nothing, and so starts no thread: any number, whatever the system gives. */
void ps_cpu_team_suppose(int n_threads, ps_thread_state *state);

/* Starts such a team once and counts. PS_EINVAL when n_threads < 1, else as ps_cpu_team_begin. */
PS_NODISCARD ps_status ps_cpu_team_check(int n_threads);

#endif
