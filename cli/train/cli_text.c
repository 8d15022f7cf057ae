#include "cli_text.h"

#include <stdio.h>
#include <string.h>

#include "patrickstar.h"

/* Waits of a smaller part of a step are not worth a word. */
#define SAYING_SHARE 0.005

/* Three digits; more before the point where there are more. */
static void three_digits(double x, const char *unit, char text[CLI_TEXT_MAX])
{
    const double size = x < 0 ? -x : x;
    snprintf(text, CLI_TEXT_MAX, "%.*f", size < 0.9995 ? 3 : size < 9.995 ? 2 : size < 99.95 ? 1 : 0, x);
    if (strchr(text, '.') != NULL) {
        char *end = text + strlen(text);
        while (end[-1] == '0') *--end = '\0';
        if (end[-1] == '.') end[-1] = '\0';
    }
    snprintf(text + strlen(text), CLI_TEXT_MAX - strlen(text), "%s", unit);
}

const char *cli_text_seconds(double seconds, char text[CLI_TEXT_MAX])
{
    if (seconds == 0 || seconds >= 0.09995)
        three_digits(seconds, " s", text);
    else if (seconds >= 9.995e-5)
        three_digits(seconds * 1e3, " ms", text);
    else
        three_digits(seconds * 1e6, " us", text);
    return text;
}

const char *cli_text_rate(double tokens_per_s, char text[CLI_TEXT_MAX])
{
    three_digits(tokens_per_s, " tokens/s", text);
    return text;
}

const char *cli_text_count(int64_t n, char text[CLI_TEXT_MAX])
{
    const bool is_billion = n >= 999500000; /* from there three digits of millions would be 1000 */
    if (n < 1000000)
        snprintf(text, CLI_TEXT_MAX, "%lld", (long long)n);
    else
        three_digits((double)n * (is_billion ? 1e-9 : 1e-6), is_billion ? " billion" : " million", text);
    return text;
}

const char *cli_text_tier(const char *tier, int64_t used_bytes, int64_t budget_bytes, char text[CLI_TIER_TEXT_MAX])
{
    char used[PS_BYTES_TEXT_MAX], budget[PS_BYTES_TEXT_MAX];
    if (budget_bytes == 0)
        snprintf(text, CLI_TIER_TEXT_MAX, "no %s", tier);
    else
        snprintf(text, CLI_TIER_TEXT_MAX, "%s %s of %s", tier, ps_bytes_format(used_bytes, used),
                 ps_bytes_format(budget_bytes, budget));
    return text;
}

const char *cli_text_limit(double computing_s, double waiting_s, double step_s, const char *waited_for, bool is_waiting,
                           char text[CLI_LIMIT_TEXT_MAX])
{
    char computing[CLI_TEXT_MAX], waiting[CLI_TEXT_MAX];
    cli_text_seconds(computing_s, computing);
    cli_text_seconds(waiting_s, waiting);
    if (is_waiting)
        snprintf(text, CLI_LIMIT_TEXT_MAX, "waiting for %s, %s of a step; computing takes %s", waited_for, waiting,
                 computing);
    else if (waiting_s > SAYING_SHARE * step_s)
        snprintf(text, CLI_LIMIT_TEXT_MAX, "computing, %s of a step; it waits %s for %s", computing, waiting,
                 waited_for);
    else
        snprintf(text, CLI_LIMIT_TEXT_MAX, "computing, %s of a step", computing);
    return text;
}
