#include "unquantized.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli_eval.h"

static ps_status evaluate(ps_engine *engine, ps_config *config, ps_comm *comm, const ps_data_loader *loader,
                          int64_t n_steps, double *loss)
{
    int64_t whole;
    ps_rows *rows = NULL;
    cli_eval result;
    ps_engine_get_shape(engine, NULL, &whole, NULL, NULL);
    TRY(ps_comm_agree(comm, ps_rows_create(loader, client_int(config, "train_micro_batch_size_per_gpu"), &rows)));
    const ps_status st =
        cli_evaluate(engine, comm, config, loader, PS_SPLIT_VALIDATION, n_steps, whole, rows, NULL, false, &result);
    ps_rows_destroy(rows);
    if (st == PS_OK) *loss = result.loss;
    return st;
}

static ps_status open_and_evaluate(ps_config *config, ps_comm *comm, const ps_data_loader *loader, int64_t n_steps,
                                   double *loss)
{
    const ps_engine_options options = {.struct_size = sizeof options, .comm = comm, .purpose = PS_FOR_INFERENCE};
    ps_engine *engine = NULL;
    ps_status st = ps_initialize_engine_with(ps_model_from_config, config, config, &options, &engine);
    st = ps_comm_agree(comm, st);
    if (st == PS_OK) st = evaluate(engine, config, comm, loader, n_steps, loss);
    ps_engine_destroy(engine);
    if (st != PS_EBUDGET) return st;
    if (ps_comm_rank(comm) == 0)
        fprintf(stderr,
                "pstar: the loss before quantizing is not known, as there is no room for the weights as they "
                "are: %s\n",
                ps_last_error());
    return PS_OK;
}

ps_status unquantized_loss(ps_config *config, ps_comm *comm, const ps_data_loader *loader, int64_t n_steps,
                           double *loss)
{
    char format[32];
    *loss = NAN;
    snprintf(format, sizeof format, "%s", client_string(config, "model.frozen_format"));
    if (strcmp(format, "none") == 0) return PS_OK;
    TRY(ps_config_set(config, "model.frozen_format", "none"));
    const ps_status st = open_and_evaluate(config, comm, loader, n_steps, loss);
    char error[512];
    snprintf(error, sizeof error, "%s", ps_last_error());
    TRY(ps_config_set(config, "model.frozen_format", format));
    return st == PS_OK ? PS_OK : client_fail(st, "%s", error);
}
