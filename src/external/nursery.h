/* nursery.h - memory in which a model is built before its chunks are laid out: pages of a file without a name, so that
 * they can leave memory, and are given back a piece at a time while chunks come.
 *
 *     take: a piece of zeros        rest: its pages may leave to the file        give: the piece is zeros, without room
 *
 * One thread at a time. */
#ifndef PS_EXTERNAL_NURSERY_H
#define PS_EXTERNAL_NURSERY_H

#include "base/status.h"

typedef struct ps_nursery ps_nursery;

typedef struct ps_nursery_piece {
    void *address;
    int64_t offset, bytes; /* of the file, in pages */
} ps_nursery_piece;

/* folders: those of the disk tier (device/disk_folders.h), the first of which has the file; NULL: memory has it, at most
 * so many bytes of it, 0: as many as the machine has. PS_EIO, PS_ENOMEM_HOST. */
PS_NODISCARD ps_status ps_nursery_create(const char *folders, int64_t most, ps_nursery **out);
/* All addresses end. NULL is accepted. */
void ps_nursery_destroy(ps_nursery *n);

/* PS_EIO when the file has no room for it, so that writing to the piece cannot fail later; PS_ENOMEM_HOST; PS_EBUDGET when
 * memory has it and the machine has less. */
PS_NODISCARD ps_status ps_nursery_take(ps_nursery *n, int64_t bytes, ps_nursery_piece *out);
void ps_nursery_rest(ps_nursery *n, const ps_nursery_piece *p);
/* Its room is given back; the address reads as zeros until the nursery ends. */
void ps_nursery_give(ps_nursery *n, const ps_nursery_piece *p);

#endif
