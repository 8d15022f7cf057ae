#include "plan_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "config/config.h"
#include "train/cli_text.h"
#include "train/disk_room.h"
#include "train/plan/refusal.h"

static const char *seconds(int64_t ns, char text[CLI_TEXT_MAX])
{
    return cli_text_seconds((double)ns * 1e-9, text);
}

/* ---- the summary ---- */

/* The description of this machine that times are from; NULL: a typical PC's speeds. */
static const ps_hardware *known_here(const plan_text *t, ps_hardware *room)
{
    const ps_hardware *known = NULL;
    return ps_config_hardware(t->config, room, &known) == PS_OK ? known : NULL; /* has been read before */
}

json_t *plan_text_machine_json(const plan_text *t)
{
    ps_hardware room;
    const ps_hardware *hw = t->hardware, *known = known_here(t, &room);
    const char *computes = t->simulation->device_is_ram ? "processor" : "gpu";
    if (hw == NULL && known == NULL) return json_pack("{s:s, s:s}", "speeds", "typical", "computes", computes);
    return json_pack("{s:s, s:s, s:s}", "speeds", hw != NULL ? "described" : "measured", "name",
                     hw != NULL ? hw->name : known->name, "computes", computes);
}

/* "this one (AMD EPYC, as measured); the processor computes"; of a GPU that no run has been tried on it is said. */
static void show_machine(const plan_text *t)
{
    ps_hardware room;
    const ps_simulation *s = t->simulation;
    const ps_hardware *hw = t->hardware, *known = known_here(t, &room);
    printf("machine   ");
    if (hw != NULL)
        printf("%s", hw->name);
    else if (known != NULL)
        printf("this one (%s, as measured)", known->name);
    else
        printf("this one, at speeds of a typical PC (hardware=auto measures it)");
    printf("; %s computes", s->device_is_ram ? "the processor" : "the GPU");
    if (s->ranks.n > 1) printf(", %d ranks; figures are of rank %d", s->ranks.n, s->ranks.rank);
    printf("\n");
    if (hw == NULL || hw->gpus_per_node == 0) return;
    if (hw->runs[0] == '\0')
        printf("          computed from its data sheet: no GPU of this kind has run this yet\n");
    else
        printf("          has run: %s%s\n", hw->runs, s->ranks.n > 1 ? "; several GPUs have not yet" : "");
}

static void show_model(const plan_text *t)
{
    const ps_simulation *s = t->simulation;
    char n[CLI_TEXT_MAX], bytes[PS_BYTES_TEXT_MAX];
    printf("model     %s parameters, ", cli_text_count(s->n_params, n));
    if (s->n_trained_params < s->n_params)
        printf("%s of them trained (frozen: %s less), ", cli_text_count(s->n_trained_params, n),
               ps_bytes_format(s->frozen_saves_bytes, bytes));
    printf("%s of model data, computed in %s\n", ps_bytes_format(s->model_data_bytes, bytes),
           ps_dtype_precision(s->dtype));
    const int64_t n_sequences = s->ranks.n * s->B * s->accumulation;
    printf("step      %" PRId64 " sequence%s of %" PRId64 " tokens", n_sequences, n_sequences == 1 ? "" : "s", s->T);
    if (s->ranks.n > 1 || s->accumulation > 1) printf(" in micro-batches of %" PRId64, s->B);
    printf("%s\n", s->lists.n_standalone > 0 ? ", activation checkpointing and offload"
                   : s->checkpointing        ? ", activation checkpointing"
                                             : "");
}

static void show_memory(const ps_simulation *s)
{
    char text[CLI_TIER_TEXT_MAX];
    printf("memory    ");
    for (int tier = 0; tier < PS_TIER_COUNT; tier++)
        printf("%s%s", tier > 0 ? ", " : "",
               cli_text_tier(ps_tier_name((ps_tier)tier), s->forecast.peak_bytes[tier], s->budgets.bytes[tier], text));
    printf("\n");
}

static const char *const link_words[PS_LINK_COUNT] = {[PS_LINK_HOST_TO_DEVICE] = "copies from host to device",
                                                      [PS_LINK_DEVICE_TO_HOST] = "copies from device to host",
                                                      [PS_LINK_DISK_READ] = "reading from disk",
                                                      [PS_LINK_DISK_WRITE] = "writing to disk",
                                                      [PS_LINK_COLLECTIVES] = "other ranks"};

/* What computing waits for longest; 0: for nothing. */
static int64_t longest_wait(const ps_step_time *t, const char **what)
{
    int64_t longest = t->host_wait_ns;
    *what = "optimizer updates on the host";
    for (int l = 0; l < PS_LINK_COUNT; l++)
        if (t->wait_ns[l] > longest) longest = t->wait_ns[l], *what = link_words[l];
    if (t->idle_ns > longest) longest = t->idle_ns, *what = "the host";
    return longest;
}

static void show_time(const ps_simulation *s)
{
    const ps_step_time *t = &s->forecast.step;
    const char *what;
    char step[CLI_TEXT_MAX], rate[CLI_TEXT_MAX], limit[CLI_LIMIT_TEXT_MAX];
    const double longest_s = (double)longest_wait(t, &what) * 1e-9;
    printf("time      %s a step, %s\n", seconds(t->all_ns, step), cli_text_rate(ps_simulation_tokens_per_s(s), rate));
    printf("limit     %s\n",
           cli_text_limit((double)(t->compute_ns + t->lost_ns) * 1e-9, longest_s, (double)t->all_ns * 1e-9, what,
                          strcmp(ps_step_time_critical(t), "compute") != 0, limit));
}

static void show_saving(const plan_text *t)
{
    printf("saving    ");
    disk_room_report(t->simulation->checkpoint_bytes, ps_config_options(t->config)->train_keep_last);
}

static void show_refusal(const ps_simulation *s)
{
    const bool has_verdict = strncmp(s->refusal, PS_REFUSAL_VERDICT, strlen(PS_REFUSAL_VERDICT)) == 0;
    if (!s->timed_out) printf("%s%s.\n", has_verdict ? "" : PS_REFUSAL_VERDICT, s->refusal);
}

void plan_text_show(const plan_text *t)
{
    const ps_simulation *s = t->simulation;
    const bool is_refused_here = s->machine_refusal[0] != '\0';
    if (!s->fits) show_refusal(s);
    if (s->fits && is_refused_here)
        printf(PS_REFUSAL_VERDICT "a run %s is refused: %s\n", t->hardware != NULL ? "there" : "here",
               s->machine_refusal);
    if (s->fits && !is_refused_here) printf("Fits.\n");
    show_machine(t);
    if (s->n_params == 0) return; /* the options themselves were refused: no step was looked at */
    show_model(t);
    if (!s->fits) return;
    show_memory(s);
    show_time(s);
}

/* ---- what helps ---- */

static void show_change(const char *name, const ps_advice *a)
{
    char rate[CLI_TEXT_MAX];
    char saved[PS_BYTES_TEXT_MAX];
    printf("%-9s %s: %s", name, a->change, cli_text_rate(a->tokens_per_s, rate));
    if (a->gain > 0) printf(", %.2f x as fast", a->gain);
    if (a->saved_bytes > 0) printf(", model data takes %s less", ps_bytes_format(a->saved_bytes, saved));
    printf("%s%s\n", a->price != NULL ? "; but " : "", a->price != NULL ? a->price : "");
}

void plan_text_show_advice(const plan_text *t, const ps_advice *advice, int n, bool timed_out)
{
    const bool fits = t->simulation->fits;
    const int shown = fits && !t->is_verbose ? 1 : n;
    if (n == 0 && !timed_out)
        printf("%s\n", fits ? "faster    no change of one option that was tried gains 2 %"
                            : "No change was found that makes it fit: raise several budgets.");
    for (int i = 0; i < n && i < shown; i++) show_change(i > 0 ? "" : fits ? "faster" : "one of", &advice[i]);
}

void plan_text_show_hiding(const ps_hiding *h)
{
    char rate[CLI_TEXT_MAX];
    if (h->B == 0) return;
    printf("disk      ");
    if (h->fits)
        printf("with train_micro_batch_size_per_gpu=%" PRId64 " computing would not wait for it: %s\n", h->B,
               cli_text_rate(h->tokens_per_s, rate));
    else
        printf("computing would not wait for it with train_micro_batch_size_per_gpu=%" PRId64
               " (%s), but memory holds no more than about %" PRId64 "\n",
               h->B, cli_text_rate(h->tokens_per_s, rate), h->largest_B);
}

/* ---- tables ---- */

static void show_row(const char *name, int64_t device, int64_t host)
{
    char a[PS_BYTES_TEXT_MAX], b[PS_BYTES_TEXT_MAX];
    if (device == 0 && host == 0) return;
    printf("%-26s %9s", name, device > 0 ? ps_bytes_format(device, a) : "");
    if (host > 0) printf(" %9s", ps_bytes_format(host, b));
    printf("\n");
}

static void show_tiers(const ps_simulation *s)
{
    const ps_tier_use *device = &s->forecast.peak[PS_TIER_DEVICE], *host = &s->forecast.peak[PS_TIER_HOST];
    char name[PS_LIST_TEXT_MAX], text[PS_BYTES_TEXT_MAX];
    printf("\n%-26s %9s %9s %9s\n", "memory at its peak", "device", "host", "disk");
    for (ps_list l = 0; l < ps_lists_n_all(&s->lists); l++)
        if (ps_lists_exists(&s->lists, l))
            show_row(ps_lists_describe(&s->lists, l, s->dtype, name), device->list_bytes[l], host->list_bytes[l]);
    show_row("activations and workspace", device->non_model_bytes, host->non_model_bytes);
    show_row("buffers of transfers", device->other_bytes, host->other_bytes);
    for (int is_budget = 0; is_budget <= 1; is_budget++) {
        printf("%-26s", is_budget ? "budget" : "all");
        for (int t = 0; t < PS_TIER_COUNT; t++) {
            const int64_t bytes = is_budget ? s->budgets.bytes[t] : s->forecast.peak_bytes[t];
            printf(" %9s", s->budgets.bytes[t] > 0 ? ps_bytes_format(bytes, text) : "none");
        }
        printf("\n");
    }
}

/* 0 is left out. */
static const char *time_cell(int64_t ns, char text[CLI_TEXT_MAX])
{
    return ns > 0 ? seconds(ns, text) : "";
}

static void show_lane(const char *name, int64_t busy_ns, const char *moved, int64_t wait_ns)
{
    char a[CLI_TEXT_MAX], b[CLI_TEXT_MAX];
    printf("%-30s %9s %9s", name, time_cell(busy_ns, a), moved);
    if (wait_ns > 0) printf("  %s", seconds(wait_ns, b));
    printf("\n");
}

static void show_lanes(const ps_simulation *s)
{
    char bytes[PS_BYTES_TEXT_MAX], a[CLI_TEXT_MAX];
    const ps_step_time *t = &s->forecast.step;
    printf("\n%-30s %9s %9s  %s\n", "a step", "takes", "moves", "computing waits");
    printf("%-30s %9s\n", "computing", time_cell(t->compute_ns, a));
    if (t->lost_ns > 0) printf("%-30s %9s\n", "  slowed by copies beside it", time_cell(t->lost_ns, a));
    if (t->host_ns > 0) show_lane("optimizer updates on the host", t->host_ns, "", t->host_wait_ns);
    if (t->idle_ns > 0) show_lane("the host", 0, "", t->idle_ns);
    for (int l = 0; l < PS_LINK_COUNT; l++) {
        if (s->forecast.moved_bytes[l] == 0) continue;
        (void)ps_bytes_format(s->forecast.moved_bytes[l], bytes);
        if (t->busy_ns[l] > 0)
            show_lane(link_words[l], t->busy_ns[l], bytes, t->wait_ns[l]);
        else
            printf("%-30s %9s %9s  same RAM, nothing copied\n", link_words[l], "", bytes);
    }
    if (!s->forecast.goes_round)
        printf("bytes are those of step %lld; later steps may move others, as no pattern repeats within %lld steps\n",
               (long long)s->forecast.steps, (long long)s->forecast.steps);
}

static void show_chunks(const ps_simulation *s)
{
    const int32_t on_device = s->n_local_updates - s->n_host_updates, copied = on_device - s->n_resident_updates;
    const int32_t n_early = s->candidate.n_early, n_deferred = s->n_deferred_updates;
    const struct {
        int32_t n;
        const char *when;
    } updates[] = {{n_early, "within the backward pass"},
                   {n_deferred, "before the next forward pass uses them"},
                   {s->n_local_updates - n_early - n_deferred, "after the backward pass"}};
    printf("\nparameters  %" PRId64 ", %" PRId64 " trained\n", s->n_params, s->n_trained_params);
    printf("chunks      %d of %" PRId64 " elements, %.2f %% unused\n", s->n_chunks, s->chunk_elements,
           100 * s->chunk_waste);
    printf("updates     %d chunks a rank", s->n_local_updates);
    for (size_t i = 0; i < PS_ARRAY_LEN(updates); i++)
        if (updates[i].n > 0 && updates[i].n == s->n_local_updates)
            printf(", %s", updates[i].when);
        else if (updates[i].n > 0)
            printf(", %d %s", updates[i].n, updates[i].when);
    printf(": %d in device memory", on_device);
    if (copied > 0) printf(" (of these %d are copied in and out)", copied);
    printf(", %d on the host\n", s->n_host_updates);
    if (s->keeps_logits) printf("logits      kept from the forward to the backward pass\n");
}

/* Bytes that a step reads from and writes to the disk. */
static int64_t disk_bytes(const int64_t moved_bytes[PS_LINK_COUNT])
{
    return moved_bytes[PS_LINK_DISK_READ] + moved_bytes[PS_LINK_DISK_WRITE];
}

static void show_speculation(const ps_simulation *s)
{
    const ps_forecast *f = &s->forecast;
    char time[3][CLI_TEXT_MAX], bytes[3][PS_BYTES_TEXT_MAX];
    if (s->why_not_speculating[0] != '\0') printf("speculation %s\n", s->why_not_speculating);
    if (!s->speculates) return;
    printf(
        "speculation updates within the backward pass are taken back if the step is clipped or skipped; %s of the disk "
        "keep what they replace\n",
        ps_bytes_format(s->kept_bytes, bytes[0]));
    printf("            a step takes %s and moves %s from and to the disk; after a step that is taken back %s and %s; "
           "without speculation %s\n",
           seconds(f->step.all_ns, time[0]), ps_bytes_format(disk_bytes(f->moved_bytes), bytes[1]),
           seconds(f->taken_back_step.all_ns, time[1]),
           ps_bytes_format(disk_bytes(f->taken_back_moved_bytes), bytes[2]),
           f->waiting_step_ns > 0 ? seconds(f->waiting_step_ns, time[2]) : "not tried");
    if (s->recomputes)
        printf("            the passes of a step that is clipped are made a second time, which takes %s; with that it "
               "moves %s\n",
               seconds(f->recompute_step.all_ns, time[0]), ps_bytes_format(disk_bytes(f->wrong_moved_bytes), bytes[1]));
    if (f->max_wrong_share < 1)
        printf("            while more than %.0f %% of steps are taken back, it is paused: %s a step\n",
               100 * f->max_wrong_share, seconds(f->paused_step.all_ns, time[0]));
}

static void show_bound(const ps_simulation *s)
{
    char text[PS_BOUND_TEXT_MAX];
    const ps_bound *b = &s->bound;
    printf("throughput  %.3g TFLOP/s a rank (6 N tokens / time), %.3g counting recomputation (8 N)\n",
           ps_simulation_flops_per_s(s, 6) * 1e-12, ps_simulation_flops_per_s(s, 8) * 1e-12);
    printf("at best     %s\n", ps_bound_text(b, text));
    printf("            the plan takes %.2f x as long", (double)s->forecast.step.all_ns / (double)ps_bound_ns(b));
    ps_bound_between(b, &s->forecast.step, text);
    printf("%s%s\n", text[0] != '\0' ? ": " : "", text);
}

void plan_text_end(const plan_text *t)
{
    const ps_simulation *s = t->simulation;
    if (!s->fits) return;
    show_saving(t);
    if (!t->is_verbose) {
        printf("\nTables of memory and time: -v. Every figure: --json.\n");
        return;
    }
    show_tiers(s);
    show_lanes(s);
    show_chunks(s);
    show_speculation(s);
    show_bound(s);
}

void plan_text_show_sizes(const plan_text *t)
{
    char bytes[PS_BYTES_TEXT_MAX];
    show_machine(t);
    show_model(t);
    show_saving(t);
    printf("others    %s of activations and workspace at most\n",
           ps_bytes_format(t->simulation->non_model_bytes, bytes));
}

void plan_text_show_largest(const ps_largest *l)
{
    char n[CLI_TEXT_MAX], time[CLI_TEXT_MAX], rate[CLI_TEXT_MAX];
    if (l->n_params == 0)
        printf("none fits\n");
    else
        printf("%s parameters (%" PRId64 " wide, %" PRId64 " layers), %s a step, %s\n", cli_text_count(l->n_params, n),
               l->hidden_size, l->n_layers, cli_text_seconds(ps_simulation_step_s(&l->simulation), time),
               cli_text_rate(ps_simulation_tokens_per_s(&l->simulation), rate));
}
