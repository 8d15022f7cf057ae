/* All ranks continue, or none: errors name the rank that fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>

#include "chunk/comm/agree.h"

enum { RANKS = 4 };

typedef struct member {
    ps_comm *comm;
    ps_status own, agreed, again;
    int is_same;
    char message[1024];
    ps_failure failure;
    pthread_t thread;
} member;

static void *member_main(void *arg)
{
    member *m = arg;
    if (m->own != PS_OK) (void)PS_FAIL(m->own, "disk of %d is full", ps_comm_rank(m->comm));
    m->agreed = ps_comm_agree(m->comm, m->own);
    snprintf(m->message, sizeof m->message, "%s", m->agreed != PS_OK ? ps_last_error() : "");
    m->failure.struct_size = sizeof m->failure;
    ps_get_last_failure(&m->failure);
    /* agreed on once more, it is the same */
    char first[sizeof m->message];
    snprintf(first, sizeof first, "%s", m->message);
    if (m->agreed != PS_OK) m->again = ps_comm_agree(m->comm, m->agreed);
    m->is_same = m->again == m->agreed && (m->agreed == PS_OK || strncmp(first, ps_last_error(), strlen(first)) == 0);
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
        const ps_failure *f = &members[r].failure;
        assert_int_equal(f->status, PS_EIO);
        assert_int_equal(f->rank, 2);
        assert_int_equal(f->is_shared, 1);
        assert_int_equal(f->is_remote, r != 2);
        assert_true(f->host[0] != '\0' && strstr(members[r].message, f->host) != NULL);
        assert_true(members[r].is_same);
    }
}

static void test_single_rank(void **state)
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
        cmocka_unit_test(test_single_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
