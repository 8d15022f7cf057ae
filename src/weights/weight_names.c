#include "weights/weight_names.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/mem.h"
#include "weights/name_index.h"

static const char *const bases[] = {"transformer.", "model.", "bert."};

static const struct {
    const char *model_type, *base;
} base_of[] = {
    {"gpt2", "transformer."}, {"llama", "model."}, {"mistral", "model."},
    {"qwen2", "model."},      {"qwen3", "model."}, {"bert", "bert."},
};

/* Ends of names; '#' stands for a number. GPT-2 keeps its causal mask as "bias" (not "c_attn.bias", which is one). */
static const char *const buffers[] = {"h.#.attn.bias", "h.#.attn.masked_bias", "rotary_emb.inv_freq",
                                      "embeddings.position_ids"};

/* Outside of what is common to all classes of a model. BERT's pooler belongs to the base, but masked-language models lack it. */
static const char *const heads[] = {"lm_head.", "score.", "classifier.", "qa_outputs.", "cls.", "pooler."};
static const char *const class_heads[] = {"lm_head.", "score.", "classifier.", "qa_outputs.", "cls."};

static const struct {
    const char *name, *to;
} ties[] = {
    {"lm_head.weight", "wte.weight"},
    {"lm_head.weight", "embed_tokens.weight"},
    {"cls.predictions.decoder.weight", "embeddings.word_embeddings.weight"},
    {"cls.predictions.decoder.bias", "cls.predictions.bias"},
};

static const struct {
    const char *old_end, *end;
} renames[] = {{".gamma", ".weight"}, {".beta", ".bias"}};

/* ---- single names ---- */

static bool has_prefix(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

static bool has_one_of(const char *name, const char *const *prefixes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (has_prefix(name, prefixes[i])) return true;
    return false;
}

static const char *without_base(const char *name)
{
    for (size_t i = 0; i < PS_ARRAY_LEN(bases); i++)
        if (has_prefix(name, bases[i])) return name + strlen(bases[i]);
    return name;
}

/* Does the pattern match the end of the name, from the start of one of its parts on? */
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

bool ps_weight_is_buffer(const char *name)
{
    for (size_t i = 0; i < PS_ARRAY_LEN(buffers); i++)
        if (matches_end(name, buffers[i])) return true;
    return false;
}

bool ps_weight_is_vocabulary(const char *name)
{
    static const char *const names[] = {"wte.weight",
                                        "embed_tokens.weight",
                                        "embeddings.word_embeddings.weight",
                                        "lm_head.weight",
                                        "cls.predictions.decoder.weight",
                                        "cls.predictions.bias"};
    for (size_t i = 0; i < PS_ARRAY_LEN(names); i++)
        if (strcmp(without_base(name), names[i]) == 0) return true;
    return false;
}

bool ps_weight_is_head(const char *name)
{
    return has_one_of(without_base(name), heads, PS_ARRAY_LEN(heads));
}

/* The name with its end as new files have it; false when it has no old end. */
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

/* 0 the name itself, 1 without the base's prefix, 2 .. 4 with each; 5 .. 9 the same with a new end */
bool ps_weight_name_candidate(const char *name, int i, char out[PS_WEIGHT_NAME_MAX])
{
    enum { N_FORMS = 2 + PS_ARRAY_LEN(bases) };
    char renamed[PS_WEIGHT_NAME_MAX];
    if (strlen(name) >= PS_WEIGHT_NAME_MAX - 16 || i >= 2 * N_FORMS) return false;
    if (i >= N_FORMS) {
        if (!rename_end(name, renamed)) return false;
        name = renamed;
        i -= N_FORMS;
    }
    const char *const bare = without_base(name);
    snprintf(out, PS_WEIGHT_NAME_MAX, "%s%s", i >= 2 ? bases[i - 2] : "", i == 0 ? name : bare);
    return true;
}

const char *ps_weight_tied_to(const char *name, int i)
{
    for (size_t k = 0; k < PS_ARRAY_LEN(ties); k++)
        if (strcmp(ties[k].name, name) == 0 && i-- == 0) return ties[k].to;
    return NULL;
}

const char *ps_weight_class_name(const char *model_type, const char *name, char out[PS_WEIGHT_NAME_MAX])
{
    if (has_one_of(name, class_heads, PS_ARRAY_LEN(class_heads))) return name;
    for (size_t i = 0; i < PS_ARRAY_LEN(base_of); i++) {
        if (strcmp(base_of[i].model_type, model_type) != 0 || has_prefix(name, base_of[i].base) ||
            strlen(name) >= PS_WEIGHT_NAME_MAX - 16)
            continue;
        snprintf(out, PS_WEIGHT_NAME_MAX, "%s%s", base_of[i].base, name);
        return out;
    }
    return name;
}

/* ---- all names ---- */

typedef struct matcher {
    ps_weight_match *m;
    const char *path, *const *have, *const *want;
    int n_have, n_want;
    ps_name_index index; /* of want */
    bool allow_new_head;
} matcher;

/* The parameter that rules 1 and 2 give for a name, -1: none. */
static int32_t matcher_find(const matcher *x, const char *name)
{
    char candidate[PS_WEIGHT_NAME_MAX];
    int32_t found = ps_name_index_find(&x->index, name);
    for (int i = 0; found < 0 && ps_weight_name_candidate(name, i, candidate); i++)
        found = ps_name_index_find(&x->index, candidate);
    return found;
}

static int32_t matcher_find_tied(const matcher *x, const char *name)
{
    int32_t found = -1;
    const char *to;
    for (int i = 0; found < 0 && (to = ps_weight_tied_to(name, i)) != NULL; i++) found = matcher_find(x, to);
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

/* Rules 3 to 6, once the others have their places. */
static ps_status matcher_rest(const matcher *x, int have)
{
    ps_weight_match *m = x->m;
    const char *name = x->have[have];
    const int32_t tied = matcher_find_tied(x, name);
    if (tied >= 0 && m->of_want[tied] == PS_WEIGHT_NEW) return matcher_assign(x, have, tied);
    m->copy_of[have] = tied;
    m->n_ignored++;
    if (tied >= 0 || ps_weight_is_buffer(name)) return PS_OK;
    if (!ps_weight_is_head(name))
        return PS_FAIL(PS_EFORMAT, "%s: tensor %.128s is not one of the model's", x->path, name);
    if (x->allow_new_head) return PS_OK;
    return PS_FAIL(
        PS_EFORMAT,
        "%s: tensor %.128s is not one of the model's: it belongs to another head; with model.new_head it is left "
        "out",
        x->path, name);
}

static ps_status matcher_check_missing(const matcher *x)
{
    ps_weight_match *m = x->m;
    for (int i = 0; i < x->n_want; i++) {
        if (m->of_want[i] != PS_WEIGHT_NEW) continue;
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
    for (int i = 0; i < x->n_have; i++)
        if (m->of_have[i] == PS_WEIGHT_IGNORED) PS_TRY(matcher_rest(x, i));
    return matcher_check_missing(x);
}

ps_status ps_weight_match_init(ps_weight_match *m, const char *path, const char *const *have, int n_have,
                               const char *const *want, int n_want, bool allow_new_head)
{
    *m = (ps_weight_match){.first_new = -1};
    matcher x = {.m = m,
                 .path = path,
                 .have = have,
                 .want = want,
                 .n_have = n_have,
                 .n_want = n_want,
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
