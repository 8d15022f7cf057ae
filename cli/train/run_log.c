#include "run_log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "client_file.h"
#include "event_file.h"
#include "log_file.h"

enum { FOLDER_BYTES = CLIENT_FOLDER_MAX, PATH_BYTES = FOLDER_BYTES + 16, HOLDER_BYTES = 128 };

struct run_log {
    char folder[FOLDER_BYTES];
    int lock; /* descriptor, -1: could not be opened */
    log_file metrics;
    bool has_events;
    event_file *events; /* with has_events, from run_log_begin on */
    const progress *shown;
    bool has_warned, has_warned_of_events;
};

/* Report a failure of logging, which is the last error, once for each file. */
static void warn(const run_log *l, bool *has_warned, const char *consequence)
{
    if (*has_warned) return;
    *has_warned = true;
    progress_clear(l->shown);
    fprintf(stderr, "pstar train: %s; %s\n", ps_last_error(), consequence);
}

static void warn_of_metrics(run_log *l)
{
    warn(l, &l->has_warned, "training goes on, and lines are kept in memory until they can be written");
}

static void warn_of_events(run_log *l)
{
    warn(l, &l->has_warned_of_events,
         "training goes on, and TensorBoard may show too little or too much; metrics.jsonl has everything");
}

static ps_status make_folders(const char *folder)
{
    char cause[4200];
    const ps_status st = client_make_folders(folder);
    if (st == PS_OK) return PS_OK;
    snprintf(cause, sizeof cause, "%s", ps_last_error());
    return client_fail(st, "train.output_dir: %s", cause);
}

/* Write the holder of the lock, "process 1234 on host", for messages of other processes. Failures are ignored. */
static void sign_lock(int lock)
{
    char text[HOLDER_BYTES], host[HOLDER_BYTES / 2] = "";
    (void)gethostname(host, sizeof host - 1);
    const int n = snprintf(text, sizeof text, "process %ld on %s\n", (long)getpid(), host);
    if (ftruncate(lock, 0) == 0 && pwrite(lock, text, (size_t)n, 0) != n) (void)!ftruncate(lock, 0);
}

/* The holder's text, in parentheses; "" where it is not printable. */
static void read_holder(int lock, char text[HOLDER_BYTES + 8])
{
    char line[HOLDER_BYTES + 1] = "";
    text[0] = '\0';
    if (pread(lock, line, HOLDER_BYTES, 0) <= 0) return;
    line[strcspn(line, "\n")] = '\0';
    for (const char *at = line; *at != '\0'; at++)
        if (*at < ' ' || *at > '~') return;
    if (line[0] != '\0') snprintf(text, HOLDER_BYTES + 8, " (%s)", line);
}

/* The kernel releases the lock when the process ends in any way. A folder that does not support locks is used without.
 * Runs with PyTorch use the same lock (python/patrickstar/_output_lock.py). */
static ps_status lock_folder(run_log *l)
{
    char path[PATH_BYTES], holder[HOLDER_BYTES + 8];
    snprintf(path, sizeof path, "%s/.lock", l->folder);
    l->lock = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (l->lock < 0) return PS_OK;
    if (flock(l->lock, LOCK_EX | LOCK_NB) == 0) {
        sign_lock(l->lock);
        return PS_OK;
    }
    if (errno != EWOULDBLOCK) return PS_OK;
    read_holder(l->lock, holder);
    return client_fail(PS_ESTATE,
                       "train.output_dir: another run is writing into %s%s: wait for its end, or name another folder",
                       l->folder, holder);
}

ps_status run_log_open(const char *folder, bool has_events, const progress *shown, run_log **out)
{
    ps_status st = PS_OK;
    run_log *l = NULL;
    *out = NULL;
    if (strlen(folder) >= FOLDER_BYTES)
        return client_fail(PS_EINVAL, "train.output_dir is longer than %d", FOLDER_BYTES - 1);
    TRY(client_alloc(1, sizeof *l, &l));
    l->lock = -1;
    l->has_events = has_events;
    l->shown = shown;
    log_file_init(&l->metrics);
    snprintf(l->folder, sizeof l->folder, "%s", folder);
    snprintf(l->metrics.path, sizeof l->metrics.path, "%s/metrics.jsonl", folder);
    TRY_GOTO(make_folders(folder));
    TRY_GOTO(lock_folder(l));
    *out = l;
    l = NULL;
out:
    run_log_close(l);
    return st;
}

/* Keep the complete lines of steps up to last_step. The line of a checkpoint comes when it is complete, after those of
 * later steps. */
static log_kept keep_steps(char *text, int64_t n_bytes, int64_t last_step)
{
    log_kept kept = {0};
    for (int64_t at = 0; at < n_bytes;) {
        const char *line = text + at, *end = memchr(line, '\n', (size_t)(n_bytes - at));
        if (end == NULL) break;
        const int64_t n_line = end + 1 - line;
        json_t *o = json_loadb(line, (size_t)n_line, 0, NULL);
        const json_t *step = json_object_get(o, "step");
        if (json_is_integer(step) && json_integer_value(step) <= last_step) log_kept_add(&kept, text, at, n_line);
        json_decref(o);
        at += n_line;
    }
    return kept;
}

ps_status run_log_begin(run_log *l, int64_t last_step)
{
    char *text = NULL;
    size_t n = 0;
    if (l == NULL) return PS_OK;
    if (last_step > 0) TRY(client_read_file(l->metrics.path, &text, &n));
    const log_kept kept = keep_steps(text, (int64_t)n, last_step);
    ps_status st = log_file_open_kept(&l->metrics, text, &kept);
    free(text);
    TRY(st);
    if (log_file_flush(&l->metrics) != PS_OK) warn_of_metrics(l);
    st = l->has_events ? event_file_open(l->folder, last_step, &l->events) : event_file_cut_all(l->folder, last_step);
    if (st != PS_OK) warn_of_events(l);
    return PS_OK;
}

/* Takes ownership of o. */
static void put_line(run_log *l, json_t *o)
{
    char *text = json_dumps(o, JSON_COMPACT);
    ps_status st = PS_OK;
    if (text == NULL) {
        st = client_fail(PS_ENOMEM_HOST, "no memory for a line of %s", l->metrics.path);
    } else {
        const size_t n = strlen(text);
        text[n] = '\n'; /* in place of the zero byte */
        st = log_file_put(&l->metrics, text, n + 1);
    }
    if (st != PS_OK) warn_of_metrics(l);
    if (l->events != NULL && event_file_put(l->events, o) != PS_OK) warn_of_events(l);
    free(text);
    json_decref(o);
}

void run_log_close(run_log *l)
{
    if (l == NULL) return;
    log_file_close(&l->metrics);
    event_file_close(l->events);
    if (l->lock >= 0) close(l->lock);
    free(l);
}

/* JSON has no infinity and no NaN: null. */
static void put_real(json_t *o, const char *key, double value)
{
    json_object_set_new(o, key, isfinite(value) ? json_real(value) : json_null());
}

static void put_int(json_t *o, const char *key, int64_t value)
{
    json_object_set_new(o, key, json_integer(value));
}

static void put_links(json_t *o, const ps_memory_info *before, const ps_memory_info *after)
{
    const int64_t up = after->host_to_device_bytes - before->host_to_device_bytes,
                  down = after->device_to_host_bytes - before->device_to_host_bytes,
                  read = after->disk_read_bytes - before->disk_read_bytes,
                  write = after->disk_write_bytes - before->disk_write_bytes;
    put_int(o, "moved_bytes", up + down + read + write);
    put_int(o, "host_to_device_bytes", up);
    put_int(o, "device_to_host_bytes", down);
    put_int(o, "disk_read_bytes", read);
    put_int(o, "disk_write_bytes", write);
}

static void put_ranks(json_t *o, const run_rank *ranks, int32_t n, bool has_plan)
{
    if (n <= 1) return;
    json_t *all = json_array();
    for (int32_t r = 0; r < n; r++) {
        json_t *one = json_object();
        put_int(one, "device_peak_bytes", ranks[r].device_peak_bytes);
        put_int(one, "host_peak_bytes", ranks[r].host_peak_bytes);
        put_int(one, "disk_peak_bytes", ranks[r].disk_peak_bytes);
        if (ranks[r].rss_peak_bytes > 0) put_int(one, "rss_peak_bytes", ranks[r].rss_peak_bytes);
        put_int(one, "host_to_device_bytes", ranks[r].host_to_device_bytes);
        put_int(one, "device_to_host_bytes", ranks[r].device_to_host_bytes);
        put_int(one, "disk_read_bytes", ranks[r].disk_read_bytes);
        put_int(one, "disk_write_bytes", ranks[r].disk_write_bytes);
        put_int(one, "sent_bytes", ranks[r].sent_bytes);
        put_real(one, "comm_wait_s", (double)ranks[r].comm_wait_ns * 1e-9);
        if (has_plan) {
            put_int(one, "planned_device_peak_bytes", ranks[r].planned_device_peak_bytes);
            put_int(one, "planned_host_peak_bytes", ranks[r].planned_host_peak_bytes);
            put_int(one, "planned_disk_peak_bytes", ranks[r].planned_disk_peak_bytes);
            put_int(one, "planned_sent_bytes_per_step", ranks[r].planned_sent_bytes);
        }
        json_array_append_new(all, one);
    }
    json_object_set_new(o, "ranks", all);
}

void run_log_step(run_log *l, const progress_step *s, const ps_step_info *info, const ps_memory_info *before,
                  const ps_memory_info *after, const run_rank *ranks, int32_t n_ranks)
{
    if (l == NULL) return;
    json_t *o = json_object();
    put_int(o, "step", s->step);
    put_real(o, "loss", s->loss);
    put_real(o, "lr", info->learning_rate);
    put_real(o, "grad_norm", info->grad_norm);
    put_real(o, "loss_scale", info->loss_scale);
    json_object_set_new(o, "skipped", json_boolean(info->is_skipped));
    if (info->n_speculated > 0) json_object_set_new(o, "taken_back", json_boolean(info->n_taken_back > 0));
    if (info->recomputed) json_object_set_new(o, "recomputed", json_true());
    if (info->speculation_paused) json_object_set_new(o, "speculation_paused", json_true());
    put_real(o, "step_s", s->step_s);
    put_int(o, "tokens", s->tokens);
    put_real(o, "tokens_per_s", progress_tokens_per_s(s->tokens, s->step_s));
    put_real(o, "padding", progress_padding(s->tokens, s->padding));
    put_int(o, "device_peak_bytes", after->device_peak_bytes);
    put_int(o, "host_peak_bytes", after->host_peak_bytes);
    put_int(o, "disk_peak_bytes", after->disk_peak_bytes);
    put_links(o, before, after);
    put_real(o, "wait_s", (double)(after->wait_ns - before->wait_ns) * 1e-9);
    if (!isnan(s->eval_loss)) put_real(o, "eval_loss", s->eval_loss);
    put_ranks(o, ranks, n_ranks, false);
    put_line(l, o);
}

void run_log_checkpoint(run_log *l, int64_t step, const ps_checkpoint_info *info, const char *error)
{
    if (l == NULL) return;
    json_t *o = json_object();
    put_int(o, "step", step);
    if (info != NULL) {
        json_object_set_new(o, "checkpoint", json_string(info->name));
        put_int(o, "bytes", info->bytes);
        put_real(o, "seconds", info->seconds);
        put_real(o, "stall_s", info->stall_seconds);
    } else {
        json_object_set_new(o, "checkpoint_error", json_string(error));
    }
    put_line(l, o);
}

int64_t run_log_summary_steps(const run_log *l)
{
    char path[PATH_BYTES], *text = NULL;
    size_t n = 0;
    if (l == NULL) return -1;
    snprintf(path, sizeof path, "%s/summary.json", l->folder);
    json_t *o = client_read_file(path, &text, &n) == PS_OK && text != NULL ? json_loadb(text, n, 0, NULL) : NULL;
    const json_t *has = json_object_get(o, "steps");
    const int64_t steps = json_is_integer(has) ? json_integer_value(has) : -1;
    json_decref(o);
    free(text);
    return steps;
}

static void put_memory(json_t *o, const run_totals *t)
{
    const ps_memory_info *m = &t->memory;
    put_int(o, "parameters", m->parameters);
    put_int(o, "trained_parameters", m->trained_parameters);
    put_int(o, "model_data_bytes", m->model_data_bytes);
    put_int(o, "chunk_elements", m->chunk_elements);
    put_int(o, "n_chunks", m->n_chunks);
    put_real(o, "chunk_waste", m->chunk_waste);
    put_int(o, "device_budget_bytes", m->device_budget_bytes);
    put_int(o, "host_budget_bytes", m->host_budget_bytes);
    put_int(o, "disk_budget_bytes", m->disk_budget_bytes);
    put_int(o, "device_peak_bytes", t->device_peak_bytes);
    put_int(o, "host_peak_bytes", t->host_peak_bytes);
    put_int(o, "disk_peak_bytes", t->disk_peak_bytes);
    put_int(o, "planned_device_peak_bytes", m->planned_device_peak_bytes);
    put_int(o, "planned_host_peak_bytes", m->planned_host_peak_bytes);
    put_int(o, "planned_disk_peak_bytes", m->planned_disk_peak_bytes);
    put_int(o, "planned_step", m->planned_step);
    put_int(o, "planned_moved_bytes_per_step", m->planned_moved_bytes);
    put_int(o, "non_model_peak_bytes", m->non_model_peak_bytes);
    put_int(o, "kept_logits_steps", t->kept_logits_steps);
    put_int(o, "kept_logits_bytes", t->kept_logits_bytes);
    put_int(o, "rss_peak_bytes", t->rss_peak_bytes);
    if (t->disk.backend[0] == '\0') return;
    put_real(o, "disk_processor_s", (double)t->disk.processor_ns * 1e-9);
    json_object_set_new(o, "disk_transfers", json_string(t->disk.backend));
    json_object_set_new(o, "disk_transfer_options", json_string(t->disk.ways));
    json_object_set_new(o, "disk_is_direct", json_boolean(t->disk.is_direct));
    put_int(o, "disk_files", t->disk.n_files);
}

static void put_faster(json_t *o, const program_change *c)
{
    if (c->text[0] == '\0') return;
    json_object_set_new(o, "faster",
                        json_pack("{s:s, s:f, s:s*}", "change", c->text, "gain", c->gain, "price", c->price));
}

ps_status run_log_summary(run_log *l, const run_summary *s)
{
    const run_totals *t = s->totals;
    if (l == NULL) return PS_OK;
    if (l->events != NULL && event_file_flush(l->events) != PS_OK) warn_of_events(l);
    TRY(log_file_flush(&l->metrics));
    char hash[17], path[PATH_BYTES], version[32];
    snprintf(hash, sizeof hash, "%016" PRIx64, s->weights_xxh3);
    snprintf(path, sizeof path, "%s/summary.json", l->folder);
    snprintf(version, sizeof version, "%d.%d.%d", PS_VERSION_MAJOR, PS_VERSION_MINOR, PS_VERSION_PATCH);
    json_t *o = json_object();
    json_object_set_new(o, "version", json_string(version));
    json_object_set_new(o, "weights_xxh3", json_string(hash));
    put_int(o, "steps", t->steps);
    put_int(o, "resumed_step", t->resumed_step);
    put_int(o, "tokens", t->tokens);
    put_real(o, "seconds", t->seconds);
    put_real(o, "tokens_per_s", progress_tokens_per_s(t->tokens, t->seconds));
    put_real(o, "padding", progress_padding(t->tokens, t->padding));
    put_real(o, "wait_s", t->wait_s);
    put_real(o, "loss_first", t->loss_first);
    put_real(o, "loss_last", t->loss_last);
    json_object_set_new(o, "interrupted", json_boolean(s->interrupted));
    if (t->speculated_steps > 0) put_int(o, "speculated_steps", t->speculated_steps);
    if (t->speculated_steps > 0) put_int(o, "taken_back_steps", t->taken_back_steps);
    if (t->recomputed_steps > 0) put_int(o, "recomputed_steps", t->recomputed_steps);
    if (t->paused_steps > 0) put_int(o, "speculation_paused_steps", t->paused_steps);
    put_memory(o, t);
    put_links(o, &t->before, &t->memory);
    put_ranks(o, s->ranks, s->n_ranks, true);
    put_real(o, "step_s", s->bound->measured_s);
    put_real(o, "step_computing_s", s->bound->measured_s - s->bound->waiting_s);
    put_real(o, "step_waiting_s", s->bound->waiting_s);
    put_faster(o, s->faster);
    json_t *bound = step_bound_json(s->bound);
    if (bound != NULL) json_object_set_new(o, "bound", bound);
    json_object_set_new(o, "backend", json_string(s->backend));
    if (s->gpu != NULL) json_object_set_new(o, "gpu", json_string(s->gpu));
    json_object_set_new(o, "config", json_loads(s->config_json, 0, NULL));
    char *text = json_dumps(o, JSON_INDENT(2));
    json_decref(o);
    if (text == NULL) return client_fail(PS_ENOMEM_HOST, "no memory for %s", path);
    const ps_status st = client_write_file(path, text, strlen(text));
    free(text);
    return st;
}
