/* fuzz_file.h - the fuzzer's bytes as a file with a path, for readers which open files. */
#ifndef PS_TEST_FUZZ_FILE_H
#define PS_TEST_FUZZ_FILE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct fuzz_file {
    int fd;
    char path[64];
} fuzz_file;

static inline fuzz_file fuzz_file_make(const uint8_t *data, size_t n)
{
    fuzz_file f = {.fd = memfd_create("fuzz", MFD_CLOEXEC)};
    if (f.fd < 0 || write(f.fd, data, n) != (ssize_t)n) abort();
    snprintf(f.path, sizeof f.path, "/proc/self/fd/%d", f.fd);
    return f;
}

#endif
