#include "weights/weight_names.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/mem.h"
#include "base/name_index.h"
#include "config/model/family.h"

enum { BASE_MAX = 16 }; /* bytes that a base's prefix may add to a name */

static const struct {
    const char *old_end, *end;
} renames[] = {{".gamma", ".weight"}, {".beta", ".bias"}};

/* ---- single names ---- */

/* base.bare, which has room. */
static void join(const char *base, const char *bare, char out[PS_WEIGHT_NAME_MAX])
{
    const int n = snprintf(out, PS_WEIGHT_NAME_MAX, "%s.", base);
    snprintf(out + n, (size_t)(PS_WEIGHT_NAME_MAX - n), "%s", bare);
}

static bool has_prefix(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* The name after "base.", NULL for other names. */
static const char *suffix_after(const char *base, const char *name)
{
    const size_t n = strlen(base);
    return strncmp(name, base, n) == 0 && name[n] == '.' ? name + n + 1 : NULL;
}

/* Without the prefixes of wrapper modules: DistributedDataParallel, torch.compile. */
static const char *unwrapped(const char *name)
{
    static const char *const wrappers[] = {"module", "_orig_mod", "base_model.model"};
    for (size_t i = 0; i < PS_ARRAY_LEN(wrappers);) {
        const char *inner = suffix_after(wrappers[i], name);
        if (inner != NULL) name = inner;
        i = inner != NULL ? 0 : i + 1;
    }
    return name;
}

/* Matching uses names only, not the model, so the base of any family counts. */
static const char *without_base(const char *name)
{
    const ps_family *f;
    for (int i = 0; (f = ps_family_at(i)) != NULL; i++) {
        const char *bare = suffix_after(f->base, name);
        if (bare != NULL) return bare;
    }
    return name;
}

/* Whether the pattern matches a suffix of the name that begins at one of its parts. */
static bool matches_end(const char *name, const char *pattern)
{
    const char *n = name + strlen(name), *p = pattern + strlen(pattern);
    while (p > pattern) {
        if (n == name) return false;
        if (*--p != '#') {
            if (*--n != *p) return false;
            continue;
        }
        const char *const end = n;
        while (n > name && n[-1] >= '0' && n[-1] <= '9') n--;
        if (n == end) return false;
    }
    return n == name || n[-1] == '.';
}

static bool is_buffer_of(const ps_family *f, const char *name)
{
    for (const ps_traits *t = &f->traits; t != NULL; t = t->more)
        for (const char *const *end = t->buffers; end != NULL && *end != NULL; end++)
            if (matches_end(name, *end)) return true;
    return false;
}

bool ps_weight_is_buffer(const char *name)
{
    for (int i = 0; ps_family_at(i) != NULL; i++)
        if (is_buffer_of(ps_family_at(i), name)) return true;
    return false;
}

static bool is_tied_in(const ps_family *f, const char *bare)
{
    for (const ps_traits *t = &f->traits; t != NULL; t = t->more)
        for (const ps_family_tie *tie = t->ties; tie != NULL && tie->name != NULL; tie++)
            if (strcmp(bare, tie->name) == 0 || strcmp(bare, tie->to) == 0) return true;
    return false;
}

bool ps_weight_is_vocabulary(const char *name)
{
    for (int i = 0; ps_family_at(i) != NULL; i++)
        if (is_tied_in(ps_family_at(i), without_base(name))) return true;
    return false;
}

static bool is_head_of(const ps_family *f, const char *bare)
{
    for (const ps_traits *t = &f->traits; t != NULL; t = t->more)
        for (const char *const *head = t->heads; head != NULL && *head != NULL; head++)
            if (has_prefix(bare, without_base(*head))) return true;
    return false;
}

bool ps_weight_is_head(const char *name)
{
    for (int i = 0; ps_family_at(i) != NULL; i++)
        if (is_head_of(ps_family_at(i), without_base(name))) return true;
    return false;
}

/* Replace an old suffix by the one of new files; false when there is no old suffix. */
static bool rename_end(const char *name, char out[PS_WEIGHT_NAME_MAX])
{
    const size_t n = strlen(name);
    for (size_t i = 0; i < PS_ARRAY_LEN(renames); i++) {
        const size_t n_end = strlen(renames[i].old_end);
        if (n < n_end || strcmp(name + n - n_end, renames[i].old_end) != 0) continue;
        snprintf(out, PS_WEIGHT_NAME_MAX, "%.*s%s", (int)(n - n_end), name, renames[i].end);
        return true;
    }
    return false;
}

/* 0: the name itself, 1: without its base, 2 ...: with the base of each family; then the same with a new suffix */
bool ps_weight_name_candidate(const char *name, int i, char out[PS_WEIGHT_NAME_MAX])
{
    const int n_forms = 2 + ps_family_count();
    char renamed[PS_WEIGHT_NAME_MAX];
    name = unwrapped(name);
    if (strlen(name) >= PS_WEIGHT_NAME_MAX - BASE_MAX || i >= 2 * n_forms) return false;
    if (i >= n_forms) {
        if (!rename_end(name, renamed)) return false;
        name = renamed;
        i -= n_forms;
    }
    const char *const bare = without_base(name);
    if (i < 2)
        snprintf(out, PS_WEIGHT_NAME_MAX, "%s", i == 0 ? name : bare);
    else
        join(ps_family_at(i - 2)->base, bare, out);
    return true;
}

/* The i-th tie of a name to another, of any family; NULL: no more. */
static const ps_family_tie *tie_of(const char *name, int i)
{
    for (int k = 0; ps_family_at(k) != NULL; k++)
        for (const ps_traits *t = &ps_family_at(k)->traits; t != NULL; t = t->more)
            for (const ps_family_tie *tie = t->ties; tie != NULL && tie->name != NULL; tie++)
                if (strcmp(tie->name, name) == 0 && i-- == 0) return tie;
    return NULL;
}

const char *ps_weight_tied_name(const char *model_type, const char *name, int i, const char **untied_with)
{
    ps_config_model type;
    const ps_family *f = ps_family_find(model_type, &type);
    for (const ps_traits *t = f != NULL ? &f->traits : NULL; t != NULL; t = t->more)
        for (const ps_family_tie *tie = t->ties; tie != NULL && tie->name != NULL; tie++) {
            if (strcmp(tie->to, without_base(name)) != 0 || i-- > 0) continue;
            *untied_with = tie->untied_with;
            return tie->name;
        }
    return NULL;
}

/* Whether the class has the name without its base's prefix. */
static bool stands_alone(const ps_family *f, const char *name)
{
    for (const ps_traits *t = &f->traits; t != NULL; t = t->more)
        for (const char *const *head = t->heads; head != NULL && *head != NULL; head++)
            if (has_prefix(name, *head)) return true;
    return suffix_after(f->base, name) != NULL ||
           (f->base_of_questions != NULL && suffix_after(f->base_of_questions, name) != NULL);
}

const char *ps_weight_class_name(const char *model_type, const char *name, char out[PS_WEIGHT_NAME_MAX])
{
    ps_config_model type;
    const ps_family *f = ps_family_find(model_type, &type);
    if (f == NULL || stands_alone(f, name) || strlen(name) >= PS_WEIGHT_NAME_MAX - BASE_MAX) return name;
    join(f->base, name, out);
    return out;
}

/* ---- the order of model.parameters() ---- */

/* -1: no family lists it. */
static int parameter_rank(const char *name)
{
    for (int k = 0; ps_family_at(k) != NULL; k++)
        for (const ps_traits *t = &ps_family_at(k)->traits; t != NULL; t = t->more)
            for (int i = 0; t->parameter_order != NULL && t->parameter_order[i] != NULL; i++)
                if (strstr(name, t->parameter_order[i]) != NULL) return i;
    return -1;
}

/* Length of the name up to its block number and the dot after it: "model.layers.0."; 0: in no block. */
static size_t block_bytes(const char *name)
{
    for (const char *dot = strchr(name, '.'); dot != NULL; dot = strchr(dot + 1, '.')) {
        const size_t n = strspn(dot + 1, "0123456789");
        if (n > 0 && dot[1 + n] == '.') return (size_t)(dot + 2 + n - name);
    }
    return 0;
}

static bool is_same_block(const char *a, const char *b)
{
    const size_t n = block_bytes(a);
    return n == block_bytes(b) && strncmp(a, b, n) == 0;
}

void ps_weight_parameter_order(const char *const *names, int32_t n, int32_t *order)
{
    for (int32_t i = 0; i < n; i++) {
        const int rank = parameter_rank(names[i]);
        int32_t at = i; /* after all parameters of its block that precede it */
        for (; at > 0 && is_same_block(names[order[at - 1]], names[i]) && parameter_rank(names[order[at - 1]]) > rank;
             at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

/* ---- all names ---- */

typedef struct matcher {
    ps_weight_match *m;
    const char *path, *const *have, *const *want;
    int n_have, n_want;
    ps_name_index index;  /* of want */
    const bool *may_lack; /* NULL: none */
    bool allow_new_head;
} matcher;

/* The parameter of a name by rules 1 and 2, -1: none. */
static int32_t matcher_find(const matcher *x, const char *name)
{
    char candidate[PS_WEIGHT_NAME_MAX];
    int32_t found = ps_name_index_find(&x->index, name);
    for (int i = 0; found < 0 && ps_weight_name_candidate(name, i, candidate); i++)
        found = ps_name_index_find(&x->index, candidate);
    return found;
}

static int32_t matcher_find_tied(const matcher *x, const char *name, const ps_family_tie **tie)
{
    int32_t found = -1;
    for (int i = 0; found < 0 && (*tie = tie_of(name, i)) != NULL; i++) found = matcher_find(x, (*tie)->to);
    return found;
}

static ps_status matcher_assign(const matcher *x, int have, int32_t want)
{
    ps_weight_match *m = x->m;
    if (m->of_want[want] != PS_WEIGHT_NEW)
        return PS_FAIL(PS_EFORMAT, "%s: tensors %.128s and %.128s are both the model's %.128s", x->path,
                       x->have[m->of_want[want]], x->have[have], x->want[want]);
    m->of_have[have] = want;
    m->of_want[want] = have;
    m->n_loaded++;
    return PS_OK;
}

/* Assign tensor `have` to the parameter in place of its previous tensor. */
static void matcher_replace(const matcher *x, int have, int32_t want)
{
    ps_weight_match *m = x->m;
    m->of_have[m->of_want[want]] = PS_WEIGHT_IGNORED;
    m->n_ignored++;
    m->of_have[have] = want;
    m->of_want[want] = have;
}

/* Rules 3 to 6, after rules 1 and 2. */
static ps_status matcher_rest(const matcher *x, int have)
{
    ps_weight_match *m = x->m;
    const char *name = unwrapped(x->have[have]);
    const ps_family_tie *tie;
    const int32_t tied = matcher_find_tied(x, name, &tie);
    if (tied >= 0 && m->of_want[tied] == PS_WEIGHT_NEW) return matcher_assign(x, have, tied);
    if (tied >= 0 && tie->untied_with != NULL && matcher_find(x, tie->untied_with) >= 0) {
        matcher_replace(x, have, tied);
        return PS_OK;
    }
    m->copy_of[have] = tied;
    m->n_ignored++;
    if (tied >= 0 || ps_weight_is_buffer(name)) return PS_OK;
    if (!ps_weight_is_head(name))
        return PS_FAIL(PS_EFORMAT, "%s: tensor %.128s is not one of the model's%s", x->path, x->have[have],
                       strstr(name, ".lora_") != NULL
                           ? ": it is an adapter's; the section lora of the configuration, or "
                             "lora.from_pretrained, gives the model one"
                           : "");
    if (x->allow_new_head) return PS_OK;
    return PS_FAIL(
        PS_EFORMAT,
        "%s: tensor %.128s is not one of the model's: it belongs to another head; with model.new_head it is left out",
        x->path, x->have[have]);
}

static ps_status matcher_check_missing(const matcher *x)
{
    ps_weight_match *m = x->m;
    for (int i = 0; i < x->n_want; i++) {
        if (m->of_want[i] != PS_WEIGHT_NEW || (x->may_lack != NULL && x->may_lack[i])) continue;
        const bool is_head = ps_weight_is_head(x->want[i]);
        if (!is_head || !x->allow_new_head)
            return PS_FAIL(PS_EFORMAT, "%s: tensor %s is missing%s", x->path, x->want[i],
                           is_head ? "; with model.new_head it starts at random" : "");
        if (m->n_new++ == 0) m->first_new = i;
    }
    return PS_OK;
}

static ps_status matcher_run(matcher *x)
{
    ps_weight_match *m = x->m;
    PS_TRY(ps_name_index_init(&x->index, x->n_want));
    for (int i = 0; i < x->n_want; i++) {
        m->of_want[i] = PS_WEIGHT_NEW;
        (void)ps_name_index_add(&x->index, x->want[i], i);
    }
    for (int i = 0; i < x->n_have; i++) {
        const int32_t want = matcher_find(x, x->have[i]);
        m->of_have[i] = PS_WEIGHT_IGNORED;
        m->copy_of[i] = -1;
        if (want >= 0) PS_TRY(matcher_assign(x, i, want));
    }
    for (int i = 0; i < x->n_have; i++) {
        const bool is_replaced = m->of_have[i] == PS_WEIGHT_IGNORED && matcher_find(x, x->have[i]) >= 0;
        if (m->of_have[i] == PS_WEIGHT_IGNORED && !is_replaced) PS_TRY(matcher_rest(x, i));
    }
    return matcher_check_missing(x);
}

ps_status ps_weight_match_init(ps_weight_match *m, const char *path, const char *const *have, int n_have,
                               const char *const *want, int n_want, const bool *may_lack, bool allow_new_head)
{
    *m = (ps_weight_match){.first_new = -1};
    matcher x = {.m = m,
                 .path = path,
                 .have = have,
                 .want = want,
                 .n_have = n_have,
                 .n_want = n_want,
                 .may_lack = may_lack,
                 .allow_new_head = allow_new_head};
    PS_TRY(ps_mem_alloc((size_t)n_have, sizeof *m->of_have, &m->of_have));
    PS_TRY(ps_mem_alloc((size_t)n_want, sizeof *m->of_want, &m->of_want));
    PS_TRY(ps_mem_alloc((size_t)n_have, sizeof *m->copy_of, &m->copy_of));
    const ps_status st = matcher_run(&x);
    ps_name_index_deinit(&x.index);
    return st;
}

void ps_weight_match_deinit(ps_weight_match *m)
{
    ps_mem_free(m->of_have);
    ps_mem_free(m->of_want);
    ps_mem_free(m->copy_of);
    *m = (ps_weight_match){0};
}
