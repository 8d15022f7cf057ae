#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda/fake_impl.h"

fake_state fake;

static _Thread_local ps_cu_context current;

static int number_of(const char *name)
{
    for (int i = 0; i < fake.n_names; i++)
        if (strcmp(fake.names[i], name) == 0) return i;
    fprintf(stderr, "fake_driver: no function %s\n", name);
    abort();
}

ps_cu_context fake_current(void)
{
    return current;
}

int fake_ordinal(void)
{
    const ps_cu_context c = fake_current();
    return c != NULL ? c->ordinal : -1;
}

/* Whose failure a call reports: with several GPUs that of the context it is made in. */
static ps_cu_context concerned(void)
{
    return current != NULL ? current : fake.o.n_devices <= 1 ? &fake.contexts[0] : NULL;
}

ps_cu_result fake_broken(void)
{
    const ps_cu_context c = concerned();
    return c != NULL ? c->broken : PS_CU_SUCCESS;
}

/* Waits look at what the device writes. */
static bool needs_no_lock(const char *name)
{
    return strncmp(name, "event_", 6) == 0 ? strcmp(name, "event_record") != 0 : strcmp(name, "stream_wait") == 0;
}

ps_cu_result fake_enter(const char *name, bool wants_context)
{
    pthread_mutex_lock(&fake.lock);
    const int i = number_of(name);
    fake.calls[i]++;
    ps_cu_result r = fake_broken();
    if (r == PS_CU_SUCCESS && fake.fail_in[i] >= 0 && fake.fail_in[i]-- == 0) r = fake.fail_with[i];
    if (r == PS_CU_SUCCESS && wants_context && current == NULL) r = PS_CU_INVALID_CONTEXT;
    if (r == PS_CU_SUCCESS && wants_context && !needs_no_lock(name)) {
        fake_wait_for_context(name);
        r = fake_broken();
    }
    const ps_cu_context c = ps_cu_is_fatal(r) ? concerned() : NULL;
    if (c != NULL) c->was_fatal = true;
    if (c != NULL) c->broken = r; /* from then on, everywhere */
    if (r != PS_CU_SUCCESS) pthread_mutex_unlock(&fake.lock);
    return r;
}

ps_cu_result fake_leave(ps_cu_result r)
{
    pthread_mutex_unlock(&fake.lock);
    return r;
}

/* ---- the system ---- */

ps_cu_result fake_init(unsigned flags)
{
    ENTER(false);
    return fake_leave(flags != 0 ? PS_CU_INVALID_VALUE : fake.o.n_devices < 0 ? PS_CU_NO_DEVICE : PS_CU_SUCCESS);
}

ps_cu_result fake_version(int *out)
{
    ENTER(false);
    *out = fake.o.version;
    return fake_leave(PS_CU_SUCCESS);
}

ps_cu_result fake_error_name(ps_cu_result r, const char **out)
{
    *out = r == PS_CU_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
           : r == PS_CU_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
                                      : "CUDA_ERROR";
    return r == 12345 ? PS_CU_INVALID_VALUE : PS_CU_SUCCESS;
}

ps_cu_result fake_error_text(ps_cu_result r, const char **out)
{
    static _Thread_local char text[32];
    snprintf(text, sizeof text, "result %d", r);
    *out = text;
    return PS_CU_SUCCESS;
}

ps_cu_result fake_device_count(int *out)
{
    ENTER(false);
    *out = fake.o.n_devices < 0 ? 0 : fake.o.n_devices;
    return fake_leave(PS_CU_SUCCESS);
}

ps_cu_result fake_device_get(ps_cu_device *out, int ordinal)
{
    ENTER(false);
    *out = ordinal;
    return fake_leave(ordinal >= 0 && ordinal < fake.o.n_devices ? PS_CU_SUCCESS : PS_CU_INVALID_DEVICE);
}

ps_cu_result fake_device_name(char *out, int bytes, ps_cu_device dev)
{
    ENTER(false);
    snprintf(out, (size_t)bytes, fake.o.are_alike ? "Fake" : "Fake %d", dev);
    return fake_leave(PS_CU_SUCCESS);
}

ps_cu_result fake_device_attribute(int *out, ps_cu_device_attribute which, ps_cu_device dev)
{
    ENTER(false);
    *out = 1;
    if (which == PS_CU_DEVICE_COMPUTE_MODE) *out = dev >= fake.o.mode_from ? fake.o.mode : 0;
    if (which == PS_CU_DEVICE_CAPABILITY_MAJOR) *out = fake.o.capability / 10;
    if (which == PS_CU_DEVICE_CAPABILITY_MINOR) *out = fake.o.capability % 10;
    return fake_leave(PS_CU_SUCCESS);
}

ps_cu_result fake_context_retain(ps_cu_context *out, ps_cu_device dev)
{
    ENTER(false);
    const ps_cu_context c = &fake.contexts[dev];
    *out = c;
    c->n_retained++;
    c->n_opened++;
    return fake_leave(PS_CU_SUCCESS);
}

ps_cu_result fake_context_release(ps_cu_device dev)
{
    pthread_mutex_lock(&fake.lock);
    const ps_cu_context c = &fake.contexts[dev];
    if (--c->n_retained == 0) { /* what could not be freed ends with it, and the next is well */
        if (c->was_fatal) {
            fake_drop_pins(c);
            c->n_modules = c->n_ranges = 0;
        }
        c->broken = PS_CU_SUCCESS;
        c->was_fatal = false;
    }
    return fake_leave(PS_CU_SUCCESS);
}

ps_cu_result fake_context_set(ps_cu_context context)
{
    pthread_mutex_lock(&fake.lock);
    current = context;
    return fake_leave(fake_broken());
}

/* ---- life ---- */

static const ps_cuda_driver table = {
#define XX(is_needed, name, symbol, params) .name = fake_##name,
#include "device/cuda/driver.def"
#undef XX
};
static const ps_cuda_driver table_without_wait_value = {
#define XX(is_needed, name, symbol, params) .name = (is_needed) ? fake_##name : NULL,
#include "device/cuda/driver.def"
#undef XX
};

/* Where device memory is: at addresses that words of a kernel's arguments do not look like (fake_translate). What is left
 * in their padding are addresses of libraries, stacks and heaps (0x7f.., 0x55..); two numbers of 32 bits look like an
 * address here if the second is 28481 to 28496, among which no multiple of 32 is. ThreadSanitizer puts it elsewhere. */
#define ARENA_HINT ((void *)(uintptr_t)0x6f4100000000)

static void *reserve(void *hint, int64_t bytes, int access, int flags, int file)
{
    void *p = mmap(hint, (size_t)bytes, access, flags | MAP_NORESERVE, file, 0);
    if (p == MAP_FAILED) abort();
    return p;
}

const ps_cuda_driver *fake_driver(const fake_options *o)
{
    fake = (fake_state){.o = *o};
    if (fake.o.page_bytes == 0) fake.o.page_bytes = 64 * PS_KIB;
    if (fake.o.total_bytes == 0) fake.o.total_bytes = PS_GIB;
    if (fake.o.n_devices == 0) fake.o.n_devices = 1;
    if (fake.o.n_devices > FAKE_DEVICES) abort();
    if (fake.o.version == 0) fake.o.version = 13000;
    if (fake.o.capability == 0) fake.o.capability = 90;
    if (fake.o.depth == 0 && getenv("FAKE_DEPTH") != NULL) fake.o.depth = atoi(getenv("FAKE_DEPTH"));
    if (fake.o.depth == 0) fake.o.depth = 1024;
    if (fake.o.stall_ms == 0) fake.o.stall_ms = 30000;
    for (int i = 0; i < FAKE_DEVICES; i++)
        fake.contexts[i] = (struct ps_cu_context_state){.ordinal = i, .break_in = -1};
    pthread_mutexattr_t may_lock_again;
    pthread_mutexattr_init(&may_lock_again);
    pthread_mutexattr_settype(&may_lock_again, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&fake.lock, &may_lock_again);
    pthread_mutexattr_destroy(&may_lock_again);
    fake.arena = reserve(ARENA_HINT, 2 * FAKE_ARENA_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    fake.shadow = fake.arena + FAKE_ARENA_BYTES;
    fake.state = calloc((size_t)(FAKE_ARENA_BYTES / fake.o.page_bytes), 1);
    fake.slot_at = calloc((size_t)(FAKE_ARENA_BYTES / fake.o.page_bytes), sizeof *fake.slot_at);
    fake.slots = calloc((size_t)(FAKE_FILE_BYTES / fake.o.page_bytes), sizeof *fake.slots);
    fake.file = memfd_create("fake_driver", MFD_CLOEXEC);
    if (fake.file < 0 || ftruncate(fake.file, FAKE_FILE_BYTES) != 0) abort();
    fake.bytes = reserve(NULL, FAKE_FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fake.file);
#define XX(is_needed, name, symbol, params) fake.names[fake.n_names++] = #name;
#include "device/cuda/driver.def"
#undef XX
    for (int i = 0; i < fake.n_names; i++) fake.fail_in[i] = -1;
    return o->has_no_wait_value ? &table_without_wait_value : &table;
}

bool fake_driver_end(void)
{
    int n_ranges = 0, n_contexts = 0, n_modules = 0;
    for (int i = 0; i < FAKE_DEVICES; i++) {
        n_ranges += fake.contexts[i].n_ranges;
        n_contexts += fake.contexts[i].n_retained;
        n_modules += fake.contexts[i].n_modules;
    }
    const struct {
        const char *what;
        int n;
    } left[] = {{"pages", fake.n_pages},   {"ranges of addresses", n_ranges},   {"streams", fake.n_streams},
                {"events", fake.n_events}, {"page-locked pieces", fake.n_pins}, {"contexts", n_contexts},
                {"modules", n_modules}};
    bool is_clean = true;
    for (size_t i = 0; i < PS_ARRAY_LEN(left); i++) {
        if (left[i].n == 0) continue;
        fprintf(stderr, "fake_driver: %d %s are left\n", left[i].n, left[i].what);
        is_clean = false;
    }
    while (fake.streams != NULL) (void)fake_stream_destroy(fake.streams);
    for (ps_cu_event e = fake.events, next; e != NULL; e = next) {
        next = e->next;
        free(e);
    }
    fake_drop_pins(NULL);
    munmap(fake.arena, 2 * (size_t)FAKE_ARENA_BYTES);
    munmap(fake.bytes, (size_t)FAKE_FILE_BYTES);
    free(fake.state);
    free(fake.slot_at);
    free(fake.slots);
    close(fake.file);
    pthread_mutex_destroy(&fake.lock);
    return is_clean;
}

void fake_fail(const char *function, int nth, ps_cu_result r)
{
    pthread_mutex_lock(&fake.lock);
    fake.fail_in[number_of(function)] = nth;
    fake.fail_with[number_of(function)] = r;
    pthread_mutex_unlock(&fake.lock);
}

void fake_break(int nth, ps_cu_result r)
{
    fake_break_device(0, nth, r);
}

void fake_break_device(int ordinal, int nth, ps_cu_result r)
{
    pthread_mutex_lock(&fake.lock);
    fake.contexts[ordinal].break_in = nth;
    fake.contexts[ordinal].break_with = r;
    pthread_mutex_unlock(&fake.lock);
}

int fake_opened(int ordinal)
{
    pthread_mutex_lock(&fake.lock);
    const int n = fake.contexts[ordinal].n_opened;
    pthread_mutex_unlock(&fake.lock);
    return n;
}

void fake_take_memory(int64_t bytes)
{
    pthread_mutex_lock(&fake.lock);
    fake.taken_bytes += bytes;
    pthread_mutex_unlock(&fake.lock);
}

int fake_calls(const char *function)
{
    pthread_mutex_lock(&fake.lock);
    const int n = fake.calls[number_of(function)];
    pthread_mutex_unlock(&fake.lock);
    return n;
}

int fake_depth(void)
{
    return fake.o.depth;
}

int fake_full_calls(void)
{
    pthread_mutex_lock(&fake.lock);
    const int n = fake.n_full;
    pthread_mutex_unlock(&fake.lock);
    return n;
}

void fake_let_calls_wait(bool let)
{
    pthread_mutex_lock(&fake.lock);
    fake.calls_do_not_wait = !let;
    pthread_mutex_unlock(&fake.lock);
}

int fake_synchronizing_calls(void)
{
    pthread_mutex_lock(&fake.lock);
    const int n = fake.n_synchronized;
    pthread_mutex_unlock(&fake.lock);
    return n;
}
