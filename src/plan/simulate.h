/* simulate.h - does it fit, and how fast will it be: the engine's own step on tiers without memory.
 *
 * A simulation is what ps_initialize_engine does before it takes any memory: the program is recorded, its code is
 * written, parameters are laid out in chunks, and steps are run on simulated tiers until they repeat. So what it says
 * of peaks and moved bytes is what a run does; its time is that of the timeline, as good as the rates it was given. Of
 * several ranks it runs one: rank 0 owns most. */
#ifndef PS_PLAN_SIMULATE_H
#define PS_PLAN_SIMULATE_H

#include "config/hardware.h"
#include "plan/trial.h"
#include "run/bound.h"

/* Where it would run. */
typedef struct ps_site {
    /* NULL: budgets and rates of the configuration. Else "auto" budgets and all rates are the hardware's, and there is
     * a rank for each of its devices. */
    const ps_hardware *hardware;
    int32_t n_ranks; /* on this machine, or the hardware's single processor; 0: one, or as the hardware says */
    int32_t rank;    /* the one to simulate */
} ps_site;

typedef struct ps_simulation {
    bool fits;
    char refusal[2048]; /* when it does not: the moment that needs most, bytes */
    bool timed_out;     /* time was up: it may fit, or there may be a faster way, which a run looks for */
    /* why the machine, this or the one that is described, refuses the plan although it fits the budgets: too little
     * memory or disk space; "": it does not */
    char machine_refusal[1024];

    /* what was asked */
    int64_t B, T, accumulation;
    ps_dtype dtype;
    ps_ranks ranks;
    ps_budgets budgets; /* of one rank */
    ps_rates rates;
    ps_lists lists; /* of chunks: their names */
    bool checkpointing;
    int64_t
        total_bytes;    /* memory.total, where it gives the budgets of all tiers in RAM: ps_settings_is_total; else 0 */
    bool device_is_ram; /* its budget is drawn on the machine's memory, as the host's is */

    /* the model */
    int64_t n_params;
    int64_t n_trained_params;     /* of these, those that are not frozen */
    int64_t model_data_bytes;     /* of all ranks */
    int64_t model_data_min_bytes; /* of one rank: ps_model_data_min_bytes */
    int64_t frozen_saves_bytes;   /* so much less than if all were trained */
    int64_t checkpoint_bytes;     /* of all ranks: ps_memory_info */
    double step_flops;            /* of one rank's step: all operators, with recomputation, without updates */

    /* when it fits */
    int64_t chunk_elements;
    int32_t n_chunks;
    double chunk_waste;
    ps_variant variant;
    int32_t n_local_chunks;     /* of this rank */
    int32_t n_local_updates;    /* of these so many have an update; of these: */
    int32_t n_resident_updates; /* updated from device memory for good */
    int32_t n_host_updates;     /* updated on the host */
    bool keeps_logits;
    int64_t non_model_bytes; /* activations and workspace at most */
    int64_t staging_bytes;
    ps_tier staging_tier;
    ps_forecast forecast;
    ps_bound bound;
} ps_simulation;

/* site NULL: this machine, one rank. A refusal for memory is PS_OK with fits = false; explain says whether the reason
 * is looked for then (one simulation more). deadline: as of ps_search_blueprint; without it the plan is a run's.
 * PS_EINVAL: options, hardware or ranks that cannot be. */
PS_NODISCARD ps_status ps_simulate(const ps_config *config, const ps_site *site, bool explain, ps_deadline *deadline,
                                   ps_simulation *out);

/* Of a plan that does not fit: the smallest budget of a tier with which it does, the others as they are; 0: none was
 * found. When time is up it may not be the smallest. */
PS_NODISCARD ps_status ps_simulate_least_budget(const ps_config *config, const ps_site *site, ps_tier tier,
                                                ps_deadline *deadline, int64_t *bytes);

/* ps_simulate of what fits, and a profile (doc/profile.md) of two of its steps in estimated time, written to path.
 * title: what the plan is called in it. PS_EBUDGET when it does not fit, PS_EIO. */
PS_NODISCARD ps_status ps_simulate_profile(const ps_config *config, const ps_site *site, const char *title,
                                           const char *path);

/* ps_simulate as far as it does not depend on memory: what was asked, the model, non_model_bytes. fits stays false. */
PS_NODISCARD ps_status ps_simulate_sizes(const ps_config *config, const ps_site *site, ps_simulation *out);

/* Seconds of a step; tokens a second, of all ranks. */
double ps_simulation_step_s(const ps_simulation *s);
double ps_simulation_tokens_per_s(const ps_simulation *s);

/* Arithmetic a second of one rank by the rule "factor N a token", N all parameters, embeddings too: 6 is what training
 * needs (Kaplan et al. 2020), 8 is PatrickStar's and DeepSpeed's figure, which counts the recomputation of activation
 * checkpointing as well. */
double ps_simulation_flops_per_s(const ps_simulation *s, int factor);

#endif
