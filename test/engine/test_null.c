/* Pointers that are NULL: each function that returns a status says which call, and which pointer. None looks at its other
 * handles before, so these need not be real. */
#include "engine/engine_fixture.h"
#include "patrickstar_client.h"
#include "patrickstar_data.h"

static char seen[32768]; /* names of the functions that were called, with a space after each */

static void refused(ps_status st, const char *says)
{
    if (st != PS_EINVAL || strstr(ps_last_error(), says) == NULL)
        fail_msg("not \"%s\" but %s: %s", says, ps_status_name(st), ps_last_error());
    strncat(seen, says, strcspn(says, ":"));
    strcat(seen, " ");
}

/* Memory for anything; it is not read. */
static max_align_t anything[64];
#define ANY ((void *)anything)

static void test_configurations(void **state)
{
    (void)state;
    ps_config *out = ANY;
    char *text = ANY;
    const char *word;
    int64_t i;
    int32_t yes;
    double d;
    refused(ps_config_create(NULL), "ps_config_create: out is NULL");
    refused(ps_config_load(NULL, &out), "ps_config_load: path is NULL");
    assert_null(out);
    refused(ps_config_load("x", NULL), "ps_config_load: out is NULL");
    refused(ps_config_load_assigned(NULL, NULL, 0, &out), "ps_config_load_assigned: path is NULL");
    refused(ps_config_load_assigned("x", NULL, 1, &out), "ps_config_load_assigned: assignments is NULL");
    refused(ps_config_load_assigned("x", NULL, 0, NULL), "ps_config_load_assigned: out is NULL");
    refused(ps_config_parse(NULL, "x", &out), "ps_config_parse: text is NULL");
    refused(ps_config_parse("{}", NULL, &out), "ps_config_parse: name is NULL");
    refused(ps_config_parse("{}", "x", NULL), "ps_config_parse: out is NULL");
    refused(ps_config_set(NULL, "x", "x"), "ps_config_set: config is NULL");
    refused(ps_config_set(ANY, NULL, "x"), "ps_config_set: key is NULL");
    refused(ps_config_set(ANY, "x", NULL), "ps_config_set: value is NULL");
    refused(ps_config_validate(NULL), "ps_config_validate: config is NULL");
    refused(ps_config_get_int(NULL, "x", &i), "ps_config_get_int: config is NULL");
    refused(ps_config_get_int(ANY, NULL, &i), "ps_config_get_int: key is NULL");
    refused(ps_config_get_int(ANY, "x", NULL), "ps_config_get_int: out is NULL");
    refused(ps_config_get_double(NULL, "x", &d), "ps_config_get_double: config is NULL");
    refused(ps_config_get_double(ANY, NULL, &d), "ps_config_get_double: key is NULL");
    refused(ps_config_get_double(ANY, "x", NULL), "ps_config_get_double: out is NULL");
    refused(ps_config_get_string(NULL, "x", &word), "ps_config_get_string: config is NULL");
    refused(ps_config_get_string(ANY, NULL, &word), "ps_config_get_string: key is NULL");
    refused(ps_config_get_string(ANY, "x", NULL), "ps_config_get_string: out is NULL");
    refused(ps_config_get_range(NULL, "x", &i, &i), "ps_config_get_range: config is NULL");
    refused(ps_config_get_range(ANY, NULL, &i, &i), "ps_config_get_range: key is NULL");
    refused(ps_config_get_range(ANY, "x", NULL, &i), "ps_config_get_range: first is NULL");
    refused(ps_config_get_range(ANY, "x", &i, NULL), "ps_config_get_range: last is NULL");
    refused(ps_config_dump_json(NULL, &text), "ps_config_dump_json: config is NULL");
    assert_null(text);
    refused(ps_config_dump_json(ANY, NULL), "ps_config_dump_json: out is NULL");
    refused(ps_config_help(NULL), "ps_config_help: out is NULL");
    refused(ps_config_help_of(NULL, &text), "ps_config_help_of: name is NULL");
    refused(ps_config_help_of("x", NULL), "ps_config_help_of: out is NULL");
    refused(ps_config_load_of_weights(NULL, &out), "ps_config_load_of_weights: path is NULL");
    refused(ps_config_load_of_weights("x", NULL), "ps_config_load_of_weights: out is NULL");
    refused(ps_config_is_given(NULL, "x", &yes), "ps_config_is_given: config is NULL");
    refused(ps_config_is_given(ANY, NULL, &yes), "ps_config_is_given: key is NULL");
    refused(ps_config_is_given(ANY, "x", NULL), "ps_config_is_given: yes is NULL");
    refused(ps_config_take_epochs(NULL, ANY, 1), "ps_config_take_epochs: config is NULL");
    refused(ps_config_take_epochs(ANY, NULL, 1), "ps_config_take_epochs: loader is NULL");
    refused(ps_config_take_labels(NULL, "x"), "ps_config_take_labels: config is NULL");
    refused(ps_config_take_labels(ANY, NULL), "ps_config_take_labels: weights is NULL");
    refused(ps_config_take_chat_format(NULL, "x"), "ps_config_take_chat_format: config is NULL");
    refused(ps_config_take_chat_format(ANY, NULL), "ps_config_take_chat_format: weights is NULL");
    refused(ps_config_resize_vocabulary(NULL), "ps_config_resize_vocabulary: config is NULL");
    refused(ps_config_set_disk_folder(NULL, "x"), "ps_config_set_disk_folder: config is NULL");
    refused(ps_config_set_disk_folder(ANY, NULL), "ps_config_set_disk_folder: folder is NULL");
    refused(ps_config_allow_speculation(NULL), "ps_config_allow_speculation: config is NULL");
}

static void test_ranks(void **state)
{
    (void)state;
    ps_comm *comm = ANY;
    double v = 0;
    refused(ps_comm_init(NULL, &comm), "ps_comm_init: config is NULL");
    assert_null(comm);
    refused(ps_comm_init(ANY, NULL), "ps_comm_init: out is NULL");
    refused(ps_comm_init_process_group(NULL, NULL, &comm), "ps_comm_init_process_group: group is NULL");
    refused(ps_comm_init_process_group(NULL, ANY, NULL), "ps_comm_init_process_group: out is NULL");
    refused(ps_comm_all_reduce(NULL, &v, 1, PS_COMM_SUM), "ps_comm_all_reduce: comm is NULL");
    refused(ps_comm_all_reduce(ANY, NULL, 1, PS_COMM_SUM), "ps_comm_all_reduce: values is NULL");
    refused(ps_comm_all_gather(NULL, &v, 1, &v), "ps_comm_all_gather: comm is NULL");
    refused(ps_comm_all_gather(ANY, NULL, 1, &v), "ps_comm_all_gather: mine is NULL");
    refused(ps_comm_all_gather(ANY, &v, 1, NULL), "ps_comm_all_gather: all is NULL");
    refused(ps_comm_broadcast(NULL, &v, 1, 0), "ps_comm_broadcast: comm is NULL");
    refused(ps_comm_broadcast(ANY, NULL, 1, 0), "ps_comm_broadcast: data is NULL");
    refused(ps_comm_barrier(NULL), "ps_comm_barrier: comm is NULL");
    refused(ps_comm_check_same(NULL, NULL), "ps_comm_check_same: config is NULL");
    refused(ps_comm_check_data_loader(NULL, NULL), "ps_comm_check_data_loader: loader is NULL");
}

static ps_status model_without_configuration(ps_builder *b, void *user)
{
    (void)user;
    return ps_model_from_config(b, NULL);
}

static void test_beginnings(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        ps_status (*begin)(ps_model_func model_func, void *user, int local_rank, const ps_config *config,
                           ps_engine **engine);
    } all[] = {{"ps_initialize_engine", ps_initialize_engine},
               {"ps_initialize_inference_engine", ps_initialize_inference_engine},
               {"ps_initialize_generation_engine", ps_initialize_generation_engine}};
    const ps_engine_options options = {.struct_size = sizeof options, .purpose = PS_FOR_TRAINING};
    ps_config *c = TINY("train.threads=1");
    for (size_t i = 0; i < PS_ARRAY_LEN(all); i++) {
        char says[80];
        ps_engine *e = ANY;
        snprintf(says, sizeof says, "%s: config is NULL", all[i].name);
        refused(all[i].begin(ps_model_from_config, c, 0, NULL, &e), says);
        assert_null(e);
        snprintf(says, sizeof says, "%s: engine is NULL", all[i].name);
        refused(all[i].begin(ps_model_from_config, c, 0, c, NULL), says);
    }
    ps_engine *e = ANY;
    refused(ps_initialize_engine_with(ps_model_from_config, c, NULL, &options, &e),
            "ps_initialize_engine_with: config is NULL");
    assert_null(e);
    refused(ps_initialize_engine_with(ps_model_from_config, c, c, NULL, &e),
            "ps_initialize_engine_with: options is NULL");
    refused(ps_initialize_engine_with(ps_model_from_config, c, c, &options, NULL),
            "ps_initialize_engine_with: engine is NULL");
    refused(ps_initialize_engine(model_without_configuration, NULL, 0, c, &e), "ps_model_from_config: user is NULL");
    assert_int_equal(ps_initialize_engine(NULL, NULL, 0, c, &e), PS_EINVAL);
    assert_int_equal(ps_initialize_engine(ps_model_from_config, NULL, 0, c, &e), PS_EINVAL);
    ps_config_destroy(c);
}

static void test_engines(void **state)
{
    (void)state;
    float v = 0;
    int32_t i32 = 0;
    uint64_t u64;
    char *text;
    refused(ps_forward(NULL, ANY, &v), "ps_forward: engine is NULL");
    refused(ps_forward(ANY, NULL, &v), "ps_forward: batch is NULL");
    refused(ps_backward(NULL), "ps_backward: engine is NULL");
    refused(ps_step(NULL), "ps_step: engine is NULL");
    refused(ps_evaluate(NULL, ANY, &v), "ps_evaluate: engine is NULL");
    refused(ps_evaluate(ANY, NULL, &v), "ps_evaluate: batch is NULL");
    refused(ps_infer(NULL, ANY, 0, &v), "ps_infer: engine is NULL");
    refused(ps_infer(ANY, NULL, 0, &v), "ps_infer: batch is NULL");
    refused(ps_infer(ANY, ANY, 0, NULL), "ps_infer: output is NULL");
    refused(ps_decode(NULL, &i32, 1, &v), "ps_decode: engine is NULL");
    refused(ps_decode(ANY, NULL, 1, &v), "ps_decode: tokens is NULL");
    refused(ps_decode(ANY, &i32, 1, NULL), "ps_decode: logits is NULL");
    refused(ps_decode_rewind(NULL, 0), "ps_decode_rewind: engine is NULL");
    refused(ps_engine_get_eval_info(NULL, ANY), "ps_engine_get_eval_info: engine is NULL");
    refused(ps_engine_get_eval_info(ANY, NULL), "ps_engine_get_eval_info: out is NULL");
    refused(ps_engine_get_step_info(NULL, ANY), "ps_engine_get_step_info: engine is NULL");
    refused(ps_engine_get_step_info(ANY, NULL), "ps_engine_get_step_info: out is NULL");
    refused(ps_engine_get_memory_info(NULL, ANY), "ps_engine_get_memory_info: engine is NULL");
    refused(ps_engine_get_memory_info(ANY, NULL), "ps_engine_get_memory_info: out is NULL");
    refused(ps_engine_get_memory_use(NULL, 0, ANY), "ps_engine_get_memory_use: engine is NULL");
    refused(ps_engine_get_memory_use(ANY, 0, NULL), "ps_engine_get_memory_use: out is NULL");
    refused(ps_engine_dump_memory(NULL, &text), "ps_engine_dump_memory: engine is NULL");
    assert_null(text);
    refused(ps_engine_dump_memory(ANY, NULL), "ps_engine_dump_memory: out is NULL");
    refused(ps_engine_get_device_info(NULL, ANY), "ps_engine_get_device_info: engine is NULL");
    refused(ps_engine_get_device_info(ANY, NULL), "ps_engine_get_device_info: out is NULL");
    refused(ps_engine_get_disk_info(NULL, ANY), "ps_engine_get_disk_info: engine is NULL");
    refused(ps_engine_get_disk_info(ANY, NULL), "ps_engine_get_disk_info: out is NULL");
    refused(ps_engine_get_bound_info(NULL, ANY, ANY), "ps_engine_get_bound_info: engine is NULL");
    refused(ps_engine_get_bound_info(ANY, NULL, ANY), "ps_engine_get_bound_info: config is NULL");
    refused(ps_engine_get_bound_info(ANY, ANY, NULL), "ps_engine_get_bound_info: out is NULL");
    refused(ps_engine_start_profile(NULL), "ps_engine_start_profile: engine is NULL");
    refused(ps_engine_stop_profile(NULL), "ps_engine_stop_profile: engine is NULL");
    refused(ps_engine_get_profile_info(NULL, ANY), "ps_engine_get_profile_info: engine is NULL");
    refused(ps_engine_get_profile_info(ANY, NULL), "ps_engine_get_profile_info: out is NULL");
    refused(ps_engine_save_profile(NULL, "x"), "ps_engine_save_profile: engine is NULL");
    refused(ps_engine_set_shape(NULL, ps_model_from_config, ANY, 1, 1), "ps_engine_set_shape: engine is NULL");
    refused(ps_engine_get_weights_xxh3(NULL, &u64), "ps_engine_get_weights_xxh3: engine is NULL");
    refused(ps_engine_get_weights_xxh3(ANY, NULL), "ps_engine_get_weights_xxh3: hash is NULL");
    refused(ps_engine_get_tensor_info(NULL, 0, ANY), "ps_engine_get_tensor_info: engine is NULL");
    refused(ps_engine_get_tensor_info(ANY, 0, NULL), "ps_engine_get_tensor_info: out is NULL");
    refused(ps_engine_read_tensor(NULL, 0, 0, 1, &v), "ps_engine_read_tensor: engine is NULL");
    refused(ps_engine_read_tensor(ANY, 0, 0, 1, NULL), "ps_engine_read_tensor: out is NULL");
    refused(ps_engine_write_tensor(NULL, 0, 0, 1, &v), "ps_engine_write_tensor: engine is NULL");
    refused(ps_engine_write_tensor(ANY, 0, 0, 1, NULL), "ps_engine_write_tensor: in is NULL");
    refused(ps_engine_read_state(NULL, 0, "x", 0, 1, &v), "ps_engine_read_state: engine is NULL");
    refused(ps_engine_read_state(ANY, 0, NULL, 0, 1, &v), "ps_engine_read_state: state is NULL");
    refused(ps_engine_read_state(ANY, 0, "x", 0, 1, NULL), "ps_engine_read_state: out is NULL");
    refused(ps_engine_write_state(NULL, 0, "x", 0, 1, &v), "ps_engine_write_state: engine is NULL");
    refused(ps_engine_write_state(ANY, 0, NULL, 0, 1, &v), "ps_engine_write_state: state is NULL");
    refused(ps_engine_write_state(ANY, 0, "x", 0, 1, NULL), "ps_engine_write_state: in is NULL");
    refused(ps_engine_set_update_count(NULL, 0), "ps_engine_set_update_count: engine is NULL");
    refused(ps_engine_read_gradient(NULL, 0, 0, 1, &v), "ps_engine_read_gradient: engine is NULL");
    refused(ps_engine_read_gradient(ANY, 0, 0, 1, NULL), "ps_engine_read_gradient: out is NULL");
    refused(ps_engine_write_gradient(NULL, 0, 0, 1, &v), "ps_engine_write_gradient: engine is NULL");
    refused(ps_engine_write_gradient(ANY, 0, 0, 1, NULL), "ps_engine_write_gradient: in is NULL");
    refused(ps_engine_get_group_info(NULL, 0, ANY), "ps_engine_get_group_info: engine is NULL");
    refused(ps_engine_get_group_info(ANY, 0, NULL), "ps_engine_get_group_info: out is NULL");
    refused(ps_engine_set_learning_rate(NULL, 0, 1), "ps_engine_set_learning_rate: engine is NULL");
    refused(ps_engine_set_weight_decay(NULL, 0, 1), "ps_engine_set_weight_decay: engine is NULL");
    refused(ps_engine_set_loss_scale(NULL, 1), "ps_engine_set_loss_scale: engine is NULL");
}

static void test_weights_and_checkpoints(void **state)
{
    (void)state;
    char *text = ANY;
    refused(ps_engine_save_weights(NULL, "x"), "ps_engine_save_weights: engine is NULL");
    refused(ps_engine_save_weights(ANY, NULL), "ps_engine_save_weights: path is NULL");
    refused(ps_engine_load_pretrained(NULL, "x", NULL, NULL), "ps_engine_load_pretrained: engine is NULL");
    refused(ps_engine_load_pretrained(ANY, NULL, NULL, NULL), "ps_engine_load_pretrained: path is NULL");
    refused(ps_engine_begin_weights(NULL, ANY, ANY, NULL), "ps_engine_begin_weights: engine is NULL");
    refused(ps_engine_begin_weights(ANY, NULL, ANY, NULL), "ps_engine_begin_weights: described is NULL");
    refused(ps_engine_begin_weights(ANY, ANY, NULL, NULL), "ps_engine_begin_weights: config is NULL");
    refused(ps_engine_load_optimizer(NULL, "x"), "ps_engine_load_optimizer: engine is NULL");
    refused(ps_engine_load_optimizer(ANY, NULL), "ps_engine_load_optimizer: path is NULL");
    refused(ps_engine_save_checkpoint(NULL, "x", NULL, NULL), "ps_engine_save_checkpoint: engine is NULL");
    refused(ps_engine_save_checkpoint(ANY, NULL, NULL, NULL), "ps_engine_save_checkpoint: folder is NULL");
    refused(ps_engine_begin_checkpoint(NULL, "x", NULL), "ps_engine_begin_checkpoint: engine is NULL");
    refused(ps_engine_begin_checkpoint(ANY, NULL, NULL), "ps_engine_begin_checkpoint: folder is NULL");
    refused(ps_engine_finish_checkpoint(NULL, NULL), "ps_engine_finish_checkpoint: engine is NULL");
    refused(ps_checkpoint_find(NULL, &text, NULL), "ps_checkpoint_find: folder is NULL");
    refused(ps_checkpoint_check(NULL), "ps_checkpoint_check: folder is NULL");
    refused(ps_checkpoint_remove_all(NULL), "ps_checkpoint_remove_all: folder is NULL");
    refused(ps_checkpoint_find("x", NULL, NULL), "ps_checkpoint_find: path is NULL");
    refused(ps_engine_load_checkpoint(NULL, "x", &text), "ps_engine_load_checkpoint: engine is NULL");
    assert_null(text);
    refused(ps_engine_load_checkpoint(ANY, NULL, NULL), "ps_engine_load_checkpoint: folder is NULL");
}

static void test_data(void **state)
{
    (void)state;
    ps_data_loader *loader = ANY;
    ps_rows *rows = ANY;
    ps_metrics *metrics = ANY;
    ps_tokenizer *tokenizer = ANY;
    int32_t *ids = ANY, end;
    int64_t n;
    uint64_t hash;
    char *text = ANY;
    refused(ps_data_loader_from_config(NULL, NULL, &loader), "ps_data_loader_from_config: config is NULL");
    assert_null(loader);
    refused(ps_data_loader_from_config(ANY, NULL, NULL), "ps_data_loader_from_config: out is NULL");
    refused(ps_data_loader_keep_labels(NULL, ANY), "ps_data_loader_keep_labels: loader is NULL");
    refused(ps_data_loader_keep_labels(ANY, NULL), "ps_data_loader_keep_labels: config is NULL");
    refused(ps_data_loader_describe(NULL, PS_SPLIT_TRAIN, &text), "ps_data_loader_describe: loader is NULL");
    assert_null(text);
    refused(ps_data_loader_describe(ANY, PS_SPLIT_TRAIN, NULL), "ps_data_loader_describe: out is NULL");
    refused(ps_data_loader_xxh3(NULL, &hash), "ps_data_loader_xxh3: loader is NULL");
    refused(ps_data_loader_xxh3(ANY, NULL), "ps_data_loader_xxh3: hash is NULL");
    refused(ps_data_loader_keep_chat_format(NULL, ANY), "ps_data_loader_keep_chat_format: loader is NULL");
    refused(ps_data_loader_keep_chat_format(ANY, NULL), "ps_data_loader_keep_chat_format: config is NULL");
    refused(ps_rows_create(NULL, 1, &rows), "ps_rows_create: loader is NULL");
    assert_null(rows);
    refused(ps_rows_create(ANY, 1, NULL), "ps_rows_create: out is NULL");
    refused(ps_rows_fill(NULL, PS_SPLIT_TRAIN, 0, 1), "ps_rows_fill: rows is NULL");
    refused(ps_rows_fill_once(NULL, PS_SPLIT_TRAIN, 0, 1), "ps_rows_fill_once: rows is NULL");
    refused(ps_metrics_create(NULL, ANY, PS_SPLIT_TRAIN, &metrics), "ps_metrics_create: config is NULL");
    assert_null(metrics);
    refused(ps_metrics_create(ANY, NULL, PS_SPLIT_TRAIN, &metrics), "ps_metrics_create: loader is NULL");
    refused(ps_metrics_create(ANY, ANY, PS_SPLIT_TRAIN, NULL), "ps_metrics_create: out is NULL");
    refused(ps_metrics_take(ANY, NULL, ANY, 0, 1), "ps_metrics_take: engine is NULL");
    refused(ps_metrics_take(ANY, ANY, NULL, 0, 1), "ps_metrics_take: batch is NULL");
    const float logit = 0;
    refused(ps_sample_token(NULL, 1, ANY, 0, &end), "ps_sample_token: logits is NULL");
    refused(ps_sample_token(&logit, 1, NULL, 0, &end), "ps_sample_token: options is NULL");
    refused(ps_sample_token(&logit, 1, ANY, 0, NULL), "ps_sample_token: token is NULL");
    refused(ps_tokenizer_open(NULL, &tokenizer), "ps_tokenizer_open: path is NULL");
    assert_null(tokenizer);
    refused(ps_tokenizer_open("x", NULL), "ps_tokenizer_open: out is NULL");
    refused(ps_tokenizer_encode_prompt(NULL, "x", 1, &ids, &n), "ps_tokenizer_encode_prompt: tokenizer is NULL");
    assert_null(ids);
    refused(ps_tokenizer_encode_prompt(ANY, NULL, 1, &ids, &n), "ps_tokenizer_encode_prompt: text is NULL");
    refused(ps_tokenizer_encode_prompt(ANY, "x", 1, NULL, &n), "ps_tokenizer_encode_prompt: ids is NULL");
    refused(ps_tokenizer_encode_prompt(ANY, "x", 1, &ids, NULL), "ps_tokenizer_encode_prompt: n_ids is NULL");
    refused(ps_tokenizer_encode_chat(NULL, ANY, "x", 1, &ids, &n, &end), "ps_tokenizer_encode_chat: tokenizer is NULL");
    refused(ps_tokenizer_encode_chat(ANY, NULL, "x", 1, &ids, &n, &end), "ps_tokenizer_encode_chat: config is NULL");
    refused(ps_tokenizer_encode_chat(ANY, ANY, "x", 1, &ids, &n, NULL), "ps_tokenizer_encode_chat: end is NULL");
    refused(ps_tokenizer_decode_plain(NULL, &end, 1, &text, &n), "ps_tokenizer_decode_plain: tokenizer is NULL");
    refused(ps_tokenizer_decode_plain(ANY, NULL, 1, &text, &n), "ps_tokenizer_decode_plain: ids is NULL");
    refused(ps_tokenizer_decode_plain(ANY, &end, 1, NULL, &n), "ps_tokenizer_decode_plain: out_text is NULL");
    refused(ps_tokenizer_decode_plain(ANY, &end, 1, &text, NULL), "ps_tokenizer_decode_plain: out_n_bytes is NULL");
}

static void test_clients(void **state)
{
    (void)state;
    ps_client *c = ANY;
    int32_t number;
    void *out = ANY;
    char *text = ANY;
    refused(ps_client_create(NULL, NULL, &c), "ps_client_create: config is NULL");
    assert_null(c);
    refused(ps_client_create(ANY, NULL, NULL), "ps_client_create: out is NULL");
    refused(ps_client_add(NULL, ANY, &number, &out), "ps_client_add: client is NULL");
    assert_null(out);
    refused(ps_client_add(ANY, NULL, &number, &out), "ps_client_add: tensor is NULL");
    refused(ps_client_add(ANY, ANY, NULL, &out), "ps_client_add: number is NULL");
    refused(ps_client_add(ANY, ANY, &number, NULL), "ps_client_add: values is NULL");
    refused(ps_client_drop(NULL, 0), "ps_client_drop: client is NULL");
    refused(ps_client_name(NULL, 0, "x", 0), "ps_client_name: client is NULL");
    refused(ps_client_name(ANY, 0, NULL, 0), "ps_client_name: name is NULL");
    refused(ps_client_expect(NULL, 1, 0), "ps_client_expect: client is NULL");
    refused(ps_client_use_stream(NULL, ANY), "ps_client_use_stream: client is NULL");
    refused(ps_client_use_stream(ANY, NULL), "ps_client_use_stream: stream is NULL");
    refused(ps_client_begin(NULL), "ps_client_begin: client is NULL");
    refused(ps_client_pin(NULL, 0, PS_CLIENT_PARAM, PS_CLIENT_READ, ANY), "ps_client_pin: client is NULL");
    refused(ps_client_pin(ANY, 0, PS_CLIENT_PARAM, PS_CLIENT_READ, NULL), "ps_client_pin: place is NULL");
    out = ANY;
    refused(ps_client_export_dlpack(NULL, 0, PS_CLIENT_PARAM, PS_CLIENT_READ, &out),
            "ps_client_export_dlpack: client is NULL");
    assert_null(out);
    refused(ps_client_export_dlpack(ANY, 0, PS_CLIENT_PARAM, PS_CLIENT_READ, NULL),
            "ps_client_export_dlpack: managed is NULL");
    refused(ps_client_moment(NULL, PS_CLIENT_FORWARD, "x", 0), "ps_client_moment: client is NULL");
    refused(ps_client_moment(ANY, PS_CLIENT_FORWARD, NULL, 0), "ps_client_moment: label is NULL");
    refused(ps_client_give_gradient(NULL, 0, ANY, PS_DTYPE_F32, 0), "ps_client_give_gradient: client is NULL");
    refused(ps_client_give_gradient(ANY, 0, NULL, PS_DTYPE_F32, 0), "ps_client_give_gradient: gradient is NULL");
    refused(ps_client_begin_last_backward(NULL), "ps_client_begin_last_backward: client is NULL");
    refused(ps_client_drop_gradients(NULL, -1), "ps_client_drop_gradients: client is NULL");
    refused(ps_client_get_group(NULL, 0, ANY), "ps_client_get_group: client is NULL");
    refused(ps_client_get_group(ANY, 0, NULL), "ps_client_get_group: out is NULL");
    refused(ps_client_set_group(NULL, 0, ANY), "ps_client_set_group: client is NULL");
    refused(ps_client_set_group(ANY, 0, NULL), "ps_client_set_group: numbers is NULL");
    refused(ps_client_join_group(NULL, 0, 0), "ps_client_join_group: client is NULL");
    refused(ps_client_set_gradient_clipping(NULL, 1), "ps_client_set_gradient_clipping: client is NULL");
    refused(ps_client_step(NULL, NULL), "ps_client_step: client is NULL");
    refused(ps_client_get_tensor_info(NULL, 0, ANY), "ps_client_get_tensor_info: client is NULL");
    refused(ps_client_get_tensor_info(ANY, 0, NULL), "ps_client_get_tensor_info: out is NULL");
    refused(ps_client_read_state(NULL, 0, NULL, 0, 1, ANY), "ps_client_read_state: client is NULL");
    refused(ps_client_read_state(ANY, 0, NULL, 0, 1, NULL), "ps_client_read_state: out is NULL");
    refused(ps_client_write_state(NULL, 0, NULL, 0, 1, ANY), "ps_client_write_state: client is NULL");
    refused(ps_client_write_state(ANY, 0, NULL, 0, 1, NULL), "ps_client_write_state: in is NULL");
    refused(ps_client_set_update_count(NULL, 0, 0), "ps_client_set_update_count: client is NULL");
    refused(ps_client_get_scaler(NULL, &text), "ps_client_get_scaler: client is NULL");
    assert_null(text);
    refused(ps_client_get_scaler(ANY, NULL), "ps_client_get_scaler: json is NULL");
    refused(ps_client_set_scaler(NULL, "{}"), "ps_client_set_scaler: client is NULL");
    refused(ps_client_set_scaler(ANY, NULL), "ps_client_set_scaler: json is NULL");
    refused(ps_get_available_memory(NULL), "ps_get_available_memory: bytes is NULL");
    refused(ps_client_save_checkpoint(NULL, "x", NULL, NULL), "ps_client_save_checkpoint: client is NULL");
    refused(ps_client_save_checkpoint(ANY, NULL, NULL, NULL), "ps_client_save_checkpoint: folder is NULL");
    refused(ps_client_begin_checkpoint(NULL, "x", NULL), "ps_client_begin_checkpoint: client is NULL");
    refused(ps_client_begin_checkpoint(ANY, NULL, NULL), "ps_client_begin_checkpoint: folder is NULL");
    assert_int_equal(ps_client_checkpoint_is_done(NULL), 1);
    refused(ps_client_finish_checkpoint(NULL, NULL), "ps_client_finish_checkpoint: client is NULL");
    refused(ps_client_load_checkpoint(NULL, "x", NULL), "ps_client_load_checkpoint: client is NULL");
    refused(ps_client_load_checkpoint(ANY, NULL, NULL), "ps_client_load_checkpoint: folder is NULL");
    refused(ps_client_get_info(NULL, ANY), "ps_client_get_info: client is NULL");
    refused(ps_client_get_info(ANY, NULL), "ps_client_get_info: out is NULL");
    refused(ps_client_get_memory_use(NULL, 0, ANY), "ps_client_get_memory_use: client is NULL");
    refused(ps_client_get_memory_use(ANY, 0, NULL), "ps_client_get_memory_use: out is NULL");
    refused(ps_client_start_profile(NULL), "ps_client_start_profile: client is NULL");
    refused(ps_client_stop_profile(NULL), "ps_client_stop_profile: client is NULL");
    refused(ps_client_save_profile(NULL, "x"), "ps_client_save_profile: client is NULL");
    refused(ps_client_save_profile(ANY, NULL), "ps_client_save_profile: path is NULL");
    /* what returns no status does nothing, or gives nothing */
    ps_client_destroy(NULL);
    ps_client_release(NULL, 0);
    ps_client_unpin(NULL, 0, PS_CLIENT_PARAM);
    assert_null(ps_client_get_pin_counts(NULL));
    assert_int_equal(ps_client_has_gradient(NULL, 0), 0);
    assert_int_equal(ps_client_get_group_count(NULL), 0);
    assert_true(ps_client_get_loss_scale(NULL) == 1);
    assert_int_equal(ps_client_get_tensor_count(NULL), 0);
    assert_null(ps_client_get_state_name(NULL, 0));
    assert_int_equal(ps_client_get_update_count(NULL, 0), 0);
}

/* ---- names in models ---- */

enum nameless {
    EMBEDDING,
    TYPES,
    POSITIONS,
    LAYER_NORM,
    RMS_NORM,
    LINEAR,
    CONV1D,
    CROSS_ENTROPY,
    MSE,
    BCE,
    SPAN,
    APPLY,
    END_WITH,
    BLOCK,
};

static ps_status nameless_model(ps_builder *b, void *user)
{
    const ps_own_use use = {.struct_size = sizeof use};
    if (*(const enum nameless *)user == EMBEDDING) (void)ps_token_embedding(b, NULL, 7, 8);
    const ps_value x = ps_token_embedding(b, "table", 7, 8);
    switch (*(const enum nameless *)user) {
    case TYPES: (void)ps_token_type_embedding(b, NULL, 2, 8); break;
    case POSITIONS: (void)ps_position_embedding(b, x, NULL, 64); break;
    case LAYER_NORM: (void)ps_layer_norm(b, x, NULL, 1e-5F); break;
    case RMS_NORM: (void)ps_rms_norm(b, x, NULL, 0, 1e-5F); break;
    case LINEAR: (void)ps_linear(b, x, NULL, 8, 1); break;
    case CONV1D: (void)ps_conv1d(b, x, NULL, 8, 1); break;
    case CROSS_ENTROPY: ps_cross_entropy(b, x, NULL, NULL, 7, NULL); break;
    case MSE: ps_mse_loss(b, x, NULL, NULL, 1); break;
    case BCE: ps_bce_with_logits_loss(b, x, NULL, NULL, 1); break;
    case SPAN: ps_span_loss(b, x, NULL, NULL); break;
    case APPLY: (void)ps_own_apply(b, NULL, &use); break;
    case END_WITH: ps_own_end(b, NULL, &use); break;
    case BLOCK: ps_begin_block(b, NULL, 0); break;
    case EMBEDDING: break;
    }
    ps_cross_entropy(b, x, "table", NULL, 7, NULL);
    return PS_OK;
}

static void test_models(void **state)
{
    (void)state;
    static const char *const says[] = {[EMBEDDING] = "ps_token_embedding: name",
                                       [TYPES] = "ps_token_type_embedding: name",
                                       [POSITIONS] = "ps_position_embedding: name",
                                       [LAYER_NORM] = "ps_layer_norm: name",
                                       [RMS_NORM] = "ps_rms_norm: name",
                                       [LINEAR] = "ps_linear: name",
                                       [CONV1D] = "ps_conv1d: name",
                                       [CROSS_ENTROPY] = "ps_cross_entropy: weight",
                                       [MSE] = "ps_mse_loss: weight",
                                       [BCE] = "ps_bce_with_logits_loss: weight",
                                       [SPAN] = "ps_span_loss: weight",
                                       [APPLY] = "ps_own_apply: name",
                                       [END_WITH] = "ps_own_end: name",
                                       [BLOCK] = "ps_begin_block: name"};
    ps_config *c = TINY("train.threads=1");
    for (int i = 0; i <= BLOCK; i++) {
        enum nameless which = (enum nameless)i;
        char text[80];
        ps_engine *e = NULL;
        snprintf(text, sizeof text, "%s is NULL", says[i]);
        refused(ps_initialize_engine(nameless_model, &which, 0, c, &e), text);
    }
    ps_config_destroy(c);
}

/* A new function is added above. */
static void test_all_functions(void **state)
{
    static const char *const headers[] = {"include/patrickstar.h", "include/patrickstar_comm.h",
                                          "include/patrickstar_own.h", "include/patrickstar_data.h",
                                          "include/patrickstar_client.h"};
    /* what takes NULL, or no pointers */
    static const char others[] = "ps_set_last_error ps_get_last_failure ps_comm_agree ps_metrics_finish ";
    static const char mark[] = "ps_status ps_";
    (void)state;
    for (size_t i = 0; i < PS_ARRAY_LEN(headers); i++) {
        char line[512], name[128];
        FILE *f = fopen(headers[i], "r");
        assert_non_null(f);
        while (fgets(line, sizeof line, f) != NULL) {
            const char *at = strncmp(line, "PS_API", 6) == 0 ? strstr(line, mark) : NULL;
            if (at == NULL) continue;
            at += strlen("ps_status ");
            snprintf(name, sizeof name, "%.*s ", (int)strcspn(at, "("), at);
            if (strstr(seen, name) == NULL && strstr(others, name) == NULL) fail_msg("%snot tried with NULL", name);
        }
        fclose(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_configurations),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_beginnings),
        cmocka_unit_test(test_engines),
        cmocka_unit_test(test_weights_and_checkpoints),
        cmocka_unit_test(test_data),
        cmocka_unit_test(test_clients),
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_all_functions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
