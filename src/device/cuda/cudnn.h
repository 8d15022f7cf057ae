/* cudnn.h - cuDNN 9 by its backend interface, which is C: descriptors with attributes that are set by number. The
 * library is loaded by name: building needs no part of it, and tests supply another table of functions. Types and
 * numbers are those of its binary interface; where cudnn_graph.h is found a test compares them. */
#ifndef PS_CUDA_CUDNN_H
#define PS_CUDA_CUDNN_H

#include "device/cuda/driver.h"

typedef int ps_dnn_status; /* 0: success */
typedef struct ps_dnn_handle_state *ps_dnn_handle;
typedef void *ps_dnn_descriptor;

/* The thousands are the category of the error. */
enum {
    PS_DNN_SUCCESS = 0,
    PS_DNN_NOT_INITIALIZED = 1001,
    PS_DNN_BAD_PARAM = 2000,
    PS_DNN_NOT_SUPPORTED = 3000,
    PS_DNN_OTHER_DRIVER = 3005,
    PS_DNN_OTHER_RUNTIME = 3006,
    PS_DNN_NO_PREREQUISITE = 3008,
    PS_DNN_NO_SUBLIBRARY = 3009,
    PS_DNN_INTERNAL_ERROR = 4000,
    PS_DNN_NO_HOST_MEMORY = 4003,
    PS_DNN_NO_DEVICE_MEMORY = 4004,
    PS_DNN_EXECUTION_FAILED = 5000,
};

/* Types of attributes. */
enum {
    PS_DNN_TYPE_HANDLE = 0,
    PS_DNN_TYPE_DATA_TYPE = 1,
    PS_DNN_TYPE_BOOLEAN = 2,
    PS_DNN_TYPE_INT64 = 3,
    PS_DNN_TYPE_POINTER = 6,
    PS_DNN_TYPE_HEURISTIC = 8,
    PS_DNN_TYPE_NUMERICAL_NOTE = 11,
    PS_DNN_TYPE_POINTWISE = 14,
    PS_DNN_TYPE_DESCRIPTOR = 15,
    PS_DNN_TYPE_REDUCTION = 18,
    PS_DNN_TYPE_CHAR = 24,
};

/* Element types. */
enum { PS_DNN_F32 = 0, PS_DNN_F16 = 2, PS_DNN_INT32 = 4, PS_DNN_BF16 = 9, PS_DNN_BOOLEAN = 11 };

/* Kinds of descriptors. */
enum {
    PS_DNN_POINTWISE = 0,
    PS_DNN_ENGINE = 2,
    PS_DNN_ENGINE_CONFIG = 3,
    PS_DNN_HEURISTIC = 4,
    PS_DNN_PLAN = 5,
    PS_DNN_POINTWISE_OPERATION = 13,
    PS_DNN_GRAPH = 15,
    PS_DNN_PACK = 16,
    PS_DNN_TENSOR = 17,
    PS_DNN_MATMUL = 18,
    PS_DNN_MATMUL_OPERATION = 19,
    PS_DNN_REDUCTION = 21,
    PS_DNN_REDUCTION_OPERATION = 22,
    PS_DNN_RESHAPE_OPERATION = 31,
    PS_DNN_DEVICE = 38,
};

/* Attributes. */
enum {
    PS_DNN_POINTWISE_MODE = 0,
    PS_DNN_POINTWISE_PRECISION = 1,
    PS_DNN_POINTWISE_AXIS = 9,
    PS_DNN_HEURISTIC_MODE = 200,
    PS_DNN_HEURISTIC_GRAPH = 201,
    PS_DNN_HEURISTIC_RESULTS = 202,
    PS_DNN_HEURISTIC_DEVICE = 204,
    PS_DNN_CONFIG_ENGINE = 300,
    PS_DNN_PLAN_HANDLE = 400,
    PS_DNN_PLAN_CONFIG = 401,
    PS_DNN_PLAN_WORKSPACE_BYTES = 402,
    PS_DNN_PLAN_DEVICE = 407,
    PS_DNN_POINTWISE_OF = 750,
    PS_DNN_POINTWISE_X = 751,
    PS_DNN_POINTWISE_B = 752,
    PS_DNN_POINTWISE_Y = 753,
    PS_DNN_POINTWISE_T = 758,
    PS_DNN_GRAPH_HANDLE = 800,
    PS_DNN_GRAPH_OPERATIONS = 801,
    PS_DNN_TENSOR_ALIGNMENT = 900,
    PS_DNN_TENSOR_TYPE = 901,
    PS_DNN_TENSOR_SIZES = 902,
    PS_DNN_TENSOR_STRIDES = 903,
    PS_DNN_TENSOR_ID = 906,
    PS_DNN_TENSOR_IS_VIRTUAL = 907,
    PS_DNN_TENSOR_IS_BY_VALUE = 908,
    PS_DNN_PACK_IDS = 1000,
    PS_DNN_PACK_POINTERS = 1001,
    PS_DNN_PACK_WORKSPACE = 1003,
    PS_DNN_ENGINE_NOTES = 1303,
    PS_DNN_MATMUL_PRECISION = 1500,
    PS_DNN_MATMUL_A = 1520,
    PS_DNN_MATMUL_B = 1521,
    PS_DNN_MATMUL_C = 1522,
    PS_DNN_MATMUL_OF = 1523,
    PS_DNN_REDUCTION_OPERATOR = 1600,
    PS_DNN_REDUCTION_PRECISION = 1601,
    PS_DNN_REDUCTION_X = 1610,
    PS_DNN_REDUCTION_Y = 1611,
    PS_DNN_REDUCTION_OF = 1612,
    PS_DNN_RESHAPE_X = 2200,
    PS_DNN_RESHAPE_Y = 2201,
    PS_DNN_DEVICE_JSON = 2702,
};

/* Values of PS_DNN_POINTWISE_MODE, PS_DNN_REDUCTION_OPERATOR, PS_DNN_HEURISTIC_MODE and PS_DNN_ENGINE_NOTES. */
enum {
    PS_DNN_ADD = 0,
    PS_DNN_MUL = 1,
    PS_DNN_DIV = 6,
    PS_DNN_SUB = 9,
    PS_DNN_EXP = 13,
    PS_DNN_LOG = 15,
    PS_DNN_GREATER = 302,
    PS_DNN_GREATER_OR_EQUAL = 303,
    PS_DNN_INDEX = 501,  /* of its axis */
    PS_DNN_SELECT = 601, /* x where t, else b */
};
enum { PS_DNN_SUM = 0, PS_DNN_MAX = 3 };
enum { PS_DNN_HEURISTIC_A = 3 };
enum { PS_DNN_NOTE_NONDETERMINISTIC = 4, PS_DNN_NOTES = 10 };

typedef struct ps_cudnn {
#define XX(type, name, symbol, params) type(*name) params;
#include "device/cuda/cudnn.def"
#undef XX
} ps_cudnn;

/* The required major version, and the earliest accepted, as version() returns it: the first with which the graphs of
 * cudnn_graph.h have been tested. */
#define PS_CUDNN_VERSION 9
#define PS_CUDNN_VERSION_LEAST 91900

/* The library of this system, loaded once for the process and kept: by its name, then from the folders of CUDA_HOME and
 * of /usr/local/cuda. PS_ENOSYS, in one line that says what to do. */
PS_NODISCARD ps_status ps_cudnn_load(const ps_cudnn **out);
/* The library in one file; not kept. */
PS_NODISCARD ps_status ps_cudnn_take(const char *library, ps_cudnn *out);

/* "9.19.0" */
#define PS_CUDNN_VERSION_TEXT_MAX 32
const char *ps_cudnn_version_text(const ps_cudnn *dnn, char text[PS_CUDNN_VERSION_TEXT_MAX]);

#endif
