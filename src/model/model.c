#include "model/model.h"

ps_status ps_model_from_config(ps_builder *b, void *user)
{
    const ps_options *o = ps_config_options(user);
    switch (o->model_type) {
    case PS_CONFIG_MODEL_GPT2: return ps_model_gpt2(b, o);
    }
    return PS_FAIL(PS_EINVAL, "model.type %d is not known", (int)o->model_type);
}
