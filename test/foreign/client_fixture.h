/* client_fixture.h - clients for tests: with a few tensors of odd sizes, beside plain arrays that say what these should
 * hold. */
#ifndef CLIENT_FIXTURE_H
#define CLIENT_FIXTURE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assert_status.h"
#include "base/base.h"
#include "base/mem.h"
#include "base/rng.h"
#include "patrickstar_client.h"
#include "patrickstar_own.h"
#include "tensor/dtype.h"
#include "temp_folder.h"

#define OPTIONS                                                                                                        \
    "{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 0.01}}, \"default_chunk_size\": 4096,"                  \
    " \"train\": {\"backend\": \"cpu\", \"threads\": 1}}"

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
    return config;
}

static inline ps_client *client_of(const char *changes)
{
    ps_client *client = NULL;
    ps_config *config = config_of(changes);
    assert_ok(ps_client_create(config, NULL, &client));
    ps_config_destroy(config);
    return client;
}

/* A value in [-1, 1). */
static inline float drawn(uint64_t stream, int64_t i)
{
    return 2 * ps_rng_unit(ps_rng_u32((ps_rng_key){.seed = 17, .stream = stream}, (uint64_t)i)) - 1;
}

static inline ps_status add_tensor(ps_client *client, const char *name, int64_t elements, ps_dtype dtype, int frozen,
                                   int apart, int32_t *number)
{
    const ps_client_tensor tensor = {.struct_size = sizeof tensor,
                                     .name = name,
                                     .shape = &elements,
                                     .n_dims = 1,
                                     .dtype = dtype,
                                     .is_frozen = frozen,
                                     .is_apart = apart};
    void *values;
    PS_TRY(ps_client_add(client, &tensor, number, &values));
    for (int64_t i = 0; i < elements; i++) {
        const float value = drawn((uint64_t)*number, i);
        ps_from_floats(dtype, values, i, 1, &value);
    }
    ps_client_rest(client, *number);
    return PS_OK;
}

static inline ps_client_place pinned(ps_client *client, int32_t tensor, ps_client_what what, ps_client_mode mode)
{
    ps_client_place place = {.struct_size = sizeof place};
    assert_ok(ps_client_pin(client, tensor, what, mode, &place));
    assert_non_null(place.address);
    assert_int_equal(place.gpu, -1);
    return place;
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
