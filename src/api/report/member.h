/* member.h - members of a profile's JSON objects, or an error that names file, place, key, what was expected and what was
 * found. */
#ifndef PS_REPORT_MEMBER_H
#define PS_REPORT_MEMBER_H

#include <jansson.h>

#include "base/base.h"
#include "base/status.h"

typedef struct ps_member_place {
    const char *path;
    char where[64]; /* "traceEvents[12]" */
} ps_member_place;

/* Always PS_EFORMAT; found NULL: nothing. */
ps_status ps_member_unexpected(const ps_member_place *at, const char *key, const char *expected, const json_t *found);

/* The parent's member of that key; strings stay the parent's. PS_EFORMAT: it is missing, or another thing. */
PS_NODISCARD ps_status ps_member_object(const ps_member_place *at, const json_t *parent, const char *key,
                                        const json_t **out);
PS_NODISCARD ps_status ps_member_array(const ps_member_place *at, const json_t *parent, const char *key,
                                       const json_t **out);
PS_NODISCARD ps_status ps_member_string(const ps_member_place *at, const json_t *parent, const char *key,
                                        const char **out);
/* min to max */
PS_NODISCARD ps_status ps_member_integer(const ps_member_place *at, const json_t *parent, const char *key, int64_t min,
                                         int64_t max, int64_t *out);
PS_NODISCARD ps_status ps_member_int(const ps_member_place *at, const json_t *parent, const char *key, int min, int max,
                                     int *out);
/* 0 to max */
PS_NODISCARD ps_status ps_member_number(const ps_member_place *at, const json_t *parent, const char *key, double max,
                                        double *out);
/* *out: the index of the string among n names */
PS_NODISCARD ps_status ps_member_name(const ps_member_place *at, const json_t *parent, const char *key,
                                      const char *const *names, int n, int *out);
/* A string of 1 to bytes - 1, copied. */
PS_NODISCARD ps_status ps_member_short(const ps_member_place *at, const json_t *parent, const char *key, char *out,
                                       size_t bytes);

/* An integer by itself, which the key is named for. */
PS_NODISCARD ps_status ps_member_check_integer(const ps_member_place *at, const json_t *json, const char *key,
                                               int64_t min, int64_t max, int64_t *out);

/* Neither missing nor null. */
bool ps_member_is_given(const json_t *json);

#endif
