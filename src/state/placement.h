/* placement.h - what chunks and their updates take of a tier, and how many of them it has room for. Which of a rank's
 * chunks are updated where is the driver's choice, as is what else the tier holds. */
#ifndef PS_STATE_PLACEMENT_H
#define PS_STATE_PLACEMENT_H

#include "chunk/store.h"
#include "settings/settings.h"

/* Of a payload, in whole pages. */
static inline int64_t ps_payload_bytes(const ps_settings *s, const ps_layout *layout, const ps_lists *lists,
                                       ps_list list)
{
    return ps_round_up(ps_lists_chunk_bytes(lists, layout, list), ps_settings_page_bytes(s));
}

/* What a chunk has in the first n_lists together: in all of them, what its update has in memory at once. */
int64_t ps_working_set_bytes(const ps_settings *s, const ps_layout *layout, const ps_lists *lists, ps_list n_lists);

/* What chunks may take of a device with this budget while there is no schedule: the configured share, but room for one
 * working set in any case. */
int64_t ps_unscheduled_bytes(const ps_settings *s, int64_t device_bytes, int64_t working_set_bytes);

/* So many chunks' optimizer data the device keeps where a step leaves so much of it free: the margin (PatrickStar's
 * word). */
int64_t ps_margin_chunks(const ps_settings *s, const ps_layout *layout, int64_t free_bytes);

#endif
