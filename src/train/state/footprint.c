#include "train/state/footprint.h"

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

int64_t ps_margin_chunks(const ps_settings *s, const ps_layout *layout, int64_t free_bytes)
{
    if (free_bytes <= 0 || !s->hybrid_updates) return 0;
    return (int64_t)((double)free_bytes * s->margin_share) / ps_optimizer_payload_bytes(s, layout->chunk_elements);
}
