#include "run_summary.h"

#include <math.h>
#include <stdio.h>

#include "cli_text.h"

/* Waits for more than this share of a step limit it. */
#define LIMIT_SHARE 0.1
/* A step so many times as long as planned, or as short, was not planned well. */
#define SLOWER 1.3
#define FASTER 0.9

static int64_t steps_of(const run_totals *t)
{
    return t->steps - t->resumed_step;
}

/* ---- the summary ---- */

static void print_trained(const run_totals *t)
{
    char time[CLI_TEXT_MAX];
    if (steps_of(t) == 0) {
        printf("trained   nothing: 0 steps\n");
        return;
    }
    printf("trained   %lld steps, %lld tokens in %s; loss %.4f -> %.4f\n", (long long)steps_of(t), (long long)t->tokens,
           cli_text_seconds(t->seconds, time), t->loss_first, t->loss_last);
    if (t->speculated_steps > 0)
        printf("          updates within the backward pass of %lld of %lld steps were taken back\n",
               (long long)t->taken_back_steps, (long long)t->speculated_steps);
    if (t->recomputed_steps > 0)
        printf("          the passes of %lld of these steps were made a second time\n", (long long)t->recomputed_steps);
    if (t->paused_steps > 0)
        printf("          updates within the backward pass were paused in %lld steps, as too many were clipped or "
               "skipped\n",
               (long long)t->paused_steps);
}

static void print_model(const ps_memory_info *m)
{
    char n[CLI_TEXT_MAX], bytes[PS_BYTES_TEXT_MAX];
    printf("model     %s parameters, ", cli_text_count(m->parameters, n));
    if (m->trained_parameters < m->parameters) printf("%s of them trained, ", cli_text_count(m->trained_parameters, n));
    printf("%s of model data\n", ps_bytes_format(m->model_data_bytes, bytes));
}

/* Of several ranks the most that any took. Each has the budgets of rank 0: ranks use the smallest that one of them has
 * of each tier. */
static void print_memory(const run_summary_text *t)
{
    const ps_memory_info *m = &t->totals->memory;
    const int32_t n = ps_comm_size(t->comm);
    int64_t device = 0, host = 0, disk = 0, process = 0;
    char text[CLI_TIER_TEXT_MAX], bytes[PS_BYTES_TEXT_MAX];
    for (int32_t r = 0; r < n; r++) {
        device = max_i64(device, t->ranks[r].device_peak_bytes);
        host = max_i64(host, t->ranks[r].host_peak_bytes);
        disk = max_i64(disk, t->ranks[r].disk_peak_bytes);
        process = max_i64(process, t->ranks[r].rss_peak_bytes);
    }
    printf("memory    %s", cli_text_tier("device", device, m->device_budget_bytes, text));
    printf(", %s", cli_text_tier("host", host, m->host_budget_bytes, text));
    printf(", %s", cli_text_tier("disk", disk, m->disk_budget_bytes, text));
    printf("; whole process %s%s\n", ps_bytes_format(process, bytes), n > 1 ? " (most of any rank)" : "");
}

static bool waits_for_ranks(const run_summary_text *t)
{
    const double ranks_s = (double)t->ranks[ps_comm_rank(t->comm)].comm_wait_ns * 1e-9;
    return ranks_s > 0.5 * t->totals->wait_s && ranks_s > 0;
}

/* What computing stood still for. */
static const char *waited_for(const run_summary_text *t)
{
    const ps_memory_info *m = &t->totals->memory, *b = &t->totals->before;
    const int64_t disk = m->disk_read_bytes + m->disk_write_bytes - b->disk_read_bytes - b->disk_write_bytes;
    if (waits_for_ranks(t)) return "other ranks";
    return disk > 0 ? "the disk" : "copies between device and host";
}

static void print_faster(const program_change *c)
{
    if (c->text[0] == '\0') return;
    printf("faster    %s: %.2f x as fast, as simulated%s%s\n", c->text, c->gain, c->price != NULL ? "; but " : "",
           c->price != NULL ? c->price : "");
}

static void print_time(const run_summary_text *t)
{
    const run_totals *all = t->totals;
    const step_bound *b = t->bound;
    char step[CLI_TEXT_MAX], limit[CLI_LIMIT_TEXT_MAX], speed[PROGRESS_SPEED_MAX];
    printf("time      %s a step, %s\n", cli_text_seconds(b->measured_s, step),
           progress_speed(all->tokens, all->padding, all->seconds, speed));
    printf("limit     %s\n", cli_text_limit(b->measured_s - b->waiting_s, b->waiting_s, b->measured_s, waited_for(t),
                                            b->waiting_s > LIMIT_SHARE * b->measured_s, limit));
    print_faster(t->faster);
}

/* Which part was slower than planned, and what to do about it. */
static void print_unplanned(const run_summary_text *t)
{
    const step_bound *b = t->bound;
    const ps_bound_info *p = &b->plan;
    char took[CLI_TEXT_MAX], planned[CLI_TEXT_MAX], part[CLI_TEXT_MAX], planned_part[CLI_TEXT_MAX];
    if (!b->is_known || p->planned_s <= 0) return;
    const double computing_s = b->measured_s - b->waiting_s;
    const bool waits = b->waiting_s - p->planned_wait_s > computing_s - p->planned_compute_s;
    cli_text_seconds(b->measured_s, took);
    cli_text_seconds(p->planned_s, planned);
    cli_text_seconds(waits ? b->waiting_s : computing_s, part);
    cli_text_seconds(waits ? p->planned_wait_s : p->planned_compute_s, planned_part);
    if (b->measured_s < FASTER * p->bound_s)
        printf(
            "planned   %s a step, more than it took: this machine was measured while it was slower; measure it again "
            "(pstar info --forget)\n",
            planned);
    if (!b->is_steady || b->measured_s <= SLOWER * p->planned_s) return;
    printf("slower    %s a step, planned %s: ", took, planned);
    if (!waits)
        printf("computing took %s, planned %s. Stop other programs; if none runs, ", part, planned_part);
    else if (waits_for_ranks(t))
        printf("waiting for other ranks took %s, planned %s. Look at the machine of the slowest, or ", part,
               planned_part);
    else
        printf("waiting for %s took %s, planned %s. Stop what else uses it; if nothing does, ", waited_for(t), part,
               planned_part);
    printf("measure this machine again (pstar info --forget)\n");
}

/* ---- tables ---- */

static void print_tier(const char *name, int64_t peak, int64_t planned, int64_t budget)
{
    char a[PS_BYTES_TEXT_MAX], b[PS_BYTES_TEXT_MAX], c[PS_BYTES_TEXT_MAX];
    if (budget == 0) return;
    printf("%-16s %9s %9s %9s\n", name, ps_bytes_format(peak, a), ps_bytes_format(planned, b),
           ps_bytes_format(budget, c));
}

static void print_tiers(const run_totals *t)
{
    const ps_memory_info *m = &t->memory;
    printf("\n%-16s %9s %9s %9s\n", "memory", "peak", "planned", "budget");
    print_tier("device", t->device_peak_bytes, m->planned_device_peak_bytes, m->device_budget_bytes);
    print_tier("host", t->host_peak_bytes, m->planned_host_peak_bytes, m->host_budget_bytes);
    print_tier("disk", t->disk_peak_bytes, m->planned_disk_peak_bytes, m->disk_budget_bytes);
}

static void print_link(const char *name, int64_t bytes, int64_t steps, bool is_copied)
{
    char all[PS_BYTES_TEXT_MAX], each[PS_BYTES_TEXT_MAX];
    if (bytes == 0) return;
    printf("%-16s %9s %9s%s\n", name, ps_bytes_format(bytes, all), ps_bytes_format(bytes / steps, each),
           is_copied ? "" : "  same RAM, nothing copied");
}

static void print_links(const run_summary_text *t)
{
    const ps_memory_info *m = &t->totals->memory, *b = &t->totals->before;
    const int64_t steps = steps_of(t->totals);
    printf("\n%-16s %9s %9s\n", "moved", "all", "a step");
    print_link("host to device", m->host_to_device_bytes - b->host_to_device_bytes, steps, !t->device_is_ram);
    print_link("device to host", m->device_to_host_bytes - b->device_to_host_bytes, steps, !t->device_is_ram);
    print_link("disk reads", m->disk_read_bytes - b->disk_read_bytes, steps, true);
    print_link("disk writes", m->disk_write_bytes - b->disk_write_bytes, steps, true);
}

static void print_ranks(const run_summary_text *t)
{
    char a[PS_BYTES_TEXT_MAX], b[PS_BYTES_TEXT_MAX], c[PS_BYTES_TEXT_MAX], d[PS_BYTES_TEXT_MAX];
    const int64_t steps = steps_of(t->totals);
    printf("\n%-16s %11s %9s %11s %9s  %s\n", "rank", "device peak", "planned", "sent a step", "planned", "machine");
    for (int32_t i = 0; i < ps_comm_size(t->comm); i++) {
        const run_rank *r = &t->ranks[i];
        printf("%-16d %11s %9s %11s %9s  %s\n", i, ps_bytes_format(r->device_peak_bytes, a),
               ps_bytes_format(r->planned_device_peak_bytes, b), ps_bytes_format(r->sent_bytes / steps, c),
               ps_bytes_format(r->planned_sent_bytes, d), ps_comm_host(t->comm, i));
    }
}

/* Each length of the sequences has a plan of its own, with logits kept or not. */
static void print_logits(const run_totals *t)
{
    char bytes[PS_BYTES_TEXT_MAX];
    ps_bytes_format(t->kept_logits_bytes, bytes);
    if (t->kept_logits_steps == 0)
        printf("logits    computed again for the backward pass\n");
    else if (t->kept_logits_steps == steps_of(t))
        printf("logits    kept for the backward pass, %s\n", bytes);
    else
        printf("logits    kept for the backward pass in %lld of %lld steps, %s at most\n",
               (long long)t->kept_logits_steps, (long long)steps_of(t), bytes);
}

/* How the disk is driven, and what that takes of the processors. */
static void print_disk(const run_totals *t)
{
    char files[32] = "", time[CLI_TEXT_MAX];
    if (t->disk.backend[0] == '\0') return;
    if (t->disk.n_files > 1) snprintf(files, sizeof files, ", %d files", t->disk.n_files);
    printf("disk      %s%s%s%s, %s%s; %s of processor time\n", t->disk.backend, t->disk.ways[0] ? " (" : "",
           t->disk.ways, t->disk.ways[0] ? ")" : "", t->disk.is_direct ? "O_DIRECT" : "through the page cache", files,
           cli_text_seconds((double)t->disk.processor_ns * 1e-9, time));
}

static void print_plan(const step_bound *b)
{
    const ps_bound_info *p = &b->plan;
    char a[CLI_TEXT_MAX], c[CLI_TEXT_MAX], d[CLI_TEXT_MAX];
    if (!b->is_known || p->bound_s <= 0) return;
    printf("planned   %s a step, computing %s, waiting %s%s%s\n", cli_text_seconds(p->planned_s, a),
           cli_text_seconds(p->planned_compute_s, c), cli_text_seconds(p->planned_wait_s, d),
           p->between[0] != '\0' ? ": " : "", p->between);
    printf("at best   %s\n", p->text);
}

static void print_tables(const run_summary_text *t)
{
    const run_totals *all = t->totals;
    if (steps_of(all) > 0) {
        print_tiers(all);
        print_links(t);
        if (ps_comm_size(t->comm) > 1) print_ranks(t);
        printf("\n");
        print_disk(all);
        print_logits(all);
        print_plan(t->bound);
    }
    printf("chunks    %lld of %lld elements, %.2f %% unused; %lld parameters\n", (long long)all->memory.n_chunks,
           (long long)all->memory.chunk_elements, all->memory.chunk_waste * 100, (long long)all->memory.parameters);
}

void run_summary_print(const run_summary_text *t, bool is_verbose)
{
    printf("\n");
    print_trained(t->totals);
    print_model(&t->totals->memory);
    print_memory(t);
    if (steps_of(t->totals) > 0) {
        print_time(t);
        print_unplanned(t);
    }
    if (is_verbose) print_tables(t);
}
