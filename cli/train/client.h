/* client.h - for the commands that train, evaluate and generate: patrickstar.h and patrickstar_data.h, as for any
 * program, and small helpers. */
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

/* A failure of this program: set this thread's last error to the printf-formatted text, and return st. */
ps_status client_fail(ps_status st, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* n zeroed elements; freed by free. PS_ENOMEM_HOST. */
PS_NODISCARD ps_status client_alloc(int64_t n, size_t bytes_each, void *out);
/* Grow to n elements; present elements are kept. *out is a pointer of client_alloc or of this function, or NULL. */
PS_NODISCARD ps_status client_reserve(void *out, int64_t n, size_t bytes_each);

/* Monotonic time. */
int64_t client_clock_ns(void);

/* Peak resident memory of this process. PS_EIO where /proc lacks it. */
PS_NODISCARD ps_status client_peak_rss(int64_t *bytes);

enum { CLIENT_FOLDER_MAX = 4096 };

/* "runs/NAME" of the configuration .../NAME.json, the default of train.output_dir. A long name is cut. Returns text. */
const char *client_usual_output_folder(const char *config_path, char text[CLIENT_FOLDER_MAX]);

/* Load a configuration with "key=value" overrides (ps_config_load_assigned), and apply model.resize_token_embeddings
 * (ps_config_resize_vocabulary). An automatic disk tier is in train.output_dir, whose default is
 * client_usual_output_folder. */
PS_NODISCARD ps_status client_load_config(const char *path, char *const *overrides, int n_overrides, ps_config **out);

/* Options that must exist, as this program fixes their keys. */
int64_t client_int(const ps_config *config, const char *key);
const char *client_string(const ps_config *config, const char *key);

#endif
