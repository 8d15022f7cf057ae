/* cli_labels.h - the names of a classifier's classes: the same for data, weights and what is exported. */
#ifndef PSTAR_CLI_LABELS_H
#define PSTAR_CLI_LABELS_H

#include "config/config.h"
#include "data/feed.h"

/* Before the feed is opened for weights that were trained already: names are numbered as their folder says, or the one
 * that a file is in. A list that the user gave stays, unless it numbers one of these names otherwise (PS_EINVAL). */
PS_NODISCARD ps_status cli_take_labels(ps_config *config, const char *weights);

/* After: a line on stderr where neither those weights nor the user name the classes that the data name. */
void cli_note_labels(const ps_config *config, const ps_feed *feed, const char *weights);

/* After: names that were found in the data become data.labels, so that the run's files tell them. */
PS_NODISCARD ps_status cli_keep_labels(ps_config *config, const ps_feed *feed);

#endif
