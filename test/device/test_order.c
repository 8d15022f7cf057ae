/* test_order.c - the checker of order: which pairs it reports, against all that can be ordered worked out by hand and
 * by brute force; what queues, the disk and devices tell it; and that it forgets. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/status.h"
#include "cuda/fake_cpu.h"
#include "device/order.h"

#define assert_ok(expr) assert_int_equal((expr), PS_OK)

/* ---- by hand: queues that are only described ---- */

enum { READ, WRITE };

typedef struct bench {
    ps_order *o;
    int q[3];
    ps_ticket t[3];
} bench;

static int open_bench(void **state)
{
    static bench b;
    static const char *const names[] = {"compute", "to-device", "to-host"};
    b = (bench){0};
    assert_ok(ps_order_create(false, &b.o));
    for (int i = 0; i < 3; i++) b.q[i] = ps_order_add_queue(b.o, names[i], PS_ORDER_IN_ORDER);
    *state = &b;
    return 0;
}

static int close_bench(void **state)
{
    const bench *b = *state;
    for (int i = 0; i < 3; i++) ps_order_remove_queue(b->o, b->q[i]);
    ps_order_destroy(b->o);
    ps_order_destroy(NULL);
    assert_int_equal(ps_mem_live_bytes(), 0);
    return 0;
}

static const void *at(uint64_t address)
{
    return (const void *)(uintptr_t)address;
}

/* An item of bytes [begin, end). */
static void item(bench *b, int queue, const char *name, int mode, uint64_t begin, uint64_t end)
{
    const ps_use use = {at(begin), (int64_t)(end - begin), mode == WRITE, NULL};
    ps_order_issue(b->o, b->q[queue], ++b->t[queue], name, &use, 1);
}

/* `queue` waits for all of `from`. */
static void wait_for(bench *b, int queue, int from)
{
    ++b->t[queue];
    ps_order_queue_wait(b->o, b->q[queue], b->t[queue], b->q[from], b->t[from]);
}

static void host_waits(bench *b, int from)
{
    ps_order_host_wait(b->o, b->q[from], b->t[from]);
}

static int64_t n_reports(const bench *b)
{
    return ps_order_get_stats(b->o).n_reports;
}

typedef enum how { NOTHING, SAME_QUEUE, EVENT, HOST_WAIT, CHAIN, LATER_ITEM, TOO_EARLY, HOW_COUNT } how;

/* Each kind of pair, in each way that orders it or does not. */
static void test_pairs(void **state)
{
    bench *b = *state;
    int64_t expected = 0;
    for (int first = READ; first <= WRITE; first++)
        for (int second = READ; second <= WRITE; second++)
            for (how h = NOTHING; h < HOW_COUNT; h++) {
                item(b, 2, "early", READ, 0x9000, 0x9001);
                const ps_ticket early = b->t[2];
                if (h == TOO_EARLY) wait_for(b, 0, 2);
                item(b, 2, "first", first, 0x1000, 0x1100);
                if (h == EVENT) wait_for(b, 0, 2);
                if (h == LATER_ITEM) item(b, 2, "behind it", READ, 0x9000, 0x9001), wait_for(b, 0, 2);
                if (h == HOST_WAIT) host_waits(b, 2);
                if (h == CHAIN) wait_for(b, 1, 2), wait_for(b, 0, 1);
                item(b, h == SAME_QUEUE ? 2 : 0, "second", second, 0x1000, 0x1100);
                const bool is_ordered = h != NOTHING && h != TOO_EARLY;
                if ((first == WRITE || second == WRITE) && !is_ordered) expected++;
                assert_int_equal(n_reports(b), expected);
                assert_true(early > 0);
                for (int q = 0; q < 3; q++) host_waits(b, q);
            }
    assert_int_equal(expected, 2 * 3);
}

/* What the host touches: after what it has waited for, before what it issues. */
static void test_the_host_touches(void **state)
{
    bench *b = *state;
    ps_order_touch(b->o, "put", at(0x1000), 16, true);
    item(b, 0, "gelu", READ, 0x1000, 0x1010);
    ps_order_touch(b->o, "look", at(0x1000), 16, false);
    assert_int_equal(n_reports(b), 0);
    ps_order_touch(b->o, "free", at(0x100f), 16, true);
    assert_int_equal(n_reports(b), 1);
    host_waits(b, 0);
    ps_order_touch(b->o, "free", at(0x1000), 16, true);
    item(b, 1, "copy", WRITE, 0x1000, 0x1010);
    assert_int_equal(n_reports(b), 1);
    ps_order_touch(b->o, "look", at(0x1000), 16, false);
    assert_int_equal(n_reports(b), 2);
    ps_order_touch(NULL, "look", at(0x1000), 16, false);
    assert_int_equal(ps_order_get_stats(b->o).n_touches, 5);
    assert_int_equal(ps_order_get_stats(b->o).n_items, 2);
}

/* Two ranges in all positions to each other, each of 1 to 4 bytes; bytes side by side are no conflict. */
static void test_overlaps(void **state)
{
    bench *b = *state;
    int64_t expected = 0;
    for (uint64_t a = 8; a < 16; a++)
        for (uint64_t a_end = a + 1; a_end <= a + 4; a_end++)
            for (uint64_t c = 4; c < 20; c++)
                for (uint64_t c_end = c; c_end <= c + 4; c_end++) {
                    item(b, 0, "first", WRITE, a, a_end);
                    item(b, 1, "second", READ, c, c_end);
                    if (c < c_end && c < a_end && a < c_end) expected++;
                    assert_int_equal(n_reports(b), expected);
                    host_waits(b, 0);
                    host_waits(b, 1);
                }
}

/* A write over the middle of another, and over several with gaps between them: what is left of each still counts. */
static void test_ranges_are_split(void **state)
{
    bench *b = *state;
    item(b, 0, "wide", WRITE, 100, 200);
    host_waits(b, 2);
    wait_for(b, 1, 0);
    item(b, 1, "middle", WRITE, 140, 160);
    assert_int_equal(n_reports(b), 0);
    wait_for(b, 2, 0); /* knows "wide" only */
    item(b, 2, "left", WRITE, 100, 140);
    item(b, 2, "right", WRITE, 160, 200);
    assert_int_equal(n_reports(b), 0);
    item(b, 2, "one byte of the middle", READ, 159, 160);
    assert_int_equal(n_reports(b), 1);
    item(b, 0, "all, and more", READ, 50, 300); /* left, the middle in two ranges, right */
    assert_int_equal(n_reports(b), 5);
    item(b, 1, "gap before", WRITE, 60, 70);
    assert_int_equal(n_reports(b), 6);
}

static void test_addresses_are_forgotten(void **state)
{
    bench *b = *state;
    item(b, 0, "write", WRITE, 100, 200);
    item(b, 0, "write", WRITE, 300, 400);
    ps_order_forget(b->o, at(120), 230); /* to 350 */
    ps_order_forget(b->o, at(1000), 10);
    ps_order_forget(NULL, at(0), 10);
    item(b, 1, "read", READ, 120, 350);
    assert_int_equal(n_reports(b), 0);
    item(b, 1, "read", READ, 119, 120);
    item(b, 1, "read", READ, 350, 351);
    assert_int_equal(n_reports(b), 2);
}

/* Readers of several queues: the writer must know each of them. */
static void test_a_write_after_several_reads(void **state)
{
    bench *b = *state;
    for (int q = 0; q < 3; q++) item(b, q, "read", READ, 10, 20);
    assert_int_equal(n_reports(b), 0);
    wait_for(b, 0, 1);
    item(b, 0, "write", WRITE, 10, 20); /* the one of queue 2 */
    assert_int_equal(n_reports(b), 1);
    item(b, 1, "read again", READ, 10, 20);
    assert_int_equal(n_reports(b), 2);
}

/* An item may read and write the same bytes, and name them more than once. */
static void test_an_item_is_no_pair(void **state)
{
    const bench *b = *state;
    const ps_use uses[] = {
        {at(16), 16, false, "x"}, {at(16), 16, true, "y"}, {at(20), 4, false, NULL}, {at(0), 0, true, NULL}};
    for (ps_ticket t = 1; t < 4; t++) ps_order_issue(b->o, b->q[0], t, "gelu", uses, 4);
    assert_int_equal(n_reports(b), 0);
    assert_int_equal(ps_order_get_stats(b->o).n_unnamed, 0);
    ps_order_issue(b->o, b->q[0], 4, "unknown", NULL, 0);
    assert_int_equal(ps_order_get_stats(b->o).n_unnamed, 1);
}

/* Queues in any order: items know nothing of each other, each has its event, and what is waited for holds for one. */
static void test_any_order(void **state)
{
    bench *b = *state;
    const int disk = ps_order_add_queue(b->o, "disk", PS_ORDER_ANY_ORDER);
    const ps_use buffer[] = {{at(0x1000), 16, true, NULL}, {at(0x2000), 16, true, NULL}, {at(0x3000), 16, true, NULL}};
    for (int i = 0; i < 3; i++) ps_order_issue(b->o, disk, (ps_ticket)i + 1, "read", &buffer[i], 1);
    ps_order_host_wait(b->o, disk, 3);
    ps_order_touch(b->o, "look", at(0x3000), 16, false);
    assert_int_equal(n_reports(b), 0);
    ps_order_touch(b->o, "look", at(0x2000), 16, false); /* the later one is done, this one need not be */
    assert_int_equal(n_reports(b), 1);
    b->t[0]++;
    ps_order_queue_wait(b->o, b->q[0], b->t[0], disk, 1);
    item(b, 0, "gelu", WRITE, 0x1000, 0x1010);
    assert_int_equal(n_reports(b), 1);
    ps_order_queue_wait(b->o, disk, 4, b->q[0], b->t[0]);
    ps_order_issue(b->o, disk, 4, "write", &(ps_use){at(0x1000), 16, false, NULL}, 1);
    assert_int_equal(n_reports(b), 1);
    ps_order_issue(b->o, disk, 5, "write", &(ps_use){at(0x1000), 16, false, NULL}, 1); /* did not wait */
    assert_int_equal(n_reports(b), 2);
    ps_order_host_wait(b->o, disk, 4); /* and so for what it waited for */
    ps_order_touch(b->o, "free", at(0x1000), 16, true);
    assert_int_equal(n_reports(b), 3);
    ps_order_remove_queue(b->o, disk);
    ps_order_touch(b->o, "free", at(0x1000), 16, true);
    ps_order_touch(b->o, "free", at(0x2000), 16, true);
    assert_int_equal(n_reports(b), 3);
}

/* The host knows all of a queue without delay, and what it waits for; unless it is taken as one that works later. */
static void test_at_once(void **state)
{
    (void)state;
    for (int later = 0; later < 2; later++) {
        bench b = {.o = NULL};
        assert_ok(ps_order_create(later, &b.o));
        b.q[0] = ps_order_add_queue(b.o, "compute", PS_ORDER_AT_ONCE);
        b.q[1] = ps_order_add_queue(b.o, "copies", PS_ORDER_IN_ORDER);
        item(&b, 1, "copy", WRITE, 0, 8);
        wait_for(&b, 0, 1);
        item(&b, 0, "gelu", WRITE, 0, 8);
        assert_int_equal(n_reports(&b), 0);
        ps_order_touch(b.o, "free", at(0), 8, true);
        assert_int_equal(n_reports(&b), later ? 2 - 1 : 0);
        item(&b, 1, "copy", WRITE, 0, 8);
        assert_int_equal(n_reports(&b), later ? 2 : 0);
        item(&b, 0, "gelu", READ, 7, 9); /* without a wait, in any case */
        assert_int_equal(n_reports(&b), later ? 3 : 1);
        ps_order_destroy(b.o);
    }
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void test_texts(void **state)
{
    bench *b = *state;
    assert_null(ps_order_text(b->o, 0));
    for (int i = 0; i < 20; i++) { /* one text, whatever the numbers */
        const ps_use x = {at(0x1000), 64, true, "x"};
        ps_order_issue(b->o, b->q[1], ++b->t[1], "copy", &x, 1);
        item(b, 0, "gelu", READ, 0x1010, 0x1020);
    }
    assert_string_equal(ps_order_text(b->o, 0), "compute: gelu 1 reads 16 bytes at 0x1010: nothing orders it after "
                                                "to-device: copy 1, which writes x, 64 bytes at 0x1000");
    ps_order_touch(b->o, "free", at(0x1000), 1, true);
    const ps_use file = {at(PS_ORDER_IN_FILE | 8192), 4096, true, NULL};
    ps_order_issue(b->o, b->q[0], ++b->t[0], "write", &file, 1);
    ps_order_issue(b->o, b->q[1], ++b->t[1], "write", &file, 1);
    const char *const last = "to-device: write 21 writes 4096 bytes at 8192 of a file: nothing orders it after "
                             "compute: write 21, which writes 4096 bytes at 8192 of a file";
    bool found_free = false, found_file = false;
    int n = 0;
    for (const char *text; (text = ps_order_text(b->o, n)) != NULL; n++) {
        found_free = found_free ||
                     strstr(text, "host: free writes 1 bytes at 0x1000: nothing orders it after to-device") == text;
        found_file = found_file || strcmp(text, last) == 0;
    }
    assert_true(found_free && found_file);
    assert_int_equal(n, 4); /* gelu after copy, copy after gelu, free, and the file */
    assert_true(n_reports(b) > 20);
}

static void *issue_elsewhere(void *arg)
{
    bench *b = arg;
    host_waits(b, 0); /* orders nothing for the host */
    ps_order_touch(b->o, "look", at(0), 8, true);
    item(b, 1, "copy", READ, 0x100, 0x108);
    return NULL;
}

static void test_other_threads(void **state)
{
    bench *b = *state;
    pthread_t thread;
    item(b, 0, "gelu", WRITE, 0, 8);
    assert_int_equal(pthread_create(&thread, NULL, issue_elsewhere, b), 0);
    pthread_join(thread, NULL);
    assert_int_equal(n_reports(b), 1);
    assert_string_equal(ps_order_text(b->o, 0), "to-device: copy is issued by another thread than the checker's");
    ps_order_touch(b->o, "look", at(0), 8, false);
    assert_int_equal(n_reports(b), 2);
}

/* Each allocation fails once: the checker says that it gave up, and accepts all further calls. */
static void test_it_gives_up_without_memory(void **state)
{
    (void)state;
    bool was_created = true;
    long n = 0;
    for (bool struck = true; struck; n++) {
        bench b = {.o = NULL};
        ps_fault_arm(PS_FAULT_ALLOC, n, false);
        was_created = ps_order_create(false, &b.o) == PS_OK;
        for (int i = 0; was_created && i < 3; i++) b.q[i] = ps_order_add_queue(b.o, "q", PS_ORDER_IN_ORDER);
        for (int i = 0; was_created && i < 40; i++) {
            item(&b, i % 3, "item", WRITE, (uint64_t)i * 16, (uint64_t)i * 16 + 8);
            wait_for(&b, (i + 1) % 3, i % 3);
            if (i % 8 == 0) host_waits(&b, i % 3);
        }
        for (int i = 0; was_created && i < 3; i++) ps_order_remove_queue(b.o, b.q[i]);
        struck = ps_fault_has_struck(PS_FAULT_ALLOC);
        ps_fault_arm(PS_FAULT_ALLOC, -1, false);
        if (was_created) assert_int_equal(n_reports(&b), struck);
        if (was_created && struck)
            assert_string_equal(ps_order_text(b.o, 0), "the checker of order ran out of memory, and stops checking");
        ps_order_destroy(b.o);
        assert_int_equal(ps_mem_live_bytes(), 0);
    }
    assert_true(n > 10);
}

/* ---- by brute force ---- */

enum { NODES_MAX = 256, QUEUES_MAX = 4, BYTES = 24 };

/* What happened, one after the other, and what is before what, closed over all chains. */
typedef struct node {
    bool reads[BYTES], writes[BYTES];
} node;

typedef struct program {
    ps_rng_key key;
    uint64_t n_drawn;
    ps_order *o;
    int n_queues, id[QUEUES_MAX];
    ps_order_kind kind[QUEUES_MAX];
    ps_ticket issued[QUEUES_MAX];
    int node_of[QUEUES_MAX][NODES_MAX]; /* by ticket */
    int last[QUEUES_MAX];               /* -1: none */
    int waits_for[QUEUES_MAX];          /* in any order: what the next item waits for; -1: nothing */
    int host;                           /* the last thing that the host did; -1: none */
    int n;
    node nodes[NODES_MAX];
    bool before[NODES_MAX][NODES_MAX], reported[NODES_MAX][NODES_MAX];
} program;

static const char *const queue_names[QUEUES_MAX] = {"0", "1", "2", "3"};

static int draw(program *p, int n)
{
    return (int)(ps_rng_u32(p->key, p->n_drawn++) % (uint32_t)n);
}

static int node_new(program *p)
{
    assert_true(p->n < NODES_MAX);
    p->nodes[p->n] = (node){0};
    return p->n++;
}

static void put_before(program *p, int a, int b)
{
    if (a < 0) return;
    p->before[a][b] = true;
    for (int i = 0; i < a; i++) p->before[i][b] = p->before[i][b] || p->before[i][a];
}

static bool is_race(const program *p, int a, int b)
{
    const node *x = &p->nodes[a], *y = &p->nodes[b];
    for (int i = 0; i < BYTES && !p->before[a][b]; i++)
        if ((x->writes[i] && (y->reads[i] || y->writes[i])) || (x->reads[i] && y->writes[i])) return true;
    return false;
}

static void note_report(void *user, const ps_order_access *first, const ps_order_access *second)
{
    program *p = user;
    assert_true(first->end > second->begin && second->end > first->begin);
    assert_true(first->is_write || second->is_write);
    assert_string_not_equal(first->queue, "host"); /* what it touches is before all that comes */
    const int queue = first->queue[0] - '0';
    p->reported[p->node_of[queue][first->ticket]][p->n - 1] = true;
}

static int draw_uses(program *p, ps_use *uses, int n_max)
{
    const int n = draw(p, n_max) + 1;
    for (int i = 0; i < n; i++) {
        const int begin = draw(p, BYTES), bytes = draw(p, BYTES - begin + 1) % 8;
        uses[i] = (ps_use){at((uint64_t)begin), bytes, draw(p, 2) == 0, NULL};
        bool *touched = uses[i].is_write ? p->nodes[p->n - 1].writes : p->nodes[p->n - 1].reads;
        memset(touched + begin, true, (size_t)bytes);
    }
    return n;
}

static void issue_item(program *p, int q)
{
    const int i = node_new(p);
    ps_use uses[3];
    const int n_uses = draw_uses(p, uses, 3);
    put_before(p, p->host, i);
    if (p->kind[q] != PS_ORDER_ANY_ORDER) put_before(p, p->last[q], i);
    put_before(p, p->waits_for[q], i);
    p->waits_for[q] = -1;
    p->last[q] = i;
    p->node_of[q][++p->issued[q]] = i;
    if (p->kind[q] == PS_ORDER_AT_ONCE) p->host = i;
    ps_order_issue(p->o, p->id[q], p->issued[q], "item", uses, n_uses);
}

static void touch_by_host(program *p)
{
    const int i = node_new(p);
    ps_use use;
    (void)draw_uses(p, &use, 1);
    put_before(p, p->host, i);
    p->host = i;
    ps_order_touch(p->o, "touch", use.address, use.bytes, use.is_write);
}

/* q: -1 for the host. */
static void wait_for_event(program *p, int q)
{
    const int from = draw(p, p->n_queues);
    if (from == q || p->issued[from] == 0) return;
    const ps_ticket t = p->issued[from] - (ps_ticket)draw(p, (int)(p->issued[from] < 4 ? p->issued[from] : 4));
    const int event = p->node_of[from][t], i = node_new(p);
    put_before(p, event, i);
    if (q < 0 || p->kind[q] == PS_ORDER_AT_ONCE) {
        put_before(p, p->host, i);
        p->host = i;
        if (q < 0) ps_order_host_wait(p->o, p->id[from], t);
    } else if (p->kind[q] == PS_ORDER_ANY_ORDER) {
        put_before(p, p->waits_for[q], i);
        p->waits_for[q] = i;
    } else {
        put_before(p, p->last[q], i);
        p->last[q] = i;
    }
    if (q < 0) return;
    if (p->kind[q] != PS_ORDER_ANY_ORDER) p->node_of[q][++p->issued[q]] = i;
    ps_order_queue_wait(p->o, p->id[q], p->issued[q], p->id[from], t);
}

/* Make a queue anew, in the place of one that the host has waited for. */
static void replace_queue(program *p, int q)
{
    const int i = node_new(p);
    put_before(p, p->host, i);
    put_before(p, p->last[q], i);
    if (p->kind[q] == PS_ORDER_ANY_ORDER)
        for (ps_ticket t = 1; t <= p->issued[q]; t++) put_before(p, p->node_of[q][t], i);
    p->host = i;
    p->last[q] = p->waits_for[q] = -1;
    p->issued[q] = 0;
    ps_order_remove_queue(p->o, p->id[q]);
    p->kind[q] = (ps_order_kind)draw(p, 3);
    p->id[q] = ps_order_add_queue(p->o, queue_names[q], p->kind[q]);
}

/* The items that are reported are just those that race with one before, and so is each pair. */
static int compare(const program *p)
{
    int n_racing = 0;
    for (int b = 0; b < p->n; b++) {
        bool races = false, is_reported = false;
        for (int a = 0; a < b; a++) {
            const bool race = is_race(p, a, b);
            if (p->reported[a][b]) assert_true(race);
            races = races || race;
            is_reported = is_reported || p->reported[a][b];
        }
        assert_int_equal(races, is_reported);
        n_racing += races;
    }
    return n_racing;
}

static int run_program(program *p, uint64_t seed)
{
    enum { STEPS = 100 };
    memset(p, 0, sizeof *p);
    p->key = (ps_rng_key){seed, 7};
    p->host = -1;
    assert_ok(ps_order_create(false, &p->o));
    ps_order_set_listener(p->o, note_report, p);
    p->n_queues = 2 + draw(p, QUEUES_MAX - 1);
    for (int q = 0; q < p->n_queues; q++) {
        p->kind[q] = (ps_order_kind)draw(p, 3);
        p->id[q] = ps_order_add_queue(p->o, queue_names[q], p->kind[q]);
        p->last[q] = p->waits_for[q] = -1;
    }
    const int waits = draw(p, 5), host_waiting = draw(p, 3); /* programs with many, few and hardly any */
    for (int i = 0; i < STEPS; i++) {
        const int what = draw(p, 8 + 6 * waits + host_waiting), q = draw(p, p->n_queues);
        if (what < 6)
            issue_item(p, q);
        else if (what == 6)
            touch_by_host(p);
        else if (what == 7 && draw(p, 4) == 0)
            replace_queue(p, q);
        else
            wait_for_event(p, what >= 8 + 6 * waits ? -1 : q);
    }
    const int n_racing = compare(p);
    for (int q = 0; q < p->n_queues; q++) ps_order_remove_queue(p->o, p->id[q]);
    ps_order_destroy(p->o);
    assert_int_equal(ps_mem_live_bytes(), 0);
    return n_racing;
}

static void test_against_brute_force(void **state)
{
    (void)state;
    static program p;
    int n_clean = 0, n_racing = 0;
    for (uint64_t seed = 0; seed < 600; seed++) {
        const int n = run_program(&p, seed);
        n_racing += n;
        n_clean += n == 0;
    }
    assert_true(n_clean > 0 && n_racing > 1000);
}

/* ---- it forgets ---- */

/* A long run in order, the host waiting now and then: what is remembered does not grow. */
static void test_memory_is_bounded(void **state)
{
    bench *b = *state;
    const int disk = ps_order_add_queue(b->o, "disk", PS_ORDER_ANY_ORDER);
    int64_t early_bytes = 0;
    enum { STEPS = 3000, MOMENTS = 40 };
    for (int step = 0; step < STEPS; step++) {
        for (int m = 0; m < MOMENTS; m++) {
            const uint64_t place = 0x10000 + (uint64_t)(step * 7 + m * 13) % 1000 * 64;
            const ps_use read = {at(place), 64, true, NULL};
            const ps_ticket transfer = (ps_ticket)(step * MOMENTS + m + 1);
            ps_order_queue_wait(b->o, disk, transfer, b->q[0], b->t[0]);
            ps_order_issue(b->o, disk, transfer, "read", &read, 1);
            ps_order_queue_wait(b->o, b->q[1], ++b->t[1], disk, transfer);
            item(b, 1, "copy", READ, place, place + 64);
            wait_for(b, 0, 1);
            item(b, 0, "gelu", WRITE, place + 8, place + 24);
        }
        host_waits(b, 0);
        if (step == STEPS / 10) early_bytes = ps_mem_live_bytes();
    }
    assert_int_equal(n_reports(b), 0);
    assert_int_equal(ps_mem_live_bytes(), early_bytes);
    assert_true(early_bytes < 128 * PS_KIB);
    ps_order_remove_queue(b->o, disk);
}

/* Queues that come and go: an item not waited for races with the next two, then its queue goes. */
static void test_queues_come_and_go(void **state)
{
    bench *b = *state;
    int64_t early_bytes = 0;
    for (int i = 0; i < 2000; i++) {
        ps_order_remove_queue(b->o, b->q[i % 3]);
        b->t[i % 3] = 0;
        b->q[i % 3] = ps_order_add_queue(b->o, "new", PS_ORDER_IN_ORDER);
        item(b, i % 3, "copy", WRITE, 0, 64);
        if (i == 100) early_bytes = ps_mem_live_bytes();
        if (i % 2 == 0) host_waits(b, i % 3);
        assert_int_equal(n_reports(b), i > 0 ? i - 1 : 0);
    }
    assert_int_equal(ps_mem_live_bytes(), early_bytes);
}

/* The lanes of items of a queue in any order are left for others. */
static void test_lanes_are_used_again(void **state)
{
    bench *b = *state;
    int64_t early_bytes = 0;
    int old = -1;
    for (int i = 0; i < 10; i++) {
        const int disk = ps_order_add_queue(b->o, "disk", PS_ORDER_ANY_ORDER);
        ps_order_remove_queue(b->o, old); /* so that the next one has another place */
        for (ps_ticket t = 1; t <= 50; t++) ps_order_issue(b->o, disk, t, "read", &(ps_use){at(t), 1, true, NULL}, 1);
        for (ps_ticket t = 1; t <= 50; t++) ps_order_host_wait(b->o, disk, t);
        ps_order_touch(b->o, "look", at(0), 64, true); /* none of them is remembered */
        ps_order_remove_queue(b->o, disk);
        old = ps_order_add_queue(b->o, "new", PS_ORDER_IN_ORDER);
        if (i == 0) early_bytes = ps_mem_live_bytes();
    }
    assert_int_equal(ps_mem_live_bytes(), early_bytes);
    ps_order_remove_queue(b->o, old);
}

/* ---- what queues, devices and the disk tell ---- */

typedef struct tiers {
    ps_order *o;
    ps_device *dev;
    ps_queue *compute, *copies;
    char *block, *host; /* of the device; of the host next to it */
} tiers;

static void open_tiers(tiers *t, const ps_device_ops *ops, bool as_if_later)
{
    assert_ok(ps_order_create(as_if_later, &t->o));
    assert_ok(ps_device_create(ops, "device", 64 * PS_PAGE_BYTES, &t->dev));
    assert_ok(ps_device_set_order(t->dev, t->o));
    assert_ok(ps_queue_create(t->dev, "compute", PS_QUEUE_COMPUTE, &t->compute));
    assert_ok(ps_queue_create(t->dev, "copies", PS_QUEUE_COPY, &t->copies));
    assert_ok(ps_device_alloc(t->dev, PS_PAGE_BYTES, (void *)&t->block));
    assert_ok(ps_device_alloc(t->dev, PS_PAGE_BYTES, (void *)&t->host));
    assert_ok(ps_event_wait(ps_device_gave_after(t->dev))); /* memory without a past */
}

static void close_tiers(tiers *t)
{
    const int64_t n_reports_before = ps_order_get_stats(t->o).n_reports;
    ps_queue_destroy(t->copies);
    ps_queue_destroy(t->compute);
    ps_device_free(t->dev, t->block, PS_PAGE_BYTES, NULL); /* after all that the queues did */
    ps_device_free(t->dev, t->host, PS_PAGE_BYTES, NULL);
    assert_int_equal(ps_order_get_stats(t->o).n_reports, n_reports_before);
    ps_device_destroy(t->dev);
    ps_order_destroy(t->o);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static ps_status do_nothing(void *self, const void *args)
{
    (void)self, (void)args;
    return PS_OK;
}

static void call_of(const tiers *t, const void *p, bool is_write)
{
    const ps_use use = {p, 64, is_write, "x"};
    const ps_call c = {.name = "gelu", .run = do_nothing, .uses = &use, .n_uses = 1};
    assert_ok(ps_queue_call(t->compute, &c));
}

static void call(const tiers *t, const void *p)
{
    call_of(t, p, true);
}

static void expect(const tiers *t, int64_t n, const char *first, const char *second)
{
    const int64_t found = ps_order_get_stats(t->o).n_reports;
    if (found != n) print_message("%s\n", ps_order_text(t->o, 0));
    assert_int_equal(found, n);
    if (first == NULL) return;
    const char *last = NULL;
    for (int i = 0; ps_order_text(t->o, i) != NULL; i++) last = ps_order_text(t->o, i);
    assert_ptr_equal(strstr(last, second), last);
    assert_non_null(strstr(last, first));
}

static void test_queues_tell(void **state)
{
    (void)state;
    const ps_device_ops *const ops[] = {&ps_device_sim_ops, &ps_device_cpu_ops};
    for (int i = 0; i < 4; i++) {
        const bool later = i % 2 == 1;
        tiers t;
        open_tiers(&t, ops[i / 2], later);
        const bool copies_later = later || i / 2 == 1; /* those of RAM have a thread */
        assert_ok(ps_queue_copy(t.copies, t.block, t.host, 64));
        assert_ok(ps_queue_wait(t.compute, ps_queue_event(t.copies)));
        int64_t n = later; /* else the host has waited too */
        ps_order_touch(t.o, "look", t.block, 64, false);
        expect(&t, n, later ? "copies: copy 1, which writes 64 bytes" : NULL, "host: look reads 64 bytes");
        call(&t, t.block);
        expect(&t, n, NULL, NULL);
        assert_ok(ps_queue_fill(t.copies, t.block + 32, 1, 1)); /* has not waited for the call */
        n += later;
        expect(&t, n, later ? "compute: gelu 2, which writes x, 64 bytes" : NULL, "copies: fill 2 writes 1 bytes");
        assert_ok(ps_event_wait(ps_queue_event(t.compute)));
        assert_ok(ps_queue_copy(t.copies, t.block, t.host, 64));
        expect(&t, n, NULL, NULL);
        call_of(&t, t.block, false);
        n += copies_later;
        if (copies_later) expect(&t, n, "copies: copy 3, which writes 64 bytes", "compute: gelu 3 reads x, 64 bytes");
        assert_ok(ps_queue_wait(t.copies, ps_queue_event(t.compute)));
        assert_ok(ps_queue_put(t.copies, t.block, t.host, 64)); /* the source is read at once */
        ps_order_touch(t.o, "fill in", t.host, 64, true);
        n += copies_later; /* the copies before it read it */
        expect(&t, n, copies_later ? "copies: copy 3, which reads" : NULL, "host: fill in writes");
        if (i == 1) { /* where nothing is done: it would be wrong */
            assert_ok(ps_queue_copy(t.copies, t.host + 1024, t.block, 64));
            assert_ok(ps_queue_put(t.compute, t.block + 1024, t.host + 1024, 64)); /* of what is still to come */
            expect(&t, ++n, "copies: copy", "host: put reads 64 bytes");
        }
        assert_ok(ps_queue_get(t.copies, t.host, t.block, 64));
        ps_order_touch(t.o, "look", t.host, 64, false);
        expect(&t, n, NULL, NULL);
        assert_int_equal(ps_order_get_stats(t.o).n_unnamed, 0);
        close_tiers(&t);
    }
}

/* What is freed must be unused; the call that frees it says after what. Here the host waits. */
static void test_a_free_tells(void **state)
{
    (void)state;
    tiers t;
    ps_region *r = NULL;
    open_tiers(&t, &ps_device_cpu_ops, true);
    for (int good = 1; good >= 0; good--) {
        ps_events after = {.n = 0};
        call(&t, t.block);
        if (good) ps_events_add(&after, ps_queue_event(t.compute));
        ps_device_free(t.dev, t.block, PS_PAGE_BYTES, &after);
        expect(&t, !good, good ? NULL : "compute: gelu", "host: free writes 4096 bytes");
        assert_ok(ps_device_alloc(t.dev, PS_PAGE_BYTES, (void *)&t.block));
    }
    assert_ok(ps_region_create(t.dev, 4 * PS_PAGE_BYTES, &r));
    assert_ok(ps_region_commit(r, 0, PS_PAGE_BYTES));
    call(&t, ps_region_base(r));
    ps_region_decommit(r, 0, PS_PAGE_BYTES, NULL);
    expect(&t, 2, "compute: gelu", "host: free writes 4096 bytes");
    ps_region_destroy(r);
    close_tiers(&t);
}

/* A trial of an asynchronous device: only the next user of the memory waits. */
static void test_a_release_tells(void **state)
{
    (void)state;
    enum { GOOD, SAYS_NOT_AFTER_WHAT, NEXT_WAITS_NOT, SKIPPED, CASES };
    tiers t;
    int64_t n = 0;
    open_tiers(&t, &ps_device_sim_ops, true);
    for (int i = 0; i < CASES; i++) {
        const bool is_early = i == SAYS_NOT_AFTER_WHAT || i == SKIPPED;
        const char *block = t.block;
        ps_events after = {.n = 0};
        call(&t, t.block);
        if (i == SKIPPED) ps_order_skip(t.o, PS_WAIT_FREE);
        if (i != SAYS_NOT_AFTER_WHAT) ps_events_add(&after, ps_queue_event(t.compute));
        ps_device_free(t.dev, t.block, PS_PAGE_BYTES, &after);
        n += is_early;
        expect(&t, n, i == SAYS_NOT_AFTER_WHAT ? "compute: gelu" : NULL, "releases: release");
        assert_ok(ps_device_alloc(t.dev, PS_PAGE_BYTES, (void *)&t.block));
        assert_ptr_equal(t.block, block);
        n += is_early; /* what is given counts as written */
        expect(&t, n, NULL, NULL);
        if (i != NEXT_WAITS_NOT) assert_ok(ps_queue_wait(t.copies, ps_device_gave_after(t.dev)));
        assert_ok(ps_queue_copy(t.copies, t.block, t.host, 64));
        n += i != GOOD; /* after gelu, or after the release */
        expect(&t, n, NULL, NULL);
        assert_ok(ps_event_wait(ps_queue_event(t.copies)));
        assert_ok(ps_event_wait(ps_queue_event(t.compute)));
        assert_ok(ps_event_wait(ps_device_gave_after(t.dev)));
    }
    assert_int_equal(ps_order_n_waits(t.o, PS_WAIT_FREE), 3);
    ps_device_set_keep(t.dev, false); /* what is freed is no more, and the same addresses other memory */
    ps_device_free(t.dev, t.block, PS_PAGE_BYTES, NULL);
    ps_order_touch(t.o, "look", t.block, 64, false);
    expect(&t, n, NULL, NULL);
    assert_ok(ps_device_alloc(t.dev, PS_PAGE_BYTES, (void *)&t.block));
    assert_ok(ps_device_set_order(t.dev, NULL)); /* no longer */
    assert_null(ps_device_gave_after(t.dev).queue);
    close_tiers(&t);
}

/* A wait that is skipped orders nothing, and no other one is. */
static void test_waits_are_switched_off(void **state)
{
    (void)state;
    for (ps_wait_site off = 0; off <= PS_WAIT_SITE_COUNT; off++) {
        tiers t;
        open_tiers(&t, &ps_device_sim_ops, true);
        if (off < PS_WAIT_SITE_COUNT) ps_order_skip(t.o, off);
        int64_t expected = 0;
        for (ps_wait_site site = 0; site < PS_WAIT_SITE_COUNT; site++)
            for (int kind = 0; kind < 4; kind++) {
                call(&t, t.block);
                const ps_event e = ps_queue_event(t.compute);
                ps_events all = {.n = 0};
                ps_events_add(&all, e);
                if (kind == 0) assert_ok(ps_queue_wait_at(t.copies, e, site));
                if (kind == 1) assert_ok(ps_queue_wait_all_at(t.copies, &all, site));
                if (kind == 2) assert_ok(ps_event_wait_at(e, site));
                if (kind == 3) assert_ok(ps_events_wait_at(&all, site));
                assert_int_equal(ps_order_n_waits(t.o, site), kind + 1);
                assert_ok(ps_queue_copy(t.copies, t.host, t.block, 64));
                expected += site == off;
                expect(&t, expected, NULL, NULL);
                assert_ok(ps_event_wait(ps_queue_event(t.copies)));
                assert_ok(ps_event_wait(ps_queue_event(t.compute)));
            }
        assert_ok(ps_queue_wait_at(t.copies, (ps_event){NULL, 0}, 0)); /* nothing: no wait */
        assert_ok(ps_queue_wait_at(t.copies, ps_queue_event(t.copies), 0));
        assert_int_equal(ps_order_n_waits(t.o, 0), 4);
        close_tiers(&t);
    }
    for (ps_wait_site site = 0; site < PS_WAIT_SITE_COUNT; site++)
        assert_true(strlen(ps_wait_site_name(site)) > 0 && strlen(ps_wait_site_text(site)) > 0);
}

/* Of the device: an event waited for there is that of one transfer, and places in the file are memory too. */
static void test_the_disk_tells(void **state)
{
    (void)state;
    const ps_disk_backend backends[] = {PS_DISK_SIM, PS_DISK_THREADS};
    for (int i = 0; i < 2; i++) {
        tiers t;
        ps_disk *disk = NULL;
        ps_event write, read;
        open_tiers(&t, i == 0 ? &ps_device_sim_ops : &ps_device_cpu_ops, true);
        assert_ok(ps_disk_open("/tmp", backends[i], 2, &disk));
        ps_disk_set_order(disk, t.o);
        call(&t, t.block);
        assert_ok(ps_event_wait(ps_queue_event(t.compute)));
        assert_ok(ps_disk_write(disk, 0, t.block, PS_PAGE_BYTES, NULL, &write));
        call_of(&t, t.block, false);
        expect(&t, 0, NULL, NULL);
        call(&t, t.block); /* while it is written out */
        expect(&t, 1, "disk: write 1, which reads 4096 bytes", "compute: gelu");
        assert_ok(ps_event_wait(write));
        assert_ok(ps_disk_read(disk, 0, t.host, PS_PAGE_BYTES, NULL, &read));
        expect(&t, 1, NULL, NULL);
        assert_ok(ps_queue_wait(t.copies, read));
        assert_ok(ps_queue_copy(t.copies, t.host + 64, t.host, 64));
        expect(&t, 1, NULL, NULL);
        ps_order_touch(t.o, "look", t.host, 64, false);
        expect(&t, 2, "disk: read 2, which writes", "host: look");
        assert_ok(ps_disk_write(disk, 0, t.block, PS_PAGE_BYTES, NULL, &write)); /* the gelu, and what reads the file */
        expect(&t, 4, "which reads 4096 bytes at 0 of a file", "disk: write 3 writes 4096 bytes at 0 of a file");
        assert_ok(ps_event_wait(ps_queue_event(t.copies))); /* it waits for the disk */
        ps_disk_close(disk);
        assert_ok(ps_event_wait(ps_queue_event(t.compute)));
        ps_order_touch(t.o, "look", t.block, 64, true); /* the last write read it */
        expect(&t, 4, NULL, NULL);
        close_tiers(&t);
    }
}

/* Host code as items of a queue: after what it waits for, before what waits for it. */
static void test_a_host_queue_tells(void **state)
{
    (void)state;
    tiers t;
    ps_queue *adam = NULL;
    open_tiers(&t, &ps_device_sim_ops, true);
    assert_ok(ps_host_queue_create("adam", &adam));
    ps_queue_set_order(adam, t.o);
    const ps_use use = {t.block, 64, true, "w"};
    call(&t, t.block);
    ps_events after = {.n = 0};
    ps_events_add(&after, ps_queue_event(t.compute));
    const ps_event first = ps_host_queue_begin_item(adam, "update", &after, &use, 1);
    assert_ok(ps_queue_wait(t.copies, first));
    assert_ok(ps_queue_copy(t.copies, t.host, t.block, 64));
    assert_ok(ps_queue_wait(t.compute, ps_queue_event(t.copies)));
    call(&t, t.block);
    expect(&t, 0, NULL, NULL);
    const ps_event second = ps_host_queue_begin_item(adam, "update", &(ps_events){.n = 0}, &use, 1);
    assert_int_equal(second.ticket, 2);
    expect(&t, 1, "compute: gelu", "adam: update 2 writes w, 64 bytes");
    const ps_event bare = ps_host_queue_begin(adam);
    ps_host_queue_end(adam, bare.ticket, PS_OK);
    assert_ok(ps_event_wait(bare));
    ps_order_touch(t.o, "look", t.block, 64, false);
    expect(&t, 2, "compute: gelu", "host: look");
    ps_queue_destroy(adam);
    close_tiers(&t);
}

/* A device that really works later, and waits before it takes memory back: the same is found, whatever it does when. */
static void test_a_gpu_tells(void **state)
{
    (void)state;
    enum { BLOCK_BYTES = 1 << 16 };
    ps_gpu *gpu = NULL;
    tiers t = {.o = NULL};
    fake_cpu_begin(&(fake_options){.seed = 1, .page_bytes = BLOCK_BYTES});
    assert_ok(fake_cpu_open(&gpu));
    const ps_space *space = ps_gpu_space(gpu);
    assert_ok(ps_order_create(false, &t.o));
    assert_ok(ps_device_create_on(space->device, space->driver, space->page_bytes, "device", PS_MIB, &t.dev));
    assert_ok(ps_device_set_order(t.dev, t.o));
    assert_ok(ps_queue_create(t.dev, "compute", PS_QUEUE_COMPUTE, &t.compute));
    assert_ok(ps_queue_create(t.dev, "copies", PS_QUEUE_COPY, &t.copies));
    assert_ok(ps_device_alloc(t.dev, BLOCK_BYTES, (void *)&t.block));
    for (int waits = 1; waits >= 0; waits--) {
        const char *block = t.block;
        ps_events after = {.n = 0};
        assert_ok(ps_queue_fill(t.compute, t.block, 1, BLOCK_BYTES));
        ps_events_add(&after, ps_queue_event(t.compute));
        ps_device_free(t.dev, t.block, BLOCK_BYTES, &after);
        assert_ok(ps_device_alloc(t.dev, BLOCK_BYTES, (void *)&t.block));
        assert_ptr_equal(t.block, block);
        if (waits) assert_ok(ps_queue_wait(t.copies, ps_device_gave_after(t.dev)));
        assert_ok(ps_queue_fill(t.copies, t.block, 2, BLOCK_BYTES));
        expect(&t, !waits, waits ? NULL : "releases: release", "copies: fill");
        assert_ok(ps_queue_wait(t.compute, ps_queue_event(t.copies)));
    }
    ps_queue_destroy(t.compute);
    ps_queue_destroy(t.copies);
    ps_device_free(t.dev, t.block, BLOCK_BYTES, NULL);
    expect(&t, 1, NULL, NULL); /* queues that are gone have been waited for */
    ps_device_destroy(t.dev);
    ps_gpu_close(gpu);
    assert_true(fake_cpu_end());
    ps_order_destroy(t.o);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* Threads of the disk and of copies work while the host reports: nothing of the checker is theirs. */
static void test_real_threads(void **state)
{
    (void)state;
    tiers t;
    ps_disk *disk = NULL;
    open_tiers(&t, &ps_device_cpu_ops, false);
    assert_ok(ps_disk_open("/tmp", PS_DISK_THREADS, 4, &disk));
    ps_disk_set_order(disk, t.o);
    for (int i = 0; i < 100; i++) {
        ps_event write, read;
        call(&t, t.block);
        assert_ok(ps_queue_copy(t.copies, t.host, t.block, PS_PAGE_BYTES));
        assert_ok(ps_event_wait(ps_queue_event(t.copies)));
        assert_ok(ps_disk_write(disk, 0, t.host, PS_PAGE_BYTES, NULL, &write));
        assert_ok(ps_event_wait(write));
        assert_ok(ps_disk_read(disk, 0, t.host, PS_PAGE_BYTES, NULL, &read));
        assert_ok(ps_queue_wait(t.copies, read));
        assert_ok(ps_queue_copy(t.copies, t.block, t.host, PS_PAGE_BYTES));
        assert_ok(ps_queue_wait(t.compute, ps_queue_event(t.copies)));
    }
    expect(&t, 0, NULL, NULL);
    assert_ok(ps_event_wait(ps_queue_event(t.copies)));
    ps_disk_close(disk);
    close_tiers(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_pairs, open_bench, close_bench),
        cmocka_unit_test_setup_teardown(test_the_host_touches, open_bench, close_bench),
        cmocka_unit_test_setup_teardown(test_overlaps, open_bench, close_bench),
        cmocka_unit_test_setup_teardown(test_ranges_are_split, open_bench, close_bench),
        cmocka_unit_test_setup_teardown(test_addresses_are_forgotten, open_bench, close_bench),
        cmocka_unit_test_setup_teardown(test_a_write_after_several_reads, open_bench, close_bench),
        cmocka_unit_test_setup_teardown(test_an_item_is_no_pair, open_bench, close_bench),
        cmocka_unit_test_setup_teardown(test_any_order, open_bench, close_bench),
        cmocka_unit_test(test_at_once),
        cmocka_unit_test_setup_teardown(test_texts, open_bench, close_bench),
        cmocka_unit_test_setup_teardown(test_other_threads, open_bench, close_bench),
        cmocka_unit_test(test_it_gives_up_without_memory),
        cmocka_unit_test(test_against_brute_force),
        cmocka_unit_test_setup_teardown(test_memory_is_bounded, open_bench, close_bench),
        cmocka_unit_test_setup_teardown(test_queues_come_and_go, open_bench, close_bench),
        cmocka_unit_test_setup_teardown(test_lanes_are_used_again, open_bench, close_bench),
        cmocka_unit_test(test_queues_tell),
        cmocka_unit_test(test_a_free_tells),
        cmocka_unit_test(test_a_release_tells),
        cmocka_unit_test(test_waits_are_switched_off),
        cmocka_unit_test(test_the_disk_tells),
        cmocka_unit_test(test_a_host_queue_tells),
        cmocka_unit_test(test_a_gpu_tells),
        cmocka_unit_test(test_real_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
