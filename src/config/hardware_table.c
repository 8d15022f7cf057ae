#include "config/hardware_table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TEXT(value, text) text,
const char *const ps_hardware_isa_names[PS_HARDWARE_ISA_COUNT] = {PS_HARDWARE_ISA_MAP(TEXT)};

#define FIELD(field_) (((ps_hardware *)0)->field_)

/* Check that the types of the table are those of the structure. */
#define IS_OF(type, field_) _Generic(FIELD(field_), type : true, default : false)
#define HW_STRING(field, ...) _Static_assert(IS_OF(char *, field), #field);
#define HW_BOOL(field, ...) _Static_assert(IS_OF(bool, field), #field);
#define HW_INT(field, ...) _Static_assert(IS_OF(int64_t, field), #field);
#define HW_BYTES(field, ...) _Static_assert(IS_OF(int64_t, field), #field);
#define HW_DOUBLE(field, ...) _Static_assert(IS_OF(double, field), #field);
#define HW_ENUM(field, need, type, ...) _Static_assert(IS_OF(type, field), #field);
#include "config/hardware.def"

#define IS_REQUIRED_REQUIRED true
#define IS_REQUIRED_DEFAULT false
#define HEAD(field_, type_) .key = #field_, .type = PS_OPTION_##type_, .offset = offsetof(ps_hardware, field_)

const ps_hardware_key ps_hardware_keys[] = {
#define HW_STRING(field, need, help_)                                                                                  \
    {.option = {HEAD(field, STRING), .value.s = "", .help = help_},                                                    \
     .string_bytes = sizeof FIELD(field),                                                                              \
     .is_required = IS_REQUIRED_##need},
#define HW_BOOL(field, need, default_, help_)                                                                          \
    {.option = {HEAD(field, BOOL), .value.b = default_, .help = help_}, .is_required = IS_REQUIRED_##need},
#define HW_INT(field, need, default_, min_, max_, unit_, help_)                                                        \
    {.option = {HEAD(field, INT), .value.i = default_, .int_min = min_, .int_max = max_, .unit = unit_,                \
                .help = help_},                                                                                        \
     .is_required = IS_REQUIRED_##need},
#define HW_BYTES(field, need, default_, min_, max_, help_)                                                             \
    {.option = {HEAD(field, BYTES), .value.i = default_, .int_min = min_, .int_max = max_, .unit = "bytes",            \
                .help = help_},                                                                                        \
     .is_required = IS_REQUIRED_##need},
#define HW_DOUBLE(field, need, default_, min_, max_, ends_, unit_, help_)                                              \
    {.option = {HEAD(field, DOUBLE), .value.d = {default_}, .double_min = min_, .double_max = max_, .ends = ends_,     \
                .unit = unit_, .help = help_},                                                                         \
     .is_required = IS_REQUIRED_##need},
#define HW_ENUM(field, need, type_, default_, help_)                                                                   \
    {.option = {HEAD(field, ENUM), .value.i = default_, .names = type_##_names,                                        \
                .n_names = PS_ARRAY_LEN(type_##_names), .help = help_},                                                \
     .is_required = IS_REQUIRED_##need},
#include "config/hardware.def"
};
const int ps_hardware_n_keys = PS_ARRAY_LEN(ps_hardware_keys);

#define PRESENCE_REQUIRED(field) .is_optional = false
#define PRESENCE_OPTIONAL(field) .is_optional = true, .present_offset = offsetof(ps_hardware, field.present)

const ps_hardware_section ps_hardware_sections[] = {
    {.key = "", .title = "Machines", .text = "Keys of the top level."},
#define HW_SECTION(field, need, title_, text_) {.key = #field, .title = title_, .text = text_, PRESENCE_##need(field)},
#include "config/hardware.def"
};
const int ps_hardware_n_sections = PS_ARRAY_LEN(ps_hardware_sections);

static const char *const names[] = {
#define HW_SECTION(field, ...) #field,
#define HW_STRING(field, ...) #field,
#define HW_BOOL(field, ...) #field,
#define HW_INT(field, ...) #field,
#define HW_BYTES(field, ...) #field,
#define HW_DOUBLE(field, ...) #field,
#define HW_ENUM(field, ...) #field,
#include "config/hardware.def"
};

int ps_hardware_find_key(const char *key)
{
    for (int i = 0; i < ps_hardware_n_keys; i++)
        if (strcmp(ps_hardware_keys[i].option.key, key) == 0) return i;
    return -1;
}

int ps_hardware_find_section(const char *key)
{
    for (int i = 1; i < ps_hardware_n_sections; i++)
        if (strcmp(ps_hardware_sections[i].key, key) == 0) return i;
    return -1;
}

int ps_hardware_section_of(const char *key)
{
    const char *dot = strrchr(key, '.');
    for (int i = 1; dot != NULL && i < ps_hardware_n_sections; i++) {
        const char *section = ps_hardware_sections[i].key;
        if (strlen(section) == (size_t)(dot - key) && strncmp(section, key, (size_t)(dot - key)) == 0) return i;
    }
    return 0;
}

bool ps_hardware_suggest(const char *key, char suggestion[PS_OPTION_KEY_MAX])
{
    return ps_name_suggest(key, names, PS_ARRAY_LEN(names), suggestion);
}

bool ps_hardware_has_section(const ps_hardware *hw, int section)
{
    const ps_hardware_section *s = &ps_hardware_sections[section];
    bool is_present = true;
    if (s->is_optional) memcpy(&is_present, (const char *)hw + s->present_offset, sizeof is_present);
    return is_present;
}

void ps_hardware_put_section(ps_hardware *hw, int section, bool is_present)
{
    const ps_hardware_section *s = &ps_hardware_sections[section];
    if (s->is_optional) memcpy((char *)hw + s->present_offset, &is_present, sizeof is_present);
    for (int i = 0; i < ps_hardware_n_keys; i++)
        if (ps_hardware_section_of(ps_hardware_keys[i].option.key) == section)
            ps_hardware_store(&ps_hardware_keys[i], ps_hardware_keys[i].option.value, hw);
}

void ps_hardware_store(const ps_hardware_key *key, ps_option_value value, ps_hardware *hw)
{
    if (key->option.type == PS_OPTION_STRING)
        snprintf((char *)hw + key->option.offset, key->string_bytes, "%s", value.s);
    else
        ps_option_store(&key->option, value, hw);
}

ps_option_value ps_hardware_value(const ps_hardware_key *key, const ps_hardware *hw)
{
    if (key->option.type == PS_OPTION_STRING) return (ps_option_value){.s = (const char *)hw + key->option.offset};
    return ps_option_load(&key->option, hw);
}

#define CONFLICT(key_, ...)                                                                                            \
    do {                                                                                                               \
        snprintf(problem, problem_bytes, __VA_ARGS__);                                                                 \
        return key_;                                                                                                   \
    } while (0)

/* Values measured at once must be given for both directions, and not exceed those measured alone. */
static const char *both_ways_conflict(const ps_hardware *hw, char *problem, size_t problem_bytes)
{
    const struct {
        const char *alone_key, *key, *other_key;
        double alone, at_once, other;
    } ways[] = {
#define WAY(section, way, other_)                                                                                      \
    {#section "." #way "_bytes_per_s",                                                                                 \
     #section "." #way "_both_ways_bytes_per_s",                                                                       \
     #section "." #other_ "_both_ways_bytes_per_s",                                                                    \
     hw->section.way##_bytes_per_s,                                                                                    \
     hw->section.way##_both_ways_bytes_per_s,                                                                          \
     hw->section.other_##_both_ways_bytes_per_s}
        WAY(link, to_device, to_host),
        WAY(link, to_host, to_device),
        WAY(disk, read, write),
        WAY(disk, write, read),
#undef WAY
    };
    for (size_t i = 0; i < (hw->disk.present ? PS_ARRAY_LEN(ways) : PS_ARRAY_LEN(ways) / 2); i++) {
        if (ways[i].at_once > ways[i].alone)
            CONFLICT(ways[i].key, "%s = %g is more than %s = %g, the rate of that way alone", ways[i].key,
                     ways[i].at_once, ways[i].alone_key, ways[i].alone);
        if (ways[i].at_once > 0 && ways[i].other == 0)
            CONFLICT(ways[i].key, "%s = %g needs %s too: both or none", ways[i].key, ways[i].at_once,
                     ways[i].other_key);
    }
    return NULL;
}

const char *ps_hardware_conflict(const ps_hardware *hw, char *problem, size_t problem_bytes)
{
    const ps_hardware_device *d = &hw->device;
    const long long gpus = hw->gpus_per_node, nodes = hw->n_nodes;
    if (d->reserved_bytes >= d->bytes)
        CONFLICT("device.reserved_bytes", "device.reserved_bytes = %lld leaves nothing of device.bytes = %lld",
                 (long long)d->reserved_bytes, (long long)d->bytes);
    if ((d->page_bytes & (d->page_bytes - 1)) != 0)
        CONFLICT("device.page_bytes", "device.page_bytes = %lld is no power of two", (long long)d->page_bytes);
    if (hw->host.reserved_bytes >= hw->host.bytes)
        CONFLICT("host.reserved_bytes", "host.reserved_bytes = %lld leaves nothing of host.bytes = %lld",
                 (long long)hw->host.reserved_bytes, (long long)hw->host.bytes);
    if (gpus == 0 && d->bytes > hw->host.bytes)
        CONFLICT("device.bytes",
                 "device.bytes = %lld is more than host.bytes = %lld, of which it is a part because gpus_per_node is 0",
                 (long long)d->bytes, (long long)hw->host.bytes);
    if (!d->f32.present && !d->bf16.present && !d->fp16.present)
        CONFLICT("device",
                 "device needs the rate of at least one number format: device.f32, device.bf16 or device.fp16");
    if (hw->link.shared_by > ps_hardware_devices_per_node(hw))
        CONFLICT("link.shared_by", "link.shared_by = %lld is more than the %lld devices of a node",
                 (long long)hw->link.shared_by, (long long)ps_hardware_devices_per_node(hw));
    if (gpus > 1 && !hw->interconnect.present)
        CONFLICT("gpus_per_node", "gpus_per_node = %lld needs interconnect, which is missing", gpus);
    if (nodes > 1 && !hw->network.present) CONFLICT("n_nodes", "n_nodes = %lld needs network, which is missing", nodes);
    return both_ways_conflict(hw, problem, problem_bytes);
}
