/* announce.c - before each collective, every rank announces its next action: where programs diverge this gives an error
 * instead of wrong data (as with TORCH_DISTRIBUTED_DEBUG=DETAIL of PyTorch). */
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "api/external/moment_trace.h"
#include "base/mem.h"

enum { TEXT_MAX = 280 };

static const char *describe(const ps_client *c, const ps_client_message *m, char text[TEXT_MAX])
{
    const bool is_tensor = m->tensor >= 0 && m->tensor < c->n_tensors;
    const char *name = is_tensor ? c->tensors[m->tensor].name : "a parameter";
    switch ((ps_client_action_kind)m->kind) {
    case PS_CLIENT_GATHER: snprintf(text, TEXT_MAX, "uses %.200s", name); break;
    case PS_CLIENT_REDUCE: snprintf(text, TEXT_MAX, "has the gradient of %.200s", name); break;
    case PS_CLIENT_STEP: snprintf(text, TEXT_MAX, "makes step %lld", (long long)m->number + 1); break;
    case PS_CLIENT_READ_VALUE: snprintf(text, TEXT_MAX, "reads the value of %.200s", name); break;
    case PS_CLIENT_SAVE: snprintf(text, TEXT_MAX, "saves a checkpoint"); break;
    case PS_CLIENT_LOAD: snprintf(text, TEXT_MAX, "loads a checkpoint"); break;
    case PS_CLIENT_EVALUATE: snprintf(text, TEXT_MAX, "evaluates or generates"); break;
    case PS_CLIENT_GIVE_GRADIENT:
    case PS_CLIENT_RELEASE_GATHERED:
    default: snprintf(text, TEXT_MAX, "does something else"); break;
    }
    return text;
}

static const char use_alike[] =
    "all ranks must use the same parameters in the same order. What one rank alone reads (weight.norm() after if rank "
    "== 0) counts too: have all ranks read it. Where the data decides that (experts), call each of them on every rank, "
    "with an input of no rows (x[:0]) where it has none; or keep them out of chunks (torch_scope)";

static const char call_alike[] = "all ranks must make the same calls (state_dict, save, evaluate, generate), not one "
                                 "rank alone, and as many of them";

static const char step_alike[] =
    "all ranks must call optimizer.step() after the same backward passes: as often on each, and none without it";

static bool is_of_step(const ps_client_message *m)
{
    return m->kind <= PS_CLIENT_STEP;
}

static ps_status fail_unlike(const ps_client *c, const ps_client_message *mine, int32_t rank,
                             const ps_client_message *other)
{
    char here[TEXT_MAX], there[TEXT_MAX];
    const bool are_of_step = is_of_step(mine) && is_of_step(other);
    const char *alike = !are_of_step                                                    ? call_alike
                        : mine->kind == PS_CLIENT_STEP || other->kind == PS_CLIENT_STEP ? step_alike
                                                                                        : use_alike;
    return PS_FAIL(PS_EINVAL, "ranks diverged: rank %d %s, rank %d %s; %s", c->settings.ranks.rank,
                   describe(c, mine, here), rank, describe(c, other, there), alike);
}

ps_status ps_client_begin_announcing(ps_client *c, const ps_client_message *m, const uint8_t *places, int32_t n_places,
                                     char *messages, ps_event *done)
{
    const int64_t bytes = ps_client_message_bytes(c);
    char *own = messages + c->settings.ranks.rank * bytes;
    memset(own, 0, (size_t)bytes);
    memcpy(own, m, sizeof *m);
    if (n_places > 0) memcpy(own + sizeof *m, places, (size_t)n_places);
    return ps_comm_begin_all_gather(c->comm, messages, bytes, done);
}

/* The others may be blocked in a collective of the program, so that this never ends: after report_after_ns the reason
 * is logged. */
static ps_status await_all(ps_client *c, const ps_client_message *m, ps_event done)
{
    char text[1024], here[TEXT_MAX];
    ps_collectives *x = ps_comm_messages(c->comm);
    if (is_of_step(m)) return ps_collectives_wait(x, done);
    snprintf(text, sizeof text, "rank %d %s, and has waited for the others for %g s: %s", c->settings.ranks.rank,
             describe(c, m, here), (double)c->report_after_ns * 1e-9, call_alike);
    ps_comm_set_late_text(c->comm, text, c->report_after_ns);
    const ps_status st = ps_collectives_wait(x, done);
    ps_comm_set_late_text(c->comm, NULL, 0);
    return st;
}

ps_status ps_client_finish_announcing(ps_client *c, const char *messages, ps_event done)
{
    const ps_client_message *mine = ps_client_message_of(c, messages, c->settings.ranks.rank);
    const ps_status st = await_all(c, mine, done);
    const bool has_come = ps_event_wait(done) == PS_OK; /* also if a rank that found a difference has left since */
    for (int32_t r = 0; has_come && r < c->settings.ranks.n; r++) {
        const ps_client_message *other = ps_client_message_of(c, messages, r);
        if (other->kind != mine->kind || other->number != mine->number) return fail_unlike(c, mine, r, other);
    }
    return st == PS_OK ? PS_OK : ps_comm_check_failure(c->comm);
}

ps_status ps_client_announce(ps_client *c, const ps_client_message *m, const uint8_t *places, int32_t n_places)
{
    ps_event done;
    if (c->settings.ranks.n == 1) return PS_OK;
    PS_TRY(ps_client_begin_announcing(c, m, places, n_places, c->sharding.messages, &done));
    return ps_client_finish_announcing(c, c->sharding.messages, done);
}

/* ---- the same tensors in a step ---- */

/* Any rank may use unmanaged tensors or not. */
static void list_trained(const ps_client *c, uint8_t *is_trained)
{
    for (int32_t i = 0; i < c->n_tensors; i++)
        is_trained[i] = !c->tensors[i].is_dropped && !c->tensors[i].is_unmanaged && c->tensors[i].is_given;
}

/* is_trained: [n_tensors] this rank's, then those of all. */
static ps_status name_difference(ps_client *c, uint8_t *is_trained)
{
    const int32_t n = c->n_tensors;
    uint8_t *all = is_trained + n;
    PS_TRY(ps_comm_all_gather(c->comm, is_trained, n, all));
    for (int32_t i = 0; i < n; i++)
        for (int32_t r = 1; r < c->settings.ranks.n; r++) {
            const bool is_first = all[i] != 0;
            if (all[r * n + i] == all[i]) continue;
            return PS_FAIL(PS_EINVAL, "%.200s has got a gradient on rank %d in this step, and none on rank %d: %s",
                           c->tensors[i].name, is_first ? 0 : r, is_first ? r : 0, use_alike);
        }
    return PS_OK;
}

/* Each owner updates its chunks with its own numbers: they must be the same. */
static uint64_t hash_numbers(const ps_client *c)
{
    const double of_all[] = {c->clip_norm, (double)c->scaler.scale};
    return ps_param_groups_hash(&c->groups, c->n_updates, XXH3_64bits(of_all, sizeof of_all));
}

static ps_client_numbers numbers_of(const ps_client *c)
{
    const ps_optimizer_setup *o = &c->groups.all[0].optimizer;
    return (ps_client_numbers){.clip_norm = c->clip_norm,
                               .loss_scale = (double)c->scaler.scale,
                               .learning_rate = ps_param_groups_learning_rate(&c->groups, 0, c->n_updates),
                               .weight_decay = o->weight_decay,
                               .beta1 = o->betas[0],
                               .beta2 = o->betas[1],
                               .eps = o->eps};
}

/* What differs, for a message: "a learning rate of 0.1 in its first group, rank 1 with 0.2". */
static const char *describe_numbers(const ps_client_numbers *mine, const ps_client_numbers *others, int32_t rank,
                                    char text[TEXT_MAX])
{
    const struct {
        const char *before, *after;
        double mine, others;
    } all[] = {{"gradient clipping to a norm of", "(0: none)", mine->clip_norm, others->clip_norm},
               {"a loss scale of", "", mine->loss_scale, others->loss_scale},
               {"a learning rate of", "in its first group", mine->learning_rate, others->learning_rate},
               {"a weight decay of", "in its first group", mine->weight_decay, others->weight_decay},
               {"a beta1 (or momentum) of", "in its first group", mine->beta1, others->beta1},
               {"a beta2 of", "in its first group", mine->beta2, others->beta2},
               {"an eps of", "in its first group", mine->eps, others->eps}};
    for (size_t i = 0; i < PS_ARRAY_LEN(all); i++) {
        if (memcmp(&all[i].mine, &all[i].others, sizeof all[i].mine) == 0) continue;
        snprintf(text, TEXT_MAX, "%s %.9g%s%s, rank %d with %.9g", all[i].before, all[i].mine,
                 all[i].after[0] != '\0' ? " " : "", all[i].after, rank, all[i].others);
        return text;
    }
    snprintf(text, TEXT_MAX, "other numbers than rank %d in a group after the first, or in how many there are", rank);
    return text;
}

static ps_status expect_ranks_agree(const ps_client *c, const ps_client_message *mine)
{
    char differs[TEXT_MAX];
    for (int32_t r = 0; r < c->settings.ranks.n; r++) {
        const ps_client_message *other = ps_client_message_of(c, c->sharding.messages, r);
        if (other->hyperparameters_hash == mine->hyperparameters_hash) continue;
        return PS_FAIL(PS_EINVAL,
                       "ranks diverged: rank %d makes step %lld with %s; learning rates, weight decay, betas, eps, "
                       "clipping and loss scale must be the same on all ranks: give all the same configuration and the "
                       "same arguments, and have a scheduler step on all",
                       c->settings.ranks.rank, (long long)mine->number + 1,
                       describe_numbers(&mine->numbers, &other->numbers, r, differs));
    }
    return PS_OK;
}

/* A group of chunks is reduced when it has all its gradients. Where ranks use different tensors, such groups differ
 * sooner or later; so the first step with a difference is refused. */
ps_status ps_client_announce_step(ps_client *c)
{
    uint8_t *is_trained = NULL;
    bool is_same = true;
    PS_TRY(ps_mem_alloc((size_t)c->n_tensors, (size_t)c->settings.ranks.n + 1, &is_trained));
    list_trained(c, is_trained);
    const ps_client_message m = {.kind = PS_CLIENT_STEP,
                                 .number = c->n_steps,
                                 .trained_hash = XXH3_64bits(is_trained, (size_t)c->n_tensors),
                                 .gather_order_hash = ps_client_hash_gather_order(c),
                                 .hyperparameters_hash = hash_numbers(c),
                                 .numbers = numbers_of(c)};
    ps_status st = ps_client_announce(c, &m, NULL, 0);
    if (st == PS_OK) st = expect_ranks_agree(c, &m);
    for (int32_t r = 0; r < c->settings.ranks.n && st == PS_OK; r++)
        is_same = is_same && ps_client_message_of(c, c->sharding.messages, r)->trained_hash == m.trained_hash;
    if (st == PS_OK && !is_same) st = name_difference(c, is_trained);
    ps_mem_free(is_trained);
    return st;
}
