/* settings_capacity.c - does this machine have the memory and disk space of a plan? Budgets given as bytes may be more
 * than the machine has; only the part that the plan uses matters. */
#include <stdio.h>

#include "base/bytes.h"
#include "base/machine.h"
#include "train/settings/settings.h"

/* " of 4 ranks", after their total. */
static const char *shared_text(int32_t n_sharers, char text[48])
{
    text[0] = '\0';
    if (n_sharers > 1) snprintf(text, 48, " of %d ranks", n_sharers);
    return text;
}

/* Beyond the machine's memory the kernel's OOM killer would end the process in mid-step. Memory that other processes
 * use now may be free later, so it counts as available. */
static ps_status check_ram(const ps_settings *s, const int64_t planned_bytes[PS_TIER_COUNT], int32_t n_sharers)
{
    const bool is_gpu = s->backend_kind == PS_BACKEND_CUDA;
    const int64_t planned = (planned_bytes[PS_TIER_HOST] + (is_gpu ? 0 : planned_bytes[PS_TIER_DEVICE])) * n_sharers;
    char planned_text[PS_BYTES_TEXT_MAX], total_text[PS_BYTES_TEXT_MAX], shared[48];
    ps_machine_memory_info memory;
    const bool is_known = ps_machine_memory(NULL, &memory) == PS_OK, is_one = is_gpu || ps_settings_is_total(s);
    const char *option = is_gpu ? "memory.host" : is_one ? "memory.total" : "memory.device and memory.host";
    if (!is_known || planned <= memory.total_bytes) return PS_OK;
    return PS_FAIL(PS_EBUDGET,
                   "%s: the plan takes %s%s, and this machine, or the control group that the process runs in, has %s: "
                   "lower %s, and give memory.disk what %s not hold",
                   option, ps_bytes_format(planned, planned_text), shared_text(n_sharers, shared),
                   ps_bytes_format(memory.total_bytes, total_text), is_one ? "it" : "them",
                   is_one ? "it does" : "they do");
}

/* The disk tier's file grows as chunks are written, so a shortage would be found in the middle of a step. Ranks of a
 * machine share the folders; their files have about the same size. */
static ps_status check_disk(const ps_settings *s, const int64_t planned_bytes[PS_TIER_COUNT], int32_t n_sharers)
{
    const int64_t planned = planned_bytes[PS_TIER_DISK] * n_sharers;
    char planned_text[PS_BYTES_TEXT_MAX], free_text[PS_BYTES_TEXT_MAX], shared[48];
    int64_t free_bytes;
    if (planned == 0) return PS_OK;
    PS_TRY(ps_disk_folders_free_bytes(s->tiers.disk_folders, &free_bytes));
    if (planned <= free_bytes) return PS_OK;
    return PS_FAIL(
        PS_EBUDGET,
        "memory.disk_path = %.300s has %s free, and the plan puts %s%s there: free some, name another folder, or raise "
        "%s",
        s->tiers.disk_folders, ps_bytes_format(free_bytes, free_text), ps_bytes_format(planned, planned_text),
        shared_text(n_sharers, shared), ps_settings_is_total(s) ? "memory.total" : "memory.device or memory.host");
}

ps_status ps_settings_check_capacity(const ps_settings *s, const int64_t planned_bytes[PS_TIER_COUNT],
                                     int32_t n_sharers)
{
    PS_TRY(check_ram(s, planned_bytes, n_sharers));
    return check_disk(s, planned_bytes, n_sharers);
}
