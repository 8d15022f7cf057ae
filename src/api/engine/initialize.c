#include "api/engine/initialize.h"

#include "api/engine/engine.h"
#include "api/engine/weight_files.h"
#include "base/sized.h"
#include "chunk/comm/agree.h"

static ps_status begin_weights(ps_engine *e, const ps_config *model, const ps_config *config, ps_load_info *info)
{
    const ps_options *m = ps_config_options(model), *o = ps_config_options(config);
    const ps_load_options may = {.allow_new_head = m->model_new_head || m->model_head == PS_CONFIG_HEAD_NONE,
                                 .allow_new_rows = m->model_resize_token_embeddings};
    ps_load_info loaded = {0};
    if (info != NULL) PS_TRY(PS_SIZED_GIVE(ps_load_info, &loaded, info));
    if (m->model_from_pretrained[0] != '\0') PS_TRY(ps_weights_load(e, m->model_from_pretrained, &may, &loaded));
    if (info != NULL) PS_TRY(PS_SIZED_GIVE(ps_load_info, &loaded, info));
    if (o->lora_r > 0 && (o->lora_from_pretrained[0] != '\0' || o->train_init_from[0] != '\0'))
        PS_TRY(ps_comm_agree(e->settings.ranks.comm, ps_engine_init_remaining(e))); /* files of adapters have no base */
    if (o->lora_from_pretrained[0] != '\0')
        PS_TRY(ps_weights_load(e, o->lora_from_pretrained, &(ps_load_options){0}, NULL));
    if (o->train_init_from[0] != '\0') PS_TRY(ps_weights_load(e, o->train_init_from, &(ps_load_options){0}, NULL));
    PS_TRY(ps_comm_agree(e->settings.ranks.comm, ps_engine_init_remaining(e)));
    if (!e->settings.training || o->train_init_optimizer[0] == '\0') return PS_OK;
    return ps_engine_load_optimizer(e, o->train_init_optimizer);
}

ps_status ps_engine_begin_weights(ps_engine *e, const ps_config *model, const ps_config *config, ps_load_info *info)
{
    PS_TRY(PS_NEED("engine described config", e, model, config));
    ps_status st = ps_engine_expect(e, PS_ENGINE_READY, "ps_engine_begin_weights");
    if (st == PS_OK && e->is_filled == NULL)
        st = PS_FAIL(PS_ESTATE, "ps_engine_begin_weights: the parameters have values already; it is for engines that "
                                "began empty (ps_engine_options.is_empty)");
    PS_TRY(ps_comm_agree(e->settings.ranks.comm, st));
    return begin_weights(e, model, config, info);
}

bool ps_config_names_weights(const ps_config *model, const ps_config *config)
{
    return ps_config_options(model)->model_from_pretrained[0] != '\0' ||
           ps_config_options(config)->train_init_from[0] != '\0' ||
           ps_config_options(config)->lora_from_pretrained[0] != '\0';
}

static ps_status check_local_rank(const ps_comm *comm, int local_rank)
{
    if (local_rank == ps_comm_local_rank(comm)) return PS_OK;
    return PS_FAIL(PS_EINVAL, "ps_initialize_engine: local_rank %d, but of the ranks on this machine this is number %d",
                   local_rank, ps_comm_local_rank(comm));
}

/* A model that silently kept the rows of its folder would have no row for an added token. */
static ps_status check_vocabulary(const ps_config *model)
{
    const ps_options *m = ps_config_options(model);
    if (!m->model_resize_token_embeddings || ps_config_gives(model, PS_OPTION_model_vocab_size)) return PS_OK;
    return PS_FAIL(
        PS_EINVAL,
        "model.resize_token_embeddings asks for as many rows as the tokenizer has tokens, but model.vocab_size "
        "is the %lld of %s: call ps_config_resize_vocabulary first, or set model.vocab_size",
        (long long)m->model_vocab_size, m->model_from_pretrained);
}

/* A schedule would end at the default of train.steps. */
static ps_status check_epochs(const ps_config *config)
{
    const double epochs = ps_config_options(config)->train_epochs;
    if (epochs == 0) return PS_OK;
    return PS_FAIL(PS_EINVAL,
                   "train.epochs %g: how many steps that is follows from the data: call ps_config_take_epochs first, "
                   "or set train.steps",
                   epochs);
}

/* With the weights that the configuration names, unless it is to be empty. */
static ps_status create_engine(ps_model_func model, void *user, const ps_config *config,
                               const ps_engine_options *options, ps_engine **out)
{
    const ps_config *described = model == ps_model_from_config ? user : config;
    if (described == NULL) return PS_FAIL(PS_EINVAL, "ps_initialize_engine: ps_model_from_config requires a ps_config");
    PS_TRY(ps_comm_check_same(options->comm, config));
    PS_TRY(check_vocabulary(described));
    if (options->purpose == PS_FOR_TRAINING) PS_TRY(check_epochs(config));
    const bool is_empty = options->is_empty || ps_config_names_weights(described, config);
    PS_TRY((is_empty ? ps_engine_create_empty : ps_engine_create)(model, user, config, options->purpose, options->comm,
                                                                  out));
    const ps_status st = options->is_empty ? PS_OK : begin_weights(*out, described, config, NULL);
    if (st == PS_OK) return PS_OK;
    ps_engine_destroy(*out);
    *out = NULL;
    return st;
}

ps_status ps_initialize_engine_with(ps_model_func model_func, void *user, const ps_config *config,
                                    const ps_engine_options *options, ps_engine **engine)
{
    PS_TRY(PS_NEED_FOR(engine, "config options engine", config, options, engine));
    ps_engine_options own;
    PS_TRY(PS_SIZED_TAKE(ps_engine_options, options, &own));
    if (own.purpose < PS_FOR_INFERENCE || own.purpose > PS_FOR_GENERATION)
        return PS_FAIL(PS_EINVAL, "ps_initialize_engine_with: %d is no purpose of an engine", (int)own.purpose);
    return create_engine(model_func, user, config, &own, engine);
}

/* As the launcher started this process: as a single rank, or as one of several. */
static ps_status create_as_started(ps_model_func model, void *user, int local_rank, const ps_config *config,
                                   ps_purpose purpose, ps_engine **out)
{
    ps_comm *comm = NULL;
    PS_TRY(ps_comm_init(config, &comm));
    const ps_engine_options options = {.comm = comm, .purpose = purpose};
    ps_status st = ps_comm_agree(comm, check_local_rank(comm, local_rank));
    if (st == PS_OK) st = create_engine(model, user, config, &options, out);
    ps_comm_close(comm); /* the engine holds a reference */
    return st;
}

ps_status ps_initialize_engine(ps_model_func model_func, void *user, int local_rank, const ps_config *config,
                               ps_engine **engine)
{
    PS_TRY(PS_NEED_FOR(engine, "config engine", config, engine));
    return create_as_started(model_func, user, local_rank, config, PS_FOR_TRAINING, engine);
}

ps_status ps_initialize_inference_engine(ps_model_func model_func, void *user, int local_rank, const ps_config *config,
                                         ps_engine **engine)
{
    PS_TRY(PS_NEED_FOR(engine, "config engine", config, engine));
    return create_as_started(model_func, user, local_rank, config, PS_FOR_INFERENCE, engine);
}

ps_status ps_initialize_generation_engine(ps_model_func model_func, void *user, int local_rank, const ps_config *config,
                                          ps_engine **engine)
{
    PS_TRY(PS_NEED_FOR(engine, "config engine", config, engine));
    return create_as_started(model_func, user, local_rank, config, PS_FOR_GENERATION, engine);
}
