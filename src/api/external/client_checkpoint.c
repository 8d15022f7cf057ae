/* client_checkpoint.c - checkpoints of a client: saved while training continues, and loaded. State of a module that a
 * model of our own does not have is in "module" of state.json:
 *
 *     {
 *       "config": {...},                     config.json of the model, as the program gave it; or absent
 *       "tensor_steps": {"lm_head.weight": 12},  updates of each tensor that has states of the optimizer
 *       "separate_gradients": ["wte.weight"],    tensors that were read after their gradient once, so that their
 *                                            gradients are separate and unrounded: later steps keep their bits
 *       "param_groups": [{"tensors": 12, "lr": 0.001, "weight_decay": null, "betas": null, "eps": null}]
 *     }                                      the program's numbers of groups; null: as configured
 *
 * A chunk is passed on by its next update. Other changes of fp32 values or states (value_sync.c, client_values.c,
 * memory that the program writes to) pass it on first: ps_client_save_first. Unmanaged tensors are passed on at
 * once. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/checkpoint/loader.h"
#include "api/checkpoint/saver.h"
#include "api/external/client_calls.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sized.h"
#include "chunk/comm/agree.h"
#include "train/state/values.h"

enum { DIFFERENCE_MAX = 300 };

/* ---- tensors in files ---- */

/* This rank's part of it has masters. */
static bool has_masters(const ps_client *c, int32_t tensor)
{
    const ps_place p = ps_client_place_of(c, tensor);
    for (int32_t k = 0; k < p.n_chunks; k++)
        if (ps_client_owns(c, p.chunk + k) && !c->has_master[p.chunk + k]) return false;
    return true;
}

static bool has_states(const ps_client *c, int32_t tensor)
{
    const ps_client_tensor_state *t = &c->tensors[tensor];
    if (t->is_dropped) return false;
    return t->is_unmanaged ? !t->is_frozen || t->steps > 0 : has_masters(c, tensor);
}

static ps_status list_tensors(ps_client *c, uint8_t **own, uint8_t **all)
{
    PS_TRY(ps_mem_alloc((size_t)c->n_tensors, 1, own));
    PS_TRY(ps_mem_alloc((size_t)c->n_tensors * (size_t)c->settings.ranks.n, 1, all));
    if (c->saved_tensors == NULL)
        PS_TRY(ps_mem_alloc((size_t)c->n_tensors, sizeof *c->saved_tensors, &c->saved_tensors));
    for (int32_t i = 0; i < c->n_tensors; i++) {
        const ps_client_tensor_state *t = &c->tensors[i];
        (*own)[i] = has_states(c, i);
        c->saved_tensors[i] = (ps_state_tensor){.name = t->is_dropped ? NULL : t->name,
                                                .shape = t->shape,
                                                .n_dims = t->n_dims,
                                                .in_layout = t->in_layout,
                                                .elements = t->elements,
                                                .is_trained = (*own)[i],
                                                .is_whole = t->is_whole};
    }
    c->state.tensors = c->saved_tensors;
    c->state.n_tensors = c->n_tensors;
    return PS_OK;
}

/* A tensor has states if all of its chunks have, on all ranks. (ranks) */
static ps_status describe_tensors(ps_client *c)
{
    uint8_t *own = NULL, *all = NULL;
    ps_status st = ps_comm_agree(c->comm, list_tensors(c, &own, &all));
    if (st == PS_OK && c->comm != NULL) {
        st = ps_comm_all_gather(c->comm, own, c->n_tensors, all);
        for (int64_t i = 0; st == PS_OK && i < (int64_t)c->n_tensors * c->settings.ranks.n; i++)
            if (!all[i]) c->saved_tensors[i % c->n_tensors].is_trained = false;
    }
    ps_mem_free(all);
    ps_mem_free(own);
    return st;
}

/* Otherwise a rank that saves alone would match another call of the others. */
static ps_status announce(ps_client *c, ps_client_action_kind kind)
{
    const ps_client_message m = {.kind = kind, .number = c->n_steps, .tensor = -1};
    return ps_client_break(c, ps_client_announce(c, &m, NULL, 0));
}

/* ---- "module", written ---- */

static json_t *number_or_null(double value, double configured)
{
    return isnan(value) || value == configured ? json_null() : json_real(value);
}

static int64_t tensors_of_group(const ps_client *c, int32_t group)
{
    int64_t n = 0;
    for (int32_t t = 0; t < c->n_tensors; t++) n += !c->tensors[t].is_dropped && c->tensors[t].group == group;
    return n;
}

static json_t *group_json(const ps_client *c, int32_t group)
{
    const ps_param_group *g = &c->groups.all[group];
    const ps_optimizer_setup *is = &g->optimizer, *configured = &g->configured->optimizer;
    const bool are_betas_set = is->betas[0] != configured->betas[0] || is->betas[1] != configured->betas[1];
    return json_pack("{s:I, s:o, s:o, s:o, s:o}", "tensors", (json_int_t)tensors_of_group(c, group), "lr",
                     number_or_null(g->lr, NAN), "weight_decay",
                     number_or_null(is->weight_decay, configured->weight_decay), "betas",
                     are_betas_set ? json_pack("[f, f]", is->betas[0], is->betas[1]) : json_null(), "eps",
                     number_or_null(is->eps, configured->eps));
}

static json_t *module_json(const ps_client *c, json_t *config)
{
    json_t *steps = json_object(), *separate = json_array(), *groups = json_array();
    for (int32_t i = 0; i < c->n_tensors; i++) {
        const ps_client_tensor_state *t = &c->tensors[i];
        if (c->saved_tensors[i].is_trained) json_object_set_new(steps, t->name, json_integer((json_int_t)t->steps));
        if (t->keeps_param && !t->is_dropped) json_array_append_new(separate, json_string(t->name));
    }
    for (int32_t g = 0; g < c->groups.n; g++) json_array_append_new(groups, group_json(c, g));
    json_t *j =
        json_pack("{s:o, s:o, s:o}", "tensor_steps", steps, "separate_gradients", separate, "param_groups", groups);
    if (config != NULL) json_object_set(j, "config", config);
    return j;
}

static ps_status render_module(const ps_client *c, const char *config_text, char **out)
{
    json_error_t e;
    json_t *config = config_text != NULL ? json_loads(config_text, JSON_REJECT_DUPLICATES, &e) : NULL;
    if (config_text != NULL && !json_is_object(config)) {
        json_decref(config);
        return PS_FAIL(PS_EINVAL, "ps_client_checkpoint.config_json is no JSON object: %s", e.text);
    }
    json_t *j = module_json(c, config);
    char *text = j != NULL ? json_dumps(j, JSON_REAL_PRECISION(17)) : NULL;
    json_decref(j);
    json_decref(config);
    const ps_status st =
        text != NULL ? ps_mem_strdup(text, out) : PS_FAIL(PS_ENOMEM_HOST, "no memory for the state of a module");
    free(text);
    return st;
}

/* ---- saving ---- */

/* Gradients would be in no checkpoint. */
static ps_status expect_between_steps(const ps_client *c, const char *call)
{
    for (int32_t i = 0; i < c->n_tensors; i++)
        if (c->tensors[i].has_gradient)
            return PS_FAIL(
                PS_ESTATE,
                "%s: %.200s has a gradient, which a checkpoint does not hold: call it between ps_client_step "
                "and the next backward pass, or drop the gradients first",
                call, c->tensors[i].name);
    return PS_OK;
}

static ps_status sync_all_values(ps_client *c)
{
    for (int32_t i = 0; i < c->n_tensors; i++)
        if (c->tensors[i].in_layout >= 0) PS_TRY(ps_client_sync_value(c, i));
    return PS_OK;
}

static ps_status take_state(const ps_client *c, const ps_client_checkpoint *what, ps_checkpoint_state *state)
{
    PS_TRY(ps_checkpoint_state_take(state, &c->settings, &c->scaler, what->caller_json));
    state->steps = state->micro_batches = c->n_steps;
    state->optimizer_steps = c->n_updates;
    state->B = state->T = state->accumulation = 1; /* the program's own */
    state->learning_rate = ps_param_groups_learning_rate(&c->groups, 0, c->n_updates);
    return render_module(c, what->config_json, &state->module_json);
}

/* On this rank alone. */
static ps_status prepare(ps_client *c, const ps_client_checkpoint *what, ps_checkpoint_state *state)
{
    PS_TRY(expect_between_steps(c, "ps_client_begin_checkpoint"));
    if (what->extra_bytes < 0 || (what->extra_bytes > 0 && what->extra == NULL))
        return PS_FAIL(
            PS_EINVAL,
            "the program of this rank could not provide its state other than tensors: its own message has the reason");
    PS_TRY(sync_all_values(c));
    return take_state(c, what, state);
}

/* Chunks to which the program may write at any time from now on. */
static ps_status take_what_is_held(ps_client *c)
{
    for (int32_t i = 0; i < c->n_tensors; i++) {
        const ps_client_tensor_state *t = &c->tensors[i];
        if (t->in_layout < 0 || (!t->is_writing[PS_CLIENT_PARAM] && !t->is_writing[PS_CLIENT_MASTER])) continue;
        PS_TRY(ps_client_save_tensor_first(c, i));
    }
    return PS_OK;
}

/* Its fp32 value, or a state that it has? */
static bool has_list(const ps_client *c, const ps_client_tensor_state *t, ps_list list)
{
    return list < PS_LIST_STATES ||
           (ps_optimizer_states_of(&c->settings.optimizer, t->is_whole) >> (list - PS_LIST_STATES) & 1);
}

static ps_status take_unmanaged(ps_client *c, const ps_snapshot_sink *sink, int32_t tensor, float *room)
{
    const ps_client_tensor_state *t = &c->tensors[tensor];
    const ps_list end = c->saved_tensors[tensor].is_trained ? ps_lists_grad(&c->lists) : PS_LIST_STATES;
    for (ps_list list = PS_LIST_MASTER; list < end; list++)
        for (int64_t done = 0; done < t->elements && has_list(c, t, list); done += PS_VALUES_ELEMENTS) {
            const int64_t n = ps_min_i64(PS_VALUES_ELEMENTS, t->elements - done);
            PS_TRY(ps_queue_get(c->tiers.compute[PS_TIER_DEVICE], room, ps_client_unmanaged(t, list) + done,
                                n * (int64_t)sizeof *room));
            sink->take(sink->user, list, (ps_item){(int32_t)sizeof *room, 1}, tensor, done, room, n);
        }
    return PS_OK;
}

/* Replicated on all ranks: rank 0 stores them. */
static ps_status take_all_unmanaged(ps_client *c, const ps_snapshot_sink *sink)
{
    float *room = NULL;
    ps_status st = PS_OK;
    if (c->settings.ranks.rank > 0) return PS_OK;
    PS_TRY(ps_mem_alloc((size_t)PS_VALUES_ELEMENTS, sizeof *room, &room));
    for (int32_t i = 0; i < c->n_tensors && st == PS_OK; i++)
        if (c->tensors[i].is_unmanaged && !c->tensors[i].is_dropped) st = take_unmanaged(c, sink, i, room);
    ps_mem_free(room);
    return st;
}

void ps_client_drop_checkpoint(ps_client *c)
{
    ps_saver_close(c->saver);
    c->saver = NULL;
}

static ps_status begin_checkpoint(ps_client *c, const char *folder, const ps_client_checkpoint *what)
{
    ps_checkpoint_state state = {0};
    if (c->saver != NULL)
        return PS_FAIL(PS_ESTATE, "ps_client_begin_checkpoint: one is in progress; call ps_client_finish_checkpoint");
    PS_TRY(announce(c, PS_CLIENT_SAVE));
    PS_TRY(describe_tensors(c));
    const ps_saver_desc d = {.model = &c->state,
                             .snapshot = &c->snapshot,
                             .pending = c->groups.skips ? NULL : c->updates.is_waiting,
                             .folder = folder,
                             .tag = what->tag,
                             .keep_last = what->keep_last,
                             .extra = what->extra,
                             .extra_bytes = what->extra_bytes,
                             .state = &state,
                             .status = prepare(c, what, &state)};
    PS_TRY(ps_saver_create(&d, &c->saver));
    const ps_snapshot_sink sink = ps_saver_sink(c->saver);
    ps_status st = take_all_unmanaged(c, &sink);
    if (st == PS_OK) st = take_what_is_held(c); /* pieces end with the last chunk */
    st = ps_comm_agree(c->comm, st);
    if (st != PS_OK) ps_client_drop_checkpoint(c);
    return st;
}

ps_status ps_client_begin_checkpoint(ps_client *c, const char *folder, const ps_client_checkpoint *what)
{
    PS_TRY(PS_NEED("client folder", c, folder));
    ps_client_checkpoint own = {0};
    if (what != NULL) PS_TRY(PS_SIZED_TAKE(ps_client_checkpoint, what, &own));
    PS_TRY(ps_client_enter(c, "ps_client_begin_checkpoint", PS_CLIENT_IS_READY));
    return ps_client_leave(c, begin_checkpoint(c, folder, &own));
}

int ps_client_checkpoint_is_done(ps_client *client)
{
    ps_client *c;
    if (!ps_client_lock(client, &c)) return 1;
    double own = c->saver == NULL || ps_saver_is_done(c->saver), least = own, most;
    if (c->saver != NULL && c->comm != NULL && ps_comm_find_range(c->comm, &own, 1, &least, &most) != PS_OK) least = 0;
    (void)ps_client_leave(c, PS_OK);
    return least > 0;
}

/* After values were replaced in part, loading another checkpoint restores the client. Ranks have diverged then. A save
 * that was in progress when a step changed some values can be finished before: they were passed on first. */
static ps_status enter_incomplete(ps_client *c, const char *call)
{
    PS_TRY(ps_client_enter(c, call, PS_CLIENT_ANY_STAGE));
    if (c->is_incomplete && c->comm == NULL) c->stage = PS_CLIENT_IS_READY;
    (void)ps_client_leave(c, PS_OK);
    return ps_client_enter(c, call, PS_CLIENT_IS_READY);
}

static ps_status finish_checkpoint(ps_client *c, ps_checkpoint_info *info)
{
    if (c->saver == NULL) return PS_FAIL(PS_ESTATE, "ps_client_finish_checkpoint: none was begun");
    ps_saver_begin_finish(c->saver);
    ps_status st = ps_snapshot_is_under_way(&c->snapshot) ? ps_client_flush(c) : PS_OK;
    if (st == PS_OK) st = ps_snapshot_finish(&c->snapshot, &c->state, NULL, 0);
    return ps_saver_finish(&c->saver, st, info);
}

ps_status ps_client_finish_checkpoint(ps_client *c, ps_checkpoint_info *info)
{
    PS_TRY(PS_NEED("client", c));
    if (info != NULL) PS_TRY(PS_SIZED_GIVE(ps_checkpoint_info, &(ps_checkpoint_info){0}, info));
    PS_TRY(enter_incomplete(c, "ps_client_finish_checkpoint"));
    const ps_status st = finish_checkpoint(c, info);
    if (c->is_incomplete) c->stage = PS_CLIENT_IS_BROKEN;
    return ps_client_leave(c, st);
}

ps_status ps_client_save_checkpoint(ps_client *c, const char *folder, const ps_client_checkpoint *what,
                                    ps_checkpoint_info *info)
{
    PS_TRY(PS_NEED("client folder", c, folder));
    if (info != NULL) PS_TRY(PS_SIZED_GIVE(ps_checkpoint_info, &(ps_checkpoint_info){0}, info));
    PS_TRY(ps_client_begin_checkpoint(c, folder, what));
    return ps_client_finish_checkpoint(c, info);
}

/* ---- "module", read ---- */

static ps_status damaged(const ps_loader *l, const char *what)
{
    return PS_FAIL(PS_EFORMAT, "%s/state.json: \"module\": %s", ps_loader_folder(l), what);
}

/* The entry of a tensor in "tensor_steps"; -1: none. */
static int64_t saved_steps(const json_t *module, const char *name)
{
    const json_t *steps = json_object_get(json_object_get(module, "tensor_steps"), name);
    return json_is_integer(steps) ? json_integer_value(steps) : -1;
}

static ps_status check_steps(const ps_loader *l, const json_t *module)
{
    const char *name;
    json_t *steps, *all = json_object_get(module, "tensor_steps");
    if (!json_is_object(all)) return damaged(l, "\"tensor_steps\" is missing or no object");
    json_object_foreach(all, name, steps)
    {
        if (!json_is_integer(steps) || json_integer_value(steps) < 0 || json_integer_value(steps) > (int64_t)1 << 40)
            return damaged(l, "\"tensor_steps\" has a value that is no integer from 0 to 2^40");
    }
    return PS_OK;
}

static ps_status check_separate(const ps_loader *l, const json_t *module)
{
    const json_t *names = json_object_get(module, "separate_gradients");
    bool are_names = json_is_array(names);
    for (size_t i = 0; are_names && i < json_array_size(names); i++)
        are_names = json_is_string(json_array_get(names, i));
    return are_names ? PS_OK : damaged(l, "\"separate_gradients\" is missing or no array of names");
}

static void restore_separate(ps_client *c, const json_t *module)
{
    const json_t *names = json_object_get(module, "separate_gradients");
    for (int32_t i = 0; i < c->n_tensors; i++) c->tensors[i].keeps_param = false;
    for (size_t i = 0; i < json_array_size(names); i++) {
        const int32_t t = ps_name_index_find(&c->names, json_string_value(json_array_get(names, i)));
        if (t >= 0) c->tensors[t].keeps_param = true;
    }
}

/* Numbers of a group; null and absent: as configured. */
static ps_status read_group(const ps_loader *l, const json_t *j, ps_client_group *out)
{
    const json_t *learning_rate = json_object_get(j, "lr"), *decay = json_object_get(j, "weight_decay"),
                 *betas = json_object_get(j, "betas"), *eps = json_object_get(j, "eps");
    *out = (ps_client_group){.learning_rate = -1, .weight_decay = NAN, .beta1 = -1, .beta2 = -1, .eps = -1};
    if (json_is_number(learning_rate)) out->learning_rate = json_number_value(learning_rate);
    if (json_is_number(decay)) out->weight_decay = json_number_value(decay);
    if (json_is_array(betas) && json_array_size(betas) == 2) {
        out->beta1 = json_number_value(json_array_get(betas, 0));
        out->beta2 = json_number_value(json_array_get(betas, 1));
    }
    if (json_is_number(eps)) out->eps = json_number_value(eps);
    return json_is_object(j) ? PS_OK : damaged(l, "\"param_groups\" has an entry that is no object");
}

/* Of models with other parameters: one that only this run or only the checkpoint has, "" where that is not known.
 * Parameters without states are not in "tensor_steps". */
static const char *name_difference(const ps_client *c, const json_t *module, char text[DIFFERENCE_MAX])
{
    const char *name;
    json_t *steps, *all = json_object_get(module, "tensor_steps");
    text[0] = '\0';
    json_object_foreach(all, name, steps)
    {
        if (ps_name_index_find(&c->names, name) >= 0) continue;
        snprintf(text, DIFFERENCE_MAX, "; it has %.200s, which is not in this run's model", name);
        return text;
    }
    for (int32_t t = 0; t < c->n_tensors && json_object_size(all) > 0; t++) {
        if (c->tensors[t].is_dropped || saved_steps(module, c->tensors[t].name) >= 0) continue;
        snprintf(text, DIFFERENCE_MAX, "; it has no optimizer states of this run's %.200s", c->tensors[t].name);
        return text;
    }
    return text;
}

/* The program creates its groups, and sets the same numbers or others; comparing the number of tensors in each finds
 * most mistakes, as in torch. */
static ps_status check_groups(const ps_client *c, const ps_loader *l, const json_t *module)
{
    const json_t *groups = json_object_get(module, "param_groups");
    if (!json_is_array(groups)) return damaged(l, "\"param_groups\" is missing or no array");
    if ((int32_t)json_array_size(groups) != c->groups.n)
        return PS_FAIL(PS_EINVAL, "%s: saved with %zu groups of parameters, this run has %d (optimizer.param_groups)",
                       ps_loader_folder(l), json_array_size(groups), c->groups.n);
    for (int32_t g = 0; g < c->groups.n; g++) {
        const int64_t n = tensors_of_group(c, g);
        char difference[DIFFERENCE_MAX];
        ps_client_group numbers;
        const json_t *saved = json_object_get(json_array_get(groups, (size_t)g), "tensors");
        PS_TRY(read_group(l, json_array_get(groups, (size_t)g), &numbers));
        if (json_is_integer(saved) && json_integer_value(saved) != n)
            return PS_FAIL(PS_EINVAL, "%s: group %d was saved with %lld parameters, this run's has %lld%s",
                           ps_loader_folder(l), g, (long long)json_integer_value(saved), (long long)n,
                           name_difference(c, module, difference));
    }
    return PS_OK;
}

/* ---- loading ---- */

static ps_status check_loading(ps_client *c)
{
    PS_TRY(expect_between_steps(c, "ps_client_load_checkpoint"));
    if (c->saver == NULL) return PS_OK;
    return PS_FAIL(PS_ESTATE, "ps_client_load_checkpoint: call ps_client_finish_checkpoint first");
}

/* On this rank alone: nothing has changed afterwards except which tensors have what. module: of the checkpoint; NULL in
 * one of a model of our own. */
static ps_status open_checkpoint(ps_client *c, const char *folder, ps_loader **l, json_t **module)
{
    PS_TRY(check_loading(c));
    PS_TRY(ps_loader_open(&c->state, folder, l));
    const char *text = ps_loader_state(*l)->module_json;
    if (text != NULL) {
        *module = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
        if (*module == NULL) return damaged(*l, "no JSON");
        PS_TRY(check_steps(*l, *module));
        PS_TRY(check_separate(*l, *module));
        PS_TRY(check_groups(c, *l, *module));
        for (int32_t t = 0; t < c->n_tensors; t++)
            if (!c->tensors[t].is_dropped)
                c->saved_tensors[t].is_trained = saved_steps(*module, c->tensors[t].name) >= 0;
    }
    return ps_loader_check(*l);
}

static ps_status put_values(void *user, int32_t tensor, ps_list list, int64_t first, int64_t n, const float *in)
{
    return ps_client_put(user, tensor, list, first, n, in);
}

static ps_status clear_states(ps_client *c, int32_t tensor, const float *zeros)
{
    const ps_client_tensor_state *t = &c->tensors[tensor];
    for (ps_list list = PS_LIST_STATES; list < ps_lists_grad(&c->lists); list++)
        for (int64_t done = 0; done < t->elements && has_list(c, t, list); done += PS_VALUES_ELEMENTS)
            PS_TRY(ps_client_put(c, tensor, list, done, ps_min_i64(PS_VALUES_ELEMENTS, t->elements - done), zeros));
    return PS_OK;
}

/* Chunks have masters where the checkpoint has states; missing states begin as zeros. */
static ps_status make_room(ps_client *c, const float *zeros)
{
    ps_client_drop_updates(c);
    for (int32_t i = 0; i < c->n_tensors; i++) {
        ps_client_tensor_state *t = &c->tensors[i];
        const bool is_trained = c->saved_tensors[i].is_trained;
        if (t->is_dropped) continue;
        t->is_param_newer = t->is_master_newer = false; /* replaced in any case */
        if (is_trained && !t->is_unmanaged) PS_TRY(ps_client_need_master(c, i));
        if (!is_trained && has_states(c, i)) PS_TRY(clear_states(c, i, zeros));
    }
    return PS_OK;
}

static ps_status restore_numbers(ps_client *c, const ps_loader *l, const json_t *module)
{
    const ps_checkpoint_state *s = ps_loader_state(l);
    for (int32_t i = 0; i < c->n_tensors; i++)
        if (!c->tensors[i].is_dropped)
            c->tensors[i].steps = !c->saved_tensors[i].is_trained ? 0
                                  : module == NULL                ? s->optimizer_steps
                                                                  : saved_steps(module, c->tensors[i].name);
    c->n_updates = s->optimizer_steps;
    c->n_steps = s->steps;
    if (module != NULL) restore_separate(c, module);
    for (int32_t g = 0; module != NULL && g < c->groups.n; g++) {
        ps_client_group numbers;
        PS_TRY(read_group(l, json_array_get(json_object_get(module, "param_groups"), (size_t)g), &numbers));
        PS_TRY(ps_client_set_numbers(c, g, &numbers));
    }
    return ps_checkpoint_state_restore_scaler(s, &c->scaler);
}

static ps_status load_all(ps_client *c, ps_loader *l, const json_t *module)
{
    float *zeros = NULL;
    PS_TRY(ps_client_reshard_all(c));
    PS_TRY(ps_mem_alloc((size_t)PS_VALUES_ELEMENTS, sizeof *zeros, &zeros));
    ps_status st = make_room(c, zeros);
    ps_mem_free(zeros);
    if (st == PS_OK) st = ps_loader_load(l, put_values, c);
    return st == PS_OK ? restore_numbers(c, l, module) : st;
}

/* By the number of ranks then; another rank's where there are more now. */
static ps_status describe(const ps_client *c, ps_loader *l, ps_client_loaded *out)
{
    const ps_checkpoint_state *s = ps_loader_state(l);
    out->step = s->steps;
    out->n_ranks = s->n_ranks;
    PS_TRY(ps_mem_strdup(ps_loader_folder(l), &out->path));
    PS_TRY(ps_loader_find_extra(l, c->settings.ranks.rank % s->n_ranks, &out->extra_path));
    out->caller_json = ps_loader_take_caller_json(l);
    return PS_OK;
}

static void loaded_deinit(ps_client_loaded *x)
{
    ps_mem_free(x->path);
    ps_mem_free(x->extra_path);
    ps_mem_free(x->caller_json);
    *x = (ps_client_loaded){0};
}

static ps_status load_checkpoint(ps_client *c, const char *folder, ps_client_loaded *out)
{
    ps_loader *l = NULL;
    json_t *module = NULL;
    char conversion[PS_LOADER_CONVERSION_MAX];
    ps_status st;
    PS_TRY(announce(c, PS_CLIENT_LOAD));
    PS_TRY(describe_tensors(c));
    PS_TRY_GOTO(ps_comm_agree(c->comm, open_checkpoint(c, folder, &l, &module)));
    PS_TRY_GOTO(ps_loader_check_same(l));
    PS_TRY_GOTO(ps_comm_agree(c->comm, describe(c, l, out)));
    if (c->settings.ranks.rank == 0 && ps_loader_describe_conversion(l, conversion) != NULL)
        ps_log(PS_LOG_INFO, "%s", conversion);
    st = ps_comm_agree(c->comm, load_all(c, l, module));
    c->is_incomplete = st != PS_OK;
    st = ps_client_break(c, st);
out:
    json_decref(module);
    ps_loader_close(l);
    return st;
}

ps_status ps_client_load_checkpoint(ps_client *c, const char *folder, ps_client_loaded *out)
{
    ps_client_loaded own = {0};
    PS_TRY(PS_NEED("client folder", c, folder));
    if (out != NULL) PS_TRY(PS_SIZED_GIVE(ps_client_loaded, &own, out));
    PS_TRY(enter_incomplete(c, "ps_client_load_checkpoint"));
    const ps_status st = load_checkpoint(c, folder, &own);
    if (c->is_incomplete) c->stage = PS_CLIENT_IS_BROKEN;
    (void)ps_client_leave(c, PS_OK);
    if (st == PS_OK && out != NULL) return PS_SIZED_GIVE(ps_client_loaded, &own, out);
    loaded_deinit(&own);
    return st;
}
