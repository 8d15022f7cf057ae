#include "device/cuda/cudnn_attention.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "device/cuda/cudnn_graph.h"
#include "device/cuda/gpu_impl.h"

/* How a shape is computed. */
typedef struct prepared {
    ps_dnn_attention whole, part; /* the plan is for `part` */
    int64_t bytes;                /* of scratch; -1: no plan */
    ps_dnn_plan plan;
    struct prepared *next;
} prepared;

typedef struct attention {
    ps_gpu *gpu;
    const ps_cudnn *dnn;
    ps_dnn_handle handle;
    int64_t workspace_bytes; /* at most, of a plan */
    pthread_mutex_t lock;    /* guards the handle's stream and the prepared plans */
    prepared *prepared;
} attention;

/* After a failure of the library, which does not report the driver's error. */
static ps_status explain(const attention *a, ps_dnn_status s, const char *what)
{
    size_t free_bytes, total_bytes;
    char why[256] = "";
    a->dnn->last_error(why, sizeof why);
    why[strcspn(why, "\r\n")] = '\0';
    PS_TRY(ps_gpu_check(a->gpu, a->gpu->driver->memory_info(&free_bytes, &total_bytes), what));
    return PS_FAIL(s == PS_DNN_NO_DEVICE_MEMORY ? PS_ENOMEM_DEV
                   : s == PS_DNN_NO_HOST_MEMORY ? PS_ENOMEM_HOST
                                                : PS_EDEVICE,
                   "cuDNN: %s: %s%s%s%s; train.attention = own does without it", what, a->dnn->status_name(s),
                   why[0] != '\0' ? " (" : "", why, why[0] != '\0' ? ")" : "");
}

static ps_status check(const attention *a, ps_dnn_status s, const char *what)
{
    return s == PS_DNN_SUCCESS ? PS_OK : explain(a, s, what);
}

/* ---- arguments ---- */

/* Of attention forward or backward. */
typedef struct request {
    ps_dnn_attention shape;
    ps_dnn_arrays arrays;
} request;

#define SHAPE_OF(a)                                                                                                    \
    {                                                                                                                  \
        .B = (a)->B, .T = (a)->T, .H = (a)->H, .KV = (a)->KV, .D = (a)->D, .q_stride = (a)->q_stride,                  \
        .kv_stride = (a)->kv_stride, .y_stride = (a)->H * (a)->D,                                                      \
        .window = (a)->window > 0 && (a)->window < (a)->T ? (a)->window : (a)->T, .dtype = (int32_t)(a)->dtype,        \
        .causal = (a)->causal                                                                                          \
    }

static bool has_no_graph(const ps_dnn_attention *s, const int32_t *mask, float dropout_p)
{
    if (s->B == 0 || s->T == 0 || mask != NULL || dropout_p > 0.0f) return true;
    if (s->dtype == PS_DTYPE_F32 || (s->window < s->T && !s->causal)) return true;
    return s->D % 8 != 0 || s->q_stride % 8 != 0 || s->kv_stride % 8 != 0;
}

/* False: no graph for these arguments. */
static bool read_fwd(const ps_attention_fwd_args *a, request *out)
{
    *out = (request){.shape = SHAPE_OF(a),
                     .arrays = {.q = a->q, .k = a->k, .v = a->v, .out_y = a->y, .lse = a->lse, .scale = a->scale}};
    return !has_no_graph(&out->shape, a->mask, a->dropout_p);
}

static bool read_bwd(const ps_attention_bwd_args *a, request *out)
{
    *out = (request){.shape = SHAPE_OF(a),
                     .arrays = {.q = a->q,
                                .k = a->k,
                                .v = a->v,
                                .y = a->y,
                                .dy = a->dy,
                                .dq = a->dq,
                                .dk = a->dk,
                                .dv = a->dv,
                                .lse = (float *)(uintptr_t)a->lse,
                                .scale = a->scale}};
    out->shape.is_backward = true;
    return !has_no_graph(&out->shape, a->mask, a->dropout_p);
}

static bool read_request(ps_op op, const void *args, request *out)
{
    return op == PS_OP_attention_fwd ? read_fwd(args, out) : op == PS_OP_attention_bwd ? read_bwd(args, out) : false;
}

static bool is_aligned(const ps_dnn_arrays *a)
{
    const void *const all[] = {a->q, a->k, a->v, a->y, a->dy, a->out_y, a->dq, a->dk, a->dv, a->lse};
    uintptr_t bits = 0;
    for (size_t i = 0; i < PS_ARRAY_LEN(all); i++) bits |= (uintptr_t)all[i];
    return bits % PS_DNN_ALIGN == 0;
}

/* ---- preparing ---- */

/* The largest divisor of n that is at most `most`; 0: none. */
static int64_t divisor_within(int64_t n, int64_t most)
{
    int64_t d = ps_min_i64(n, most);
    while (d > 0 && n % d != 0) d--;
    return d;
}

/* Whole sequences, or some heads of one. False: not even the smallest part fits. */
static bool take_part(int64_t workspace_bytes, const ps_dnn_attention *whole, ps_dnn_attention *out)
{
    const int64_t group = whole->H / whole->KV;
    *out = *whole;
    out->B = 1, out->KV = 1, out->H = group;
    const int64_t least_bytes = ps_max_i64(1, ps_dnn_workspace_guess(out)), most = workspace_bytes / least_bytes;
    out->B = divisor_within(whole->B, most / whole->KV);
    out->KV = whole->KV;
    if (out->B == 0) {
        out->B = 1;
        out->KV = divisor_within(whole->KV, most);
    }
    out->H = out->KV * group;
    return out->KV > 0;
}

static int64_t delta_bytes(const ps_dnn_attention *part)
{
    return part->is_backward ? ps_cuda_floats(part->B * part->H * part->T) : 0;
}

/* With the lengths that a plan begins at. */
static int64_t scratch_bytes(const ps_dnn_attention *part, int64_t plan_bytes)
{
    return delta_bytes(part) + ps_round_up(plan_bytes, PS_CUDA_ALIGN) + PS_CUDA_ALIGN;
}

static ps_status plan(const attention *a, prepared *p)
{
    const ps_dnn_target on = {.handle = a->handle};
    const char *what;
    if (!take_part(a->workspace_bytes, &p->whole, &p->part)) return PS_OK;
    const ps_dnn_status planned = ps_dnn_plan_init(&p->plan, a->dnn, &on, &p->part, &what);
    PS_TRY(check(a, planned, what));
    if (p->plan.plan == NULL) return PS_OK;
    if (p->plan.workspace_bytes > a->workspace_bytes) {
        ps_dnn_plan_deinit(&p->plan);
        return PS_OK;
    }
    p->bytes = scratch_bytes(&p->part, p->plan.workspace_bytes);
    return PS_OK;
}

static ps_status get_prepared(attention *a, const ps_dnn_attention *shape, prepared **out)
{
    for (*out = a->prepared; *out != NULL; *out = (*out)->next)
        if (memcmp(&(*out)->whole, shape, sizeof *shape) == 0) return PS_OK;
    prepared *p = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *p, &p));
    p->whole = *shape;
    p->bytes = -1;
    const ps_status st = plan(a, p);
    if (st != PS_OK) {
        ps_mem_free(p);
        return st;
    }
    p->next = a->prepared;
    *out = a->prepared = p;
    return PS_OK;
}

static ps_status measure_locked(attention *a, const ps_dnn_attention *shape, int64_t *bytes)
{
    prepared *p;
    PS_TRY(ps_gpu_enter(a->gpu));
    PS_TRY(get_prepared(a, shape, &p));
    *bytes = p->bytes;
    return PS_OK;
}

static ps_status measure(void *self, ps_op op, const void *args, int64_t *bytes)
{
    attention *a = self;
    request r;
    *bytes = -1;
    if (!read_request(op, args, &r)) return PS_OK;
    pthread_mutex_lock(&a->lock);
    const ps_status st = measure_locked(a, &r.shape, bytes);
    pthread_mutex_unlock(&a->lock);
    return st;
}

/* ---- running ---- */

/* p is NULL or the address so many elements of 16 bits further. */
static const void *moved(const void *p, int64_t elements)
{
    return p != NULL ? (const char *)p + 2 * elements : NULL;
}

static void *moved_out(void *p, int64_t elements)
{
    return p != NULL ? (char *)p + 2 * elements : NULL;
}

/* The arrays of a part: from sequence b on, from head kv of keys on. */
static ps_dnn_arrays arrays_of(const prepared *p, const ps_dnn_arrays *all, int64_t b, int64_t kv)
{
    const ps_dnn_attention *s = &p->whole;
    const int64_t h = kv * (s->H / s->KV), rows = b * s->T;
    const int64_t q = rows * s->q_stride + h * s->D, k = rows * s->kv_stride + kv * s->D;
    const int64_t y = rows * s->y_stride + h * s->D;
    ps_dnn_arrays part = *all;
    part.q = moved(all->q, q), part.k = moved(all->k, k), part.v = moved(all->v, k);
    part.y = moved(all->y, y), part.dy = moved(all->dy, y), part.out_y = moved_out(all->out_y, y);
    part.dq = moved_out(all->dq, q), part.dk = moved_out(all->dk, k), part.dv = moved_out(all->dv, k);
    part.lse = all->lse + (b * s->H + h) * s->T;
    return part;
}

static ps_status run_locked(attention *a, ps_cu_stream stream, request *r, char *workspace, bool *is_done)
{
    prepared *p;
    PS_TRY(get_prepared(a, &r->shape, &p));
    if (p->bytes < 0) return PS_OK;
    char *scratch = (char *)(uintptr_t)ps_round_up((int64_t)(uintptr_t)workspace, PS_CUDA_ALIGN);
    r->arrays.delta = ps_cuda_take(&scratch, delta_bytes(&p->part));
    r->arrays.workspace = scratch;
    PS_TRY(check(a, a->dnn->set_stream(a->handle, stream), "attention"));
    for (int64_t b = 0; b < p->whole.B; b += p->part.B)
        for (int64_t kv = 0; kv < p->whole.KV; kv += p->part.KV) {
            const ps_dnn_arrays part = arrays_of(p, &r->arrays, b, kv);
            PS_TRY(ps_gpu_will_issue(a->gpu, stream, PS_GPU_LIBRARY_COMMANDS));
            PS_TRY(check(a, ps_dnn_plan_run(&p->plan, a->handle, &part), "attention"));
        }
    *is_done = true;
    return PS_OK;
}

static ps_status run(void *self, ps_cu_stream stream, ps_op op, const void *args, bool *is_done)
{
    attention *a = self;
    request r;
    *is_done = false;
    if (!read_request(op, args, &r) || !is_aligned(&r.arrays)) return PS_OK;
    char *const workspace = r.shape.is_backward ? ((const ps_attention_bwd_args *)args)->workspace
                                                : ((const ps_attention_fwd_args *)args)->workspace;
    pthread_mutex_lock(&a->lock);
    const ps_status st = run_locked(a, stream, &r, workspace, is_done);
    pthread_mutex_unlock(&a->lock);
    return st;
}

/* ---- create, destroy ---- */

static void destroy(void *self)
{
    attention *a = self;
    (void)ps_gpu_enter_quietly(a->gpu);
    for (prepared *p = a->prepared, *next; p != NULL; p = next) {
        next = p->next;
        ps_dnn_plan_deinit(&p->plan);
        ps_mem_free(p);
    }
    if (a->handle != NULL) (void)a->dnn->destroy(a->handle);
    pthread_mutex_destroy(&a->lock);
    ps_mem_free(a);
}

static ps_status start(attention *a)
{
    PS_TRY(ps_gpu_enter(a->gpu));
    return check(a, a->dnn->create(&a->handle), "its start");
}

ps_status ps_cudnn_attention_open_with(ps_gpu *gpu, const ps_cudnn *library, int64_t workspace_bytes,
                                       ps_cuda_attention *out)
{
    attention *a = NULL;
    char version[PS_CUDNN_VERSION_TEXT_MAX];
    *out = (ps_cuda_attention){0};
    PS_TRY(ps_mem_alloc(1, sizeof *a, &a));
    *a = (attention){.gpu = gpu, .dnn = library, .workspace_bytes = workspace_bytes};
    pthread_mutex_init(&a->lock, NULL);
    const ps_status st = start(a);
    if (st != PS_OK) {
        destroy(a);
        return st;
    }
    *out = (ps_cuda_attention){.self = a, .measure = measure, .run = run, .destroy = destroy};
    snprintf(out->name, sizeof out->name, "cuDNN %s", ps_cudnn_version_text(library, version));
    return PS_OK;
}

ps_status ps_cudnn_attention_open(ps_gpu *gpu, ps_cuda_attention *out)
{
    const ps_cudnn *library;
    *out = (ps_cuda_attention){0};
    PS_TRY(ps_cudnn_load(&library));
    return ps_cudnn_attention_open_with(gpu, library, PS_CUDNN_WORKSPACE_BYTES, out);
}

/* ---- for plans ---- */

static ps_status guess(void *self, ps_op op, const void *args, int64_t *bytes)
{
    request r;
    ps_dnn_attention part;
    (void)self;
    *bytes = -1;
    if (read_request(op, args, &r) && take_part(PS_CUDNN_WORKSPACE_BYTES, &r.shape, &part))
        *bytes = scratch_bytes(&part, ps_dnn_workspace_guess(&part));
    return PS_OK;
}

void ps_cudnn_attention_guess(ps_cuda_attention *out)
{
    static char nothing;
    *out = (ps_cuda_attention){.self = &nothing, .name = "cuDNN", .measure = guess};
}
