/* chat_tokenizer.h - a tokenizer for tests of conversations: test/golden/tokenizers/llama_like.json (bos
 * <|begin_of_text|>, eos <|end_of_text|>) with more added tokens; and token lists with targets as text. */
#ifndef CHAT_TOKENIZER_H
#define CHAT_TOKENIZER_H

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/chat_format.h"

enum { CHAT_FIRST_ADDED = 2002 };

/* A NULL ends the list. rstrip: of the tokens added. NULL when it cannot be made. */
static inline ps_tokenizer *chat_tokenizer(const char *const *added, int rstrip)
{
    ps_tokenizer *t = NULL;
    json_t *root = json_load_file("test/golden/tokenizers/llama_like.json", 0, NULL);
    for (int i = 0; added[i] != NULL; i++)
        json_array_append_new(json_object_get(root, "added_tokens"),
                              json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", CHAT_FIRST_ADDED + i, "content",
                                        added[i], "single_word", 0, "lstrip", 0, "rstrip", rstrip, "normalized", 0,
                                        "special", 1));
    char *text = json_dumps(root, 0);
    const ps_status st = ps_tokenizer_create_json("test.json", text, (int64_t)strlen(text), &t);
    free(text);
    json_decref(root);
    return st == PS_OK ? t : NULL;
}

/* The tokens one after the other, those to be predicted in braces: "user\n{Yes.<|im_end|>}". */
static inline const char *chat_text(const ps_tokenizer *t, const int32_t *entries, int64_t n)
{
    static char out[4096];
    size_t at = 0;
    for (int64_t i = 0; i <= n && at < sizeof out - 256; i++) {
        const int was = i > 0 && ps_target_is_marked(entries[i - 1]), is = i < n && ps_target_is_marked(entries[i]);
        if (was != is) out[at++] = is ? '{' : '}';
        if (i == n) break;
        int64_t n_bytes;
        const char *token = ps_tokenizer_token(t, ps_target_id(entries[i]), &n_bytes);
        memcpy(out + at, token, (size_t)n_bytes);
        at += (size_t)n_bytes;
    }
    out[at] = '\0';
    return out;
}

#endif
