/* search.h - the blueprint with which a program runs: does it fit, and in which way is it fastest?
 *
 * Everything here is tried on simulated tiers (trial.h) with the rates of the configuration: the answer is a function
 * of program, configuration and budgets, never of how fast the machine was at the moment; unless a deadline cuts it
 * short, which that says then (deadline.h). Until a way that fits is known the answer is PS_EBUDGET, later the best of
 * those that were tried. What is more than all tiers together is refused before anything is tried (total.h). */
#ifndef PS_PLAN_SEARCH_H
#define PS_PLAN_SEARCH_H

#include "plan/trial.h"

/* The blueprint with which this program runs in `budgets`: chunk size as set, or searched (smaller ones are tried when
 * a larger one does not fit). Of the ways to run a step that fit, the first; or, when that waits for copies, the
 * fastest of at most s->placement_trials others, with equal times the one with the most updates in device memory.
 * PS_EBUDGET when none fits; then *out is NULL. With s->ranks.comm all ranks call, and come to the same chunk size and
 * events of groups, or all fail; without it, in a plan for one of several ranks, what the others would come to is found
 * out first. */
PS_NODISCARD ps_status ps_search_blueprint(const ps_settings *s, const ps_program *program, const ps_code *code,
                                           const ps_budgets *budgets, ps_deadline *deadline, ps_blueprint **out,
                                           ps_forecast *forecast);

/* This way to run a step in chunks of this size, as ps_blueprint_create, if it fits: PS_EBUDGET and *out = NULL
 * otherwise. */
PS_NODISCARD ps_status ps_search_try(const ps_settings *s, const ps_program *program, const ps_code *code,
                                     const ps_budgets *budgets, int64_t chunk_elements, ps_variant variant,
                                     ps_deadline *deadline, ps_blueprint **out, ps_forecast *forecast);

/* Does any way fit? With s->ranks.comm the answer is for this rank alone, and no other need call; in a plan for one of
 * several ranks it is for all of them. */
PS_NODISCARD ps_status ps_search_fits(const ps_settings *s, const ps_program *program, const ps_code *code,
                                      const ps_budgets *budgets, ps_deadline *deadline, bool *fits);

#endif
