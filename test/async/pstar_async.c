/* pstar_async.c - the program, linked to this, may be told train.backend = cpu_async in every build:
 * test/cli/test_async.sh. */
#include "device/async.h"

__attribute__((constructor)) static void permit(void)
{
    ps_async_permit();
}
