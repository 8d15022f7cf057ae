/* settings_gpu.c - is there a GPU to compute on, which one, and how much of it is this rank's. */
#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "comm/agree.h"
#include "cuda/cudnn_attention.h"
#include "cuda/nccl_collectives.h"
#include "cuda/open.h"
#include "settings/settings_impl.h"

/* ---- which ---- */

/* The same number where the same GPUs of the same machine are seen: launchers may leave each rank its own. */
static uint64_t number_of_view(const char *host)
{
    const char *visible = ps_cuda_visible();
    if (visible == NULL) visible = "all";
    return XXH3_64bits_withSeed(visible, strlen(visible), XXH3_64bits(host, strlen(host)));
}

static ps_status count_ranks_before(ps_comm *comm, uint64_t *views, ps_gpu_turn *out)
{
    const int32_t n = ps_comm_size(comm), rank = ps_comm_rank(comm);
    const uint64_t own = number_of_view(ps_comm_host(comm, rank));
    PS_TRY(ps_comm_all_gather(comm, &own, sizeof own, views));
    *out = (ps_gpu_turn){0};
    for (int32_t i = 0; i < n; i++) {
        if (views[i] != own) continue;
        out->number += i < rank;
        out->n_ranks++;
    }
    return PS_OK;
}

ps_status ps_settings_find_turn(ps_comm *comm, ps_gpu_turn *out)
{
    uint64_t *views;
    *out = (ps_gpu_turn){.n_ranks = 1};
    if (comm == NULL || ps_comm_size(comm) == 1) return PS_OK;
    ps_status st = ps_mem_alloc((size_t)ps_comm_size(comm), sizeof *views, &views);
    st = ps_comm_agree(comm, st);
    if (st == PS_OK) st = count_ranks_before(comm, views, out);
    ps_mem_free(views);
    return st;
}

static void take_turn(ps_settings *s)
{
    const int32_t n = s->gpu.found.n_gpus > 0 ? s->gpu.found.n_gpus : 1;
    s->gpu.ordinal = s->gpu.turn.number % n;
    s->gpu.n_sharers = (s->gpu.turn.n_ranks - s->gpu.ordinal + n - 1) / n;
}

ps_cuda_attention_choice ps_settings_attention(const ps_options *o)
{
    static const ps_cuda_attention_choice choices[] = {[PS_CONFIG_ATTENTION_AUTO] = PS_CUDA_ATTENTION_AUTO,
                                                       [PS_CONFIG_ATTENTION_OWN] = PS_CUDA_ATTENTION_OWN,
                                                       [PS_CONFIG_ATTENTION_CUDNN] = PS_CUDA_ATTENTION_CUDNN};
    return choices[o->train_attention];
}

/* "auto": a GPU that can be used is used. Why one cannot is kept: for who asked for it the error of opening, since plans
 * for other machines need none; else for a word about it. */
void ps_settings_find_gpu(const ps_options *o, ps_settings *s)
{
    const bool is_auto = o->train_backend == PS_CONFIG_BACKEND_AUTO;
    s->backend_kind = is_auto ? PS_BACKEND_CPU : PS_BACKEND_CUDA;
    s->gpu.attention = ps_settings_attention(o);
    if (is_auto && (s->same_bits || !ps_cuda_is_expected())) return;
    s->gpu.status = ps_cuda_find(s->gpu.turn.number, s->gpu.attention, &s->gpu.found);
    take_turn(s);
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

ps_status ps_settings_check_gpu(const ps_settings *s)
{
    return s->gpu.status == PS_OK ? PS_OK : refuse(s);
}

void ps_settings_imagine_gpu(ps_settings *s, const ps_options *o, int32_t rank, int32_t n)
{
    s->gpu.turn = (ps_gpu_turn){rank, n};
    take_turn(s);
    if (o->memory_device == PS_BYTES_AUTO) s->budgets.bytes[PS_TIER_DEVICE] = ps_settings_gpu_bytes(s, o);
}

/* ---- how much of it ---- */

/* Usable is what is left when one rank has loaded what it needs; the others want as much again. */
int64_t ps_settings_gpu_share_bytes(const ps_settings *s)
{
    const ps_cuda_found *f = &s->gpu.found;
    const int64_t n = s->gpu.n_sharers, loaded_bytes = ps_max_i64(0, f->info.free_bytes - f->usable_bytes);
    const int64_t nccl_bytes = s->nccl.is_used ? ps_cuda_get_parts()->nccl_bytes : 0;
    return ps_max_i64(0, f->usable_bytes - (n - 1) * loaded_bytes - nccl_bytes) / n;
}

int64_t ps_settings_gpu_bytes(const ps_settings *s, const ps_options *o)
{
    return (int64_t)((double)ps_settings_gpu_share_bytes(s) * o->client_mem_tracer_overall_gpu_mem_ratio);
}

/* Pages are taken as they are wanted, so what is too much would be found in the middle of a step. */
static ps_status check_budget(const ps_settings *s)
{
    const ps_cuda_found *f = &s->gpu.found;
    const int64_t share_bytes = ps_settings_gpu_share_bytes(s);
    char asked[PS_BYTES_TEXT_MAX], usable[PS_BYTES_TEXT_MAX], total[PS_BYTES_TEXT_MAX], shared[64] = "";
    char left[PS_BYTES_TEXT_MAX], to_nccl[96] = "";
    if (s->budgets.bytes[PS_TIER_DEVICE] <= share_bytes) return PS_OK;
    if (s->nccl.is_used)
        snprintf(to_nccl, sizeof to_nccl, " beside %s that are left to NCCL (comm.collectives)",
                 ps_bytes_format(ps_cuda_get_parts()->nccl_bytes, left));
    if (s->gpu.n_sharers > 1) snprintf(shared, sizeof shared, " by each of %d ranks", s->gpu.n_sharers);
    return PS_FAIL(
        PS_EBUDGET,
        "memory.device = %s, but of the %s of GPU %d (%s) %s (%lld) can be used%s%s: lower it, or leave it out",
        ps_bytes_format(s->budgets.bytes[PS_TIER_DEVICE], asked), ps_bytes_format(f->info.total_bytes, total),
        s->gpu.ordinal, f->info.name, ps_bytes_format(share_bytes, usable), (long long)share_bytes, shared, to_nccl);
}

/* ---- what brings chunks from rank to rank ---- */

#define NCCL_STAGING_MAX (64 * PS_MIB)
#define NCCL_STAGING_SHARE 64 /* of the device's budget */

static ps_status look_for_nccl(const ps_settings *s)
{
    const ps_nccl *library;
    if (s->backend_kind == PS_BACKEND_SIM) return PS_OK; /* a rank for each GPU */
    if (s->backend_kind != PS_BACKEND_CUDA)
        return PS_FAIL(PS_EINVAL, "it is for GPUs, and train.backend is %s", ps_backend_kind_name(s->backend_kind));
    if (s->gpu.n_sharers > 1)
        return PS_FAIL(PS_EINVAL, "%d ranks share GPU %d, and NCCL wants one each", s->gpu.n_sharers, s->gpu.ordinal);
    return ps_cuda_get_parts()->nccl != NULL ? ps_cuda_get_parts()->nccl(&library)
                                             : PS_FAIL(PS_ENOSYS, "there is no NCCL here");
}

/* "auto": all have it, or none uses it. */
static ps_status agree_on_nccl(ps_settings *s, ps_comm *comm, ps_status st)
{
    double has_all = st == PS_OK;
    if (st != PS_OK) snprintf(s->nccl.why_not, sizeof s->nccl.why_not, "%s", ps_last_error());
    if (comm != NULL) PS_TRY(ps_comm_all_reduce(comm, &has_all, 1, PS_COMM_MIN));
    s->nccl.is_used = has_all > 0;
    if (st == PS_OK && has_all == 0) snprintf(s->nccl.why_not, sizeof s->nccl.why_not, "another rank cannot use NCCL");
    return PS_OK;
}

/* It was asked for. */
static ps_status insist_on_nccl(ps_settings *s, ps_comm *comm, ps_status st)
{
    if (st != PS_OK) {
        char why[512];
        snprintf(why, sizeof why, "%s", ps_last_error());
        st = PS_FAIL(st, "comm.collectives = nccl: %s; comm.collectives = messages does without", why);
    }
    PS_TRY(ps_comm_agree(comm, st));
    s->nccl.is_used = true;
    return PS_OK;
}

static int64_t nccl_staging_bytes(const ps_settings *s, const ps_options *o, int32_t n_ranks)
{
    const int64_t share_bytes = s->budgets.bytes[PS_TIER_DEVICE] / NCCL_STAGING_SHARE / PS_PAGE_BYTES * PS_PAGE_BYTES;
    if (o->comm_staging != PS_BYTES_AUTO) return s->comm_staging_bytes;
    return ps_max_i64(PS_PAGE_BYTES * n_ranks, ps_min_i64(NCCL_STAGING_MAX, share_bytes));
}

ps_status ps_settings_choose_nccl(ps_settings *s, const ps_options *o, ps_comm *comm, int32_t n_ranks)
{
    const bool is_possible = s->backend_kind == PS_BACKEND_CUDA || s->backend_kind == PS_BACKEND_SIM;
    const bool adds = o->comm_reductions == PS_CONFIG_REDUCTIONS_NCCL;
    if (n_ranks == 1) return PS_OK;
    if (o->comm_collectives == PS_CONFIG_COLLECTIVES_NCCL)
        PS_TRY(insist_on_nccl(s, comm, look_for_nccl(s)));
    else if (o->comm_collectives == PS_CONFIG_COLLECTIVES_AUTO && is_possible)
        PS_TRY(agree_on_nccl(s, comm, look_for_nccl(s)));
    if (adds && !s->nccl.is_used)
        return PS_FAIL(
            PS_EINVAL,
            "comm.reductions = nccl, but chunks go by messages%s%s: set comm.reductions = ordered, or see to it "
            "that NCCL can be used",
            s->nccl.why_not[0] != '\0' ? ", as " : "", s->nccl.why_not);
    if (!s->nccl.is_used) return PS_OK;
    s->nccl.adds = adds;
    ps_rates_go_by_gpu(&s->rates);
    if (s->backend_kind == PS_BACKEND_CUDA && o->memory_device == PS_BYTES_AUTO)
        s->budgets.bytes[PS_TIER_DEVICE] =
            ps_max_i64(0, s->budgets.bytes[PS_TIER_DEVICE] - ps_cuda_get_parts()->nccl_bytes);
    s->comm_staging_bytes = nccl_staging_bytes(s, o, n_ranks);
    return PS_OK;
}

ps_status ps_settings_open_nccl(const ps_settings *s, ps_queue *queue, void *staging, int64_t staging_bytes,
                                ps_collectives **out)
{
    ps_nccl_options o = {.backend = s->backend,
                         .comm = s->ranks.comm,
                         .queue = queue,
                         .staging = staging,
                         .staging_bytes = staging_bytes,
                         .library_adds = s->nccl.adds};
    *out = NULL;
    PS_TRY(ps_comm_agree(s->ranks.comm, ps_cuda_get_parts()->nccl(&o.library)));
    return ps_nccl_collectives_open(&o, out);
}

void ps_settings_list_unused(const ps_settings *s, const ps_options *o, char *out, size_t out_bytes)
{
    const bool has_gpu = s->backend_kind == PS_BACKEND_CUDA || s->backend_kind == PS_BACKEND_SIM;
    const struct {
        bool is_given;
        const char *text;
    } all[] = {
        {o->comm_collectives == PS_CONFIG_COLLECTIVES_NCCL, "comm.collectives = nccl"},
        {o->comm_reductions == PS_CONFIG_REDUCTIONS_NCCL, "comm.reductions = nccl"},
        {o->train_product_algorithms == PS_CONFIG_PRODUCT_ALGORITHMS_FIRST, "train.product_algorithms = first"},
        {o->train_product_algorithms == PS_CONFIG_PRODUCT_ALGORITHMS_MEASURED, "train.product_algorithms = measured"}};
    size_t n = 0;
    out[0] = '\0';
    for (size_t i = 0; i < PS_ARRAY_LEN(all) && !has_gpu; i++) {
        if (!all[i].is_given || n >= out_bytes) continue;
        const int length = snprintf(out + n, out_bytes - n, "%s%s", n > 0 ? ", " : "", all[i].text);
        n += length > 0 ? (size_t)length : 0;
    }
    if (n > 0 && n < out_bytes)
        snprintf(out + n, out_bytes - n, ": without effect, as train.backend is %s",
                 ps_backend_kind_name(s->backend_kind));
}

/* ---- opening ---- */

void ps_settings_imagine_cudnn(ps_settings *s)
{
    ps_cuda_attention guess;
    ps_cudnn_attention_guess(&guess);
    s->sim.attention = guess.measure;
    s->sim.attention_self = guess.self;
}

static ps_status open_it(ps_settings *s, ps_backend *host)
{
    ps_cuda_attention attention;
    ps_cudnn_attention_guess(&attention);
    if (s->plans_only) {
        const bool has_cudnn = strncmp(s->gpu.found.attention, attention.name, strlen(attention.name)) == 0;
        return ps_backend_create_cuda_for_plans(s->gpu.found.page_bytes, ps_cuda_get_parts()->product_bytes,
                                                has_cudnn ? &attention : NULL, host, &s->backend);
    }
    return ps_backend_open_cuda(s->gpu.ordinal, s->gpu.attention, host, &s->backend);
}

ps_status ps_settings_open_gpu(ps_settings *s, ps_backend *host)
{
    const ps_status st = s->gpu.status != PS_OK ? refuse(s) : check_budget(s);
    if (st == PS_OK) return open_it(s, host);
    ps_backend_destroy(host);
    return st;
}
