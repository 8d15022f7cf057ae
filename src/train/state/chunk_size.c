#include "train/state/chunk_size.h"

static const int64_t large_matrix_elements = (int64_t)64 << 20;

ps_chunk_limits ps_chunk_limits_of(const ps_settings *s, int64_t total_elements, int64_t device_bytes,
                                   int64_t update_bytes)
{
    const int64_t item = (int64_t)ps_dtype_bytes(s->dtype), n = s->ranks.n, unit = PS_TENSOR_ALIGN_ELEMENTS;
    const int64_t set_bytes = ps_optimizer_bytes(&s->optimizer, unit) + 2 * item * unit; /* of as many elements */
    const int64_t group = ps_ranks_group_size(&s->ranks);
    /* five updates fit at once where they run; three groups use at most a third of the device; the model has at least
     * four chunks a rank; at most 128 Mi elements */
    const int64_t by_memory = ps_min_i64(ps_min_i64(update_bytes, INT64_MAX / unit) * unit / (5 * set_bytes),
                                         device_bytes / (9 * group * item));
    return (ps_chunk_limits){
        /* Chunks of a run are adjacent, each in separate pages: those of every list must be whole pages. */
        .unit = ps_max_i64(PS_CHUNK_UNIT_ELEMENTS, ps_settings_page_bytes(s) / item),
        /* at most 256 chunks a rank, unless they had to be larger than a large matrix: tensors that do not divide into
         * chunks waste the rest */
        .least = ps_max_i64(32768, ps_min_i64(total_elements / (256 * n), large_matrix_elements)),
        .most = ps_min_i64(ps_min_i64(by_memory, total_elements / (4 * n)), 2 * large_matrix_elements)};
}
