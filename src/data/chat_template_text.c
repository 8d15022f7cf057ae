/* chat_template_text.c - a chat template for each format, in Jinja as transformers runs it. pstar export writes it
 * where a tokenizer has no template or another one. It renders exactly the text of chat_format.h;
 * test/cli/test_chat_export.sh compares. */
#include "data/alpaca.h"
#include "data/chat_template.h"

#include "base/base.h"

#define TURNS "{% for message in messages %}"
#define OF_USER "{% if message['role'] == 'user' %}"
#define OF_ASSISTANT "{% elif message['role'] == 'assistant' %}"
#define END "{% endif %}{% endfor %}"
#define ASKED "{% if add_generation_prompt %}"
#define ALPACA                                                                                                         \
    "{% if messages[0]['role'] == 'system' %}{{ messages[0]['content'] }}{% else %}{{ '" PS_ALPACA_PREAMBLE            \
    "' }}{% endif %}" TURNS OF_USER                                                                                    \
    "{{ '\\n\\n### Instruction:\\n' + message['content'] + '\\n\\n### Response:\\n' }}" OF_ASSISTANT                   \
    "{{ message['content'] + eos_token }}" END

static const char *const texts[] = {
    [PS_CONFIG_CHAT_FORMAT_CHATML] =
        TURNS "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}{% endfor %}" ASKED
              "{{ '<|im_start|>assistant\\n' }}{% endif %}",
    [PS_CONFIG_CHAT_FORMAT_LLAMA2] = TURNS OF_USER
    "{% set system = '<<SYS>>\\n' + messages[0]['content'] + '\\n<</SYS>>\\n\\n' if loop.index0 == 1 and "
    "messages[0]['role'] == 'system' else '' %}{{ bos_token + '[INST] ' + (system + "
    "message['content']) | trim + ' [/INST]' }}" OF_ASSISTANT
    "{{ ' ' + message['content'] | trim + ' ' + eos_token }}" END,
    [PS_CONFIG_CHAT_FORMAT_LLAMA3] =
        "{{ bos_token }}" TURNS "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + "
        "message['content'] | trim + '<|eot_id|>' }}{% endfor %}" ASKED
        "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}",
    [PS_CONFIG_CHAT_FORMAT_MISTRAL] =
        "{{ bos_token }}" TURNS OF_USER "{{ '[INST] ' + message['content'] + ' [/INST]' }}" OF_ASSISTANT
        "{{ message['content'] + eos_token }}{% else %}{{ raise_exception('no system messages') }}" END,
    [PS_CONFIG_CHAT_FORMAT_ALPACA] = ALPACA,
};

const char *ps_chat_template_text(ps_config_chat_format format, bool has_bos)
{
    PS_ASSERT(format > PS_CONFIG_CHAT_FORMAT_AUTO && (size_t)format < PS_ARRAY_LEN(texts));
    return format == PS_CONFIG_CHAT_FORMAT_ALPACA && has_bos ? "{{ bos_token }}" ALPACA : texts[format];
}
