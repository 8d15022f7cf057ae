#include "train/plan/staging.h"

#include "chunk/comm/agree.h"
#include "train/plan/search.h"

/* Records of a checkpoint in addition to the pieces. */
#define RECORDS_BYTES (64 * PS_KIB)

/* Bytes of a checkpoint, and a little more for the records. */
static int64_t saved_bytes(const ps_settings *s, const ps_program *program)
{
    int64_t bytes = 0;
    for (int32_t t = 0; t < program->n_params; t++) {
        const ps_param *p = &program->params[t];
        if (p->is_left_out) continue;
        bytes += p->is_frozen ? p->elements * (int64_t)sizeof(float)
                              : ps_optimizer_checkpoint_bytes(&s->optimizer, p->elements, true, p->is_whole);
    }
    return ps_round_up(bytes + bytes / 64 + RECORDS_BYTES, ps_settings_page_bytes(s));
}

static int64_t moved_bytes(const ps_forecast *f)
{
    int64_t bytes = 0;
    for (int link = 0; link < PS_LINK_COUNT; link++) bytes += f->mean_bytes[link];
    return bytes;
}

/* Does training move more, or take longer, than as forecast? */
static bool is_worse(const ps_exec_plan *b, const ps_forecast *f, const ps_exec_plan *than, const ps_forecast *forecast)
{
    return moved_bytes(f) > moved_bytes(forecast) || f->step.all_ns > forecast->step.all_ns ||
           b->speculates != than->speculates || f->taken_back_step.all_ns > forecast->taken_back_step.all_ns ||
           f->recompute_step.all_ns > forecast->recompute_step.all_ns ||
           f->paused_step.all_ns > forecast->paused_step.all_ns;
}

/* The same execution plan with all memory that the step leaves free on the tier as staging, unless that is worse. */
static ps_status enlarge(ps_settings *s, const ps_program *program, const ps_code *code, int64_t most,
                         ps_deadline *deadline, ps_exec_plan **exec_plan, ps_forecast *forecast)
{
    const ps_exec_plan *now = *exec_plan;
    const ps_tier tier = ps_tiers_staging_tier(ps_backend_space(s->backend), &s->budgets);
    const int64_t least = s->staging_bytes;
    const int64_t unused = s->budgets.bytes[tier] - forecast->peak_bytes[tier];
    const int64_t page_bytes = ps_settings_page_bytes(s);
    const int64_t wanted = ps_min_i64(most, least + unused / page_bytes * page_bytes);
    if (wanted <= least) return PS_OK;
    ps_exec_plan *larger = NULL;
    ps_forecast f;
    s->staging_bytes = wanted;
    const ps_status st = ps_search_try(s, program, code, &s->budgets, now->layout->chunk_elements, now->candidate,
                                       now->paused != NULL ? &now->paused->candidate : NULL, deadline, &larger, &f);
    if (st == PS_OK && !is_worse(larger, &f, now, forecast)) {
        f.waiting_step_ns = forecast->waiting_step_ns;
        f.max_wrong_share = forecast->max_wrong_share; /* that of all ranks */
        ps_exec_plan_destroy(*exec_plan);
        *exec_plan = larger;
        *forecast = f;
        return PS_OK;
    }
    ps_exec_plan_destroy(larger);
    s->staging_bytes = least;
    return st == PS_EBUDGET ? PS_OK : st;
}

/* Of the micro-batches of a step, where its passes may be made again; 0: functions of the program may then compute
 * something else, or nothing is speculative. */
static int64_t batch_copies_bytes(const ps_settings *s, const ps_program *program, const ps_code *code)
{
    if (s->wrong_steps == PS_WRONG_STEPS_KEEP_GRADS) return 0;
    for (int32_t i = 0; i < program->n_nodes; i++)
        if (program->nodes[i].type->is_users) return 0;
    return s->may_speculate ? s->accumulation * ps_code_batch_bytes(code) : 0;
}

static ps_status find_staging(ps_settings *s, const ps_program *program, const ps_code *code, ps_deadline *deadline,
                              ps_exec_plan **out, ps_forecast *forecast)
{
    const bool is_auto = s->save_buffer_bytes == PS_BYTES_AUTO;
    const int64_t most = saved_bytes(s, program);
    s->staging_bytes = ps_settings_save_buffer_bytes(s);
    if (is_auto) s->staging_bytes = ps_min_i64(s->staging_bytes, most);
    ps_status st = ps_search_exec_plan(s, program, code, &s->budgets, deadline, out, forecast);
    if (!is_auto) return st;
    if (st == PS_EBUDGET) {
        s->staging_bytes = 0;
        return ps_search_exec_plan(s, program, code, &s->budgets, deadline, out, forecast);
    }
    PS_TRY(st);
    st = ps_comm_agree(s->ranks.comm, enlarge(s, program, code, most, deadline, out, forecast));
    if (st == PS_OK) return PS_OK;
    ps_exec_plan_destroy(*out);
    *out = NULL;
    return st;
}

static ps_status find(ps_settings *s, const ps_program *program, const ps_code *code, ps_deadline *deadline,
                      ps_exec_plan **out, ps_forecast *forecast)
{
    s->batch_copies_bytes = batch_copies_bytes(s, program, code);
    const ps_status st = find_staging(s, program, code, deadline, out, forecast);
    if (st != PS_EBUDGET || s->batch_copies_bytes == 0 || ps_deadline_timed_out(deadline)) return st;
    s->batch_copies_bytes = 0;
    return find_staging(s, program, code, deadline, out, forecast);
}

/* A model larger than all RAM is detected by arithmetic alone, so that most models that need the disk are searched for
 * once. */
ps_status ps_staging_find_exec_plan(ps_settings *s, const ps_program *program, const ps_code *code,
                                    ps_deadline *deadline, ps_exec_plan **out, ps_forecast *forecast)
{
    const ps_status st = find(s, program, code, deadline, out, forecast);
    if (st != PS_EBUDGET || ps_deadline_timed_out(deadline) || !ps_settings_take_spare_disk(s)) return st;
    return find(s, program, code, deadline, out, forecast);
}
