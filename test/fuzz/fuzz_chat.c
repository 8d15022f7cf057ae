/* Lines of conversations, ShareGPT's too, of prompts with completions and of Alpaca, in each form: samples have tokens of
 * the vocabulary and something to predict, or the error has a place. The first byte chooses the form of the lines and
 * that of the conversations. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/chat_format.h"
#include "data/chat_template.h"
#include "data/instruct_set.h"
#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define MUST(condition)                                                                                                \
    if (!(condition)) abort()

enum { T = 64, N_IDS = 256 + 7 };

/* A byte a token, and the special tokens of all forms. */
static ps_tokenizer *make_tokenizer(void)
{
    static const char *const special[] = {
        "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<s>", "</s>"};
    json_t *vocabulary = json_object(), *added = json_array();
    for (int32_t b = 0, beyond = 256; b < 256; b++) { /* GPT-2's letters for bytes */
        const int32_t c = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE ? b : beyond++;
        const char letter[] = {(char)(c < 0x80 ? c : 0xC0 | c >> 6), (char)(c < 0x80 ? 0 : 0x80 | (c & 0x3F)), 0};
        json_object_set_new(vocabulary, letter, json_integer(b));
    }
    for (int i = 0; i < 7; i++)
        json_array_append_new(added,
                              json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", 256 + i, "content", special[i],
                                        "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1));
    json_t *root = json_pack("{s:{s:s, s:o, s:[]}, s:o, s:{s:s, s:b}, s:{s:s}}", "model", "type", "BPE", "vocab",
                             vocabulary, "merges", "added_tokens", added, "pre_tokenizer", "type", "ByteLevel",
                             "add_prefix_space", 0, "decoder", "type", "ByteLevel");
    char *text = json_dumps(root, 0);
    ps_tokenizer *t = NULL;
    if (ps_tokenizer_create_json("fuzz", text, (int64_t)strlen(text), &t) != PS_OK) abort();
    free(text);
    json_decref(root);
    return t;
}

static void check_set(const ps_instruct_set *s)
{
    const ps_instruct_info info = ps_instruct_set_info(s);
    MUST(ps_instruct_set_count(s) == info.n_lines - info.n_left_out);
    for (int64_t i = 0; i < ps_instruct_set_count(s); i++) {
        const ps_instruct_sample sample = ps_instruct_set_get(s, i);
        int64_t n_targets = 0;
        MUST(sample.n >= 2 && sample.n <= T + 1 && sample.line >= 1);
        for (int64_t k = 0; k < sample.n; k++) {
            MUST(ps_target_id(sample.entries[k]) < N_IDS);
            n_targets += k > 0 && ps_target_is_marked(sample.entries[k]);
        }
        MUST(n_targets > 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const ps_config_jsonl_form forms[] = {PS_CONFIG_JSONL_FORM_PROMPT_COMPLETION, PS_CONFIG_JSONL_FORM_MESSAGES,
                                                 PS_CONFIG_JSONL_FORM_ALPACA, PS_CONFIG_JSONL_FORM_SHAREGPT};
    if (n == 0) return 0;
    ps_tokenizer *tokenizer = make_tokenizer();
    const fuzz_file file = fuzz_file_make(data + 1, n - 1);
    const ps_instruct_options o = {
        .form = forms[(data[0] & 1) | (data[0] >> 5 & 2)],
        .text_key = "text",
        .messages_key = "messages",
        .prompt_key = "prompt",
        .completion_key = "completion",
        .chat_format = data[0] & 8 ? PS_CONFIG_CHAT_FORMAT_ALPACA
                                   : (ps_config_chat_format)(PS_CONFIG_CHAT_FORMAT_CHATML + (data[0] >> 1) % 4),
        .tokenizer_path = "/proc/nonexistent",
        .tokenizer = tokenizer,
        .T = T,
    };
    ps_instruct_set *s;
    const ps_status st = ps_instruct_set_open(file.path, &o, &s);
    if (st == PS_OK) check_set(s);
    MUST(st == PS_OK || (st == PS_EFORMAT && s == NULL));
    if (st != PS_OK) MUST(strstr(ps_last_error(), "line") != NULL || strstr(ps_last_error(), "git-lfs") != NULL);
    ps_instruct_set_close(s);
    ps_chat_template template;
    MUST(ps_chat_template_known((const char *)data, (int64_t)n, "t", &template) == PS_EINVAL);
    close(file.fd);
    ps_tokenizer_close(tokenizer);
    MUST(ps_mem_live_bytes() == 0);
    return 0;
}
