/* search.h - the search for a program's execution plan: one that fits, and the fastest candidate.
 *
 * Everything here is tried on simulated tiers (trial.h) with the throughput of the configuration: the result is a
 * function of program, configuration and budgets, never of the machine's speed; unless a deadline ends the search,
 * which the deadline records (deadline.h). Before a candidate fits the result is then PS_EBUDGET, later the best one
 * tried. A model larger than all tiers together is refused before anything is tried (model_data_min.h). */
#ifndef PS_PLAN_SEARCH_H
#define PS_PLAN_SEARCH_H

#include "train/plan/trial.h"

/* The execution plan with which this program runs in `budgets`: chunk size as set, or searched (smaller ones are tried
 * when a larger one does not fit). The first candidate that fits is accepted; if its step waits for more than 1 % of
 * its time, up to 16 others are tried, and up to 16 more with early updates if these are allowed (of speculative ones 16
 * for each way of carrying out wrong steps), and the fastest is used. With s->takes_first_plan no other is tried.
 * PS_EBUDGET when none fits; then *out is NULL. With s->ranks.comm all ranks call, and agree on the chunk size, on how
 * many groups are gathered ahead and on whether wrong steps are recomputed, or all fail; without it, in a plan for one
 * of several ranks, the result of the others is computed first. */
PS_NODISCARD ps_status ps_search_exec_plan(const ps_settings *s, const ps_program *program, const ps_code *code,
                                           const ps_budgets *budgets, ps_deadline *deadline, ps_exec_plan **out,
                                           ps_forecast *forecast);

/* The execution plan of this candidate in chunks of this size, as ps_exec_plan_create, if it fits: PS_EBUDGET and *out
 * = NULL otherwise. paused: of its plan while speculation is paused; NULL: it has none. */
PS_NODISCARD ps_status ps_search_try(const ps_settings *s, const ps_program *program, const ps_code *code,
                                     const ps_budgets *budgets, int64_t chunk_elements, ps_candidate candidate,
                                     const ps_candidate *paused, ps_deadline *deadline, ps_exec_plan **out,
                                     ps_forecast *forecast);

/* Does any candidate fit? With s->ranks.comm the answer is for this rank alone, and other ranks need not call; in a
 * plan for one of several ranks it is for all of them. forecast (may be NULL): of the first candidate that fits. */
PS_NODISCARD ps_status ps_search_fits(const ps_settings *s, const ps_program *program, const ps_code *code,
                                      const ps_budgets *budgets, ps_deadline *deadline, bool *fits,
                                      ps_forecast *forecast);

#endif
