/* config.h - the configuration: what patrickstar.h declares under "configuration", seen from inside. Its values are a
 * ps_options.
 *
 *     file, text -> jansson -> walk (config_json.c) -+
 *     key=value -------------------------------------+-> ps_option_read -> ps_options -> checks across keys
 *
 * Each option remembers whether and where it was given, so that messages name file, line and column, and so that a
 * preset or a config.json fills only what the user left open. One thread at a time may change a ps_config. */
#ifndef PS_CONFIG_CONFIG_H
#define PS_CONFIG_CONFIG_H

#include "base/base.h"
#include "base/status.h"
#include "config/hardware.h"
#include "option/head.h"

#include <stdio.h>

/* As ps_config_dump_json for the options that were given: what was read once more, without defaults. */
PS_NODISCARD ps_status ps_config_dump_given_json(const ps_config *config, char **out);

/* The values in force. Valid as long as the config; changes with ps_config_set. */
const ps_options *ps_config_options(const ps_config *config);

/* Are two texts of ps_config_dump_json, `saved` perhaps by an earlier version, of the same model? Rates of dropout and
 * what weights begin with may differ; an option that a text lacks has its default. PS_EINVAL with `name` and the option
 * that differs. */
PS_NODISCARD ps_status ps_config_match_model(const char *saved, const char *now, const char *name);

/* What hardware = auto is from now on, and what counts where the option is not given; copied. */
void ps_config_know_machine(ps_config *config, const ps_hardware *machine);

/* Of ps_config_set_disk_folder, or the usual one. */
const char *ps_config_disk_folder(const ps_config *config);
const char *ps_config_cache(const ps_config *config); /* of ps_config_set_cache_folder; NULL: none */

/* What the option `hardware` means: the description that was told, NULL for none and where none was told; a
 * file's is read into *room. PS_EIO, PS_EFORMAT, PS_EINVAL of ps_hardware_load. */
PS_NODISCARD ps_status ps_config_hardware(const ps_config *config, ps_hardware *room, const ps_hardware **out);

/* Name of the file, or of the text, that it was read from; "" when it was not. */
const char *ps_config_name(const ps_config *config);

/* Whether the user gave this option, in the file or with ps_config_set, rather than leaving it to its default. */
bool ps_config_gives(const ps_config *config, ps_option_id id);

/* memory.update_in_backward = always with nothing in its way; a part of ps_config_validate. PS_EINVAL naming the option
 * that is. */
PS_NODISCARD ps_status ps_config_check_early_updates(const ps_config *config);

/* Tokens in a sequence: data.sequence_length, or what its 0 stands for. */
int64_t ps_config_sequence_length(const ps_options *o);

/* doc/config.md, and the text of pstar train --help-config. PS_EIO when the stream failed. */
PS_NODISCARD ps_status ps_config_write_doc(FILE *out);
PS_NODISCARD ps_status ps_config_write_help(FILE *out);

#endif
