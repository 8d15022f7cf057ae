#include "train/plan/simulation_json.h"

static json_t *bytes_json(int64_t bytes)
{
    return json_integer((json_int_t)bytes);
}

static json_t *use_json(const ps_lists *lists, const ps_tier_use *u)
{
    json_t *o = json_object();
    for (ps_list l = 0; l < ps_lists_n_all(lists); l++)
        json_object_set_new(o, lists->list[l].name, bytes_json(u->list_bytes[l]));
    json_object_set_new(o, "activations_and_workspace", bytes_json(u->non_model_bytes));
    json_object_set_new(o, "staging", bytes_json(u->other_bytes));
    return o;
}

static json_t *tiers_json(const ps_simulation *s)
{
    json_t *tiers = json_object();
    for (int t = 0; t < PS_TIER_COUNT; t++) {
        json_t *tier = json_object();
        json_object_set_new(tier, "budget_bytes", bytes_json(s->budgets.bytes[t]));
        if (s->fits) json_object_set_new(tier, "peak_bytes", bytes_json(s->forecast.peak_bytes[t]));
        if (s->fits && t < PS_RAM_TIER_COUNT)
            json_object_set_new(tier, "at_peak", use_json(&s->lists, &s->forecast.peak[t]));
        json_object_set_new(tiers, ps_tier_name((ps_tier)t), tier);
    }
    return tiers;
}

static json_t *links_json(const ps_simulation *s)
{
    json_t *links = json_object();
    const ps_step_time *t = &s->forecast.step;
    for (int l = 0; l < PS_LINK_COUNT; l++)
        json_object_set_new(links, ps_link_name((ps_link)l),
                            json_pack("{s:I, s:f, s:f}", "bytes", (json_int_t)s->forecast.moved_bytes[l],
                                      "busy_seconds", (double)t->busy_ns[l] * 1e-9, "wait_seconds",
                                      (double)t->wait_ns[l] * 1e-9));
    return links;
}

static json_t *bound_json(const ps_simulation *s)
{
    const ps_bound *b = &s->bound;
    char between[PS_BOUND_TEXT_MAX];
    json_t *parts = json_object();
    for (ps_bound_part p = 0; p < PS_BOUND_COUNT; p++)
        if (b->part_ns[p] > 0)
            json_object_set_new(parts, ps_bound_part_name(p), json_real((double)b->part_ns[p] * 1e-9));
    return json_pack("{s:f, s:s, s:o, s:f, s:f, s:s}", "seconds", (double)ps_bound_ns(b) * 1e-9, "by",
                     ps_bound_part_name(b->by), "parts", parts, "disk_phases_seconds", (double)b->phases_ns * 1e-9,
                     "ratio", (double)s->forecast.step.all_ns / (double)ps_max_i64(1, ps_bound_ns(b)), "between",
                     ps_bound_between(b, &s->forecast.step, between));
}

static json_t *moved_json(const int64_t moved_bytes[PS_LINK_COUNT])
{
    json_t *moved = json_object();
    for (int l = 0; l < PS_LINK_COUNT; l++)
        json_object_set_new(moved, ps_link_name((ps_link)l), bytes_json(moved_bytes[l]));
    return moved;
}

/* Of a step that is taken back, and the one after it. */
static json_t *speculation_json(const ps_simulation *s)
{
    const ps_forecast *f = &s->forecast;
    json_t *o = json_pack("{s:i, s:I, s:f, s:f, s:o}", "chunks", s->candidate.n_early, "kept_on_disk_bytes",
                          (json_int_t)s->kept_bytes, "step_without_seconds", (double)f->waiting_step_ns * 1e-9,
                          "step_after_taken_back_seconds", (double)f->taken_back_step.all_ns * 1e-9, "moved_then",
                          moved_json(f->taken_back_moved_bytes));
    json_object_set_new(o, "moved_when_taken_back", moved_json(f->wrong_moved_bytes));
    if (s->recomputes) json_object_set_new(o, "recompute_seconds", json_real((double)f->recompute_step.all_ns * 1e-9));
    if (f->paused_step.all_ns > 0)
        json_object_set_new(o, "paused_step_seconds", json_real((double)f->paused_step.all_ns * 1e-9));
    if (f->max_wrong_share < 1) json_object_set_new(o, "max_wrong_share", json_real(f->max_wrong_share));
    return o;
}

static void add_step(json_t *o, const ps_simulation *s)
{
    const ps_step_time *t = &s->forecast.step;
    json_object_set_new(o, "chunks",
                        json_pack("{s:I, s:i, s:f, s:i, s:i, s:i, s:i, s:i, s:i}", "elements",
                                  (json_int_t)s->chunk_elements, "count", s->n_chunks, "waste", s->chunk_waste,
                                  "of_a_rank", s->n_local_chunks, "updated", s->n_local_updates, "updated_in_backward",
                                  s->candidate.n_early, "updated_before_use", s->n_deferred_updates, "updated_on_host",
                                  s->n_host_updates, "resident_on_device", s->n_resident_updates));
    json_object_set_new(o, "step",
                        json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:s, s:f, s:f, s:f}", "seconds",
                                  ps_simulation_step_s(s), "compute_seconds", (double)t->compute_ns * 1e-9,
                                  "lost_to_copies_seconds", (double)t->lost_ns * 1e-9, "host_updates_seconds",
                                  (double)t->host_ns * 1e-9, "waiting_for_host_updates_seconds",
                                  (double)t->host_wait_ns * 1e-9, "waiting_for_host_seconds", (double)t->idle_ns * 1e-9,
                                  "critical", ps_step_time_critical(&s->forecast.step), "tokens_per_second",
                                  ps_simulation_tokens_per_s(s), "flops_6N_per_second", ps_simulation_flops_per_s(s, 6),
                                  "flops_8N_per_second", ps_simulation_flops_per_s(s, 8)));
    json_object_set_new(o, "bound", bound_json(s));
    json_object_set_new(o, "moved", links_json(s));
    json_object_set_new(o, "simulated_steps", json_integer((json_int_t)s->forecast.steps));
    json_object_set_new(o, "updates_deferred", json_boolean(s->n_deferred_updates > 0));
    json_object_set_new(o, "updates_in_backward", json_boolean(s->candidate.n_early > 0));
    if (s->speculates) json_object_set_new(o, "speculation", speculation_json(s));
    if (s->why_not_speculating[0] != '\0')
        json_object_set_new(o, "no_speculation", json_string(s->why_not_speculating));
    json_object_set_new(o, "logits_kept", json_boolean(s->keeps_logits));
    json_object_set_new(o, "updates_ahead", json_integer(s->candidate.update_lead_chunks));
    json_object_set_new(o, "groups_ahead", json_integer(s->candidate.groups_ahead));
    json_object_set_new(o, "cycle_of_steps", json_integer((json_int_t)s->forecast.cycle));
    json_object_set_new(o, "steps_go_round", json_boolean(s->forecast.goes_round));
}

/* Arguments and the model. */
static json_t *request_json(const ps_simulation *s)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:s, s:i, s:i, s:I, s:I, s:I}", "parameters", (json_int_t)s->n_params,
                     "trained_parameters", (json_int_t)s->n_trained_params, "model_data_bytes",
                     (json_int_t)s->model_data_bytes, "frozen_saves_bytes", (json_int_t)s->frozen_saves_bytes,
                     "checkpoint_bytes", (json_int_t)s->checkpoint_bytes, "format", ps_dtype_name(s->dtype), "ranks",
                     (int)s->ranks.n, "rank", (int)s->ranks.rank, "micro_batch", (json_int_t)s->B, "sequence_length",
                     (json_int_t)s->T, "gradient_accumulation_steps", (json_int_t)s->accumulation);
}

json_t *ps_simulation_json(const ps_simulation *s)
{
    /* refused before the model was recorded: beside a GPU memory.total is less than the process needs */
    if (!s->fits && s->n_params == 0) return json_pack("{s:b, s:s}", "fits", 0, "refusal", s->refusal);
    json_t *o = request_json(s);
    if (o == NULL) return NULL;
    json_object_set_new(o, "activation_checkpointing", json_boolean(s->checkpointing));
    json_object_set_new(o, "activation_offload", json_boolean(s->lists.n_standalone > 0));
    json_object_set_new(o, "fits", json_boolean(s->fits));
    json_object_set_new(o, "timed_out", json_boolean(s->timed_out));
    if (s->machine_refusal[0] != '\0') json_object_set_new(o, "machine_refusal", json_string(s->machine_refusal));
    json_object_set_new(o, "tiers", tiers_json(s));
    if (s->fits)
        add_step(o, s);
    else
        json_object_set_new(o, "refusal", json_string(s->refusal));
    return o;
}

json_t *ps_sizes_json(const ps_simulation *s)
{
    json_t *o = request_json(s);
    if (o == NULL) return NULL;
    json_object_set_new(o, "ranks_per_node", json_integer(s->throughput.topology.ranks_per_node));
    json_object_set_new(o, "activations_and_workspace_bytes", bytes_json(s->non_model_bytes));
    json_t *budgets = json_object();
    for (int t = 0; t < PS_TIER_COUNT; t++)
        json_object_set_new(budgets, ps_tier_name((ps_tier)t), bytes_json(s->budgets.bytes[t]));
    json_object_set_new(o, "budget_bytes", budgets);
    return o;
}

json_t *ps_advice_json(const ps_advice *advice, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(list,
                              json_pack("{s:s, s:f, s:f, s:I, s:s*}", "change", advice[i].change, "tokens_per_second",
                                        advice[i].tokens_per_s, "gain", advice[i].gain, "saved_bytes",
                                        (json_int_t)advice[i].saved_bytes, "price", advice[i].price));
    return list;
}

json_t *ps_hiding_json(const ps_hiding *h)
{
    json_t *o = json_pack("{s:I, s:b, s:f}", "micro_batch", (json_int_t)h->B, "fits", h->fits, "tokens_per_second",
                          h->tokens_per_s);
    if (o != NULL && !h->fits) json_object_set_new(o, "largest_micro_batch", json_integer(h->largest_B));
    return o;
}

json_t *ps_largest_json(const ps_largest *l)
{
    json_t *o = json_pack("{s:I, s:I, s:I}", "parameters", (json_int_t)l->n_params, "hidden_size",
                          (json_int_t)l->hidden_size, "layers", (json_int_t)l->n_layers);
    if (o != NULL && l->n_params > 0) json_object_set_new(o, "plan", ps_simulation_json(&l->simulation));
    return o;
}
