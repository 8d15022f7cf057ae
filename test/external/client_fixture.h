/* client_fixture.h - clients for tests, on what engine/backends.h has them compute on. A program whose device is not the
 * processor gets at places by the queue that computes there; on the processor it is one of patrickstar_client.h alone. */
#ifndef CLIENT_FIXTURE_H
#define CLIENT_FIXTURE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/external/client_calls.h"
#include "assert_status.h"
#include "base/base.h"
#include "base/dtype.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/backends.h"
#include "patrickstar_client.h"
#include "patrickstar_own.h"
#include "temp_folder.h"

#define OPTIONS                                                                                                        \
    "{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 0.01}}, \"default_chunk_size\": 4096,"                  \
    " \"train\": {\"threads\": 1}}"

static temp_folder folder;

/* changes: "key=value" with spaces between them */
static inline ps_config *config_of(const char *changes)
{
    ps_config *config = NULL;
    char key[128], value[128];
    assert_ok(ps_config_parse(OPTIONS, "options", &config));
    assert_ok(ps_config_set(config, "memory.disk_path", folder.path));
    for (const char *at = changes + strspn(changes, " "); *at != '\0'; at += strspn(at, " ")) {
        const size_t length = strcspn(at, " "), n_key = strcspn(at, "=");
        snprintf(key, sizeof key, "%.*s", (int)n_key, at);
        snprintf(value, sizeof value, "%.*s", (int)(length - n_key - 1), at + n_key + 1);
        assert_ok(ps_config_set(config, key, value));
        at += length;
    }
    over_backend(config);
    return config;
}

/* comm NULL: alone */
static inline ps_client *client_of_rank(const char *changes, ps_comm *comm)
{
    ps_client *client = NULL;
    ps_config *config = config_of(changes);
    assert_ok(ps_client_create(config, comm, &client));
    ps_config_destroy(config);
    return client;
}

static inline ps_client *client_of(const char *changes)
{
    return client_of_rank(changes, NULL);
}

/* A value in [-1, 1). */
static inline float drawn(uint64_t stream, int64_t i)
{
    return 2 * ps_rng_unit(ps_rng_u32((ps_rng_key){.seed = 17, .stream = stream}, (uint64_t)i)) - 1;
}

/* A matrix of so many rows; 0: one dimension. */
static inline ps_status add_matrix(ps_client *client, const char *name, int64_t rows, int64_t elements, ps_dtype dtype,
                                   int frozen, int unmanaged, int32_t *number)
{
    const int64_t shape[2] = {rows > 0 ? rows : elements, rows > 0 ? elements / rows : 0};
    const ps_client_tensor tensor = {.struct_size = sizeof tensor,
                                     .name = name,
                                     .shape = shape,
                                     .n_dims = rows > 0 ? 2 : 1,
                                     .dtype = dtype,
                                     .is_frozen = frozen,
                                     .is_unmanaged = unmanaged};
    void *values;
    PS_TRY(ps_client_add(client, &tensor, number, &values));
    for (int64_t i = 0; i < elements; i++) {
        const float value = drawn((uint64_t)*number, i);
        ps_from_floats(dtype, values, i, 1, &value);
    }
    ps_client_release(client, *number);
    return PS_OK;
}

/* n bytes of a place, from `at` on; and to there. */
static inline void get_bytes(ps_client *client, const ps_client_place *p, int64_t at, void *out, int64_t n)
{
    const char *from = (const char *)p->address + at;
    if (OVER_DISCRETE)
        assert_ok(ps_queue_get(client->tiers.compute[PS_TIER_DEVICE], out, from, n));
    else
        memcpy(out, from, (size_t)n);
}

static inline void put_bytes(ps_client *client, const ps_client_place *p, int64_t at, const void *in, int64_t n)
{
    char *to = (char *)p->address + at;
    if (OVER_DISCRETE)
        assert_ok(ps_queue_put(client->tiers.compute[PS_TIER_DEVICE], to, in, n));
    else
        memcpy(to, in, (size_t)n);
}

static inline void put_value(ps_client *client, const ps_client_place *p, int64_t i, float value)
{
    const int64_t item = (int64_t)ps_dtype_bytes(p->dtype);
    char rounded[4];
    ps_from_floats(p->dtype, rounded, 0, 1, &value);
    put_bytes(client, p, i * item, rounded, item);
}

static inline ps_status add_tensor(ps_client *client, const char *name, int64_t elements, ps_dtype dtype, int frozen,
                                   int unmanaged, int32_t *number)
{
    return add_matrix(client, name, 0, elements, dtype, frozen, unmanaged, number);
}

static inline ps_client_place pinned(ps_client *client, int32_t tensor, ps_client_what what, ps_client_mode mode)
{
    ps_client_place place = {.struct_size = sizeof place};
    assert_ok(ps_client_pin(client, tensor, what, mode, &place));
    assert_non_null(place.address);
    assert_int_equal(place.gpu, client->settings.backend_kind == PS_BACKEND_CUDA ? 0 : -1);
    return place;
}

/* A tensor to be kept apart, of so many elements at least, in which gradients are put where their device is another one. */
static int32_t gradients_at = -1;

static inline void give_gradient(ps_client *client, int32_t tensor, const float *gradient, int64_t n, int is_read_again)
{
    if (!OVER_DISCRETE) {
        assert_ok(ps_client_give_gradient(client, tensor, gradient, PS_DTYPE_F32, is_read_again));
        return;
    }
    const ps_client_place p = pinned(client, gradients_at, PS_CLIENT_PARAM, PS_CLIENT_WRITE);
    put_bytes(client, &p, 0, gradient, n * (int64_t)sizeof *gradient);
    assert_ok(ps_client_give_gradient(client, tensor, p.address, PS_DTYPE_F32, is_read_again));
    ps_client_unpin(client, gradients_at, PS_CLIENT_PARAM);
}

static inline ps_client_info info_of(const ps_client *client)
{
    ps_client_info info = {.struct_size = sizeof info};
    assert_ok(ps_client_get_info(client, &info));
    return info;
}

static inline ps_client_step_info stepped(ps_client *client)
{
    ps_client_step_info info = {.struct_size = sizeof info};
    assert_ok(ps_client_step(client, &info));
    return info;
}

/* Before each test, so that one that failed does not fail those after it. */
static int64_t live_before;

static inline int note_live(void **state)
{
    (void)state;
    live_before = ps_mem_live_bytes();
    return 0;
}

static inline void expect_nothing_left(void)
{
    assert_int_equal(ps_mem_live_bytes(), live_before);
}

static inline int make_folder(void **state)
{
    (void)state;
    folder = temp_folder_make();
    return 0;
}

static inline int remove_folder(void **state)
{
    (void)state;
    const int n_left = temp_folder_entries(&folder, 0);
    temp_folder_remove(&folder);
    if (n_left > 0) fprintf(stderr, "%d files are left\n", n_left);
    return n_left > 0;
}

#endif
