#include "export_template.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "data/chat_format.h"
#include "data/chat_template.h"
#include "data/text_buffer.h"
#include "data/tokenizer.h"

/* The template of Alpaca's format includes the tokenizer's prefix of a text, which must be its bos token or empty. */
static ps_status find_front(const char *folder, bool *has_bos, bool *is_known)
{
    ps_tokenizer *t = NULL;
    ps_id_list front = {0};
    ps_status st;
    *has_bos = *is_known = false;
    PS_TRY_GOTO(ps_tokenizer_open(folder, &t));
    PS_TRY_GOTO(ps_chat_find_front(t, &front));
    *has_bos = front.n == 1 && front.ids[0] == ps_tokenizer_role(t, PS_ROLE_BOS);
    *is_known = front.n == 0 || *has_bos;
out:
    ps_mem_free(front.ids);
    ps_tokenizer_close(t);
    return st;
}

ps_status export_template_choose(const ps_options *o, const char *tokenizer_folder, const char **out)
{
    const ps_config_chat_format format = o->data_chat_format;
    const char *name = ps_config_chat_format_names[format];
    char *text = NULL, *path = NULL;
    int64_t n_bytes = 0;
    bool has_bos = false, is_known = true;
    *out = NULL;
    if (format == PS_CONFIG_CHAT_FORMAT_AUTO || tokenizer_folder == NULL) return PS_OK;
    PS_TRY(ps_chat_template_read(tokenizer_folder, &text, &n_bytes, &path));
    ps_status st = format == PS_CONFIG_CHAT_FORMAT_ALPACA ? find_front(tokenizer_folder, &has_bos, &is_known) : PS_OK;
    ps_chat_template t;
    const bool is_listed = text != NULL && ps_chat_template_known(text, n_bytes, "", &t) == PS_OK;
    /* the same, without a default system message, as in the format */
    const bool has_other = text != NULL && !(is_listed && t.format == format && t.default_system == NULL);
    const bool is_like = has_other && !is_listed && ps_chat_template_guess(text, n_bytes) == format;
    if (st != PS_OK || (text != NULL && !has_other)) goto out;
    if (is_like || !is_known) {
        fprintf(stderr,
                "pstar export: the run was trained with data.chat_format = %s; %s, so compare what apply_chat_template "
                "makes with `pstar tokenize --sample 0 CONFIG`\n",
                name,
                is_like
                    ? "the tokenizer's chat template looks like it and is copied, but is none of the known ones"
                    : "the tokenizer puts more than a bos token in front of texts, and no chat template is written");
        goto out;
    }
    *out = ps_chat_template_text(format, has_bos);
    if (has_other)
        fprintf(stderr,
                "pstar export: the chat template of %s is not the form that was trained, data.chat_format = %s; "
                "chat_template.jinja has that form\n",
                path, name);
    else
        printf("chat_template.jinja: the form %s\n", name);
out:
    ps_mem_free(text);
    ps_mem_free(path);
    return st;
}
