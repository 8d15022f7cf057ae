#include "cuda/fake_cudnn.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "cuda/fake_impl.h"

#define FUNCTIONS 16
#define ATTRIBUTES 8
#define OPERATIONS 32
#define ARRAYS 16
#define NAMED 256 /* ids of tensors are below */
#define HEAD_MAX 64
enum { ENGINE_WRONG, ENGINE_RIGHT, ENGINES };

struct ps_dnn_handle_state {
    ps_cu_module module;
    ps_cu_function function;
    ps_cu_stream stream;
};

/* ---- descriptors ---- */

typedef struct attribute {
    int which;
    int64_t n;
    void *values;
} attribute;

typedef struct program program;

typedef struct descriptor {
    int kind, n_attributes;
    bool is_finished;
    attribute attributes[ATTRIBUTES];
    const struct descriptor *of; /* a configuration's graph, an engine's configuration */
    int engine;
    program *program; /* a plan's */
} descriptor;

/* Which attributes a kind has, their type, and how many values; 0: any number. */
static const struct {
    int kind, which, type;
    int64_t n;
} known[] = {
    {PS_DNN_TENSOR, PS_DNN_TENSOR_TYPE, PS_DNN_TYPE_DATA_TYPE, 1},
    {PS_DNN_TENSOR, PS_DNN_TENSOR_SIZES, PS_DNN_TYPE_INT64, 4},
    {PS_DNN_TENSOR, PS_DNN_TENSOR_STRIDES, PS_DNN_TYPE_INT64, 4},
    {PS_DNN_TENSOR, PS_DNN_TENSOR_ID, PS_DNN_TYPE_INT64, 1},
    {PS_DNN_TENSOR, PS_DNN_TENSOR_ALIGNMENT, PS_DNN_TYPE_INT64, 1},
    {PS_DNN_TENSOR, PS_DNN_TENSOR_IS_VIRTUAL, PS_DNN_TYPE_BOOLEAN, 1},
    {PS_DNN_TENSOR, PS_DNN_TENSOR_IS_BY_VALUE, PS_DNN_TYPE_BOOLEAN, 1},
    {PS_DNN_POINTWISE, PS_DNN_POINTWISE_MODE, PS_DNN_TYPE_POINTWISE, 1},
    {PS_DNN_POINTWISE, PS_DNN_POINTWISE_PRECISION, PS_DNN_TYPE_DATA_TYPE, 1},
    {PS_DNN_POINTWISE, PS_DNN_POINTWISE_AXIS, PS_DNN_TYPE_INT64, 1},
    {PS_DNN_POINTWISE_OPERATION, PS_DNN_POINTWISE_OF, PS_DNN_TYPE_DESCRIPTOR, 1},
    {PS_DNN_POINTWISE_OPERATION, PS_DNN_POINTWISE_X, PS_DNN_TYPE_DESCRIPTOR, 1},
    {PS_DNN_POINTWISE_OPERATION, PS_DNN_POINTWISE_B, PS_DNN_TYPE_DESCRIPTOR, 1},
    {PS_DNN_POINTWISE_OPERATION, PS_DNN_POINTWISE_T, PS_DNN_TYPE_DESCRIPTOR, 1},
    {PS_DNN_POINTWISE_OPERATION, PS_DNN_POINTWISE_Y, PS_DNN_TYPE_DESCRIPTOR, 1},
    {PS_DNN_MATMUL, PS_DNN_MATMUL_PRECISION, PS_DNN_TYPE_DATA_TYPE, 1},
    {PS_DNN_MATMUL_OPERATION, PS_DNN_MATMUL_OF, PS_DNN_TYPE_DESCRIPTOR, 1},
    {PS_DNN_MATMUL_OPERATION, PS_DNN_MATMUL_A, PS_DNN_TYPE_DESCRIPTOR, 1},
    {PS_DNN_MATMUL_OPERATION, PS_DNN_MATMUL_B, PS_DNN_TYPE_DESCRIPTOR, 1},
    {PS_DNN_MATMUL_OPERATION, PS_DNN_MATMUL_C, PS_DNN_TYPE_DESCRIPTOR, 1},
    {PS_DNN_REDUCTION, PS_DNN_REDUCTION_OPERATOR, PS_DNN_TYPE_REDUCTION, 1},
    {PS_DNN_REDUCTION, PS_DNN_REDUCTION_PRECISION, PS_DNN_TYPE_DATA_TYPE, 1},
    {PS_DNN_REDUCTION_OPERATION, PS_DNN_REDUCTION_OF, PS_DNN_TYPE_DESCRIPTOR, 1},
    {PS_DNN_REDUCTION_OPERATION, PS_DNN_REDUCTION_X, PS_DNN_TYPE_DESCRIPTOR, 1},
    {PS_DNN_REDUCTION_OPERATION, PS_DNN_REDUCTION_Y, PS_DNN_TYPE_DESCRIPTOR, 1},
    {PS_DNN_RESHAPE_OPERATION, PS_DNN_RESHAPE_X, PS_DNN_TYPE_DESCRIPTOR, 1},
    {PS_DNN_RESHAPE_OPERATION, PS_DNN_RESHAPE_Y, PS_DNN_TYPE_DESCRIPTOR, 1},
    {PS_DNN_GRAPH, PS_DNN_GRAPH_OPERATIONS, PS_DNN_TYPE_DESCRIPTOR, 0},
    {PS_DNN_GRAPH, PS_DNN_GRAPH_HANDLE, PS_DNN_TYPE_HANDLE, 1},
    {PS_DNN_HEURISTIC, PS_DNN_HEURISTIC_GRAPH, PS_DNN_TYPE_DESCRIPTOR, 1},
    {PS_DNN_HEURISTIC, PS_DNN_HEURISTIC_MODE, PS_DNN_TYPE_HEURISTIC, 1},
    {PS_DNN_PLAN, PS_DNN_PLAN_HANDLE, PS_DNN_TYPE_HANDLE, 1},
    {PS_DNN_PLAN, PS_DNN_PLAN_CONFIG, PS_DNN_TYPE_DESCRIPTOR, 1},
    {PS_DNN_PACK, PS_DNN_PACK_IDS, PS_DNN_TYPE_INT64, 0},
    {PS_DNN_PACK, PS_DNN_PACK_POINTERS, PS_DNN_TYPE_POINTER, 0},
    {PS_DNN_PACK, PS_DNN_PACK_WORKSPACE, PS_DNN_TYPE_POINTER, 1},
};

static struct {
    const char *names[FUNCTIONS];
    int n_names;
    atomic_int calls[FUNCTIONS], fail_in[FUNCTIONS];
    ps_dnn_status fail_with[FUNCTIONS];
    atomic_int n_handles, n_descriptors;
    program *programs; /* until the end: streams are late */
} dnn;

static int number_of(const char *name)
{
    for (int i = 0; i < dnn.n_names; i++)
        if (strcmp(dnn.names[i], name) == 0) return i;
    fprintf(stderr, "fake_cudnn: no function %s\n", name);
    abort();
}

static ps_dnn_status enter(const char *name)
{
    const int i = number_of(name);
    dnn.calls[i]++;
    return dnn.fail_in[i] >= 0 && dnn.fail_in[i]-- == 0 ? dnn.fail_with[i] : PS_DNN_SUCCESS;
}

#define ENTER_DNN()                                                                                                    \
    do {                                                                                                               \
        const ps_dnn_status s_ = enter(__func__ + 4);                                                                  \
        if (s_ != PS_DNN_SUCCESS) return s_;                                                                           \
    } while (0)

__attribute__((format(printf, 1, 2))) static ps_dnn_status refuse(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    fprintf(stderr, "fake_cudnn: ");
    vfprintf(stderr, format, ap);
    fprintf(stderr, "\n");
    va_end(ap);
    return PS_DNN_INTERNAL_ERROR; /* never what is merely not supported, which is done without */
}

static size_t bytes_of(int type)
{
    switch (type) {
    case PS_DNN_TYPE_BOOLEAN: return sizeof(bool);
    case PS_DNN_TYPE_INT64: return sizeof(int64_t);
    case PS_DNN_TYPE_HANDLE:
    case PS_DNN_TYPE_POINTER:
    case PS_DNN_TYPE_DESCRIPTOR: return sizeof(void *);
    default: return sizeof(int32_t);
    }
}

static const attribute *find(const descriptor *d, int which)
{
    for (int i = 0; i < d->n_attributes; i++)
        if (d->attributes[i].which == which) return &d->attributes[i];
    return NULL;
}

static int64_t number(const descriptor *d, int which)
{
    const attribute *a = find(d, which);
    return a == NULL ? 0 : ((const int64_t *)a->values)[0];
}

static int enumerator(const descriptor *d, int which)
{
    const attribute *a = find(d, which);
    return a == NULL ? -1 : ((const int32_t *)a->values)[0];
}

static bool is_set(const descriptor *d, int which)
{
    const attribute *a = find(d, which);
    return a != NULL && ((const bool *)a->values)[0];
}

static const descriptor *named(const descriptor *d, int which)
{
    const attribute *a = find(d, which);
    return a == NULL ? NULL : ((const descriptor *const *)a->values)[0];
}

static size_t dnn_version(void)
{
    return 92000;
}

static const char *dnn_status_name(ps_dnn_status s)
{
    return s == PS_DNN_EXECUTION_FAILED ? "CUDNN_STATUS_EXECUTION_FAILED" : "CUDNN_STATUS";
}

static void dnn_last_error(char *out, size_t bytes)
{
    snprintf(out, bytes, "as the test wants\nand more");
}

static ps_dnn_status dnn_create(ps_dnn_handle *out)
{
    ENTER_DNN();
    ps_dnn_handle h = calloc(1, sizeof *h);
    if (fake_module_load(&h->module, "cudnn") != PS_CU_SUCCESS) { /* without a context, too */
        free(h);
        return PS_DNN_NOT_INITIALIZED;
    }
    if (fake_function_get(&h->function, h->module, "cudnn") != PS_CU_SUCCESS) {
        (void)fake_module_unload(h->module);
        free(h);
        return PS_DNN_NOT_INITIALIZED;
    }
    dnn.n_handles++;
    *out = h;
    return PS_DNN_SUCCESS;
}

static ps_dnn_status dnn_destroy(ps_dnn_handle h)
{
    ENTER_DNN();
    (void)fake_module_unload(h->module);
    free(h);
    dnn.n_handles--;
    return PS_DNN_SUCCESS;
}

static ps_dnn_status dnn_set_stream(ps_dnn_handle h, ps_cu_stream stream)
{
    ENTER_DNN();
    h->stream = stream;
    return PS_DNN_SUCCESS;
}

static ps_dnn_status dnn_descriptor_create(int kind, ps_dnn_descriptor *out)
{
    ENTER_DNN();
    descriptor *d = calloc(1, sizeof *d);
    d->kind = kind;
    dnn.n_descriptors++;
    *out = d;
    return PS_DNN_SUCCESS;
}

static ps_dnn_status dnn_descriptor_destroy(ps_dnn_descriptor p)
{
    ENTER_DNN();
    descriptor *d = p;
    for (int i = 0; i < d->n_attributes; i++) free(d->attributes[i].values);
    free(d);
    dnn.n_descriptors--;
    return PS_DNN_SUCCESS;
}

static ps_dnn_status dnn_set(ps_dnn_descriptor p, int which, int type, int64_t n, const void *values)
{
    ENTER_DNN();
    descriptor *d = p;
    size_t k = 0;
    while (k < PS_ARRAY_LEN(known) && (known[k].kind != d->kind || known[k].which != which)) k++;
    if (k == PS_ARRAY_LEN(known)) return refuse("descriptor %d has no attribute %d", d->kind, which);
    if (known[k].type != type || (known[k].n != 0 && known[k].n != n) || n < 1)
        return refuse("attribute %d is not %lld of type %d", which, (long long)n, type);
    if (d->is_finished || find(d, which) != NULL) return refuse("attribute %d is set twice, or too late", which);
    if (type == PS_DNN_TYPE_DESCRIPTOR)
        for (int64_t i = 0; i < n; i++)
            if (!((const descriptor *const *)values)[i]->is_finished)
                return refuse("attribute %d is a descriptor that is not finished", which);
    attribute *a = &d->attributes[d->n_attributes++];
    *a = (attribute){which, n, malloc((size_t)n * bytes_of(type))};
    memcpy(a->values, values, (size_t)n * bytes_of(type));
    return PS_DNN_SUCCESS;
}

/* ---- programs ---- */

typedef struct tensor {
    int64_t size[4], stride[4], id, align;
    int type;
    bool is_virtual, is_by_value;
} tensor;

typedef struct operation {
    int kind, mode;
    int64_t axis;
    tensor x, b, t, y; /* of a product a, b, and c as y */
    bool has_b, has_t;
} operation;

struct program {
    operation operations[OPERATIONS];
    int64_t n_operations, workspace_bytes;
    bool is_wrong;
    program *next;
};

static tensor tensor_of(const descriptor *d)
{
    tensor t = {.id = number(d, PS_DNN_TENSOR_ID),
                .align = number(d, PS_DNN_TENSOR_ALIGNMENT),
                .type = enumerator(d, PS_DNN_TENSOR_TYPE),
                .is_virtual = is_set(d, PS_DNN_TENSOR_IS_VIRTUAL),
                .is_by_value = is_set(d, PS_DNN_TENSOR_IS_BY_VALUE)};
    memcpy(t.size, find(d, PS_DNN_TENSOR_SIZES)->values, sizeof t.size);
    memcpy(t.stride, find(d, PS_DNN_TENSOR_STRIDES)->values, sizeof t.stride);
    return t;
}

static operation operation_of(const descriptor *d)
{
    operation o = {.kind = d->kind};
    if (d->kind == PS_DNN_POINTWISE_OPERATION) {
        const descriptor *of = named(d, PS_DNN_POINTWISE_OF), *b = named(d, PS_DNN_POINTWISE_B);
        const descriptor *t = named(d, PS_DNN_POINTWISE_T);
        o.mode = enumerator(of, PS_DNN_POINTWISE_MODE);
        o.axis = number(of, PS_DNN_POINTWISE_AXIS);
        o.x = tensor_of(named(d, PS_DNN_POINTWISE_X));
        o.y = tensor_of(named(d, PS_DNN_POINTWISE_Y));
        o.has_b = b != NULL, o.has_t = t != NULL;
        if (b != NULL) o.b = tensor_of(b);
        if (t != NULL) o.t = tensor_of(t);
    } else if (d->kind == PS_DNN_MATMUL_OPERATION) {
        o.x = tensor_of(named(d, PS_DNN_MATMUL_A));
        o.b = tensor_of(named(d, PS_DNN_MATMUL_B));
        o.y = tensor_of(named(d, PS_DNN_MATMUL_C));
        o.has_b = true;
    } else if (d->kind == PS_DNN_REDUCTION_OPERATION) {
        o.mode = enumerator(named(d, PS_DNN_REDUCTION_OF), PS_DNN_REDUCTION_OPERATOR);
        o.x = tensor_of(named(d, PS_DNN_REDUCTION_X));
        o.y = tensor_of(named(d, PS_DNN_REDUCTION_Y));
    } else {
        o.x = tensor_of(named(d, PS_DNN_RESHAPE_X));
        o.y = tensor_of(named(d, PS_DNN_RESHAPE_Y));
    }
    return o;
}

/* Of a matrix product, whose first has as many heads as there are. */
static bool fits_gemm(const operation *o)
{
    return o->x.size[2] == o->y.size[2] && o->b.size[3] == o->y.size[3] && o->x.size[3] == o->b.size[2] &&
           o->x.size[0] == o->y.size[0] && o->b.size[0] == o->y.size[0] && o->x.size[1] == o->y.size[1] &&
           o->y.size[1] % o->b.size[1] == 0;
}

static bool reads(const operation *o, int64_t id)
{
    return o->x.id == id || (o->has_b && o->b.id == id) || (o->has_t && o->t.id == id);
}

static ps_dnn_status check_program(const program *p)
{
    bool written[NAMED] = {false};
    for (int64_t i = 0; i < p->n_operations; i++) {
        const operation *o = &p->operations[i];
        const tensor *const in[] = {&o->x, o->has_b ? &o->b : NULL, o->has_t ? &o->t : NULL};
        for (size_t k = 0; k < PS_ARRAY_LEN(in); k++)
            if (in[k] != NULL && in[k]->is_virtual && !written[in[k]->id])
                return refuse("operation %d reads what no earlier one has made", (int)i);
        if (o->y.id <= 0 || o->y.id >= NAMED || written[o->y.id] || reads(o, o->y.id))
            return refuse("operation %d makes tensor %d again", (int)i, (int)o->y.id);
        written[o->y.id] = true;
        if (o->kind == PS_DNN_MATMUL_OPERATION && !fits_gemm(o)) return refuse("sizes of product %d", (int)i);
    }
    return PS_DNN_SUCCESS;
}

static ps_dnn_status make_plan(descriptor *d)
{
    const descriptor *config = named(d, PS_DNN_PLAN_CONFIG);
    const attribute *a = find(config->of, PS_DNN_GRAPH_OPERATIONS);
    int n_gemms = 0;
    if (find(d, PS_DNN_PLAN_HANDLE) == NULL) return refuse("a plan for no GPU");
    program *p = calloc(1, sizeof *p);
    p->next = dnn.programs;
    dnn.programs = p;
    p->is_wrong = config->engine == ENGINE_WRONG;
    for (p->n_operations = 0; p->n_operations < a->n; p->n_operations++) {
        operation *o = &p->operations[p->n_operations];
        *o = operation_of(((const descriptor *const *)a->values)[p->n_operations]);
        if (o->kind != PS_DNN_MATMUL_OPERATION) continue;
        if (n_gemms++ == 0) {
            if (o->x.size[3] > HEAD_MAX) return PS_DNN_NOT_SUPPORTED;
            p->workspace_bytes = 2 * o->y.size[0] * o->y.size[1] * o->y.size[2] * o->y.size[3];
        }
    }
    if (n_gemms != 5) p->workspace_bytes = 0;
    d->program = p;
    return check_program(p);
}

static ps_dnn_status dnn_finalize(ps_dnn_descriptor p)
{
    ENTER_DNN();
    descriptor *d = p;
    if (d->is_finished) return refuse("descriptor %d is finished already", d->kind);
    d->is_finished = true;
    if (d->kind == PS_DNN_GRAPH && find(d, PS_DNN_GRAPH_OPERATIONS)->n > OPERATIONS)
        return refuse("too many operations");
    if (d->kind == PS_DNN_HEURISTIC && enumerator(d, PS_DNN_HEURISTIC_MODE) != PS_DNN_HEURISTIC_A)
        return refuse("the mode of a heuristic");
    return d->kind == PS_DNN_PLAN ? make_plan(d) : PS_DNN_SUCCESS;
}

static ps_dnn_status get_configs(const descriptor *heuristic, int64_t n_wanted, int64_t *n_out, void *out)
{
    *n_out = ENGINES; /* as the library: how many there are */
    for (int i = 0; i < n_wanted && i < ENGINES; i++) {
        descriptor *config = ((descriptor *const *)out)[i];
        if (config->kind != PS_DNN_ENGINE_CONFIG) return refuse("the results of a heuristic are configurations");
        config->of = named(heuristic, PS_DNN_HEURISTIC_GRAPH);
        config->engine = i;
        config->is_finished = true;
    }
    return PS_DNN_SUCCESS;
}

static ps_dnn_status dnn_get(ps_dnn_descriptor p, int which, int type, int64_t n_wanted, int64_t *n_out, void *out)
{
    ENTER_DNN();
    const descriptor *d = p;
    *n_out = 1;
    if (!d->is_finished) return refuse("attribute %d of what is not finished", which);
    if (d->kind == PS_DNN_HEURISTIC && which == PS_DNN_HEURISTIC_RESULTS && type == PS_DNN_TYPE_DESCRIPTOR)
        return get_configs(d, n_wanted, n_out, out);
    if (d->kind == PS_DNN_ENGINE_CONFIG && which == PS_DNN_CONFIG_ENGINE && type == PS_DNN_TYPE_DESCRIPTOR) {
        descriptor *engine = *(descriptor **)out;
        if (engine->kind != PS_DNN_ENGINE) return refuse("an engine is wanted");
        engine->engine = d->engine;
        engine->is_finished = true;
        return PS_DNN_SUCCESS;
    }
    if (d->kind == PS_DNN_ENGINE && which == PS_DNN_ENGINE_NOTES && type == PS_DNN_TYPE_NUMERICAL_NOTE) {
        const int32_t notes[] = {0, PS_DNN_NOTE_NONDETERMINISTIC};
        *n_out = d->engine == ENGINE_WRONG ? 2 : 1;
        memcpy(out, notes, (size_t)(*n_out < n_wanted ? *n_out : n_wanted) * sizeof *notes);
        return PS_DNN_SUCCESS;
    }
    if (d->kind == PS_DNN_PLAN && which == PS_DNN_PLAN_WORKSPACE_BYTES && type == PS_DNN_TYPE_INT64) {
        memcpy(out, &d->program->workspace_bytes, sizeof(int64_t));
        return PS_DNN_SUCCESS;
    }
    return refuse("descriptor %d has no attribute %d to tell", d->kind, which);
}

/* ---- carrying out ---- */

typedef struct execution {
    const program *program;
    int64_t n, ids[ARRAYS];
    void *pointers[ARRAYS];
    float values[ARRAYS]; /* of what is given by value, as it was then */
    void *workspace;
} execution;

static int place_of(const execution *e, int64_t id)
{
    for (int i = 0; i < e->n; i++)
        if (e->ids[i] == id) return i;
    return -1;
}

/* Where tensors are while a program runs: what is virtual in floats of its own. */
typedef struct memory {
    const execution *e;
    float *virtuals[NAMED];
} memory;

static int64_t span_of(const tensor *t)
{
    int64_t last = 0;
    for (int i = 0; i < 4; i++) last += (t->size[i] - 1) * t->stride[i];
    return last + 1;
}

static ps_dtype dtype_of(int type)
{
    return type == PS_DNN_BF16 ? PS_DTYPE_BF16 : type == PS_DNN_F16 ? PS_DTYPE_F16 : PS_DTYPE_F32;
}

static float load(const memory *m, const tensor *t, int64_t at)
{
    if (t->is_virtual) return m->virtuals[t->id][at];
    const int i = place_of(m->e, t->id);
    return t->is_by_value ? m->e->values[i] : ps_dtype_load(dtype_of(t->type), m->e->pointers[i], at);
}

static void store(const memory *m, const tensor *t, int64_t at, float value)
{
    if (t->is_virtual) {
        uint16_t rounded[2]; /* through the type */
        _Static_assert(sizeof rounded == sizeof(float), "any element");
        ps_dtype_store(dtype_of(t->type), rounded, 0, value);
        m->virtuals[t->id][at] = ps_dtype_load(dtype_of(t->type), rounded, 0);
    } else {
        ps_dtype_store(dtype_of(t->type), m->e->pointers[place_of(m->e, t->id)], at, value);
    }
}

/* Element i of something larger, of which t may have less: one for all, or one for several heads. */
static int64_t at(const tensor *t, const int64_t of[4], const int64_t i[4])
{
    int64_t offset = 0;
    for (int k = 0; k < 4; k++) offset += i[k] / (of[k] / t->size[k]) * t->stride[k];
    return offset;
}

static bool next(const int64_t size[4], int64_t i[4])
{
    for (int k = 3; k >= 0; k--) {
        if (++i[k] < size[k]) return true;
        i[k] = 0;
    }
    return false;
}

static float pointwise(const operation *o, float x, float b, float t, const int64_t i[4])
{
    switch (o->mode) {
    case PS_DNN_ADD: return x + b;
    case PS_DNN_MUL: return x * b;
    case PS_DNN_SUB: return x - b;
    case PS_DNN_DIV: return x / b;
    case PS_DNN_EXP: return expf(x);
    case PS_DNN_LOG: return logf(x);
    case PS_DNN_GREATER: return x > b;
    case PS_DNN_GREATER_OR_EQUAL: return x >= b;
    case PS_DNN_INDEX: return (float)i[o->axis];
    case PS_DNN_SELECT: return t != 0.0f ? x : b;
    default: return NAN;
    }
}

static void map(const memory *m, const operation *o)
{
    int64_t i[4] = {0};
    const int64_t *n = o->y.size;
    do {
        const float x = o->mode == PS_DNN_INDEX ? 0.0f : load(m, &o->x, at(&o->x, n, i));
        const float b = o->has_b ? load(m, &o->b, at(&o->b, n, i)) : 0.0f;
        const float t = o->has_t ? load(m, &o->t, at(&o->t, n, i)) : 0.0f;
        store(m, &o->y, at(&o->y, n, i), pointwise(o, x, b, t, i));
    } while (next(n, i));
}

static void multiply(const memory *m, const operation *o)
{
    int64_t i[4] = {0};
    const int64_t inner = o->x.size[3];
    do {
        double sum = 0.0;
        const int64_t head = i[1] / (o->y.size[1] / o->b.size[1]);
        for (int64_t k = 0; k < inner; k++)
            sum += (double)load(m, &o->x,
                                i[0] * o->x.stride[0] + i[1] * o->x.stride[1] + i[2] * o->x.stride[2] +
                                    k * o->x.stride[3]) *
                   (double)load(m, &o->b,
                                i[0] * o->b.stride[0] + head * o->b.stride[1] + k * o->b.stride[2] +
                                    i[3] * o->b.stride[3]);
        store(m, &o->y, at(&o->y, o->y.size, i), (float)sum);
    } while (next(o->y.size, i));
}

static void reduce(const memory *m, const operation *o)
{
    int64_t i[4] = {0};
    double *sums = malloc((size_t)span_of(&o->y) * sizeof *sums);
    for (int64_t k = 0; k < span_of(&o->y); k++) sums[k] = o->mode == PS_DNN_MAX ? -INFINITY : 0.0;
    do {
        double *sum = &sums[at(&o->y, o->x.size, i)];
        const double x = (double)load(m, &o->x, at(&o->x, o->x.size, i));
        *sum = o->mode == PS_DNN_MAX ? fmax(*sum, x) : *sum + x;
    } while (next(o->x.size, i));
    memset(i, 0, sizeof i);
    do store(m, &o->y, at(&o->y, o->y.size, i), (float)sums[at(&o->y, o->y.size, i)]);
    while (next(o->y.size, i));
    free(sums);
}

/* The same memory by other strides. */
static void reshape(const memory *m, const operation *o)
{
    int64_t i[4] = {0};
    do {
        const int64_t offset = at(&o->y, o->y.size, i);
        store(m, &o->y, offset, load(m, &o->x, offset));
    } while (next(o->y.size, i));
}

static void run(void *user, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes, const void *args)
{
    const execution *e = args;
    const program *p = e->program;
    memory m = {.e = e};
    (void)user, (void)grid, (void)block, (void)shared_bytes;
    if (p->workspace_bytes > 0) memset(e->workspace, 0xC3, (size_t)p->workspace_bytes); /* it is the library's */
    for (int64_t i = 0; i < p->n_operations; i++) {
        const operation *o = &p->operations[i];
        if (o->y.is_virtual) m.virtuals[o->y.id] = calloc((size_t)span_of(&o->y), sizeof(float));
        switch (o->kind) {
        case PS_DNN_POINTWISE_OPERATION: map(&m, o); break;
        case PS_DNN_MATMUL_OPERATION: multiply(&m, o); break;
        case PS_DNN_REDUCTION_OPERATION: reduce(&m, o); break;
        default: reshape(&m, o);
        }
        if (p->is_wrong && !o->y.is_virtual) store(&m, &o->y, 0, NAN);
    }
    for (int i = 0; i < NAMED; i++) free(m.virtuals[i]);
}

static ps_dnn_status take_arrays(const program *p, execution *e)
{
    for (int64_t i = 0; i < p->n_operations; i++) {
        const operation *o = &p->operations[i];
        const tensor *const all[] = {&o->x, o->has_b ? &o->b : NULL, o->has_t ? &o->t : NULL, &o->y};
        for (size_t k = 0; k < PS_ARRAY_LEN(all); k++) {
            if (all[k] == NULL || all[k]->is_virtual) continue;
            const int place = place_of(e, all[k]->id);
            if (place < 0 || e->pointers[place] == NULL) return refuse("there is no array %d", (int)all[k]->id);
            if (all[k]->is_by_value)
                memcpy(&e->values[place], e->pointers[place], sizeof(float)); /* the host's, and of now */
            else if ((uintptr_t)e->pointers[place] % (uintptr_t)all[k]->align != 0)
                return refuse("array %d is not aligned to %d", (int)all[k]->id, (int)all[k]->align);
        }
    }
    return PS_DNN_SUCCESS;
}

static ps_dnn_status dnn_execute(ps_dnn_handle h, ps_dnn_descriptor plan, ps_dnn_descriptor pack)
{
    ENTER_DNN();
    const descriptor *d = pack;
    const program *p = ((const descriptor *)plan)->program;
    const attribute *ids = find(d, PS_DNN_PACK_IDS), *pointers = find(d, PS_DNN_PACK_POINTERS);
    const attribute *workspace = find(d, PS_DNN_PACK_WORKSPACE);
    if (!d->is_finished || ids->n != pointers->n || ids->n > ARRAYS) return refuse("a variant pack");
    execution e = {.program = p, .n = ids->n};
    memcpy(e.ids, ids->values, (size_t)ids->n * sizeof *e.ids);
    memcpy(e.pointers, pointers->values, (size_t)ids->n * sizeof *e.pointers);
    memcpy(&e.workspace, workspace->values, sizeof e.workspace);
    if ((uintptr_t)e.workspace % 256 != 0) return refuse("the workspace");
    const ps_dnn_status s = take_arrays(p, &e);
    if (s != PS_DNN_SUCCESS) return s;
    const ps_cu_result r = fake_launch(h->function, 1, 1, 1, 32, 1, 1, 0, h->stream, (void *[]){&e}, NULL);
    return r == PS_CU_SUCCESS ? PS_DNN_SUCCESS : PS_DNN_EXECUTION_FAILED;
}

/* ---- for tests ---- */

const ps_cudnn fake_cudnn = {
#define XX(type, name, symbol, params) .name = dnn_##name,
#include "device/cuda/cudnn.def"
#undef XX
};

void fake_cudnn_begin(void)
{
    memset(&dnn, 0, sizeof dnn);
#define XX(type, name, symbol, params) dnn.names[dnn.n_names++] = #name;
#include "device/cuda/cudnn.def"
#undef XX
    for (int i = 0; i < FUNCTIONS; i++) dnn.fail_in[i] = -1;
    fake_kernel_add("cudnn", run, NULL, sizeof(execution));
}

bool fake_cudnn_end(void)
{
    const bool is_clean = dnn.n_handles == 0 && dnn.n_descriptors == 0;
    if (!is_clean)
        fprintf(stderr, "fake_cudnn: %d handles, %d descriptors are left\n", dnn.n_handles, dnn.n_descriptors);
    for (program *p = dnn.programs, *n; p != NULL; p = n) {
        n = p->next;
        free(p);
    }
    dnn.programs = NULL;
    return is_clean;
}

void fake_cudnn_fail(const char *function, int nth, ps_dnn_status s)
{
    dnn.fail_in[number_of(function)] = nth;
    dnn.fail_with[number_of(function)] = s;
}

int fake_cudnn_calls(const char *function)
{
    return dnn.calls[number_of(function)];
}
