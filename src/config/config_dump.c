/* config_dump.c - writes the current values as JSON. */
#include "base/mem.h"
#include "config/config_state.h"

#include <stdlib.h>
#include <string.h>

/* Length of the common sections of a and b: up to and including the last common '.'. */
static size_t common_sections(const char *a, const char *b)
{
    size_t n = 0;
    for (size_t i = 0; a[i] != '\0' && a[i] == b[i]; i++)
        if (a[i] == '.') n = i + 1;
    return n;
}

static int count_dots(const char *s)
{
    int n = 0;
    for (; *s != '\0'; s++) n += *s == '.';
    return n;
}

/* The options of a section are consecutive in the table, so objects open and close as the key changes. */
static void write_json(const ps_config *config, bool only_given, FILE *out)
{
    const char *last = "";
    fputc('{', out);
    for (int i = 0; i < PS_OPTION_COUNT; i++) {
        if (only_given && !config->origin[i].given) continue;
        const ps_option *option = &ps_option_table[i];
        const size_t n_common = common_sections(last, option->key);
        int depth = count_dots(last);
        for (int n = count_dots(last + n_common); n > 0; n--) fprintf(out, "\n%*s}", 4 * depth--, "");
        if (last[0] != '\0') fputc(',', out);
        const char *name = option->key + n_common;
        for (const char *dot; (dot = strchr(name, '.')) != NULL; name = dot + 1)
            fprintf(out, "\n%*s\"%.*s\": {", 4 * ++depth, "", (int)(dot - name), name);
        fprintf(out, "\n%*s\"%s\": ", 4 * (depth + 1), "", name);
        if (i == PS_OPTION_train_steps && config->options.train_epochs > 0)
            fputs("null", out); /* not known yet; a file with both options would be refused */
        else
            ps_option_write_value(option, ps_option_load(option, &config->options), out);
        last = option->key;
    }
    for (int depth = count_dots(last); depth >= 0; depth--) fprintf(out, "\n%*s}", 4 * depth, "");
    fputc('\n', out);
}

static ps_status dump(const ps_config *config, bool only_given, char **out)
{
    char *text = NULL;
    size_t n_bytes = 0;
    *out = NULL;
    FILE *stream = open_memstream(&text, &n_bytes);
    if (stream == NULL) return PS_FAIL(PS_ENOMEM_HOST, "cannot allocate the text of the configuration");
    write_json(config, only_given, stream);
    const ps_status st = fclose(stream) == 0 ? ps_mem_strdup(text, out)
                                             : PS_FAIL(PS_ENOMEM_HOST, "cannot allocate the text of the configuration");
    free(text);
    return st;
}

ps_status ps_config_dump_json(const ps_config *config, char **out)
{
    PS_TRY(PS_NEED_FOR(out, "config out", config, out));
    return dump(config, false, out);
}

ps_status ps_config_dump_given_json(const ps_config *config, char **out)
{
    return dump(config, true, out);
}
