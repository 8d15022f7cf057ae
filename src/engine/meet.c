/* meet.c - ranks that come together: the communicator of a configuration, and whether all of them run the same. */
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
#include "comm/agree.h"
#include "comm/rounds.h"
#include "config/config.h"
#include "engine/sameness.h"
#include "patrickstar_data.h"
#include "settings/settings.h"

/* ---- meeting ---- */

ps_status ps_comm_meet(const ps_config *config, ps_comm **out)
{
    PS_TRY(PS_NEED_FOR(out, "config out", config, out));
    const ps_comm_options o = ps_settings_comm_options(config);
    return ps_comm_open(&o, out);
}

static ps_status meet_by(const ps_config *config, const ps_messages *own, ps_comm **out)
{
    ps_config *defaults = NULL;
    ps_status st = config != NULL ? PS_OK : ps_config_create(&defaults);
    if (st != PS_OK) {
        if (own->close != NULL) own->close(own->user, false);
        return st;
    }
    const ps_comm_options o = ps_settings_comm_options(config != NULL ? config : defaults);
    ps_config_destroy(defaults);
    return ps_comm_open_messages(&o, own, out);
}

ps_status ps_comm_meet_by(const ps_config *config, const ps_messages *messages, ps_comm **out)
{
    PS_TRY(PS_NEED_FOR(out, "messages out", messages, out));
    ps_messages own;
    PS_TRY(PS_SIZED_TAKE(ps_messages, messages, &own));
    return meet_by(config, &own, out);
}

ps_status ps_comm_meet_by_process_group(const ps_config *config, const ps_process_group *group, ps_comm **out)
{
    PS_TRY(PS_NEED_FOR(out, "group out", group, out));
    ps_process_group own;
    ps_messages messages;
    PS_TRY(PS_SIZED_TAKE(ps_process_group, group, &own));
    PS_TRY(ps_rounds_make(&own, &messages));
    return meet_by(config, &messages, out);
}

/* ---- sameness ---- */

ps_status ps_sameness_compare(ps_comm *c, const ps_trait *traits, int n)
{
    uint64_t mine[8], *all = NULL;
    const int32_t size = ps_comm_size(c);
    PS_ASSERT(n <= (int)PS_ARRAY_LEN(mine));
    for (int i = 0; i < n; i++) mine[i] = traits[i].value;
    ps_status st = PS_OK;
    PS_TRY_GOTO(ps_comm_agree(c, ps_mem_alloc((size_t)size * (size_t)n, sizeof *all, &all)));
    PS_TRY_GOTO(ps_comm_all_gather(c, mine, n * (int64_t)sizeof *mine, all));
    for (int32_t r = 1; r < size && st == PS_OK; r++)
        for (int i = 0; i < n && st == PS_OK; i++) {
            if (all[r * n + i] == all[i]) continue;
            st = PS_FAIL(
                PS_EINVAL, "rank %d (%s) has another %s than rank 0 (%s): %016" PRIx64 ", not %016" PRIx64 "; %s", r,
                ps_comm_host(c, r), traits[i].what, ps_comm_host(c, 0), all[r * n + i], all[i], traits[i].remedy);
            ps_fail_on_rank(r, ps_comm_host(c, r), r != ps_comm_rank(c), true);
        }
out:
    ps_mem_free(all);
    return st;
}

ps_status ps_comm_check_feed(ps_comm *c, const ps_feed *feed)
{
    PS_TRY(PS_NEED("feed", feed));
    uint64_t hash = 0;
    if (c == NULL || ps_comm_size(c) == 1) return PS_OK;
    PS_TRY(ps_comm_agree(c, ps_feed_xxh3(feed, &hash)));
    const ps_trait t[] = {
        {"number of training samples", (uint64_t)ps_feed_sample_count(feed, PS_SPLIT_TRAIN), "data.train differs"},
        {"number of validation samples", (uint64_t)ps_feed_sample_count(feed, PS_SPLIT_VALIDATION),
         "data.validation differs"},
        {"hash of all data", hash, "data.train, data.validation or the tokenizer differs"}};
    return ps_sameness_compare(c, t, (int)PS_ARRAY_LEN(t));
}

/* The file that this library's code is in: its own, or the program's, which counts already. */
static ps_status hash_library(uint64_t *out)
{
    Dl_info where;
    *out = 0;
    if (dladdr((const void *)(uintptr_t)&ps_comm_meet, &where) == 0 || where.dli_fname == NULL ||
        strchr(where.dli_fname, '/') == NULL || !ps_file_exists(where.dli_fname))
        return PS_OK;
    return ps_file_xxh3(where.dli_fname, out);
}

/* Where things lie may differ from machine to machine; what is in them is compared elsewhere. */
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
    ps_trait t[] = {{"version of PatrickStar", 0, "install the same on all machines"},
                    {"program file", 0, "install the same on all machines"},
                    {"library file", 0, "install the same on all machines"},
                    {"configuration", 0, "give all ranks the same file and arguments"}};
    t[0].value = (PS_VERSION_MAJOR * 1000u + PS_VERSION_MINOR) * 1000u + PS_VERSION_PATCH;
    ps_status st = ps_file_xxh3("/proc/self/exe", &t[1].value);
    if (st == PS_OK) st = hash_library(&t[2].value);
    if (st == PS_OK) st = hash_config(config, &t[3].value);
    PS_TRY(ps_comm_agree(c, st));
    return ps_sameness_compare(c, t, (int)PS_ARRAY_LEN(t));
}
