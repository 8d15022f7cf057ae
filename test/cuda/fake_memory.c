#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda/fake_impl.h"

struct fake_pin {
    char *p;
    size_t bytes;
    bool is_ours;
    ps_cu_context context;
    fake_pin *next;
};

/* ---- device memory ---- */

static bool is_device(ps_cu_address p)
{
    return (char *)(uintptr_t)p >= fake.arena && (char *)(uintptr_t)p < fake.arena + FAKE_ARENA_BYTES;
}

/* Addresses of a GPU are in an equal part of the arena, one after the other. */
static int64_t part_bytes(void)
{
    return FAKE_ARENA_BYTES / ps_max_i64(1, fake.o.n_devices) / fake.o.page_bytes * fake.o.page_bytes;
}

static ps_cu_context context_of(ps_cu_address p)
{
    return &fake.contexts[((char *)(uintptr_t)p - fake.arena) / part_bytes()];
}

static int64_t page_at(ps_cu_address p)
{
    return ((char *)(uintptr_t)p - fake.arena) / fake.o.page_bytes;
}

static bool all_are(ps_cu_address p, size_t bytes, unsigned char least, unsigned char most)
{
    if (!is_device(p) || !is_device(p + bytes - 1)) return false;
    for (int64_t i = page_at(p); i <= page_at(p + bytes - 1); i++)
        if (fake.state[i] < least || fake.state[i] > most) return false;
    return true;
}

ps_cu_result fake_memory_info(size_t *free_bytes, size_t *total_bytes)
{
    ENTER(true);
    *free_bytes = (size_t)(fake.o.total_bytes - fake_current()->used_bytes - fake.taken_bytes);
    *total_bytes = (size_t)fake.o.total_bytes;
    return fake_leave(PS_CU_SUCCESS);
}

ps_cu_result fake_page_bytes(size_t *out, const ps_cu_page_properties *page, ps_cu_granularity which)
{
    (void)which;
    ENTER(true);
    *out = (size_t)fake.o.page_bytes;
    return fake_leave(page->type == PS_CU_PAGE_PINNED ? PS_CU_SUCCESS : PS_CU_INVALID_VALUE);
}

/* Never the same addresses twice, and some between them that are unused. */
ps_cu_result fake_address_reserve(ps_cu_address *out, size_t bytes, size_t align, ps_cu_address wanted,
                                  unsigned long long flags)
{
    (void)align, (void)wanted, (void)flags;
    ENTER(true);
    if (bytes == 0 || (int64_t)bytes % fake.o.page_bytes != 0) return fake_leave(PS_CU_INVALID_VALUE);
    const ps_cu_context c = fake_current();
    if (c->arena_used + (int64_t)bytes > part_bytes() - fake.o.page_bytes) return fake_leave(PS_CU_OUT_OF_MEMORY);
    *out = (ps_cu_address)(uintptr_t)(fake.arena + c->ordinal * part_bytes() + c->arena_used);
    c->arena_used += (int64_t)bytes + fake.o.page_bytes;
    c->n_ranges++;
    return fake_leave(PS_CU_SUCCESS);
}

ps_cu_result fake_address_free(ps_cu_address p, size_t bytes)
{
    pthread_mutex_lock(&fake.lock);
    fake_synchronize("address_free");
    if (!all_are(p, bytes, 0, 0)) return fake_leave(PS_CU_INVALID_VALUE);
    context_of(p)->n_ranges--;
    return fake_leave(PS_CU_SUCCESS);
}

/* The lowest that is free, so that pages which are made one after the other lie so, too, and are mapped together. */
static int64_t take_slot(void)
{
    int64_t i = fake.first_free;
    while (i < FAKE_FILE_BYTES / (int64_t)fake.o.page_bytes && fake.slots[i] > 0) i++;
    if (i == FAKE_FILE_BYTES / (int64_t)fake.o.page_bytes) abort(); /* more memory than the file has */
    fake.slots[i] = 1;
    fake.first_free = i + 1;
    return i;
}

/* Of the page itself, or of a place where it is mapped. */
static void drop_slot(int64_t i)
{
    if (--fake.slots[i] == 0 && i < fake.first_free) fake.first_free = i;
}

ps_cu_result fake_page_create(ps_cu_page *out, size_t bytes, const ps_cu_page_properties *page,
                              unsigned long long flags)
{
    (void)flags;
    ENTER(true);
    const ps_cu_context c = &fake.contexts[page->location.id];
    if ((int64_t)bytes != fake.o.page_bytes) return fake_leave(PS_CU_INVALID_VALUE);
    if (c->used_bytes + fake.taken_bytes + (int64_t)bytes > fake.o.total_bytes) return fake_leave(PS_CU_OUT_OF_MEMORY);
    const int64_t slot = take_slot();
    memset(fake.bytes + slot * fake.o.page_bytes, 0xff, bytes);
    c->used_bytes += (int64_t)bytes;
    fake.n_pages++;
    *out = (ps_cu_page)((slot + 1) * FAKE_DEVICES + c->ordinal);
    return fake_leave(PS_CU_SUCCESS);
}

static int64_t slot_of(ps_cu_page page)
{
    return (int64_t)(page / FAKE_DEVICES) - 1;
}

ps_cu_result fake_page_release(ps_cu_page page)
{
    pthread_mutex_lock(&fake.lock);
    fake.contexts[page % FAKE_DEVICES].used_bytes -= fake.o.page_bytes;
    fake.n_pages--;
    drop_slot(slot_of(page));
    return fake_leave(PS_CU_SUCCESS);
}

/* Pages of the shadow are those of the file from a slot on, or nothing: < 0. */
static void map_shadow(int64_t first, int64_t n, int64_t slot)
{
    const int64_t page_bytes = fake.o.page_bytes;
    const bool is_file = slot >= 0;
    const int flags = MAP_FIXED | (is_file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
    if (mmap(fake.shadow + first * page_bytes, (size_t)(n * page_bytes), is_file ? PROT_READ | PROT_WRITE : PROT_NONE,
             flags, is_file ? fake.file : -1, is_file ? slot * page_bytes : 0) == MAP_FAILED)
        abort();
}

void fake_finish_unmapping(void)
{
    if (fake.n_unmapped > 0) map_shadow(fake.first_unmapped, fake.n_unmapped, -1);
    fake.n_unmapped = 0;
}

ps_cu_result fake_page_map(ps_cu_address p, size_t bytes, size_t offset, ps_cu_page page, unsigned long long flags)
{
    (void)flags;
    ENTER(true);
    if ((int64_t)bytes != fake.o.page_bytes || offset != 0 || !all_are(p, bytes, 0, 0) ||
        context_of(p) != &fake.contexts[page % FAKE_DEVICES])
        return fake_leave(PS_CU_INVALID_VALUE);
    fake.state[page_at(p)] = 1;
    fake.slot_at[page_at(p)] = (int32_t)slot_of(page);
    fake.slots[slot_of(page)]++;
    return fake_leave(PS_CU_SUCCESS);
}

/* Pages that go one after the other, as those of a block do, are taken out of the shadow together. */
ps_cu_result fake_page_unmap(ps_cu_address p, size_t bytes)
{
    ENTER(true);
    fake_synchronize("page_unmap");
    if ((int64_t)bytes != fake.o.page_bytes || !all_are(p, bytes, 1, 2)) return fake_leave(PS_CU_INVALID_VALUE);
    const int64_t i = page_at(p);
    if (fake.n_unmapped > 0 && i != fake.first_unmapped + fake.n_unmapped) fake_finish_unmapping();
    if (fake.n_unmapped++ == 0) fake.first_unmapped = i;
    fake.state[i] = 0;
    drop_slot(fake.slot_at[i]);
    return fake_leave(PS_CU_SUCCESS);
}

ps_cu_result fake_page_access(ps_cu_address p, size_t bytes, const ps_cu_access *access, size_t n)
{
    ENTER(true);
    fake_synchronize("page_access");
    if (n != 1 || access->flags != PS_CU_ACCESS_READ_WRITE || !all_are(p, bytes, 1, 2))
        return fake_leave(PS_CU_INVALID_VALUE);
    fake_finish_unmapping();
    for (int64_t i = page_at(p), end = page_at(p + bytes - 1) + 1, k; i < end; i += k) {
        for (k = 1; i + k < end && fake.slot_at[i + k] == fake.slot_at[i] + k; k++) continue;
        map_shadow(i, k, fake.slot_at[i]);
        memset(fake.state + i, 2, (size_t)k);
    }
    return fake_leave(PS_CU_SUCCESS);
}

/* Words that happen to be such addresses are not told apart: fake_driver.c has device memory where that is no matter. */
void fake_translate(void *args, size_t bytes)
{
    for (size_t i = 0; i + sizeof(ps_cu_address) <= bytes; i += sizeof(ps_cu_address)) {
        ps_cu_address p;
        memcpy(&p, (char *)args + i, sizeof p);
        if (!is_device(p)) continue;
        p += (ps_cu_address)(fake.shadow - fake.arena);
        memcpy((char *)args + i, &p, sizeof p);
    }
}

/* ---- page-locked memory ---- */

static const fake_pin *find_pin(ps_cu_address p, size_t bytes)
{
    const char *c = (const char *)(uintptr_t)p;
    const fake_pin *i = fake.pins;
    while (i != NULL && !(c >= i->p && c + bytes <= i->p + i->bytes)) i = i->next;
    return i;
}

static void add_pin(void *p, size_t bytes, bool is_ours)
{
    fake_pin *i = calloc(1, sizeof *i);
    *i = (fake_pin){p, bytes, is_ours, fake_current(), fake.pins};
    fake.pins = i;
    fake.n_pins++;
}

static ps_cu_result remove_pin(const void *p, bool is_ours)
{
    fake_pin **i = &fake.pins;
    while (*i != NULL && ((*i)->p != p || (*i)->is_ours != is_ours)) i = &(*i)->next;
    if (*i == NULL) return PS_CU_INVALID_VALUE;
    fake_pin *gone = *i;
    *i = gone->next;
    if (is_ours) free(gone->p);
    free(gone);
    fake.n_pins--;
    return PS_CU_SUCCESS;
}

ps_cu_result fake_host_register(void *p, size_t bytes, unsigned flags)
{
    (void)flags;
    ENTER(true);
    fake_synchronize("host_register");
    add_pin(p, bytes, false);
    return fake_leave(PS_CU_SUCCESS);
}

ps_cu_result fake_host_unregister(void *p)
{
    ENTER(true);
    fake_synchronize("host_unregister");
    return fake_leave(remove_pin(p, false));
}

ps_cu_result fake_host_alloc(void **out, size_t bytes, unsigned flags)
{
    (void)flags;
    ENTER(true);
    fake_synchronize("host_alloc");
    *out = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    add_pin(*out, bytes, true);
    return fake_leave(PS_CU_SUCCESS);
}

ps_cu_result fake_host_free(void *p)
{
    pthread_mutex_lock(&fake.lock);
    fake_synchronize("host_free");
    return fake_leave(remove_pin(p, true));
}

ps_cu_result fake_host_address(ps_cu_address *out, void *p, unsigned flags)
{
    (void)flags;
    ENTER(true);
    *out = (ps_cu_address)(uintptr_t)p;
    return fake_leave(find_pin(*out, 1) != NULL ? PS_CU_SUCCESS : PS_CU_INVALID_VALUE);
}

void fake_drop_pins(ps_cu_context c)
{
    for (fake_pin *i = fake.pins, *next; i != NULL; i = next) {
        next = i->next;
        if (c == NULL || i->context == c) (void)remove_pin(i->p, i->is_ours);
    }
}

bool fake_is_pinned(ps_cu_address p, size_t bytes)
{
    return find_pin(p, bytes) != NULL;
}

char *fake_touch(ps_cu_context c, ps_cu_address p, size_t bytes)
{
    if (is_device(p))
        return context_of(p) == c && all_are(p, bytes, 2, 2) ? fake.shadow + ((char *)(uintptr_t)p - fake.arena) : NULL;
    return find_pin(p, bytes) != NULL || fake.o.copies_unlocked ? (char *)(uintptr_t)p : NULL;
}

bool fake_find_memory(uint64_t address, uint64_t *begin, uint64_t *end)
{
    const fake_pin *pin = find_pin(address, 1);
    if (pin != NULL) {
        *begin = (uint64_t)(uintptr_t)pin->p, *end = *begin + pin->bytes;
        return true;
    }
    const uint64_t shadow = (uint64_t)(uintptr_t)fake.shadow, page_bytes = (uint64_t)fake.o.page_bytes;
    if (address - shadow >= FAKE_ARENA_BYTES) return false;
    uint64_t first = (address - shadow) / page_bytes, last = first;
    if (fake.state[first] != 2) return false;
    while (first > 0 && fake.state[first - 1] == 2) first--;
    while (fake.state[last + 1] == 2) last++; /* of a GPU's addresses the last page is never mapped */
    *begin = shadow + first * page_bytes, *end = shadow + (last + 1) * page_bytes;
    return true;
}

bool fake_is_device_memory(const void *p, int64_t bytes)
{
    pthread_mutex_lock(&fake.lock);
    const bool is_so = bytes == 0 || all_are((ps_cu_address)(uintptr_t)p, (size_t)bytes, 2, 2);
    pthread_mutex_unlock(&fake.lock);
    return is_so;
}

bool fake_is_known(ps_cu_address p, size_t bytes)
{
    return is_device(p) || find_pin(p, bytes) != NULL;
}
