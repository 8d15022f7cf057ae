#include "train/plan/hiding.h"

#include <math.h>
#include <stdio.h>

#include "train/plan/variation.h"

#define WAIT_SHARE 0.1
#define DOUBLINGS 6
#define HALVINGS 3

/* The result for a micro-batch. */
typedef struct found {
    int64_t B;
    bool fits, waits;
    double compute_s, wait_s, tokens_per_s;
} found;

static int64_t wait_ns(const ps_simulation *s)
{
    return s->forecast.step.wait_ns[PS_LINK_DISK_READ] + s->forecast.step.wait_ns[PS_LINK_DISK_WRITE];
}

bool ps_simulation_waits_for_disk(const ps_simulation *s)
{
    return s->fits && (double)wait_ns(s) > WAIT_SHARE * (double)s->forecast.step.all_ns;
}

static found found_of(int64_t B, const ps_simulation *s)
{
    return (found){.B = B,
                   .fits = s->fits,
                   .waits = ps_simulation_waits_for_disk(s),
                   .compute_s = (double)s->forecast.step.compute_ns * 1e-9,
                   .wait_s = s->fits ? (double)wait_ns(s) * 1e-9 : 0,
                   .tokens_per_s = s->fits ? ps_simulation_tokens_per_s(s) : 0};
}

/* A micro-batch above the option's maximum does not fit. */
static ps_status try_batch(const ps_config *config, const ps_site *site, int64_t B, ps_deadline *deadline, found *out)
{
    ps_variation v;
    ps_simulation s = {.fits = false};
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)B);
    ps_status st = ps_variation_init(&v, config, site);
    if (st == PS_OK) st = ps_variation_set(&v, "train_micro_batch_size_per_gpu", text);
    if (st == PS_OK) st = ps_variation_set(&v, "train_batch_size", "0"); /* follows from it */
    if (st == PS_OK) st = ps_variation_simulate(&v, deadline, &s);
    ps_variation_deinit(&v);
    *out = found_of(B, &s);
    return st == PS_EINVAL ? PS_OK : st;
}

/* Estimate beyond what fits. The forward pass, about a third of computing, has to hide the traffic of updates that are
 * not early, the backward pass that of early ones: the pass with more for its time is the one that waits. */
static int64_t estimate(const found *most, double early_share)
{
    const double backward = early_share * 3 / 2, forward = (1 - early_share) * 3;
    return most->B + (int64_t)(most->wait_s * fmax(backward, forward) * (double)most->B / most->compute_s) + 1;
}

static double early_share(const ps_simulation *s)
{
    return s->n_local_updates > 0 ? (double)s->candidate.n_early / s->n_local_updates : 0;
}

ps_status ps_find_hiding(const ps_config *config, const ps_site *site, const ps_simulation *base, ps_deadline *deadline,
                         ps_hiding *out)
{
    *out = (ps_hiding){.B = 0};
    if (!ps_simulation_waits_for_disk(base) || ps_deadline_stops(deadline)) return PS_OK;
    found low = found_of(base->B, base), high = low;
    for (int i = 0; i < DOUBLINGS && high.fits && high.waits && !ps_deadline_timed_out(deadline); i++) {
        low = high;
        PS_TRY(try_batch(config, site, 2 * low.B, deadline, &high));
    }
    /* between one that waits for the disk and one that does not, or does not fit */
    for (int i = 0;
         i < HALVINGS && !(high.fits && high.waits) && high.B - low.B > 1 && !ps_deadline_timed_out(deadline); i++) {
        found middle;
        PS_TRY(try_batch(config, site, (low.B + high.B) / 2, deadline, &middle));
        *(middle.fits && middle.waits ? &low : &high) = middle;
    }
    if (ps_deadline_timed_out(deadline)) return PS_OK;
    if (high.fits && high.waits) low = high;
    out->fits = high.fits && !high.waits;
    out->B = out->fits ? high.B : estimate(&low, early_share(base));
    out->largest_B = low.B;
    out->tokens_per_s = out->fits ? high.tokens_per_s : low.tokens_per_s;
    return PS_OK;
}
