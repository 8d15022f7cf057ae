/* staging_file.h - memory in which a model is built before its chunks are laid out: pages of a file without a name, so
 * that they can leave memory, and are freed a piece at a time while chunks are filled.
 *
 *     take: allocates a piece of zeros   rest: its pages may be written to the file   give: frees it, its bytes are
 * zeros
 *
 * One thread at a time. */
#ifndef PS_EXTERNAL_STAGING_FILE_H
#define PS_EXTERNAL_STAGING_FILE_H

#include "base/status.h"

typedef struct ps_staging_file ps_staging_file;

typedef struct ps_staging_file_piece {
    void *address;
    int64_t offset, bytes; /* in the file, in pages */
} ps_staging_file_piece;

/* folders: those of the disk tier (device/disk_folders.h), of which the first has the file; NULL: in memory, at most so
 * many bytes, 0: as many as the machine has. PS_EIO, PS_ENOMEM_HOST. */
PS_NODISCARD ps_status ps_staging_file_create(const char *folders, int64_t most, ps_staging_file **out);
/* All addresses become invalid. NULL is accepted. */
void ps_staging_file_destroy(ps_staging_file *n);

/* PS_EIO when the file has no room for it, so that writing to the piece cannot fail later; PS_ENOMEM_HOST; PS_EBUDGET
 * when it is in memory and the machine has less. */
PS_NODISCARD ps_status ps_staging_file_take(ps_staging_file *n, int64_t bytes, ps_staging_file_piece *out);
void ps_staging_file_release(ps_staging_file *n, const ps_staging_file_piece *p);
/* Its room is freed; the address reads as zeros until the file is closed. */
void ps_staging_file_give(ps_staging_file *n, const ps_staging_file_piece *p);

#endif
