/* simulate.h - does a configuration fit, and how fast is it: the engine's own step on tiers without memory.
 *
 * A simulation is what ps_initialize_engine does before it allocates memory: the program is recorded, its code is
 * written, parameters are laid out in chunks, and steps are run on simulated tiers until they repeat. So its peaks and
 * moved bytes are those of a run; its time is that of the timeline, as good as the given throughput. Of several ranks
 * it runs one: rank 0 owns most. */
#ifndef PS_PLAN_SIMULATE_H
#define PS_PLAN_SIMULATE_H

#include "config/hardware.h"
#include "train/plan/trial.h"
#include "train/run/bound.h"

/* The machine. */
typedef struct ps_site {
    /* NULL: budgets and throughput of the configuration. Else "auto" budgets and all throughput are the hardware's, and
     * there is a rank for each of its devices. */
    const ps_hardware *hardware;
    int32_t n_ranks;       /* on this machine, or on the hardware's single processor; 0: one, or one for each device of
                            * the hardware */
    int32_t rank;          /* the one to simulate */
    bool takes_first_plan; /* use the first that fits: do not search for a faster one */
} ps_site;

typedef struct ps_simulation {
    bool fits;
    char refusal[2048]; /* if it does not fit: the moment that needs most, bytes */
    bool timed_out;     /* the deadline passed: it may fit, or there may be a faster plan, which a run searches for */
    /* why this or the described machine refuses the plan although it fits the budgets: too little memory or disk space;
     * "": it does not */
    char machine_refusal[1024];

    /* arguments */
    int64_t B, T, accumulation;
    ps_dtype dtype;
    ps_ranks ranks;
    ps_budgets budgets; /* of one rank */
    ps_throughput throughput;
    ps_lists lists; /* of chunks: their names */
    bool checkpointing;
    int64_t total_bytes; /* memory.total, or what the process itself takes where that is more, if it determines the
                          * budgets of all tiers in RAM: ps_settings_is_total; else 0 */
    bool device_is_ram;  /* its budget is part of the machine's memory, as the host's is */

    /* the model */
    int64_t n_params;
    int64_t n_trained_params;     /* those that are not frozen */
    int64_t model_data_bytes;     /* of all ranks */
    int64_t model_data_min_bytes; /* of one rank: ps_model_data_min_bytes */
    int64_t frozen_saves_bytes;   /* saved compared to training all */
    int64_t checkpoint_bytes;     /* of all ranks: ps_memory_info */
    double step_flops;            /* of one rank's step: all operators, with recomputation, without updates */

    /* if it fits */
    int64_t chunk_elements;
    int32_t n_chunks;
    double chunk_waste;
    ps_candidate candidate;
    int32_t n_local_chunks;     /* of this rank */
    int32_t n_local_updates;    /* chunks of these with an update; of these: */
    int32_t n_resident_updates; /* with optimizer data always in device memory */
    int32_t n_host_updates;     /* updated on the host */
    int32_t n_deferred_updates; /* updated before the next forward pass uses them; candidate.n_early within backward */
    bool keeps_logits;
    int64_t non_model_bytes; /* peak of activations and workspace */
    int64_t staging_bytes;
    ps_tier staging_tier;
    ps_forecast forecast;
    ps_bound bound;
    bool speculates;    /* as in ps_exec_plan */
    bool recomputes;    /* the passes of a wrong step are made a second time */
    int64_t kept_bytes; /* of the disk, at most: values of before such updates, and kept gradients */
    char why_not_speculating[PS_SPECULATION_TEXT_MAX]; /* ps_exec_plan_why_not_speculating */
} ps_simulation;

/* site NULL: this machine, one rank. A refusal for memory is PS_OK with fits = false; explain: find the reason then
 * (one more simulation). deadline: as for ps_search_exec_plan; without it the plan is a run's. PS_EINVAL: inconsistent
 * options, hardware or ranks. */
PS_NODISCARD ps_status ps_simulate(const ps_config *config, const ps_site *site, bool explain, ps_deadline *deadline,
                                   ps_simulation *out);

/* For a plan that does not fit: the smallest budget of a tier with which it fits, the others unchanged; 0: none was
 * found. When the deadline passes it may not be the smallest. */
PS_NODISCARD ps_status ps_simulate_least_budget(const ps_config *config, const ps_site *site, ps_tier tier,
                                                ps_deadline *deadline, int64_t *bytes);

/* ps_simulate of a configuration that fits, and a profile (doc/profile.md) of two of its steps in estimated time,
 * written to path. title: name of the plan in it. PS_EBUDGET when it does not fit, PS_EIO. */
PS_NODISCARD ps_status ps_simulate_profile(const ps_config *config, const ps_site *site, const char *title,
                                           const char *path);

/* The part of ps_simulate that does not depend on memory: arguments, the model, non_model_bytes. fits stays false. */
PS_NODISCARD ps_status ps_simulate_sizes(const ps_config *config, const ps_site *site, ps_simulation *out);

/* Seconds of a step; tokens a second, of all ranks. */
double ps_simulation_step_s(const ps_simulation *s);
double ps_simulation_tokens_per_s(const ps_simulation *s);

/* Arithmetic per second of one rank by the rule "factor N a token", N all parameters including embeddings: 6 for
 * training (Kaplan et al. 2020), 8 is PatrickStar's and DeepSpeed's figure, which includes the recomputation of
 * activation checkpointing. */
double ps_simulation_flops_per_s(const ps_simulation *s, int factor);

#endif
