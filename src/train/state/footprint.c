#include "train/state/footprint.h"

#include <stdio.h>

#include "base/bytes.h"

int64_t ps_working_set_bytes(const ps_settings *s, const ps_layout *layout, const ps_lists *lists, ps_list n_lists)
{
    int64_t bytes = 0;
    for (ps_list list = 0; list < n_lists; list++) bytes += ps_payload_bytes(s, layout, lists, list);
    return bytes;
}

int64_t ps_unscheduled_bytes(const ps_settings *s, int64_t device_bytes, int64_t working_set_bytes)
{
    return ps_max_i64(working_set_bytes, (int64_t)((double)device_bytes * s->unscheduled_share));
}

int64_t ps_optimizer_payload_bytes(const ps_settings *s, int64_t chunk_elements)
{
    const int64_t page = ps_settings_page_bytes(s);
    int64_t bytes = ps_round_up(ps_item_bytes(ps_optimizer_master_item(&s->optimizer), chunk_elements), page);
    for (int32_t i = 0; i < s->optimizer.n_states; i++) {
        const ps_item item = ps_format_item(ps_optimizer_state_format(&s->optimizer, i));
        bytes += ps_round_up(ps_item_bytes(item, chunk_elements), page);
    }
    return bytes;
}

int64_t ps_kept_payload_bytes(const ps_settings *s, int64_t chunk_elements)
{
    const int64_t param_bytes = ps_settings_separates_gradients(s) ? (int64_t)ps_dtype_bytes(s->dtype) : 0;
    return ps_optimizer_payload_bytes(s, chunk_elements) +
           ps_round_up(chunk_elements * param_bytes, ps_settings_page_bytes(s));
}

int64_t ps_margin_chunks(const ps_settings *s, const ps_layout *layout, int64_t free_bytes)
{
    if (free_bytes <= 0 || !s->hybrid_updates) return 0;
    return (int64_t)((double)free_bytes * s->margin_share) / ps_optimizer_payload_bytes(s, layout->chunk_elements);
}

const char *ps_speculation_why_no_room(int64_t disk_bytes, int64_t least_bytes, int64_t all_bytes,
                                       char text[PS_SPECULATION_TEXT_MAX])
{
    char bytes[3][PS_BYTES_TEXT_MAX];
    if (disk_bytes == 0)
        snprintf(text, PS_SPECULATION_TEXT_MAX,
                 "memory.update_in_backward = speculate: without effect, as the values of before an update are kept on "
                 "disk, and memory.disk is 0");
    else
        snprintf(
            text, PS_SPECULATION_TEXT_MAX,
            "memory.update_in_backward = speculate: without effect, as memory.disk has no room to keep the values of "
            "before an update: it is %s, expected at least %s, and %s to keep those of all chunks",
            ps_bytes_format(disk_bytes, bytes[0]), ps_bytes_format(least_bytes, bytes[1]),
            ps_bytes_format(all_bytes, bytes[2]));
    return text;
}
