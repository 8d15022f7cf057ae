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

/* Release text that the library handed out for the caller to free. NULL is accepted. */
PS_API void ps_free(void *memory);

/* ---- configuration ------------------------------------------------------------------------------- */

/* JSON in the format of DeepSpeed and PatrickStar. doc/config.md lists every key with its meaning, unit, range and
 * default. What is not given has its default; an unknown key, a wrong type or a value out of range is an error whose
 * message names the key and, in a file, line and column. One thread at a time may change a configuration. */
typedef struct ps_config ps_config;

/* All options at their defaults. PS_ENOMEM_HOST. */
PS_API PS_NODISCARD ps_status ps_config_create(ps_config **out);

/* Read a JSON file, at most 16 MiB, and validate it; *out = NULL on failure.
 * PS_EIO when it cannot be read, PS_EFORMAT when it is no JSON, PS_EINVAL when keys or values are wrong. */
PS_API PS_NODISCARD ps_status ps_config_load(const char *path, ps_config **out);

/* The same for JSON text in memory; messages call it `name`. */
PS_API PS_NODISCARD ps_status ps_config_parse(const char *text, const char *name, ps_config **out);

/* Set one option: ps_config_set(config, "memory.device", "1.5GiB"). value is JSON (null is the default) or, for names,
 * strings and sizes, the bare word. Checks the value alone: call ps_config_validate after the last one.
 * On failure the configuration is as before. PS_EINVAL, PS_ENOMEM_HOST. */
PS_API PS_NODISCARD ps_status ps_config_set(ps_config *config, const char *key, const char *value);

/* Check what no option can check alone: fp16 against bf16, batch sizes, heads against width, schedule. PS_EINVAL. */
PS_API PS_NODISCARD ps_status ps_config_validate(const ps_config *config);

/* All options with the values in force, as a JSON text that ps_config_parse accepts; the caller frees it with ps_free.
 * *out = NULL and PS_ENOMEM_HOST on failure. */
PS_API PS_NODISCARD ps_status ps_config_dump_json(const ps_config *config, char **out);

PS_API void ps_config_destroy(ps_config *config); /* NULL is accepted */

#ifdef __cplusplus
}
#endif
#endif
