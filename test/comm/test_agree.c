/* All ranks go on, or none: whoever fails is named to all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>

#include "comm/agree.h"

enum { RANKS = 4 };

typedef struct member {
    ps_comm *comm;
    ps_status own, agreed;
    char message[1024];
    pthread_t thread;
} member;

static void *member_main(void *arg)
{
    member *m = arg;
    if (m->own != PS_OK) (void)PS_FAIL(m->own, "disk of %d is full", ps_comm_rank(m->comm));
    m->agreed = ps_comm_agree(m->comm, m->own);
    snprintf(m->message, sizeof m->message, "%s", m->agreed != PS_OK ? ps_last_error() : "");
    ps_comm_close(m->comm);
    return NULL;
}

static void agree(member *members, const ps_status *own)
{
    const ps_comm_options o = {.timeout_s = 20, .staging_bytes = 1 << 16};
    ps_comm *comms[RANKS];
    assert_int_equal(ps_comm_open_threads(&o, RANKS, comms), PS_OK);
    for (int r = 0; r < RANKS; r++) {
        members[r] = (member){.comm = comms[r], .own = own[r]};
        assert_int_equal(pthread_create(&members[r].thread, NULL, member_main, &members[r]), 0);
    }
    for (int r = 0; r < RANKS; r++) pthread_join(members[r].thread, NULL);
}

static void test_all_well(void **state)
{
    (void)state;
    member members[RANKS];
    agree(members, (const ps_status[RANKS]){PS_OK, PS_OK, PS_OK, PS_OK});
    for (int r = 0; r < RANKS; r++) assert_int_equal(members[r].agreed, PS_OK);
}

static void test_first_failure_counts(void **state)
{
    (void)state;
    member members[RANKS];
    agree(members, (const ps_status[RANKS]){PS_OK, PS_OK, PS_EIO, PS_EINVAL});
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(members[r].agreed, PS_EIO);
        assert_ptr_equal(strstr(members[r].message, "rank 2 ("), members[r].message);
        assert_non_null(strstr(members[r].message, "): disk of 2 is full"));
    }
}

static void test_alone(void **state)
{
    (void)state;
    assert_int_equal(ps_comm_agree(NULL, PS_OK), PS_OK);
    assert_int_equal(ps_comm_agree(NULL, PS_FAIL(PS_EIO, "mine")), PS_EIO);
    assert_int_equal(strncmp(ps_last_error(), "mine", 4), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_well),
        cmocka_unit_test(test_first_failure_counts),
        cmocka_unit_test(test_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
