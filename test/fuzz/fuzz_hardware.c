/* fuzz_hardware.c - arbitrary bytes as a hardware description and as words of the command line.
 *
 * Checked besides the sanitizers: what is accepted passes ps_hardware_check, is written, read again, and written again
 * the same; an override that is refused changes nothing; an error has a message; nothing leaks. */
#include "base/mem.h"
#include "config/hardware.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

#define MUST(cond)                                                                                                     \
    do {                                                                                                               \
        if (!(cond)) {                                                                                                 \
            fprintf(stderr, "%s:%d: not true: %s (%s)\n", __FILE__, __LINE__, #cond, ps_last_error());                 \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

static char *written(const ps_hardware *hw)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    MUST(out != NULL);
    MUST(ps_hardware_write(hw, out) == PS_OK);
    fclose(out);
    return text;
}

static void check_round_trip(const ps_hardware *hw)
{
    ps_hardware again;
    MUST(ps_hardware_check(hw) == PS_OK);
    char *first = written(hw);
    MUST(ps_hardware_parse(first, "written", &again) == PS_OK);
    char *second = written(&again);
    MUST(strcmp(first, second) == 0);
    free(first);
    free(second);
}

/* "key=value" a line. */
static void check_words(char *text, ps_hardware *hw)
{
    for (char *line = text, *end; line != NULL; line = end) {
        end = strchr(line, '\n');
        if (end != NULL) *end++ = '\0';
        char *value = strchr(line, '=');
        if (value == NULL) continue;
        *value++ = '\0';
        const ps_hardware before = *hw;
        if (ps_hardware_set(hw, line, value) == PS_OK) continue;
        MUST(ps_last_error()[0] != '\0');
        MUST(memcmp(hw, &before, sizeof before) == 0);
    }
    if (ps_hardware_check(hw) == PS_OK) check_round_trip(hw);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const char small[] =
        "{\"name\": \"x\", \"gpus_per_node\": 0,"
        "\"device\": {\"bytes\": \"1GB\", \"memory_bytes_per_s\": 1e9, \"op_latency_ns\": 0,"
        "\"f32\": {\"flop_per_s\": 1e9, \"achievable_fraction\": 1}},"
        "\"host\": {\"bytes\": \"1GB\", \"memory_bytes_per_s\": 1e9, \"adam_fraction\": 1},"
        "\"link\": {\"to_device_bytes_per_s\": 1e9, \"to_host_bytes_per_s\": 1e9, \"latency_ns\": 0, \"full_duplex\": "
        "true},"
        "\"disk\": {\"bytes\": \"1GB\", \"read_bytes_per_s\": 1e9, \"write_bytes_per_s\": 1e9, \"latency_ns\": 0,"
        "\"full_duplex\": false}}";
    const int64_t live = ps_mem_live_bytes();
    ps_hardware hw;
    char *text = malloc(n_bytes + 1);
    if (text == NULL) return 0;
    if (n_bytes > 0) memcpy(text, data, n_bytes);
    text[n_bytes] = '\0';
    const ps_status st = ps_hardware_parse(text, "fuzz", &hw);
    MUST(st == PS_OK || st == PS_EINVAL || st == PS_EFORMAT);
    if (st == PS_OK) check_round_trip(&hw);
    MUST(ps_hardware_parse(small, "small", &hw) == PS_OK);
    check_words(text, &hw);
    free(text);
    MUST(ps_mem_live_bytes() == live);
    return 0;
}
