/* nccl.h - NCCL as a table of functions, loaded from libnccl.so.2 at run time: building needs no part of it, and tests
 * supply another table.
 *
 * Types and numbers are those of its binary interface, which versions 2.x keep; where nccl.h is found a test compares
 * them. */
#ifndef PS_CUDA_NCCL_H
#define PS_CUDA_NCCL_H

#include "device/cuda/driver.h"

typedef int ps_nccl_result;
typedef struct ps_nccl_comm_state *ps_nccl_comm;

enum {
    PS_NCCL_SUCCESS = 0,
    PS_NCCL_CUDA_ERROR = 1,
    PS_NCCL_SYSTEM_ERROR = 2,
    PS_NCCL_INTERNAL_ERROR = 3,
    PS_NCCL_INVALID_ARGUMENT = 4,
    PS_NCCL_INVALID_USAGE = 5,
    PS_NCCL_REMOTE_ERROR = 6,
    PS_NCCL_IN_PROGRESS = 7, /* of a nonblocking communicator: poll `state` */
};

enum { PS_NCCL_BYTES = 1 }; /* the type of elements */

/* The unique id: created by one rank, given to all. */
typedef struct ps_nccl_id {
    char bytes[128];
} ps_nccl_id;

/* As of version 2.17: later versions read `bytes` and take the defaults for members that were added. */
typedef struct ps_nccl_config {
    size_t bytes; /* of this struct */
    unsigned magic, version;
    int blocking; /* 0: calls return at once, perhaps with PS_NCCL_IN_PROGRESS */
    int cluster_size, least_blocks, most_blocks;
    const char *network;
} ps_nccl_config;

#define PS_NCCL_CONFIG_MAGIC 0xcafebeefu
#define PS_NCCL_CONFIG_VERSION 21700
#define PS_NCCL_NOT_GIVEN (-2147483647 - 1)

typedef struct ps_nccl {
#define XX(type, name, symbol, params) type(*name) params;
#include "device/cuda/nccl.def"
#undef XX
} ps_nccl;

/* 2.18: the first whose sends and receives can be nonblocking. */
#define PS_NCCL_VERSION_LEAST 21800

/* The library of this system, loaded once for the process and kept. PS_ENOSYS, in one line that says what to do, when
 * it is missing or too old. */
PS_NODISCARD ps_status ps_nccl_load(const ps_nccl **out);
/* The same from a library of another name, into *out; not kept. */
PS_NODISCARD ps_status ps_nccl_take(const char *path, ps_nccl *out);

/* "2.28.9" of 22809 */
void ps_nccl_describe_version(int version, char *out, size_t bytes);

#endif
