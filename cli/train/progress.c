#include "progress.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli_text.h"

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

double progress_tokens_per_s(int64_t tokens, double seconds)
{
    return seconds > 0 ? (double)tokens / seconds : 0;
}

const char *progress_speed(int64_t tokens, int64_t padding, double seconds, char text[PROGRESS_SPEED_MAX])
{
    char rate[CLI_TEXT_MAX], padded[32] = "";
    if (padding > 0) snprintf(padded, sizeof padded, " (%.1f %% padding)", progress_padding(tokens, padding) * 100);
    snprintf(text, PROGRESS_SPEED_MAX, "%s%s", cli_text_rate(progress_tokens_per_s(tokens, seconds), rate), padded);
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
    char device[PS_BYTES_TEXT_MAX], host[PS_BYTES_TEXT_MAX], disk[PS_BYTES_TEXT_MAX];
    printf(" | device %s host %s disk %s", ps_bytes_format(m->device_used_bytes, device),
           ps_bytes_format(m->host_used_bytes, host), ps_bytes_format(m->disk_used_bytes, disk));
}

static void show_bar(const progress *p, const progress_step *s, const ps_memory_info *m)
{
    char eta[32], bar[BAR_CELLS + 1], speed[PROGRESS_SPEED_MAX];
    const int64_t filled = s->step * BAR_CELLS / p->n_steps;
    for (int i = 0; i < BAR_CELLS; i++) bar[i] = i < filled ? '#' : '.';
    bar[BAR_CELLS] = '\0';
    format_time((now_s() - p->begin_s) / (double)s->step * (double)(p->n_steps - s->step), eta, sizeof eta);
    printf("\r\033[K[%s] %lld/%lld loss %.4f %s ETA %s", bar, (long long)s->step, (long long)p->n_steps, s->loss,
           progress_speed(s->tokens, s->padding, s->step_s, speed), eta);
    show_tiers(m);
}

static void show_line(const progress *p, const progress_step *s, const ps_memory_info *m)
{
    char speed[PROGRESS_SPEED_MAX];
    printf("step %lld/%lld loss %.4f lr %.3g grad_norm %.3f %s %.3f s", (long long)s->step, (long long)p->n_steps,
           s->loss, s->lr, s->grad_norm, progress_speed(s->tokens, s->padding, s->step_s, speed), s->step_s);
    show_tiers(m);
    if (s->is_skipped) printf(" | %s: step skipped", s->loss_scale > 1 ? "overflow" : "gradients are not finite");
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
