#include "base/sized.h"

#include <string.h>

#include "base/base.h"
#include "patrickstar_client.h"
#include "patrickstar_comm.h"
#include "patrickstar_data.h"
#include "patrickstar_own.h"

#define END_OF(type, member) (offsetof(type, member) + sizeof(((type *)NULL)->member))

#define XX(type, first_last, last)                                                                                     \
    _Static_assert(offsetof(type, struct_size) == 0, "struct_size of " #type " comes first");                          \
    _Static_assert(END_OF(type, first_last) % _Alignof(type) == 0, #type " ended with padding");                       \
    _Static_assert(END_OF(type, last) == sizeof(type), #type " ends with padding, or with another member");
PS_SIZED_MAP(XX)
#undef XX

/* Far above any future size: a larger struct_size is uninitialised memory. */
#define ADDED_BYTES_MAX 4096

typedef struct sized_type {
    const char *name;
    size_t least_bytes, bytes;
} sized_type;

static const sized_type types[PS_SIZED_N] = {
#define XX(type, first_last, last) {#type, END_OF(type, first_last), sizeof(type)},
    PS_SIZED_MAP(XX)
#undef XX
};

static ps_status check_size(const sized_type *t, const void *caller, size_t *bytes)
{
    if (caller == NULL) return PS_FAIL(PS_EINVAL, "a %s is needed, not NULL", t->name);
    memcpy(bytes, caller, sizeof *bytes);
    if (*bytes < t->least_bytes || *bytes > t->bytes + ADDED_BYTES_MAX)
        return PS_FAIL(PS_EINVAL, "%s: struct_size is %zu, it has at least %zu bytes: set it to sizeof(%s)", t->name,
                       *bytes, t->least_bytes, t->name);
    return PS_OK;
}

ps_status ps_sized_take(ps_sized which, const void *caller, void *ours)
{
    const sized_type *t = &types[which];
    size_t bytes = 0;
    memset(ours, 0, t->bytes);
    PS_TRY(check_size(t, caller, &bytes));
    for (size_t i = t->bytes; i < bytes; i++)
        if (((const unsigned char *)caller)[i] != 0)
            return PS_FAIL(
                PS_EINVAL,
                "%s: byte %zu of its %zu is set, and PatrickStar %s knows the first %zu: leave newer members "
                "0, or install a newer library",
                t->name, i, bytes, ps_version(NULL, NULL, NULL), t->bytes);
    memcpy(ours, caller, bytes < t->bytes ? bytes : t->bytes);
    memcpy(ours, &t->bytes, sizeof t->bytes);
    return PS_OK;
}

ps_status ps_sized_give(ps_sized which, const void *ours, void *caller)
{
    const sized_type *t = &types[which];
    size_t bytes = 0;
    PS_TRY(check_size(t, caller, &bytes));
    const size_t both = bytes < t->bytes ? bytes : t->bytes;
    memcpy((char *)caller + sizeof bytes, (const char *)ours + sizeof bytes, both - sizeof bytes);
    memset((char *)caller + both, 0, bytes - both);
    return PS_OK;
}

ps_status ps_get_last_failure(ps_failure *out)
{
    const ps_failure last = *ps_fail_last(); /* a failure of this call must not overwrite it */
    return PS_SIZED_GIVE(ps_failure, &last, out);
}
