#include "client_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static ps_status make_folder(const char *path)
{
    struct stat info;
    if (mkdir(path, 0777) == 0) return PS_OK;
    const int cause = errno;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) return PS_OK;
    return client_fail(PS_EIO, "%s: cannot make the folder: %s", path, strerror(cause));
}

ps_status client_make_folders(const char *path)
{
    char *part = strdup(path);
    ps_status st = part != NULL ? PS_OK : client_fail(PS_ENOMEM_HOST, "no memory for a path");
    for (char *p = part; st == PS_OK && *p != '\0'; p++) {
        if (*p != '/' || p == part) continue;
        *p = '\0';
        st = make_folder(part);
        *p = '/';
    }
    if (st == PS_OK) st = make_folder(part);
    free(part);
    return st;
}

ps_status client_read_file(const char *path, char **text, size_t *n_bytes)
{
    enum { PIECE = 1 << 16 };
    ps_status st = PS_OK;
    size_t n = 0, n_read = 0;
    *text = NULL;
    *n_bytes = 0;
    FILE *f = fopen(path, "re");
    if (f == NULL && errno == ENOENT) return PS_OK;
    if (f == NULL) return client_fail(PS_EIO, "cannot read %s: %s", path, strerror(errno));
    do {
        TRY_GOTO(client_reserve(text, (int64_t)(2 * n + PIECE + 1), 1));
        n_read = fread(*text + n, 1, n + PIECE, f);
        n += n_read;
    } while (n_read > 0);
    if (ferror(f)) st = client_fail(PS_EIO, "cannot read %s: %s", path, strerror(errno));
    (*text)[n] = '\0';
    *n_bytes = n;
out:
    fclose(f);
    if (st != PS_OK) {
        free(*text);
        *text = NULL;
    }
    return st;
}

/* Makes the new name durable. Ignored where a folder cannot be synced, as on some network file systems. */
static void sync_folder_of(const char *path)
{
    char folder[4096];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash != NULL ? (int)(slash - path) + 1 : 1, slash != NULL ? path : ".");
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    (void)fsync(fd);
    close(fd);
}

static bool write_and_sync(int fd, const char *text, size_t n_bytes)
{
    for (size_t done = 0; done < n_bytes;) {
        const ssize_t n = write(fd, text + done, n_bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return false;
        done += (size_t)n;
    }
    return fsync(fd) == 0;
}

ps_status client_write_file(const char *path, const char *text, size_t n_bytes)
{
    char temporary[4200];
    if ((size_t)snprintf(temporary, sizeof temporary, "%s.tmp", path) >= sizeof temporary)
        return client_fail(PS_EINVAL, "%.100s...: the path is longer than %zu", path, sizeof temporary - 5);
    const int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    bool is_done = fd >= 0 && write_and_sync(fd, text, n_bytes);
    int cause = errno;
    if (fd >= 0 && close(fd) != 0 && is_done) {
        is_done = false;
        cause = errno;
    }
    if (is_done && rename(temporary, path) != 0) {
        is_done = false;
        cause = errno;
    }
    if (is_done) {
        sync_folder_of(path);
        return PS_OK;
    }
    if (fd >= 0) (void)unlink(temporary);
    return client_fail(PS_EIO, "cannot write %s: %s", path, strerror(cause));
}
