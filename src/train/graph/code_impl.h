/* code_impl.h - the steps from a program to its code (code.h); for the files of code only.
 *
 *     code_create.c     calls the others, in this order
 *     code_trained.c    the part of the program with a backward pass
 *     cache.c           places of keys and values of the KV cache
 *     code_write.c      instructions and the buffers between them
 *     code_offload.c      which values are offloaded between forward and backward
 *     code_gradients.c  when each gradient is complete, and whether it may overwrite its parameter
 *     code_measure.c    scratch and cost
 *     code_on_host.c    instructions on the host, and their memory
 *     memory.c          offsets of buffers */
#ifndef PS_GRAPH_CODE_IMPL_H
#define PS_GRAPH_CODE_IMPL_H

#include "train/graph/code.h"

/* State while the instructions are written. */
typedef struct ps_code_writer {
    ps_code *code;
    const ps_program *program;
    ps_code_options o;
    int32_t *value_buffer;  /* [n_values] the value's current buffer (recomputation changes it) */
    int32_t *grad_buffer;   /* [n_values] -1: no gradient yet. Several values may share one buffer */
    bool *grad_consumed;    /* [n_values] backward of the node that computes it has been written */
    int32_t *n_waiting;     /* [n_buffers] values whose gradient is in the buffer and not written yet */
    int32_t *saved;         /* [n_nodes][PS_NODE_SAVED] */
    int32_t logits;         /* of the loss, where they are kept; -1 */
    bool *wants_grad;       /* [n_values] backward needs its gradient: a parameter before it is trained */
    bool *goes_back;        /* [n_nodes] the node has a backward */
    bool *is_read_back;     /* [n_values] backward of a node that uses it reads it */
    int32_t *last_reader;   /* [n_values] the last node that uses it; -1: none */
    int32_t *segment;       /* [n_nodes] after merging; -1: none */
    bool *again;            /* [n_nodes] part of the current recomputation */
    int32_t *offload_index; /* [n_values] its number among the offloaded values; -1: not offloaded */
    bool *is_away;          /* [n_values] offloaded, and not fetched yet */
    bool is_discrete;       /* the host cannot access the backend's memory */
} ps_code_writer;

/* Place the keys and values of so many tokens. PS_EINVAL when the program does not support incremental decoding, or not
 * of so many tokens. */
PS_NODISCARD ps_status ps_code_place_cache(ps_code *p, int64_t positions, ps_dtype dtype);

/* A buffer of so many bytes, without an offset yet. */
PS_NODISCARD ps_status ps_code_new_buffer(ps_code_writer *g, int64_t bytes, int32_t *out);
PS_NODISCARD ps_status ps_code_write_forward(ps_code_writer *g);
PS_NODISCARD ps_status ps_code_write_backward(ps_code_writer *g);

/* Set wants_grad and goes_back: the part between trained parameters and the loss. Without a backward pass it is
 * empty. */
void ps_code_find_trained(ps_code_writer *g);
/* After that: is_read_back and last_reader. */
void ps_code_find_readers(ps_code_writer *g);
/* Does the node's backward read its inputs? A linear layer reads them only for the gradient of its weight. */
bool ps_code_backward_reads_x(const ps_code_writer *g, int32_t node);

/* Append to the instructions. */
PS_NODISCARD ps_status ps_code_append(ps_code_writer *g, ps_instr instr);
int64_t ps_code_value_bytes(const ps_code_writer *g, int32_t value);
extern const ps_instr ps_instr_no_buffers;

/* Mark the nodes of the segment [begin, end) that must run again so that the backward of all its nodes has its
 * inputs. */
void ps_code_mark_again(ps_code_writer *g, int32_t begin, int32_t end);
/* After the marking: does the segment that begins there read the value again, from outside of the segment? */
bool ps_code_reads_again(const ps_code_writer *g, int32_t begin, int32_t node, int32_t value);
/* Number the offloaded values; segments have been chosen. */
void ps_code_choose_offloads(ps_code_writer *g);
/* The forward pass is past this node: offload the values that it was the last to read. */
PS_NODISCARD ps_status ps_code_offload_after(ps_code_writer *g, int32_t node);
/* Fetch or recompute the value, which is in value_buffer afterwards. */
PS_NODISCARD ps_status ps_code_fetch(ps_code_writer *g, int32_t value);

/* First and last contribution to each gradient, and whether it may overwrite its parameter. */
PS_NODISCARD ps_status ps_code_place_gradients(ps_code_writer *g);

/* Add a buffer for the scratch of each instruction that needs it; set its cost. */
PS_NODISCARD ps_status ps_code_measure(ps_code_writer *g);

/* Bytes of the block for an instruction on the host; dtype: of values. */
int64_t ps_code_host_bytes(const ps_code *p, const ps_instr *instr, ps_dtype dtype);

/* Give every buffer an offset, every instruction its non_model_bytes. */
PS_NODISCARD ps_status ps_code_place_buffers(ps_code *p);

#endif
