#include "cuda/fake_nccl.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/dtype.h"
#include "cuda/fake_impl.h"

#define FUNCTIONS 32
#define RANKS 8

typedef enum op_kind { SEND, RECEIVE, BROADCAST } op_kind;

typedef struct op {
    op_kind kind;
    ps_nccl_comm comm;
    ps_cu_stream stream;
    ps_cu_address src, dst;
    size_t n;
    int type, peer;  /* peer: or root */
    uint64_t number; /* of those with this peer in this direction, or of the collectives */
    bool is_done;
    struct op *next; /* of those that its rank's stream has come to */
} op;

/* What a stream is given at once. */
typedef struct group {
    ps_nccl_comm comm;
    bool is_posted;
    int n;
    op ops[];
} group;

/* The ranks that have one id. */
typedef struct hub {
    uint64_t id;
    int size, n_joined, n_connected;
    ps_nccl_comm ranks[RANKS];
    struct hub *next;
} hub;

struct ps_nccl_comm_state {
    hub *hub;
    int rank;
    ps_cu_context context;
    bool is_aborted, is_finalized, has_connected;
    int n_polls;   /* looks after which the last call is done */
    int n_pending; /* groups that its streams have still to do */
    uint64_t n_sent[RANKS], n_received[RANKS], n_collectives;
    op *posted;
    ps_nccl_result wrong;
    char error[128];
    ps_nccl_comm next;
};

/* fake.lock */
static struct {
    const char *names[FUNCTIONS];
    int n_names, calls[FUNCTIONS], fail_in[FUNCTIONS];
    ps_nccl_result fail_with[FUNCTIONS], sick;
    uint64_t n_ids, n_draws;
    hub *hubs;
    ps_nccl_comm comms;
    int n_live;
    fake_nccl_stats stats;
} nccl;

/* Of the calling thread, between group_start and group_end. */
static _Thread_local struct {
    int depth, n;
    op ops[256];
} open_group;

static int number_of(const char *name)
{
    for (int i = 0; i < nccl.n_names; i++)
        if (strcmp(nccl.names[i], name) == 0) return i;
    fprintf(stderr, "fake_nccl: no function %s\n", name);
    abort();
}

/* The lock is held from here on. */
static ps_nccl_result enter(const char *name)
{
    pthread_mutex_lock(&fake.lock);
    const int i = number_of(name);
    nccl.calls[i]++;
    return nccl.fail_in[i] >= 0 && nccl.fail_in[i]-- == 0 ? nccl.fail_with[i] : PS_NCCL_SUCCESS;
}

static ps_nccl_result leave(ps_nccl_result r)
{
    pthread_mutex_unlock(&fake.lock);
    return r;
}

#define ENTER_NCCL()                                                                                                   \
    do {                                                                                                               \
        const ps_nccl_result r_ = enter(__func__ + 5);                                                                 \
        if (r_ != PS_NCCL_SUCCESS) return leave(r_);                                                                   \
    } while (0)

__attribute__((format(printf, 1, 2))) static ps_nccl_result refuse(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    fprintf(stderr, "fake_nccl: ");
    vfprintf(stderr, format, ap);
    fprintf(stderr, "\n");
    va_end(ap);
    return PS_NCCL_INVALID_USAGE;
}

/* ---- what a call leaves to be done ---- */

static ps_nccl_result state_of(ps_nccl_comm c)
{
    if (c->wrong != PS_NCCL_SUCCESS) return c->wrong;
    if (nccl.sick != PS_NCCL_SUCCESS) return nccl.sick;
    if (c->context->broken != PS_CU_SUCCESS) return PS_NCCL_CUDA_ERROR;
    const bool has_all = c->hub->n_joined == c->hub->size && (!c->has_connected || c->hub->n_connected == c->hub->size);
    if (!has_all || (c->is_finalized && c->n_pending > 0)) return PS_NCCL_IN_PROGRESS;
    return c->n_polls > 0 ? PS_NCCL_IN_PROGRESS : PS_NCCL_SUCCESS;
}

static void take_time(ps_nccl_comm c)
{
    c->n_polls = (int)(nccl.n_draws++ * 2654435761u >> 7) % 3;
}

/* ---- on streams; the lock is held ---- */

static void move(const op *to, const op *from)
{
    const size_t bytes = to->n;
    if (from->n != bytes) {
        fprintf(stderr, "fake_nccl: rank %d sends %zu bytes to rank %d, which expects %zu\n", from->comm->rank, from->n,
                to->comm->rank, bytes);
        abort();
    }
    char *dst = fake_touch(to->comm->context, to->dst, bytes);
    const char *src = fake_touch(from->comm->context, from->src, bytes);
    if (dst == NULL || src == NULL) {
        fprintf(stderr, "fake_nccl: an address that its GPU has not\n");
        abort();
    }
    if (dst != src) memcpy(dst, src, bytes);
}

static op *find(ps_nccl_comm c, op_kind kind, int peer, uint64_t number)
{
    for (op *o = c->posted; o != NULL; o = o->next)
        if (o->kind == kind && o->number == number && o->peer == peer) return o;
    return NULL;
}

static void match(op *o)
{
    const hub *h = o->comm->hub;
    if (o->kind == SEND || o->kind == RECEIVE) {
        op *other = find(h->ranks[o->peer], o->kind == SEND ? RECEIVE : SEND, o->comm->rank, o->number);
        if (other == NULL) return;
        move(o->kind == SEND ? other : o, o->kind == SEND ? o : other);
        o->is_done = other->is_done = true;
        return;
    }
    op *all[RANKS];
    for (int r = 0; r < h->size; r++)
        if ((all[r] = find(h->ranks[r], o->kind, o->peer, o->number)) == NULL) return;
    for (int r = 0; r < h->size; r++) move(all[r], all[o->peer]);
    for (int r = 0; r < h->size; r++) all[r]->is_done = true;
}

static bool all_are_done(group *g)
{
    bool is_done = true;
    for (int i = 0; i < g->n; i++) is_done = is_done && g->ops[i].is_done;
    return is_done;
}

static void post(group *g)
{
    ps_nccl_comm c = g->comm;
    nccl.stats.n_groups++;
    nccl.stats.n_urgent += g->n > 0 && g->ops[0].stream->priority < 0;
    nccl.stats.n_reductions += g->n > 0 && g->ops[0].kind != BROADCAST;
    for (int i = 0; i < g->n; i++) {
        g->ops[i].next = c->posted;
        c->posted = &g->ops[i];
    }
    for (int i = 0; i < g->n; i++)
        if (!g->ops[i].is_done && !c->is_aborted) match(&g->ops[i]);
    g->is_posted = true;
}

/* False: some rank it waits for has not come to its own. */
static bool run_group(void *user)
{
    group *g = user;
    ps_nccl_comm c = g->comm;
    if (!g->is_posted) post(g);
    if (!all_are_done(g) && !c->is_aborted && c->context->broken == PS_CU_SUCCESS) return false;
    for (op **p = &c->posted; *p != NULL;)
        if (*p >= g->ops && *p < g->ops + g->n)
            *p = (*p)->next;
        else
            p = &(*p)->next;
    c->n_pending--;
    free(g);
    return true;
}

/* ---- the table ---- */

static ps_nccl_result nccl_version(int *out)
{
    *out = 22809;
    return PS_NCCL_SUCCESS;
}

static const char *nccl_result_text(ps_nccl_result r)
{
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "in progress"};
    return texts[r];
}

static const char *nccl_last_error(ps_nccl_comm c)
{
    return c != NULL ? c->error : "";
}

static ps_nccl_result nccl_unique_id(ps_nccl_id *out)
{
    ENTER_NCCL();
    const uint64_t id = ++nccl.n_ids;
    memset(out, 0, sizeof *out);
    memcpy(out->bytes + 40, &id, sizeof id);
    return leave(PS_NCCL_SUCCESS);
}

static hub *hub_of(const ps_nccl_id *id, int size)
{
    uint64_t number;
    memcpy(&number, id->bytes + 40, sizeof number);
    if (number == 0 || number > nccl.n_ids) return NULL;
    for (hub *h = nccl.hubs; h != NULL; h = h->next)
        if (h->id == number) return h;
    hub *h = calloc(1, sizeof *h);
    *h = (hub){.id = number, .size = size, .next = nccl.hubs};
    nccl.hubs = h;
    return h;
}

static void find_duplicates(hub *h)
{
    for (int a = 0; a < h->size; a++)
        for (int b = 0; b < h->size; b++) {
            if (a == b || h->ranks[a]->context != h->ranks[b]->context) continue;
            h->ranks[a]->wrong = PS_NCCL_INVALID_USAGE;
            snprintf(h->ranks[a]->error, sizeof h->ranks[a]->error,
                     "Duplicate GPU detected : rank %d and rank %d both on CUDA device\nand more", a, b);
        }
}

static ps_nccl_result nccl_join(ps_nccl_comm *out, int n_ranks, ps_nccl_id id, int rank, ps_nccl_config *config)
{
    ENTER_NCCL();
    hub *h = hub_of(&id, n_ranks);
    if (fake_current() == NULL) return leave(refuse("no context"));
    if (h == NULL || h->size != n_ranks || rank < 0 || rank >= n_ranks || h->ranks[rank] != NULL)
        return leave(refuse("rank %d of %d with this id", rank, n_ranks));
    if (config->bytes != 40 || config->magic != 0xcafebeef || config->version != 21700 || config->blocking != 0)
        return leave(refuse("the configuration"));
    ps_nccl_comm c = calloc(1, sizeof *c);
    c->hub = h;
    c->rank = rank;
    c->context = fake_current();
    c->next = nccl.comms;
    nccl.comms = c;
    nccl.n_live++;
    h->ranks[rank] = c;
    if (++h->n_joined == n_ranks) find_duplicates(h);
    take_time(c);
    *out = c;
    return leave(state_of(c) == PS_NCCL_SUCCESS ? PS_NCCL_SUCCESS : PS_NCCL_IN_PROGRESS);
}

static ps_nccl_result nccl_state(ps_nccl_comm c, ps_nccl_result *out)
{
    ENTER_NCCL();
    if (c->is_aborted) return leave(refuse("the state of what is no more"));
    *out = state_of(c);
    if (c->n_polls > 0) c->n_polls--;
    return leave(PS_NCCL_SUCCESS);
}

static ps_nccl_result nccl_finalize(ps_nccl_comm c)
{
    ENTER_NCCL();
    if (c->is_finalized || c->is_aborted) return leave(refuse("finalized twice"));
    c->is_finalized = true;
    return leave(state_of(c));
}

static ps_nccl_result nccl_destroy(ps_nccl_comm c)
{
    ENTER_NCCL();
    if (!c->is_finalized || c->n_pending > 0) return leave(refuse("destroyed while it is at work"));
    c->is_aborted = true;
    nccl.n_live--;
    return leave(PS_NCCL_SUCCESS);
}

static ps_nccl_result nccl_abort(ps_nccl_comm c)
{
    ENTER_NCCL();
    if (c->is_aborted) return leave(refuse("aborted twice"));
    c->is_aborted = true;
    nccl.n_live--;
    return leave(PS_NCCL_SUCCESS);
}

static ps_nccl_result nccl_group_start(void)
{
    ENTER_NCCL();
    if (open_group.depth++ == 0) open_group.n = 0;
    return leave(PS_NCCL_SUCCESS);
}

/* Ops of a group are of one communicator and stream. */
static ps_nccl_result close_group(void)
{
    ps_nccl_comm c = open_group.n > 0 ? open_group.ops[0].comm : NULL;
    if (c == NULL) return PS_NCCL_SUCCESS;
    const ps_nccl_result before = state_of(c);
    if (before == PS_NCCL_IN_PROGRESS) return refuse("a group while a call is in progress");
    if (before != PS_NCCL_SUCCESS) return before;
    group *g = calloc(1, sizeof *g + (size_t)open_group.n * sizeof g->ops[0]);
    g->comm = c;
    g->n = open_group.n;
    memcpy(g->ops, open_group.ops, (size_t)g->n * sizeof g->ops[0]);
    for (int i = 0; i < g->n; i++) {
        op *o = &g->ops[i];
        o->number = o->kind == SEND      ? c->n_sent[o->peer]++
                    : o->kind == RECEIVE ? c->n_received[o->peer]++
                                         : c->n_collectives++;
    }
    c->n_pending++;
    fake_issue_call(g->ops[0].stream, run_group, g);
    if (!c->has_connected) { /* ranks that send for the first time set their links up, together */
        c->has_connected = true;
        c->hub->n_connected++;
    }
    take_time(c);
    return state_of(c);
}

static ps_nccl_result nccl_group_end(void)
{
    const ps_nccl_result r = enter(__func__ + 5);
    if (--open_group.depth > 0) return leave(r);
    return leave(r != PS_NCCL_SUCCESS ? r : close_group());
}

static ps_nccl_result put(op o)
{
    if (open_group.depth == 0) return refuse("outside of a group");
    if (o.comm->is_aborted || o.stream->context != o.comm->context) return refuse("another GPU's stream");
    if (o.peer < 0 || o.peer >= o.comm->hub->size || o.n == 0) return refuse("rank %d", o.peer);
    if (o.type != PS_NCCL_BYTES) return refuse("elements of type %d", o.type);
    if (open_group.n > 0 && (o.comm != open_group.ops[0].comm || o.stream != open_group.ops[0].stream))
        return refuse("several communicators or streams");
    if (open_group.n == (int)PS_ARRAY_LEN(open_group.ops)) abort();
    open_group.ops[open_group.n++] = o;
    return PS_NCCL_SUCCESS;
}

#define ADDRESS(p) ((ps_cu_address)(uintptr_t)(p))

static ps_nccl_result nccl_send(const void *src, size_t n, int type, int peer, ps_nccl_comm c, ps_cu_stream stream)
{
    ENTER_NCCL();
    return leave(
        put((op){.kind = SEND, .comm = c, .stream = stream, .src = ADDRESS(src), .n = n, .type = type, .peer = peer}));
}

static ps_nccl_result nccl_receive(void *dst, size_t n, int type, int peer, ps_nccl_comm c, ps_cu_stream stream)
{
    ENTER_NCCL();
    return leave(put(
        (op){.kind = RECEIVE, .comm = c, .stream = stream, .dst = ADDRESS(dst), .n = n, .type = type, .peer = peer}));
}

static ps_nccl_result nccl_broadcast(const void *src, void *dst, size_t n, int type, int root, ps_nccl_comm c,
                                     ps_cu_stream stream)
{
    ENTER_NCCL();
    return leave(put((op){.kind = BROADCAST,
                          .comm = c,
                          .stream = stream,
                          .src = ADDRESS(src),
                          .dst = ADDRESS(dst),
                          .n = n,
                          .type = type,
                          .peer = root}));
}

const ps_nccl fake_nccl = {
#define XX(type, name, symbol, params) .name = nccl_##name,
#include "device/cuda/nccl.def"
#undef XX
};

/* ---- life ---- */

void fake_nccl_begin(void)
{
    memset(&nccl, 0, sizeof nccl);
#define XX(type, name, symbol, params) nccl.names[nccl.n_names++] = #name;
#include "device/cuda/nccl.def"
#undef XX
    for (int i = 0; i < FUNCTIONS; i++) nccl.fail_in[i] = -1;
}

bool fake_nccl_end(void)
{
    if (nccl.n_live > 0) fprintf(stderr, "fake_nccl: %d communicators are left\n", nccl.n_live);
    for (ps_nccl_comm c = nccl.comms, next; c != NULL; c = next) {
        next = c->next;
        if (c->n_pending > 0) fprintf(stderr, "fake_nccl: groups are left\n");
        free(c);
    }
    for (hub *h = nccl.hubs, *next; h != NULL; h = next) {
        next = h->next;
        free(h);
    }
    const bool is_clean = nccl.n_live == 0;
    memset(&nccl, 0, sizeof nccl);
    return is_clean;
}

void fake_nccl_fail(const char *function, int nth, ps_nccl_result r)
{
    pthread_mutex_lock(&fake.lock);
    nccl.fail_in[number_of(function)] = nth;
    nccl.fail_with[number_of(function)] = r;
    pthread_mutex_unlock(&fake.lock);
}

int fake_nccl_calls(const char *function)
{
    pthread_mutex_lock(&fake.lock);
    const int n = nccl.calls[number_of(function)];
    pthread_mutex_unlock(&fake.lock);
    return n;
}

void fake_nccl_sicken(ps_nccl_result r)
{
    pthread_mutex_lock(&fake.lock);
    nccl.sick = r;
    pthread_mutex_unlock(&fake.lock);
}

fake_nccl_stats fake_nccl_get_stats(void)
{
    pthread_mutex_lock(&fake.lock);
    const fake_nccl_stats s = nccl.stats;
    pthread_mutex_unlock(&fake.lock);
    return s;
}

bool fake_nccl_await_reductions(int n)
{
    for (int i = 0; i < 20000 && fake_nccl_get_stats().n_reductions < n; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return fake_nccl_get_stats().n_reductions >= n;
}
