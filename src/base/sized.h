/* sized.h - structures of the public headers that grow. Each begins with struct_size, which the caller sets to its
 * sizeof, so that the library knows how much of it there is. Members are only ever added, at the end.
 *
 *     an older program                          a newer program
 *     caller's  |size| a | b |                  caller's  |size| a | b | c | d |
 *     ours      |size| a | b | c |              ours      |size| a | b | c |
 *     taken:    c is 0                          taken:    refused, unless d is 0
 *     given:    c is not told                   given:    d becomes 0
 *
 * As Linux does it for its system calls (copy_struct_from_user). Any thread. */
#ifndef PS_BASE_SIZED_H
#define PS_BASE_SIZED_H

#include "base/status.h"

/* structure, its last member when it was first part of the interface, its last member now. Neither is followed by
 * padding: what is added there later would be taken for a member of the older structure. */
#define PS_SIZED_MAP(XX)                                                                                               \
    XX(ps_device_info, products_trouble, memory)                                                                       \
    XX(ps_disk_info, processor_ns, folders)                                                                            \
    XX(ps_bound_info, between, between)                                                                                \
    XX(ps_client_tensor, is_apart, is_apart)                                                                           \
    XX(ps_client_place, gpu, gpu)                                                                                      \
    XX(ps_client_group, eps, eps)                                                                                      \
    XX(ps_client_step_info, n_beside, n_early)                                                                         \
    XX(ps_client_tensor_info, steps, steps)                                                                            \
    XX(ps_client_info, n_moments, n_moments)                                                                           \
    XX(ps_client_checkpoint, extra_bytes, extra_bytes)                                                                 \
    XX(ps_client_loaded, extra_path, extra_path)                                                                       \
    XX(ps_failure, host, host)                                                                                         \
    XX(ps_messages, close, close)                                                                                      \
    XX(ps_process_group, close, close)                                                                                 \
    XX(ps_engine_options, is_empty, is_empty)                                                                          \
    XX(ps_load_options, allow_new_rows, allow_new_rows)                                                                \
    XX(ps_rope, mscale_all_dim, mscale_all_dim)                                                                        \
    XX(ps_attention_options, dropout_p, dropout_p)                                                                     \
    XX(ps_cross_entropy_options, z_loss, z_loss)                                                                       \
    XX(ps_own_operator, flops, flops)                                                                                  \
    XX(ps_own_use, options_bytes, n_classes)                                                                           \
    XX(ps_batch, token_type_ids, values)                                                                               \
    XX(ps_eval_info, n_correct, weight)                                                                                \
    XX(ps_step_info, loss, n_targets)                                                                                  \
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

/* *ours becomes what the caller gives: PS_EINVAL, naming structure and sizes, when that is too small or large, has
 * members that are not 0 and that this library does not know, or is NULL. *ours is then all 0. */
PS_NODISCARD ps_status ps_sized_take(ps_sized which, const void *caller, void *ours);
/* Fill the caller's with ours, but for struct_size. PS_EINVAL when that is too small or large, or NULL: nothing is
 * written then. */
ps_status ps_sized_give(ps_sized which, const void *ours, void *caller);

/* The same with types that are checked: PS_SIZED_TAKE(ps_batch, batch, &own). */
#define PS_SIZED_TAKE(type, caller, ours) ps_sized_take(PS_SIZED_##type, (const type *){caller}, (type *){ours})
#define PS_SIZED_GIVE(type, ours, caller) ps_sized_give(PS_SIZED_##type, (const type *){ours}, (type *){caller})

#endif
