#include "kernel/cpu/cpu_dnnl_level.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include <oneapi/dnnl/dnnl.h>

#include "base/base.h"

/* oneDNN's names in their order; ours between them. */
static const struct {
    const char *name;
    int rank;
} level_names[] = {{"SSE41", 10},
                   {"AVX", 15},
                   {"AVX2", 20},
                   {"AVX2_VNNI", 25},
                   {"AVX512_MIC", 25},
                   {"AVX512_MIC_4OPS", 25},
                   {"AVX512_CORE", 30},
                   {"AVX512_CORE_VNNI", 35},
                   {"AVX512_CORE_BF16", 40},
                   {"AVX512_CORE_FP16", 45},
                   {"AVX512_CORE_AMX", 50},
                   {"AVX512_CORE_AMX_FP16", 55},
                   {"DEFAULT", 60},
                   {"ALL", 60}};

static const struct {
    int rank;
    dnnl_cpu_isa_t isa;
    const char *name;
} levels[] = {[PS_DNNL_SSE41] = {10, dnnl_cpu_isa_sse41, "SSE41"},
              [PS_DNNL_AVX2] = {20, dnnl_cpu_isa_avx2, "AVX2"},
              [PS_DNNL_AVX512] = {30, dnnl_cpu_isa_avx512_core, "AVX512_CORE"},
              [PS_DNNL_AVX512_BF16] = {40, dnnl_cpu_isa_avx512_core_bf16, "AVX512_CORE_BF16"},
              [PS_DNNL_AS_IS] = {60, dnnl_cpu_isa_all, "ALL"}};

static ps_dnnl_level level_of_isa(ps_cpu_isa isa, const ps_cpu_tiles *tiles)
{
    switch (isa) {
    case PS_CPU_PORTABLE: return PS_DNNL_SSE41;
    case PS_CPU_AVX2: return PS_DNNL_AVX2;
    case PS_CPU_AVX512: return PS_DNNL_AVX512;
    case PS_CPU_AVX512_BF16:
    case PS_CPU_AMX:
    case PS_CPU_ISA_COUNT: break;
    }
    return ps_cpu_tiles_are_announced(tiles) && !ps_cpu_tiles_work(tiles) ? PS_DNNL_AVX512_BF16 : PS_DNNL_AS_IS;
}

ps_dnnl_level ps_dnnl_level_of(ps_cpu_isa isa, const ps_cpu_tiles *tiles, const char *asked)
{
    const ps_dnnl_level level = level_of_isa(isa, tiles);
    for (size_t i = 0; asked != NULL && i < PS_ARRAY_LEN(level_names); i++)
        if (strcasecmp(asked, level_names[i].name) == 0)
            return level_names[i].rank <= levels[level].rank ? PS_DNNL_AS_IS : level;
    return level;
}

ps_cpu_isa ps_dnnl_level_allows(const char *asked)
{
    for (size_t i = 0; asked != NULL && i < PS_ARRAY_LEN(level_names); i++) {
        if (strcasecmp(asked, level_names[i].name) != 0) continue;
        const int rank = level_names[i].rank;
        if (rank >= levels[PS_DNNL_AVX512_BF16].rank) return PS_CPU_AVX512_BF16;
        if (rank >= levels[PS_DNNL_AVX512].rank) return PS_CPU_AVX512;
        return rank >= levels[PS_DNNL_AVX2].rank ? PS_CPU_AVX2 : PS_CPU_PORTABLE;
    }
    return PS_CPU_AVX512_BF16;
}

const char *ps_dnnl_level_asked(void)
{
    const char *asked = getenv("ONEDNN_MAX_CPU_ISA");
    return asked != NULL ? asked : getenv("DNNL_MAX_CPU_ISA");
}

void ps_dnnl_version(char *out, size_t size)
{
    const dnnl_version_t *v = dnnl_version();
    snprintf(out, size, "oneDNN %d.%d.%d %.40s", v->major, v->minor, v->patch, v->hash != NULL ? v->hash : "");
}

/* oneDNN has this setting once in a process, and so have we. */
static struct {
    pthread_mutex_t lock;
    bool is_fixed;
    ps_cpu_isa isa;
} level_now = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Its first other call fixes what it uses; that may have been somebody else's. The sets are bits. */
static ps_status level_set(ps_cpu_isa isa)
{
    const ps_cpu_tiles tiles = ps_cpu_tiles_detect();
    const ps_dnnl_level level = ps_dnnl_level_of(isa, &tiles, ps_dnnl_level_asked());
    if (level == PS_DNNL_AS_IS || dnnl_set_max_cpu_isa(levels[level].isa) == dnnl_success) return PS_OK;
    const unsigned in_use = (unsigned)dnnl_get_effective_cpu_isa();
    if ((in_use & ~(unsigned)levels[level].isa) == 0) return PS_OK;
    return PS_FAIL(
        PS_EDEVICE,
        "oneDNN was used in this process before, with more instruction sets (%#x) than %s kernels may have on "
        "this processor: set ONEDNN_MAX_CPU_ISA=%s in the environment",
        in_use, ps_cpu_isa_name(isa), levels[level].name);
}

/* The lock is held. */
static ps_status level_fix(ps_cpu_isa isa)
{
    if (!level_now.is_fixed) {
        PS_TRY(level_set(isa));
        level_now.is_fixed = true;
        level_now.isa = isa;
    }
    if (level_now.isa == isa) return PS_OK;
    return PS_FAIL(PS_ESTATE,
                   "kernels for %s: this process computes with %s already, and oneDNN has one instruction set in a "
                   "process; use train.isa = %s, or another process",
                   ps_cpu_isa_name(isa), ps_cpu_isa_name(level_now.isa), ps_cpu_isa_name(level_now.isa));
}

ps_status ps_dnnl_level_fix(ps_cpu_isa isa)
{
    pthread_mutex_lock(&level_now.lock);
    const ps_status st = level_fix(isa);
    pthread_mutex_unlock(&level_now.lock);
    return st;
}

ps_status ps_dnnl_level_fix_any(void)
{
    pthread_mutex_lock(&level_now.lock);
    const ps_status st = level_fix(level_now.is_fixed ? level_now.isa : ps_cpu_isa_detect());
    pthread_mutex_unlock(&level_now.lock);
    return st;
}
