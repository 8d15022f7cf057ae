/* keeping_room.c - may early updates be taken back (memory.update_in_backward = speculate)? Then the disk has room for all
 * chunks, and second places for optimizer data, and an update has room for gradients that it keeps. */
#include <stdio.h>

#include "api/external/client_budget.h"
#include "base/bytes.h"
#include "base/log.h"
#include "train/state/footprint.h"

static bool is_trained_here(const ps_client *c, int32_t chunk)
{
    return ps_client_owns(c, chunk) && !c->tensors[c->pieces.all[c->pieces.first[chunk]].tensor].is_frozen;
}

static int32_t count_trained(const ps_client *c)
{
    int32_t n = 0;
    for (int32_t k = 0; k < c->layout->n_chunks; k++) n += is_trained_here(c, k);
    return n;
}

int64_t ps_client_keeping_bytes(const ps_client *c, int32_t n_keeping)
{
    int64_t bytes = n_keeping * ps_kept_payload_bytes(&c->settings, c->layout->chunk_elements);
    for (ps_list list = 0; list < c->lists.n; list++)
        bytes +=
            ps_lists_length(&c->lists, c->layout, list) * ps_payload_bytes(&c->settings, c->layout, &c->lists, list);
    return bytes;
}

static int32_t count_keeping(const ps_client *c)
{
    const int64_t left = c->settings.budgets.bytes[PS_TIER_DISK] - ps_client_keeping_bytes(c, 0);
    const int64_t one = ps_kept_payload_bytes(&c->settings, c->layout->chunk_elements);
    return left <= 0 ? 0 : (int32_t)ps_min_i64(count_trained(c), left / one);
}

void ps_client_set_keeping(ps_client *c, bool speculates)
{
    c->settings.may_speculate = speculates;
    c->lists = ps_lists_of(&c->settings, 0, 0);
    ps_client_find_update_bytes(c);
    c->n_keeping = speculates ? count_keeping(c) : 0;
    const int64_t n = count_trained(c);
    for (int64_t k = 0, i = 0; k < c->layout->n_chunks; k++) {
        if (!is_trained_here(c, (int32_t)k)) continue;
        /* evenly spread over the order of use */
        c->updates.may_keep[k] = (i + 1) * c->n_keeping / n > i * c->n_keeping / n;
        i++;
    }
}

static bool refuse(const ps_client *c)
{
    const int64_t *b = c->settings.budgets.bytes;
    const int64_t page = ps_settings_page_bytes(&c->settings), least = ps_client_least_device_bytes(c);
    char text[PS_SPECULATION_TEXT_MAX], bytes[2][PS_BYTES_TEXT_MAX], advice[PS_CLIENT_ADVICE_TEXT_MAX];
    if (c->n_keeping == 0 && count_trained(c) > 0)
        (void)ps_speculation_why_no_room(b[PS_TIER_DISK], ps_client_keeping_bytes(c, 1),
                                         ps_client_keeping_bytes(c, count_trained(c)), text);
    else if (b[PS_TIER_DEVICE] / page * page < least)
        snprintf(
            text, sizeof text,
            "memory.update_in_backward = speculate: without effect, as an update that keeps its gradients needs %s "
            "of the device tier, which has %s: try %s",
            ps_bytes_format(least, bytes[0]), ps_bytes_format(b[PS_TIER_DEVICE], bytes[1]),
            ps_client_advice(c, least, advice));
    else
        return false;
    ps_log(PS_LOG_WARNING, "%s", text);
    return true;
}

bool ps_client_choose_keeping(ps_client *c)
{
    ps_client_set_keeping(c, true);
    return !refuse(c);
}
