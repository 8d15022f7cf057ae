/* optimizer_import.c - states and count of updates from a file of torch.save(optimizer.state_dict()).
 *
 * All parameters are matched and all errors detected before anything is written. With several ranks all call, and each
 * reads what it owns. */
#include "api/engine/optimizer_import.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/engine/engine.h"
#include "base/base.h"
#include "base/mem.h"
#include "chunk/comm/agree.h"
#include "train/optim/grad_clip.h"
#include "train/state/values.h"
#include "weights/torch_optimizer.h"
#include "weights/weight_convert.h"
#include "weights/weight_names.h"

#define PIECE_ELEMENTS 8192

typedef struct importer {
    ps_engine *e;
    const char *path;
    ps_torch_optimizer *file;
    int32_t n;        /* parameters in the file: all of the model, or the trained ones */
    int32_t *tensors; /* [n] tensors of the engine, by index in the file */
    int64_t n_updates;
} importer;

/* ---- matching parameters ---- */

ps_status ps_optimizer_numbering(const ps_engine *e, ps_param_numbering numbering, int32_t *tensors)
{
    const int32_t n = e->program->n_params;
    const ps_param *params = e->program->params;
    const char **names = NULL;
    int32_t *order = NULL, n_numbered = 0;
    ps_status st = PS_OK;
    PS_TRY_GOTO(ps_mem_alloc((size_t)n, sizeof *names, (void *)&names));
    PS_TRY_GOTO(ps_mem_alloc((size_t)n, sizeof *order, &order));
    for (int32_t i = 0; i < n; i++) names[i] = params[i].name;
    ps_weight_parameter_order(names, n, order);
    for (int pass = 0; pass < 2; pass++)
        for (int32_t i = 0; i < n; i++) {
            const bool decays = ps_weight_decay_applies(names[order[i]], params[order[i]].n_dims);
            const bool is_first = numbering == PS_NUMBERED_THROUGH || decays == (numbering == PS_NUMBERED_DECAYING);
            if (is_first == (pass == 0)) tensors[n_numbered++] = order[i];
        }
out:
    ps_mem_free(order);
    ps_mem_free(names);
    return st;
}

/* "[16, 48]" */
static const char *shape_text(int n_dims, const int64_t *shape, char text[128])
{
    size_t n = 0;
    text[n++] = '[';
    for (int d = 0; d < n_dims && n < 100; d++)
        n += (size_t)snprintf(text + n, 128 - n, "%s%lld", d > 0 ? ", " : "", (long long)shape[d]);
    snprintf(text + n, 128 - n, "]");
    return text;
}

static bool is_step(const ps_torch_state *s)
{
    return strcmp(s->tensor.name, "step") == 0;
}

static bool has_shape(const ps_torch_state *s, const ps_param *p)
{
    const ps_safetensor *t = &s->tensor;
    return t->n_dims == p->n_dims && t->shape[0] == p->shape[0] && (p->n_dims == 1 || t->shape[1] == p->shape[1]);
}

/* Is the tensor one of those that the file has numbers for? */
static bool is_numbered(const importer *x, int32_t tensor)
{
    return x->n == x->e->program->n_params || !x->e->program->params[tensor].is_frozen;
}

/* Entries of frozen parameters, which have no states here, are ignored. */
static bool is_trained(const importer *x, int32_t i)
{
    return !x->e->program->params[x->tensors[i]].is_frozen;
}

/* A state of number i whose shape is not that of its tensor; NULL: none. */
static const ps_torch_state *find_misshapen(const importer *x, int32_t i)
{
    const ps_torch_param *p = ps_torch_optimizer_get(x->file, i);
    for (int k = 0; k < p->n_states && is_trained(x, i); k++)
        if (!is_step(&p->states[k]) && !has_shape(&p->states[k], &x->e->program->params[x->tensors[i]]))
            return &p->states[k];
    return NULL;
}

static bool all_fit(const importer *x)
{
    for (int32_t i = 0; i < x->n; i++)
        if (find_misshapen(x, i) != NULL) return false;
    return true;
}

#define BY_NAME                                                                                                        \
    "an optimizer made of model.named_parameters() (PyTorch 2.6 or later) keeps their names as \"param_names\", by "   \
    "which they are found in any order"

static ps_status check_shapes(const importer *x, const char *remedy)
{
    for (int32_t i = 0; i < x->n; i++) {
        const ps_torch_state *s = find_misshapen(x, i);
        const ps_param *p = &x->e->program->params[x->tensors[i]];
        char a[128], b[128];
        if (s == NULL) continue;
        return PS_FAIL(
            PS_EFORMAT, "%s: %s of parameter %lld is %s, but the model's %.128s, which should be this one, is %s: %s",
            x->path, s->tensor.name, (long long)ps_torch_optimizer_get(x->file, i)->number,
            shape_text(s->tensor.n_dims, s->tensor.shape, a), p->name, shape_text(p->n_dims, p->shape, b), remedy);
    }
    return PS_OK;
}

/* The optimizer was given all parameters, or the trained ones. */
static ps_status number_tensors(importer *x, ps_param_numbering numbering)
{
    const int32_t n = x->e->program->n_params;
    int32_t *all = NULL, n_numbered = 0;
    PS_TRY(ps_mem_alloc((size_t)n, sizeof *all, &all));
    const ps_status st = ps_optimizer_numbering(x->e, numbering, all);
    for (int32_t i = 0; i < n && st == PS_OK; i++)
        if (is_numbered(x, all[i])) x->tensors[n_numbered++] = all[i];
    ps_mem_free(all);
    return st;
}

/* At most one of these orders fits a file, unless two are the same: the positions of vectors distinguish them. */
static ps_status find_numbering(importer *x)
{
    const int n_groups = ps_torch_optimizer_n_groups(x->file);
    if (n_groups > 2)
        return PS_FAIL(PS_EFORMAT,
                       "%s: %d groups of parameters without names, so which is which is not known; " BY_NAME, x->path,
                       n_groups);
    for (int k = n_groups == 2 ? PS_NUMBERING_COUNT - 1 : PS_NUMBERED_THROUGH; k >= 0; k--) {
        PS_TRY(number_tensors(x, (ps_param_numbering)k));
        if (all_fit(x)) return PS_OK;
    }
    return check_shapes(x, "parameters are numbered as model.parameters() gives them, all in one group, or those that "
                           "decay and those that do not in two; " BY_NAME);
}

/* Converts tensors from indices among the wanted ones to indices in the file. */
static void renumber(importer *x, ps_weight_match *m)
{
    for (int32_t i = 0; i < x->n; i++) m->of_have[i] = x->tensors[m->of_have[i]];
    for (int32_t i = 0; i < x->n; i++) x->tensors[i] = m->of_have[i];
}

static ps_status match_names(importer *x, const char **have, const char **want)
{
    const ps_program *program = x->e->program;
    ps_weight_match m;
    int32_t n_wanted = 0;
    for (int32_t t = 0; t < program->n_params; t++)
        if (is_numbered(x, t)) x->tensors[n_wanted++] = t;
    for (int32_t i = 0; i < x->n; i++) {
        have[i] = ps_torch_optimizer_get(x->file, i)->name;
        want[i] = program->params[x->tensors[i]].name;
        if (have[i] == NULL)
            return PS_FAIL(PS_EFORMAT, "%s: one group has \"param_names\", and another has none", x->path);
    }
    ps_status st = ps_weight_match_init(&m, x->path, have, x->n, want, x->n, NULL, false);
    for (int32_t i = 0; i < x->n && st == PS_OK; i++)
        if (m.of_want[i] < 0) st = PS_FAIL(PS_EFORMAT, "%s: has no parameter %.128s", x->path, want[i]);
    for (int32_t i = 0; i < x->n && st == PS_OK; i++)
        if (m.of_have[i] < 0) st = PS_FAIL(PS_EFORMAT, "%s: %.128s is no parameter of the model", x->path, have[i]);
    if (st == PS_OK) renumber(x, &m);
    ps_weight_match_deinit(&m);
    return st;
}

static ps_status find_names(importer *x)
{
    const char **names = NULL;
    PS_TRY(ps_mem_alloc(2 * (size_t)x->n, sizeof *names, (void *)&names));
    const ps_status st = match_names(x, names, names + x->n);
    ps_mem_free(names);
    PS_TRY(st);
    return check_shapes(x, "of another model");
}

static ps_status find_tensors(importer *x)
{
    const ps_program *program = x->e->program;
    bool has_names = false;
    int32_t n_trained = 0;
    for (int32_t t = 0; t < program->n_params; t++) n_trained += !program->params[t].is_frozen;
    x->n = ps_torch_optimizer_count(x->file);
    if (x->n != program->n_params && x->n != n_trained)
        return PS_FAIL(PS_EFORMAT,
                       "%s: an optimizer of %d parameters, and the model has %d, of which %d are trained: of another "
                       "model, or one with other parameters frozen (train.freeze)",
                       x->path, x->n, program->n_params, n_trained);
    for (int32_t i = 0; i < x->n; i++) has_names = has_names || ps_torch_optimizer_get(x->file, i)->name != NULL;
    PS_TRY(ps_mem_alloc((size_t)x->n, sizeof *x->tensors, &x->tensors));
    return has_names ? find_names(x) : find_numbering(x);
}

/* ---- content ---- */

static const char *name_of(const importer *x, int32_t i)
{
    return x->e->program->params[x->tensors[i]].name;
}

/* Elements [first, first + n) of a state as floats. */
static ps_status read_values(const importer *x, const ps_torch_state *s, int64_t first, int64_t n, float *out)
{
    const ps_safetensors_dtype t = s->tensor.dtype;
    const int64_t item = ps_safetensors_dtype_bytes(t);
    double raw[PIECE_ELEMENTS];
    PS_TRY(ps_torch_optimizer_read(x->file, s, first * item, t == PS_SAFETENSORS_F32 ? (void *)out : raw, n * item));
    if (t == PS_SAFETENSORS_F64) ps_weight_f64_to_f32(raw, out, n);
    for (int64_t i = 0; i < n && item == 2; i++) {
        const uint16_t half = ((const uint16_t *)(const void *)raw)[i];
        out[i] = t == PS_SAFETENSORS_BF16 ? ps_bf16_to_f32(half) : ps_f16_to_f32(half);
    }
    return PS_OK;
}

/* As torch stores it: an integer, or a tensor of one element. -1: none. */
static ps_status read_step(const importer *x, int32_t i, int64_t *out)
{
    const ps_torch_param *p = ps_torch_optimizer_get(x->file, i);
    float step = -1;
    *out = p->step;
    for (int k = 0; k < p->n_states; k++) {
        const ps_torch_state *s = &p->states[k];
        if (!is_step(s)) continue;
        const bool is_one =
            ps_weight_is_float(s->tensor.dtype) && s->tensor.n_bytes == ps_safetensors_dtype_bytes(s->tensor.dtype);
        if (is_one) PS_TRY(read_values(x, s, 0, 1, &step));
        if (!is_one || !(step >= 0 && step < (float)PS_UPDATES_MAX) || step != truncf(step))
            return PS_FAIL(PS_EFORMAT, "%s: step of %.128s is no count of updates", x->path, name_of(x, i));
        *out = (int64_t)step;
    }
    if (*out >= -1 && *out < PS_UPDATES_MAX) return PS_OK;
    return PS_FAIL(PS_EFORMAT, "%s: step of %.128s is %lld", x->path, name_of(x, i), (long long)*out);
}

static const ps_torch_state *find_state(const ps_torch_param *p, const char *name)
{
    for (int k = 0; k < p->n_states; k++)
        if (strcmp(p->states[k].tensor.name, name) == 0) return &p->states[k];
    return NULL;
}

static ps_status another_optimizer(const importer *x, int32_t i, const char *state, const char *why)
{
    const ps_optimizer_setup *o = &x->e->settings.optimizer;
    char kept[PS_OPTIMIZER_KEPT_TEXT_MAX];
    return PS_FAIL(PS_EINVAL,
                   "%s: %s of %.128s %s: of another optimizer, or one with other options, than optimizer.type = %s "
                   "here, which keeps %s",
                   x->path, state, name_of(x, i), why, o->optimizer->name, ps_optimizer_kept_text(o, kept));
}

/* Exactly the states of the optimizer, all of them numbers. */
static ps_status check_states(const importer *x, int32_t i)
{
    const ps_torch_param *p = ps_torch_optimizer_get(x->file, i);
    for (int k = 0; k < p->n_states; k++) {
        const ps_safetensor *t = &p->states[k].tensor;
        if (is_step(&p->states[k])) continue;
        if (ps_optimizer_find_state(&x->e->settings.optimizer, t->name) < 0)
            return another_optimizer(x, i, t->name, "is no state of this one");
        if (!ps_weight_is_float(t->dtype))
            return PS_FAIL(PS_EFORMAT, "%s: %s of %.128s is %s, expected F64, F32, BF16 or F16", x->path, t->name,
                           name_of(x, i), ps_safetensors_dtype_name(t->dtype));
    }
    for (int32_t k = 0; ps_engine_get_state_name(x->e, k) != NULL; k++)
        if (find_state(p, ps_engine_get_state_name(x->e, k)) == NULL)
            return another_optimizer(x, i, ps_engine_get_state_name(x->e, k), "is missing");
    return PS_OK;
}

/* No state at all: saved before its first step. */
static bool is_new(const importer *x)
{
    int64_t n = 0;
    for (int32_t i = 0; i < x->n; i++)
        if (is_trained(x, i)) n += ps_torch_optimizer_get(x->file, i)->n_states;
    return n == 0;
}

/* One count for all, as in the optimizer here. SGD and Lion store none: if a momentum exists, there was an update. */
static ps_status find_count(importer *x)
{
    int64_t first = -1;
    int32_t first_trained = -1;
    for (int32_t i = 0; i < x->n; i++) {
        int64_t step;
        if (!is_trained(x, i)) continue;
        PS_TRY(check_states(x, i));
        PS_TRY(read_step(x, i, &step));
        if (first_trained < 0) first_trained = i, first = step;
        if (step != first)
            return PS_FAIL(
                PS_EFORMAT,
                "%s: step of %.128s is %lld, but of %.128s %lld: parameters that were updated more often than "
                "others are not supported",
                x->path, name_of(x, i), (long long)step, name_of(x, first_trained), (long long)first);
    }
    x->n_updates = first >= 0 ? first : ps_max_i64(1, ps_engine_get_update_count(x->e));
    return PS_OK;
}

static ps_status expect_ready(const ps_engine *e)
{
    if (!e->settings.training)
        return PS_FAIL(PS_ESTATE, "ps_engine_load_optimizer: an inference engine has no optimizer");
    PS_TRY(ps_engine_expect(e, PS_ENGINE_READY, "ps_engine_load_optimizer"));
    if (ps_optimizer_has_whole(&e->settings.optimizer))
        return PS_FAIL(PS_ENOSYS,
                       "ps_engine_load_optimizer (train.init_optimizer) does not read states for optimizer.type = %s: "
                       "with torch.optim they are of two optimizers, Muon and AdamW; write them by "
                       "ps_engine_write_state, or continue from a checkpoint",
                       e->settings.optimizer.optimizer->name);
    if (ps_runner_micro(e->runner) == 0) return PS_OK;
    return PS_FAIL(PS_ESTATE, "ps_engine_load_optimizer: finish the current step first");
}

static ps_status prepare(importer *x)
{
    PS_TRY(expect_ready(x->e));
    PS_TRY(ps_torch_optimizer_open(x->path, &x->file));
    PS_TRY(find_tensors(x));
    return is_new(x) ? PS_OK : find_count(x);
}

/* ---- loading ---- */

/* The part that this rank owns. */
static ps_status put_state(const importer *x, int32_t tensor, ps_list list, const ps_torch_state *s)
{
    const ps_model_state model = ps_engine_model_state(x->e);
    float values[PIECE_ELEMENTS] = {0};
    int64_t first = 0, length;
    for (; ps_values_next_owned(&model, tensor, &first, &length); first += length)
        for (int64_t done = 0; done < length; done += PIECE_ELEMENTS) {
            const int64_t n = ps_min_i64(PIECE_ELEMENTS, length - done);
            if (s != NULL) PS_TRY(read_values(x, s, first + done, n, values));
            PS_TRY(ps_engine_put_values(x->e, list, tensor, first + done, n, values));
        }
    return PS_OK;
}

static ps_status put_all(const importer *x)
{
    /* a checkpoint being saved has the values before */
    PS_TRY(ps_engine_check_device(x->e, ps_runner_finish_snapshot(x->e->runner)));
    for (int32_t i = 0; i < x->n; i++) {
        const ps_torch_param *p = ps_torch_optimizer_get(x->file, i);
        const char *name;
        for (int32_t k = 0; (name = ps_engine_get_state_name(x->e, k)) != NULL && is_trained(x, i); k++)
            PS_TRY(put_state(x, x->tensors[i], PS_LIST_STATES + k, find_state(p, name)));
    }
    return PS_OK;
}

ps_status ps_engine_load_optimizer(ps_engine *e, const char *path)
{
    PS_TRY(PS_NEED("engine path", e, path));
    importer x = {.e = e, .path = path};
    ps_comm *comm = e->settings.ranks.comm;
    ps_status st;
    PS_TRY_GOTO(ps_comm_agree(comm, prepare(&x)));
    PS_TRY_GOTO(ps_comm_agree(comm, put_all(&x)));
    PS_TRY_GOTO(ps_engine_set_update_count(e, x.n_updates));
out:
    ps_torch_optimizer_close(x.file);
    ps_mem_free(x.tensors);
    return st;
}
