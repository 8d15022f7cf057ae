/* option_name.c - finds options by key, and the most similar one for an unknown key. */
#include "config/option/option.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { NAME_MAX_BYTES = PS_OPTION_KEY_MAX }; /* longer names are not similar to any key */

static const ps_option_alias aliases[] = {
#define ALIAS(key_, field) {.key = key_, .id = PS_OPTION_##field, .factor = 1, .unset = NAN, .note = ""},
#define ALIAS_SCALED(key_, field, factor_, offset_, unset_, note_)                                                     \
    {.key = key_,                                                                                                      \
     .id = PS_OPTION_##field,                                                                                          \
     .is_scaled = true,                                                                                                \
     .factor = factor_,                                                                                                \
     .offset = offset_,                                                                                                \
     .unset = unset_,                                                                                                  \
     .note = note_},
#include "config/option/aliases.def"
};

const ps_option_alias *ps_option_alias_at(ps_option_id id, int i)
{
    for (size_t k = 0; k < PS_ARRAY_LEN(aliases); k++)
        if (aliases[k].id == id && i-- == 0) return &aliases[k];
    return NULL;
}

/* All names; those of the table come first. */
static const char *const names[] = {
#define OPT_BOOL(field, key, ...) key,
#define OPT_INT(field, key, ...) key,
#define OPT_DOUBLE(field, key, ...) key,
#define OPT_PAIR(field, key, ...) key,
#define OPT_RANGE(field, key, ...) key,
#define OPT_STRING(field, key, ...) key,
#define OPT_ENUM(field, key, ...) key,
#define OPT_BYTES(field, key, ...) key,
#include "config/option/options.def"
#define ALIAS(key, field) key,
#define ALIAS_SCALED(key, ...) key,
#include "config/option/aliases.def"
};
_Static_assert(PS_ARRAY_LEN(names) == PS_OPTION_COUNT + PS_ARRAY_LEN(aliases), "a kind of option is missing above");
enum { NAME_COUNT = (int)PS_ARRAY_LEN(names) };

ps_option_id ps_option_find(const char *key, const ps_option_alias **alias)
{
    *alias = NULL;
    for (int i = 0; i < NAME_COUNT; i++) {
        if (strcmp(names[i], key) != 0) continue;
        if (i < PS_OPTION_COUNT) return (ps_option_id)i;
        *alias = &aliases[i - PS_OPTION_COUNT];
        return (*alias)->id;
    }
    return PS_OPTION_COUNT;
}

bool ps_option_is_section(const char *key)
{
    const size_t n = strlen(key);
    for (int i = 0; i < PS_OPTION_COUNT; i++)
        if (strncmp(ps_option_table[i].key, key, n) == 0 && ps_option_table[i].key[n] == '.') return true;
    return false;
}

bool ps_option_of_section(const char *key, const json_t *json, char member[PS_OPTION_KEY_MAX])
{
    static const char *const of_truth[] = {"enabled"}, *const of_text[] = {"from_pretrained", "type", "train"};
    const bool is_truth = json_is_boolean(json);
    const char *const *const words = is_truth ? of_truth : of_text;
    const int n = is_truth ? PS_ARRAY_LEN(of_truth) : json_is_string(json) ? PS_ARRAY_LEN(of_text) : 0;
    for (int i = 0; i < n; i++) {
        char whole[2 * PS_OPTION_KEY_MAX];
        const ps_option_alias *alias;
        snprintf(whole, sizeof whole, "%.*s.%s", PS_OPTION_KEY_MAX, key, words[i]);
        if (ps_option_find(whole, &alias) == PS_OPTION_COUNT) continue;
        snprintf(member, PS_OPTION_KEY_MAX, "%s", words[i]);
        return true;
    }
    return false;
}

static int min3(int a, int b, int c)
{
    const int ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* Number of insertions, deletions, replacements and swaps of neighbours that turn a into the first n_b bytes of b
 * (optimal string alignment: Damerau, CACM 7(3), 1964; Wagner and Fischer, JACM 21(1), 1974). Keeps three rows of the
 * table. */
static int edit_distance(const char *a, const char *b, int n_b)
{
    const int n_a = (int)strlen(a);
    int rows[3][NAME_MAX_BYTES + 1];
    int *before = rows[0], *last = rows[1], *row = rows[2];
    for (int j = 0; j <= n_b; j++) last[j] = j;
    for (int i = 1; i <= n_a; i++) {
        row[0] = i;
        for (int j = 1; j <= n_b; j++) {
            row[j] = min3(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < row[j])
                row[j] = before[j - 2] + 1;
        }
        int *const free_row = before;
        before = last, last = row, row = free_row;
    }
    return last[n_b];
}

static const char *last_word(const char *key)
{
    const char *dot = strrchr(key, '.');
    return dot != NULL ? dot + 1 : key;
}

/* About a third of the last word may be wrong. Otherwise the right word in a wrong section counts when only one name
 * has it. */
bool ps_name_suggest(const char *key, const char *const known_names[], int n_known, char suggestion[PS_OPTION_KEY_MAX])
{
    suggestion[0] = '\0';
    if (strlen(key) > NAME_MAX_BYTES) return false;
    const char *word = last_word(key), *same_word = NULL;
    int least = 2 + (int)strlen(word) / 3, n_same_word = 0;
    for (int i = 0; i < n_known; i++) {
        const char *known = known_names[i];
        for (int n = 1; n <= (int)strlen(known); n++) { /* the sections, then the whole */
            if (known[n] != '.' && known[n] != '\0') continue;
            if (abs(n - (int)strlen(key)) >= least) continue; /* lower bound of the distance */
            const int distance = edit_distance(key, known, n);
            if (distance >= least) continue;
            least = distance;
            snprintf(suggestion, PS_OPTION_KEY_MAX, "%.*s", n, known);
        }
        if (strcmp(last_word(known), word) == 0) n_same_word++, same_word = known;
    }
    if (suggestion[0] == '\0' && n_same_word == 1) snprintf(suggestion, PS_OPTION_KEY_MAX, "%s", same_word);
    return suggestion[0] != '\0';
}

/* Names of options in other programs, whose spelling may be quite different. */
static const struct {
    const char *word;
    ps_option_id id;
} other_names[] = {
#define OTHER_NAME(word_, field) {word_, PS_OPTION_##field},
#include "config/option/other_names.def"
};

const char *ps_option_other_name_at(ps_option_id id, int i)
{
    for (size_t k = 0; k < PS_ARRAY_LEN(other_names); k++)
        if (other_names[k].id == id && i-- == 0) return other_names[k].word;
    return NULL;
}

bool ps_option_suggest(const char *key, char suggestion[PS_OPTION_KEY_MAX])
{
    for (size_t i = 0; i < PS_ARRAY_LEN(other_names); i++) {
        if (strcasecmp(last_word(key), other_names[i].word) != 0) continue;
        snprintf(suggestion, PS_OPTION_KEY_MAX, "%s", ps_option_table[other_names[i].id].key);
        return true;
    }
    return ps_name_suggest(key, names, NAME_COUNT, suggestion);
}
