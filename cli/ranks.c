#include "ranks.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/base.h"
#include "base/file.h"
#include "base/mem.h"
#include "cli.h"
#include "known_machine.h"
#include "settings/settings.h"

#define PROGRAM_BYTES_MAX (1024 * PS_MIB)

/* ---- meeting ---- */

static ps_status meet(const ps_config *config, ps_comm **out)
{
    const ps_comm_options options = ps_settings_comm_options(config);
    PS_TRY(ps_comm_open(&options, out));
    if (ps_comm_rank(*out) == 0 || freopen("/dev/null", "w", stdout) != NULL) return PS_OK;
    return PS_FAIL(PS_EIO, "/dev/null cannot be opened");
}

/* A rank that cannot read its configuration has still to tell the others, and meets them with the defaults. */
static ps_status refuse(ps_status st, ps_comm **out)
{
    char text[768];
    ps_config *defaults = NULL;
    snprintf(text, sizeof text, "%s", ps_last_error());
    if (ps_config_create(&defaults) == PS_OK) (void)meet(defaults, out);
    ps_config_destroy(defaults);
    st = PS_FAIL(st, "%s", text);
    return *out != NULL ? ps_comm_agree(*out, st) : st;
}

ps_status ranks_open(const char *path, char *const *overrides, int n_overrides, ps_config **config, ps_comm **comm)
{
    *comm = NULL;
    const ps_status st = cli_load_config(path, overrides, n_overrides, config);
    if (st != PS_OK) return refuse(st, comm);
    PS_TRY(meet(*config, comm));
    PS_TRY(ps_comm_agree(*comm, PS_OK));
    PS_TRY(ranks_check_program(*comm, *config));
    return known_machine_tell(*config, *comm, 0);
}

/* Do all ranks know of the failure that this one stopped for? */
static bool is_agreed(ps_status st)
{
    int rank;
    return st != PS_ECOMM && sscanf(ps_last_error(), "rank %d (", &rank) == 1;
}

void ranks_tell(ps_comm *c, ps_status st)
{
    if (c != NULL && st != PS_OK && !is_agreed(st)) ps_comm_fail(c, ps_last_error());
}

/* ---- who prints ---- */

const char *ranks_prefix(const ps_comm *c, char text[300])
{
    text[0] = '\0';
    if (c != NULL && ps_comm_rank(c) > 0)
        snprintf(text, 300, "[rank %d %.250s] ", ps_comm_rank(c), ps_comm_host(c, ps_comm_rank(c)));
    return text;
}

int ranks_report(const ps_comm *c, const char *command, ps_status st, int is_verbose)
{
    char prefix[300];
    if (st == PS_OK || (c != NULL && ps_comm_rank(c) > 0 && is_agreed(st))) return cli_exit_code(st);
    const bool has_dump = (st == PS_EBUDGET || st == PS_ENOMEM_DEV) && ps_last_memory_dump()[0] != '\0';
    if (has_dump && is_verbose) fprintf(stderr, "%s\n", ps_last_memory_dump());
    fprintf(stderr, "%spstar %s: %s%s\n", ranks_prefix(c, prefix), command, ps_last_error(),
            has_dump && !is_verbose ? " (--verbose shows who takes which memory)" : "");
    return cli_exit_code(st);
}

/* ---- sameness ---- */

typedef struct trait {
    const char *what;
    uint64_t value;
    const char *remedy;
} trait;

/* Compares all ranks' values with those of rank 0; the first difference is what all ranks report. */
static ps_status compare_traits(ps_comm *c, const trait *traits, int n)
{
    uint64_t mine[8], *all = NULL;
    const int32_t size = ps_comm_size(c);
    PS_ASSERT(n <= (int)PS_ARRAY_LEN(mine));
    for (int i = 0; i < n; i++) mine[i] = traits[i].value;
    ps_status st = PS_OK;
    PS_TRY(ps_mem_alloc((size_t)size * (size_t)n, sizeof *all, &all));
    PS_TRY_GOTO(ps_comm_all_gather(c, mine, n * (int64_t)sizeof *mine, all));
    for (int32_t r = 1; r < size && st == PS_OK; r++)
        for (int i = 0; i < n && st == PS_OK; i++)
            if (all[r * n + i] != all[i])
                st = PS_FAIL(PS_EINVAL,
                             "rank %d (%s) has another %s than rank 0 (%s): %016" PRIx64 ", not %016" PRIx64 "; %s", r,
                             ps_comm_host(c, r), traits[i].what, ps_comm_host(c, 0), all[r * n + i], all[i],
                             traits[i].remedy);
out:
    ps_mem_free(all);
    return st;
}

static ps_status hash_program(uint64_t *out)
{
    char *bytes = NULL;
    int64_t n = 0;
    PS_TRY(ps_file_read_all("/proc/self/exe", PROGRAM_BYTES_MAX, &bytes, &n));
    *out = XXH3_64bits(bytes, (size_t)n);
    ps_mem_free(bytes);
    return PS_OK;
}

/* Where things lie may differ from machine to machine; what is in them is compared elsewhere. */
static ps_status hash_config(const ps_config *config, uint64_t *out)
{
    static const char *const paths[][2] = {
        {"data", "train"},           {"data", "validation"}, {"data", "tokenizer"}, {"model", "from_pretrained"},
        {"memory", "disk_path"},     {"train", "init_from"}, {"profile", "path"},   {NULL, "hardware"},
        {"train", "init_optimizer"},
    };
    char *text = NULL;
    PS_TRY(ps_config_dump_json(config, &text));
    json_t *root = json_loads(text, 0, NULL);
    ps_free(text);
    for (size_t i = 0; i < PS_ARRAY_LEN(paths); i++)
        (void)json_object_del(paths[i][0] != NULL ? json_object_get(root, paths[i][0]) : root, paths[i][1]);
    text = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    json_decref(root);
    if (text == NULL) return PS_FAIL(PS_ENOMEM_HOST, "no memory for the configuration");
    *out = XXH3_64bits(text, strlen(text));
    free(text);
    return PS_OK;
}

ps_status ranks_check_program(ps_comm *c, const ps_config *config)
{
    if (ps_comm_size(c) == 1) return PS_OK;
    trait t[] = {{"version of PatrickStar", 0, "install the same on all machines"},
                 {"program file", 0, "install the same on all machines"},
                 {"configuration", 0, "give all ranks the same file and arguments"}};
    t[0].value = (PS_VERSION_MAJOR * 1000u + PS_VERSION_MINOR) * 1000u + PS_VERSION_PATCH;
    ps_status st = hash_program(&t[1].value);
    if (st == PS_OK) st = hash_config(config, &t[2].value);
    PS_TRY(ps_comm_agree(c, st));
    return compare_traits(c, t, (int)PS_ARRAY_LEN(t));
}

ps_status ranks_check_data(ps_comm *c, uint64_t train_xxh3, const ps_feed *feed)
{
    if (ps_comm_size(c) == 1) return PS_OK;
    const trait t[] = {
        {"number of training samples", (uint64_t)ps_feed_sample_count(feed, PS_SPLIT_TRAIN), "data.train differs"},
        {"number of validation samples", (uint64_t)ps_feed_sample_count(feed, PS_SPLIT_VALIDATION),
         "data.validation differs"},
        {"training data (hash of the first and last samples)", train_xxh3, "data.train or the tokenizer differs"}};
    return compare_traits(c, t, (int)PS_ARRAY_LEN(t));
}

ps_status ranks_any(ps_comm *c, bool *yes)
{
    double any = *yes;
    PS_TRY(ps_comm_all_reduce(c, &any, 1, PS_COMM_MAX));
    *yes = any > 0;
    return PS_OK;
}
