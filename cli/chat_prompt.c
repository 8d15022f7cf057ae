#include "chat_prompt.h"

#include "base/utf8.h"
#include "cli_tokenizer.h"
#include "data/chat_format.h"
#include "data/chat_template.h"

static ps_status check_utf8(const char *text, int64_t n)
{
    for (int64_t i = 0, length; i < n; i += length) {
        length = ps_utf8_length(text + i, n - i);
        if (length == 0) return PS_FAIL(PS_EINVAL, "--prompt is no UTF-8 from byte %lld on", (long long)i);
    }
    return PS_OK;
}

ps_status chat_prompt_encode(const ps_options *o, ps_tokenizer *tokenizer, const char *text, int64_t n_bytes,
                             ps_id_list *out, int32_t *end)
{
    ps_chat_template t = {.format = o->data_chat_format};
    ps_chat_encoder e;
    ps_chat_message message = {.role = PS_CHAT_USER, .content = text, .n_bytes = n_bytes};
    PS_TRY(check_utf8(text, n_bytes));
    if (t.format == PS_CONFIG_CHAT_FORMAT_AUTO) PS_TRY(ps_chat_template_of(cli_tokenizer_path(o), &t));
    PS_TRY(ps_chat_encoder_init(&e, t.format, t.default_system, tokenizer));
    const ps_status st = ps_chat_encode_prompt(&e, &(ps_chat){.messages = &message, .n = 1}, "--prompt", out);
    *end = ps_chat_end_of_answer(&e);
    ps_chat_encoder_deinit(&e);
    return st;
}
