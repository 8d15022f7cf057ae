/* client_budget.h - memory that a client needs of its budgets, budgets that would suffice, the tier on which a chunk is
 * updated, and room for updates; and matrices that are updated as a whole. No chunk moves here. */
#ifndef PS_EXTERNAL_CLIENT_BUDGET_H
#define PS_EXTERNAL_CLIENT_BUDGET_H

#include "api/external/client_impl.h"

/* ---- whole_tensors.c ---- */

/* Matrices that the optimizer updates as a whole: is_whole of tensors. */
void ps_client_find_whole(ps_client *c);
/* The least size of a chunk: with several ranks such a matrix is in one. PS_EINVAL: the configured one is smaller. */
int64_t ps_client_least_chunk_elements(const ps_client *c);
PS_NODISCARD ps_status ps_client_check_chunk_size(const ps_client *c, int64_t chunk_elements);
/* chunk_states, and update_scratch. */
void ps_client_find_states(ps_client *c);
PS_NODISCARD ps_status ps_client_measure_update_scratch(ps_client *c);
/* The chunks that are updated together, this one among them: all of a matrix that has a gradient. */
ps_run ps_client_updated_with(const ps_client *c, int32_t chunk);
/* Is it one of several chunks of such a matrix? Those are not updated early. */
bool ps_client_is_in_whole_run(const ps_client *c, int32_t chunk);

/* ---- client_budget.c ---- */

/* Memory of the largest update of a chunk, or of chunks that are updated together; after ps_client_find_update_bytes. */
static inline int64_t ps_client_update_bytes(const ps_client *c)
{
    return c->update_bytes;
}
void ps_client_find_update_bytes(ps_client *c); /* the lists are known */
/* Bytes of a chunk in the lists before `end` that it is in. */
int64_t ps_client_chunk_bytes_in(const ps_client *c, int32_t chunk, ps_list end);
/* Of an unmanaged tensor: value, states and gradient. */
int64_t ps_client_unmanaged_bytes(const ps_client *c, const ps_client_tensor_state *t);
/* Where the host cannot access the device, else 0: sums of kernels, the first *sums_bytes, and scratch. */
int64_t ps_client_results_bytes(const ps_client *c, int64_t *sums_bytes);
/* The arguments of the client's tiers; and their bytes outside of chunks, in pages. */
ps_tiers_desc ps_client_tiers(const ps_client *c);
void ps_client_count_blocks(const ps_client *c, int64_t blocks[PS_RAM_TIER_COUNT]);
/* Whole pages of memory.device that remain for chunks and the framework. */
int64_t ps_client_device_room(const ps_client *c);
/* settings.staging_bytes of memory.save_buffer; 0 where nothing is saved while training continues. */
void ps_client_choose_save_buffer(ps_client *c);
/* When a parameter follows its fp32 value, or a gradient moves off its parameter, both are in memory at once; with
 * several ranks also the gradients of a group, which are summed in fp32. */
int64_t ps_client_separate_fp32_bytes(const ps_client *c);
/* Bytes that can only be on the device, as host and disk have no room for them: this rank's chunks between steps, and
 * other ranks' chunks of the groups that are gathered. */
int64_t ps_client_stuck_bytes(const ps_client *c);
/* Of memory.device, without the framework's own memory. */
int64_t ps_client_least_device_bytes(const ps_client *c);
/* Chunk bytes of a moment of the trace on the device, each chunk rounded up to a multiple of `grain` bytes. */
int64_t ps_client_moment_bytes(const ps_client *c, const ps_trace *t, int32_t moment, int64_t grain);
/* memory.total for so many bytes of the device tier, with the present host tier. */
int64_t ps_client_total_for(const ps_client *c, int64_t device_bytes);
/* Can chunks of all lists be on the device at once, next to so much memory of the framework? */
bool ps_client_has_room_for_all(const ps_client *c, int64_t framework_bytes);
/* Limit for chunks on the device until the framework's need is known; at least one update fits. */
int64_t ps_client_first_limit(const ps_client *c);
/* PS_EBUDGET: the checks possible before a step has been recorded; also of the machine, which may have less than
 * budgets. */
PS_NODISCARD ps_status ps_client_check_budgets(ps_client *c);
/* The same for so many elements, before there are tensors, with a lower bound of their needs. */
PS_NODISCARD ps_status ps_client_check_expected(ps_client *c, int64_t trained, int64_t frozen);
/* The tier on which a chunk's optimizer data is processed now. Can it be this one? Updates of matrices need scratch
 * there. */
ps_tier ps_client_update_tier(const ps_client *c, int32_t chunk);
bool ps_client_may_update_on(const ps_client *c, ps_tier tier);
/* Number of this rank's chunks that the device keeps between steps, because host and disk cannot; and that it can keep
 * next to the needs of a step. */
int32_t ps_client_least_margin(const ps_client *c);
int32_t ps_client_count_margin(const ps_client *c, const ps_trace *step);

/* ---- keeping_room.c ---- */

/* Speculative early updates or none: settings.may_speculate, lists, n_keeping and may_keep. */
void ps_client_set_keeping(ps_client *c, bool speculates);
/* The former, if there is room; otherwise false, and the log has said why. */
bool ps_client_choose_keeping(ps_client *c);
/* Bytes of memory.disk to keep optimizer data of so many chunks over early updates. */
int64_t ps_client_keeping_bytes(const ps_client *c, int32_t n_keeping);

/* ---- client_advice.c ---- */

/* The option by which the program chose budgets, for messages: "memory.total = 418 MB (418000000 bytes)", or
 * memory.device, for so many bytes of the device tier. Returns text. */
enum { PS_CLIENT_ADVICE_TEXT_MAX = 120 };
const char *ps_client_advice(const ps_client *c, int64_t device_bytes, char text[PS_CLIENT_ADVICE_TEXT_MAX]);
/* The same for the current step, which has framework_bytes now and is about to use more_bytes of chunks: for all
 * moments of the recorded step, or "about ..." for coming ones, if none was recorded or this one is larger; at least
 * least_bytes. */
const char *ps_client_step_advice(const ps_client *c, int64_t framework_bytes, int64_t more_bytes, int64_t least_bytes,
                                  char text[PS_CLIENT_ADVICE_TEXT_MAX]);
/* The framework's memory on the device, for messages: what the program held before the step, and activations. Returns
 * text. */
enum { PS_CLIENT_FRAMEWORK_TEXT_MAX = 240 };
const char *ps_client_framework_text(const ps_client *c, int64_t framework_bytes,
                                     char text[PS_CLIENT_FRAMEWORK_TEXT_MAX]);

/* ---- update_room.c ---- */

/* May updates be deferred until the next forward pass uses their chunks? If there is room for them next to the use of
 * the current step's forward pass, and there is a gain: not all chunks are on the device at once. */
bool ps_client_may_defer(const ps_client *c);

/* The same for the chunk's update right after a moment of the backward pass of the current step. */
bool ps_client_may_update_after(const ps_client *c, int32_t chunk, int32_t moment);

/* PS_EBUDGET: the updates of a step would have no room next to tensors that the program has in use. */
PS_NODISCARD ps_status ps_client_check_update_room(ps_client *c);

#endif
