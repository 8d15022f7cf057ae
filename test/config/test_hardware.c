#include "base/fault.h"
#include "base/mem.h"
#include "config/hardware_table.h"
#include "config/machines.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* One key a line, so that messages can be told apart by line. */
static const char *const good[] = {
    "{",                                    /* 1 */
    "  \"name\": \"test\",",                /* 2 */
    "  \"gpus_per_node\": 2,",              /* 3 */
    "  \"n_nodes\": 3,",                    /* 4 */
    "  \"device\": {",                      /* 5 */
    "    \"bytes\": \"24GiB\",",            /* 6 */
    "    \"reserved_bytes\": 1000000,",     /* 7 */
    "    \"memory_bytes_per_s\": 1e12,",    /* 8 */
    "    \"op_latency_ns\": 5000,",         /* 9 */
    "    \"bf16\": {",                      /* 10 */
    "      \"flop_per_s\": 165.2e12,",      /* 11 */
    "      \"achievable_fraction\": 0.8",   /* 12 */
    "    }",                                /* 13 */
    "  },",                                 /* 14 */
    "  \"host\": {",                        /* 15 */
    "    \"bytes\": \"64GB\",",             /* 16 */
    "    \"reserved_bytes\": \"4GB\",",     /* 17 */
    "    \"memory_bytes_per_s\": 55e9,",    /* 18 */
    "    \"adam_fraction\": 1",             /* 19 */
    "  },",                                 /* 20 */
    "  \"link\": {",                        /* 21 */
    "    \"to_device_bytes_per_s\": 25e9,", /* 22 */
    "    \"to_host_bytes_per_s\": 24e9,",   /* 23 */
    "    \"latency_ns\": 10000,",           /* 24 */
    "    \"full_duplex\": true,",           /* 25 */
    "    \"shared_by\": 2,",                /* 26 */
    "    \"compute_interference\": 0.25",   /* 27 */
    "  },",                                 /* 28 */
    "  \"disk\": {",                        /* 29 */
    "    \"bytes\": \"1TB\",",              /* 30 */
    "    \"read_bytes_per_s\": 7e9,",       /* 31 */
    "    \"write_bytes_per_s\": 5e9,",      /* 32 */
    "    \"latency_ns\": 100000,",          /* 33 */
    "    \"full_duplex\": false,",          /* 34 */
    "    \"source\": \"a \\\"sheet\\\"\"",  /* 35 */
    "  },",                                 /* 36 */
    "  \"interconnect\": {",                /* 37 */
    "    \"bytes_per_s\": 3e11,",           /* 38 */
    "    \"latency_ns\": 1",                /* 39 */
    "  },",                                 /* 40 */
    "  \"network\": {",                     /* 41 */
    "    \"bytes_per_s\": 1e10,",           /* 42 */
    "    \"latency_ns\": 2",                /* 43 */
    "  }",                                  /* 44 */
    "}",                                    /* 45 */
};

/* The good description with line number `line` replaced; 0: as it stands. Freed by the caller. */
static char *with_line(size_t line, const char *replacement)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    for (size_t i = 0; i < PS_ARRAY_LEN(good); i++) fprintf(out, "%s\n", i + 1 == line ? replacement : good[i]);
    fclose(out);
    return text;
}

static ps_hardware good_hardware(void)
{
    ps_hardware hw;
    char *text = with_line(0, "");
    if (ps_hardware_parse(text, "hw.json", &hw) != PS_OK) fail_msg("%s", ps_last_error());
    free(text);
    return hw;
}

static void assert_says(const char *expected)
{
    if (strncmp(ps_last_error(), expected, strlen(expected)) != 0)
        fail_msg("\"%s\" does not begin with \"%s\"", ps_last_error(), expected);
}

static void table_is_sound(void **state)
{
    (void)state;
    for (int i = 0; i < ps_hardware_n_keys; i++) {
        const ps_hardware_key *key = &ps_hardware_keys[i];
        char text[PS_OPTION_TEXT_MAX];
        assert_in_range(strlen(key->option.key), 1, PS_OPTION_KEY_MAX - 1);
        assert_int_equal(ps_hardware_find_key(key->option.key), i);
        assert_int_equal(ps_hardware_find_section(key->option.key), -1);
        assert_int_equal(ps_hardware_section_of(key->option.key) == 0, strchr(key->option.key, '.') == NULL);
        assert_in_range(strlen(ps_option_expectation(&key->option, text)), 1, PS_OPTION_TEXT_MAX - 2);
        assert_true(key->option.help[strlen(key->option.help) - 1] == '.');
    }
    for (int i = 1; i < ps_hardware_n_sections; i++) {
        assert_int_equal(ps_hardware_find_section(ps_hardware_sections[i].key), i);
        assert_true(strchr(ps_hardware_sections[i].key, '.') == NULL ||
                    ps_hardware_section_of(ps_hardware_sections[i].key) > 0);
    }
}

static void values_arrive(void **state)
{
    (void)state;
    const ps_hardware hw = good_hardware();
    assert_string_equal(hw.name, "test");
    assert_int_equal(hw.n_nodes, 3);
    assert_int_equal(hw.gpus_per_node, 2);
    assert_int_equal(hw.device.bytes, 24 * PS_GIB);
    assert_int_equal(hw.device.reserved_bytes, 1000000);
    assert_int_equal(hw.device.op_latency_ns, 5000);
    assert_true(hw.device.memory_bytes_per_s == 1e12);
    assert_true(hw.device.bf16.present && !hw.device.f32.present && !hw.device.fp16.present);
    assert_true(hw.device.bf16.flop_per_s == 165.2e12 && hw.device.bf16.achievable_fraction == 0.8);
    assert_int_equal(hw.host.bytes, 64000000000);
    assert_true(hw.host.adam_fraction == 1 && hw.host.adam_compact_fraction == 0 && hw.host.op_latency_ns == 0);
    assert_true(hw.host.isa == PS_HARDWARE_ISA_AUTO && hw.host.cores == 0);
    assert_true(hw.link.to_device_bytes_per_s == 25e9 && hw.link.to_host_bytes_per_s == 24e9);
    assert_true(hw.link.full_duplex && hw.link.shared_by == 2 && hw.link.compute_interference == 0.25);
    assert_true(hw.disk.present && hw.disk.write_bytes_per_s == 5e9 && hw.disk.compute_interference == 0);
    assert_string_equal(hw.disk.source, "a \"sheet\"");
    assert_true(hw.interconnect.present && hw.network.present);
    assert_true(hw.network.bytes_per_s == 1e10 && hw.network.latency_ns == 2);
    assert_int_equal(ps_hardware_devices_per_node(&hw), 2);
}

/* What is wrong in one line is said of that line. */
static void wrong_values_name_line_and_key(void **state)
{
    (void)state;
    static const struct {
        size_t line;
        const char *text, *message;
    } cases[] = {
        {2, "  \"name\": 5,", "hw.json:2:11: name must be a string, not 5"},
        {3, "  \"gpus_per_node\": -1,", "hw.json:3:20: gpus_per_node must be an integer from 0 to 1024, not -1"},
        {4, "  \"n_nodes\": 0,", "hw.json:4:14: n_nodes must be an integer from 1 to 65536, not 0"},
        {4, "  \"n_nodes\": 1.5,", "hw.json:4:14: n_nodes must be an integer"},
        {5, "  \"device\": 7, \"zz\": {", "hw.json:5:13: device must be an object"},
        {6, "    \"bytes\": 0,", "hw.json:6:14: device.bytes must be a size (64MB, 1.5GiB, bytes) of at least 1MiB"},
        {6, "    \"bytes\": \"24 apples\",", "hw.json:6:14: device.bytes must be a size"},
        {6, "    \"bytes\": \"auto\",", "hw.json:6:14: device.bytes must be a size"},
        {6, "    \"bytes\": \"1000000TB\",", "hw.json:6:14: device.bytes must be a size"},
        {6, "    \"bytes\": null,", "hw.json:6:14: device.bytes must be a size"},
        {6, "    \"reserved_bytess\": 1,",
         "hw.json:6:5: unknown key 'device.reserved_bytess'; did you mean 'device.res"},
        {6, "    \"qqqqqqqq\": 1,", "hw.json:6:5: unknown key 'device.qqqqqqqq'; doc/hardware.md lists the keys"},
        {6, "    \"bf16.flop_per_s\": 1,", "hw.json:6:5: unknown key 'device.bf16.flop_per_s'; in a file sections"},
        {6, "", "hw.json:5:13: device.bytes is missing; it must be a size"},
        {7, "    \"reserved_bytes\": -1,", "hw.json:7:23: device.reserved_bytes must be a size"},
        {7, "    \"reserved_bytes\": \"24GiB\",", "hw.json:7:23: device.reserved_bytes = 25769803776 leaves nothing"},
        {8, "    \"memory_bytes_per_s\": 0,",
         "hw.json:8:27: device.memory_bytes_per_s must be a number in [100000, 1e+15), not 0"},
        {8, "    \"memory_bytes_per_s\": -1e9,", "hw.json:8:27: device.memory_bytes_per_s must be a number"},
        {8, "    \"memory_bytes_per_s\": 1e15,", "hw.json:8:27: device.memory_bytes_per_s must be a number"},
        {8, "    \"memory_bytes_per_s\": \"fast\",",
         "hw.json:8:27: device.memory_bytes_per_s must be a number in [100000, 1e+15), not \"fast\""},
        {8, "", "hw.json:5:13: device.memory_bytes_per_s is missing; it must be a number in [100000, 1e+15)"},
        {9, "    \"op_latency_ns\": -5,", "hw.json:9:22: device.op_latency_ns must be an integer from 0"},
        {10, "    \"bf17\": {", "hw.json:10:5: unknown key 'device.bf17'; did you mean 'device.bf16'?"},
        {11, "      \"flop_per_s\": 0,",
         "hw.json:11:21: device.bf16.flop_per_s must be a number in [1000000, 1e+18), not 0"},
        {11, "", "hw.json:10:13: device.bf16.flop_per_s is missing"},
        {12, "      \"achievable_fraction\": 0",
         "hw.json:12:30: device.bf16.achievable_fraction must be a number in (0, 1]"},
        {12, "      \"achievable_fraction\": 1.01", "hw.json:12:30: device.bf16.achievable_fraction must be a number"},
        {15, "  \"hosst\": {", "hw.json:15:3: unknown key 'hosst'; did you mean 'host'?"},
        {17, "    \"reserved_bytes\": \"64GB\",", "hw.json:17:23: host.reserved_bytes = 64000000000 leaves nothing of"},
        {19, "    \"adam_fraction\": 0", "hw.json:19:22: host.adam_fraction must be a number in (0, 1], not 0"},
        {19, "    \"adam_fraction\": 1, \"isa\": \"avx512_bf16\"",
         "hw.json:19:32: host.isa must be one of auto, portable, avx2, avx512, intel-avx512_bf16, amd-avx512_bf16, "
         "amx, "
         "not \"avx512_bf16\""},
        {19, "    \"adam_fraction\": 1, \"isa\": 2", "hw.json:19:32: host.isa must be one of"},
        {19, "    \"adam_fraction\": 1, \"cores\": -1",
         "hw.json:19:34: host.cores must be an integer from 0 to 4096, not -1"},
        {21, "  \"link\": null, \"zz\": {", "hw.json:21:11: link must be an object"},
        {25, "    \"full_duplex\": 1,", "hw.json:25:20: link.full_duplex must be true or false, not 1"},
        {25, "", "hw.json:21:11: link.full_duplex is missing; it must be true or false"},
        {26, "    \"shared_by\": 3,", "hw.json:26:18: link.shared_by = 3 is more than the 2 devices of a node"},
        {27, "    \"compute_interference\": 1.5",
         "hw.json:27:29: link.compute_interference must be a number in [0, 1], not"},
        {31, "    \"read_bytes_per_s\": 0,", "hw.json:31:25: disk.read_bytes_per_s must be a number"},
        {22, "    \"to_device_bytes_per_s\": 99999,", "hw.json:22:30: link.to_device_bytes_per_s must be a number in"},
        {23, "    \"to_host_bytes_per_s\": 99999,", "hw.json:23:28: link.to_host_bytes_per_s must be a number in"},
        {31, "    \"read_bytes_per_s\": 1,", "hw.json:31:25: disk.read_bytes_per_s must be a number in [100000,"},
        {32, "    \"write_bytes_per_s\": 1,", "hw.json:32:26: disk.write_bytes_per_s must be a number in [100000,"},
        {31, "", "hw.json:29:11: disk.read_bytes_per_s is missing"},
        {34, "    \"full_duplex\": false, \"read_both_ways_bytes_per_s\": 1e9,",
         "hw.json:34:57: disk.read_both_ways_bytes_per_s = 1e+09 needs disk.write_both_ways_bytes_per_s too: both or"},
        {34, "    \"full_duplex\": false, \"read_both_ways_bytes_per_s\": 1, \"write_both_ways_bytes_per_s\": 6e9,",
         "hw.json:34:91: disk.write_both_ways_bytes_per_s = 6e+09 is more than disk.write_bytes_per_s = 5e+09, the"},
        {25, "    \"full_duplex\": true, \"to_host_both_ways_bytes_per_s\": -1,",
         "hw.json:25:59: link.to_host_both_ways_bytes_per_s must be a number in [0, 1e+15), not -1"},
        {38, "    \"bytes_per_s\": 0,", "hw.json:38:20: interconnect.bytes_per_s must be a number"},
        {43, "    \"latency_ns\": \"x\"", "hw.json:43:19: network.latency_ns must be an integer"},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        ps_hardware hw;
        char *text = with_line(cases[i].line, cases[i].text);
        if (ps_hardware_parse(text, "hw.json", &hw) != PS_EINVAL) fail_msg("accepted: %s", cases[i].text);
        assert_says(cases[i].message);
        free(text);
    }
}

static void text_that_is_no_json_is_a_format_error(void **state)
{
    (void)state;
    ps_hardware hw;
    assert_int_equal(ps_hardware_parse("{\n  \"name\": ,\n}", "x.json", &hw), PS_EFORMAT);
    assert_says("x.json:2:11: ");
    assert_int_equal(ps_hardware_parse("{\"name\": \"a\", \"name\": \"b\"}", "x.json", &hw), PS_EFORMAT);
    assert_int_equal(ps_hardware_parse("[]", "x.json", &hw), PS_EINVAL);
    assert_says("x.json:1:1: a description must be an object");
    assert_int_equal(ps_hardware_parse("{}", "x.json", &hw), PS_EINVAL);
    assert_says("x.json:1:1: name is missing; it must be a string");
    assert_int_equal(ps_hardware_parse("{\"name\": \"a\",\n\"gpus_per_node\": 1}", "x.json", &hw), PS_EINVAL);
    assert_says("x.json:1:1: device is missing; it must be an object");
}

static void strings_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    char name[PS_HARDWARE_NAME_MAX + 1], line[PS_HARDWARE_NAME_MAX + 32];
    for (int n = PS_HARDWARE_NAME_MAX - 1; n <= PS_HARDWARE_NAME_MAX; n++) {
        ps_hardware hw;
        memset(name, 'x', (size_t)n);
        name[n] = '\0';
        snprintf(line, sizeof line, "  \"name\": \"%s\",", name);
        char *text = with_line(2, line);
        const ps_status st = ps_hardware_parse(text, "hw.json", &hw);
        free(text);
        if (n < PS_HARDWARE_NAME_MAX) {
            assert_int_equal(st, PS_OK);
            assert_string_equal(hw.name, name);
        } else {
            assert_int_equal(st, PS_EINVAL);
            assert_says("hw.json:2:11: name must be a string of at most 79 bytes, not of 80");
        }
    }
}

/* set, then check: "" when both accept. */
static void assert_set(const char *key, const char *value, const char *message)
{
    ps_hardware hw = good_hardware();
    const ps_hardware before = hw;
    ps_status st = ps_hardware_set(&hw, key, value);
    if (st != PS_OK) assert_memory_equal(&hw, &before, sizeof hw);
    if (st == PS_OK) st = ps_hardware_check(&hw);
    assert_int_equal(st, message[0] == '\0' ? PS_OK : PS_EINVAL);
    if (message[0] != '\0') assert_says(message);
}

static void words_of_a_command_line_change_keys(void **state)
{
    (void)state;
    ps_hardware hw = good_hardware();
    assert_int_equal(ps_hardware_set(&hw, "n_nodes", "8"), PS_OK);
    assert_int_equal(ps_hardware_set(&hw, "device.bytes", "80GB"), PS_OK);
    assert_int_equal(ps_hardware_set(&hw, "link.full_duplex", "false"), PS_OK);
    assert_int_equal(ps_hardware_set(&hw, "device.bf16.flop_per_s", "1e15"), PS_OK);
    assert_int_equal(ps_hardware_set(&hw, "name", "another"), PS_OK);
    assert_int_equal(ps_hardware_set(&hw, "disk", "null"), PS_OK);
    assert_int_equal(hw.n_nodes, 8);
    assert_int_equal(hw.device.bytes, 80000000000);
    assert_int_equal(ps_hardware_set(&hw, "link.to_host_both_ways_bytes_per_s", "1e9"), PS_OK);
    assert_int_equal(ps_hardware_check(&hw), PS_EINVAL); /* both or none */
    assert_int_equal(ps_hardware_set(&hw, "link.to_device_both_ways_bytes_per_s", "2e9"), PS_OK);
    assert_true(hw.link.to_device_both_ways_bytes_per_s == 2e9 && hw.link.to_host_both_ways_bytes_per_s == 1e9);
    assert_true(!hw.link.full_duplex && hw.device.bf16.flop_per_s == 1e15 && !hw.disk.present);
    assert_string_equal(hw.name, "another");
    assert_int_equal(ps_hardware_check(&hw), PS_OK);
    assert_set("gpus_per_node", "1", "link.shared_by = 2 is more than the 1 devices of a node");
    assert_set("interconnect", "null", "gpus_per_node = 2 needs interconnect, which is missing");
    assert_set("network", "null", "n_nodes = 3 needs network, which is missing");
    assert_set("device.bf16", "null", "device needs the rate of at least one number format");
    assert_set("gpus_per_node", "0", "link.shared_by = 2");
    assert_set("n_nodes", "0", "n_nodes must be an integer from 1 to 65536, not 0");
    assert_set("device.byte", "1GB", "unknown key 'device.byte'; did you mean 'device.bytes'?");
    assert_set("device", "1", "'device' is a section; set one of its keys, as in device.KEY=VALUE");
    assert_set("device", "null", "'device' is a section");
    assert_set("disk", "none", "'disk' is a section; set one of its keys, as in disk.KEY=VALUE, or null");
    assert_set("device.f32.flop_per_s", "1e12",
               "device.f32.flop_per_s cannot be set: the description has no device.f32");
    assert_set("disk.bytes", "null", "disk.bytes must be a size");
    assert_set("link.shared_by", "null", "");
}

static void a_node_without_gpus_computes_in_host_memory(void **state)
{
    (void)state;
    ps_hardware hw = good_hardware();
    hw.gpus_per_node = 0;
    hw.link.shared_by = 1;
    hw.interconnect.present = false;
    assert_int_equal(ps_hardware_check(&hw), PS_OK);
    assert_int_equal(ps_hardware_devices_per_node(&hw), 1);
    hw.device.bytes = hw.host.bytes + 1;
    assert_int_equal(ps_hardware_check(&hw), PS_EINVAL);
    assert_says("device.bytes = 64000000001 is more than host.bytes = 64000000000");
}

static char *written(const ps_hardware *hw)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    assert_int_equal(ps_hardware_write(hw, out), PS_OK);
    fclose(out);
    return text;
}

static void assert_round_trip(const ps_hardware *hw)
{
    ps_hardware again;
    char *text = written(hw);
    if (ps_hardware_parse(text, "written", &again) != PS_OK) fail_msg("%s", ps_last_error());
    for (int i = 0; i < ps_hardware_n_sections; i++)
        assert_int_equal(ps_hardware_has_section(hw, i), ps_hardware_has_section(&again, i));
    for (int i = 0; i < ps_hardware_n_keys; i++) {
        const ps_hardware_key *key = &ps_hardware_keys[i];
        const ps_option_value a = ps_hardware_value(key, hw), b = ps_hardware_value(key, &again);
        if (key->option.type == PS_OPTION_STRING)
            assert_string_equal(a.s, b.s);
        else
            assert_true(a.b == b.b && a.i == b.i && memcmp(a.d, b.d, sizeof a.d) == 0);
    }
    free(text);
}

static void what_is_written_reads_back_the_same(void **state)
{
    (void)state;
    ps_hardware hw = good_hardware();
    hw.device.memory_bytes_per_s = 1e12 / 3;
    hw.link.compute_interference = 0.1;
    hw.link.to_device_both_ways_bytes_per_s = hw.link.to_host_both_ways_bytes_per_s = 2e9 / 3;
    hw.host.isa = PS_HARDWARE_ISA_AMD_AVX512_BF16;
    hw.host.cores = 96;
    strcpy(hw.host.source, "a line\nwith \\ and \"quotes\"");
    assert_round_trip(&hw);
    assert_int_equal(ps_hardware_set(&hw, "disk", "null"), PS_OK);
    assert_round_trip(&hw);
}

static void examples_are_accepted_and_name_their_sources(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int gpus;
        int64_t n_nodes_most;
    } files[] = {{"v100-32gb-x8", 8, 8}, {"a100-40gb-x8", 8, 8}, {"rtx4090-64gb", 1, 1}, {"h200-128gb", 1, 1},
                 {"h100-128gb", 1, 1},   {"gh200-480gb", 1, 1},  {"gb10-128gb", 1, 1},   {"laptop", 0, 1}};
    for (size_t i = 0; i < PS_ARRAY_LEN(files); i++) {
        char path[128];
        ps_hardware hw;
        ps_hardware by_name;
        snprintf(path, sizeof path, "examples/hardware/%s.json", files[i].name);
        if (ps_hardware_load(path, &hw) != PS_OK) fail_msg("%s", ps_last_error());
        if (ps_hardware_load(files[i].name, &by_name) != PS_OK) fail_msg("%s", ps_last_error());
        assert_memory_equal(&by_name, &hw, sizeof hw);
        assert_non_null(strstr(ps_machine_names, files[i].name));
        assert_int_equal(hw.gpus_per_node, files[i].gpus);
        assert_true(hw.gpus_per_node > 0 || (hw.host.isa != PS_HARDWARE_ISA_AUTO && hw.host.cores > 0));
        assert_true(hw.device.source[0] && hw.host.source[0] && hw.link.source[0]);
        assert_true(!hw.disk.present || hw.disk.source[0]);
        assert_true(!hw.interconnect.present || hw.interconnect.source[0]);
        assert_true(!hw.network.present || hw.network.source[0]);
        hw.n_nodes = files[i].n_nodes_most;
        assert_int_equal(ps_hardware_check(&hw), PS_OK);
        assert_round_trip(&hw);
    }
}

static void files_are_written_whole_or_not_at_all(void **state)
{
    (void)state;
    char path[] = "/tmp/test_hardware_XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    ps_hardware hw = good_hardware(), again;
    assert_int_equal(ps_hardware_save(&hw, path), PS_OK);
    hw.n_nodes = 5;
    for (int nth = 0;; nth++) {
        ps_fault_arm(PS_FAULT_WRITE, nth, false);
        const ps_status st = ps_hardware_save(&hw, path);
        const bool has_struck = ps_fault_has_struck(PS_FAULT_WRITE);
        ps_fault_arm(PS_FAULT_WRITE, -1, false);
        assert_int_equal(ps_hardware_load(path, &again), PS_OK);
        if (!has_struck) break;
        assert_int_equal(st, PS_EIO);
    }
    assert_int_equal(again.n_nodes, 5);
    unlink(path);
    assert_int_equal(ps_hardware_load(path, &again), PS_EIO);
    assert_int_equal(ps_hardware_save(&hw, "/proc/nonexistent/x.json"), PS_EIO);
    FILE *full = fopen("/dev/full", "w");
    if (full == NULL) skip();
    assert_int_equal(ps_hardware_write(&hw, full), PS_EIO);
    fclose(full);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_sound),
        cmocka_unit_test(values_arrive),
        cmocka_unit_test(wrong_values_name_line_and_key),
        cmocka_unit_test(text_that_is_no_json_is_a_format_error),
        cmocka_unit_test(strings_that_do_not_fit_are_refused),
        cmocka_unit_test(words_of_a_command_line_change_keys),
        cmocka_unit_test(a_node_without_gpus_computes_in_host_memory),
        cmocka_unit_test(what_is_written_reads_back_the_same),
        cmocka_unit_test(examples_are_accepted_and_name_their_sources),
        cmocka_unit_test(files_are_written_whole_or_not_at_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
