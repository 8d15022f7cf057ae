/* stall.h - finds that nothing goes on any more, and says who waits for what.
 *
 *     count     items, pieces and parts of products that have ended, of all threads
 *     table     what threads are in: an operator, a wait for an item, a call that issues one
 *     watcher   a thread looks at both: while the table has entries and the count has stood for stall_ns, it reports
 *
 * Outside of the library the table is empty: a program may take any time to load data or to write a file. With several
 * ranks the counts of the others come with their heartbeats, and a rank waits as long as one of them goes on, or is
 * outside of its library.
 *
 * The count and the table are the process's, as are the places where threads wait. While no watch is open, nothing enters
 * the table. */
#ifndef PS_DEVICE_STALL_H
#define PS_DEVICE_STALL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "device/queue.h"

/* ---- the count ---- */

extern _Atomic uint64_t ps_stall_count;

/* Something has gone on: at least every few seconds of work. Any thread. */
static inline void ps_stall_progress(void)
{
    atomic_fetch_add_explicit(&ps_stall_count, 1, memory_order_relaxed);
}

/* ---- the table ---- */

/* On the stack of the thread that is in it. */
typedef struct ps_stall_entry {
    struct ps_stall_entry *before, *after;
    bool is_listed;
    pthread_t thread;
    const char *does; /* "computes", "waits for" */
    const char *name; /* of a moment or an item; NULL: none */
    int64_t number;   /* with name; -1: none */
    ps_queue *queue;  /* NULL: none */
    ps_ticket ticket;
    int64_t begin_ns;
} ps_stall_entry;

/* The thread begins what `does` says with something of this name; and it has ended. No lock of a queue may be held. */
void ps_stall_begin(ps_stall_entry *s, const char *does, const char *name, int64_t number);
void ps_stall_begin_item(ps_stall_entry *s, const char *does, ps_queue *q, ps_ticket t, const char *name);
void ps_stall_end(ps_stall_entry *s);
bool ps_stall_is_busy(void); /* the table has entries */

/* ---- several ranks ---- */

/* Another rank goes on, or is outside of its library. */
void ps_stall_note_peer(void);

/* ---- checkpoints ---- */

/* The run can continue from this checkpoint: for the report. */
void ps_stall_set_checkpoint(const char *path);

/* ---- watching ---- */

typedef struct ps_stall_watch ps_stall_watch;

typedef struct ps_stall_options {
    int64_t stall_ns; /* > 0 */
    /* On the watcher's thread, before the program is told (ps_set_stall): other ranks learn of it. NULL: none. */
    void (*tell)(void *user, const char *text);
    void *user;
    bool is_manual; /* of tests: no thread looks, but ps_stall_look does */
} ps_stall_options;

PS_NODISCARD ps_status ps_stall_open(const ps_stall_options *o, ps_stall_watch **out);
void ps_stall_close(ps_stall_watch *w); /* NULL is accepted */

/* One look at the time now_ns of ps_clock_ns: what was found, it has reported. */
bool ps_stall_look(int64_t now_ns);
/* While a stall is being reported, which may end the process: until that is over. */
void ps_stall_await_report(void);

#endif
