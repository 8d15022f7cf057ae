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

/* Addresses of a GPU are in an equal part of the arena, one behind the other. */
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

/* Never the same addresses twice, and some between them that are nobody's. */
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
    if (!all_are(p, bytes, 0, 0)) return fake_leave(PS_CU_INVALID_VALUE);
    context_of(p)->n_ranges--;
    return fake_leave(PS_CU_SUCCESS);
}

ps_cu_result fake_page_create(ps_cu_page *out, size_t bytes, const ps_cu_page_properties *page,
                              unsigned long long flags)
{
    char poison[4096];
    (void)flags;
    ENTER(true);
    const ps_cu_context c = &fake.contexts[page->location.id];
    if ((int64_t)bytes != fake.o.page_bytes) return fake_leave(PS_CU_INVALID_VALUE);
    if (c->used_bytes + fake.taken_bytes + (int64_t)bytes > fake.o.total_bytes) return fake_leave(PS_CU_OUT_OF_MEMORY);
    memset(poison, 0xff, sizeof poison);
    for (size_t i = 0; i < bytes; i += sizeof poison)
        if (pwrite(fake.file, poison, sizeof poison, fake.n_pages_ever * fake.o.page_bytes + (off_t)i) < 0) abort();
    c->used_bytes += (int64_t)bytes;
    fake.n_pages++;
    *out = (ps_cu_page)(++fake.n_pages_ever * FAKE_DEVICES + c->ordinal);
    return fake_leave(PS_CU_SUCCESS);
}

ps_cu_result fake_page_release(ps_cu_page page)
{
    pthread_mutex_lock(&fake.lock);
    fake.contexts[page % FAKE_DEVICES].used_bytes -= fake.o.page_bytes;
    fake.n_pages--;
    return fake_leave(PS_CU_SUCCESS);
}

static void map_at(char *p, int access, off_t offset)
{
    const bool is_file = offset >= 0;
    const int flags = MAP_FIXED | (is_file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
    if (mmap(p, (size_t)fake.o.page_bytes, access, flags, is_file ? fake.file : -1, is_file ? offset : 0) == MAP_FAILED)
        abort();
}

ps_cu_result fake_page_map(ps_cu_address p, size_t bytes, size_t offset, ps_cu_page page, unsigned long long flags)
{
    (void)flags;
    ENTER(true);
    if ((int64_t)bytes != fake.o.page_bytes || offset != 0 || !all_are(p, bytes, 0, 0) ||
        context_of(p) != &fake.contexts[page % FAKE_DEVICES])
        return fake_leave(PS_CU_INVALID_VALUE);
    const off_t at = (off_t)(page / FAKE_DEVICES - 1) * fake.o.page_bytes;
    map_at((char *)(uintptr_t)p, PROT_NONE, at);
    map_at(fake.shadow + ((char *)(uintptr_t)p - fake.arena), PROT_READ | PROT_WRITE, at);
    fake.state[page_at(p)] = 1;
    return fake_leave(PS_CU_SUCCESS);
}

ps_cu_result fake_page_unmap(ps_cu_address p, size_t bytes)
{
    ENTER(true);
    if ((int64_t)bytes != fake.o.page_bytes || !all_are(p, bytes, 1, 2)) return fake_leave(PS_CU_INVALID_VALUE);
    fake.state[page_at(p)] = 0;
    map_at((char *)(uintptr_t)p, PROT_NONE, -1);
    map_at(fake.shadow + ((char *)(uintptr_t)p - fake.arena), PROT_NONE, -1);
    return fake_leave(PS_CU_SUCCESS);
}

ps_cu_result fake_page_access(ps_cu_address p, size_t bytes, const ps_cu_access *access, size_t n)
{
    ENTER(true);
    if (n != 1 || access->flags != PS_CU_ACCESS_READ_WRITE || !all_are(p, bytes, 1, 2))
        return fake_leave(PS_CU_INVALID_VALUE);
    for (int64_t i = page_at(p); i <= page_at(p + bytes - 1); i++) fake.state[i] = 2;
    if (fake.key >= 0)
        pkey_mprotect((void *)(uintptr_t)p, bytes, PROT_READ | PROT_WRITE, fake.key);
    else if (fake.open > 0)
        mprotect((void *)(uintptr_t)p, bytes, PROT_READ | PROT_WRITE);
    return fake_leave(PS_CU_SUCCESS);
}

void fake_open_arena(bool is_open)
{
    if (fake.key >= 0) {
        pkey_set(fake.key, is_open ? 0 : PKEY_DISABLE_ACCESS);
        return;
    }
    fake.open += is_open ? 1 : -1;
    if (fake.open != (is_open ? 1 : 0)) return;
    /* Run by run: page by page it takes longer than the kernels. */
    for (int d = 0; d < fake.o.n_devices; d++) {
        const ps_cu_address first = (ps_cu_address)(uintptr_t)fake.arena + (ps_cu_address)(d * part_bytes());
        const int64_t end = page_at(first + (ps_cu_address)fake.contexts[d].arena_used);
        for (int64_t i = page_at(first), n; i < end; i += n) {
            const bool is_run = fake.state[i] == 2;
            for (n = 1; i + n < end && (fake.state[i + n] == 2) == is_run; n++) continue;
            if (is_run)
                mprotect(fake.arena + i * fake.o.page_bytes, (size_t)(n * fake.o.page_bytes),
                         is_open ? PROT_READ | PROT_WRITE : PROT_NONE);
        }
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
    add_pin(p, bytes, false);
    return fake_leave(PS_CU_SUCCESS);
}

ps_cu_result fake_host_unregister(void *p)
{
    ENTER(true);
    return fake_leave(remove_pin(p, false));
}

ps_cu_result fake_host_alloc(void **out, size_t bytes, unsigned flags)
{
    (void)flags;
    ENTER(true);
    *out = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    add_pin(*out, bytes, true);
    return fake_leave(PS_CU_SUCCESS);
}

ps_cu_result fake_host_free(void *p)
{
    pthread_mutex_lock(&fake.lock);
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

bool fake_is_known(ps_cu_address p, size_t bytes)
{
    return is_device(p) || find_pin(p, bytes) != NULL;
}
