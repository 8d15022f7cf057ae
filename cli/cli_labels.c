#include "train/program.h"

#include <stdio.h>
#include <string.h>

#include "base/folder.h"
#include "base/mem.h"
#include "config/config.h"
#include "config/label_list.h"
#include "run_config.h"

/* A class that both lists name must have the same number in both. */
static ps_status check_same(const char *given, const char *theirs, const char *weights)
{
    char problem[700], whose[200];
    ps_label_list a = {0}, b = {0};
    ps_status st;
    PS_TRY_GOTO(ps_label_list_parse(given, &a));
    PS_TRY_GOTO(ps_label_list_parse(theirs, &b));
    snprintf(whose, sizeof whose, "the model of %.150s", weights);
    if (ps_label_list_contradicts(&a, &b, whose, problem, sizeof problem)) st = PS_FAIL(PS_EINVAL, "%s", problem);
out:
    ps_label_list_deinit(&a);
    ps_label_list_deinit(&b);
    return st;
}

/* The configuration beside a file of weights; what else lies there may have nothing to do with it. */
static ps_status find_beside(const char *weights, ps_config **out)
{
    char *folder = NULL;
    PS_TRY(ps_folder_of(weights, &folder));
    if (run_config_find(folder, out) != PS_OK) *out = NULL;
    ps_mem_free(folder);
    return PS_OK;
}

/* *out is NULL for weights alone. */
static ps_status find_config(const char *weights, ps_config **out)
{
    *out = NULL;
    if (!ps_folder_exists(weights)) return find_beside(weights, out);
    const ps_status found = run_config_find(weights, out);
    return found == PS_EIO ? PS_OK : found;
}

ps_status cli_take_labels(ps_config *config, const char *weights)
{
    const ps_options *o = ps_config_options(config);
    ps_config *theirs = NULL;
    if (!ps_head_has_labels(o)) return PS_OK;
    PS_TRY(find_config(weights, &theirs));
    if (theirs == NULL) return PS_OK;
    const ps_options *t = ps_config_options(theirs);
    ps_status st = PS_OK;
    if (t->model_head == o->model_head && t->model_num_labels == o->model_num_labels && t->data_labels[0] != '\0')
        st = ps_config_gives(config, PS_OPTION_data_labels) ? check_same(o->data_labels, t->data_labels, weights)
                                                            : ps_config_set(config, "data.labels", t->data_labels);
    ps_config_destroy(theirs);
    return st;
}

/* Names that were found in the data; none where they have numbers, or the configuration had a list. */
static ps_status found_names(const ps_feed *feed, ps_label_list *found)
{
    const char *name;
    *found = (ps_label_list){0};
    for (int32_t i = 0; (name = ps_feed_label_name(feed, i)) != NULL; i++)
        PS_TRY(ps_label_list_add(found, name, (int64_t)strlen(name)));
    return PS_OK;
}

void cli_note_labels(const ps_config *config, const ps_feed *feed, const char *weights)
{
    ps_label_list found;
    char known[300];
    if (ps_config_options(config)->data_labels[0] != '\0') return;
    if (found_names(feed, &found) == PS_OK && found.n > 0)
        fprintf(stderr,
                "pstar: nothing with the weights in %s names their classes; the names in the data are numbered in "
                "byte order: %s; give data.labels where the weights have another\n",
                weights, ps_label_list_describe(&found, known, sizeof known));
    ps_label_list_deinit(&found);
}
