/* config_doc.c - writes the description of options: doc/config.md and the help text of the program. */
#include "base/mem.h"
#include "base/printable.h"
#include "config/config_state.h"
#include "config/model/family.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static ps_option_id section_end(int section)
{
    return section + 1 < ps_option_n_sections ? ps_option_sections[section + 1].first_id : PS_OPTION_COUNT;
}

/* " Also named `a`, `b` (in MB)", each name in these quotes. */
static void write_aliases(ps_option_id id, const char *quote, FILE *out)
{
    const ps_option_alias *alias;
    for (int i = 0; (alias = ps_option_alias_at(id, i)) != NULL; i++) {
        fprintf(out, "%s %s%s%s", i == 0 ? "Also named" : ",", quote, alias->key, quote);
        if (alias->note[0] != '\0') fprintf(out, " (%s)", alias->note);
    }
}

enum { USERS_MAX = 512 };

/* "Only with model.type llama, qwen3." when not all families use the option, else "". Returns text. */
static const char *users(ps_option_id id, char text[USERS_MAX])
{
    int n = 0, n_users = 0;
    text[0] = '\0';
    for (int i = 0; ps_family_at(i) != NULL && n < USERS_MAX; i++) {
        if (!ps_family_uses(ps_family_at(i), id)) continue;
        n += snprintf(text + n, (size_t)(USERS_MAX - n), "%s%s", n_users++ == 0 ? "Only with model.type " : ", ",
                      ps_config_model_names[i]);
    }
    if (n < USERS_MAX) snprintf(text + n, (size_t)(USERS_MAX - n), ".");
    if (n_users == ps_family_count()) text[0] = '\0';
    return text;
}

/* The program's default differs from that of the library, which does not measure the machine. */
static const char *default_of_pstar(ps_option_id id)
{
    return id == PS_OPTION_hardware ? " (pstar: `\"auto\"`)" : "";
}

static void write_doc_section(int section, FILE *out)
{
    const ps_option_section *s = &ps_option_sections[section];
    fprintf(out, "\n## %s\n\n%s\n\n| key | default | unit | allowed | meaning |\n|---|---|---|---|---|\n", s->title,
            s->text);
    for (ps_option_id id = s->first_id; id < section_end(section); id++) {
        const ps_option *option = &ps_option_table[id];
        char expectation[PS_OPTION_TEXT_MAX], text[USERS_MAX];
        fprintf(out, "| `%s` | `", option->key);
        ps_option_write_value(option, option->value, out);
        fprintf(out, "`%s | %s | %s | %s", default_of_pstar(id), option->unit != NULL ? option->unit : "",
                ps_option_expectation(option, expectation), option->help);
        if (users(id, text)[0] != '\0') fprintf(out, " %s", text);
        if (ps_option_alias_at(id, 0) != NULL) fputc(' ', out);
        write_aliases(id, "`", out);
        fputs(" |\n", out);
    }
}

static ps_status stream_status(FILE *out)
{
    if (fflush(out) == 0 && !ferror(out)) return PS_OK;
    return PS_FAIL(PS_EIO, "cannot write the description of the options: %s", strerror(errno));
}

static void write_other_names(FILE *out)
{
    fputs("\n## What other programs call it\n\n"
          "These keys are errors that name the option, as values may mean something else there.\n\n"
          "| option | names elsewhere |\n|---|---|\n",
          out);
    for (int id = 0; id < PS_OPTION_COUNT; id++) {
        const char *word;
        for (int i = 0; (word = ps_option_other_name_at((ps_option_id)id, i)) != NULL; i++) {
            if (i == 0) fprintf(out, "| `%s` | ", ps_option_table[id].key);
            fprintf(out, "%s`%s`", i > 0 ? ", " : "", word);
        }
        if (ps_option_other_name_at((ps_option_id)id, 0) != NULL) fputs(" |\n", out);
    }
}

ps_status ps_config_write_doc(FILE *out)
{
    fputs(
        "# Configuration\n\n"
        "This page is generated from `src/config/option/options.def`; change that table instead.\n\n"
        "A configuration is one JSON object in the format of DeepSpeed and PatrickStar. A dot in a key is an object\n"
        "in the file: `optimizer.params.lr` is `{\"optimizer\": {\"params\": {\"lr\": 0.001}}}`. On the command line,\n"
        "and with `ps_config_set`, it is `optimizer.params.lr=0.001`. `null` is the default. A key that is not\n"
        "listed here, a value of the wrong type or out of range, and a key given twice are errors that name file,\n"
        "line and column. Names may be written in any case. The command line overrides the file, whose value of that\n"
        "key is then ignored, even if it is wrong; a key that is not listed stays an error.\n"
        "`pstar config CONFIG [key=value ...]` prints the current configuration.\n",
        out);
    for (int section = 0; section < ps_option_n_sections; section++) write_doc_section(section, out);
    write_other_names(out);
    fputs("\n## Keys of other programs\n\n"
          "These keys of DeepSpeed, PatrickStar and Hugging Face have no counterpart. A value that is listed as\n"
          "accepted has no effect; `false` includes an object whose `enabled` is false.\n\n"
          "| key | accepted | instead |\n|---|---|---|\n",
          out);
    const ps_unsupported *entry;
    for (size_t i = 0; (entry = ps_unsupported_at(i)) != NULL; i++) {
        if (entry->accept == PS_ACCEPT_IGNORED) continue;
        static const char *const accepted[] = {[PS_ACCEPT_NEVER] = "",         [PS_ACCEPT_FALSE] = "`false`",
                                               [PS_ACCEPT_TRUE] = "`true`",    [PS_ACCEPT_EITHER] = "`true`, `false`",
                                               [PS_ACCEPT_NOTHING] = "`null`", [PS_ACCEPT_NONE] = "`none`"};
        fprintf(out, "| `%s` | %s | %s |\n", entry->key, accepted[entry->accept], entry->reason);
    }
    fputs("\n## Keys without effect\n\n"
          "These keys of PatrickStar and of earlier versions are accepted with any value of their type. A value other\n"
          "than the listed one is reported as a warning when training starts.\n\n"
          "| key | value | why |\n|---|---|---|\n",
          out);
    for (size_t i = 0; (entry = ps_unsupported_at(i)) != NULL; i++)
        if (entry->accept == PS_ACCEPT_IGNORED)
            fprintf(out, "| `%s` | `%s` | %s |\n", entry->key, entry->value, entry->reason);
    return stream_status(out);
}

/* Writes text in lines of at most 100 characters that begin with the indent. */
static void write_wrapped(const char *text, int indent, FILE *out)
{
    int column = 0;
    while (*text != '\0') {
        const int n = (int)strcspn(text, " ");
        if (column == 0 || column + 1 + n > 100) {
            fprintf(out, "%s%*s", column > 0 ? "\n" : "", indent, "");
            column = indent;
        } else {
            fputc(' ', out);
            column++;
        }
        fprintf(out, "%.*s", n, text);
        column += n;
        text += n;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

static ps_status write_help_aliases(ps_option_id id, FILE *out)
{
    char text[1024] = "";
    FILE *line = fmemopen(text, sizeof text, "w");
    if (line == NULL) return PS_FAIL(PS_ENOMEM_HOST, "cannot allocate the names of %s", ps_option_table[id].key);
    write_aliases(id, "", line);
    fclose(line);
    if (text[0] != '\0') write_wrapped(text, 6, out);
    return PS_OK;
}

static ps_status write_help_option(ps_option_id id, FILE *out)
{
    const ps_option *option = &ps_option_table[id];
    char expectation[PS_OPTION_TEXT_MAX], text[USERS_MAX];
    const bool has_unit = option->unit != NULL && option->unit[0] != '\0';
    fprintf(out, "\n  %s=", option->key);
    ps_option_write_value(option, option->value, out);
    fprintf(out, "%s%s\n", has_unit ? "  " : "", has_unit ? option->unit : "");
    write_wrapped(ps_option_expectation(option, expectation), 6, out);
    write_wrapped(option->help, 6, out);
    if (users(id, text)[0] != '\0') write_wrapped(text, 6, out);
    return write_help_aliases(id, out);
}

/* Whether the option is selected: all (NULL), those of a section, or `only`. */
static bool is_meant(ps_option_id id, const char *name, ps_option_id only)
{
    if (name == NULL || id == only) return true;
    const size_t n = strlen(name);
    return strncmp(ps_option_table[id].key, name, n) == 0 && ps_option_table[id].key[n] == '.';
}

/* A section's title and text precede its first selected option. */
static ps_status write_help(const char *name, ps_option_id only, FILE *out)
{
    bool is_first = true;
    for (int section = 0; section < ps_option_n_sections; section++) {
        bool has_title = false;
        for (ps_option_id id = ps_option_sections[section].first_id; id < section_end(section); id++) {
            if (!is_meant(id, name, only)) continue;
            if (!has_title) {
                fprintf(out, "%s%s\n", is_first ? "" : "\n", ps_option_sections[section].title);
                write_wrapped(ps_option_sections[section].text, 2, out);
            }
            has_title = true;
            is_first = false;
            PS_TRY(write_help_option(id, out));
        }
    }
    return stream_status(out);
}

ps_status ps_config_write_help(FILE *out)
{
    return write_help(NULL, PS_OPTION_COUNT, out);
}

static ps_status help_as_text(const char *name, ps_option_id only, char **out)
{
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *to = open_memstream(&text, &n_bytes);
    if (to == NULL) return PS_FAIL(PS_ENOMEM_HOST, "no memory for the list of options");
    ps_status st = write_help(name, only, to);
    if (fclose(to) != 0) st = PS_FAIL(PS_ENOMEM_HOST, "no memory for the list of options");
    if (st == PS_OK) st = ps_mem_strdup(text, out);
    free(text);
    return st;
}

ps_status ps_config_help(char **out)
{
    PS_TRY(PS_NEED("out", out));
    *out = NULL;
    return help_as_text(NULL, PS_OPTION_COUNT, out);
}

ps_status ps_config_help_of(const char *name, char **out)
{
    const ps_option_alias *alias;
    char printable[PS_OPTION_KEY_MAX], suggestion[PS_OPTION_KEY_MAX];
    PS_TRY(PS_NEED_FOR(out, "name out", name, out));
    const ps_option_id id = ps_option_find(name, &alias);
    if (id != PS_OPTION_COUNT || ps_option_is_section(name)) return help_as_text(name, id, out);
    const ps_unsupported *entry = ps_unsupported_find(name);
    if (entry != NULL)
        return PS_FAIL(
            PS_EINVAL, "%s %s %s", entry->key,
            entry->accept == PS_ACCEPT_IGNORED ? "is without effect, as" : "is not supported:", entry->reason);
    ps_printable_copy(name, printable, sizeof printable);
    if (ps_option_suggest(name, suggestion))
        return PS_FAIL(PS_EINVAL, "'%s' is no option and no section of options; did you mean '%s'?", printable,
                       suggestion);
    return PS_FAIL(PS_EINVAL, "'%s' is no option and no section of options; --help-config without a name lists all",
                   printable);
}
