/* code_impl.h - how a program becomes code (code.h), step by step; for the files of code only.
 *
 *     code_create.c     calls the others, in this order
 *     code_trained.c    what goes backward, by what is trained
 *     cache.c           where keys and values lie, for a text that grows
 *     code_write.c      instructions and the buffers between them
 *     code_aside.c      which values are put aside between forward and backward
 *     code_gradients.c  which gradient is complete when, and which may overwrite its parameter
 *     code_measure.c    scratch and cost
 *     code_on_host.c    what the host computes, and in which memory
 *     memory.c          where buffers lie */
#ifndef PS_GRAPH_CODE_IMPL_H
#define PS_GRAPH_CODE_IMPL_H

#include "graph/code.h"

/* State while the instructions are written. */
typedef struct ps_code_writer {
    ps_code *code;
    const ps_program *program;
    ps_code_options o;
    int32_t *value_buffer; /* [n_values] where the value lies now (recomputation moves it) */
    int32_t *grad_buffer;  /* [n_values] -1: no gradient yet. Several values may share one buffer */
    bool *grad_consumed;   /* [n_values] the maker's backward has been written */
    int32_t *n_waiting;    /* [n_buffers] values whose gradient the buffer is, and of which that is still to come */
    int32_t *saved;        /* [n_nodes][PS_NODE_SAVED] */
    int32_t logits;        /* of the loss, where they are kept; -1 */
    bool *wants_grad;      /* [n_values] backward needs its gradient: something below it is trained */
    bool *goes_back;       /* [n_nodes] there is something to do backward */
    bool *is_read_back;    /* [n_values] backward of a node that takes it reads it */
    int32_t *last_reader;  /* [n_values] the last node that takes it; -1: none does */
    int32_t *segment;      /* [n_nodes] after merging; -1: none */
    bool *again;           /* [n_nodes] runs again in the recomputation under way */
    int32_t *aside;        /* [n_values] its number among the values put aside; -1: it is not */
    bool *is_away;         /* [n_values] it has been, and not been fetched yet */
    bool is_apart;         /* the host cannot touch what the backend computes in */
} ps_code_writer;

/* Choose where keys and values of so many tokens lie. PS_EINVAL when a text cannot grow through the program token by
 * token, or not so far. */
PS_NODISCARD ps_status ps_code_place_cache(ps_code *p, int64_t positions, ps_dtype dtype);

/* A buffer of so many bytes, without an offset yet. */
PS_NODISCARD ps_status ps_code_new_buffer(ps_code_writer *g, int64_t bytes, int32_t *out);
PS_NODISCARD ps_status ps_code_write_forward(ps_code_writer *g);
PS_NODISCARD ps_status ps_code_write_backward(ps_code_writer *g);

/* Fill in wants_grad and goes_back: what lies between trained parameters and the loss. Without a backward pass there is
 * none. */
void ps_code_find_trained(ps_code_writer *g);
/* After that: is_read_back and last_reader. */
void ps_code_find_readers(ps_code_writer *g);
/* Does the node's backward read its inputs? Those of a product are for the gradient of its weight alone. */
bool ps_code_backward_reads_x(const ps_code_writer *g, int32_t node);

/* Append to the instructions. */
PS_NODISCARD ps_status ps_code_append(ps_code_writer *g, ps_instr instr);
int64_t ps_code_value_bytes(const ps_code_writer *g, int32_t value);
extern const ps_instr ps_instr_no_buffers;

/* Mark which nodes of the segment [begin, end) must run again so that the backward of all its nodes finds what it
 * reads. */
void ps_code_mark_again(ps_code_writer *g, int32_t begin, int32_t end);
/* So marked: does the node of the segment that begins there read the value once more, and does it come from before? */
bool ps_code_reads_again(const ps_code_writer *g, int32_t begin, int32_t node, int32_t value);
/* Number the values that are put aside; segments have been chosen. */
void ps_code_choose_aside(ps_code_writer *g);
/* The forward pass has come to the end of this node: values that it was the last to read are put aside. */
PS_NODISCARD ps_status ps_code_offload_after(ps_code_writer *g, int32_t node);
/* The value is in value_buffer afterwards, wherever it was. */
PS_NODISCARD ps_status ps_code_fetch(ps_code_writer *g, int32_t value);

/* First and last contribution to each gradient, and whether it may overwrite its parameter. */
PS_NODISCARD ps_status ps_code_place_gradients(ps_code_writer *g);

/* A buffer for the scratch of each instruction that wants some; its cost. */
PS_NODISCARD ps_status ps_code_measure(ps_code_writer *g);

/* Bytes of the block that an instruction on the host needs; dtype: of values. */
int64_t ps_code_host_bytes(const ps_code *p, const ps_instr *instr, ps_dtype dtype);

/* Give every buffer an offset, every instruction its non_model_bytes. */
PS_NODISCARD ps_status ps_code_place_buffers(ps_code *p);

#endif
