/* machine_info.h - what pstar finds on the machine: processor, memory, disk, GPU, libraries; as text and as JSON. */
#ifndef PS_CLI_MACHINE_INFO_H
#define PS_CLI_MACHINE_INFO_H

#include <jansson.h>

#include "base/machine.h"
#include "base/status.h"
#include "device/cuda/open.h"
#include "device/disk.h"
#include "kernel/cpu_kind.h"

enum { MACHINE_INFO_REASON_BYTES = 512, MACHINE_INFO_PLUGINS = 3, MACHINE_INFO_NVIDIA = 4 };

/* A library of NVIDIA's that training on a GPU loads. */
typedef struct machine_info_nvidia {
    const char *name; /* "cuBLASLt" */
    char version[24];
    char path[512];                         /* "": it cannot be loaded */
    char reason[MACHINE_INFO_REASON_BYTES]; /* then */
} machine_info_nvidia;

typedef enum machine_info_gpu {
    MACHINE_INFO_NO_GPU,
    MACHINE_INFO_GPU_UNUSABLE, /* gpu_reason says why */
    MACHINE_INFO_GPU_USABLE,
} machine_info_gpu;

typedef struct machine_info {
    char processor[128];
    int n_cores;
    ps_cpu_kind kind;
    ps_machine_memory_info memory;
    const char *folder; /* of the disk tier, the caller's; "": not asked for */
    bool is_disk_usable;
    char disk_reason[MACHINE_INFO_REASON_BYTES]; /* where it is not usable */
    ps_disk_stats disk;
    int64_t disk_free_bytes; /* -1: not known */
    machine_info_gpu gpu_state;
    ps_cuda_found gpu;
    char gpu_reason[MACHINE_INFO_REASON_BYTES], cudnn_reason[MACHINE_INFO_REASON_BYTES]; /* "" : none */
    machine_info_nvidia nvidia[MACHINE_INFO_NVIDIA];                                     /* the driver first */
    bool has_nvidia; /* they were looked for: there is a GPU, or the plug-in */
    const char *plugins[MACHINE_INFO_PLUGINS];
    int n_plugins;
} machine_info;

/* A disk folder or GPU that cannot be used is no failure. Examines the GPU, which takes a second. */
PS_NODISCARD ps_status machine_info_find(const char *folder, machine_info *out);
void machine_info_show(const machine_info *m);
/* Sizes in bytes; "disk" is null when not asked for, "gpu" when there is none, "nvidia_libraries" when not looked for.
 * The caller releases it. */
json_t *machine_info_json(const machine_info *m);

#endif
