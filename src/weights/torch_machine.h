/* torch_machine.h - the stack machine that executes pickles for torch_pickle.h. Values refer to each other by number
 * and are freed together, so cycles and deep nesting are harmless: no code traverses them. */
#ifndef PS_WEIGHTS_TORCH_MACHINE_H
#define PS_WEIGHTS_TORCH_MACHINE_H

#include <stdbool.h>

#include "weights/safetensors.h"

typedef enum torch_kind {
    TORCH_NONE,
    TORCH_INTEGER, /* booleans too */
    TORCH_FLOAT,   /* parsed, not used */
    TORCH_TEXT,
    TORCH_TUPLE,
    TORCH_LIST,
    TORCH_DICT,
    TORCH_GLOBAL,
    TORCH_STORAGE,
    TORCH_TENSOR,
} torch_kind;

/* Global names that a pickle may use. */
typedef enum torch_global {
    TORCH_ORDERED_DICT,
    TORCH_REBUILD_TENSOR,
    TORCH_REBUILD_PARAMETER,
    TORCH_SIZE,         /* torch.Size((2, 3)): its tuple */
    TORCH_SET,          /* set([...]): its list */
    TORCH_STORAGE_TYPE, /* + ps_safetensors_dtype */
} torch_global;

/* Its global name; false: none (a storage of a type without a class in PyTorch). */
bool torch_global_name(int global, const char **module, const char **name);

typedef struct torch_items {
    int32_t first, last; /* cells, -1: none; a dictionary has keys and values alternately */
    int32_t n;
} torch_items;

typedef struct torch_value {
    torch_kind kind;
    union {
        int64_t integer;
        int global;
        struct {
            const char *at; /* in the pickle */
            size_t n;
        } text;
        torch_items items; /* tuple, list, dictionary */
        struct {
            ps_safetensors_dtype dtype;
            int32_t key; /* value: text */
            int64_t n_elements;
        } storage;
        struct {
            int32_t storage, size, stride; /* values */
            int64_t offset;                /* elements */
        } tensor;
    };
} torch_value;

typedef struct torch_cell {
    int32_t value, next;
} torch_cell;

typedef struct torch_machine {
    const char *path;    /* for messages */
    const uint8_t *data; /* [n_data] must outlive the values */
    int64_t n_data, at;
    torch_value *values;
    torch_cell *cells;
    int32_t *stack; /* values, or STACK_MARK */
    int32_t *memo;  /* values */
    int64_t n_values, n_cells, n_stack, n_memo;
    int32_t result; /* after STOP; a dictionary */
} torch_machine;

/* Execute m->data up to STOP. Free the machine also after a failure. */
PS_NODISCARD ps_status torch_machine_run(torch_machine *m);
void torch_machine_free(torch_machine *m);

#endif
