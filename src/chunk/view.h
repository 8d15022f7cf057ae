/* view.h - read or replace the content of a chunk on its current tier. Between moments, for access to parameters from
 * outside of a step: no chunk moves, so no room is needed and residency stays the same.
 *
 * In RAM a view is the payload itself. For a chunk that is on disk only, or in memory that the host cannot access, it
 * is a copy of that range, in memory outside of the budgets; hence the limit. */
#ifndef PS_CHUNK_VIEW_H
#define PS_CHUNK_VIEW_H

#include "chunk/store.h"

/* Maximum bytes of a view. */
#define PS_VIEW_BYTES_MAX ((int64_t)1 << 18)

typedef struct ps_view {
    void *bytes; /* from the requested offset */
    ps_chunk_id chunk;
    bool is_pinned, is_changed;
    void *payload;        /* of a pinned chunk, at the requested offset; `bytes` itself where the host can access it */
    void *memory, *pages; /* of a copy: its allocation, and the first whole page in it */
    int64_t disk_offset, n_bytes; /* of a range read from disk, in whole pages; of a copy its bytes */
} ps_view;

/* Show [offset, offset + bytes) of a chunk's content; mode READ or WRITE. A chunk without content reads as zeros; for
 * writing it is created on `tier`, which can fail as ps_store_pin does. PS_EIO, PS_ENOMEM_HOST; nothing is left open
 * then. */
PS_NODISCARD ps_status ps_view_open(ps_store *s, ps_chunk_id chunk, ps_tier tier, int64_t offset, int64_t bytes,
                                    ps_access_mode mode, ps_view *v);
/* Each success of open needs one. On success the content is that of v->bytes; on failure (PS_EIO: the chunk is on disk)
 * a part of it may be written. */
PS_NODISCARD ps_status ps_view_close(ps_store *s, ps_view *v);

#endif
