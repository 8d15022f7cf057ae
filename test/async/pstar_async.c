/* pstar_async.c - the program, linked to this, finds a GPU of the fake driver, with the processor's kernels
 * (test/cli/test_async.sh).
 *
 *   PS_FAKE_SEED   of the order of its work; 1
 *   PS_FAKE_PAGE   bytes of a page; 4096 */
#include <stdlib.h>

#include "cuda/fake_cpu.h"

static int64_t number_of(const char *name, int64_t none)
{
    const char *text = getenv(name);
    return text != NULL ? strtoll(text, NULL, 10) : none;
}

__attribute__((constructor)) static void begin(void)
{
    fake_cpu_begin(&(fake_options){.seed = (uint64_t)number_of("PS_FAKE_SEED", 1),
                                   .page_bytes = number_of("PS_FAKE_PAGE", PS_PAGE_BYTES)});
    fake_cpu_check_order(true);
}

__attribute__((destructor)) static void end(void)
{
    if (!fake_cpu_end()) _Exit(99);
}
