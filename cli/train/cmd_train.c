/* cmd_train.c - pstar train. */
#include <argp.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoints.h"
#include "cli_data_loader.h"
#include "cli_device.h"
#include "cli_eval.h"
#include "client.h"
#include "commands.h"
#include "config_arguments.h"
#include "disk_room.h"
#include "earlier_run.h"
#include "program.h"
#include "progress.h"
#include "ranks.h"
#include "run_log.h"
#include "run_summary.h"
#include "samples.h"
#include "step_bound.h"
#include "stop.h"
#include "unquantized.h"

typedef struct train_arguments {
    bool help_config;
    bool resume, overwrite, is_verbose;
    config_arguments config;
    const char *resume_from;
} train_arguments;

/* Options that this program itself uses. The configuration owns the texts. */
typedef struct train_settings {
    int64_t steps, log_interval, eval_interval, eval_steps;
    bool saves, logs_events;
    const char *output_dir, *from_pretrained;
} train_settings;

/* State of a run. Each rank has one, and calls the same functions in the same order; ranks agree on the result of calls
 * that can fail on one rank only. */
typedef struct run {
    ps_comm *comm;
    int32_t rank, n_ranks;
    run_rank *ranks;                /* [n_ranks] of the last step */
    run_rank own, *totals_of_ranks; /* of the run: this rank's, and [n_ranks] at the end */
    ps_config *config;
    train_settings o;
    ps_data_loader *loader;
    ps_engine *engine;
    run_log *log;               /* rank 0's */
    int64_t B, T, accumulation; /* T: of the present step */
    int64_t whole;              /* configured length of sequences */
    ps_rows *rows;
    run_totals totals;
    step_times times;
    step_bound bound;      /* at the end */
    program_change faster; /* as well */
    progress progress;
    checkpoints checkpoints;
    samples samples;
    bool resume;
    const char *resume_from; /* NULL: the latest */
    bool is_overdue;         /* the folder has the final files of a run that continued after this checkpoint: keep
                                them */
    bool is_stopped;         /* by a signal, before train.steps; the same on all ranks */
} run;

static void close_run(run *r)
{
    samples_close(&r->samples);
    ps_engine_destroy(r->engine);
    run_log_close(r->log); /* last, as it has the lock of the folder */
    ps_rows_destroy(r->rows);
    ps_data_loader_close(r->loader);
    free(r->ranks);
    free(r->totals_of_ranks);
    step_times_deinit(&r->times);
    ps_comm_close(r->comm);
    ps_config_destroy(r->config);
}

/* ---- data ---- */

static ps_status check_data_loader(run *r)
{
    TRY(ps_data_loader_keep_labels(r->loader, r->config));
    TRY(ps_data_loader_keep_chat_format(r->loader, r->config));
    TRY(ps_config_take_epochs(r->config, r->loader, r->n_ranks));
    if (r->o.eval_interval > 0 && ps_data_loader_sample_count(r->loader, PS_SPLIT_VALIDATION) == 0)
        return client_fail(PS_EINVAL, "train.eval_interval = %lld needs data.validation or data.validation_split",
                           (long long)r->o.eval_interval);
    return PS_OK;
}

/* Rows of a step, over all ranks. */
static int64_t step_rows(const run *r)
{
    return client_int(r->config, "train_micro_batch_size_per_gpu") *
           client_int(r->config, "gradient_accumulation_steps") * r->n_ranks;
}

/* epochs: train.epochs before its conversion to steps. */
static void print_epoch(const run *r, double epochs)
{
    const int64_t n = ps_data_loader_sample_count(r->loader, PS_SPLIT_TRAIN), rows = step_rows(r);
    printf("an epoch is %lld samples, %.6g steps of %lld", (long long)n, (double)n / (double)rows, (long long)rows);
    if (epochs > 0) printf("; train.epochs %g: %lld steps", epochs, (long long)r->o.steps);
    putchar('\n');
}

static ps_status open_data(run *r)
{
    double epochs = 0;
    kept_padding padding;
    TRY(ps_config_get_double(r->config, "train.epochs", &epochs));
    TRY(checkpoints_keep_padding(r->config, r->comm, r->resume, r->resume_from, &padding));
    TRY(cli_data_loader_open_on_ranks(r->config, r->comm, &r->loader));
    TRY(ps_comm_agree(r->comm, check_data_loader(r)));
    TRY(ps_comm_agree(r->comm, samples_open(r->config, &r->samples)));
    r->o.steps = client_int(r->config, "train.steps");
    print_epoch(r, epochs);
    if (r->rank == 0) cli_print_instruct_info(r->config, r->loader);
    if (r->rank == 0) checkpoints_report_padding(&padding, r->config, r->loader);
    return PS_OK;
}

static void print_load(const char *path, const ps_load_info *info)
{
    printf("loaded %lld tensors from %s", (long long)info->n_loaded, path);
    if (info->n_new > 0) printf(", %lld initialised at random (%s ...)", (long long)info->n_new, info->first_new);
    if (info->n_ignored > 0)
        printf("; %lld of its tensors %s not used", (long long)info->n_ignored, info->n_ignored == 1 ? "is" : "are");
    putchar('\n');
}

/* Initial weights of a run that is not resumed: of a model, or of a file. */
static ps_status begin_weights(run *r)
{
    ps_load_info info = {.struct_size = sizeof info};
    TRY(ps_engine_begin_weights(r->engine, r->config, r->config, &info));
    if (r->o.from_pretrained[0] != '\0') print_load(r->o.from_pretrained, &info);
    if (info.n_new_rows > 0)
        printf("the embeddings have %lld tokens, the last %lld at random\n",
               (long long)client_int(r->config, "model.vocab_size"), (long long)info.n_new_rows);
    return PS_OK;
}

static ps_status open_ranks(run *r, const train_arguments *a)
{
    TRY(ranks_open(a->config.path, a->config.overrides, a->config.n_overrides, &r->config, &r->comm));
    const ps_config *c = r->config;
    r->o = (train_settings){.steps = client_int(c, "train.steps"),
                            .log_interval = client_int(c, "train.log_interval"),
                            .eval_interval = client_int(c, "train.eval_interval"),
                            .eval_steps = client_int(c, "train.eval_steps"),
                            .saves = client_int(c, "train.save") != 0,
                            .logs_events = client_string(c, "train.log_to")[0] != '\0', /* tensorboard */
                            .output_dir = client_string(c, "train.output_dir"),
                            .from_pretrained = client_string(c, "model.from_pretrained")};
    if (a->resume && r->o.steps == 0)
        return client_fail(PS_EINVAL,
                           "--resume with train.steps = 0 would begin again and write untrained weights over "
                           "those of the run: leave --resume out, or set train.steps");
    r->rank = ps_comm_rank(r->comm);
    r->n_ranks = ps_comm_size(r->comm);
    ps_status st = client_alloc(r->n_ranks, sizeof *r->ranks, &r->ranks);
    if (st == PS_OK) st = client_alloc(r->n_ranks, sizeof *r->totals_of_ranks, &r->totals_of_ranks);
    TRY(ps_comm_agree(r->comm, st));
    if (r->n_ranks > 1) printf("%d ranks, %s\n", r->n_ranks, ps_comm_describe(r->comm));
    return PS_OK;
}

static ps_status open_engine(run *r)
{
    const ps_engine_options options = {
        .struct_size = sizeof options, .comm = r->comm, .purpose = PS_FOR_TRAINING, .is_empty = 1};
    TRY(ps_initialize_engine_with(ps_model_from_config, r->config, r->config, &options, &r->engine));
    if (r->rank == 0) cli_report_why_no_gpu("train", r->engine);
    if (r->rank == 0) cli_show_gpu(r->engine);
    if (r->rank == 0) cli_show_memory(r->engine);
    ps_engine_get_shape(r->engine, &r->B, &r->T, &r->accumulation, NULL);
    r->whole = r->T;
    return r->loader != NULL ? ps_rows_create(r->loader, r->B, &r->rows) : PS_OK;
}

/* The default learning rate is for training from scratch. */
static ps_status warn_of_rate(const ps_config *config)
{
    int32_t is_given = 0;
    double rate = 0;
    TRY(ps_config_is_given(config, "optimizer.params.lr", &is_given));
    TRY(ps_config_get_double(config, "optimizer.params.lr", &rate));
    if (!is_given && client_int(config, "lora.r") > 0)
        printf("optimizer.params.lr is not given: %g; adapters usually take 1e-4 to 5e-4\n", rate);
    else if (!is_given && client_string(config, "model.from_pretrained")[0] != '\0')
        printf(
            "optimizer.params.lr is not given: %g, as for training from scratch; fine-tuning all weights usually needs "
            "1e-5 to 5e-5\n",
            rate);
    return PS_OK;
}

/* On rank 0. Locks first, as another run may be about to end. */
static ps_status open_folder(run *r, const train_arguments *a)
{
    printf("results go to %s\n", r->o.output_dir);
    TRY(warn_of_rate(r->config));
    TRY(run_log_open(r->o.output_dir, r->o.logs_events, &r->progress, &r->log));
    return earlier_run_check(r->o.output_dir, r->config, a->resume, a->resume_from, a->overwrite);
}

/* Of rank 0. */
static ps_status find_room(const run *r, bool overwrites)
{
    const disk_room need =
        disk_room_of(r->config, r->engine, r->checkpoints.is_on, r->o.steps - r->totals.resumed_step);
    if (need.n_checkpoints > 0) disk_room_report(need.checkpoint_bytes, need.keep_last);
    return disk_room_check(&need, r->engine, ps_comm_local_size(r->comm), overwrites, r->o.output_dir);
}

/* A run that is resumed after its last step. */
static bool is_finished(const run *r)
{
    return r->totals.resumed_step > 0 && r->totals.resumed_step >= r->o.steps;
}

/* Remove the files that the user agreed to overwrite, when this run can begin. */
static ps_status begin_log(run *r, bool overwrite)
{
    if (r->rank == 0 && overwrite) TRY(earlier_run_remove(r->o.output_dir));
    return run_log_begin(r->log, r->is_overdue ? INT64_MAX : r->totals.resumed_step);
}

/* The same first eval_steps micro-batches of the validation data each time. */
static ps_status evaluate(run *r, double *loss)
{
    cli_eval result;
    TRY(cli_evaluate(r->engine, r->comm, r->config, r->loader, PS_SPLIT_VALIDATION, r->o.eval_steps, r->whole, r->rows,
                     NULL, false, &result));
    *loss = result.loss;
    return PS_OK;
}

/* unquantized: that loss before weights were quantized, NAN: none are. */
static ps_status show_quantized(run *r, double unquantized)
{
    double loss;
    if (isnan(unquantized)) return PS_OK;
    TRY(evaluate(r, &loss));
    printf("validation loss %.4f with weights in %s, %.4f before they were quantized\n", loss,
           client_string(r->config, "model.frozen_format"), unquantized);
    return PS_OK;
}

static ps_status open_run(run *r, const train_arguments *a)
{
    double unquantized = NAN;
    TRY(open_ranks(r, a));
    const bool has_steps = r->o.steps > 0; /* without steps the data are not needed */
    TRY(ps_comm_agree(r->comm, r->rank == 0 ? open_folder(r, a) : PS_OK));
    if (has_steps) TRY(open_data(r));
    if (has_steps && r->o.eval_interval > 0 && !r->resume)
        TRY(unquantized_loss(r->config, r->comm, r->loader, r->o.eval_steps, &unquantized));
    TRY(ps_comm_agree(r->comm, open_engine(r)));
    const bool has_adapters = client_int(r->config, "lora.r") > 0;
    if (has_adapters && r->resume) TRY(begin_weights(r)); /* a checkpoint lacks the base */
    if (has_steps) {
        TRY(checkpoints_open(&r->checkpoints, r->config, r->engine, r->comm, r->log, &r->progress, r->loader));
        if (r->resume) TRY(checkpoints_resume(&r->checkpoints, r->resume_from, &r->totals.resumed_step));
        if (r->rank == 0) cli_report_notices("train", r->engine);
    }
    if (r->totals.resumed_step < r->o.steps)
        TRY(ps_comm_agree(r->comm, r->rank == 0 ? find_room(r, a->overwrite) : PS_OK));
    if (r->totals.resumed_step == 0 && !(has_adapters && r->resume)) TRY(begin_weights(r));
    TRY(show_quantized(r, unquantized));
    r->is_overdue = r->rank == 0 && is_finished(r) && run_log_summary_steps(r->log) > r->totals.resumed_step;
    TRY(ranks_any(r->comm, &r->is_overdue));
    return ps_comm_agree(r->comm, begin_log(r, a->overwrite));
}

/* ---- steps ---- */

/* The loss is over all micro-batches and ranks: ps_step_info. */
static ps_status train_step(run *r, int64_t step, double *loss)
{
    const int64_t n_rows = step_rows(r);
    TRY(cli_set_length(r->engine, r->config, r->whole,
                       ps_data_loader_length(r->loader, PS_SPLIT_TRAIN, (step - 1) * n_rows, n_rows), r->rows));
    ps_engine_get_shape(r->engine, NULL, &r->T, NULL, NULL);
    for (int64_t k = 0; k < r->accumulation; k++) {
        const int64_t number = ps_data_loader_micro_batch(step - 1, r->accumulation, k, r->n_ranks, r->rank);
        TRY(ps_rows_fill(r->rows, PS_SPLIT_TRAIN, number * r->B, r->B));
        TRY(ps_forward(r->engine, ps_rows_batch(r->rows), NULL));
        TRY(ps_backward(r->engine));
        TRY(ps_step(r->engine));
    }
    ps_step_info info = {.struct_size = sizeof info};
    ps_engine_get_step_info(r->engine, &info);
    *loss = info.loss;
    return PS_OK;
}

/* Tokens of a step, over all ranks, and additional padding. */
static void count_tokens(const run *r, progress_step *s)
{
    const int64_t n_rows = step_rows(r);
    s->tokens = ps_data_loader_token_count(r->loader, PS_SPLIT_TRAIN, (s->step - 1) * n_rows, n_rows);
    s->padding = n_rows * r->T - s->tokens;
}

/* Collect the numbers of each rank's step on rank 0. */
static ps_status gather_ranks(run *r, const ps_memory_info *was, const ps_memory_info *m)
{
    const run_rank now = {.device_peak_bytes = m->device_peak_bytes,
                          .host_peak_bytes = m->host_peak_bytes,
                          .disk_peak_bytes = m->disk_peak_bytes,
                          .host_to_device_bytes = m->host_to_device_bytes - was->host_to_device_bytes,
                          .device_to_host_bytes = m->device_to_host_bytes - was->device_to_host_bytes,
                          .disk_read_bytes = m->disk_read_bytes - was->disk_read_bytes,
                          .disk_write_bytes = m->disk_write_bytes - was->disk_write_bytes,
                          .sent_bytes = m->sent_bytes - was->sent_bytes,
                          .comm_wait_ns = m->comm_wait_ns - was->comm_wait_ns};
    run_rank *t = &r->own;
    t->planned_sent_bytes = m->planned_sent_bytes;
    t->device_peak_bytes = max_i64(t->device_peak_bytes, now.device_peak_bytes);
    t->host_peak_bytes = max_i64(t->host_peak_bytes, now.host_peak_bytes);
    t->disk_peak_bytes = max_i64(t->disk_peak_bytes, now.disk_peak_bytes);
    t->host_to_device_bytes += now.host_to_device_bytes;
    t->device_to_host_bytes += now.device_to_host_bytes;
    t->disk_read_bytes += now.disk_read_bytes;
    t->disk_write_bytes += now.disk_write_bytes;
    t->sent_bytes += now.sent_bytes;
    t->comm_wait_ns += now.comm_wait_ns;
    return ps_comm_all_gather(r->comm, &now, sizeof now, r->ranks);
}

/* Each sequence length has its own plan; report the largest of all steps. */
static void keep_largest_plans(run_rank *own, const ps_memory_info *m)
{
    own->planned_device_peak_bytes = max_i64(own->planned_device_peak_bytes, m->planned_device_peak_bytes);
    own->planned_host_peak_bytes = max_i64(own->planned_host_peak_bytes, m->planned_host_peak_bytes);
    own->planned_disk_peak_bytes = max_i64(own->planned_disk_peak_bytes, m->planned_disk_peak_bytes);
}

static void take_totals(run *r, const progress_step *s, const ps_memory_info *m)
{
    run_totals *t = &r->totals;
    if (t->steps == t->resumed_step) t->loss_first = s->loss;
    t->loss_last = s->loss;
    t->steps = s->step;
    t->tokens += s->tokens;
    t->padding += s->padding;
    t->seconds += s->step_s;
    t->wait_s = (double)(m->wait_ns - t->before.wait_ns) * 1e-9;
    t->device_peak_bytes = max_i64(t->device_peak_bytes, m->device_peak_bytes);
    t->host_peak_bytes = max_i64(t->host_peak_bytes, m->host_peak_bytes);
    t->disk_peak_bytes = max_i64(t->disk_peak_bytes, m->disk_peak_bytes);
    t->kept_logits_steps += m->kept_logits_bytes > 0;
    t->kept_logits_bytes = max_i64(t->kept_logits_bytes, m->kept_logits_bytes);
    t->memory = *m;
    keep_largest_plans(&r->own, m);
    t->memory.planned_device_peak_bytes = r->own.planned_device_peak_bytes;
    t->memory.planned_host_peak_bytes = r->own.planned_host_peak_bytes;
    t->memory.planned_disk_peak_bytes = r->own.planned_disk_peak_bytes;
}

static ps_status one_step(run *r, int64_t step)
{
    ps_memory_info before = {.struct_size = sizeof before}, after = {.struct_size = sizeof after};
    ps_step_info info = {.struct_size = sizeof info};
    ps_engine_reset_peaks(r->engine);
    ps_engine_get_memory_info(r->engine, &before);
    progress_step s = {.step = step, .eval_loss = NAN};
    const int64_t begin_ns = client_clock_ns();
    TRY(train_step(r, step, &s.loss));
    s.step_s = (double)(client_clock_ns() - begin_ns) * 1e-9;
    count_tokens(r, &s);
    ps_engine_get_step_info(r->engine, &info);
    ps_engine_get_memory_info(r->engine, &after);
    take_totals(r, &s, &after);
    r->totals.speculated_steps += info.n_speculated > 0;
    r->totals.taken_back_steps += info.n_taken_back > 0;
    r->totals.recomputed_steps += info.recomputed;
    r->totals.paused_steps += info.speculation_paused;
    TRY(step_times_add(&r->times, s.step_s, (double)(after.wait_ns - before.wait_ns) * 1e-9));
    TRY(gather_ranks(r, &before, &after));
    if (r->o.eval_interval > 0 && step % r->o.eval_interval == 0) TRY(evaluate(r, &s.eval_loss));
    s.lr = info.learning_rate;
    s.grad_norm = info.grad_norm;
    s.is_skipped = info.is_skipped;
    s.loss_scale = info.loss_scale;
    progress_show(&r->progress, &s, &after);
    run_log_step(r->log, &s, &info, &before, &after, r->ranks, r->n_ranks);
    checkpoints_after_step(&r->checkpoints, step);
    if (r->samples.interval == 0 || step % r->samples.interval != 0) return PS_OK;
    return samples_write(&r->samples, r->engine, r->comm, r->config, r->whole, r->rows, step, r->o.output_dir);
}

/* The engine writes it after the last of its steps. If that failed, or the run ends before, write it here. */
static ps_status finish_profile(run *r)
{
    ps_profile_info p = {.struct_size = sizeof p};
    ps_engine_get_profile_info(r->engine, &p);
    if (p.path[0] == '\0') return PS_OK;
    if (p.last_step == 0) {
        char prefix[300];
        int64_t first = 0, last = 0;
        TRY(ps_config_get_range(r->config, "profile.steps", &first, &last));
        fprintf(stderr, "%spstar train: no profile: the run had none of the steps %lld to %lld (profile.steps)\n",
                ranks_prefix(r->comm, prefix), (long long)first, (long long)last);
        return PS_OK;
    }
    if (!p.is_written) TRY(ps_engine_save_profile(r->engine, NULL));
    printf("\nprofile of steps %lld to %lld: %s\n", (long long)p.first_step, (long long)p.last_step, p.path);
    return PS_OK;
}

/* Keep the summary of the steps; a run without steps has no numbers. */
static ps_status write_summary(run *r, uint64_t weights_xxh3)
{
    if (r->rank == 0 && is_finished(r) && run_log_summary_steps(r->log) >= r->totals.steps) return PS_OK;
    ps_device_info device = {.struct_size = sizeof device};
    ps_engine_get_device_info(r->engine, &device);
    run_summary s = {.totals = &r->totals,
                     .weights_xxh3 = weights_xxh3,
                     .interrupted = r->is_stopped,
                     .backend = device.backend,
                     .gpu = device.gpu[0] != '\0' ? device.gpu : NULL,
                     .bound = &r->bound,
                     .faster = &r->faster,
                     .ranks = r->totals_of_ranks,
                     .n_ranks = r->n_ranks};
    char *config_json = NULL;
    TRY(ps_config_dump_json(r->config, &config_json));
    s.config_json = config_json;
    const ps_status st = run_log_summary(r->log, &s);
    ps_free(config_json);
    return st;
}

/* Simulating takes a hundredth of the time that training took, at least a second where it needs that. */
static void find_change(const run *r, program_change *out)
{
    const double share = 0.01 * r->totals.seconds, seconds = share < 1 ? 1 : share > 5 ? 5 : share;
    const bool is_one_machine = ps_comm_local_size(r->comm) == r->n_ranks;
    if (r->rank > 0 || r->is_stopped || !is_one_machine || r->totals.steps == r->totals.resumed_step) return;
    program_find_change(r->config, &r->totals.memory, r->n_ranks, seconds, out);
}

static ps_status finish(run *r, bool is_verbose)
{
    uint64_t weights_xxh3;
    int64_t rss_peak_bytes = 0;
    TRY(ps_engine_get_weights_xxh3(r->engine, &weights_xxh3));
    TRY(ps_comm_agree(r->comm, client_peak_rss(&rss_peak_bytes)));
    r->totals.rss_peak_bytes = r->own.rss_peak_bytes = rss_peak_bytes;
    r->totals.disk.struct_size = sizeof r->totals.disk;
    ps_engine_get_disk_info(r->engine, &r->totals.disk);
    TRY(ps_comm_all_gather(r->comm, &r->own, sizeof r->own, r->totals_of_ranks));
    step_bound_find(r->engine, r->config, &r->times, &r->bound);
    find_change(r, &r->faster);
    const ps_status logged =
        ps_comm_agree(r->comm, write_summary(r, weights_xxh3)); /* a failure does not lose weights */
    char cause[512];
    snprintf(cause, sizeof cause, "%.500s", ps_last_error());
    const bool is_begun = r->totals.steps > 0 || r->o.steps == 0; /* false: a signal came before the first step */
    if (r->o.saves && is_begun && !r->is_overdue) {
        char path[4096];
        snprintf(path, sizeof path, "%s/model.safetensors", r->o.output_dir);
        TRY(ps_engine_save_weights(r->engine, path));
    }
    TRY(finish_profile(r));
    if (logged != PS_OK) return client_fail(logged, "%s", cause);
    if (is_finished(r)) {
        printf("nothing to do: the run in %s has ended after step %lld, train.steps = %lld\n", r->o.output_dir,
               (long long)(r->is_overdue ? run_log_summary_steps(r->log) : r->totals.steps), (long long)r->o.steps);
        return PS_OK;
    }
    ps_device_info device = {.struct_size = sizeof device};
    ps_engine_get_device_info(r->engine, &device);
    run_summary_text text = {.totals = &r->totals,
                             .bound = &r->bound,
                             .ranks = r->totals_of_ranks,
                             .comm = r->comm,
                             .device_is_ram = device.gpu[0] == '\0',
                             .faster = &r->faster};
    run_summary_print(&text, is_verbose);
    printf("results   %s: metrics.jsonl, summary.json%s%s\n", r->o.output_dir,
           r->o.logs_events ? ", events.out.tfevents.*" : "", r->o.saves && is_begun ? ", model.safetensors" : "");
    return PS_OK;
}

static ps_status run_all(run *r, const train_arguments *a)
{
    TRY(open_run(r, a));
    r->totals.before.struct_size = sizeof r->totals.before;
    ps_engine_get_memory_info(r->engine, &r->totals.before);
    r->totals.memory = r->totals.before;
    r->totals.loss_first = r->totals.loss_last = NAN;
    progress_begin(&r->progress, r->o.steps, r->o.log_interval, r->n_ranks == 1);
    r->totals.steps = r->totals.resumed_step;
    for (int64_t step = r->totals.steps + 1; step <= r->o.steps; step++) {
        TRY(stop_is_asked(r->comm, &r->is_stopped));
        if (r->is_stopped) break;
        const ps_status st = one_step(r, step);
        if (st == PS_ENUMERIC) checkpoints_rescue(&r->checkpoints);
        TRY(st);
    }
    progress_end(&r->progress);
    if (r->is_stopped) printf("stopped after step %lld of %lld\n", (long long)r->totals.steps, (long long)r->o.steps);
    /* weights and report are written even if the last checkpoint failed */
    const ps_status saved = r->o.steps > 0 ? checkpoints_end(&r->checkpoints, r->totals.steps) : PS_OK;
    char cause[512];
    snprintf(cause, sizeof cause, "%.500s", ps_last_error());
    TRY(finish(r, a->is_verbose));
    if (saved != PS_OK) return client_fail(saved, "%s", cause);
    if (r->is_stopped && r->checkpoints.is_on && r->totals.steps > 0)
        printf("to continue after step %lld, run the same command with --resume%s\n", (long long)r->totals.steps,
               a->overwrite ? ", without --overwrite" : "");
    ps_step_info last = {.struct_size = sizeof last};
    ps_engine_get_step_info(r->engine, &last);
    const int64_t n_lost = last.nonfinite_steps;
    if (n_lost == 0) return PS_OK;
    return client_fail(
        PS_ENUMERIC,
        "the last %lld steps had gradients that are not finite and were skipped; the weights are those of "
        "before",
        (long long)n_lost);
}

/* ---- arguments ---- */

enum { OPTION_HELP_CONFIG = 1000, OPTION_RESUME, OPTION_OVERWRITE };

static error_t parse(int key, char *arg, struct argp_state *state)
{
    train_arguments *a = state->input;
    switch (key) {
    case OPTION_HELP_CONFIG: a->help_config = true; return 0;
    case 'v': a->is_verbose = true; return 0;
    case OPTION_OVERWRITE: a->overwrite = true; return 0;
    case OPTION_RESUME:
        a->resume = true;
        a->resume_from = arg;
        /* after CONFIG, a value may be a separate word */
        if (arg == NULL && a->config.path != NULL && state->next < state->argc && state->argv[state->next][0] != '-' &&
            strchr(state->argv[state->next], '=') == NULL)
            a->resume_from = state->argv[state->next++];
        return 0;
    case CONFIG_MEMORY_KEY: config_arguments_take_memory(&a->config, arg); return 0;
    case ARGP_KEY_ARG: config_arguments_take(&a->config, arg); return 0;
    case ARGP_KEY_END:
        if (a->config.path == NULL && !a->help_config)
            argp_error(state, "no CONFIG given: name a JSON file, or a Hugging Face model folder");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int cmd_train(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"resume", OPTION_RESUME, "CKPT", OPTION_ARG_OPTIONAL,
         "Resume from the checkpoint CKPT (its folder, or a folder with a file 'latest'); without CKPT from the latest "
         "of train.output_dir, or start anew where there is none",
         0},
        {"overwrite", OPTION_OVERWRITE, NULL, 0,
         "Remove the files of an earlier run in train.output_dir (checkpoints, weights, log) and start anew", 0},
        CONFIG_MEMORY_OPTION,
        {"verbose", 'v', NULL, 0,
         "Print tables of memory, copies and time at the end, or of memory use when the model does not fit", 0},
        {"help-config", OPTION_HELP_CONFIG, NULL, 0, "List every configuration key with its meaning, and exit", 0},
        {0}};
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "CONFIG [key=value ...]",
        .doc =
            "Train the model of CONFIG, a JSON file; key=value arguments override its options.\v"
            "Writes metrics.jsonl, summary.json, model.safetensors and checkpoints into train.output_dir, by default "
            "runs/NAME of the configuration NAME.json; a folder of another run is refused. Ctrl-C, SIGTERM or SIGHUP "
            "ends after the present step and still writes them, with exit status 130, 143 or 129; status 0 means that "
            "train.steps were reached. A second signal ends at once. A checkpoint is also written every "
            "train.save_minutes to train.output_dir/checkpoints. In a script `until pstar train CONFIG --resume; do "
            "[ $? -ne 2 ] || exit 2; sleep 1; done` resumes after every interruption, and ends at status 2, an error "
            "in the configuration. Training continues after a failed checkpoint, which is reported; a failure of the "
            "last one is the exit status."};
    train_arguments a = {0};
    if (!config_arguments_init(&a.config, argc)) return EXIT_OTHER;
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &a);
    if (a.help_config) {
        config_arguments_deinit(&a.config);
        char *text = NULL;
        const ps_status st = ps_config_help(&text);
        if (st == PS_OK) fputs(text, stdout);
        ps_free(text);
        return program_report("train", st);
    }
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ); /* line-buffered in logs, too, as the first step may take minutes */
    stop_listen(
        "\npstar train: stops after the present step; Ctrl-C again ends at once, and loses what is not saved\n");
    stop_at_stall("train");
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the file size limit fails, instead of killing the process */
    run r = {.resume = a.resume, .resume_from = a.resume_from};
    const ps_status st = run_all(&r, &a);
    const int code = ranks_report(r.comm, "train", st, a.is_verbose);
    ranks_send_failure(r.comm, st);
    if (r.is_stopped) (void)fflush(stdout); /* a launcher may kill this rank after another one has exited */
    close_run(&r);
    config_arguments_deinit(&a.config);
    return st == PS_OK && r.is_stopped ? stop_end(r.n_ranks == 1) : code;
}
