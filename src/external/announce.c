/* announce.c - before ranks exchange something, each says what it is about to do: where programs diverge there is an
 * error instead of wrong data (as with TORCH_DISTRIBUTED_DEBUG=DETAIL of PyTorch). */
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/mem.h"
#include "external/client_impl.h"

int64_t ps_client_message_bytes(const ps_client *c)
{
    return ps_round_up((int64_t)sizeof(ps_client_message) + c->sharing.most_pieces, 8);
}

const ps_client_message *ps_client_message_of(const ps_client *c, const char *messages, int32_t rank)
{
    return (const ps_client_message *)(const void *)(messages + rank * ps_client_message_bytes(c));
}

const uint8_t *ps_client_places_of(const ps_client *c, const char *messages, int32_t rank)
{
    return (const uint8_t *)(ps_client_message_of(c, messages, rank) + 1);
}

enum { TEXT_MAX = 280 };

static const char *describe(const ps_client *c, const ps_client_message *m, char text[TEXT_MAX])
{
    const bool is_tensor = m->tensor >= 0 && m->tensor < c->n_tensors;
    const char *name = is_tensor ? c->tensors[m->tensor].name : "a parameter";
    switch ((ps_client_exchange_kind)m->kind) {
    case PS_CLIENT_GATHER: snprintf(text, TEXT_MAX, "uses %.200s", name); break;
    case PS_CLIENT_REDUCE: snprintf(text, TEXT_MAX, "has the gradient of %.200s", name); break;
    case PS_CLIENT_STEP: snprintf(text, TEXT_MAX, "makes step %lld", (long long)m->number + 1); break;
    case PS_CLIENT_READ_VALUE: snprintf(text, TEXT_MAX, "reads the value of %.200s", name); break;
    case PS_CLIENT_EVALUATE: snprintf(text, TEXT_MAX, "evaluates or generates"); break;
    case PS_CLIENT_GIVE_GRADIENT:
    case PS_CLIENT_DROP:
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

static bool is_of_step(const ps_client_message *m)
{
    return m->kind <= PS_CLIENT_STEP;
}

static ps_status fail_unlike(const ps_client *c, const ps_client_message *mine, int32_t rank,
                             const ps_client_message *other)
{
    char here[TEXT_MAX], there[TEXT_MAX];
    return PS_FAIL(PS_EINVAL, "ranks have gone different ways: rank %d %s, rank %d %s; %s", c->settings.ranks.rank,
                   describe(c, mine, here), rank, describe(c, other, there),
                   is_of_step(mine) && is_of_step(other) ? use_alike : call_alike);
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

/* The others may be blocked in a collective of the program's own, so that this never ends: after patience_ns it is said
 * why. */
static ps_status await_all(ps_client *c, const ps_client_message *m, ps_event done)
{
    char text[1024], here[TEXT_MAX];
    ps_collectives *x = ps_comm_messages(c->comm);
    if (is_of_step(m)) return ps_collectives_wait(x, done);
    snprintf(text, sizeof text, "rank %d %s, and has waited for the others for %g s: %s", c->settings.ranks.rank,
             describe(c, m, here), (double)c->patience_ns * 1e-9, call_alike);
    ps_comm_set_late_text(c->comm, text, c->patience_ns);
    const ps_status st = ps_collectives_wait(x, done);
    ps_comm_set_late_text(c->comm, NULL, 0);
    return st;
}

ps_status ps_client_finish_announcing(ps_client *c, const char *messages, ps_event done)
{
    const ps_client_message *mine = ps_client_message_of(c, messages, c->settings.ranks.rank);
    const ps_status st = await_all(c, mine, done);
    const bool has_come = ps_event_wait(done) == PS_OK; /* also where a rank that saw a difference has left since */
    for (int32_t r = 0; has_come && r < c->settings.ranks.n; r++) {
        const ps_client_message *other = ps_client_message_of(c, messages, r);
        if (other->kind != mine->kind || other->number != mine->number) return fail_unlike(c, mine, r, other);
    }
    return st == PS_OK ? PS_OK : ps_comm_check_failure(c->comm);
}

ps_status ps_client_announce(ps_client *c, const ps_client_message *m, const uint8_t *places, int32_t n_places)
{
    ps_event done;
    PS_TRY(ps_client_do_postponed(c));
    PS_TRY(ps_client_begin_announcing(c, m, places, n_places, c->sharing.messages, &done));
    return ps_client_finish_announcing(c, c->sharing.messages, done);
}

ps_status ps_client_announce_read(ps_client *c, int32_t tensor)
{
    const ps_client_message m = {.kind = PS_CLIENT_READ_VALUE, .number = tensor, .tensor = tensor};
    return c->settings.ranks.n == 1 ? PS_OK : ps_client_announce(c, &m, NULL, 0);
}

ps_status ps_client_announce_evaluation(ps_client *c)
{
    const ps_client_message m = {.kind = PS_CLIENT_EVALUATE, .tensor = -1};
    return c->settings.ranks.n == 1 ? PS_OK : ps_client_announce(c, &m, NULL, 0);
}

/* ---- the same tensors in a step ---- */

/* Those that are apart any rank may use or not. */
static void list_trained(const ps_client *c, uint8_t *is_trained)
{
    for (int32_t i = 0; i < c->n_tensors; i++)
        is_trained[i] = !c->tensors[i].is_dropped && !c->tensors[i].is_apart && c->tensors[i].is_given;
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

/* A group of chunks is summed up when it has all its gradients. Where ranks differ in which tensors they have used,
 * such groups differ sooner or later; so the first step that shows it is refused. */
ps_status ps_client_announce_step(ps_client *c)
{
    uint8_t *is_trained = NULL;
    bool is_same = true;
    PS_TRY(ps_mem_alloc((size_t)c->n_tensors, (size_t)c->settings.ranks.n + 1, &is_trained));
    list_trained(c, is_trained);
    const ps_client_message m = {.kind = PS_CLIENT_STEP,
                                 .number = c->n_steps,
                                 .trained = XXH3_64bits(is_trained, (size_t)c->n_tensors),
                                 .record = ps_client_hash_record(c),
                                 .lacks_room = c->sharing.lacks_room};
    ps_status st = ps_client_announce(c, &m, NULL, 0);
    for (int32_t r = 0; r < c->settings.ranks.n && st == PS_OK; r++)
        is_same = is_same && ps_client_message_of(c, c->sharing.messages, r)->trained == m.trained;
    if (st == PS_OK && !is_same) st = name_difference(c, is_trained);
    ps_mem_free(is_trained);
    return st == PS_OK ? ps_client_agree_on_record(c) : st;
}
