/* client.h - what the commands use that train, evaluate and generate: patrickstar.h and patrickstar_data.h, as any
 * program could, and small things of their own. */
#ifndef PSTAR_CLIENT_H
#define PSTAR_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "patrickstar.h"
#include "patrickstar_comm.h"
#include "patrickstar_data.h"

/* Forward any failure; nothing to release. */
#define TRY(expr)                                                                                                      \
    do {                                                                                                               \
        const ps_status st_ = (expr);                                                                                  \
        if (st_ != PS_OK) return st_;                                                                                  \
    } while (0)

/* Same, for functions that must release what they hold: status in `st`, label `out`. */
#define TRY_GOTO(expr)                                                                                                 \
    do {                                                                                                               \
        st = (expr);                                                                                                   \
        if (st != PS_OK) goto out;                                                                                     \
    } while (0)

static inline int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* A failure of this program: the text, made as printf makes it, is this thread's last error; gives st. */
ps_status client_fail(ps_status st, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* n elements of zeros; freed by free. PS_ENOMEM_HOST. */
PS_NODISCARD ps_status client_alloc(int64_t n, size_t bytes_each, void *out);
/* Room for n elements; what is there stays. *out is a pointer that client_alloc or this gave, or NULL. */
PS_NODISCARD ps_status client_reserve(void *out, int64_t n, size_t bytes_each);

enum { BYTES_TEXT_MAX = 32 };

/* "1.50 GB", in powers of 1000; returns text. */
const char *client_bytes(int64_t bytes, char text[BYTES_TEXT_MAX]);

/* Monotonic time. */
int64_t client_clock_ns(void);

/* Resident memory of this process, now and at most. PS_EIO where /proc does not say. */
PS_NODISCARD ps_status client_rss(int64_t *now_bytes, int64_t *peak_bytes);

enum { CLIENT_FOLDER_MAX = 4096 };

/* "runs/NAME" of the configuration .../NAME.json: where a run's results go if train.output_dir is not given. A longer
 * name is cut. Returns text. */
const char *client_usual_output_folder(const char *config_path, char text[CLIENT_FOLDER_MAX]);

/* A configuration with "key=value" overrides, which win over what the file says of these keys (ps_config_load_assigned);
 * where the model is to have as many tokens as its tokenizer, they are counted (ps_config_resize_vocabulary). A disk
 * tier that RAM does not suffice without lies in train.output_dir, which is client_usual_output_folder if it is not given. */
PS_NODISCARD ps_status client_load_config(const char *path, char *const *overrides, int n_overrides, ps_config **out);

/* Options that must be there: their keys are this program's own. */
int64_t client_int(const ps_config *config, const char *key);
const char *client_string(const ps_config *config, const char *key);

#endif
