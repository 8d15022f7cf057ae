#include "data/chat_template.h"

#include <jansson.h>
#include <string.h>
#include <xxhash.h>

#include "base/base.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/mem.h"
#include "config/json_tolerant.h"

static const char *const form_titles[] = {
    [PS_CONFIG_CHAT_FORMAT_CHATML] = "ChatML",    [PS_CONFIG_CHAT_FORMAT_LLAMA2] = "Llama 2's",
    [PS_CONFIG_CHAT_FORMAT_LLAMA3] = "Llama 3's", [PS_CONFIG_CHAT_FORMAT_MISTRAL] = "Mistral's",
    [PS_CONFIG_CHAT_FORMAT_ALPACA] = "Alpaca's",
};

#define FILE_BYTES_MAX (256 * PS_MIB)

/* XXH3 of the text without a final newline; for each template the text with "\n" in Jinja's strings, then with
 * newlines. */
static const struct {
    uint64_t hash;
    ps_chat_template template;
} known_templates[] = {
    /* ChatML as OpenHermes 2.5 has it */
    {0x4c6e807ee5fe9f4a, {PS_CONFIG_CHAT_FORMAT_CHATML, NULL}},
    {0xa04f41d813a07b13, {PS_CONFIG_CHAT_FORMAT_CHATML, NULL}},
    /* Qwen2 */
    {0xc79034a9d5f0ae58, {PS_CONFIG_CHAT_FORMAT_CHATML, "You are a helpful assistant."}},
    {0xd5d943bd0bd9082f, {PS_CONFIG_CHAT_FORMAT_CHATML, "You are a helpful assistant."}},
    /* SmolLM2 */
    {0x83059ddcb62b07a0,
     {PS_CONFIG_CHAT_FORMAT_CHATML, "You are a helpful AI assistant named SmolLM, trained by Hugging Face"}},
    {0x99ab995e9629dacd,
     {PS_CONFIG_CHAT_FORMAT_CHATML, "You are a helpful AI assistant named SmolLM, trained by Hugging Face"}},
    /* Llama 2, with two spaces and with one in "' '  + content" */
    {0x24f6d97f87d647f5, {PS_CONFIG_CHAT_FORMAT_LLAMA2, NULL}},
    {0xcb7c5112dfc4a3b0, {PS_CONFIG_CHAT_FORMAT_LLAMA2, NULL}},
    {0x018fc13eb46e7703, {PS_CONFIG_CHAT_FORMAT_LLAMA2, NULL}},
    {0xd8a2bf0556e03726, {PS_CONFIG_CHAT_FORMAT_LLAMA2, NULL}},
    /* Llama 3 */
    {0x866fc8fa50da12fe, {PS_CONFIG_CHAT_FORMAT_LLAMA3, NULL}},
    {0x9799ad6e2dea0594, {PS_CONFIG_CHAT_FORMAT_LLAMA3, NULL}},
    /* Mistral 7B v0.2, Mixtral 8x7B */
    {0xa5d004210ebce758, {PS_CONFIG_CHAT_FORMAT_MISTRAL, NULL}},
};

/* Templates that pstar export writes. */
static ps_config_chat_format find_own(const char *text, int64_t n_bytes)
{
    for (ps_config_chat_format f = PS_CONFIG_CHAT_FORMAT_AUTO + 1; f <= PS_CONFIG_CHAT_FORMAT_ALPACA; f++)
        for (int has_bos = 0; has_bos < 2; has_bos++) {
            const char *own = ps_chat_template_text(f, has_bos);
            if ((int64_t)strlen(own) == n_bytes && memcmp(own, text, (size_t)n_bytes) == 0) return f;
        }
    return PS_CONFIG_CHAT_FORMAT_AUTO;
}

ps_config_chat_format ps_chat_template_guess(const char *text, int64_t n_bytes)
{
    static const struct {
        const char *has;
        ps_config_chat_format format;
    } signs[] = {
        {"<|im_start|>", PS_CONFIG_CHAT_FORMAT_CHATML},     {"<|start_header_id|>", PS_CONFIG_CHAT_FORMAT_LLAMA3},
        {"<<SYS>>", PS_CONFIG_CHAT_FORMAT_LLAMA2},          {"[INST]", PS_CONFIG_CHAT_FORMAT_MISTRAL},
        {"### Instruction:", PS_CONFIG_CHAT_FORMAT_ALPACA},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(signs); i++)
        if (memmem(text, (size_t)n_bytes, signs[i].has, strlen(signs[i].has)) != NULL) return signs[i].format;
    return PS_CONFIG_CHAT_FORMAT_AUTO;
}

ps_status ps_chat_template_known(const char *text, int64_t n_bytes, const char *name, ps_chat_template *out)
{
    *out = (ps_chat_template){0};
    if (n_bytes > 0 && text[n_bytes - 1] == '\n') n_bytes--; /* Jinja drops one, too */
    const uint64_t hash = XXH3_64bits(text, (size_t)n_bytes);
    for (size_t i = 0; i < PS_ARRAY_LEN(known_templates); i++) {
        if (known_templates[i].hash != hash) continue;
        *out = known_templates[i].template;
        return PS_OK;
    }
    out->format = find_own(text, n_bytes);
    if (out->format != PS_CONFIG_CHAT_FORMAT_AUTO) return PS_OK;
    const ps_config_chat_format like = ps_chat_template_guess(text, n_bytes);
    if (like != PS_CONFIG_CHAT_FORMAT_AUTO)
        return PS_FAIL(PS_EINVAL,
                       "%s: the chat template (xxh3 %016llx) is none of the known ones, and templates are not run; it "
                       "looks like %s: set data.chat_format=%s, and compare by pstar tokenize --sample 0",
                       name, (unsigned long long)hash, form_titles[like], ps_config_chat_format_names[like]);
    return PS_FAIL(PS_EINVAL,
                   "%s: the chat template (xxh3 %016llx) is none of the known ones, and templates are not run; set "
                   "data.chat_format to the form that it has: chatml, llama2, llama3, mistral or alpaca",
                   name, (unsigned long long)hash);
}

/* The text in tokenizer_config.json, NULL when there is none. */
static const json_t *find_text(const json_t *config)
{
    const json_t *value = json_object_get(config, "chat_template");
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *entry = json_array_get(value, i);
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (name != NULL && strcmp(name, "default") == 0) return json_object_get(entry, "template");
    }
    return json_is_string(value) ? value : NULL;
}

/* *text stays NULL when the file's JSON has none. */
static ps_status read_config(const char *path, const char *json, int64_t n_bytes, char **text, int64_t *n_text)
{
    json_error_t error;
    json_t *root;
    ps_status st = PS_OK;
    PS_TRY(ps_json_load_tolerant(json, (size_t)n_bytes, JSON_ALLOW_NUL, &root, &error));
    if (root == NULL) return PS_FAIL(PS_EFORMAT, "%s:%d: column %d: %s", path, error.line, error.column, error.text);
    const json_t *found = find_text(root);
    if (json_is_string(found)) {
        const size_t n = json_string_length(found);
        st = ps_mem_alloc(n + 1, 1, text);
        if (st == PS_OK) memcpy(*text, json_string_value(found), n);
        if (st == PS_OK) *n_text = (int64_t)n;
    }
    json_decref(root);
    return st;
}

/* *text stays NULL when the folder has no such file. */
static ps_status read_file_of(const char *folder, const char *file, char **path, char **text, int64_t *n_bytes)
{
    ps_mem_free(*path);
    *path = NULL;
    PS_TRY(ps_folder_join(folder, file, path));
    return ps_file_exists(*path) ? ps_file_read_all(*path, FILE_BYTES_MAX, text, n_bytes) : PS_OK;
}

/* The folder itself, or the folder of a file. */
static ps_status folder_of(const char *path, char **out)
{
    return ps_folder_exists(path) ? ps_mem_strdup(path, out) : ps_folder_of(path, out);
}

ps_status ps_chat_template_read(const char *tokenizer_path, char **text, int64_t *n_bytes, char **path)
{
    ps_status st;
    char *folder = NULL, *config = NULL;
    int64_t n_config = 0;
    *text = *path = NULL;
    *n_bytes = 0;
    PS_TRY(folder_of(tokenizer_path, &folder));
    PS_TRY_GOTO(read_file_of(folder, "chat_template.jinja", path, text, n_bytes));
    if (*text != NULL) goto out;
    PS_TRY_GOTO(read_file_of(folder, "tokenizer_config.json", path, &config, &n_config));
    if (config != NULL) PS_TRY_GOTO(read_config(*path, config, n_config, text, n_bytes));
out:
    ps_mem_free(folder);
    ps_mem_free(config);
    if (st != PS_OK) {
        ps_mem_free(*text);
        ps_mem_free(*path);
        *text = *path = NULL;
    }
    return st;
}

ps_status ps_chat_template_of(const char *tokenizer_path, ps_chat_template *out)
{
    char *text, *path;
    int64_t n_bytes;
    *out = (ps_chat_template){0};
    PS_TRY(ps_chat_template_read(tokenizer_path, &text, &n_bytes, &path));
    const ps_status st =
        text != NULL ? ps_chat_template_known(text, n_bytes, path, out)
                     : PS_FAIL(PS_EINVAL,
                               "%s: the tokenizer has no chat template; set data.chat_format to the form that messages "
                               "shall have: chatml, llama2, llama3, mistral or alpaca",
                               tokenizer_path);
    ps_mem_free(text);
    ps_mem_free(path);
    return st;
}
