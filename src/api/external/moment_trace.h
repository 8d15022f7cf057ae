/* moment_trace.h - announcements of ranks, and the order in which a step gathers groups; moments, which are recorded in
 * one step and predicted in the next; and chunks that are pinned in them. */
#ifndef PS_EXTERNAL_MOMENT_TRACE_H
#define PS_EXTERNAL_MOMENT_TRACE_H

#include "api/external/client_budget.h"

/* ---- gather_order.c: after a failure here the client is unusable ---- */

/* Record an action of the current step; group -1: of all. */
PS_NODISCARD ps_status ps_client_note_action(ps_client *c, ps_client_action_kind kind, int32_t group);
void ps_client_begin_gather_order(ps_client *c);
uint64_t ps_client_hash_gather_order(const ps_client *c);
/* The current step ends, and all ranks have announced it. */
PS_NODISCARD ps_status ps_client_agree_on_gather_order(ps_client *c);
/* The next gathering of the recorded step; NULL: none that may be prefetched. */
const ps_client_action *ps_client_next_gather(const ps_client *c);

/* ---- announce.c ---- */

static inline int64_t ps_client_message_bytes(const ps_client *c)
{
    return ps_round_up((int64_t)sizeof(ps_client_message) + c->sharding.most_pieces, 8);
}
static inline const ps_client_message *ps_client_message_of(const ps_client *c, const char *messages, int32_t rank)
{
    return (const ps_client_message *)(const void *)(messages + rank * ps_client_message_bytes(c));
}
static inline const uint8_t *ps_client_places_of(const ps_client *c, const char *messages, int32_t rank)
{
    return (const uint8_t *)(ps_client_message_of(c, messages, rank) + 1);
}

/* All ranks announce their next action, which sharding.messages has afterwards; places: of gradients [n_places, at most
 * sharding.most_pieces]. PS_EINVAL, on all, if they differ. With one rank it returns at once. */
PS_NODISCARD ps_status ps_client_announce(ps_client *c, const ps_client_message *m, const uint8_t *places,
                                          int32_t n_places);
/* The same in two parts; messages must stay valid. */
PS_NODISCARD ps_status ps_client_begin_announcing(ps_client *c, const ps_client_message *m, const uint8_t *places,
                                                  int32_t n_places, char *messages, ps_event *done);
PS_NODISCARD ps_status ps_client_finish_announcing(ps_client *c, const char *messages, ps_event done);
/* All ranks make a step: PS_EINVAL naming a tensor that has a gradient only on some. */
PS_NODISCARD ps_status ps_client_announce_step(ps_client *c);

/* ---- prefetch_wait.c: after a failure here the client is unusable ---- */

/* All ranks have announced the same group, and none refuses. */
bool ps_client_is_prefetch_agreed(const void *votes);
/* The issued prefetch is ready or refused, and its chunks need not stay on the device. */
PS_NODISCARD ps_status ps_client_finish_prefetch(ps_client *c);
/* *st is the result of an operation that may have lacked room: true if it should be tried again, as chunks of a
 * prefetch have left the device. */
bool ps_client_release_prefetch(ps_client *c, ps_status *st);
/* The group is used. *was_prefetched: it is ready. */
PS_NODISCARD ps_status ps_client_take_prefetch(ps_client *c, int32_t group, bool *was_prefetched);
/* The same on all ranks: it may have been refused, which a rank learns when it finishes the prefetch. */
bool ps_client_is_prefetching(const ps_client *c, int32_t group);
/* The client ends. */
void ps_client_end_prefetch(ps_client *c);
/* An item still in use stays until the next call; it is not reused. */
void ps_client_discard(ps_client *c, ps_list list, int32_t chunk);
/* Drops other ranks' chunks of the group, except those with gradients. */
void ps_client_discard_others(ps_client *c, int32_t group);
void ps_client_unpin_group(ps_client *c, int32_t group, ps_list list);
/* Unpins the chunks of a gathering; has_come false: nothing was sent, and other ranks' chunks are dropped again. */
void ps_client_end_gather(ps_client *c, int32_t group, bool has_come);

/* ---- profile_records.c ---- */

/* An operator begins, and the one before it has ended. label: valid as long as the client. is_in_step: part of a
 * step. */
void ps_client_record_moment(ps_client *c, ps_phase phase, const char *label, int64_t framework_bytes, bool is_in_step);
/* The step has ended; called before it is counted. */
void ps_client_record_step(ps_client *c);
/* The moment begins later. */
void ps_client_unrecord_moment(ps_client *c);
/* Record the current operator and step as far as they came. */
void ps_client_stop_recording(ps_client *c);

/* ---- moment_trace.c ---- */

/* The framework's memory varies a little all the time; when the store is given a larger number it examines all coming
 * moments again. */
#define PS_CLIENT_GRAIN_BYTES ((int64_t)4 << 20)

PS_NODISCARD ps_status ps_client_begin_moment(ps_client *c, ps_phase phase, const char *label, int64_t framework_bytes);
/* The moment that ends now took so long without waits, and the framework had this much memory at its end. */
void ps_client_finish_moment(ps_client *c, int64_t framework_bytes);
/* A copy of the text, valid as long as the client. */
PS_NODISCARD ps_status ps_client_keep_label(ps_client *c, const char *label, const char **out);
/* Returns st; the message names the framework's memory if there is no room next to it. */
ps_status ps_client_report_framework(const ps_client *c, ps_status st, int64_t framework_bytes);
/* A moment without accesses, which begins later. */
void ps_client_retract_moment(ps_client *c);
/* The next moment expected; NULL: none is, or the step differs from the recorded one. */
const ps_moment *ps_client_predicted_moment(const ps_client *c);
/* The chunk that is updated in the moment; -1: none. */
int32_t ps_client_updated_chunk(const ps_client *c, const ps_trace *t, const ps_moment *m);
/* There is no room as long as the store keeps what is predicted for this moment: drop the prediction for the rest of
 * the step. False: there was none. */
bool ps_client_drop_prediction(ps_client *c);
/* Pin a chunk, as an access of the current moment. */
PS_NODISCARD ps_status ps_client_pin_chunk(ps_client *c, ps_list list, int32_t chunk, ps_tier tier,
                                           ps_access_mode mode);
/* The same, if there is room next to the coming needs of the step. */
PS_NODISCARD ps_status ps_client_try_pin_chunk(ps_client *c, ps_list list, int32_t chunk, ps_tier tier,
                                               ps_access_mode mode);

/* ---- framework_memory.c ---- */

/* Memory of the process now, other than chunks, does not count as the framework's. */
PS_NODISCARD ps_status ps_client_begin_measuring(ps_client *c);
/* With memory.total, after it has been read: memory beyond memory.process_bytes counts, from now on. */
PS_NODISCARD ps_status ps_client_count_process(ps_client *c);
/* The framework's memory. trims: the heap first returns freed memory; otherwise only if it seems too much. */
PS_NODISCARD ps_status ps_client_measure_framework(const ps_client *c, bool trims, int64_t *bytes);
/* Does the framework use clearly more memory than in the next moment of the recorded step? */
bool ps_client_takes_more_than_predicted(const ps_client *c, int64_t framework_bytes);

/* ---- step_prediction.c ---- */

/* The moment of the last backward pass after which the chunk's update could have been made, as the step did not use the
 * chunk afterwards; -1: none with another moment of the program after it, or there was no room. */
int32_t ps_client_last_use(const ps_client *c, int32_t chunk);
/* The recording of the current step is unusable: its gradients were dropped. */
void ps_client_abandon_step(ps_client *c);
/* The step has ended: *was_recorded if it differs from the predicted one. */
void ps_client_end_step(ps_client *c, bool *was_recorded);
void ps_client_steps_deinit(ps_client_steps *s);

#endif
