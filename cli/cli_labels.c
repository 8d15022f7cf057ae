#include "cli_labels.h"

#include <string.h>

#include "base/folder.h"
#include "config/label_list.h"
#include "run_config.h"

/* A class that both lists name must have the same number in both. */
static ps_status check_same(const char *given, const char *theirs, const char *weights)
{
    ps_label_list a = {0}, b = {0};
    ps_status st;
    PS_TRY_GOTO(ps_label_list_parse(given, &a));
    PS_TRY_GOTO(ps_label_list_parse(theirs, &b));
    for (int32_t i = 0; i < a.n && st == PS_OK; i++) {
        const int32_t k = ps_label_list_find(&b, a.names[i], (int64_t)strlen(a.names[i]));
        char known[300];
        if (k >= 0 && k != i)
            st = PS_FAIL(PS_EINVAL,
                         "data.labels has '%.80s' as class %d, but the weights in %s have it as class %d: %s; leave "
                         "data.labels out",
                         a.names[i], i, weights, k, ps_label_list_describe(&b, known, sizeof known));
    }
out:
    ps_label_list_deinit(&a);
    ps_label_list_deinit(&b);
    return st;
}

ps_status cli_take_labels(ps_config *config, const char *weights)
{
    const ps_options *o = ps_config_options(config);
    ps_config *theirs = NULL;
    if (o->model_head != PS_CONFIG_HEAD_SEQUENCE_CLASSIFICATION || !ps_folder_exists(weights)) return PS_OK;
    const ps_status found = run_config_find(weights, &theirs);
    if (found == PS_EIO) return PS_OK; /* weights alone */
    PS_TRY(found);
    const ps_options *t = ps_config_options(theirs);
    ps_status st = PS_OK;
    if (t->model_head == o->model_head && t->model_num_labels == o->model_num_labels && t->data_labels[0] != '\0')
        st = ps_config_is_given(config, PS_OPTION_data_labels) ? check_same(o->data_labels, t->data_labels, weights)
                                                               : ps_config_set(config, "data.labels", t->data_labels);
    ps_config_destroy(theirs);
    return st;
}

ps_status cli_keep_labels(ps_config *config, const ps_feed *feed)
{
    ps_label_list found = {0};
    const char *name;
    char *text = NULL;
    ps_status st = PS_OK;
    for (int32_t i = 0; (name = ps_feed_label_name(feed, i)) != NULL; i++)
        PS_TRY_GOTO(ps_label_list_add(&found, name, (int64_t)strlen(name)));
    if (found.n == 0) return PS_OK;
    PS_TRY_GOTO(ps_label_list_format(&found, &text));
    st = ps_config_set(config, "data.labels", text);
out:
    ps_free(text);
    ps_label_list_deinit(&found);
    return st;
}
