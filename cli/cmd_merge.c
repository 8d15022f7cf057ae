/* cmd_merge.c - pstar merge: the files of all ranks as one safetensors file. */
#include <glob.h>
#include <stdio.h>

#include "base/bytes.h"
#include "base/status.h"
#include "cli.h"
#include "weights/weight_copy.h"

typedef struct merge_arguments {
    const char *pattern, *paths[2];
    int n_paths;
} merge_arguments;

/* The files that a shell pattern names, in order of their names. */
static ps_status open_pattern(const char *pattern, ps_weight_source **out)
{
    glob_t found;
    const int rc = glob(pattern, 0, NULL, &found);
    ps_status st;
    if (rc == 0)
        st = ps_weight_source_open_files((const char *const *)found.gl_pathv, (int)found.gl_pathc, out);
    else
        st = PS_FAIL(rc == GLOB_NOSPACE ? PS_ENOMEM_HOST : PS_EIO, "%s: no file has such a name", pattern);
    globfree(&found);
    return st;
}

static ps_status merge(const merge_arguments *a)
{
    char bytes_text[PS_BYTES_TEXT_MAX];
    const char *out_path = a->paths[a->n_paths - 1];
    ps_weight_source *s = NULL;
    ps_status st = a->pattern != NULL ? open_pattern(a->pattern, &s) : ps_weight_source_open(a->paths[0], &s);
    if (st == PS_OK) st = ps_weight_merge(s, out_path);
    if (st == PS_OK) {
        int64_t n_bytes = 0;
        for (int i = 0; i < ps_weight_source_count(s); i++) n_bytes += ps_weight_source_get(s, i)->tensor.n_bytes;
        for (int i = 0; i < ps_weight_source_n_files(s); i++) printf("from %s\n", ps_weight_source_path(s, i));
        printf("%s: %d tensors, %s\n", out_path, ps_weight_source_count(s), ps_bytes_format(n_bytes, bytes_text));
    }
    ps_weight_source_close(s);
    return st;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    merge_arguments *a = state->input;
    switch (key) {
    case 'p': a->pattern = arg; return 0;
    case ARGP_KEY_ARG:
        if (a->n_paths == 2) argp_usage(state);
        a->paths[a->n_paths++] = arg;
        return 0;
    case ARGP_KEY_END:
        if (a->n_paths != (a->pattern != NULL ? 1 : 2)) argp_usage(state);
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int cmd_merge(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"pattern", 'p', "PATTERN", 0, "Merge the files of this shell pattern, such as 'DIR/model-*.safetensors'", 0},
        {0}};
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "CHECKPOINT OUT.safetensors\n--pattern PATTERN OUT.safetensors",
        .doc = "Write the weights of all ranks of a checkpoint into one file. CHECKPOINT may be anything that holds "
               "weights, "
               "such as a folder of shards. A tensor that is in several files must be the same in all of them."};
    merge_arguments a = {0};
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    return program_report("merge", merge(&a));
}
