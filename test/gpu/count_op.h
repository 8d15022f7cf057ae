/* count_op.h - what bench_op prints in place of times when it is linked to kernels that are counted (count_op.c). */
#ifndef TEST_GPU_COUNT_OP_H
#define TEST_GPU_COUNT_OP_H

#include "kernel/backend.h"

void count_op_print_head(void);
/* What follows is of the next operator. */
void count_op_begin(void);
/* Rows of the table: each kernel that has run since count_op_begin, and their sum if there are several. cost: of the
 * operator. */
void count_op_print(const char *name, const char *shape, const ps_cost *cost);
/* A list of the instructions that move more than they were asked for, of all operators. */
void count_op_print_sites(void);

#endif
