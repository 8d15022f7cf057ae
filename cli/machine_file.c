#include "machine_file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/base.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/machine.h"
#include "device/disk_folders.h"
#include "patrickstar.h"

#define LOCK_SECONDS 45.0 /* measuring takes a few seconds, for a GPU half a minute */
#define TELL_SECONDS 2.0

enum { WORD_BYTES = 64 }; /* a part of a name, cut to fit */

bool machine_file_folder(char out[MACHINE_FOLDER_BYTES])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = 0;
    if (cache != NULL && cache[0] == '/')
        n = snprintf(out, MACHINE_FOLDER_BYTES, "%s/patrickstar", cache);
    else if (home != NULL && home[0] == '/')
        n = snprintf(out, MACHINE_FOLDER_BYTES, "%s/.cache/patrickstar", home);
    const bool has_one = n > 0 && n < MACHINE_FOLDER_BYTES;
    if (!has_one) out[0] = '\0';
    return has_one;
}

static ps_status make_folder(const char *path)
{
    if (mkdir(path, 0700) == 0) return PS_OK;
    const int error = errno;
    return ps_folder_exists(path) ? PS_OK : PS_FAIL(PS_EIO, "%s: cannot make the folder: %s", path, strerror(error));
}

ps_status machine_file_make_folder(const char *folder)
{
    char part[MACHINE_FOLDER_BYTES];
    for (const char *slash = strchr(folder + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", (int)(slash - folder), folder);
        PS_TRY(make_folder(part));
    }
    return make_folder(folder);
}

/* ---- names ---- */

/* "Intel(R) Xeon(R) Gold 6430" becomes "intel-r-xeon-r-gold-6430". */
static void make_word(const char *text, char out[WORD_BYTES])
{
    int n = 0;
    for (const char *p = text; *p != '\0' && n < WORD_BYTES - 1; p++) {
        const bool is_kept = isalnum((unsigned char)*p) || *p == '.' || *p == '_';
        if (is_kept)
            out[n++] = (char)tolower((unsigned char)*p);
        else if (n > 0 && out[n - 1] != '-')
            out[n++] = '-';
    }
    while (n > 0 && out[n - 1] == '-') n--;
    out[n] = '\0';
}

/* Common prefix of the names of all files of this machine. */
static void name_machine(char out[MACHINE_PATH_BYTES - MACHINE_FOLDER_BYTES])
{
    char cpu[128], cpu_word[WORD_BYTES], kernel_word[WORD_BYTES];
    struct utsname kernel = {.release = "?"};
    ps_machine_cpu_name(NULL, cpu, sizeof cpu);
    (void)uname(&kernel);
    make_word(cpu, cpu_word);
    make_word(kernel.release, kernel_word);
    snprintf(out, MACHINE_PATH_BYTES - MACHINE_FOLDER_BYTES, "machine-%d.%d-%s-%d-cores-%s-", PS_VERSION_MAJOR,
             PS_VERSION_MINOR, cpu_word, ps_machine_cores(NULL), kernel_word);
}

static int by_number(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* By device; for several folders by a hash of their devices that does not depend on their order. */
static void name_disk(const char *folders, char *out, size_t bytes)
{
    ps_disk_folders f;
    uint64_t devices[PS_DISK_FILES_MAX] = {0};
    snprintf(out, bytes, "no-disk");
    if (folders == NULL || ps_disk_folders_read(folders, &f) != PS_OK) return;
    for (int i = 0; i < f.n; i++) {
        struct stat info;
        if (stat(f.name[i], &info) != 0) return;
        devices[i] = info.st_dev;
    }
    qsort(devices, (size_t)f.n, sizeof devices[0], by_number);
    if (f.n == 1)
        snprintf(out, bytes, "disk-%u.%u", major(devices[0]), minor(devices[0]));
    else
        snprintf(out, bytes, "%d-disks-%016" PRIx64, f.n, XXH3_64bits(devices, (size_t)f.n * sizeof devices[0]));
}

void machine_file_path(const char *folder, const machine_use *use, machine_part part, char out[MACHINE_PATH_BYTES])
{
    char machine[MACHINE_PATH_BYTES - MACHINE_FOLDER_BYTES], of[2 * WORD_BYTES], gpu[WORD_BYTES];
    out[0] = '\0';
    if (folder[0] == '\0') return;
    make_word(use->gpu, gpu);
    name_machine(machine);
    if (part == MACHINE_DISK)
        name_disk(use->disk_folder, of, sizeof of);
    else
        snprintf(of, sizeof of, "%s%s%s-%d-threads-%s", gpu, gpu[0] != '\0' ? "-" : "", ps_cpu_isa_name(use->isa),
                 use->n_threads, ps_dtype_name(use->format));
    snprintf(out, MACHINE_PATH_BYTES, "%s/%s%s.json", folder, machine, of);
}

bool machine_file_is_of_this_machine(const char *name)
{
    char machine[MACHINE_PATH_BYTES - MACHINE_FOLDER_BYTES];
    const size_t n = strlen(name);
    name_machine(machine);
    return strncmp(name, machine, strlen(machine)) == 0 && n > 5 && strcmp(name + n - 5, ".json") == 0;
}

bool machine_file_is_of_disk(const char *name)
{
    return strstr(name, "-disk-") != NULL || strstr(name, "-disks-") != NULL;
}

/* ---- files ---- */

int machine_file_lock(const char *folder)
{
    char path[MACHINE_PATH_BYTES];
    snprintf(path, sizeof path, "%s/measuring.lock", folder);
    const int lock = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (lock < 0) return -1;
    const int64_t begin_ns = ps_clock_ns();
    bool is_told = false;
    while (flock(lock, LOCK_EX | LOCK_NB) != 0) {
        const bool is_taken = errno == EWOULDBLOCK || errno == EINTR; /* else locks are not supported */
        const double seconds = (double)(ps_clock_ns() - begin_ns) * 1e-9;
        if (!is_taken || seconds > LOCK_SECONDS) {
            close(lock);
            return -1;
        }
        if (!is_told && seconds > TELL_SECONDS) {
            fprintf(stderr, "waiting for another process that measures this machine, %.0f s at most\n", LOCK_SECONDS);
            is_told = true;
        }
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    return lock;
}

void machine_file_unlock(int lock)
{
    if (lock >= 0) close(lock);
}

static const ps_hardware_matrix *gemms_of(const ps_hardware *hw, ps_dtype format)
{
    switch (format) {
    case PS_DTYPE_BF16: return &hw->device.bf16;
    case PS_DTYPE_F16: return &hw->device.fp16;
    case PS_DTYPE_F32:
    case PS_DTYPE_COUNT: break;
    }
    return &hw->device.f32;
}

ps_status machine_file_load(const char *path, const machine_use *use, machine_part part, ps_hardware *out)
{
    struct stat of_file;
    if (stat(path, &of_file) == 0 && of_file.st_uid != geteuid())
        return PS_FAIL(PS_EINVAL, "%s belongs to another user", path);
    PS_TRY(ps_hardware_load(path, out));
    const bool has_it = part == MACHINE_DISK
                            ? out->disk.present
                            : gemms_of(out, use->format)->present && (out->gpus_per_node > 0) == (use->gpu[0] != '\0');
    if (!has_it) return PS_FAIL(PS_EINVAL, "%s describes another use of the machine than its name says", path);
    return PS_OK;
}
