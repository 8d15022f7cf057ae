#include "cli_tokenizer.h"

#include <stdio.h>

#include "base/base.h"
#include "base/folder.h"
#include "data/tokenizer.h"

const char *cli_tokenizer_path(const ps_options *o)
{
    const bool own = o->data_tokenizer[0] == '\0' && o->model_from_pretrained[0] != '\0';
    return own && ps_tokenizer_is_in(o->model_from_pretrained) ? o->model_from_pretrained : o->data_tokenizer;
}

const char *cli_tokenizer_folder(const ps_options *o)
{
    if (o->data_tokenizer[0] != '\0' && ps_folder_exists(o->data_tokenizer)) return o->data_tokenizer;
    return o->model_from_pretrained[0] != '\0' && ps_folder_exists(o->model_from_pretrained) ? o->model_from_pretrained
                                                                                             : NULL;
}

ps_status cli_resize_vocabulary(ps_config *config)
{
    const ps_options *o = ps_config_options(config);
    const char *path = cli_tokenizer_path(o);
    ps_tokenizer *t = NULL;
    char text[32];
    if (!o->model_resize_token_embeddings || ps_config_is_given(config, PS_OPTION_model_vocab_size)) return PS_OK;
    if (path[0] == '\0')
        return PS_FAIL(PS_EINVAL,
                       "model.resize_token_embeddings: %s has no tokenizer to count tokens of; set data.tokenizer "
                       "or model.vocab_size",
                       o->model_from_pretrained);
    PS_TRY(ps_tokenizer_open(path, &t));
    int64_t n = ps_max_i64(ps_tokenizer_vocab_size(t), o->model_vocab_size);
    ps_tokenizer_close(t);
    if (o->model_pad_to_multiple_of > 0) n = ps_round_up(n, o->model_pad_to_multiple_of);
    snprintf(text, sizeof text, "%lld", (long long)n);
    return ps_config_set(config, "model.vocab_size", text);
}
