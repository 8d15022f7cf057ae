/* hardware_write.c - writes hardware descriptions as JSON, and the page that describes their keys. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "config/hardware_table.h"

static bool is_default(const ps_hardware_key *key, ps_option_value value)
{
    const ps_option_value *d = &key->option.value;
    if (key->option.type == PS_OPTION_STRING) return strcmp(value.s, d->s) == 0;
    return value.b == d->b && value.i == d->i && memcmp(&value.d[0], &d->d[0], sizeof d->d[0]) == 0;
}

static const char *last_word(const char *key)
{
    const char *dot = strrchr(key, '.');
    return dot != NULL ? dot + 1 : key;
}

/* Write the members of a section's object, or of the whole: keys, then nested sections. */
static void write_section(const ps_hardware *hw, int section, int indent, FILE *out)
{
    const char *separator = "";
    for (int i = 0; i < ps_hardware_n_keys; i++) {
        const ps_hardware_key *key = &ps_hardware_keys[i];
        if (ps_hardware_section_of(key->option.key) != section) continue;
        const ps_option_value value = ps_hardware_value(key, hw);
        if (!key->is_required && is_default(key, value)) continue;
        fprintf(out, "%s\n%*s\"%s\": ", separator, indent, "", last_word(key->option.key));
        ps_option_write_value(&key->option, value, out);
        separator = ",";
    }
    for (int i = 1; i < ps_hardware_n_sections; i++) {
        const char *key = ps_hardware_sections[i].key;
        if (ps_hardware_section_of(key) != section || !ps_hardware_has_section(hw, i)) continue;
        fprintf(out, "%s\n%*s\"%s\": {", separator, indent, "", last_word(key));
        write_section(hw, i, indent + 2, out);
        fprintf(out, "\n%*s}", indent, "");
        separator = ",";
    }
}

static ps_status stream_status(FILE *out)
{
    if (fflush(out) == 0 && !ferror(out)) return PS_OK;
    return PS_FAIL(PS_EIO, "cannot write the hardware description: %s", strerror(errno));
}

ps_status ps_hardware_write(const ps_hardware *hw, FILE *out)
{
    fputc('{', out);
    write_section(hw, 0, 2, out);
    fputs("\n}\n", out);
    return stream_status(out);
}

ps_status ps_hardware_save(const ps_hardware *hw, const char *path)
{
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *out = open_memstream(&text, &n_bytes);
    if (out == NULL) return PS_FAIL(PS_ENOMEM_HOST, "no memory for the hardware description: %s", strerror(errno));
    ps_status st = ps_hardware_write(hw, out);
    if (fclose(out) != 0 && st == PS_OK)
        st = PS_FAIL(PS_ENOMEM_HOST, "no memory for the hardware description: %s", strerror(errno));
    if (st == PS_OK) st = ps_file_write_all(path, text, (int64_t)n_bytes);
    free(text);
    return st;
}

static void write_doc_section(int section, FILE *out)
{
    const ps_hardware_section *s = &ps_hardware_sections[section];
    fprintf(out, "\n## %s\n\n", s->title);
    if (section > 0) fprintf(out, "`%s`%s. ", s->key, s->is_optional ? ", optional" : "");
    fprintf(out, "%s\n\n| key | default | unit | allowed | meaning |\n|---|---|---|---|---|\n", s->text);
    for (int i = 0; i < ps_hardware_n_keys; i++) {
        const ps_hardware_key *key = &ps_hardware_keys[i];
        char expectation[PS_OPTION_TEXT_MAX];
        if (ps_hardware_section_of(key->option.key) != section) continue;
        fprintf(out, "| `%s` | ", key->option.key);
        if (key->is_required) {
            fputs("required", out);
        } else {
            fputc('`', out);
            ps_option_write_value(&key->option, key->option.value, out);
            fputc('`', out);
        }
        fprintf(out, " | %s | %s | %s |\n", key->option.unit != NULL ? key->option.unit : "",
                ps_option_expectation(&key->option, expectation), key->option.help);
    }
}

ps_status ps_hardware_write_doc(FILE *out)
{
    fputs(
        "# Hardware descriptions\n\n"
        "This page is generated from `src/config/hardware.def`; change that table instead.\n\n"
        "A plan predicts the memory and time of a run, also for machines that are not at hand. It reads their\n"
        "description from a JSON file: `examples/hardware/` has some, which are known by name\n"
        "(`--hardware laptop`), and `pstar info --measure OUT.json` measures this machine in some seconds.\n\n"
        "Sections are objects: `device.bytes` is `{\"device\": {\"bytes\": \"24GB\"}}`. On the command line a key is\n"
        "changed by `hardware.device.bytes=24GB`, and an optional section is removed by `hardware.disk=null`. An\n"
        "unknown key, a missing key, a value out of range and keys that contradict each other are errors that name\n"
        "file, line and column.\n\n"
        "How the numbers are used: an operator takes the maximum of its arithmetic (FLOP over throughput times\n"
        "achievable fraction) and its memory traffic (bytes over memory bandwidth), plus a latency. A copy or a\n"
        "transfer takes its latency plus its bytes over the bandwidth of its direction. Bandwidths are those of one\n"
        "part working alone. `full_duplex`, or more exactly the two keys\n"
        "`..._both_ways_bytes_per_s`, `shared_by` and `compute_interference` describe how parts slow each other.\n",
        out);
    for (int section = 0; section < ps_hardware_n_sections; section++) write_doc_section(section, out);
    return stream_status(out);
}
