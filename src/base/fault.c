#include "base/fault.h"

#include <errno.h>
#include <stdatomic.h>

typedef struct fault_state {
    atomic_bool armed, persistent, struck;
    atomic_long nth, countdown; /* the failing call, and calls left before it */
} fault_state;

static fault_state faults[PS_FAULT_COUNT];

void ps_fault_arm(ps_fault_kind kind, long nth, bool persistent)
{
    fault_state *f = &faults[kind];
    atomic_store(&f->armed, false);
    atomic_store(&f->struck, false);
    atomic_store(&f->persistent, persistent);
    atomic_store(&f->nth, nth);
    atomic_store(&f->countdown, nth);
    atomic_store(&f->armed, nth >= 0);
}

long ps_fault_calls(ps_fault_kind kind)
{
    return atomic_load(&faults[kind].nth) - atomic_load(&faults[kind].countdown);
}

bool ps_fault_has_struck(ps_fault_kind kind)
{
    return atomic_load(&faults[kind].struck);
}

bool ps_fault_hit(ps_fault_kind kind)
{
    fault_state *f = &faults[kind];
    if (!atomic_load_explicit(&f->armed, memory_order_relaxed)) return false;
    const long left = atomic_fetch_sub(&f->countdown, 1);
    const bool hit = left == 0 || (left < 0 && atomic_load(&f->persistent));
    if (hit) atomic_store(&f->struck, true);
    return hit;
}

bool ps_fault_hit_io(ps_fault_kind kind)
{
    if (!ps_fault_hit(kind)) return false;
    errno = EIO;
    return true;
}
