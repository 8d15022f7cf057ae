/* heartbeat.c - detects lost ranks. Every rank sends heartbeats to every other, and receives theirs; messages of the
 * control channel have a fixed size, so one receive is always posted.
 *
 * A rank that was not running (stopped, or on a suspended machine) may not declare the others lost: the time-out runs
 * only while this rank polls. */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/machine.h"
#include "chunk/comm/comm_impl.h"
#include "device/stall.h"

#define TEXT_MAX 640                    /* of c->failure */
#define LOOK_NS ((int64_t)1000000)      /* between checks, at least */
#define NOTICE_NS ((int64_t)1000000000) /* time limit for sending notices of a failure */
#define ENDING_NS ((int64_t)1000000000) /* after its connections have closed, a process has ended by then */

static const char has_deserted_text[] =
    "it ended, or left before the others: where an error ended it, its own output has "
    "that; else all ranks must make the same calls (state_dict, save, evaluate, "
    "generate), not one rank alone";

static ps_comm_peer *peer_of(ps_comm *c, int32_t rank)
{
    return &c->peers[rank];
}

/* From here on only callers are informed. Always false. */
static bool end_with(ps_comm *c, int32_t rank, const char *text)
{
    c->transport.ops->close(&c->transport, false);
    ps_comm_finish_payloads(c);
    pthread_mutex_lock(&c->lock);
    if (atomic_load(&c->failed_rank) < 0) { /* a caller may have set failed_rank because this thread was stuck */
        snprintf(c->failure, sizeof c->failure, "%s", text);
        ps_comm_set_failed(c, rank);
    }
    pthread_mutex_unlock(&c->lock);
    return false;
}

/* ", while waiting for the all-gather of group 7", or nothing. */
static void add_wait(const ps_comm *c, char *text, size_t text_bytes)
{
    const ps_comm_transfer *t = c->current;
    const size_t length = strlen(text);
    if (t != NULL)
        snprintf(text + length, text_bytes - length, ", while waiting for the %s%s%s", t->name,
                 t->what != NULL ? " of " : "", t->what != NULL ? t->what : "");
}

/* The last notice to the others. A lost rank is skipped; the transport is progressed a little after the last message
 * was accepted, because some only buffer it. */
static void report_failure(ps_comm *c, ps_comm_word word, int32_t rank, const char *text)
{
    static const int64_t linger_ns = 20000000;
    ps_transport *t = &c->transport;
    ps_comm_notice notice = {.word = (int32_t)word, .rank = rank};
    snprintf(notice.text, sizeof notice.text, "%s", text);
    const int64_t begin_ns = ps_clock_ns();
    int64_t accepted_ns = 0;
    for (int32_t r = 0; r < c->size; r++) c->peers[r].is_told = r == c->rank || (r == rank && word == PS_COMM_LOST);
    for (;;) {
        bool all_told = true;
        for (int32_t k = 1; k < c->size; k++) {
            ps_comm_peer *p = peer_of(c, (c->rank + k) % c->size);
            bool is_sent = true, is_heard = true;
            if (p->is_sending && !t->ops->test(t, &p->sending, &is_sent)) return;
            p->is_sending = !is_sent;
            if (p->is_receiving && !t->ops->test(t, &p->receiving, &is_heard)) return;
            p->is_receiving = !is_heard;
            if (is_sent && !p->is_told) {
                p->out = notice;
                p->is_told = true;
                if (!t->ops->send_begin(t, (c->rank + k) % c->size, PS_CHANNEL_CONTROL, &p->out, sizeof p->out,
                                        &p->sending))
                    return;
                p->is_sending = true;
            }
            all_told = all_told && p->is_told && !p->is_sending;
        }
        const int64_t now_ns = ps_clock_ns();
        if (all_told && accepted_ns == 0) accepted_ns = now_ns;
        if (accepted_ns != 0 && now_ns - accepted_ns > linger_ns) return;
        if (now_ns - begin_ns > ps_min_i64(NOTICE_NS, c->timeout_ns)) return;
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
}

static bool end_lost(ps_comm *c, int32_t rank)
{
    char text[TEXT_MAX];
    snprintf(text, sizeof text, "rank %d (%s) has not been heard of for %g s", rank, ps_comm_host(c, rank),
             (double)c->timeout_ns * 1e-9);
    report_failure(c, PS_COMM_LOST, rank, text);
    add_wait(c, text, sizeof text);
    return end_with(c, rank, text);
}

bool ps_comm_heartbeat_fail(ps_comm *c, const char *reason)
{
    char text[TEXT_MAX];
    report_failure(c, PS_COMM_FAILED, c->rank, reason);
    snprintf(text, sizeof text, "rank %d (%s) failed: %s", c->rank, ps_comm_host(c, c->rank), reason);
    return end_with(c, c->rank, text);
}

/* Ranks that are threads of this process: their threads write c->hello until all have met. */
static bool are_threads(const ps_comm *c)
{
    return strcmp(c->transport.name, "thread") == 0;
}

/* A rank of this machine whose process has ended without leaving; -1: none. *can_ask: there is a process to check. */
static int32_t find_ended(const ps_comm *c, bool *can_ask)
{
    const ps_comm_hello *mine = &c->hello[c->rank];
    *can_ask = false;
    for (int32_t r = 0; !are_threads(c) && r < c->size; r++) {
        const ps_comm_hello *h = &c->hello[r];
        if (r == c->rank || c->peers[r].n_calls >= 0 || strcmp(h->host, mine->host) != 0) continue;
        if (strcmp(h->process, mine->process) == 0) continue;
        if (ps_leftover_process_has_ended(h->process)) return r;
        *can_ask = true;
    }
    return -1;
}

/* The first sign of a killed rank may be that its connections close, shortly before its process is gone. */
static int32_t await_ended(const ps_comm *c)
{
    const int64_t begin_ns = ps_clock_ns();
    for (;;) {
        bool can_ask;
        const int32_t rank = find_ended(c, &can_ask);
        if (rank >= 0 || !can_ask || ps_clock_ns() - begin_ns > ENDING_NS) return rank;
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

static bool has_other_machines(const ps_comm *c)
{
    for (int32_t r = 0; !are_threads(c) && r < c->size; r++)
        if (strcmp(c->hello[r].host, c->hello[c->rank].host) != 0) return true;
    return false;
}

/* The transport fails on this rank, usually because another rank has ended. */
bool ps_comm_heartbeat_broken(ps_comm *c)
{
    const ps_transport *t = &c->transport;
    const int32_t rank = await_ended(c);
    char text[TEXT_MAX], reason[sizeof t->name + sizeof t->error + 80];
    if (rank < 0) {
        snprintf(reason, sizeof reason, "%s: %s%s", t->name, t->error,
                 has_other_machines(c) ? "; a rank of another machine may have ended: see what it has printed" : "");
        return ps_comm_heartbeat_fail(c, reason);
    }
    snprintf(text, sizeof text, "rank %d (%s) has ended without notice, as if killed or crashed (%s: %s)", rank,
             ps_comm_host(c, rank), t->name, t->error);
    report_failure(c, PS_COMM_LOST, rank, text);
    add_wait(c, text, sizeof text);
    return end_with(c, rank, text);
}

/* Has the peer left without taking part in the transfer that is waited for, here or in another implementation of
 * collectives? */
static bool has_deserted(const ps_comm *c, const ps_comm_peer *p)
{
    if (p->n_calls < 0) return false;
    return (c->current != NULL && c->current->ticket > p->n_calls) ||
           atomic_load(&c->n_other_transfers) > p->n_other_transfers;
}

static bool end_deserted(ps_comm *c, int32_t rank)
{
    char text[TEXT_MAX];
    snprintf(text, sizeof text, "rank %d (%s) failed: %s", rank, ps_comm_host(c, rank), has_deserted_text);
    report_failure(c, PS_COMM_FAILED, rank, has_deserted_text);
    add_wait(c, text, sizeof text);
    return end_with(c, rank, text);
}

/* This rank may wait for it as long as it goes on, or is outside of the library, as to load data. */
static void hear_progress(ps_comm_peer *p, const ps_comm_notice *n)
{
    if (n->progress != p->progress || n->is_busy == 0) ps_stall_note_peer();
    p->progress = n->progress;
}

static bool hear_notice(ps_comm *c, int32_t from, const ps_comm_notice *n)
{
    char text[TEXT_MAX];
    const int32_t rank = n->rank >= 0 && n->rank < c->size ? n->rank : from;
    switch ((ps_comm_word)n->word) {
    case PS_COMM_HEARTBEAT: hear_progress(peer_of(c, from), n); return true;
    case PS_COMM_LEAVES:
        peer_of(c, from)->n_other_transfers = n->n_other_transfers;
        peer_of(c, from)->n_calls = n->n_calls;
        return true;
    case PS_COMM_FAILED:
        snprintf(text, sizeof text, "rank %d (%s) failed: %.*s", rank, ps_comm_host(c, rank), (int)sizeof n->text - 1,
                 n->text);
        return end_with(c, rank, text);
    case PS_COMM_LOST:
        snprintf(text, sizeof text, "%.*s, says rank %d (%s)", (int)sizeof n->text - 1, n->text, from,
                 ps_comm_host(c, from));
        add_wait(c, text, sizeof text);
        return end_with(c, rank, text);
    }
    return true;
}

static bool listen_to(ps_comm *c, int32_t from)
{
    ps_transport *t = &c->transport;
    ps_comm_peer *p = peer_of(c, from);
    while (p->n_calls < 0) {
        if (!p->is_receiving) {
            if (!t->ops->recv_begin(t, from, PS_CHANNEL_CONTROL, &p->in, sizeof p->in, &p->receiving))
                return ps_comm_heartbeat_broken(c);
            p->is_receiving = true;
        }
        bool is_done;
        if (!t->ops->test(t, &p->receiving, &is_done)) return ps_comm_heartbeat_broken(c);
        if (!is_done) return true;
        p->is_receiving = false;
        p->heard_ns = ps_clock_ns();
        const ps_comm_notice notice = p->in;
        if (!hear_notice(c, from, &notice)) return false;
    }
    return true;
}

/* Begins a message unless the last one is in flight; *is_begun says whether. */
static bool tell_peer(ps_comm *c, int32_t to, ps_comm_word word, bool *is_begun)
{
    ps_transport *t = &c->transport;
    ps_comm_peer *p = peer_of(c, to);
    *is_begun = false;
    bool is_done = true;
    if (p->is_sending && !t->ops->test(t, &p->sending, &is_done)) return ps_comm_heartbeat_broken(c);
    p->is_sending = !is_done;
    if (p->is_sending) return true;
    p->out = (ps_comm_notice){.word = (int32_t)word,
                              .n_calls = atomic_load(&c->done),
                              .progress = atomic_load(&ps_stall_count),
                              .is_busy = ps_stall_is_busy(),
                              .n_other_transfers = atomic_load(&c->n_other_transfers)};
    if (!t->ops->send_begin(t, to, PS_CHANNEL_CONTROL, &p->out, sizeof p->out, &p->sending))
        return ps_comm_heartbeat_broken(c);
    p->is_sending = *is_begun = true;
    return true;
}

void ps_comm_heartbeat_begin(ps_comm *c)
{
    c->looked_ns = c->moved_ns = ps_clock_ns();
    c->heartbeat_sent_ns = c->looked_ns - c->heartbeat_ns;
    for (int32_t r = 0; r < c->size; r++) {
        c->peers[r].heard_ns = c->looked_ns;
        c->peers[r].n_calls = -1;
    }
}

static bool tell_all(ps_comm *c, int64_t now_ns)
{
    if (now_ns - c->heartbeat_sent_ns < c->heartbeat_ns) return true;
    c->heartbeat_sent_ns = now_ns;
    for (int32_t k = 1; k < c->size; k++) {
        const int32_t r = (c->rank + k) % c->size;
        bool is_begun;
        if (!c->peers[r].is_told && !tell_peer(c, r, PS_COMM_HEARTBEAT, &is_begun)) return false;
    }
    return true;
}

/* Acts on decisions of this rank's callers. */
static bool obey_callers(ps_comm *c)
{
    if (atomic_load(&c->wants_failure)) {
        char reason[sizeof c->own_text];
        pthread_mutex_lock(&c->lock);
        memcpy(reason, c->own_text, sizeof reason);
        pthread_mutex_unlock(&c->lock);
        return ps_comm_heartbeat_fail(c, reason);
    }
    if (atomic_load(&c->is_stuck)) return end_with(c, c->rank, "callers no longer wait for this rank");
    if (atomic_load(&c->wants_vanish)) return end_with(c, c->rank, "this rank has vanished");
    return true;
}

bool ps_comm_heartbeat_listen(ps_comm *c)
{
    const int64_t now_ns = ps_clock_ns(), gap_ns = now_ns - c->looked_ns;
    if (gap_ns < LOOK_NS) return true;
    atomic_fetch_add(&c->n_looks, 1);
    c->looked_ns = now_ns;
    if (!obey_callers(c)) return false;
    for (int32_t k = 1; k < c->size; k++) {
        const int32_t r = (c->rank + k) % c->size;
        ps_comm_peer *p = peer_of(c, r);
        if (gap_ns > c->heartbeat_ns) p->heard_ns += gap_ns;
        if (!listen_to(c, r)) return false;
        if (has_deserted(c, p)) return end_deserted(c, r);
        if (p->n_calls < 0 && now_ns - p->heard_ns > c->timeout_ns) return end_lost(c, r);
    }
    return tell_all(c, now_ns);
}

/* A message takes some 50 us; sleeping between its pieces would double that. After it, sleeps are a fraction of the
 * time waited. */
static int64_t rest_ns(int64_t idle_ns)
{
    static const int64_t eager_ns = 50000, short_ns = 20000, usual_ns = 200000, long_ns = 5000000;
    if (idle_ns < eager_ns) return 0;
    const int64_t cap_ns = ps_max_i64(usual_ns, ps_min_i64(idle_ns / 64, long_ns));
    return ps_min_i64(ps_max_i64(short_ns, idle_ns / 8), cap_ns);
}

bool ps_comm_heartbeat_tick(ps_comm *c, bool has_moved)
{
    if (!ps_comm_heartbeat_listen(c)) return false;
    const int64_t now_ns = ps_clock_ns();
    if (has_moved) {
        ps_stall_progress();
        c->moved_ns = now_ns;
        return true;
    }
    const int64_t pause_ns = rest_ns(now_ns - c->moved_ns);
    if (pause_ns == 0)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = pause_ns}, NULL);
    return true;
}

bool ps_comm_heartbeat_leave(ps_comm *c)
{
    for (;;) {
        bool all_left = true;
        for (int32_t k = 1; k < c->size; k++) {
            const int32_t r = (c->rank + k) % c->size;
            ps_comm_peer *p = peer_of(c, r);
            if (!p->is_told && !tell_peer(c, r, PS_COMM_LEAVES, &p->is_told)) return false;
            bool is_done = !p->is_sending;
            if (p->is_told && p->is_sending) {
                if (!c->transport.ops->test(&c->transport, &p->sending, &is_done)) return ps_comm_heartbeat_broken(c);
                p->is_sending = !is_done;
            }
            all_left = all_left && p->is_told && is_done && p->n_calls >= 0;
        }
        if (all_left) return true;
        if (!ps_comm_heartbeat_tick(c, false)) return false;
    }
}
