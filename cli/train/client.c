#include "client.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

ps_status client_fail(ps_status st, const char *format, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    return ps_set_last_error(st, text);
}

ps_status client_alloc(int64_t n, size_t bytes_each, void *out)
{
    void *memory = calloc(n > 0 ? (size_t)n : 1, bytes_each);
    memcpy(out, &memory, sizeof memory);
    if (memory != NULL) return PS_OK;
    return client_fail(PS_ENOMEM_HOST, "no memory for %lld times %zu bytes", (long long)n, bytes_each);
}

ps_status client_reserve(void *out, int64_t n, size_t bytes_each)
{
    void *memory;
    memcpy(&memory, out, sizeof memory);
    memory = realloc(memory, (size_t)max_i64(n, 1) * bytes_each);
    if (memory == NULL)
        return client_fail(PS_ENOMEM_HOST, "no memory for %lld times %zu bytes", (long long)n, bytes_each);
    memcpy(out, &memory, sizeof memory);
    return PS_OK;
}

int64_t client_clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

ps_status client_peak_rss(int64_t *bytes)
{
    char line[256];
    long long peak = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f != NULL && peak < 0 && fgets(line, sizeof line, f) != NULL) (void)sscanf(line, "VmHWM: %lld kB", &peak);
    if (f != NULL) fclose(f);
    *bytes = peak * 1024;
    return peak >= 0 ? PS_OK : client_fail(PS_EIO, "/proc/self/status has no VmHWM");
}

/* "mod/" is mod, and ".." is the name of that folder. */
static void last_part(const char *path, char name[256])
{
    char real[PATH_MAX];
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    size_t first = n;
    while (first > 0 && path[first - 1] != '/') first--;
    const char *part = path + first;
    size_t length = n - first;
    const bool is_relative = length == 0 || (length <= 2 && strncmp(part, "..", length) == 0);
    if (is_relative && realpath(path, real) != NULL) {
        part = strrchr(real, '/') + 1;
        length = strlen(part);
    }
    snprintf(name, 256, "%.*s", (int)(length < 255 ? length : 255), part);
}

const char *client_usual_output_folder(const char *config_path, char text[CLIENT_FOLDER_MAX])
{
    char name[256];
    last_part(config_path, name);
    const char *dot = strrchr(name, '.');
    const bool is_json = dot != NULL && dot != name && strcmp(dot, ".json") == 0;
    snprintf(text, CLIENT_FOLDER_MAX, "runs/%.*s", (int)(is_json ? (size_t)(dot - name) : strlen(name)), name);
    return text;
}

static ps_status name_output_folder(ps_config *config, const char *config_path)
{
    char folder[CLIENT_FOLDER_MAX];
    int32_t is_given = 0;
    TRY(ps_config_is_given(config, "train.output_dir", &is_given));
    if (is_given) return PS_OK;
    return ps_config_set(config, "train.output_dir", client_usual_output_folder(config_path, folder));
}

ps_status client_load_config(const char *path, char *const *overrides, int n_overrides, ps_config **out)
{
    TRY(ps_config_load_assigned(path, overrides, n_overrides, out));
    ps_status st = ps_config_resize_vocabulary(*out);
    if (st == PS_OK) st = name_output_folder(*out, path);
    if (st == PS_OK) st = ps_config_set_disk_folder(*out, client_string(*out, "train.output_dir"));
    if (st == PS_OK) st = ps_config_allow_speculation(*out);
    if (st == PS_OK) return PS_OK;
    ps_config_destroy(*out);
    *out = NULL;
    return st;
}

int64_t client_int(const ps_config *config, const char *key)
{
    int64_t value = 0;
    if (ps_config_get_int(config, key, &value) == PS_OK) return value;
    fprintf(stderr, "pstar: %s\n", ps_last_error());
    abort();
}

const char *client_string(const ps_config *config, const char *key)
{
    const char *value = "";
    if (ps_config_get_string(config, key, &value) == PS_OK) return value;
    fprintf(stderr, "pstar: %s\n", ps_last_error());
    abort();
}
