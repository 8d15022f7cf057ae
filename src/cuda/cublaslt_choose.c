/* cublaslt_choose.c - which of the algorithms that the library's heuristics rank first is the fastest, by the clock of
 * the GPU; and algorithms that a table names.
 *
 * Noise. Each candidate is timed in rounds with all others, so that what slows the GPU for a moment slows one round of
 * all; of each round the median counts, of the rounds the fastest. The heuristics' first stays unless another is faster
 * by more than FASTER: what is nearer is within what clocks do, and the first is what everybody else computes with. */
#include <stdlib.h>
#include <string.h>

#include "cuda/cublaslt_impl.h"

#define CANDIDATES 8
#define ROUNDS 3
#define SAMPLES 3
#define FASTER 0.98
/* What took so much longer when it was first looked at is not timed again. */
#define HOPELESS 1.5f
/* A sample is so many products one after the other that it takes about as long as this; a launch takes 5 us. */
#define SAMPLE_MS 1.0f
#define PRODUCTS_MAX 20

_Static_assert(sizeof(((ps_cuda_choice *)0)->algorithm) == sizeof(ps_lt_algorithm), "8 words");

static ps_status site(void *self, ps_cuda_site *out)
{
    const ps_lt_products *p = self;
    ps_gpu_info info;
    *out = (ps_cuda_site){0};
    PS_TRY(ps_gpu_get_info(p->gpu, &info));
    memcpy(out->gpu, info.name, sizeof out->gpu);
    out->gpu[sizeof out->gpu - 1] = '\0';
    out->processors = info.processors;
    out->driver_version = info.driver_version;
    out->library_version = (int64_t)p->lt->version();
    out->workspace_bytes = p->workspace_bytes + PS_LT_WORKSPACE_ALIGN;
    return PS_OK;
}

/* ---- timing ---- */

typedef struct timer {
    ps_lt_products *p;
    const ps_cuda_product *x;
    ps_lt_prepared *r;
    ps_cu_stream stream;
    ps_cu_event begin, end;
} timer;

typedef struct candidate {
    ps_lt_algorithm algorithm;
    bool is_out;
    int n; /* products a sample */
    float ms;
} candidate;

static ps_status driver(const timer *t, ps_cu_result r)
{
    return ps_gpu_check(t->p->gpu, r, "timing matrix products");
}

/* Milliseconds a product. An algorithm that the library refuses after all is out. */
static ps_status time_once(timer *t, candidate *c, int n, float *ms)
{
    const ps_cuda_driver *d = t->p->gpu->driver;
    *ms = 0;
    t->r->algorithm = c->algorithm;
    PS_TRY(driver(t, d->event_record(t->begin, t->stream)));
    for (int i = 0; i < n; i++) {
        const ps_lt_status s = ps_lt_multiply(t->p, t->r, t->x, t->stream);
        c->is_out = s == PS_LT_NOT_SUPPORTED || s == PS_LT_INVALID_VALUE || s == PS_LT_ARCH_MISMATCH;
        if (c->is_out) return driver(t, d->stream_wait(t->stream));
        PS_TRY(ps_lt_check(t->p, s, "timing a matrix product"));
    }
    PS_TRY(driver(t, d->event_record(t->end, t->stream)));
    PS_TRY(driver(t, d->event_wait(t->end)));
    PS_TRY(driver(t, d->event_elapsed(ms, t->begin, t->end)));
    *ms /= (float)n;
    return PS_OK;
}

static int by_size(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static ps_status time_round(timer *t, candidate *c, int round)
{
    float ms[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        PS_TRY(time_once(t, c, c->n, &ms[i]));
        if (c->is_out) return PS_OK;
    }
    qsort(ms, SAMPLES, sizeof ms[0], by_size);
    if (round == 0 || ms[SAMPLES / 2] < c->ms) c->ms = ms[SAMPLES / 2];
    return PS_OK;
}

/* The first run of an algorithm loads its kernel; the second says how long it takes about. */
static ps_status look(timer *t, candidate *c, int n)
{
    float least = 0;
    for (int i = 0; i < n; i++) {
        PS_TRY(time_once(t, &c[i], 1, &c[i].ms));
        if (!c[i].is_out) PS_TRY(time_once(t, &c[i], 1, &c[i].ms));
        if (!c[i].is_out && (least == 0 || c[i].ms < least)) least = c[i].ms;
    }
    for (int i = 0; i < n; i++) {
        const float wanted = c[i].ms > 0 ? SAMPLE_MS / c[i].ms : PRODUCTS_MAX;
        c[i].is_out |= i > 0 && c[i].ms > HOPELESS * least;
        c[i].n = wanted < 1 ? 1 : wanted > PRODUCTS_MAX ? PRODUCTS_MAX : (int)wanted;
    }
    return PS_OK;
}

/* -1: all are out. */
static int best_of(const candidate *c, int n)
{
    int best = -1;
    for (int i = 0; i < n; i++)
        if (!c[i].is_out && (best < 0 || c[i].ms < c[best].ms)) best = i;
    return best > 0 && !c[0].is_out && (double)c[best].ms >= FASTER * (double)c[0].ms ? 0 : best;
}

static ps_status time_all(timer *t, ps_cuda_choice *out)
{
    ps_lt_choice found[CANDIDATES];
    candidate c[CANDIDATES] = {0};
    int n;
    PS_TRY(ps_lt_candidates(t->p, t->r, CANDIDATES, found, &n)); /* by nobody's addresses, as of who does not measure */
    PS_TRY(ps_lt_set_pointers(t->p, t->r, t->x->bias, t->x->gelu_x));
    for (int i = 0; i < n; i++) c[i].algorithm = found[i].algorithm;
    if (n > 1) {
        PS_TRY(look(t, c, n));
        for (int round = 0; round < ROUNDS; round++)
            for (int i = 0; i < n; i++)
                if (!c[i].is_out) PS_TRY(time_round(t, &c[i], round));
    }
    const int best = best_of(c, n);
    if (best < 0) return PS_FAIL(PS_ENOSYS, "cuBLASLt refuses each of the %d algorithms that it has named", n);
    out->place = best;
    memcpy(out->algorithm, &c[best].algorithm, sizeof out->algorithm);
    return PS_OK;
}

static ps_status open_timer(timer *t)
{
    const ps_cuda_driver *d = t->p->gpu->driver;
    PS_TRY(ps_gpu_enter(t->p->gpu));
    PS_TRY(driver(t, d->stream_create(&t->stream, PS_CU_STREAM_NON_BLOCKING, 0)));
    PS_TRY(driver(t, d->event_create(&t->begin, PS_CU_EVENT_BLOCKING)));
    return driver(t, d->event_create(&t->end, PS_CU_EVENT_BLOCKING));
}

/* Nothing of the product is under way any more. */
static void close_timer(timer *t)
{
    const ps_cuda_driver *d = t->p->gpu->driver;
    if (t->stream != NULL) (void)d->stream_wait(t->stream);
    if (t->end != NULL) (void)d->event_destroy(t->end);
    if (t->begin != NULL) (void)d->event_destroy(t->begin);
    if (t->stream != NULL) (void)d->stream_destroy(t->stream);
}

static ps_status measure_locked(ps_lt_products *p, const ps_cuda_product *x, ps_cuda_choice *out)
{
    timer t = {.p = p, .x = x};
    *out = (ps_cuda_choice){.shape = ps_cuda_shape_of(x)};
    PS_TRY(ps_lt_describe(p, &out->shape, &t.r));
    ps_status st = open_timer(&t);
    if (st == PS_OK) st = time_all(&t, out);
    close_timer(&t);
    ps_lt_prepared_free(p, t.r);
    if (st != PS_ENOSYS || !ps_lt_is_followed(&out->shape)) return st;
    PS_TRY(ps_lt_put_none(p, &out->shape));
    return PS_FAIL(PS_ENOSYS, "cuBLASLt has no such product with what follows it");
}

static ps_status measure(void *self, const ps_cuda_product *x, ps_cuda_choice *out)
{
    ps_lt_products *p = self;
    pthread_mutex_lock(&p->lock);
    const ps_status st = measure_locked(p, x, out);
    pthread_mutex_unlock(&p->lock);
    return st;
}

/* ---- using a table ---- */

/* Is it an algorithm of this library for this product on this GPU, and with no more scratch than there is? */
static ps_status check_choice(const ps_lt_products *p, const ps_lt_prepared *r)
{
    const ps_cuda_shape *s = &r->shape;
    ps_lt_choice found = {.state = PS_LT_SUCCESS};
    const ps_lt_status st =
        p->lt->algorithm_check(p->handle, r->product, r->b, r->a, r->y, r->y, &r->algorithm, &found);
    if (st == PS_LT_SUCCESS && found.state == PS_LT_SUCCESS && (int64_t)found.workspace_bytes <= p->workspace_bytes)
        return PS_OK;
    return PS_FAIL(
        PS_EINVAL,
        "what was chosen for the product of %s [%lld, %lld] x [%lld, %lld] is no algorithm of cuBLASLt %zu for "
        "%s",
        ps_dtype_name((ps_dtype)s->dtype), (long long)s->m, (long long)s->k, (long long)s->k, (long long)s->n,
        p->lt->version(), p->gpu->name);
}

static ps_status prepare(const ps_lt_products *p, const ps_cuda_choice *c, ps_lt_prepared **out)
{
    PS_TRY(ps_lt_describe(p, &c->shape, out));
    memcpy(&(*out)->algorithm, c->algorithm, sizeof c->algorithm);
    const ps_status st = check_choice(p, *out);
    if (st == PS_OK) return PS_OK;
    ps_lt_prepared_free(p, *out);
    *out = NULL;
    return st;
}

/* All are prepared in a list of their own, so that a failure changes nothing. */
static ps_status prepare_all(const ps_lt_products *p, const ps_cuda_product_table *t, ps_lt_prepared **list)
{
    for (size_t i = 0; i < t->n; i++) {
        ps_lt_prepared *r;
        PS_TRY(prepare(p, &t->choices[i], &r));
        r->next = *list;
        *list = r;
    }
    return PS_OK;
}

static ps_status use_locked(ps_lt_products *p, const ps_cuda_product_table *t)
{
    ps_lt_prepared *list = NULL;
    PS_TRY(ps_gpu_enter(p->gpu));
    ps_status st = prepare_all(p, t, &list);
    if (st == PS_OK) st = ps_lt_reserve(p, p->n + t->n);
    if (st == PS_OK) ps_lt_forget(p, false);
    while (list != NULL) {
        ps_lt_prepared *r = list;
        list = r->next;
        if (st == PS_OK)
            ps_lt_put(p, r);
        else
            ps_lt_prepared_free(p, r);
    }
    return st;
}

static ps_status use(void *self, const ps_cuda_product_table *t)
{
    ps_lt_products *p = self;
    pthread_mutex_lock(&p->lock);
    const ps_status st = use_locked(p, t);
    pthread_mutex_unlock(&p->lock);
    return st;
}

const ps_cuda_choosing ps_lt_choosing = {.site = site, .measure = measure, .use = use};
