/* patrickstar.h - the public interface of libpatrickstar.
 *
 * Train transformers whose model data does not fit in the memory of the device that computes.
 * C99 and C++ clean; opaque handles; no structure is passed by value; no CUDA or MPI types.
 *
 *     ps_config *config = NULL;
 *     ps_engine *engine = NULL;
 *     if (ps_config_load("config.json", &config) != PS_OK ||
 *         ps_initialize_engine(ps_model_from_config, config, 0, config, &engine) != PS_OK) {
 *         fprintf(stderr, "%s\n", ps_last_error());
 *         ...
 *     }
 *     for (int step = 0; step < 100; step++) {
 *         float loss;
 *         ps_forward(engine, &batch, &loss);
 *         ps_backward(engine);
 *         ps_step(engine);
 *     }
 *     ps_engine_destroy(engine);
 *     ps_config_destroy(config);
 *
 * Threads: one thread at a time may use an engine; different engines may be used from different threads.
 * Errors: everything that can fail returns a ps_status; ps_last_error() has the detail. The library never
 * exits, aborts or prints. */
#ifndef PATRICKSTAR_H
#define PATRICKSTAR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define PS_API __attribute__((visibility("default")))
#define PS_NODISCARD __attribute__((warn_unused_result))
#else
#define PS_API
#define PS_NODISCARD
#endif

#define PS_VERSION_MAJOR 0
#define PS_VERSION_MINOR 1
#define PS_VERSION_PATCH 0

/* ---- status -------------------------------------------------------------------------------------- */

/* name, value, text. Values are part of the ABI: append only, never renumber. Sorted by who must act. */
#define PS_STATUS_MAP(XX)                                                                                              \
    XX(OK, 0, "success")                                                                                               \
    XX(EINVAL, -1, "invalid argument or configuration")                                                                \
    XX(EFORMAT, -2, "file content is malformed")                                                                       \
    XX(EBUDGET, -3, "the memory budget cannot hold the model")                                                         \
    XX(EIO, -4, "file could not be read or written")                                                                   \
    XX(ENOMEM_HOST, -5, "host memory exhausted")                                                                       \
    XX(ENOMEM_DEV, -6, "device memory exhausted")                                                                      \
    XX(EDEVICE, -7, "device runtime failed")                                                                           \
    XX(ENUMERIC, -8, "loss or gradient is not finite")                                                                 \
    XX(ENOSYS, -9, "not supported by this build or device")                                                            \
    XX(ESTATE, -10, "call not allowed in this state")

typedef enum ps_status {
#define XX(name, value, text) PS_##name = (value),
    PS_STATUS_MAP(XX)
#undef XX
} ps_status;

/* "EINVAL" and "invalid argument or configuration"; for unknown values "UNKNOWN" and "unknown status". Static. */
PS_API const char *ps_status_name(ps_status st);
PS_API const char *ps_status_text(ps_status st);

/* Detail of the last failure on this thread ("chunk 12: need 64 MiB, 3 MiB free").
 * Valid until the next failing call on this thread; never NULL. */
PS_API const char *ps_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
