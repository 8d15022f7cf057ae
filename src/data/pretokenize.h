/* pretokenize.h - splits text into pieces, which the model encodes one by one: a list of steps, each of which splits
 * the pieces of the previous step.
 *
 *     REGEX         every match of an expression; `behavior` says what becomes of it (Hugging Face's Split)
 *     PREFIX_SPACE  a space before text that has none (ByteLevel's add_prefix_space)
 *     METASPACE     a mark for each space, and one before text that has none; pieces begin at marks, or the text stays
 *                   whole
 *     BERT          white space goes, each punctuation character is a piece (BertPreTokenizer)
 *     WHITE_SPACE   white space goes (WhitespaceSplit)
 *     DIGITS        numbers, or each digit of them, are pieces
 *     PUNCTUATION   each punctuation character as `behavior` says */
#ifndef PS_DATA_PRETOKENIZE_H
#define PS_DATA_PRETOKENIZE_H

#include "data/regex.h"
#include "data/text_buffer.h"

/* GPT-2's split (openai/gpt-2, src/encoder.py); quantifiers that never backtrack are possessive. */
#define PS_GPT2_SPLIT "'(?:[stmd]|re|ve|ll)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s+(?!\\S)|\\s+"

typedef enum ps_split_behavior { /* where "the-final--countdown" is split at '-', as Hugging Face documents: */
                                 PS_SPLIT_REMOVED,              /* the final countdown */
                                 PS_SPLIT_ISOLATED,             /* the - final - - countdown */
                                 PS_SPLIT_MERGED_WITH_PREVIOUS, /* the- final- - countdown */
                                 PS_SPLIT_MERGED_WITH_NEXT,     /* the -final - -countdown */
                                 PS_SPLIT_CONTIGUOUS,           /* the - final -- countdown */
} ps_split_behavior;

typedef enum ps_pretokenizer_kind {
    PS_PRETOKENIZE_REGEX,
    PS_PRETOKENIZE_PREFIX_SPACE,
    PS_PRETOKENIZE_METASPACE,
    PS_PRETOKENIZE_BERT,
    PS_PRETOKENIZE_WHITE_SPACE,
    PS_PRETOKENIZE_DIGITS,
    PS_PRETOKENIZE_PUNCTUATION,
} ps_pretokenizer_kind;

typedef enum ps_metaspace_prefix { /* where METASPACE puts a mark before the text */
                                   PS_METASPACE_ALWAYS,
                                   PS_METASPACE_FIRST, /* at the beginning of the text only, not after an added token */
                                   PS_METASPACE_NEVER,
} ps_metaspace_prefix;

typedef struct ps_pretokenizer_step {
    ps_pretokenizer_kind kind;
    ps_split_behavior behavior;
    bool invert;     /* REGEX: match the text between the matches */
    ps_regex *regex; /* REGEX: owned */
    char mark[8];    /* METASPACE: one character, zero-terminated */
    ps_metaspace_prefix prefix;
    bool splits;             /* METASPACE: pieces begin at each mark */
    ps_text_buffer prefixed; /* PREFIX_SPACE, METASPACE: scratch */
} ps_pretokenizer_step;

enum { PS_PRETOKENIZER_STEPS_MAX = 16 };

typedef struct ps_pretokenizer { /* zeroed: the text is one piece */
    ps_pretokenizer_step steps[PS_PRETOKENIZER_STEPS_MAX];
    int n_steps;
} ps_pretokenizer;

void ps_pretokenizer_deinit(ps_pretokenizer *p);

/* Called with each piece, in order; pieces are not empty. */
typedef ps_status (*ps_piece_sink)(void *context, const char *piece, int64_t n);

/* What precedes a text. */
typedef enum ps_text_start {
    PS_TEXT_BEGINS,            /* nothing */
    PS_TEXT_AFTER_ADDED_TOKEN, /* an added token: a prefix space may be added */
    PS_TEXT_GOES_ON,           /* text: no prefix space is added */
} ps_text_start;

/* Split `text`, well-formed UTF-8. Stops at the first failure of the sink, and returns it. */
PS_NODISCARD ps_status ps_pretokenize(ps_pretokenizer *p, const char *text, int64_t n, ps_text_start start,
                                      ps_piece_sink sink, void *context);

void ps_pretokenizer_trim(ps_pretokenizer *p); /* free the working memory of long texts */

#endif
