/* An optimizer's state_dict in a pickle: what is taken from it, and pickles by hand that are refused. Whole files are in
 * test/checkpoint/test_optimizer_import.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/mem.h"
#include "weights/torch_optimizer.h"

#define P "\x80\x02"
#define TENSOR                                                                                                         \
    "ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"                             \
    "0X\3\0\0\0cpuK\6tQK\0K\2K\3\x86K\3K\1\x86\x89"                                                                    \
    "ccollections\nOrderedDict\n)RtR"
#define TEXT1(t) "X\1\0\0\0" t
#define STATE "X\5\0\0\0state"
#define GROUPS "X\x0c\0\0\0param_groups"
#define PARAMS "X\6\0\0\0params"
#define NAMES "X\x0b\0\0\0param_names"
#define STEP "X\4\0\0\0step"
#define DICT(state, groups) P "}" STATE state "s" GROUPS "]" groups "s."
#define GROUP(numbers) "}" PARAMS "](" numbers "esa"
#define TWO "}K\0}" STEP "K\5s" TEXT1("m") TENSOR "ssK\1}" STEP "K\6s" TEXT1("m") TENSOR "ss"

typedef struct pickle_case {
    const char *bytes;
    size_t n;
    const char *message; /* NULL: it is good */
} pickle_case;

#define CASE(text, message)                                                                                            \
    {                                                                                                                  \
        text, sizeof(text) - 1, message                                                                                \
    }

static const pickle_case cases[] = {
    CASE(DICT(TWO, GROUP("K\1K\0")), NULL),
    CASE(DICT("}", GROUP("K\1K\0")), NULL),
    CASE(DICT("}", ""), NULL),
    CASE(P "}X\x09\0\0\0optimizer}" STATE TWO "s" GROUPS "]" GROUP("K\0K\1") "ss.", NULL),
    CASE(P "}.", "no \"state\" in it"),
    CASE(P "}" STATE "}s.", "no \"param_groups\" in it"),
    CASE(P "}" STATE "]s.", "no \"state\" in it"),
    CASE(DICT(TWO, GROUP("K\0")), "2 parameters have states, but only 1 of them"),
    CASE(DICT(TWO, GROUP("K\0K\0")), "parameter 0 is in two groups"),
    CASE(DICT(TWO, GROUP("K\0K\1") GROUP("K\1")), "parameter 1 is in two groups"),
    CASE(DICT(TWO, GROUP("K\0N")), "\"params\" of a group has something that is no number"),
    CASE(DICT(TWO, "}a"), "a group without its list of \"params\""),
    CASE(DICT(TWO, "K\1a"), "a group that is no dictionary"),
    CASE(DICT(TWO, "}" PARAMS "](K\0K\1es" NAMES "](" TEXT1("a") "esa"), "2 parameters has 1 \"param_names\""),
    CASE(DICT(TWO, "}" PARAMS "](K\0K\1es" NAMES "](" TEXT1("a") "K\1esa"), "something that is no name"),
    CASE(DICT(TWO, "}" PARAMS "](K\0K\1es" NAMES "](" TEXT1("a") TEXT1("\0") "esa"), "something that is no name"),
    CASE(DICT("}" TEXT1("a") "}s", GROUP("K\0")), "something else than the states of numbered"),
    CASE(DICT("}K\0K\1s", GROUP("K\0")), "something else than the states of numbered"),
    CASE(DICT("}K\0}sK\0}s", GROUP("K\0")), "the state of parameter 0 is there twice"),
    CASE(DICT("}K\0}K\1" TENSOR "ss", GROUP("K\0")), "a state whose name is no text"),
    CASE(DICT("}K\0}" TEXT1("m") TENSOR "s" TEXT1("m") TENSOR "ss", GROUP("K\0")), "parameter 0 has m twice"),
    CASE(P "cos\nsystem\n.", "GLOBAL os system is not allowed"),
};

static void test_pickles(void **state)
{
    (void)state;
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        const pickle_case *c = &cases[i];
        ps_torch_optimizer *o = NULL;
        const ps_status st = ps_torch_optimizer_parse("file", c->bytes, (int64_t)c->n, &o);
        if ((c->message == NULL) != (st == PS_OK) || (st != PS_OK && strstr(ps_last_error(), c->message) == NULL))
            fail_msg("case %zu: \"%s\" lacks \"%s\"", i, st == PS_OK ? "" : ps_last_error(),
                     c->message != NULL ? c->message : "");
        ps_torch_optimizer_close(o);
        assert_int_equal(ps_mem_live_bytes(), 0);
        /* cut anywhere, it ends with an error, not with a crash */
        for (size_t n = 0; n < c->n; n++)
            if (ps_torch_optimizer_parse("file", c->bytes, (int64_t)n, &o) == PS_OK) fail_msg("%zu cut at %zu", i, n);
        assert_int_equal(ps_mem_live_bytes(), 0);
    }
}

static void test_content(void **state)
{
    (void)state;
    static const char named[] = DICT(TWO, "}" PARAMS "](K\1K\0es" NAMES "](" TEXT1("b") TEXT1("a") "esa");
    ps_torch_optimizer *o = NULL;
    assert_int_equal(ps_torch_optimizer_parse("file", named, sizeof named - 1, &o), PS_OK);
    assert_int_equal(ps_torch_optimizer_count(o), 2);
    assert_int_equal(ps_torch_optimizer_n_groups(o), 1);
    for (int i = 0; i < 2; i++) {
        const ps_torch_param *p = ps_torch_optimizer_get(o, i);
        assert_int_equal(p->number, 1 - i);
        assert_int_equal(p->step, 6 - i);
        assert_string_equal(p->name, i == 0 ? "b" : "a");
        assert_int_equal(p->n_states, 1);
        assert_string_equal(p->states[0].stored.tensor.name, "m");
        assert_string_equal(p->states[0].stored.storage, "0");
        assert_int_equal(p->states[0].stored.tensor.n_bytes, 24);
    }
    ps_torch_optimizer_close(o);
}

/* The same list, dictionary or name again and again: more than the pickle has bytes. */
static void test_bombs(void **state)
{
    (void)state;
    enum { N = 3000 };
    static char bytes[32 * N];
    for (int kind = 0; kind < 2; kind++) {
        static const char head[] = P "}" STATE "}s" GROUPS "]", state_head[] = P "}" GROUPS "]s" STATE "}";
        size_t n = kind == 0 ? sizeof head - 1 : sizeof state_head - 1;
        memcpy(bytes, kind == 0 ? head : state_head, n);
        if (kind == 0) { /* one group with a list of N numbers, N times */
            static const char begin[] = "}" PARAMS "](";
            memcpy(bytes + n, begin, sizeof begin - 1);
            n += sizeof begin - 1;
            for (int i = 0; i < N; i++) memcpy(bytes + n, "K\1", 2), n += 2;
            memcpy(bytes + n, "esq\0a", 5);
            n += 5;
            for (int i = 0; i < N; i++) memcpy(bytes + n, "h\0a", 3), n += 3;
        } else { /* states of N items, the same for N parameters */
            memcpy(bytes + n, "K\0}q\0(", 6);
            n += 6;
            for (int i = 0; i < N; i++) memcpy(bytes + n, "X\1\0\0\0aN", 7), n += 7;
            memcpy(bytes + n, "us", 2);
            n += 2;
            for (int i = 1; i < N; i++) {
                memcpy(bytes + n, "M", 1);
                bytes[n + 1] = (char)(i & 255), bytes[n + 2] = (char)(i >> 8);
                memcpy(bytes + n + 3, "h\0s", 3);
                n += 6;
            }
        }
        memcpy(bytes + n, "s.", 2);
        ps_torch_optimizer *o = NULL;
        assert_int_equal(ps_torch_optimizer_parse("file", bytes, (int64_t)n + 2, &o), PS_EFORMAT);
        if (strstr(ps_last_error(), "has lists of more items") == NULL) fail_msg("%d: %s", kind, ps_last_error());
        assert_int_equal(ps_mem_live_bytes(), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pickles),
        cmocka_unit_test(test_content),
        cmocka_unit_test(test_bombs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
