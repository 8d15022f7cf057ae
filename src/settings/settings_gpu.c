/* settings_gpu.c - is there a GPU to compute on, which one, and how much of it is this rank's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/bytes.h"
#include "cuda/open.h"
#include "settings/settings_impl.h"

/* "auto": a GPU that can be used is used. Why one cannot is kept: for who asked for it the error of opening, since plans
 * for other machines need none; else for a word about it. */
void ps_settings_find_gpu(const ps_options *o, ps_settings *s)
{
    const bool is_auto = o->train_backend == PS_CONFIG_BACKEND_AUTO;
    s->backend_kind = is_auto ? PS_BACKEND_CPU : PS_BACKEND_CUDA;
    if (is_auto && (s->same_bits || !ps_cuda_is_expected())) return;
    s->gpu.n_sharers = 1;
    s->gpu.status = ps_cuda_find(0, &s->gpu.found);
    if (s->gpu.status == PS_OK)
        s->backend_kind = PS_BACKEND_CUDA;
    else
        snprintf(s->gpu.why_not, sizeof s->gpu.why_not, "%s", ps_last_error());
    s->checks_order = s->backend_kind == PS_BACKEND_CUDA && ps_cuda_get_parts()->checks_order;
}

static ps_status refuse(const ps_settings *s)
{
    return PS_FAIL(s->gpu.status, "train.backend = cuda: %s; or set train.backend = cpu", s->gpu.why_not);
}

/* Of `here` ranks on a machine, the local-th: in turn. */
static void take_turn(ps_settings *s, int32_t local, int32_t here)
{
    const int32_t n = s->gpu.found.n_gpus > 0 ? s->gpu.found.n_gpus : 1;
    s->gpu.ordinal = local % n;
    s->gpu.n_sharers = (here - s->gpu.ordinal + n - 1) / n;
}

void ps_settings_imagine_gpu(ps_settings *s, const ps_options *o, int32_t rank, int32_t n)
{
    take_turn(s, rank, n);
    if (o->memory_device == PS_BYTES_AUTO) s->budgets.bytes[PS_TIER_DEVICE] /= s->gpu.n_sharers;
}

double ps_settings_visible_gpus(void)
{
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    return text != NULL ? (double)(uint32_t)XXH3_64bits(text, strlen(text)) : 0; /* as a double it is whole */
}

ps_status ps_settings_share_gpu(ps_settings *s, const ps_options *o, int32_t local, int32_t here, bool is_dealt_out)
{
    if (s->gpu.status != PS_OK) return refuse(s);
    take_turn(s, is_dealt_out ? 0 : local, is_dealt_out ? 1 : here);
    PS_TRY(ps_cuda_find(s->gpu.ordinal, &s->gpu.found));
    if (o->memory_device == PS_BYTES_AUTO)
        s->budgets.bytes[PS_TIER_DEVICE] = ps_settings_gpu_bytes(s, o) / s->gpu.n_sharers;
    return PS_OK;
}

int64_t ps_settings_gpu_bytes(const ps_settings *s, const ps_options *o)
{
    return (int64_t)((double)s->gpu.found.usable_bytes * o->client_mem_tracer_overall_gpu_mem_ratio);
}

/* Pages are taken as they are wanted, so what is too much would be found in the middle of a step. */
static ps_status check_budget(const ps_settings *s)
{
    const ps_cuda_found *f = &s->gpu.found;
    char asked[PS_BYTES_TEXT_MAX], usable[PS_BYTES_TEXT_MAX], total[PS_BYTES_TEXT_MAX], shared[64] = "";
    if (s->budgets.bytes[PS_TIER_DEVICE] <= f->usable_bytes / s->gpu.n_sharers) return PS_OK;
    if (s->gpu.n_sharers > 1) snprintf(shared, sizeof shared, " by %d ranks in all", s->gpu.n_sharers);
    return PS_FAIL(
        PS_EBUDGET,
        "memory.device = %s, but of the %s of GPU %d (%s) %s (%lld) can be used%s: lower it, or leave it out",
        ps_bytes_format(s->budgets.bytes[PS_TIER_DEVICE], asked), ps_bytes_format(f->info.total_bytes, total),
        s->gpu.ordinal, f->info.name, ps_bytes_format(f->usable_bytes, usable), (long long)f->usable_bytes, shared);
}

static ps_status open_it(ps_settings *s, ps_backend *host)
{
    if (s->plans_only)
        return ps_backend_create_cuda_for_plans(s->gpu.found.page_bytes, ps_cuda_get_parts()->product_bytes, host,
                                                &s->backend);
    return ps_backend_open_cuda(s->gpu.ordinal, host, &s->backend);
}

ps_status ps_settings_open_gpu(ps_settings *s, ps_backend *host)
{
    const ps_status st = s->gpu.status != PS_OK ? refuse(s) : check_budget(s);
    if (st == PS_OK) return open_it(s, host);
    ps_backend_destroy(host);
    return st;
}
