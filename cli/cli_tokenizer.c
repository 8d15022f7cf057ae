#include "cli_tokenizer.h"

#include <stdio.h>

#include "base/folder.h"

const char *cli_tokenizer_folder(const ps_options *o)
{
    if (o->data_tokenizer[0] != '\0' && ps_folder_exists(o->data_tokenizer)) return o->data_tokenizer;
    return o->model_from_pretrained[0] != '\0' && ps_folder_exists(o->model_from_pretrained) ? o->model_from_pretrained
                                                                                             : NULL;
}

void cli_report_no_tokenizer(const char *command, const ps_options *o)
{
    const bool is_named = o->data_tokenizer[0] != '\0';
    const char *folder = is_named ? o->data_tokenizer : o->model_from_pretrained;
    if (folder[0] != '\0')
        fprintf(
            stderr,
            "pstar %s: no tokenizer is copied: there is no folder %s (%s; a relative path is looked for from here). "
            "Name it with --tokenizer FOLDER\n",
            command, folder, is_named ? "data.tokenizer" : "model.from_pretrained");
}
