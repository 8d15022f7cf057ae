/* test_stall.c - what hangs is found, and named; what is slow is not. Time is the test's own: it looks at instants that it
 * makes up. */
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

#include "assert_status.h"
#include "base/machine.h"
#include "device/device.h"
#include "device/disk_backend.h"
#include "device/queue_impl.h"
#include "device/stall.h"

#define SECOND_NS ((int64_t)1000000000)
#define STALL_NS (100 * SECOND_NS)

/* ---- what is reported ---- */

static struct {
    char text[2048], told[2048];
    int n;
} seen;

static void keep(void *user, const char *text)
{
    assert_ptr_equal(user, &seen);
    snprintf(seen.text, sizeof seen.text, "%s", text);
    seen.n++;
}

static void tell(void *user, const char *text)
{
    assert_int_equal(seen.n, 0); /* before the program, which may end */
    snprintf(user, sizeof seen.told, "%s", text);
}

typedef struct timed {
    ps_stall_watch *watch;
    int64_t now_ns;
} timed;

static timed begin(void)
{
    timed w = {.now_ns = ps_clock_ns()};
    memset(&seen, 0, sizeof seen);
    ps_set_stall(keep, &seen);
    assert_ok(ps_stall_open(
        &(ps_stall_options){.stall_ns = STALL_NS, .tell = tell, .user = seen.told, .is_manual = true}, &w.watch));
    return w;
}

static void end(timed *w)
{
    ps_stall_close(w->watch);
    ps_set_stall(NULL, NULL);
}

/* So many seconds go by, with a look at each. */
static void pass(timed *w, int seconds)
{
    for (int i = 0; i < seconds; i++) (void)ps_stall_look(w->now_ns += SECOND_NS);
}

static void says(const char *text)
{
    if (strstr(seen.text, text) == NULL) fail_msg("not \"%s\" in: %s", text, seen.text);
}

/* Until the table names what the other thread is in: it has begun. */
static void await_busy(void)
{
    while (!ps_stall_is_busy()) usleep(1000);
}

/* ---- a queue's item that does not end ---- */

static sem_t reached, gate;

static ps_status hang(void *self, const void *args)
{
    (void)self, (void)args;
    sem_post(&reached);
    sem_wait(&gate);
    return PS_OK;
}

static void *wait_for_queue(void *q)
{
    assert_ok(ps_event_wait(ps_queue_event(q)));
    return NULL;
}

static void test_call_of_queue(void **state)
{
    (void)state;
    ps_queue *q = NULL;
    pthread_t waiter;
    timed w = begin();
    sem_init(&gate, 0, 0);
    sem_init(&reached, 0, 0);
    assert_ok(ps_queue_thread_create("host", 8, &q));
    snprintf(q->name, sizeof q->name, "host");
    pass(&w, 1000);
    assert_int_equal(seen.n, 0); /* outside of the library any time may pass */
    assert_ok(ps_queue_call(q, &(ps_call){.name = "adam_hangs", .run = hang}));
    assert_int_equal(pthread_create(&waiter, NULL, wait_for_queue, q), 0);
    sem_wait(&reached); /* the table names it */
    pass(&w, 1);        /* sees that it has begun */
    pass(&w, 90);
    assert_int_equal(seen.n, 0);
    while (seen.n == 0) pass(&w, 11); /* the waiter may have entered the table meanwhile, which is progress */
    says("executes adam_hangs, item 1 of queue host");
    says("no progress for 10");
    says("There is no checkpoint to continue from");
    assert_string_equal(seen.text, seen.told);
    sem_post(&gate);
    pthread_join(waiter, NULL);
    ps_queue_destroy(q);
    pass(&w, 1000);
    const int n = seen.n;
    assert_true(n >= 1);
    end(&w);
}

static atomic_bool has_ended;

static void *look_all_the_time(void *of)
{
    timed *const w = of;
    while (!atomic_load(&has_ended)) {
        pass(w, 1);
        seen.n = 0;
    }
    return NULL;
}

/* A report may be under way while a queue is destroyed: it names no queue that is gone. */
static void test_queues_end_meanwhile(void **state)
{
    (void)state;
    pthread_t looker;
    timed w = begin();
    atomic_store(&has_ended, false);
    assert_int_equal(pthread_create(&looker, NULL, look_all_the_time, &w), 0);
    for (int i = 0; i < 500; i++) {
        ps_queue *q = NULL;
        const int64_t zero = 0;
        int64_t to = 1;
        assert_ok(ps_queue_thread_create("brief", 8, &q));
        assert_ok(ps_queue_copy(q, &to, &zero, sizeof to));
        ps_queue_destroy(q);
        assert_int_equal(to, 0);
    }
    atomic_store(&has_ended, true);
    pthread_join(looker, NULL);
    end(&w);
}

/* Parts of work count: it takes any time. */
static void test_slow_work(void **state)
{
    (void)state;
    ps_stall_entry s;
    timed w = begin();
    ps_stall_begin(&s, "computes", "h.0.mlp.c_fc forward", -1);
    for (int i = 0; i < 50; i++) {
        pass(&w, 99);
        ps_stall_progress();
    }
    assert_int_equal(seen.n, 0);
    ps_stall_set_checkpoint("runs/x/checkpoints/step-000100");
    pass(&w, 1);
    pass(&w, 99);
    assert_int_equal(seen.n, 0);
    pass(&w, 1);
    assert_int_equal(seen.n, 1);
    says("computes h.0.mlp.c_fc forward, for ");
    says("Continue from checkpoint runs/x/checkpoints/step-000100");
    pass(&w, 99); /* it has returned: again after that time */
    assert_int_equal(seen.n, 1);
    memset(&seen, 0, sizeof seen);
    pass(&w, 1);
    assert_int_equal(seen.n, 1);
    ps_stall_end(&s);
    end(&w);
}

/* While the process is stopped, no time counts. */
static void test_stopped_process(void **state)
{
    (void)state;
    ps_stall_entry s;
    timed w = begin();
    ps_stall_begin(&s, "updates", "chunk", 7);
    pass(&w, 1);
    pass(&w, 60);
    w.now_ns += 5000 * SECOND_NS;
    pass(&w, 39);
    assert_int_equal(seen.n, 0);
    pass(&w, 2);
    assert_int_equal(seen.n, 1);
    says("updates chunk 7");
    ps_stall_end(&s);
    end(&w);
}

/* ---- ranks ---- */

static void describe(void *user, ps_ticket t, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s %d", (const char *)user, (int)t);
}

static void test_waits_for_ranks(void **state)
{
    (void)state;
    static char what[] = "all-gather of group";
    ps_queue *q = NULL;
    ps_stall_entry s;
    timed w = begin();
    assert_ok(ps_host_queue_create("messages", &q));
    ps_host_queue_set_ranks(q, describe, what);
    ps_stall_begin_item(&s, "waits for", q, 3, NULL);
    for (int i = 0; i < 50; i++) {
        pass(&w, 99);
        ps_stall_note_peer(); /* another one goes on, or loads data */
    }
    assert_int_equal(seen.n, 0);
    pass(&w, 1);
    pass(&w, 104); /* the one that does not wait for others speaks first */
    assert_int_equal(seen.n, 0);
    pass(&w, 1);
    assert_int_equal(seen.n, 1);
    says("waits for item 3 of queue messages (all-gather of group 3)");
    ps_stall_end(&s);
    ps_queue_destroy(q);
    end(&w);
}

/* ---- a disk that does not answer ---- */

static _Atomic bool hangs;

/* In place of libc's: this program's threads of the disk wait here. */
ssize_t preadv(int fd, const struct iovec *v, int n, off_t offset)
{
    if (hangs) sem_wait(&gate);
    return syscall(SYS_preadv, fd, v, n, (long)offset, 0L);
}

static void *read_disk(void *disk)
{
    static _Alignas(PS_PAGE_BYTES) char page[PS_PAGE_BYTES];
    ps_event done;
    assert_ok(ps_disk_read(disk, 0, page, sizeof page, NULL, &done));
    assert_ok(ps_event_wait(done));
    assert_int_equal(page[17], 42);
    return NULL;
}

static void test_disk(void **state)
{
    (void)state;
    static _Alignas(PS_PAGE_BYTES) char page[PS_PAGE_BYTES];
    ps_disk *d = NULL;
    ps_event done;
    pthread_t reader;
    timed w = begin();
    sem_init(&gate, 0, 0);
    assert_ok(ps_disk_open("/tmp", PS_DISK_THREADS, 1, &d));
    page[17] = 42;
    assert_ok(ps_disk_write(d, 0, page, sizeof page, NULL, &done));
    assert_ok(ps_event_wait(done));
    hangs = true;
    assert_int_equal(pthread_create(&reader, NULL, read_disk, d), 0);
    await_busy();
    do {
        seen.n = 0; /* the reader may still have been issuing it */
        while (seen.n == 0) pass(&w, 11);
    } while (strstr(seen.text, "waits for item 2") == NULL);
    says("waits for item 2 of queue disk (read of ");
    says(" at offset 0 of temporary file in /tmp");
    hangs = false;
    sem_post(&gate);
    pthread_join(reader, NULL);
    ps_disk_close(d);
    end(&w);
}

/* ---- the thread that looks ---- */

static sem_t reported;

static void note_report(void *user, const char *text)
{
    (void)user, (void)text;
    sem_post(&reported);
}

static void test_thread(void **state)
{
    (void)state;
    ps_stall_watch *first, *second;
    ps_stall_entry s;
    sem_init(&reported, 0, 0);
    ps_set_stall(note_report, NULL);
    assert_ok(ps_stall_open(&(ps_stall_options){.stall_ns = 3600 * SECOND_NS}, &first));
    assert_ok(ps_stall_open(&(ps_stall_options){.stall_ns = SECOND_NS / 50}, &second));
    ps_stall_begin(&s, "computes", "something", -1);
    sem_wait(&reported); /* of the second */
    ps_stall_end(&s);
    ps_stall_close(second);
    ps_stall_close(first);
    ps_set_stall(NULL, NULL);
    ps_stall_begin(&s, "computes", "without a watch", -1);
    assert_false(ps_stall_is_busy());
    ps_stall_end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_call_of_queue),   cmocka_unit_test(test_queues_end_meanwhile),
        cmocka_unit_test(test_slow_work),       cmocka_unit_test(test_stopped_process),
        cmocka_unit_test(test_waits_for_ranks), cmocka_unit_test(test_disk),
        cmocka_unit_test(test_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
