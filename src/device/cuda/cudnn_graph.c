#include "device/cuda/cudnn_graph.h"

#include <float.h>

/* ---- making descriptors ---- */

#define OPERATIONS_MAX 32
#define CONFIGS_MAX 16

/* A graph under construction. After the first failure the functions do nothing, so that graphs can be written without
 * checks. */
typedef struct builder {
    ps_dnn_plan *plan; /* owns the descriptors */
    ps_dnn_status failed;
    ps_dnn_descriptor operations[OPERATIONS_MAX];
    int n_operations;
    int64_t next_id;
} builder;

/* Four sizes: sequences, heads, rows, columns. */
typedef struct tensor {
    ps_dnn_descriptor d;
    int64_t size[4], stride[4];
    int64_t id;
    int type;
} tensor;

static void check(builder *b, ps_dnn_status s)
{
    if (b->failed == PS_DNN_SUCCESS) b->failed = s;
}

static ps_dnn_descriptor make(builder *b, int kind)
{
    ps_dnn_descriptor d = NULL;
    if (b->failed != PS_DNN_SUCCESS) return NULL;
    PS_ASSERT(b->plan->n_descriptors < PS_DNN_GRAPH_DESCRIPTORS);
    check(b, b->plan->dnn->descriptor_create(kind, &d));
    if (b->failed == PS_DNN_SUCCESS) b->plan->descriptors[b->plan->n_descriptors++] = d;
    return d;
}

static void set(builder *b, ps_dnn_descriptor d, int which, int type, int64_t n, const void *values)
{
    if (b->failed == PS_DNN_SUCCESS) check(b, b->plan->dnn->set(d, which, type, n, values));
}

static void set_descriptor(builder *b, ps_dnn_descriptor d, int which, ps_dnn_descriptor value)
{
    set(b, d, which, PS_DNN_TYPE_DESCRIPTOR, 1, &value);
}

static void set_number(builder *b, ps_dnn_descriptor d, int which, int type, int value)
{
    const int32_t v = value; /* enumerations */
    set(b, d, which, type, 1, &v);
}

static void finish(builder *b, ps_dnn_descriptor d)
{
    if (b->failed == PS_DNN_SUCCESS) check(b, b->plan->dnn->finalize(d));
}

/* ---- tensors ---- */

typedef enum storage { IN_MEMORY, VIRTUAL, BY_VALUE } storage;

static tensor describe(builder *b, tensor t, storage s)
{
    /* the floats of a head may begin at any address */
    const int64_t align = s == IN_MEMORY && t.type == PS_DNN_F32 ? (int64_t)sizeof(float) : PS_DNN_ALIGN;
    const bool yes = true;
    t.d = make(b, PS_DNN_TENSOR);
    set_number(b, t.d, PS_DNN_TENSOR_TYPE, PS_DNN_TYPE_DATA_TYPE, t.type);
    set(b, t.d, PS_DNN_TENSOR_SIZES, PS_DNN_TYPE_INT64, 4, t.size);
    set(b, t.d, PS_DNN_TENSOR_STRIDES, PS_DNN_TYPE_INT64, 4, t.stride);
    set(b, t.d, PS_DNN_TENSOR_ID, PS_DNN_TYPE_INT64, 1, &t.id);
    set(b, t.d, PS_DNN_TENSOR_ALIGNMENT, PS_DNN_TYPE_INT64, 1, &align);
    if (s == VIRTUAL) set(b, t.d, PS_DNN_TENSOR_IS_VIRTUAL, PS_DNN_TYPE_BOOLEAN, 1, &yes);
    if (s == BY_VALUE) set(b, t.d, PS_DNN_TENSOR_IS_BY_VALUE, PS_DNN_TYPE_BOOLEAN, 1, &yes);
    finish(b, t.d);
    return t;
}

/* In memory: heads of D elements in rows of stride `stride`. */
static tensor heads(builder *b, int64_t id, const ps_dnn_attention *a, int64_t n_heads, int64_t stride)
{
    const int type = a->dtype == PS_DTYPE_BF16 ? PS_DNN_BF16 : PS_DNN_F16;
    return describe(
        b,
        (tensor){
            .size = {a->B, n_heads, a->T, a->D}, .stride = {a->T * stride, a->D, stride, 1}, .id = id, .type = type},
        IN_MEMORY);
}

static tensor packed(int64_t B, int64_t H, int64_t rows, int64_t cols, int type)
{
    return (tensor){.size = {B, H, rows, cols}, .stride = {H * rows * cols, rows * cols, cols, 1}, .type = type};
}

/* In memory: a float a row. */
static tensor row_values(builder *b, int64_t id, const ps_dnn_attention *a)
{
    tensor t = packed(a->B, a->H, a->T, 1, PS_DNN_F32);
    t.id = id;
    return describe(b, t, IN_MEMORY);
}

static tensor virtual(builder *b, tensor like, int type)
{
    like.type = type;
    like.id = b->next_id++;
    return describe(b, like, VIRTUAL);
}

static tensor of_rows(builder *b, tensor like)
{
    return virtual(b, packed(like.size[0], like.size[1], like.size[2], 1, 0), PS_DNN_F32);
}

static tensor scalar(builder *b, int64_t id)
{
    tensor t = packed(1, 1, 1, 1, PS_DNN_F32);
    t.id = id;
    return describe(b, t, BY_VALUE);
}

/* The same memory, transposed. */
static tensor turned(tensor t)
{
    const int64_t size = t.size[2], stride = t.stride[2];
    t.size[2] = t.size[3], t.stride[2] = t.stride[3];
    t.size[3] = size, t.stride[3] = stride;
    return t;
}

/* The same array in memory, transposed: another descriptor with the same id. */
static tensor transposed(builder *b, tensor t)
{
    return describe(b, turned(t), IN_MEMORY);
}

/* ---- operations ---- */

static void add_operation(builder *b, ps_dnn_descriptor d)
{
    finish(b, d);
    PS_ASSERT(b->n_operations < OPERATIONS_MAX);
    b->operations[b->n_operations++] = d;
}

static ps_dnn_descriptor pointwise(builder *b, int mode, int precision, const int64_t *axis)
{
    ps_dnn_descriptor d = make(b, PS_DNN_POINTWISE);
    set_number(b, d, PS_DNN_POINTWISE_MODE, PS_DNN_TYPE_POINTWISE, mode);
    set_number(b, d, PS_DNN_POINTWISE_PRECISION, PS_DNN_TYPE_DATA_TYPE, precision);
    if (axis != NULL) set(b, d, PS_DNN_POINTWISE_AXIS, PS_DNN_TYPE_INT64, 1, axis);
    finish(b, d);
    return d;
}

/* y = mode(x, second, third), of which the last two may be NULL. */
static void element_by_element(builder *b, ps_dnn_descriptor mode, tensor x, const tensor *second, const tensor *third,
                               tensor y)
{
    ps_dnn_descriptor d = make(b, PS_DNN_POINTWISE_OPERATION);
    set_descriptor(b, d, PS_DNN_POINTWISE_OF, mode);
    set_descriptor(b, d, PS_DNN_POINTWISE_X, x.d);
    if (second != NULL) set_descriptor(b, d, PS_DNN_POINTWISE_B, second->d);
    if (third != NULL) set_descriptor(b, d, PS_DNN_POINTWISE_T, third->d);
    set_descriptor(b, d, PS_DNN_POINTWISE_Y, y.d);
    add_operation(b, d);
}

static void combine(builder *b, int mode, tensor x, tensor second, tensor y)
{
    element_by_element(b, pointwise(b, mode, PS_DNN_F32, NULL), x, &second, NULL, y);
}

static tensor combined(builder *b, int mode, tensor x, tensor second)
{
    const tensor y = virtual(b, x, PS_DNN_F32);
    combine(b, mode, x, second, y);
    return y;
}

static tensor mapped(builder *b, int mode, tensor x)
{
    const tensor y = virtual(b, x, PS_DNN_F32);
    element_by_element(b, pointwise(b, mode, PS_DNN_F32, NULL), x, NULL, NULL, y);
    return y;
}

static tensor index_along(builder *b, tensor x, int64_t axis)
{
    const tensor y = virtual(b, x, PS_DNN_INT32);
    element_by_element(b, pointwise(b, PS_DNN_INDEX, PS_DNN_F32, &axis), x, NULL, NULL, y);
    return y;
}

static tensor compared(builder *b, int mode, tensor x, tensor second)
{
    const tensor y = virtual(b, x, PS_DNN_BOOLEAN);
    element_by_element(b, pointwise(b, mode, PS_DNN_BOOLEAN, NULL), x, &second, NULL, y);
    return y;
}

static tensor selected(builder *b, tensor where, tensor x, tensor otherwise)
{
    const tensor y = virtual(b, x, PS_DNN_F32);
    element_by_element(b, pointwise(b, PS_DNN_SELECT, PS_DNN_F32, NULL), x, &otherwise, &where, y);
    return y;
}

/* c = a b; where b has fewer heads than a, each of them serves several of a. */
static void multiply(builder *b, tensor a, tensor other, tensor c)
{
    ps_dnn_descriptor of = make(b, PS_DNN_MATMUL);
    set_number(b, of, PS_DNN_MATMUL_PRECISION, PS_DNN_TYPE_DATA_TYPE, PS_DNN_F32);
    finish(b, of);
    ps_dnn_descriptor d = make(b, PS_DNN_MATMUL_OPERATION);
    set_descriptor(b, d, PS_DNN_MATMUL_A, a.d);
    set_descriptor(b, d, PS_DNN_MATMUL_B, other.d);
    set_descriptor(b, d, PS_DNN_MATMUL_C, c.d);
    set_descriptor(b, d, PS_DNN_MATMUL_OF, of);
    add_operation(b, d);
}

/* y = the sum or maximum of x along the dimensions in which y is smaller. */
static void reduce(builder *b, int operator, tensor x, tensor y)
{
    ps_dnn_descriptor of = make(b, PS_DNN_REDUCTION);
    set_number(b, of, PS_DNN_REDUCTION_OPERATOR, PS_DNN_TYPE_REDUCTION, operator);
    set_number(b, of, PS_DNN_REDUCTION_PRECISION, PS_DNN_TYPE_DATA_TYPE, PS_DNN_F32);
    finish(b, of);
    ps_dnn_descriptor d = make(b, PS_DNN_REDUCTION_OPERATION);
    set_descriptor(b, d, PS_DNN_REDUCTION_X, x.d);
    set_descriptor(b, d, PS_DNN_REDUCTION_Y, y.d);
    set_descriptor(b, d, PS_DNN_REDUCTION_OF, of);
    add_operation(b, d);
}

/* x in its memory order, with y's sizes and strides: transposed where those are. */
static void reshape(builder *b, tensor x, tensor y)
{
    ps_dnn_descriptor d = make(b, PS_DNN_RESHAPE_OPERATION);
    set_descriptor(b, d, PS_DNN_RESHAPE_X, x.d);
    set_descriptor(b, d, PS_DNN_RESHAPE_Y, y.d);
    add_operation(b, d);
}

/* ---- attention ---- */

/* Arrays and scalars, by id; intermediate tensors have ids from FIRST_VIRTUAL on. */
enum { Q = 1, K, V, Y, LSE, DY, DQ, DK, DV, DELTA, SCALE, HIDDEN, ONE, WINDOW, FIRST_VIRTUAL = 100 };

/* The score of masked keys: exp makes it 0, and it is finite, since a tile may consist of masked keys alone. */
static const float hidden_score = -FLT_MAX;

static tensor masked(builder *b, const ps_dnn_attention *a, tensor s)
{
    if (!a->causal) return s;
    const tensor hidden = scalar(b, HIDDEN);
    const tensor i = index_along(b, s, 2), j = index_along(b, s, 3);
    s = selected(b, compared(b, PS_DNN_GREATER_OR_EQUAL, i, j), s, hidden);
    if (a->window == a->T) return s;
    const tensor i_again = index_along(b, s, 2), j_again = index_along(b, s, 3);
    const tensor end = combined(b, PS_DNN_ADD, j_again, scalar(b, WINDOW));
    return selected(b, compared(b, PS_DNN_GREATER, end, i_again), s, hidden);
}

static tensor scores(builder *b, const ps_dnn_attention *a, tensor q, tensor k_transposed, tensor scale)
{
    const tensor s = virtual(b, packed(a->B, a->H, a->T, a->T, 0), PS_DNN_F32);
    multiply(b, q, k_transposed, s);
    return combined(b, PS_DNN_MUL, s, scale);
}

static void forward(builder *b, const ps_dnn_attention *a)
{
    const tensor q = heads(b, Q, a, a->H, a->q_stride), k = heads(b, K, a, a->KV, a->kv_stride);
    const tensor v = heads(b, V, a, a->KV, a->kv_stride), y = heads(b, Y, a, a->H, a->y_stride);
    const tensor lse = row_values(b, LSE, a), scale = scalar(b, SCALE);
    const tensor s = masked(b, a, scores(b, a, q, transposed(b, k), scale));
    const tensor max = of_rows(b, s), sum = of_rows(b, s);
    reduce(b, PS_DNN_MAX, s, max);
    const tensor e = mapped(b, PS_DNN_EXP, combined(b, PS_DNN_SUB, s, max));
    reduce(b, PS_DNN_SUM, e, sum);
    combine(b, PS_DNN_ADD, max, mapped(b, PS_DNN_LOG, sum), lse);
    const tensor p = virtual(b, e, q.type);
    combine(b, PS_DNN_DIV, e, sum, p);
    multiply(b, p, v, y);
}

/* A gradient of keys or values: transposed(weights) x, summed over the query heads that share one. */
static void gradient(builder *b, const ps_dnn_attention *a, tensor weights, tensor x, tensor out)
{
    const tensor t = virtual(b, turned(weights), x.type);
    reshape(b, weights, t);
    if (a->H == a->KV) {
        multiply(b, t, x, out);
        return;
    }
    const tensor each = virtual(b, packed(a->B, a->H, a->T, a->D, 0), x.type);
    multiply(b, t, x, each);
    reduce(b, PS_DNN_SUM, each, out);
}

static void backward(builder *b, const ps_dnn_attention *a)
{
    const tensor q = heads(b, Q, a, a->H, a->q_stride), k = heads(b, K, a, a->KV, a->kv_stride);
    const tensor v = heads(b, V, a, a->KV, a->kv_stride), y = heads(b, Y, a, a->H, a->y_stride);
    const tensor dy = heads(b, DY, a, a->H, a->y_stride), dq = heads(b, DQ, a, a->H, a->q_stride);
    const tensor dk = heads(b, DK, a, a->KV, a->kv_stride), dv = heads(b, DV, a, a->KV, a->kv_stride);
    const tensor lse = row_values(b, LSE, a), delta = row_values(b, DELTA, a);
    const tensor scale = scalar(b, SCALE), one = scalar(b, ONE);

    const tensor dy_y = virtual(b, packed(a->B, a->H, a->T, a->D, 0), PS_DNN_F32), sums = of_rows(b, dy_y);
    combine(b, PS_DNN_MUL, dy, y, dy_y);
    reduce(b, PS_DNN_SUM, dy_y, sums);
    combine(b, PS_DNN_MUL, sums, one, delta); /* in memory, where later blocks read it */

    const tensor k_transposed = transposed(b, k);
    const tensor s = combined(b, PS_DNN_SUB, scores(b, a, q, k_transposed, scale), lse);
    const tensor p = mapped(b, PS_DNN_EXP, masked(b, a, s));
    gradient(b, a, p, dy, dv);

    const tensor dp = virtual(b, packed(a->B, a->H, a->T, a->T, 0), PS_DNN_F32);
    multiply(b, dy, transposed(b, v), dp);
    const tensor weighted = combined(b, PS_DNN_MUL, combined(b, PS_DNN_SUB, dp, delta), p);
    const tensor ds = virtual(b, dp, q.type);
    combine(b, PS_DNN_MUL, weighted, scale, ds);
    gradient(b, a, ds, q, dk);

    const tensor k_again = virtual(b, k, k.type);
    reshape(b, k_transposed, k_again);
    multiply(b, ds, k_again, dq);
}

/* ---- plans ---- */

/* Errors due to the shape or this GPU, not to the installation. */
static bool is_not_supported(ps_dnn_status s)
{
    static const ps_dnn_status of_system[] = {PS_DNN_OTHER_DRIVER, PS_DNN_OTHER_RUNTIME, PS_DNN_NO_PREREQUISITE,
                                              PS_DNN_NO_SUBLIBRARY};
    for (size_t i = 0; i < PS_ARRAY_LEN(of_system); i++)
        if (s == of_system[i]) return false;
    return s / 1000 == PS_DNN_BAD_PARAM / 1000 || s / 1000 == PS_DNN_NOT_SUPPORTED / 1000;
}

static void get(builder *b, ps_dnn_descriptor d, int which, int type, int64_t n_wanted, int64_t *n, void *out)
{
    *n = 0;
    if (b->failed == PS_DNN_SUCCESS) check(b, b->plan->dnn->get(d, which, type, n_wanted, n, out));
    if (n_wanted > 0 && *n > n_wanted) *n = n_wanted; /* the library returns how many exist */
}

static bool is_deterministic(builder *b, ps_dnn_descriptor config)
{
    int32_t notes[PS_DNN_NOTES];
    int64_t n;
    ps_dnn_descriptor engine = make(b, PS_DNN_ENGINE);
    get(b, config, PS_DNN_CONFIG_ENGINE, PS_DNN_TYPE_DESCRIPTOR, 1, &n, &engine);
    get(b, engine, PS_DNN_ENGINE_NOTES, PS_DNN_TYPE_NUMERICAL_NOTE, PS_DNN_NOTES, &n, notes);
    for (int64_t i = 0; i < n; i++)
        if (notes[i] == PS_DNN_NOTE_NONDETERMINISTIC) return false;
    return b->failed == PS_DNN_SUCCESS;
}

static bool try_config(builder *b, const ps_dnn_target *on, ps_dnn_descriptor config)
{
    ps_dnn_descriptor d = make(b, PS_DNN_PLAN);
    int64_t n;
    if (on->device != NULL)
        set_descriptor(b, d, PS_DNN_PLAN_DEVICE, on->device);
    else
        set(b, d, PS_DNN_PLAN_HANDLE, PS_DNN_TYPE_HANDLE, 1, &on->handle);
    set_descriptor(b, d, PS_DNN_PLAN_CONFIG, config);
    finish(b, d);
    get(b, d, PS_DNN_PLAN_WORKSPACE_BYTES, PS_DNN_TYPE_INT64, 1, &n, &b->plan->workspace_bytes);
    if (b->failed == PS_DNN_SUCCESS) b->plan->plan = d;
    if (is_not_supported(b->failed)) b->failed = PS_DNN_SUCCESS;
    return b->plan->plan != NULL;
}

/* The first engine in the library's ranking that is supported. */
static void find_plan(builder *b, const ps_dnn_target *on, ps_dnn_descriptor heuristic)
{
    ps_dnn_descriptor configs[CONFIGS_MAX];
    int64_t n;
    get(b, heuristic, PS_DNN_HEURISTIC_RESULTS, PS_DNN_TYPE_DESCRIPTOR, 0, &n, NULL);
    const int64_t n_wanted = n < CONFIGS_MAX ? n : CONFIGS_MAX;
    for (int64_t i = 0; i < n_wanted; i++) configs[i] = make(b, PS_DNN_ENGINE_CONFIG);
    if (n_wanted > 0) get(b, heuristic, PS_DNN_HEURISTIC_RESULTS, PS_DNN_TYPE_DESCRIPTOR, n_wanted, &n, configs);
    for (int64_t i = 0; i < n && b->failed == PS_DNN_SUCCESS; i++)
        if (is_deterministic(b, configs[i]) && try_config(b, on, configs[i])) return;
}

static ps_dnn_descriptor make_graph(builder *b, const ps_dnn_target *on)
{
    ps_dnn_descriptor d = make(b, PS_DNN_GRAPH);
    set(b, d, PS_DNN_GRAPH_OPERATIONS, PS_DNN_TYPE_DESCRIPTOR, b->n_operations, b->operations);
    if (on->device == NULL) set(b, d, PS_DNN_GRAPH_HANDLE, PS_DNN_TYPE_HANDLE, 1, &on->handle);
    finish(b, d);
    return d;
}

static ps_dnn_descriptor make_heuristic(builder *b, const ps_dnn_target *on, ps_dnn_descriptor graph)
{
    ps_dnn_descriptor d = make(b, PS_DNN_HEURISTIC);
    set_descriptor(b, d, PS_DNN_HEURISTIC_GRAPH, graph);
    set_number(b, d, PS_DNN_HEURISTIC_MODE, PS_DNN_TYPE_HEURISTIC, PS_DNN_HEURISTIC_A);
    if (on->device != NULL) set_descriptor(b, d, PS_DNN_HEURISTIC_DEVICE, on->device);
    finish(b, d);
    return d;
}

ps_dnn_status ps_dnn_plan_init(ps_dnn_plan *out, const ps_cudnn *dnn, const ps_dnn_target *on,
                               const ps_dnn_attention *shape, const char **what)
{
    *out = (ps_dnn_plan){.dnn = dnn,
                         .window = shape->window,
                         .causal = shape->causal,
                         .has_window = shape->causal && shape->window != shape->T,
                         .is_backward = shape->is_backward};
    builder b = {.plan = out, .next_id = FIRST_VIRTUAL};
    *what = "describing attention";
    if (shape->is_backward)
        backward(&b, shape);
    else
        forward(&b, shape);
    ps_dnn_descriptor graph = make_graph(&b, on);
    if (b.failed == PS_DNN_SUCCESS) *what = "choosing a plan for attention";
    ps_dnn_descriptor heuristic = make_heuristic(&b, on, graph);
    if (b.failed == PS_DNN_SUCCESS) find_plan(&b, on, heuristic);
    if (is_not_supported(b.failed)) b.failed = PS_DNN_SUCCESS;
    if (out->plan == NULL) ps_dnn_plan_deinit(out);
    return b.failed;
}

void ps_dnn_plan_deinit(ps_dnn_plan *p)
{
    for (int i = p->n_descriptors - 1; i >= 0; i--) (void)p->dnn->descriptor_destroy(p->descriptors[i]);
    p->n_descriptors = 0;
    p->plan = NULL;
}

/* ---- running ---- */

#define PACKED_MAX 16

/* The arguments of a plan, by id; a scalar's pointer is to host memory. */
typedef struct pack {
    int64_t ids[PACKED_MAX];
    const void *pointers[PACKED_MAX];
    int n;
} pack;

static void put(pack *p, int64_t id, const void *pointer)
{
    PS_ASSERT(p->n < PACKED_MAX);
    p->ids[p->n] = id;
    p->pointers[p->n++] = pointer;
}

static ps_dnn_status execute(const ps_dnn_plan *p, ps_dnn_handle handle, const pack *with, void *workspace)
{
    const ps_cudnn *dnn = p->dnn;
    ps_dnn_descriptor d;
    ps_dnn_status s = dnn->descriptor_create(PS_DNN_PACK, &d);
    if (s != PS_DNN_SUCCESS) return s;
    s = dnn->set(d, PS_DNN_PACK_IDS, PS_DNN_TYPE_INT64, with->n, with->ids);
    if (s == PS_DNN_SUCCESS) s = dnn->set(d, PS_DNN_PACK_POINTERS, PS_DNN_TYPE_POINTER, with->n, with->pointers);
    if (s == PS_DNN_SUCCESS) s = dnn->set(d, PS_DNN_PACK_WORKSPACE, PS_DNN_TYPE_POINTER, 1, &workspace);
    if (s == PS_DNN_SUCCESS) s = dnn->finalize(d);
    if (s == PS_DNN_SUCCESS) s = dnn->execute(handle, p->plan, d);
    (void)dnn->descriptor_destroy(d);
    return s;
}

ps_dnn_status ps_dnn_plan_run(const ps_dnn_plan *p, ps_dnn_handle handle, const ps_dnn_arrays *a)
{
    static const float one = 1.0f;
    const float window = (float)p->window;
    pack with = {.n = 0};
    put(&with, Q, a->q), put(&with, K, a->k), put(&with, V, a->v);
    put(&with, LSE, a->lse), put(&with, SCALE, &a->scale);
    if (p->causal) put(&with, HIDDEN, &hidden_score);
    if (p->has_window) put(&with, WINDOW, &window);
    if (p->is_backward) {
        put(&with, Y, a->y), put(&with, DY, a->dy), put(&with, DELTA, a->delta), put(&with, ONE, &one);
        put(&with, DQ, a->dq), put(&with, DK, a->dk), put(&with, DV, a->dv);
    } else {
        put(&with, Y, a->out_y);
    }
    return execute(p, handle, &with, a->workspace);
}
