/* sized.h - versioned structures of the public headers. Each begins with struct_size, which the caller sets to its
 * sizeof. Later versions only append members.
 *
 *     an older program                          a newer program
 *     caller's  |size| a | b |                  caller's  |size| a | b | c | d |
 *     ours      |size| a | b | c |              ours      |size| a | b | c |
 *     taken:    c is 0                          taken:    refused, unless d is 0
 *     given:    c is not given                  given:    d becomes 0
 *
 * Linux does the same for system calls (copy_struct_from_user). Any thread. */
#ifndef PS_BASE_SIZED_H
#define PS_BASE_SIZED_H

#include "base/status.h"

/* structure, its last member in the first version, its last member now. Neither may be followed by padding, as a member
 * added there would change the meaning of an older structure's bytes. */
#define PS_SIZED_MAP(XX)                                                                                               \
    XX(ps_device_info, memory, memory)                                                                                 \
    XX(ps_disk_info, processor_ns, folders)                                                                            \
    XX(ps_bound_info, between, between)                                                                                \
    XX(ps_client_tensor, is_unmanaged, is_unmanaged)                                                                   \
    XX(ps_client_place, gpu, gpu)                                                                                      \
    XX(ps_client_group, eps, eps)                                                                                      \
    XX(ps_client_step_info, n_separate, n_taken_back)                                                                  \
    XX(ps_client_tensor_info, steps, states)                                                                           \
    XX(ps_client_info, n_moments, why_not_gpu)                                                                         \
    XX(ps_client_checkpoint, extra_bytes, extra_bytes)                                                                 \
    XX(ps_client_loaded, extra_path, extra_path)                                                                       \
    XX(ps_failure, host, host)                                                                                         \
    XX(ps_process_group, close, close)                                                                                 \
    XX(ps_engine_options, is_empty, is_empty)                                                                          \
    XX(ps_load_options, allow_new_rows, allow_new_rows)                                                                \
    XX(ps_adapter, gaussian, gaussian)                                                                                 \
    XX(ps_rope, mscale_all_dim, mscale_all_dim)                                                                        \
    XX(ps_attention_options, dropout_p, dropout_p)                                                                     \
    XX(ps_cross_entropy_options, z_loss, z_loss)                                                                       \
    XX(ps_own_operator, flops, flops)                                                                                  \
    XX(ps_own_use, options_bytes, n_classes)                                                                           \
    XX(ps_batch, token_type_ids, values)                                                                               \
    XX(ps_eval_info, n_correct, weight)                                                                                \
    XX(ps_step_info, loss, recomputed)                                                                                 \
    XX(ps_memory_info, planned_sent_bytes, checkpoint_bytes)                                                           \
    XX(ps_memory_use, disk_bytes, disk_bytes)                                                                          \
    XX(ps_profile_info, error, error)                                                                                  \
    XX(ps_tensor_info, group, group)                                                                                   \
    XX(ps_load_info, first_new, n_new_rows)                                                                            \
    XX(ps_group_info, weight_decay, weight_decay)                                                                      \
    XX(ps_checkpoint_info, name, name)                                                                                 \
    XX(ps_sample_options, seed, seed)

typedef enum ps_sized {
#define XX(type, first_last, last) PS_SIZED_##type,
    PS_SIZED_MAP(XX)
#undef XX
        PS_SIZED_N,
} ps_sized;

/* Copy the caller's structure to *ours. PS_EINVAL, naming structure and sizes, when it is NULL, too small or too large,
 * or has members that are not 0 and that this library does not know. *ours is then all 0. */
PS_PRIVATE_API PS_NODISCARD ps_status ps_sized_take(ps_sized which, const void *caller, void *ours);
/* Copy ours to the caller's structure, except struct_size. PS_EINVAL, and nothing is written, when the caller's is
 * NULL, too small or too large. */
ps_status ps_sized_give(ps_sized which, const void *ours, void *caller);

/* The same with type checks: PS_SIZED_TAKE(ps_batch, batch, &own). */
#define PS_SIZED_TAKE(type, caller, ours) ps_sized_take(PS_SIZED_##type, (const type *){caller}, (type *){ours})
#define PS_SIZED_GIVE(type, ours, caller) ps_sized_give(PS_SIZED_##type, (const type *){ours}, (type *){caller})

#endif
