/* bert_vocab.h - a WordPiece tokenizer for tests: 300 tokens with the ids of BERT's special tokens, and a few words. */
#ifndef BERT_VOCAB_H
#define BERT_VOCAB_H

#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "data/tokenizer.h"

enum {
    BERT_CLS = 101,
    BERT_SEP = 102,
    BERT_MASK = 103,
    BERT_HELLO = 200,
    BERT_A = 257,
    BERT_B = 275,
    BERT_TOKENS = 300
};

/* NULL when it cannot be made. */
static inline ps_tokenizer *bert_tokenizer(void)
{
    static const struct {
        int id;
        const char *token;
    } words[] = {{0, "[PAD]"},          {100, "[UNK]"}, {BERT_CLS, "[CLS]"}, {BERT_SEP, "[SEP]"}, {BERT_MASK, "[MASK]"},
                 {BERT_HELLO, "hello"}, {201, "x"},     {BERT_A, "a"},       {BERT_B, "b"}};
    char text[BERT_TOKENS * 16] = "", line[24];
    ps_tokenizer *t = NULL;
    for (int i = 0; i < BERT_TOKENS; i++) {
        snprintf(line, sizeof line, "[unused%d]", i);
        for (size_t k = 0; k < PS_ARRAY_LEN(words); k++)
            if (words[k].id == i) snprintf(line, sizeof line, "%s", words[k].token);
        strcat(strcat(text, line), "\n");
    }
    const ps_wordpiece_options options = {0};
    return ps_tokenizer_create_wordpiece("vocab.txt", text, (int64_t)strlen(text), &options, &t) == PS_OK ? t : NULL;
}

#endif
