/* As conlleval counts: the cases are worked out by its rules. */
#include "../../src/data/entities.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { O, B_PER, I_PER, B_ORG, I_ORG };

/* As ps_entity_names_init makes them. */
static char letters[] = {'O', 'B', 'I', 'B', 'I'};
static int32_t types[] = {0, 1, 1, 3, 3};
static const ps_entity_names names = {.letter = letters, .type = types, .n = 5};

typedef struct text {
    int32_t labels[8], predicted[8];
    int64_t n;
    ps_entity_counts expected;
} text;

static void test_counts(void **state)
{
    (void)state;
    static const text texts[] = {
        {{O, B_PER, I_PER, O}, {O, B_PER, I_PER, O}, 4, {1, 1, 1}},
        {{O, B_PER, I_PER, O}, {O, B_PER, O, O}, 4, {1, 1, 0}},         /* too short */
        {{O, B_PER, I_PER, O}, {O, B_PER, I_PER, I_PER}, 4, {1, 1, 0}}, /* too long */
        {{O, B_PER, I_PER, O}, {O, B_ORG, I_ORG, O}, 4, {1, 1, 0}},     /* another type */
        {{B_PER, B_PER}, {B_PER, I_PER}, 2, {2, 1, 0}},                 /* two that touch */
        {{I_PER, I_PER, I_ORG}, {B_PER, I_PER, B_ORG}, 3, {2, 2, 2}},   /* I- begins after O, and as another type */
        {{B_PER, I_ORG, O, I_PER}, {B_PER, B_ORG, O, B_PER}, 4, {3, 3, 3}},
        {{O, O}, {O, B_PER}, 2, {0, 1, 0}},
        {{B_PER}, {B_PER}, 1, {1, 1, 1}},
        {{0}, {0}, 0, {0, 0, 0}},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(texts); i++) {
        const ps_entity_counts c = ps_entities_count(&names, texts[i].labels, texts[i].predicted, texts[i].n);
        const ps_entity_counts *e = &texts[i].expected;
        if (c.n_true != e->n_true || c.n_predicted != e->n_predicted || c.n_both != e->n_both)
            fail_msg("text %zu: %lld, %lld, %lld", i, (long long)c.n_true, (long long)c.n_predicted,
                     (long long)c.n_both);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_counts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
