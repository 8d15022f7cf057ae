#include "train/plan/advise.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/bytes.h"
#include "base/machine.h"
#include "config/config.h"
#include "train/plan/model_data_min.h"
#include "train/plan/variation.h"

#define GAIN_LEAST 1.02
#define BATCH_DOUBLINGS 5
#define DEVICE_GROWTH_MAX 64
#define DISK_GROWTH_MAX 64
#define NODES_GROWTH_MAX 64

typedef struct adviser {
    const ps_config *config;
    const ps_options *options;
    const ps_site *site;
    const ps_hardware *hardware; /* of the site; NULL: this machine */
    const ps_simulation *base;
    ps_deadline *deadline;
    ps_advice *advice;
    int n;
} adviser;

/* A budget so many times as large, as far as a configuration may say it. */
static int64_t times(int64_t bytes, int64_t factor)
{
    return bytes > PS_BUDGET_MAX / factor ? PS_BUDGET_MAX : bytes * factor;
}

/* Simulate the plan with a change, "key=value key=value". What is beyond an option's bounds does not fit, nor does what
 * there is no time for, on this rank or another, nor a disk tier in a folder that cannot be used. */
static ps_status try_change(const adviser *a, const char *change, ps_simulation *out)
{
    ps_variation v;
    *out = (ps_simulation){.fits = false};
    if (ps_deadline_stops(a->deadline)) return PS_OK;
    ps_status st = ps_variation_init(&v, a->config, a->site);
    if (st == PS_OK) st = ps_variation_change(&v, change);
    if (st == PS_OK) st = ps_variation_simulate(&v, a->deadline, out);
    ps_variation_deinit(&v);
    if (st != PS_OK || (out->timed_out && out->ranks.n > 1)) out->fits = false;
    return st == PS_EINVAL || st == PS_EIO ? PS_OK : st;
}

/* The machine has what it takes, and of a plan that fits: what it gains is worth it. */
static bool is_worth_it(const adviser *a, const ps_simulation *changed)
{
    if (changed->machine_refusal[0] != '\0') return false;
    return !a->base->fits || ps_simulation_tokens_per_s(changed) >= GAIN_LEAST * ps_simulation_tokens_per_s(a->base);
}

/* What a change asks of the user: memory that the machine has is nothing, then come changes that keep the numbers, then
 * those that make them others. */
static int cost_of(const char *change)
{
    static const char *const others[] = {"train_micro_batch_size_per_gpu", "hardware.", "state_format"};
    for (size_t i = 0; i < PS_ARRAY_LEN(others); i++)
        if (strstr(change, others[i]) != NULL) return 2;
    return strchr(change, ' ') == NULL && strncmp(change, "memory.", strlen("memory.")) == 0 ? 0 : 1;
}

/* Keep the change if it is worth it; *kept (may be NULL) says so. */
__attribute__((format(printf, 3, 4))) static ps_status consider(adviser *a, bool *kept, const char *format, ...)
{
    char change[PS_ADVICE_TEXT_MAX];
    ps_simulation changed;
    va_list ap;
    va_start(ap, format);
    vsnprintf(change, sizeof change, format, ap);
    va_end(ap);
    if (kept != NULL) *kept = false;
    PS_TRY(try_change(a, change, &changed));
    if (!changed.fits || a->n == PS_ADVICE_MAX || !is_worth_it(a, &changed)) return PS_OK;
    const double rate = ps_simulation_tokens_per_s(&changed);
    ps_advice *out = &a->advice[a->n++];
    *out = (ps_advice){.tokens_per_s = rate,
                       .saved_bytes = ps_max_i64(0, a->base->model_data_bytes - changed.model_data_bytes),
                       .gain = a->base->fits ? rate / ps_simulation_tokens_per_s(a->base) : 0,
                       .cost = a->base->fits ? 0 : cost_of(change)};
    snprintf(out->change, sizeof out->change, "%s", change);
    if (kept != NULL) *kept = true;
    return PS_OK;
}

/* The memory.total that gives the device tier so much; both tiers in RAM get the same where there are two. The process
 * may have grown by the next start. */
static int64_t total_for(const ps_simulation *s, int64_t device_bytes)
{
    const int64_t n_tiers = s->budgets.bytes[PS_TIER_HOST] > 0 ? 2 : 1,
                  more = device_bytes - s->budgets.bytes[PS_TIER_DEVICE];
    const int64_t grown = (int64_t)8 << 20;
    return more > (PS_BUDGET_MAX - s->total_bytes - grown) / n_tiers ? PS_BUDGET_MAX
                                                                     : s->total_bytes + n_tiers * more + grown;
}

/* The same of a budget, rounded up as people write it. Beside memory.total that is what is to be raised. */
static ps_status consider_budget(adviser *a, bool *kept, ps_tier tier, int64_t bytes)
{
    char text[PS_BYTES_TEXT_MAX];
    if (tier != PS_TIER_DISK && a->base->total_bytes > 0)
        return consider(a, kept, "memory.total=%s", ps_bytes_round_up(total_for(a->base, bytes), text));
    return consider(a, kept, "memory.%s=%s", ps_tier_name(tier), ps_bytes_round_up(bytes, text));
}

/* A processor's device memory is what it is given; a GPU's is all there is. */
static bool can_grow(const adviser *a)
{
    return a->hardware == NULL || a->hardware->gpus_per_node == 0;
}

/* What the machine has of the tier's memory, for one rank. */
static int64_t bytes_there(const adviser *a, ps_tier tier)
{
    const ps_hardware *hw = a->hardware;
    ps_machine_memory_info memory;
    if (hw != NULL)
        return tier == PS_TIER_DEVICE ? ps_hardware_device_bytes(hw)
                                      : ps_hardware_host_bytes(hw) / ps_hardware_devices_per_node(hw);
    return ps_machine_memory(NULL, &memory) == PS_OK ? memory.total_bytes : INT64_MAX;
}

#define IN_8_BITS "states of the optimizer are stored in 8 bits, which changes results slightly"

/* The least with fp32 masters: updates use gradients up as they come, so that these need no memory. Without
 * accumulation and clipping, and where a step is not skipped. */
static ps_status advise_released_gradients(adviser *a)
{
    const ps_options *o = a->options;
    const bool was_skipping = o->train_max_nonfinite_steps != 1;
    bool is_kept;
    if (a->base->dtype != PS_DTYPE_BF16 || o->gradient_accumulation_steps > 1 || o->gradient_clipping > 0 ||
        o->memory_update_in_backward == PS_CONFIG_EARLY_UPDATES_NEVER)
        return PS_OK;
    PS_TRY(consider(a, &is_kept, "optimizer.params.state_format=compact_split memory.update_in_backward=always%s",
                    was_skipping ? " train.max_nonfinite_steps=1" : ""));
    if (is_kept)
        a->advice[a->n - 1].price =
            was_skipping ? IN_8_BITS ", and the first step whose gradients are not finite ends training" : IN_8_BITS;
    return PS_OK;
}

/* Fewer bytes of model data, where the optimizer has them. */
static ps_status advise_compact_states(adviser *a)
{
    ps_optimizer_setup o;
    bool is_kept = false;
    PS_TRY(ps_optimizer_read(a->options, &o));
    const ps_config_state_format format = ps_optimizer_format(&o);
    if (!ps_optimizer_has_whole_masters(&o) || o.n_states == 0 || o.optimizer->states[0].compact == PS_FORMAT_F32)
        return PS_OK;
    if (format == PS_CONFIG_STATE_FORMAT_FP32) PS_TRY(consider(a, &is_kept, "optimizer.params.state_format=compact"));
    if (is_kept) a->advice[a->n - 1].price = IN_8_BITS;
    return advise_released_gradients(a);
}

/* ---- it does not fit ---- */

/* No larger than the machines have it. A disk that is no help at all costs one try. */
static ps_status advise_larger_disk(adviser *a)
{
    const ps_hardware *hw = a->hardware;
    const int64_t disk = a->base->budgets.bytes[PS_TIER_DISK];
    const int64_t most = hw != NULL ? hw->disk.bytes / ps_hardware_devices_per_node(hw) : times(disk, DISK_GROWTH_MAX);
    char text[PS_ADVICE_TEXT_MAX];
    bool fits = false;
    ps_simulation largest;
    if (disk == 0 || disk >= most) return PS_OK;
    snprintf(text, sizeof text, "memory.disk=%lld", (long long)most);
    PS_TRY(try_change(a, text, &largest));
    if (!largest.fits) return PS_OK;
    for (int64_t larger = disk; larger < most && !fits;) {
        larger = ps_min_i64(times(larger, 2), most);
        PS_TRY(consider_budget(a, &fits, PS_TIER_DISK, larger));
    }
    return PS_OK;
}

/* In steps that leave room for speed. */
static ps_status advise_larger_device(adviser *a)
{
    const int64_t device = a->base->budgets.bytes[PS_TIER_DEVICE];
    bool fits = false;
    for (int64_t k = 2; can_grow(a) && k <= DEVICE_GROWTH_MAX && times(device, k) > device && !fits; k *= 2)
        PS_TRY(consider_budget(a, &fits, PS_TIER_DEVICE, times(device, k)));
    return PS_OK;
}

/* The least of one tier that is enough, the others as they are. What is more than the machine has by arithmetic alone
 * is not searched for. */
static ps_status advise_least(adviser *a, ps_tier tier)
{
    const int64_t there = bytes_there(a, tier);
    int64_t bytes;
    if (ps_model_data_min_left_to(a->base->model_data_min_bytes, &a->base->budgets, tier) > there) return PS_OK;
    if (ps_deadline_stops(a->deadline)) return PS_OK;
    PS_TRY(ps_simulate_least_budget(a->config, a->site, tier, a->deadline, &bytes));
    if (bytes == 0 || (a->hardware != NULL && bytes > there)) return PS_OK;
    return consider_budget(a, NULL, tier, bytes);
}

/* Where one operator needs more of the device, and the rest of the model data a disk. */
static ps_status advise_device_and_disk(adviser *a)
{
    ps_variation v;
    char text[PS_BYTES_TEXT_MAX];
    int64_t bytes = 0;
    if (a->base->total_bytes > 0 || !can_grow(a) || ps_deadline_stops(a->deadline)) return PS_OK;
    ps_status st = ps_variation_init(&v, a->config, a->site);
    if (st == PS_OK) st = ps_variation_set(&v, "memory.disk", "auto");
    if (st == PS_OK) st = ps_simulate_least_budget(v.config, a->site, PS_TIER_DEVICE, a->deadline, &bytes);
    ps_variation_deinit(&v);
    if (st == PS_EINVAL || st == PS_EIO || bytes == 0) return PS_OK;
    PS_TRY(st);
    return consider(a, NULL, "memory.device=%s memory.disk=auto", ps_bytes_round_up(bytes, text));
}

/* Changes of what a step takes beside its model data. */
static ps_status advise_less_work(adviser *a)
{
    const ps_options *o = a->options;
    const bool checkpointing = o->activation_checkpointing_enabled;
    const char *with = checkpointing ? "" : "activation_checkpointing.enabled=true ";
    char batch[PS_VARIATION_BATCH_MAX];
    bool fits = false;
    if (!checkpointing) PS_TRY(consider(a, &fits, "activation_checkpointing.enabled=true"));
    for (int64_t B = a->base->B / 2; B >= 1 && !fits; B /= 2)
        PS_TRY(consider(a, &fits, "%s%s", with, ps_variation_batch_text(a->options, B, batch)));
    if (!o->client_opts_with_activation_offload)
        PS_TRY(consider(a, NULL, "%sclient.opts.with_activation_offload=true", with));
    if (o->memory_keep_logits == PS_CONFIG_KEEP_LOGITS_ALWAYS)
        PS_TRY(consider(a, NULL, "%smemory.keep_logits=auto", with));
    if (a->base->ranks.n > 1 && !o->client_opts_with_mem_saving_comm)
        PS_TRY(consider(a, NULL, "%sclient.opts.with_mem_saving_comm=true", with));
    fits = false;
    for (int64_t B = a->base->B / 2; B >= 1 && !fits && a->base->ranks.n > 1; B /= 2)
        PS_TRY(consider(a, &fits, "%sclient.opts.with_mem_saving_comm=true %s", with,
                        ps_variation_batch_text(a->options, B, batch)));
    return PS_OK;
}

static ps_status advise_fitting(adviser *a)
{
    const ps_budgets *b = &a->base->budgets;
    const int64_t device = b->bytes[PS_TIER_DEVICE], host = b->bytes[PS_TIER_HOST], disk = b->bytes[PS_TIER_DISK];
    bool fits = false;
    if (a->base->model_data_min_bytes <= device + host + disk) PS_TRY(advise_less_work(a));
    if (disk == 0) PS_TRY(consider(a, &fits, "memory.disk=auto"));
    if (disk == 0 && !fits && a->base->model_data_min_bytes > device + host) PS_TRY(advise_device_and_disk(a));
    if (disk == 0 && !fits && !a->options->activation_checkpointing_enabled)
        PS_TRY(consider(a, NULL, "activation_checkpointing.enabled=true memory.disk=auto"));
    PS_TRY(advise_compact_states(a));
    PS_TRY(advise_larger_disk(a));
    PS_TRY(advise_larger_device(a));
    fits = false;
    for (int64_t n = 2; a->hardware != NULL && a->hardware->network.present && n <= NODES_GROWTH_MAX && !fits; n *= 2)
        PS_TRY(consider(a, &fits, "hardware.n_nodes=%lld", (long long)(n * a->hardware->n_nodes)));
    PS_TRY(advise_least(a, PS_TIER_DEVICE));
    return a->base->total_bytes > 0 ? PS_OK : advise_least(a, PS_TIER_HOST);
}

/* ---- it fits ---- */

/* Would updates within the backward pass be allowed but for steps that may be skipped? */
static bool can_be_early(const ps_options *o)
{
    return o->memory_update_in_backward == PS_CONFIG_EARLY_UPDATES_AUTO && o->gradient_clipping <= 0 &&
           !o->fp16_enabled && o->train_max_nonfinite_steps != 1;
}

static ps_status advise_early_updates(adviser *a)
{
    bool is_kept;
    PS_TRY(consider(a, &is_kept, "train.max_nonfinite_steps=1"));
    if (is_kept)
        a->advice[a->n - 1].price =
            "the first step whose gradients are not finite ends training, where it is skipped now";
    return PS_OK;
}

static ps_status advise_speed(adviser *a)
{
    const ps_options *o = a->options;
    const int64_t device = a->base->budgets.bytes[PS_TIER_DEVICE];
    const char *with = o->client_opts_with_activation_offload ? "client.opts.with_activation_offload=false " : "";
    if (o->client_opts_with_activation_offload) PS_TRY(consider(a, NULL, "client.opts.with_activation_offload=false"));
    if (o->activation_checkpointing_enabled)
        PS_TRY(consider(a, NULL, "%sactivation_checkpointing.enabled=false", with));
    char batch[PS_VARIATION_BATCH_MAX];
    int64_t B = a->base->B;
    for (int i = 0; i < BATCH_DOUBLINGS; i++) {
        B *= 2;
        PS_TRY(consider(a, NULL, "%s", ps_variation_batch_text(a->options, B, batch)));
    }
    if (!o->activation_checkpointing_enabled)
        PS_TRY(consider(a, NULL, "activation_checkpointing.enabled=true %s",
                        ps_variation_batch_text(a->options, 4 * a->base->B, batch)));
    if (a->base->ranks.n > 1)
        PS_TRY(consider(a, NULL, "client.opts.with_mem_saving_comm=%s",
                        o->client_opts_with_mem_saving_comm ? "false" : "true"));
    if (a->base->dtype == PS_DTYPE_F32) PS_TRY(consider(a, NULL, "bf16.enabled=true"));
    const int64_t larger = ps_min_i64(times(device, 2), bytes_there(a, PS_TIER_DEVICE));
    if (can_grow(a) && larger > device) PS_TRY(consider_budget(a, NULL, PS_TIER_DEVICE, larger));
    PS_TRY(consider(a, NULL, "memory.prefetch=%lld", (long long)(4 * ps_max_i64(1, o->memory_prefetch))));
    if (o->memory_keep_logits == PS_CONFIG_KEEP_LOGITS_NEVER) PS_TRY(consider(a, NULL, "memory.keep_logits=auto"));
    if (!o->memory_defer_updates) PS_TRY(consider(a, NULL, "memory.defer_updates=true"));
    if (can_be_early(o)) PS_TRY(advise_early_updates(a));
    PS_TRY(advise_compact_states(a));
    if (!o->optimizer_params_use_hybrid_adam) PS_TRY(consider(a, NULL, "optimizer.params.use_hybrid_adam=true"));
    return PS_OK;
}

/* Of equal cost the faster. */
static int cheaper_first(const void *a, const void *b)
{
    const ps_advice *x = a, *y = b;
    if (x->cost != y->cost) return x->cost - y->cost;
    return (x->tokens_per_s < y->tokens_per_s) - (x->tokens_per_s > y->tokens_per_s);
}

ps_status ps_advise(const ps_config *config, const ps_site *site, const ps_simulation *base, ps_deadline *deadline,
                    ps_advice advice[PS_ADVICE_MAX], int *n)
{
    adviser a = {.config = config,
                 .options = ps_config_options(config),
                 .site = site,
                 .hardware = site != NULL ? site->hardware : NULL,
                 .base = base,
                 .deadline = deadline,
                 .advice = advice};
    const ps_status st = base->fits ? advise_speed(&a) : advise_fitting(&a);
    qsort(advice, (size_t)a.n, sizeof *advice, cheaper_first);
    *n = a.n;
    return st;
}
