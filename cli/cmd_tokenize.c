/* cmd_tokenize.c - pstar tokenize: encodes text files to a token file, and decodes token files. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/machine.h"
#include "base/mem.h"
#include "base/status.h"
#include "cli.h"
#include "data/byte_source.h"
#include "data/text_buffer.h"
#include "data/token_file.h"
#include "data/tokenizer.h"
#include "sample_view.h"

#define MAX_TEXT_BYTES ((int64_t)1 << 34)

typedef struct tokenize_arguments {
    const char *vocabulary, *output;
    bool decode, added_tokens;
    int64_t sample; /* -1: none */
    char **files;
    int n_files;
} tokenize_arguments;

static ps_status encode_file(ps_tokenizer *t, const char *path, bool added_tokens, ps_id_list *out)
{
    char *text = NULL;
    int64_t n_bytes;
    ps_encoding e = {0};
    const ps_encode_options options = {.added_tokens = added_tokens, .bare = true};
    ps_status st = PS_OK;
    PS_TRY_GOTO(ps_byte_source_read_all(path, MAX_TEXT_BYTES, "", &text, &n_bytes));
    const int64_t begin = ps_clock_ns();
    PS_TRY_GOTO(ps_tokenizer_encode_sequence(t, &options, text, n_bytes, NULL, 0, &e));
    const double seconds = (double)(ps_clock_ns() - begin) * 1e-9;
    PS_TRY_GOTO(ps_ids_append_all(out, e.ids, e.n));
    printf("%s: %lld bytes, %lld tokens, %.1f MB/s\n", path, (long long)n_bytes, (long long)e.n,
           (double)n_bytes * 1e-6 / (seconds > 0 ? seconds : 1e-9));
out:
    ps_encoding_deinit(&e);
    ps_mem_free(text);
    return st;
}

/* Concatenate the files, with the end-of-text token (<|endoftext|>) between them. */
static ps_status encode(ps_tokenizer *t, const tokenize_arguments *a)
{
    ps_id_list all = {0};
    ps_status st = PS_OK;
    const int32_t eot = ps_tokenizer_eot(t);
    for (int i = 0; i < a->n_files; i++) {
        if (i > 0 && eot >= 0) PS_TRY_GOTO(ps_ids_append(&all, eot));
        PS_TRY_GOTO(encode_file(t, a->files[i], a->added_tokens, &all));
    }
    if (all.n == 0) {
        st = PS_FAIL(PS_EFORMAT, "%s: no text, so there are no tokens to write", a->files[0]);
        goto out;
    }
    PS_TRY_GOTO(ps_token_file_write(a->output, all.ids, all.n));
    printf("%s: %lld tokens\n", a->output, (long long)all.n);
out:
    ps_mem_free(all.ids);
    return st;
}

static ps_status decode_file(ps_tokenizer *t, const char *path, FILE *out)
{
    enum { AT_ONCE = 65536 };
    ps_token_file *f = NULL;
    int32_t *ids = NULL;
    char *text = NULL;
    ps_decoding decoding = {0};
    ps_status st = PS_OK;
    PS_TRY_GOTO(ps_token_file_open(path, &f));
    PS_TRY_GOTO(ps_mem_alloc(AT_ONCE, sizeof *ids, &ids));
    for (int64_t done = 0, all = ps_token_file_count(f); done < all; done += AT_ONCE) {
        const int64_t n = ps_min_i64(AT_ONCE, all - done);
        int64_t n_bytes;
        PS_TRY_GOTO(ps_token_file_read(f, done, n, ps_tokenizer_vocab_size(t), ids));
        PS_TRY_GOTO(ps_tokenizer_decode_next(t, &decoding, ids, n, &text, &n_bytes));
        if (fwrite(text, 1, (size_t)n_bytes, out) != (size_t)n_bytes) {
            st = PS_FAIL(PS_EIO, "cannot write the text");
            goto out;
        }
        ps_mem_free(text);
        text = NULL;
    }
out:
    ps_mem_free(text);
    ps_mem_free(ids);
    ps_token_file_close(f);
    return st;
}

static ps_status decode(ps_tokenizer *t, const tokenize_arguments *a)
{
    FILE *out = a->output == NULL ? stdout : fopen(a->output, "wb");
    if (out == NULL) return PS_FAIL(PS_EIO, "cannot write %s", a->output);
    ps_status st = PS_OK;
    for (int i = 0; i < a->n_files && st == PS_OK; i++) st = decode_file(t, a->files[i], out);
    const bool flushed = fflush(out) == 0;
    if (out != stdout) fclose(out);
    if (st == PS_OK && !flushed) st = PS_FAIL(PS_EIO, "cannot write %s", a->output == NULL ? "the text" : a->output);
    return st;
}

/* The configuration defines samples. */
static void check_alone(struct argp_state *state, const tokenize_arguments *a)
{
    const char *option = a->vocabulary != NULL ? "--vocab"
                         : a->output != NULL   ? "--output"
                         : a->decode           ? "--decode"
                         : a->added_tokens     ? "--special"
                                               : NULL;
    if (option != NULL) argp_error(state, "%s has no effect with --sample, where CONFIG says all; remove it", option);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    tokenize_arguments *a = state->input;
    char *end;
    switch (key) {
    case 'v': a->vocabulary = arg; return 0;
    case 'o': a->output = arg; return 0;
    case 'd': a->decode = true; return 0;
    case 's': a->added_tokens = true; return 0;
    case ARGP_KEY_ARG: a->files[a->n_files++] = arg; return 0;
    case 'n':
        errno = 0;
        a->sample = strtoll(arg, &end, 10);
        if (errno != 0 || *end != '\0' || end == arg || a->sample < 0)
            argp_error(state, "--sample: '%s' is not a whole number from 0", arg);
        return 0;
    case ARGP_KEY_END:
        if (a->sample >= 0) {
            check_alone(state, a);
            if (a->n_files == 0) argp_error(state, "which configuration? Give the JSON file of the training run");
            return 0;
        }
        if (a->decode && a->added_tokens) argp_error(state, "--special has no effect with --decode; remove it");
        if (a->vocabulary == NULL) argp_error(state, "--vocab is needed");
        if (a->n_files == 0) argp_error(state, "which files?");
        if (a->output == NULL && !a->decode) argp_error(state, "--output is needed");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int cmd_tokenize(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"vocab", 'v', "PATH", 0, "Folder with tokenizer.json, vocab.json and merges.txt, or vocab.txt; or such a file",
         0},
        {"output", 'o', "FILE", 0, "Token file to write, in the format of llm.c; with --decode the text", 0},
        {"decode", 'd', NULL, 0, "Turn token files back into text", 0},
        {"special", 's', NULL, 0, "Text that reads like a special or added token becomes it; else it is only text", 0},
        {"sample", 'n', "N", 0,
         "Show sample N of CONFIG's data.train, from 0, token by token, with what is to be predicted", 0},
        {0}};
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "--vocab PATH --output FILE.bin TEXT...\n--vocab PATH --decode FILE.bin...\n"
                    "--sample N CONFIG [key=value ...]",
        .doc =
            "Turn texts into one token file, the token that ends a text (<|endoftext|>) between them; or show what a "
            "configuration trains on."};
    tokenize_arguments a = {.sample = -1, .files = calloc((size_t)argc, sizeof *a.files)};
    if (a.files == NULL) return EXIT_OTHER;
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    ps_tokenizer *t = NULL;
    ps_status st = a.sample >= 0 ? sample_view_print(a.files[0], a.files + 1, a.n_files - 1, a.sample)
                                 : ps_tokenizer_open(a.vocabulary, &t);
    if (st == PS_OK && a.sample < 0) st = a.decode ? decode(t, &a) : encode(t, &a);
    const int code = program_report("tokenize", st);
    ps_tokenizer_close(t);
    free(a.files);
    return code;
}
