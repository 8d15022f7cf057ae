#include "train/plan/largest.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/bytes.h"
#include "train/plan/variation.h"

typedef struct family {
    const char *name;
    int64_t column_weights; /* parameters of a block / hidden_size^2 */
    bool is_gated;          /* inner width 8/3 hidden_size in multiples of 256 */
} family;

static const family families[] = {{"gpt2", 12, false}, {"llama", 12, true}, {"bert", 12, false}};
static const int64_t widths[] = {256,  384,  512,  768,  1024, 1280, 1536,  2048,  2560,  3072,  3584,
                                 4096, 5120, 6144, 7168, 8192, 9216, 10240, 12288, 14336, 16384, 20480};

#define PARAM_BYTES_MIN 2 /* as operators read it, without master and optimizer states */
#define HEAD_COLUMNS 128
#define COLUMNS_A_LAYER_MIN 24
#define COLUMNS_A_LAYER_MAX 400

/* The configuration with a model of this shape in place of its own. */
static ps_status shape_init(ps_variation *v, const ps_config *config, const ps_hardware *hw, const family *f,
                            int64_t width, int64_t n_layers)
{
    char *text = NULL;
    *v = (ps_variation){.hardware = *hw, .has_hardware = true};
    PS_TRY(ps_config_dump_json(config, &text));
    json_t *root = json_loads(text, 0, NULL);
    ps_free(text);
    const int64_t T = ps_config_sequence_length(ps_config_options(config));
    json_t *model =
        json_pack("{s:s, s:I, s:I, s:I, s:I}", "type", f->name, "hidden_size", (json_int_t)width, "num_hidden_layers",
                  (json_int_t)n_layers, "num_attention_heads", (json_int_t)ps_max_i64(1, width / HEAD_COLUMNS),
                  "max_position_embeddings", (json_int_t)T);
    if (f->is_gated)
        json_object_set_new(model, "intermediate_size", json_integer((json_int_t)ps_round_up(width * 8 / 3, 256)));
    /* names of parameters of a model that it is not */
    (void)json_object_del(json_object_get(root, "train"), "freeze");
    (void)json_object_del(json_object_get(root, "optimizer"), "param_groups");
    char *changed = json_object_set_new(root, "model", model) == 0 ? json_dumps(root, 0) : NULL;
    json_decref(root);
    if (changed == NULL) return PS_FAIL(PS_ENOMEM_HOST, "no memory for a configuration");
    const ps_status st = ps_config_parse(changed, "configuration", &v->config);
    free(changed);
    return st;
}

typedef struct search {
    const ps_config *config;
    const ps_hardware *hardware;
    const family *family;
    double param_bytes; /* of model data at least, for each parameter */
    ps_largest *best;
} search;

/* Of a rank. memory.disk = auto has no budget until a simulation finds that memory does not suffice. */
static int64_t disk_bytes(const search *s, const ps_simulation *sizes)
{
    const ps_hardware *h = s->hardware;
    if (ps_config_options(s->config)->memory_disk != PS_BYTES_AUTO || !h->disk.present)
        return sizes->budgets.bytes[PS_TIER_DISK];
    return h->disk.bytes / ps_hardware_devices_per_node(h);
}

/* A simulation takes longest for a model that does not fit: it is not asked where the bytes alone say so. */
static ps_status try_simulating(const search *s, const ps_variation *v, ps_largest *found, bool *fits)
{
    ps_simulation sizes;
    PS_TRY(ps_simulate_sizes(v->config, &(ps_site){.hardware = &v->hardware}, &sizes));
    double room = -(double)sizes.non_model_bytes; /* of a rank */
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++) room += (double)sizes.budgets.bytes[t];
    room += (double)disk_bytes(s, &sizes);
    if (s->param_bytes * (double)sizes.n_params > room * (double)sizes.ranks.n) return PS_OK;
    PS_TRY(ps_variation_simulate(v, NULL, &found->simulation));
    *fits = found->simulation.fits;
    found->n_params = found->simulation.n_params;
    return PS_OK;
}

static ps_status try_shape(const search *s, int64_t width, int64_t n_layers, bool *fits)
{
    ps_variation v;
    ps_largest found = {.hidden_size = width, .n_layers = n_layers};
    ps_status st = shape_init(&v, s->config, s->hardware, s->family, width, n_layers);
    *fits = false;
    v.takes_first_plan = true; /* whether it fits is asked, not how fast */
    if (st == PS_OK) st = try_simulating(s, &v, &found, fits);
    ps_variation_deinit(&v);
    if (st == PS_OK && *fits && found.n_params > s->best->n_params) *s->best = found;
    return st;
}

/* As many layers as all the memory there is could hold, activations left aside: more cannot fit. */
static int64_t most_layers(const search *s, int64_t width)
{
    const ps_hardware *h = s->hardware;
    const int64_t a_node = ps_hardware_devices_per_node(h) * h->device.bytes + h->host.bytes +
                           (h->disk.present && ps_config_options(s->config)->memory_disk != 0 ? h->disk.bytes : 0);
    const double n_params = (double)h->n_nodes * (double)a_node / s->param_bytes;
    const double layers = n_params / ((double)s->family->column_weights * (double)width * (double)width);
    return layers < 1 ? 1 : layers > 4096 ? 4096 : (int64_t)layers;
}

static ps_status search_width(const search *s, int64_t width)
{
    int64_t low = ps_max_i64(1, width / COLUMNS_A_LAYER_MAX), high = ps_max_i64(1, width / COLUMNS_A_LAYER_MIN);
    high = ps_min_i64(high, most_layers(s, width));
    /* of this width, fewer layers than these are a smaller model than the best so far */
    const int64_t at_least = s->best->n_layers * s->best->hidden_size / width * s->best->hidden_size / width;
    low = ps_max_i64(low, at_least);
    if (high < low) return PS_OK;
    bool fits;
    PS_TRY(try_shape(s, width, low, &fits));
    if (!fits) return PS_OK;
    /* the limit is often near what another width has found: steps that double, then halves */
    for (int64_t step = 1; fits && low < high; step *= 2) {
        const int64_t next = ps_min_i64(low + step, high);
        PS_TRY(try_shape(s, width, next, &fits));
        if (fits)
            low = next;
        else
            high = next;
    }
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        PS_TRY(try_shape(s, width, middle, &fits));
        if (fits)
            low = middle;
        else
            high = middle;
    }
    return PS_OK;
}

/* The largest as it would run: the search looked for any way that fits, this looks for a fast one too. */
static ps_status plan_best(const search *s)
{
    ps_variation v;
    ps_status st = shape_init(&v, s->config, s->hardware, s->family, s->best->hidden_size, s->best->n_layers);
    if (st == PS_OK) st = ps_variation_simulate(&v, NULL, &s->best->simulation);
    ps_variation_deinit(&v);
    return st;
}

ps_status ps_find_largest(const ps_config *config, const ps_hardware *hardware, const char *name, ps_largest *out)
{
    *out = (ps_largest){0};
    search s = {.config = config, .hardware = hardware, .best = out};
    enum { MANY = 1024 }; /* elements, in whole groups of each format of states */
    ps_optimizer_setup optimizer;
    for (size_t i = 0; i < PS_ARRAY_LEN(families); i++)
        if (strcmp(families[i].name, name) == 0) s.family = &families[i];
    if (s.family == NULL)
        return PS_FAIL(PS_EINVAL, "no family '%s' of models is known: expected gpt2, llama or bert", name);
    PS_TRY(ps_optimizer_read(ps_config_options(config), &optimizer));
    s.param_bytes = PARAM_BYTES_MIN + (double)ps_optimizer_bytes(&optimizer, MANY) / MANY;
    /* from wide to narrow: the best is found early, and what cannot be larger is not tried */
    for (size_t i = PS_ARRAY_LEN(widths); i-- > 0;) PS_TRY(search_width(&s, widths[i]));
    return out->n_params > 0 ? plan_best(&s) : PS_OK;
}
