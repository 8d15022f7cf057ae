#include "api/external/staging_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "base/bytes.h"
#include "base/fault.h"
#include "base/machine.h"
#include "base/mem.h"
#include "device/disk_backend.h"
#include "device/disk_folders.h"

/* Pieces are mapped many at a time: the system limits mappings of a process to some ten thousands, and a model may have
 * more tensors. The part of a window after the file's end is reserved addresses only. */
static const int64_t window_bytes = (int64_t)64 << 20;

struct ps_staging_file {
    ps_disk_file file; /* .path NULL: in memory */
    int64_t bytes;     /* so far */
    int64_t n_given;   /* bytes freed */
    int64_t most;      /* in memory: limit by the budget or the machine; 0: not known */
    ps_staging_file_piece *windows;
    size_t n_windows;
};

static ps_status open_in(const char *folders, ps_staging_file *n)
{
    ps_disk_folders f;
    PS_TRY(ps_disk_folders_read(folders, &f));
    return ps_disk_file_open(f.name[0], PS_DISK_NO_DIRECT, &n->file); /* it is mapped, not read or written */
}

static ps_status open_memory(ps_staging_file *n)
{
    n->file = (ps_disk_file){.fd = memfd_create("patrickstar", MFD_CLOEXEC)};
    ps_machine_memory_info machine;
    if (n->most == 0 && ps_machine_memory(NULL, &machine) == PS_OK) n->most = machine.total_bytes;
    if (n->file.fd >= 0) return PS_OK;
    return PS_FAIL(PS_ENOMEM_HOST, "no memory to build the model in: %s", strerror(errno));
}

ps_status ps_staging_file_create(const char *folders, int64_t most, ps_staging_file **out)
{
    *out = NULL;
    ps_staging_file *n;
    PS_TRY(ps_mem_alloc(1, sizeof *n, &n));
    n->file.fd = -1;
    n->most = folders != NULL ? 0 : most;
    const ps_status st = folders != NULL ? open_in(folders, n) : open_memory(n);
    if (st == PS_OK)
        *out = n;
    else
        ps_staging_file_destroy(n);
    return st;
}

void ps_staging_file_destroy(ps_staging_file *n)
{
    if (n == NULL) return;
    for (size_t i = 0; i < n->n_windows; i++) munmap(n->windows[i].address, (size_t)n->windows[i].bytes);
    if (n->file.path != NULL)
        ps_disk_file_close(&n->file);
    else if (n->file.fd >= 0)
        close(n->file.fd);
    ps_mem_free(n->windows);
    ps_mem_free(n);
}

static ps_status fail_room(const ps_staging_file *n, int64_t bytes, int error)
{
    char text[2][PS_BYTES_TEXT_MAX];
    const bool is_full = error == ENOSPC || error == EDQUOT;
    return PS_FAIL(n->file.path == NULL ? PS_ENOMEM_HOST
                   : is_full            ? PS_EBUDGET
                                        : PS_EIO,
                   "%s has no room for %s of initial values, after %s: %s; free some space there, or choose another "
                   "folder (memory.disk_path)",
                   n->file.path != NULL ? n->file.path : "memory", ps_bytes_format(bytes, text[0]),
                   ps_bytes_format(n->bytes, text[1]), strerror(error));
}

/* Otherwise the kernel's OOM killer would end the process while values are created. */
static ps_status check_machine(const ps_staging_file *n, int64_t bytes)
{
    const int64_t all = n->bytes - n->n_given + bytes;
    char all_text[PS_BYTES_TEXT_MAX], most_text[PS_BYTES_TEXT_MAX];
    if (n->most == 0 || all <= n->most) return PS_OK;
    return PS_FAIL(
        PS_EBUDGET,
        "initial values of the model take %s of memory, and memory.total, this machine, or the control group that the "
        "process runs in leaves %s: give memory.disk a budget, and they are in a file in memory.disk_path",
        ps_bytes_format(all, all_text), ps_bytes_format(n->most, most_text));
}

/* Not every file system can allocate room ahead (EOPNOTSUPP); there a full one kills the writing process, as it does
 * any program that maps a file. */
static ps_status preallocate(ps_staging_file *n, int64_t bytes)
{
    if (ps_fault_hit(PS_FAULT_WRITE)) return fail_room(n, bytes, EIO);
    if (fallocate(n->file.fd, 0, n->bytes, bytes) == 0) return PS_OK;
    if (errno == EOPNOTSUPP && ftruncate(n->file.fd, n->bytes + bytes) == 0) return PS_OK;
    return fail_room(n, bytes, errno);
}

/* The last window has the next `bytes` of the file. */
static ps_status open_window(ps_staging_file *n, int64_t bytes)
{
    const ps_staging_file_piece *last = n->n_windows > 0 ? &n->windows[n->n_windows - 1] : NULL;
    if (last != NULL && n->bytes + bytes <= last->offset + last->bytes) return PS_OK;
    ps_staging_file_piece w = {.offset = n->bytes, .bytes = ps_max_i64(window_bytes, bytes)};
    PS_TRY(ps_mem_reserve(&n->windows, n->n_windows + 1, sizeof *n->windows));
    w.address = mmap(NULL, (size_t)w.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, n->file.fd, w.offset);
    if (w.address == MAP_FAILED) return fail_room(n, bytes, errno);
    /* a forked process, which loads data, must not access it */
    (void)madvise(w.address, (size_t)w.bytes, MADV_DONTFORK);
    n->windows[n->n_windows++] = w;
    return PS_OK;
}

ps_status ps_staging_file_take(ps_staging_file *n, int64_t bytes, ps_staging_file_piece *out)
{
    *out = (ps_staging_file_piece){.offset = n->bytes, .bytes = ps_round_up(ps_max_i64(bytes, 1), PS_PAGE_BYTES)};
    PS_TRY(check_machine(n, out->bytes));
    PS_TRY(open_window(n, out->bytes));
    PS_TRY(preallocate(n, out->bytes));
    const ps_staging_file_piece *w = &n->windows[n->n_windows - 1];
    out->address = (char *)w->address + (out->offset - w->offset);
    n->bytes += out->bytes;
    return PS_OK;
}

/* Unmaps the pages from the process, which then no longer counts them; the system writes them to the file at any time,
 * and keeps them until then. */
void ps_staging_file_release(ps_staging_file *n, const ps_staging_file_piece *p)
{
    (void)n;
    if (p->address != NULL) (void)madvise(p->address, (size_t)p->bytes, MADV_DONTNEED);
}

void ps_staging_file_give(ps_staging_file *n, const ps_staging_file_piece *p)
{
    if (p->address == NULL) return;
    ps_staging_file_release(n, p);
    n->n_given += p->bytes;
    (void)fallocate(n->file.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, p->offset, p->bytes);
}
