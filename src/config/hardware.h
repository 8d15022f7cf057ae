/* hardware.h - a description of machines for planning: sizes of memory, throughput and bandwidth.
 *
 *     node 0                                                             node 1 ...
 *     device 0 --- link ---+                                               |
 *        | interconnect    +--- host ---------------- network -------------+
 *     device 1 --- link ---+      | disk
 *
 * hardware.def lists the keys with unit, range and meaning; reader, checks, writer and doc/hardware.md are generated
 * from that table. A section "device" has "device.bytes" and so on. Descriptions are JSON files (examples/hardware/),
 * measured (pstar info --measure) or written by hand from data sheets.
 *
 * A node without GPUs (gpus_per_node 0) computes on its CPU: one device whose memory is part of the host's, and whose
 * link is copying by the CPU within that memory. */
#ifndef PS_CONFIG_HARDWARE_H
#define PS_CONFIG_HARDWARE_H

#include <stdio.h>

#include "base/base.h"
#include "base/status.h"

enum {
    PS_HARDWARE_NAME_MAX = 80,    /* bytes, NUL included */
    PS_HARDWARE_SOURCE_MAX = 512, /* bytes, NUL included */
};

/* Source of a section's figures, for readers: a data sheet, a measurement, an assumption. */
typedef char ps_hardware_source[PS_HARDWARE_SOURCE_MAX];

/* Matrix multiplication in one number format; present false: not supported. */
typedef struct ps_hardware_matrix {
    bool present;
    double flop_per_s;          /* > 0; multiply and add count as two */
    double achievable_fraction; /* (0, 1]: share of it that the operators of a training step reach on average */
} ps_hardware_matrix;

/* One device; all devices of a node are equal. */
typedef struct ps_hardware_device {
    ps_hardware_source source;
    int64_t bytes, reserved_bytes; /* reserved: part of bytes that is not usable (driver, context) */
    /* of a GPU: allocation granularity of its memory; workspace of matrix multiplication */
    int64_t page_bytes, product_workspace_bytes;
    double memory_bytes_per_s;          /* read and written together */
    double stream_fraction;             /* (0, 1]: share of it that norms and similar operators reach; 0 stands for 1 */
    double score_ns, logit_ns, gelu_ns; /* of attention, loss and gelu, in addition to matrix multiplication
                                           (kernel/softmax_cost.h) */
    int64_t op_latency_ns;              /* of one operator, in addition to its work */
    ps_hardware_matrix f32, bf16, fp16;
} ps_hardware_device;

/* Kinds of CPUs: the names of kernel/cpu_kind.h (test_cpu_detect.c compares); auto: that of the machine that plans. */
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

/* The CPUs and memory of one node. */
typedef struct ps_hardware_host {
    ps_hardware_source source;
    ps_hardware_isa isa; /* of a node without GPUs */
    int64_t cores;       /* that compute, of a node without GPUs; 0: those of the machine that plans */
    int64_t bytes, reserved_bytes;
    double memory_bytes_per_s;    /* of all cores together, read and written together */
    double adam_fraction;         /* (0, 1]: share of memory_bytes_per_s that Adam reaches on the host */
    double adam_compact_fraction; /* [0, 1]: the same with compact states; 0: 0.4 x adam_fraction */
    int64_t op_latency_ns;
} ps_hardware_host;

/* Between the host and one device. */
typedef struct ps_hardware_link {
    ps_hardware_source source;
    double to_device_bytes_per_s, to_host_bytes_per_s; /* of one device alone, one direction at a time */
    int64_t latency_ns;                                /* of one copy */
    bool full_duplex; /* both directions at once at full bandwidth; else the directions alternate */
    /* each direction while the other is in use, too; both 0: as full_duplex says */
    double to_device_both_ways_bytes_per_s, to_host_both_ways_bytes_per_s;
    int64_t shared_by;           /* devices that share this bandwidth when they copy at the same time */
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
    double read_both_ways_bytes_per_s, write_both_ways_bytes_per_s; /* as of the link */
    double compute_interference;
} ps_hardware_disk;

/* Between devices of one node (interconnect, of each device) or between nodes (network, of each node). */
typedef struct ps_hardware_wire {
    ps_hardware_source source;
    bool present;
    double bytes_per_s; /* each direction, both at once */
    int64_t latency_ns;
} ps_hardware_wire;

/* A plain structure: may be copied, owns nothing. */
typedef struct ps_hardware {
    char name[PS_HARDWARE_NAME_MAX];
    ps_hardware_source runs; /* what has run on such a machine, for readers */
    int64_t n_nodes;         /* >= 1 */
    int64_t gpus_per_node;   /* 0: the CPU is the device */
    ps_hardware_device device;
    ps_hardware_host host;
    ps_hardware_link link;
    ps_hardware_disk disk;
    ps_hardware_wire interconnect, network;
} ps_hardware;

/* Number of devices; a node without GPUs counts as one. */
static inline int64_t ps_hardware_devices_per_node(const ps_hardware *hw)
{
    return hw->gpus_per_node > 0 ? hw->gpus_per_node : 1;
}

/* Memory of one device and of a node's host, without reserved bytes. Where the CPU is the device, device memory is part
 * of host memory, and both functions return the smaller one. */
int64_t ps_hardware_device_bytes(const ps_hardware *hw);
int64_t ps_hardware_host_bytes(const ps_hardware *hw);

/* For two directions with these bandwidths alone and at once (0: not measured): the share of its bandwidth that one
 * direction loses to the other. 0: independent; 1: they alternate. */
double ps_hardware_contention(const double alone[2], const double at_once[2], bool full_duplex);

/* Read and check a file or a known machine (machines.h; a file of this name has precedence), or text with a name for
 * messages. PS_EFORMAT (no JSON) and PS_EINVAL (an unknown or missing key, a wrong or implausible value, keys that
 * contradict each other) name file, line, column and key, the expected and the actual value; PS_EIO. On failure *out is
 * unspecified. */
PS_NODISCARD ps_status ps_hardware_load(const char *path, ps_hardware *out);
PS_NODISCARD ps_status ps_hardware_parse(const char *text, const char *name, ps_hardware *out);

/* Change one key, as "key=value" of a command line: ("n_nodes", "4"), ("device.bytes", "24GiB"). ("disk", "null")
 * removes an optional section. PS_EINVAL as above, with *hw unchanged. Rules between keys are left to
 * ps_hardware_check, so that several keys can be changed. */
PS_NODISCARD ps_status ps_hardware_set(ps_hardware *hw, const char *key, const char *value);

/* Check the rules between keys. PS_EINVAL names the key and the problem. */
PS_NODISCARD ps_status ps_hardware_check(const ps_hardware *hw);

/* Write as JSON, one key a line, which ps_hardware_parse reads back to the same numbers. PS_EIO when the stream
 * failed. */
PS_NODISCARD ps_status ps_hardware_write(const ps_hardware *hw, FILE *out);
/* The same to a file, atomically. */
PS_NODISCARD ps_status ps_hardware_save(const ps_hardware *hw, const char *path);

/* Write doc/hardware.md. PS_EIO when the stream failed. */
PS_NODISCARD ps_status ps_hardware_write_doc(FILE *out);

#endif
