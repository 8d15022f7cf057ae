/* cmd_merge.c - pstar merge: merges the files of all ranks into one. */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/checkpoint/checkpoint_check.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/status.h"
#include "cli.h"
#include "merge_adapters.h"
#include "weights/weight_copy.h"

typedef struct merge_arguments {
    const char *pattern, *paths[3];
    const char *dtype;
    bool force;
    int n_paths;
    int n_files; /* 0: not given */
} merge_arguments;

enum { PATH_MAX_BYTES = 4096, FILES_MAX = 65536 };

/* The files that match a shell pattern, sorted by name. */
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

/* Replace the only '*' of the pattern. */
static ps_status fill_pattern(const char *pattern, const char *text, char path[PATH_MAX_BYTES])
{
    const char *star = strchr(pattern, '*');
    if (star == NULL || strchr(star + 1, '*') != NULL)
        return PS_FAIL(PS_EINVAL, "--pattern %s: with --num it has one '*', where the ranks' numbers stand", pattern);
    const int n = snprintf(path, PATH_MAX_BYTES, "%.*s%s%s", (int)(star - pattern), pattern, text, star + 1);
    return n < PATH_MAX_BYTES ? PS_OK : PS_FAIL(PS_EINVAL, "--pattern: a path of %d bytes", n);
}

/* As PatrickStar's tools/merge_checkpoint.py: the '*' of the pattern is 0, 1, ... n - 1. */
static ps_status open_numbered(const char *pattern, int n, ps_weight_source **out)
{
    char **paths = calloc((size_t)n, sizeof *paths), path[PATH_MAX_BYTES];
    ps_status st = paths != NULL ? PS_OK : PS_FAIL(PS_ENOMEM_HOST, "no memory for %d paths", n);
    for (int i = 0; i <= n && st == PS_OK; i++) {
        char number[16];
        snprintf(number, sizeof number, "%d", i);
        st = fill_pattern(pattern, number, path);
        if (st == PS_OK && i == n && ps_file_exists(path))
            st = PS_FAIL(PS_EFORMAT, "%s is there too, but --num says %d files", path, n);
        if (st == PS_OK && i < n && (paths[i] = strdup(path)) == NULL)
            st = PS_FAIL(PS_ENOMEM_HOST, "no memory for a path");
    }
    if (st == PS_OK) st = ps_weight_source_open_files((const char *const *)paths, n, out);
    for (int i = 0; paths != NULL && i < n; i++) free(paths[i]);
    free(paths);
    return st;
}

static ps_status open_source(const merge_arguments *a, ps_weight_source **out)
{
    if (a->pattern != NULL)
        return a->n_files > 0 ? open_numbered(a->pattern, a->n_files, out) : open_pattern(a->pattern, out);
    PS_TRY(ps_weight_source_open(a->paths[0], out));
    const int n = ps_weight_source_n_files(*out);
    if (a->n_files == 0 || n == a->n_files) return PS_OK;
    ps_weight_source_close(*out);
    *out = NULL;
    return PS_FAIL(PS_EFORMAT, "%s: %d files of weights, but --num says %d", a->paths[0], n, a->n_files);
}

static ps_status merge(const merge_arguments *a)
{
    char bytes_text[PS_BYTES_TEXT_MAX], merged[PATH_MAX_BYTES];
    const char *out_path = merged;
    ps_weight_source *s = NULL;
    ps_status st = PS_OK;
    if (a->n_paths > 0)
        out_path = a->paths[a->n_paths - 1];
    else
        st = fill_pattern(a->pattern, "merged", merged);
    if (st == PS_OK) st = open_source(a, &s);
    if (st == PS_OK) st = ps_checkpoint_check_source(s);
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
    char *end;
    long n;
    switch (key) {
    case 'p': a->pattern = arg; return 0;
    case 'd': a->dtype = arg; return 0;
    case 'f': a->force = true; return 0;
    case 'n':
        n = strtol(arg, &end, 10);
        if (*arg == '\0' || *end != '\0' || n < 1 || n > FILES_MAX)
            argp_error(state, "--num %s: expected a number of files from 1 to %d", arg, FILES_MAX);
        a->n_files = (int)n;
        return 0;
    case ARGP_KEY_ARG:
        if (a->n_paths == 3) argp_usage(state);
        a->paths[a->n_paths++] = arg;
        return 0;
    case ARGP_KEY_END:
        if (a->n_paths == 3 && a->pattern == NULL && a->n_files == 0) return 0;
        if (a->dtype != NULL || a->force) argp_error(state, "--dtype and --force are for BASE ADAPTER FOLDER");
        if (a->n_paths != (a->pattern != NULL ? 1 : 2) && (a->n_paths != 0 || a->pattern == NULL || a->n_files == 0))
            argp_usage(state);
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int cmd_merge(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"pattern", 'p', "PATTERN", 0, "Merge the files of this shell pattern, such as 'DIR/model-*.safetensors'", 0},
        {"num", 'n', "N", 0,
         "There are N files, one a rank, and no other number will do; with --pattern its '*' stands for 0 to N - 1", 0},
        {"dtype", 'd', "TYPE", 0, "Of merged adapters: round weights to f32, bf16 or f16 (default: as the base's)", 0},
        {"force", 'f', NULL, 0, "Replace FOLDER if it is there; it must hold files only", 0},
        {0}};
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "CHECKPOINT OUT\nBASE ADAPTER FOLDER\n--pattern PATTERN OUT\n--pattern PATTERN --num N",
        .doc =
            "Write the weights of all ranks of a checkpoint into one file: OUT.pt, .pth or .bin as torch.save writes "
            "it, "
            "else safetensors. CHECKPOINT may be anything that holds weights, such as a folder of shards. A tensor "
            "that "
            "is in several files must be the same in all of them. Without OUT its name is the pattern with \"merged\" "
            "for the '*', as PatrickStar's merge_checkpoint.py has it. Files of a checkpoint are first compared with "
            "the hashes in its state.json. With three arguments adapters are added to the weights of their base: BASE "
            "is "
            "a Hugging Face model, ADAPTER a folder of peft, or a run with adapters, FOLDER a new Hugging Face model. "
            "Sums "
            "are computed in fp32 or finer, and rounded once."};
    merge_arguments a = {0};
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    return program_report("merge", a.n_paths == 3 ? merge_adapters(a.paths, a.dtype, a.force) : merge(&a));
}
