#include "progress.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BAR_CELLS 20

static double now_s(void)
{
    return (double)client_clock_ns() * 1e-9;
}

void progress_begin(progress *p, int64_t n_steps, int64_t log_interval, int may_draw)
{
    *p = (progress){.n_steps = n_steps,
                    .log_interval = log_interval,
                    .is_terminal = may_draw && isatty(STDOUT_FILENO),
                    .begin_s = now_s()};
}

double progress_padding(int64_t tokens, int64_t padding)
{
    return padding > 0 ? (double)padding / (double)(tokens + padding) : 0;
}

/* Tokens in so many seconds, and behind them how much padding was computed beside. Returns text. */
static const char *format_speed(int64_t tokens, int64_t padding, double seconds, char text[64])
{
    char beside[32] = "";
    if (padding > 0) snprintf(beside, sizeof beside, " (%.1f %% padding)", progress_padding(tokens, padding) * 100);
    snprintf(text, 64, "%.0f tokens/s%s", seconds > 0 ? (double)tokens / seconds : 0, beside);
    return text;
}

static void format_time(double seconds, char *text, size_t bytes)
{
    const long s = lround(seconds);
    if (s >= 3600)
        snprintf(text, bytes, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(text, bytes, "%ld:%02ld", s / 60, s % 60);
}

static void show_tiers(const ps_memory_info *m)
{
    char device[BYTES_TEXT_MAX], host[BYTES_TEXT_MAX], disk[BYTES_TEXT_MAX];
    printf(" | device %s host %s disk %s", client_bytes(m->device_used_bytes, device),
           client_bytes(m->host_used_bytes, host), client_bytes(m->disk_used_bytes, disk));
}

static void show_bar(const progress *p, const progress_step *s, const ps_memory_info *m)
{
    char eta[32], bar[BAR_CELLS + 1], speed[64];
    const int64_t filled = s->step * BAR_CELLS / p->n_steps;
    for (int i = 0; i < BAR_CELLS; i++) bar[i] = i < filled ? '#' : '.';
    bar[BAR_CELLS] = '\0';
    format_time((now_s() - p->begin_s) / (double)s->step * (double)(p->n_steps - s->step), eta, sizeof eta);
    printf("\r\033[K[%s] %lld/%lld loss %.4f %s ETA %s", bar, (long long)s->step, (long long)p->n_steps, s->loss,
           format_speed(s->tokens, s->padding, s->step_s, speed), eta);
    show_tiers(m);
}

static void show_line(const progress *p, const progress_step *s, const ps_memory_info *m)
{
    char speed[64];
    printf("step %lld/%lld loss %.4f lr %.3g grad_norm %.3f %s %.3f s", (long long)s->step, (long long)p->n_steps,
           s->loss, s->lr, s->grad_norm, format_speed(s->tokens, s->padding, s->step_s, speed), s->step_s);
    show_tiers(m);
    if (s->skipped) printf(" | %s: step skipped", s->loss_scale > 1 ? "overflow" : "gradients are not finite");
    putchar('\n');
}

void progress_show(const progress *p, const progress_step *s, const ps_memory_info *memory)
{
    if (p->is_terminal)
        show_bar(p, s, memory);
    else if (s->step % p->log_interval == 0 || s->step == 1 || s->step == p->n_steps)
        show_line(p, s, memory);
    if (!isnan(s->eval_loss)) {
        progress_clear(p);
        printf("step %lld validation loss %.4f\n", (long long)s->step, s->eval_loss);
    }
    fflush(stdout);
}

void progress_clear(const progress *p)
{
    if (p->is_terminal) printf("\r\033[K");
    fflush(stdout);
}

void progress_end(const progress *p)
{
    if (p->is_terminal) putchar('\n');
}

static void print_tier(const char *name, int64_t peak, int64_t planned, int64_t budget)
{
    char a[BYTES_TEXT_MAX], b[BYTES_TEXT_MAX], c[BYTES_TEXT_MAX];
    if (budget == 0)
        printf("%-8s %12s %12s %12s\n", name, "-", "-", "none");
    else
        printf("%-8s %12s %12s %12s\n", name, client_bytes(peak, a), client_bytes(planned, b), client_bytes(budget, c));
}

static void print_link(const char *name, int64_t bytes, int64_t steps)
{
    char all[BYTES_TEXT_MAX], each[BYTES_TEXT_MAX];
    printf("%-16s %12s %12s\n", name, client_bytes(bytes, all), client_bytes(bytes / steps, each));
}

/* Each length of the sequences has a plan of its own, with logits kept or not. */
static void print_logits(const run_totals *t, int64_t steps)
{
    char bytes[BYTES_TEXT_MAX];
    printf("logits    ");
    if (t->kept_logits_steps == 0)
        printf("computed again for the backward pass\n");
    else if (t->kept_logits_steps == steps)
        printf("kept for the backward pass, %s\n", client_bytes(t->kept_logits_bytes, bytes));
    else
        printf("kept for the backward pass in %lld of %lld steps, %s at most\n", (long long)t->kept_logits_steps,
               (long long)steps, client_bytes(t->kept_logits_bytes, bytes));
}

/* How the disk is driven, and what that takes of the processors. */
static void print_disk(const run_totals *t)
{
    char files[32] = "";
    if (t->disk.backend[0] == '\0') return;
    if (t->disk.n_files > 1) snprintf(files, sizeof files, ", %d files", t->disk.n_files);
    printf("transfers %s%s%s%s, %s%s; %.2f s of processor time\n", t->disk.backend, t->disk.ways[0] ? " (" : "",
           t->disk.ways, t->disk.ways[0] ? ")" : "", t->disk.is_direct ? "O_DIRECT" : "through the page cache", files,
           (double)t->disk.processor_ns * 1e-9);
}

static void print_chunks(const run_totals *t)
{
    char rss[BYTES_TEXT_MAX];
    printf("process   %s resident at most\n", client_bytes(t->rss_peak_bytes, rss));
    printf("chunks    %lld of %lld elements, %.2f %% waste\n", (long long)t->memory.n_chunks,
           (long long)t->memory.chunk_elements, t->memory.chunk_waste * 100);
}

static void print_steps(const run_totals *t, int64_t steps)
{
    const ps_memory_info *m = &t->memory, *b = &t->before;
    char speed[64];
    printf("loss      %.4f -> %.4f in %lld steps, %lld tokens\n", t->loss_first, t->loss_last, (long long)steps,
           (long long)t->tokens);
    printf("speed     %s, %.1f s\n", format_speed(t->tokens, t->padding, t->seconds, speed), t->seconds);
    printf("waiting   %.1f s for copies, %.1f %% of the time\n", t->wait_s,
           t->seconds > 0 ? t->wait_s / t->seconds * 100 : 0);
    print_disk(t);
    print_logits(t, steps);
    print_chunks(t);
    printf("\n%-8s %12s %12s %12s\n", "tier", "peak", "predicted", "budget");
    print_tier("device", t->device_peak_bytes, m->planned_device_peak_bytes, m->device_budget_bytes);
    print_tier("host", t->host_peak_bytes, m->planned_host_peak_bytes, m->host_budget_bytes);
    print_tier("disk", t->disk_peak_bytes, m->planned_disk_peak_bytes, m->disk_budget_bytes);
    printf("\n%-16s %12s %12s\n", "moved", "all", "a step");
    print_link("host -> device", m->host_to_device_bytes - b->host_to_device_bytes, steps);
    print_link("device -> host", m->device_to_host_bytes - b->device_to_host_bytes, steps);
    print_link("disk reads", m->disk_read_bytes - b->disk_read_bytes, steps);
    print_link("disk writes", m->disk_write_bytes - b->disk_write_bytes, steps);
}

void progress_print_table(const run_totals *t)
{
    const ps_memory_info *m = &t->memory;
    const int64_t steps = t->steps - t->resumed_step;
    char data[BYTES_TEXT_MAX], ram[BYTES_TEXT_MAX];
    printf("\n%lld parameters, ", (long long)m->parameters);
    if (m->trained_parameters < m->parameters) printf("%lld of them trained, ", (long long)m->trained_parameters);
    printf("%s of model data, %s of memory budget (device + host)\n", client_bytes(m->model_data_bytes, data),
           client_bytes(m->device_budget_bytes + m->host_budget_bytes, ram));
    if (steps > 0) {
        print_steps(t, steps);
        return;
    }
    printf("steps     0: no step was trained\n");
    print_chunks(t);
}
