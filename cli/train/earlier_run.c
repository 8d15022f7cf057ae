#include "earlier_run.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client_file.h"
#include "event_file.h"

enum { PATH_BYTES = CLIENT_FOLDER_MAX + 64 };

typedef struct earlier_run {
    bool has_weights, has_checkpoints;
    int64_t steps; /* the last one of metrics.jsonl, 0: none */
} earlier_run;

static const char *path_in(const char *folder, const char *name, char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "%s/%s", folder, name);
    return path;
}

/* Lines are in the order of steps; the last one may be truncated. */
static int64_t last_step_of(const char *text, size_t n_bytes)
{
    int64_t last = 0;
    for (const char *line = text, *end; (end = memchr(line, '\n', n_bytes - (size_t)(line - text))) != NULL;
         line = end + 1) {
        json_t *o = json_loadb(line, (size_t)(end - line), 0, NULL);
        const json_t *step = json_object_get(o, "step");
        if (json_is_integer(step)) last = json_integer_value(step);
        json_decref(o);
    }
    return last;
}

static ps_status look(const char *folder, earlier_run *e)
{
    char path[PATH_BYTES], *text = NULL, *newest = NULL;
    size_t n = 0;
    *e = (earlier_run){.has_weights = access(path_in(folder, "model.safetensors", path), F_OK) == 0};
    const ps_status st = ps_checkpoint_find(path_in(folder, "checkpoints", path), &newest, NULL);
    e->has_checkpoints = newest != NULL || st == PS_EFORMAT; /* a damaged `latest` also means a run */
    ps_free(newest);
    if (st != PS_EFORMAT) TRY(st);
    TRY(client_read_file(path_in(folder, "metrics.jsonl", path), &text, &n));
    if (text != NULL) e->steps = last_step_of(text, n);
    free(text);
    return PS_OK;
}

/* Whether the named checkpoint is in the folder. True for a missing one, as reading it fails with a message. */
static bool is_inside(const char *folder, const char *path)
{
    char *outer = realpath(folder, NULL), *inner = realpath(path, NULL);
    const size_t n = outer != NULL ? strlen(outer) : 0;
    const bool yes =
        inner == NULL || (outer != NULL && strncmp(inner, outer, n) == 0 && (inner[n] == '/' || inner[n] == '\0'));
    free(outer);
    free(inner);
    return yes;
}

/* Whether the folder has the initial weights of the run, which must not be overwritten. */
static ps_status check_source(const char *folder, const ps_config *config)
{
    static const char *const options[] = {"model.from_pretrained", "train.init_from"};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        const char *source = client_string(config, options[i]);
        if (source[0] == '\0' || access(source, F_OK) != 0 || !is_inside(folder, source)) continue;
        return client_fail(PS_EINVAL,
                           "train.output_dir = %s holds what the run begins with (%s = %s), and would be written over: "
                           "name another train.output_dir",
                           folder, options[i], source);
    }
    return PS_OK;
}

ps_status earlier_run_check(const char *folder, const ps_config *config, bool resume, const char *resume_from,
                            bool overwrite)
{
    earlier_run e;
    char steps[32] = "";
    if (overwrite && resume)
        return client_fail(PS_EINVAL, "--resume continues the run in %s, --overwrite removes it: use one of them",
                           folder);
    if (!resume) TRY(check_source(folder, config));
    TRY(look(folder, &e));
    if (e.steps > 0) snprintf(steps, sizeof steps, ", %lld steps", (long long)e.steps);
    const bool is_own = resume && (resume_from == NULL || is_inside(folder, resume_from));
    if (is_own && resume_from == NULL && e.has_weights && !e.has_checkpoints)
        return client_fail(PS_EINVAL,
                           "%s holds the weights of an earlier run (model.safetensors%s) and no checkpoint to go on "
                           "from: begin a new run from them with train.init_from=%s/model.safetensors "
                           "train.output_dir=NEW",
                           folder, steps, folder);
    if (is_own || overwrite || (!e.has_weights && !e.has_checkpoints && e.steps == 0)) return PS_OK;
    return client_fail(PS_EINVAL,
                       "%s holds the %s of an earlier run (%s%s): %sname another train.output_dir, or add --overwrite",
                       folder,
                       e.has_weights       ? "weights"
                       : e.has_checkpoints ? "checkpoints"
                                           : "metrics",
                       e.has_weights       ? "model.safetensors"
                       : e.has_checkpoints ? "checkpoints"
                                           : "metrics.jsonl",
                       steps, e.has_checkpoints && !resume ? "go on with --resume, " : "");
}

ps_status earlier_run_remove(const char *folder)
{
    static const char *const names[] = {"model.safetensors", "summary.json", "metrics.jsonl"};
    char path[PATH_BYTES];
    TRY(ps_checkpoint_remove_all(path_in(folder, "checkpoints", path)));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (unlink(path_in(folder, names[i], path)) != 0 && errno != ENOENT)
            return client_fail(PS_EIO, "%s: cannot remove what an earlier run left: %s", path, strerror(errno));
    return event_file_cut_all(folder, 0);
}
