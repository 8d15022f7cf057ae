/* client_create.c - creation and destruction of a client, and its tensors while there are no chunks yet. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api/external/client_calls.h"
#include "api/external/client_options.h"
#include "base/machine.h"
#include "base/mem.h"
#include "base/sized.h"
#include "chunk/comm/agree.h"
#include "device/cuda/gpu.h"

/* ---- beginning and end ---- */

static ps_status open_settings(const ps_config *config, ps_client *c)
{
    ps_settings *s = &c->settings;
    PS_TRY(ps_comm_agree(c->comm, ps_client_check_options(config)));
    PS_TRY(ps_comm_agree(c->comm, ps_settings_read_of_rank(config, true, c->comm, s)));
    PS_TRY(c->comm != NULL ? ps_settings_join(s, config, c->comm) : ps_settings_set_ranks(s, config, 0, 1));
    PS_TRY(ps_comm_agree(c->comm, ps_settings_open_backend(s)));
    /* the program may clip (ps_client_set_gradient_clipping) where the configuration does not */
    s->may_speculate = ps_config_options(config)->memory_update_in_backward == PS_CONFIG_EARLY_UPDATES_SPECULATE;
    PS_TRY(ps_loss_scaler_init(&c->scaler, &s->scaler));
    return ps_param_groups_init(&c->groups, s);
}

static ps_status create(const ps_config *config, ps_client *c)
{
    PS_TRY(open_settings(config, c));
    const ps_settings *s = &c->settings;
    PS_TRY(ps_settings_check_total(s));
    c->clip_norm = s->clip_norm;
    /* a model that fits in RAM has less than a third of its data as initial values; one that does not needs the disk */
    const bool has_disk =
        s->budgets.bytes[PS_TIER_DISK] > 0 ||
        s->memory.spare_disk_bytes > (s->budgets.bytes[PS_TIER_DEVICE] + s->budgets.bytes[PS_TIER_HOST]) / 3;
    const bool is_total = s->memory.limit_kind == PS_LIMIT_TOTAL;
    PS_TRY(ps_machine_open_statm(&c->steps.statm));
    PS_TRY(ps_client_count_process(c));
    PS_TRY(ps_staging_file_create(has_disk ? s->tiers.disk_folders : NULL,
                                  is_total ? s->memory.total_bytes - s->memory.process_bytes : 0, &c->staging_file));
    return ps_profile_create(NULL, &c->profile);
}

ps_status ps_client_create(const ps_config *config, ps_comm *comm, ps_client **out)
{
    PS_TRY(PS_NEED_FOR(out, "config out", config, out));
    ps_client *c;
    PS_TRY(ps_mem_alloc(1, sizeof *c, &c));
    pthread_mutex_init(&c->lock, NULL);
    c->process = getpid();
    c->n_users = 1;
    c->steps.statm = -1;
    c->report_after_ns = 20000000000;
    c->comm = comm;
    if (comm != NULL) ps_comm_keep(comm);
    const ps_status st = ps_comm_agree(comm, create(config, c));
    if (st == PS_OK)
        *out = c;
    else
        ps_client_leave_unreferenced(c);
    return st;
}

/* The parts in which other ranks are involved, and recording. */
static void end_single_rank(ps_client *c)
{
    ps_client_stop_recording(c);
    ps_client_drop_checkpoint(c);
    ps_client_end_prefetch(c);
    ps_group_collectives_close(&c->between_ranks);
    ps_stall_close(c->watch); /* it tells the ranks */
    c->watch = NULL;
    ps_comm_close(c->comm);
    c->comm = NULL;
}

static void free_all(ps_client *c)
{
    ps_client_take_returned(c);
    end_single_rank(c);
    if (c->tiers.results == NULL) ps_mem_free(c->sums);
    if (c->tiers.results == NULL) ps_mem_free(c->scratch);
    ps_tiers_close(&c->tiers);
    ps_order_destroy(c->order);
    ps_queue_destroy(c->stream);
    if (c->steps.statm >= 0) close(c->steps.statm);
    ps_client_steps_deinit(&c->steps);
    ps_staging_file_destroy(c->staging_file);
    for (int32_t t = 0; t < c->n_tensors; t++) {
        ps_mem_free(c->tensors[t].name);
        ps_mem_free(c->tensors[t].shape);
    }
    ps_mem_free(c->tensors);
    ps_name_index_deinit(&c->names);
    ps_mem_free(c->pin_counts);
    ps_layout_destroy(c->layout);
    ps_mem_free(c->in_order);
    ps_pieces_deinit(&c->pieces);
    ps_mem_free(c->gradients);
    ps_mem_free(c->update_tier);
    ps_mem_free(c->chunk_states);
    ps_mem_free(c->saved_tensors);
    ps_mem_free(c->pinned.ids);
    ps_client_sharding_deinit(&c->sharding);
    ps_mem_free(c->has_master);
    ps_mem_free(c->updates.is_waiting);
    ps_mem_free(c->updates.could_follow);
    ps_mem_free(c->updates.may_keep);
    ps_mem_free(c->updates.is_unvalidated);
    ps_mem_free(c->updates.writes_ahead);
    ps_param_groups_deinit(&c->groups);
    ps_profile_destroy(c->profile);
    ps_settings_close_backend(&c->settings);
    pthread_mutex_destroy(&c->lock);
    ps_mem_free(c);
}

void ps_client_leave_unreferenced(ps_client *c)
{
    if (atomic_fetch_sub(&c->n_users, 1) == 1) free_all(c);
}

/* Ranks part now, even if tensors are still exported: all ranks make this call, but not the later releases. */
void ps_client_destroy(ps_client *c)
{
    if (c == NULL || !ps_client_is_here(c)) return;
    pthread_mutex_lock(&c->lock);
    end_single_rank(c);
    (void)ps_client_leave(c, PS_OK);
    ps_client_leave_unreferenced(c);
}

/* ---- tensors ---- */

static ps_status check_tensor(const ps_client_tensor *t, int64_t *elements)
{
    const char *name = t->name != NULL ? t->name : "a tensor";
    if (t->n_dims < 0 || t->n_dims > PS_CLIENT_DIMS_MAX)
        return PS_FAIL(PS_EINVAL, "ps_client_add: %.200s has %d dimensions, expected 0 to %d", name, t->n_dims,
                       PS_CLIENT_DIMS_MAX);
    if (t->n_dims > 0 && t->shape == NULL) return PS_FAIL(PS_EINVAL, "ps_client_add: %.200s has no shape", name);
    if (t->dtype < 0 || t->dtype >= PS_DTYPE_COUNT)
        return PS_FAIL(PS_EINVAL, "ps_client_add: %.200s: %d is no ps_dtype", name, (int)t->dtype);
    *elements = 1;
    for (int32_t i = 0; i < t->n_dims; i++)
        if (t->shape[i] < 1 || __builtin_mul_overflow(*elements, t->shape[i], elements) || *elements > (int64_t)1 << 40)
            return PS_FAIL(PS_EINVAL,
                           "ps_client_add: %.200s: dimension %d is %lld, expected 1 or more, and at most "
                           "2^40 elements",
                           name, i, (long long)t->shape[i]);
    return PS_OK;
}

static void forget_name(ps_client *c, ps_client_tensor_state *t)
{
    if (t->name != NULL) ps_name_index_remove(&c->names, t->name);
}

static ps_status set_name(ps_client *c, int32_t tensor, const char *name, const char *call)
{
    char *copy, number[32];
    snprintf(number, sizeof number, "tensor %d", tensor);
    if (name == NULL) name = number;
    const int32_t other = ps_name_index_find(&c->names, name);
    if (other >= 0 && other != tensor) return PS_FAIL(PS_EINVAL, "%s: there is a tensor '%.200s' already", call, name);
    PS_TRY(ps_name_index_reserve(&c->names, (int64_t)c->n_tensors + 1));
    PS_TRY(ps_mem_strdup(name, &copy));
    forget_name(c, &c->tensors[tensor]);
    ps_mem_free(c->tensors[tensor].name);
    (void)ps_name_index_add(&c->names, copy, tensor);
    c->tensors[tensor].name = copy;
    return PS_OK;
}

static ps_status add(ps_client *c, const ps_client_tensor *t, int32_t *number, void **values)
{
    int64_t elements = 0;
    PS_TRY(check_tensor(t, &elements));
    if (c->n_tensors == INT32_MAX) return PS_FAIL(PS_EINVAL, "ps_client_add: too many tensors");
    PS_TRY(ps_mem_reserve(&c->tensors, (size_t)c->n_tensors + 1, sizeof *c->tensors));
    ps_client_tensor_state *x = &c->tensors[c->n_tensors];
    *x = (ps_client_tensor_state){.elements = elements,
                                  .n_dims = t->n_dims,
                                  .given_dtype = t->dtype,
                                  .is_frozen = t->is_frozen != 0,
                                  .is_unmanaged = t->is_unmanaged != 0,
                                  .in_layout = -1};
    ps_status st = ps_mem_alloc((size_t)t->n_dims, sizeof *x->shape, &x->shape);
    if (st == PS_OK && t->n_dims > 0) memcpy(x->shape, t->shape, (size_t)t->n_dims * sizeof *x->shape);
    if (st == PS_OK) st = set_name(c, c->n_tensors, t->name, "ps_client_add");
    if (st == PS_OK)
        st = ps_staging_file_take(c->staging_file, elements * (int64_t)ps_dtype_bytes(t->dtype), &x->given);
    if (st != PS_OK) {
        forget_name(c, x);
        ps_mem_free(x->name);
        ps_mem_free(x->shape);
        return st;
    }
    *values = x->given.address;
    *number = c->n_tensors++;
    return PS_OK;
}

ps_status ps_client_add(ps_client *c, const ps_client_tensor *tensor, int32_t *number, void **values)
{
    PS_TRY(PS_NEED_FOR(values, "client tensor number values", c, tensor, number, values));
    ps_client_tensor own;
    *number = -1;
    PS_TRY(PS_SIZED_TAKE(ps_client_tensor, tensor, &own));
    PS_TRY(ps_client_enter(c, "ps_client_add", PS_CLIENT_IS_BUILDING));
    return ps_client_leave(c, add(c, &own, number, values));
}

void ps_client_release(ps_client *c, int32_t tensor)
{
    if (c == NULL || ps_client_enter_with(c, "ps_client_release", PS_CLIENT_IS_BUILDING, tensor) != PS_OK) return;
    ps_staging_file_release(c->staging_file, &c->tensors[tensor].given);
    (void)ps_client_leave(c, PS_OK);
}

ps_status ps_client_drop(ps_client *c, int32_t tensor)
{
    PS_TRY(PS_NEED("client", c));
    PS_TRY(ps_client_enter_with(c, "ps_client_drop", PS_CLIENT_IS_BUILDING, tensor));
    ps_staging_file_give(c->staging_file, &c->tensors[tensor].given);
    forget_name(c, &c->tensors[tensor]);
    c->tensors[tensor].is_dropped = true;
    (void)ps_client_leave(c, PS_OK);
    return PS_OK;
}

ps_status ps_client_name(ps_client *c, int32_t tensor, const char *name, int32_t is_frozen)
{
    PS_TRY(PS_NEED("client name", c, name));
    PS_TRY(ps_client_enter_with(c, "ps_client_name", PS_CLIENT_IS_BUILDING, tensor));
    ps_client_tensor_state *t = &c->tensors[tensor];
    const ps_status st = set_name(c, tensor, name, "ps_client_name");
    if (st == PS_OK) t->is_frozen = is_frozen != 0;
    return ps_client_leave(c, st);
}

ps_status ps_client_expect(ps_client *c, int64_t trained, int64_t frozen)
{
    PS_TRY(PS_NEED("client", c));
    PS_TRY(ps_client_enter(c, "ps_client_expect", PS_CLIENT_IS_BUILDING));
    return ps_client_leave(c, ps_client_check_expected(c, trained, frozen));
}

static ps_status use_stream(ps_client *c, void *stream)
{
    if (c->settings.backend_kind != PS_BACKEND_CUDA)
        return PS_FAIL(PS_ENOSYS, "ps_client_use_stream: the device is no GPU (train.backend)");
    if (c->stream != NULL) return PS_FAIL(PS_ESTATE, "ps_client_use_stream: the client has a stream already");
    return ps_gpu_open_external(ps_backend_space(c->settings.backend)->driver, "framework", stream, &c->stream);
}

ps_status ps_client_use_stream(ps_client *c, void *stream)
{
    PS_TRY(PS_NEED("client stream", c, stream));
    PS_TRY(ps_client_enter(c, "ps_client_use_stream", PS_CLIENT_IS_BUILDING));
    return ps_client_leave(c, use_stream(c, stream));
}

/* ---- information on tensors ---- */

int32_t ps_client_get_tensor_count(const ps_client *client)
{
    ps_client *c;
    if (!ps_client_lock(client, &c)) return 0;
    const int32_t n = c->n_tensors;
    (void)ps_client_leave(c, PS_OK);
    return n;
}

static ps_status describe(const ps_client *c, int32_t tensor, ps_client_tensor_info *out)
{
    if (tensor < 0 || tensor >= c->n_tensors)
        return PS_FAIL(PS_EINVAL, "ps_client_get_tensor_info: tensor %d of %d", tensor, c->n_tensors);
    const ps_client_tensor_state *t = &c->tensors[tensor];
    const int32_t chunk = t->in_layout >= 0 && c->layout != NULL ? ps_client_place_of(c, tensor).chunk : -1;
    const ps_client_tensor_info info = {.name = t->name,
                                        .shape = t->shape,
                                        .n_dims = t->n_dims,
                                        .is_dropped = t->is_dropped,
                                        .is_frozen = t->is_frozen,
                                        .is_unmanaged = t->is_unmanaged,
                                        .elements = t->elements,
                                        .group = t->group,
                                        .owner = chunk >= 0 ? ps_ranks_owner(&c->settings.ranks, chunk) : 0,
                                        .chunk = chunk,
                                        .steps = t->steps,
                                        .states = ps_optimizer_states_of(&c->settings.optimizer, t->is_whole)};
    return PS_SIZED_GIVE(ps_client_tensor_info, &info, out);
}

ps_status ps_client_get_tensor_info(const ps_client *client, int32_t tensor, ps_client_tensor_info *out)
{
    PS_TRY(PS_NEED("client out", client, out));
    ps_client *c = (ps_client *)(uintptr_t)client; /* for its lock */
    PS_TRY(ps_client_enter(c, "ps_client_get_tensor_info", PS_CLIENT_ANY_STAGE));
    return ps_client_leave(c, describe(c, tensor, out));
}

const int32_t *ps_client_get_pin_counts(const ps_client *c)
{
    return c != NULL && ps_client_is_here(c) ? c->pin_counts : NULL;
}

int32_t ps_client_has_gradient(const ps_client *client, int32_t tensor)
{
    ps_client *c;
    if (!ps_client_lock(client, &c)) return 0;
    const bool has = tensor >= 0 && tensor < c->n_tensors && c->tensors[tensor].has_gradient;
    (void)ps_client_leave(c, PS_OK);
    return has;
}
