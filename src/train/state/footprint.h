/* footprint.h - bytes of chunks and their updates on a tier, and how many of them fit. The driver chooses where chunks
 * are updated, and what else the tier holds. */
#ifndef PS_STATE_FOOTPRINT_H
#define PS_STATE_FOOTPRINT_H

#include "chunk/store.h"
#include "train/settings/settings.h"

/* Of a payload, in whole pages. */
static inline int64_t ps_payload_bytes(const ps_settings *s, const ps_layout *layout, const ps_lists *lists,
                                       ps_list list)
{
    return ps_round_up(ps_lists_chunk_bytes(lists, layout, list), ps_settings_page_bytes(s));
}

/* Bytes of a chunk in the first n_lists together: in all lists, the memory of its update. */
int64_t ps_working_set_bytes(const ps_settings *s, const ps_layout *layout, const ps_lists *lists, ps_list n_lists);

/* Limit for chunks on a device of this budget while there is no schedule: the configured share, but at least one
 * working set. */
int64_t ps_unscheduled_bytes(const ps_settings *s, int64_t device_bytes, int64_t working_set_bytes);

/* Bytes of the payloads of a chunk's optimizer data: its master and states, each in whole pages. */
int64_t ps_optimizer_payload_bytes(const ps_settings *s, int64_t chunk_elements);

/* Bytes of the payloads of a chunk that are kept over an update that may turn out to be wrong: optimizer data, and
 * without whole masters the parameters. */
int64_t ps_kept_payload_bytes(const ps_settings *s, int64_t chunk_elements);

/* For a person: early updates cannot be speculative (memory.update_in_backward), as memory.disk has no room to keep what
 * they replace. least_bytes, all_bytes: of memory.disk, to keep that of one chunk, and of all. Returns text. */
enum { PS_SPECULATION_TEXT_MAX = 320 };
const char *ps_speculation_why_no_room(int64_t disk_bytes, int64_t least_bytes, int64_t all_bytes,
                                       char text[PS_SPECULATION_TEXT_MAX]);

/* Number of chunks with optimizer data on the device, when a step leaves so much of it free: the margin (PatrickStar's
 * term). */
int64_t ps_margin_chunks(const ps_settings *s, const ps_layout *layout, int64_t free_bytes);

#endif
