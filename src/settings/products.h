/* products.h - by which of the library's algorithms a GPU multiplies the matrices of a step: measured before the first
 * one, kept in a file of the cache folder, the same on all ranks, stored in checkpoints.
 *
 *     start     rank 0: the file, and what it has not is measured and added   --table-->  all ranks
 *     resume    the checkpoint's table, whatever was found at the start
 *
 * The file's name says where it holds: GPU, driver, version of the library, workspace. It is written under a lock; what
 * could not be read is not written. Where nothing can be kept, `auto` measures nothing, since each start would have bits
 * of its own, and `measured` measures for this run only.
 * Shapes that no table has, such as those of generation or of another sequence length, are computed as the library's
 * heuristics rank first. So the bits of a step depend on the table in use and on nothing else of this. */
#ifndef PS_SETTINGS_PRODUCTS_H
#define PS_SETTINGS_PRODUCTS_H

#include "cuda/product_list.h"
#include "settings/settings.h"

typedef struct ps_products {
    bool has_choice;             /* it is a GPU with such a library that computes; else nothing of this is used */
    bool is_given;               /* the table came from a checkpoint */
    ps_cuda_product_table table; /* in use; without entries: heuristics rule */
    int n_measured;              /* at the start, on rank 0 */
    double seconds;              /* that took */
    char trouble[1024];          /* in one line what the user should know; "": nothing */
} ps_products;

/* Before the tiers take memory; the backend is open. All ranks call. Of training the products of all passes of `code`
 * are measured where they are not known; else none. */
PS_NODISCARD ps_status ps_products_open(ps_products *p, const ps_settings *s, const ps_code *code);
void ps_products_close(ps_products *p); /* zeros are accepted */

/* For state.json, freed by ps_mem_free; NULL where there is no choice. */
PS_NODISCARD ps_status ps_products_render(const ps_products *p, char **out);
/* Go on with the table that a checkpoint has, which messages call `name`; between steps, called by all ranks. Where GPU,
 * driver or library are others than the checkpoint's, or the configuration asks for heuristics, what was chosen at the
 * start stays, and `trouble` says so. text NULL: there was none, all stays. PS_EFORMAT for what is no table. */
PS_NODISCARD ps_status ps_products_resume(ps_products *p, const ps_settings *s, const char *text, const char *name);

/* Is a file of the cache folder that is named so the table of such a GPU, of whatever driver and library? */
bool ps_products_is_file_of(const char *name, const char *gpu);

/* The products of a step, of training and of evaluation. */
PS_NODISCARD ps_status ps_products_list(const ps_settings *s, const ps_code *code, ps_cuda_product_list *out);

#endif
