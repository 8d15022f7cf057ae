/* config.h - internal calls of the configuration of patrickstar.h. Its values are a ps_options.
 *
 *     file, text -> jansson -> walk (config_json.c) -+
 *     key=value -------------------------------------+-> ps_option_read -> ps_options -> checks across keys
 *
 * The configuration stores whether and where each option was given, so that messages name file, line and column, and so
 * that a preset or a config.json sets only options that the user did not give. One thread at a time may change a
 * ps_config. */
#ifndef PS_CONFIG_CONFIG_H
#define PS_CONFIG_CONFIG_H

#include "base/base.h"
#include "base/status.h"
#include "config/hardware.h"
#include "config/option/head.h"

#include <stdio.h>

/* As ps_config_dump_json, for the options that were given only. */
PS_NODISCARD ps_status ps_config_dump_given_json(const ps_config *config, char **out);

/* The current values. Valid as long as the config; ps_config_set changes them. */
PS_PRIVATE_API const ps_options *ps_config_options(const ps_config *config);

/* Check that two texts of ps_config_dump_json describe the same model; an earlier version may have written `saved`.
 * Dropout rates and the initialisation of weights may differ; an option that a text lacks has its default. PS_EINVAL
 * with `name` and the option that differs. */
PS_NODISCARD ps_status ps_config_match_model(const char *saved, const char *now, const char *name);

/* Set the description that hardware = auto, the default, refers to; copied. */
void ps_config_know_machine(ps_config *config, const ps_hardware *machine);

/* The folder of ps_config_set_disk_folder, or the default one. */
const char *ps_config_disk_folder(const ps_config *config);

/* ps_config_allow_speculation was called. */
bool ps_config_allows_speculation(const ps_config *config);

/* The description that the option `hardware` selects: for auto that of ps_config_know_machine or NULL, NULL for none;
 * that of a file is read into *room. PS_EIO, PS_EFORMAT, PS_EINVAL of ps_hardware_load. */
PS_NODISCARD ps_status ps_config_hardware(const ps_config *config, ps_hardware *room, const ps_hardware **out);

/* Name of the file or text from which the configuration was read; "" when there was none. */
const char *ps_config_name(const ps_config *config);

/* Whether the user gave this option, in the file or with ps_config_set. */
PS_PRIVATE_API bool ps_config_gives(const ps_config *config, ps_option_id id);

/* List, in one line, the given keys that are accepted without effect (unsupported.def; memory.disk_path without a disk
 * tier); "": none. Returns text. */
enum { PS_CONFIG_IGNORED_TEXT_MAX = 1024 };
const char *ps_config_describe_ignored(const ps_config *config, char text[PS_CONFIG_IGNORED_TEXT_MAX]);

/* Check that no option prevents memory.update_in_backward = always; a part of ps_config_validate. PS_EINVAL naming the
 * option. */
PS_NODISCARD ps_status ps_config_check_early_updates(const ps_config *config);

/* The same for optimizer.params.state_format. */
PS_NODISCARD ps_status ps_config_check_state_format(const ps_config *config);

/* Tokens in a sequence: data.sequence_length, or the length that its 0 resolves to. */
PS_PRIVATE_API int64_t ps_config_sequence_length(const ps_options *o);

/* Write doc/config.md, or the text of pstar train --help-config. PS_EIO when the stream failed. */
PS_NODISCARD ps_status ps_config_write_doc(FILE *out);
PS_NODISCARD ps_status ps_config_write_help(FILE *out);

#endif
