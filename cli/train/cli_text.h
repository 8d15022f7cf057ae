/* cli_text.h - figures as people read them: three digits and a unit. Sizes are ps_bytes_format's. */
#ifndef PSTAR_CLI_TEXT_H
#define PSTAR_CLI_TEXT_H

#include <stdbool.h>
#include <stdint.h>

enum { CLI_TEXT_MAX = 32 };

/* All return text. */
const char *cli_text_seconds(double seconds, char text[CLI_TEXT_MAX]);   /* "1.06 s", "59.8 ms", "12 us", "411 s" */
const char *cli_text_rate(double tokens_per_s, char text[CLI_TEXT_MAX]); /* "1210 tokens/s", "5.12 tokens/s" */
const char *cli_text_count(int64_t n, char text[CLI_TEXT_MAX]);          /* "17.6 million", "8.03 billion", "9216" */

/* "device 89.9 MB of 90 MB, host ..., no disk" of one tier: what was used of a budget, or that there is none. */
enum { CLI_TIER_TEXT_MAX = 80 };
const char *cli_text_tier(const char *tier, int64_t used_bytes, int64_t budget_bytes, char text[CLI_TIER_TEXT_MAX]);

/* "computing, 1.96 s of a step; it waits 0.102 s for the disk"; what it waits for less than 0.5 % of a step is left out.
 * is_waiting: waits limit the step, "waiting for the disk, 1.5 s of a step; computing takes 0.3 s". */
enum { CLI_LIMIT_TEXT_MAX = 160 };
const char *cli_text_limit(double computing_s, double waiting_s, double step_s, const char *waited_for, bool is_waiting,
                           char text[CLI_LIMIT_TEXT_MAX]);

#endif
