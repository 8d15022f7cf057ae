/* view.h - content of a chunk, read or replaced where it lies. Between moments, for who looks at parameters from
 * outside: no chunk moves for it, so it needs no room, and whoever comes next finds everything where it was.
 *
 * In RAM a view is the payload itself. Of a chunk that is on disk only, or in memory that the host cannot touch, it is
 * a copy of that range, in memory beside the budgets; hence the limit. */
#ifndef PS_CHUNK_VIEW_H
#define PS_CHUNK_VIEW_H

#include "chunk/store.h"

/* A view shows at most so many bytes. */
#define PS_VIEW_BYTES_MAX ((int64_t)1 << 18)

typedef struct ps_view {
    void *bytes; /* from the offset asked for */
    ps_chunk_id chunk;
    bool is_pinned, is_changed;
    void *payload;        /* of a pinned one, at the offset asked for; `bytes` itself where the host reaches it */
    void *memory, *pages; /* of a copy: what is to be freed, and the first whole page in it */
    int64_t disk_offset, n_bytes; /* of a range read from disk, in whole pages; of a copy its bytes */
} ps_view;

/* Show [offset, offset + bytes) of a chunk's content; mode READ or WRITE. A chunk without content reads as zeros;
 * to be written it is made on `tier`, which can fail as ps_store_pin does. PS_EIO, PS_ENOMEM_HOST; nothing is left
 * open then. */
PS_NODISCARD ps_status ps_view_open(ps_store *s, ps_chunk_id chunk, ps_tier tier, int64_t offset, int64_t bytes,
                                    ps_access_mode mode, ps_view *v);
/* Each success of open needs one. When it succeeds, what was written to v->bytes is the content; when it fails (PS_EIO:
 * the chunk is on disk), some of it may be. */
PS_NODISCARD ps_status ps_view_close(ps_store *s, ps_view *v);

#endif
