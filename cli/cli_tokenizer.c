#include "cli_tokenizer.h"

#include "base/folder.h"

const char *cli_tokenizer_folder(const ps_options *o)
{
    if (o->data_tokenizer[0] != '\0' && ps_folder_exists(o->data_tokenizer)) return o->data_tokenizer;
    return o->model_from_pretrained[0] != '\0' && ps_folder_exists(o->model_from_pretrained) ? o->model_from_pretrained
                                                                                             : NULL;
}
