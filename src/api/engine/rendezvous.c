/* rendezvous.c - rendezvous of ranks: the communicator of a configuration, and the check that all of them run the
 * same. */
#include <dlfcn.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/base.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/sized.h"
#include "chunk/comm/agree.h"
#include "chunk/comm/consistency.h"
#include "config/config.h"
#include "train/settings/settings.h"

/* ---- rendezvous ---- */

ps_status ps_comm_init(const ps_config *config, ps_comm **out)
{
    PS_TRY(PS_NEED_FOR(out, "config out", config, out));
    const ps_comm_options o = ps_settings_comm_options(config);
    return ps_comm_open(&o, out);
}

ps_status ps_comm_init_process_group(const ps_config *config, const ps_process_group *group, ps_comm **out)
{
    PS_TRY(PS_NEED_FOR(out, "group out", group, out));
    ps_process_group own;
    ps_config *defaults = NULL;
    PS_TRY(PS_SIZED_TAKE(ps_process_group, group, &own));
    ps_status st = config != NULL ? PS_OK : ps_config_create(&defaults);
    if (st != PS_OK) {
        if (own.close != NULL) own.close(own.user, false);
        return st;
    }
    const ps_comm_options o = ps_settings_comm_options(config != NULL ? config : defaults);
    ps_config_destroy(defaults);
    return ps_comm_open_group(&o, &own, out);
}

/* ---- consistency ---- */

/* The file with this library's code: its own, or the program's, which is compared already. */
static ps_status hash_library(uint64_t *out)
{
    Dl_info where;
    *out = 0;
    if (dladdr((const void *)(uintptr_t)&ps_comm_init, &where) == 0 || where.dli_fname == NULL ||
        strchr(where.dli_fname, '/') == NULL || !ps_file_exists(where.dli_fname))
        return PS_OK;
    return ps_file_xxh3(where.dli_fname, out);
}

/* Paths may differ from machine to machine; the content of files is compared elsewhere. */
static ps_status hash_config(const ps_config *config, uint64_t *out)
{
    static const char *const paths[][2] = {
        {"data", "train"},       {"data", "validation"}, {"data", "tokenizer"},       {"model", "from_pretrained"},
        {"memory", "disk_path"}, {"train", "init_from"}, {"train", "init_optimizer"}, {"profile", "path"},
        {NULL, "hardware"},
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

ps_status ps_comm_check_same(ps_comm *c, const ps_config *config)
{
    PS_TRY(PS_NEED("config", config));
    if (c == NULL || ps_comm_size(c) == 1) return PS_OK;
    ps_consistency_item t[] = {{"version of PatrickStar", 0, "install the same on all machines"},
                               {"program file", 0, "install the same on all machines"},
                               {"library file", 0, "install the same on all machines"},
                               {"configuration", 0, "give all ranks the same file and arguments"}};
    t[0].value = (PS_VERSION_MAJOR * 1000u + PS_VERSION_MINOR) * 1000u + PS_VERSION_PATCH;
    ps_status st = ps_file_xxh3("/proc/self/exe", &t[1].value);
    if (st == PS_OK) st = hash_library(&t[2].value);
    if (st == PS_OK) st = hash_config(config, &t[3].value);
    PS_TRY(ps_comm_agree(c, st));
    return ps_comm_check_consistency(c, t, (int)PS_ARRAY_LEN(t));
}
