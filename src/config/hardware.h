/* hardware.h - a description of machines: how much memory, how fast each part is. What planning reckons with.
 *
 *     node 0                                                             node 1 ...
 *     device 0 --- link ---+                                               |
 *        | interconnect    +--- host ---------------- network -------------+
 *     device 1 --- link ---+      | disk
 *
 * hardware.def lists the keys with unit, range and meaning; reader, checks, writer and doc/hardware.md come from that
 * table. A section "device" holds "device.bytes" and so on. Descriptions are JSON files (examples/hardware/), measured
 * (pstar info --measure) or written by hand from data sheets.
 *
 * A node without GPUs (gpus_per_node 0) computes on its processor: one device whose memory is part of the host's, and
 * whose link is the processor copying within that memory. */
#ifndef PS_CONFIG_HARDWARE_H
#define PS_CONFIG_HARDWARE_H

#include <stdio.h>

#include "base/base.h"
#include "base/status.h"

enum {
    PS_HARDWARE_NAME_MAX = 80,    /* bytes, NUL included */
    PS_HARDWARE_SOURCE_MAX = 512, /* bytes, NUL included */
};

/* Where a section's figures come from: a data sheet, a measurement, an assumption. For people. */
typedef char ps_hardware_source[PS_HARDWARE_SOURCE_MAX];

/* Matrix products of one number format; present false: not offered. */
typedef struct ps_hardware_matrix {
    bool present;
    double flop_per_s;          /* > 0; multiply and add count as two */
    double achievable_fraction; /* (0, 1]: what the operators of a training step reach of it on average */
} ps_hardware_matrix;

/* One device; all of a node are alike. */
typedef struct ps_hardware_device {
    ps_hardware_source source;
    int64_t bytes, reserved_bytes; /* reserved: of bytes, not usable (driver, context) */
    /* of a GPU: what its memory is given out in; workspace of its matrix products */
    int64_t page_bytes, product_workspace_bytes;
    double memory_bytes_per_s;          /* read and written together */
    double stream_fraction;             /* (0, 1]: share of it that norms and their like reach; 0 stands for 1 */
    double score_ns, logit_ns, gelu_ns; /* of attention, loss, gelu, beside products (kernel/softmax_cost.h) */
    int64_t op_latency_ns;              /* of one operator, on top of its work */
    ps_hardware_matrix f32, bf16, fp16;
} ps_hardware_device;

/* Processor kinds: the names of kernel/cpu_kind.h (test_cpu_detect.c compares); auto: that of the machine that
 * plans. */
#define PS_HARDWARE_ISA_MAP(XX)                                                                                        \
    XX(PS_HARDWARE_ISA_AUTO, "auto")                                                                                   \
    XX(PS_HARDWARE_ISA_PORTABLE, "portable")                                                                           \
    XX(PS_HARDWARE_ISA_AVX2, "avx2")                                                                                   \
    XX(PS_HARDWARE_ISA_AVX512, "avx512")                                                                               \
    XX(PS_HARDWARE_ISA_INTEL_AVX512_BF16, "intel-avx512_bf16")                                                         \
    XX(PS_HARDWARE_ISA_AMD_AVX512_BF16, "amd-avx512_bf16")                                                             \
    XX(PS_HARDWARE_ISA_AMX, "amx")

#define PS_HARDWARE_VALUE(value, text) value,
typedef enum ps_hardware_isa { PS_HARDWARE_ISA_MAP(PS_HARDWARE_VALUE) PS_HARDWARE_ISA_COUNT } ps_hardware_isa;
#undef PS_HARDWARE_VALUE

/* The text of a value. */
extern const char *const ps_hardware_isa_names[PS_HARDWARE_ISA_COUNT];

/* The processors and memory of one node. */
typedef struct ps_hardware_host {
    ps_hardware_source source;
    ps_hardware_isa isa; /* of a node without GPUs */
    int64_t cores;       /* that compute, of a node without GPUs; 0: as many as the machine that plans has */
    int64_t bytes, reserved_bytes;
    double memory_bytes_per_s; /* of all cores together, read and written together */
    double adam_fraction;      /* (0, 1]: share of memory_bytes_per_s that Adam reaches on the host */
    int64_t op_latency_ns;
} ps_hardware_host;

/* Between the host and one device. */
typedef struct ps_hardware_link {
    ps_hardware_source source;
    double to_device_bytes_per_s, to_host_bytes_per_s; /* of one device alone, one way at a time */
    int64_t latency_ns;                                /* of one copy */
    bool full_duplex; /* both ways at once at full rate each; else the two ways take turns */
    /* each way while the other goes on too; both 0: as full_duplex says */
    double to_device_both_ways_bytes_per_s, to_host_both_ways_bytes_per_s;
    int64_t shared_by;           /* devices that share these rates when they copy together */
    double compute_interference; /* [0, 1]: seconds of computing lost for each second of copying alone */
} ps_hardware_link;

/* The disk tier of one node, shared by its devices. */
typedef struct ps_hardware_disk {
    ps_hardware_source source;
    bool present;
    int64_t bytes;
    double read_bytes_per_s, write_bytes_per_s;
    int64_t latency_ns;
    bool full_duplex;
    double read_both_ways_bytes_per_s, write_both_ways_bytes_per_s; /* as those of the link */
    double compute_interference;
} ps_hardware_disk;

/* Between devices of one node (interconnect, of each device) or between nodes (network, of each node). */
typedef struct ps_hardware_wire {
    ps_hardware_source source;
    bool present;
    double bytes_per_s; /* each way, both ways at once */
    int64_t latency_ns;
} ps_hardware_wire;

/* Plain: may be copied, owns nothing. */
typedef struct ps_hardware {
    char name[PS_HARDWARE_NAME_MAX];
    ps_hardware_source runs; /* what has run on such a machine, for people */
    int64_t n_nodes;         /* >= 1 */
    int64_t gpus_per_node;   /* 0: the processor is the device */
    ps_hardware_device device;
    ps_hardware_host host;
    ps_hardware_link link;
    ps_hardware_disk disk;
    ps_hardware_wire interconnect, network;
} ps_hardware;

/* Devices that take part: one a node without GPUs. */
static inline int64_t ps_hardware_devices_per_node(const ps_hardware *hw)
{
    return hw->gpus_per_node > 0 ? hw->gpus_per_node : 1;
}

/* Memory of one device, and of a node's host, less what is reserved. A processor's device is a part of the host's
 * memory: both are the lesser of the two. */
int64_t ps_hardware_device_bytes(const ps_hardware *hw);
int64_t ps_hardware_host_bytes(const ps_hardware *hw);

/* Of two ways with these rates alone and at once (0: not measured): the part of its rate that one loses beside the
 * other. 0: neither notices the other; 1: they take turns. */
double ps_hardware_contention(const double alone[2], const double at_once[2], bool full_duplex);

/* Read a file, a machine that is known by name (machines.h; a file of this name goes first), or text with a name for
 * messages, and check it. PS_EFORMAT (no JSON) and PS_EINVAL (an unknown key, a
 * missing one, a wrong or absurd value, keys that contradict each other) name file, line, column and key, what is
 * expected and what was found; PS_EIO. On failure *out is unspecified. */
PS_NODISCARD ps_status ps_hardware_load(const char *path, ps_hardware *out);
PS_NODISCARD ps_status ps_hardware_parse(const char *text, const char *name, ps_hardware *out);

/* Change one key, as "key=value" of a command line: ("n_nodes", "4"), ("device.bytes", "24GiB"). ("disk", "null") takes
 * a section that may be missing away. PS_EINVAL as above, *hw as before; what keys say together is left to
 * ps_hardware_check, so that several can be changed. */
PS_NODISCARD ps_status ps_hardware_set(ps_hardware *hw, const char *key, const char *value);

/* The rules between keys. PS_EINVAL names the key and what is wrong. */
PS_NODISCARD ps_status ps_hardware_check(const ps_hardware *hw);

/* Write as JSON, one key a line, which ps_hardware_parse reads back to the same numbers. PS_EIO when the stream
 * failed. */
PS_NODISCARD ps_status ps_hardware_write(const ps_hardware *hw, FILE *out);
/* The same into a file: all or nothing. */
PS_NODISCARD ps_status ps_hardware_save(const ps_hardware *hw, const char *path);

/* doc/hardware.md. PS_EIO when the stream failed. */
PS_NODISCARD ps_status ps_hardware_write_doc(FILE *out);

#endif
